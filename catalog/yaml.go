package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// What YAML readers disagree about is refused rather than read: Go and Terraform's
// yamldecode must see the same values.
var (
	plainInt   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	plainFloat = regexp.MustCompile(`^-?(0|[1-9][0-9]*)\.[0-9]+$`)
	boolWords  = []string{"y", "n", "yes", "no", "on", "off"}
)

// readDocument parses the one document of a file, and reports every construct in it
// that is ambiguous.
func readDocument(file string, data []byte) (*yaml.Node, []error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, []error{fmt.Errorf("%s: not readable as YAML", file)}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, []error{fmt.Errorf("%s: holds more than one document", file)}
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, []error{fmt.Errorf("%s: must be a map", file)}
	}
	var mistakes []error
	check(document.Content[0], func(line int, what string) {
		mistakes = append(mistakes, fmt.Errorf("%s: line %d: %s", file, line, what))
	})
	return document.Content[0], mistakes
}

func check(node *yaml.Node, report func(line int, what string)) {
	if node.Kind == yaml.AliasNode || node.Anchor != "" {
		report(node.Line, "anchors and aliases are not read")
		return
	}
	if node.Style&yaml.TaggedStyle != 0 {
		report(node.Line, "tags are not read")
		return
	}
	switch node.Kind {
	case yaml.MappingNode:
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			switch {
			case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
				report(key.Line, "a key must be a string; quote it")
			case seen[key.Value]:
				report(key.Line, "the key "+quote(key.Value)+" stands twice")
			}
			seen[key.Value] = true
			check(key, report)
			check(node.Content[i+1], report)
		}
	case yaml.SequenceNode:
		for _, item := range node.Content {
			check(item, report)
		}
	case yaml.ScalarNode:
		checkScalar(node, report)
	default:
	}
}

func checkScalar(node *yaml.Node, report func(line int, what string)) {
	if node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return
	}
	ok := false
	switch node.ShortTag() {
	case "!!str":
		ok = !slices.Contains(boolWords, strings.ToLower(node.Value))
	case "!!int":
		ok = plainInt.MatchString(node.Value)
	case "!!float":
		ok = plainFloat.MatchString(node.Value)
	case "!!bool":
		ok = node.Value == "true" || node.Value == "false"
	}
	if !ok {
		report(node.Line, quote(node.Value)+" is read differently by different readers; quote it or write it out")
	}
}

// quote shows a value of the catalog, shortened: it is a file of ours, not a payload.
func quote(value string) string {
	if len(value) > 40 {
		value = value[:40]
	}
	return fmt.Sprintf("%q", value)
}

// decode fills v from a node and reports unknown keys and wrong types behind prefix.
func decode(prefix string, node *yaml.Node, v any) []error {
	data, err := yaml.Marshal(node)
	if err != nil {
		return []error{fmt.Errorf("%s: %w", prefix, err)}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	err = decoder.Decode(v)
	var typed *yaml.TypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typed):
		mistakes := make([]error, 0, len(typed.Errors))
		for _, text := range typed.Errors {
			// Its line counts from the part that was decoded, which helps nobody.
			_, text, _ = strings.Cut(text, ": ")
			text, _, _ = strings.Cut(text, " in type ")
			text = strings.Replace(text, "field ", "unknown key ", 1)
			text = strings.TrimSuffix(text, " not found")
			mistakes = append(mistakes, fmt.Errorf("%s: %s", prefix, text))
		}
		return mistakes
	default:
		return []error{fmt.Errorf("%s: %w", prefix, err)}
	}
}

// duration is a string in seconds, as google_pubsub_subscription has it: "600s", "0.5s".
type duration time.Duration

var durationShape = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.[0-9]{1,3})?s$`)

func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.ScalarNode || !durationShape.MatchString(node.Value) {
		return &yaml.TypeError{Errors: []string{"line 0: " + quote(node.Value) + ` is not a duration in seconds such as "600s"`}}
	}
	parsed, err := time.ParseDuration(node.Value)
	if err != nil {
		return &yaml.TypeError{Errors: []string{"line 0: " + quote(node.Value) + " is not a duration"}}
	}
	*d = duration(parsed)
	return nil
}
