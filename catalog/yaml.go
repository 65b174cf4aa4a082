package catalog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Scalars that YAML readers disagree about are refused: Go and Terraform must see the same values.
var (
	plainInt   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	plainFloat = regexp.MustCompile(`^-?(0|[1-9][0-9]*)\.[0-9]+$`)
	// sexagesimal is a number in base 60 to readers of YAML 1.1, such as 10:30.
	sexagesimal = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)
	boolWords   = []string{"y", "n", "yes", "no", "on", "off"}
)

const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

const quotedStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func document(data []byte) (*yaml.Node, error) {
	if !utf8.Valid(data) || bytes.HasPrefix(data, []byte("\ufeff")) {
		return nil, errors.New("must be UTF-8 without a byte order mark")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node yaml.Node
	switch err := decoder.Decode(&node); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("is empty")
	case err != nil:
		return nil, fmt.Errorf("is not YAML: %w", err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("must hold one document; everything after a second --- would be ignored")
	}
	if len(node.Content) != 1 || node.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("must be a map")
	}
	return node.Content[0], nil
}

// reader turns nodes into values, and collects their mistakes by place and path.
type reader struct {
	mistakes  []*Mistake
	inherited []inherited // mistakes of queues that the defaults may have caused
	lines     lines
	unread    map[string]bool // place and path of each value that could not be read: later checks skip it
}

func newReader() *reader { return &reader{unread: map[string]bool{}, lines: lines{}} }

// wrong records a mistake about a value, unless that value could not be read.
func (r *reader) wrong(place, path, what string) {
	ofQueue := strings.HasPrefix(place, queuePlace)
	if r.isUnread(place, path) || (ofQueue && r.isUnread(queuesFile, "defaults."+path)) {
		return
	}
	if ofQueue && path != "" && r.lines[place+": "+path] == 0 {
		r.inherited = append(r.inherited, inherited{place, path, what})
		return
	}
	r.report(place, path, what)
}

// isUnread reports whether the value at path, or one that it is part of, could not be read.
func (r *reader) isUnread(place, path string) bool {
	for at := path; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if r.unread[place+": "+at] {
			return true
		}
	}
	return false
}

// unreadable records a value that could not be read.
func (r *reader) unreadable(place, path, what string) {
	r.wrong(place, path, what)
	r.unread[place+": "+path] = true
}

// tree returns the node as a map, a list or a scalar of JSON, without the parts that are refused.
func (r *reader) tree(node *yaml.Node, place, path string) any {
	if what := ambiguity(node); what != "" {
		r.unreadable(place, path, what)
		return nil
	}
	switch node.Kind {
	case yaml.MappingNode:
		entries := map[string]any{}
		for key, item := range r.entries(node, place, path) {
			if value := r.tree(item, place, join(path, key)); value != nil {
				entries[key] = value
			}
		}
		return entries
	case yaml.SequenceNode:
		items := []any{}
		for i, item := range node.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			r.note(place, at, item.Line)
			if value := r.tree(item, place, at); value != nil {
				items = append(items, value)
			}
		}
		return items
	default:
		if node.ShortTag() == "!!str" {
			return node.Value
		}
		return jsontext.Value(node.Value) // a plain scalar is also JSON's
	}
}

func (r *reader) entries(node *yaml.Node, place, path string) map[string]*yaml.Node {
	entries := map[string]*yaml.Node{}
	r.pairs(node, place, path, func(key, value *yaml.Node) {
		if key.ShortTag() != "!!str" {
			r.unreadable(place, join(path, key.Value), keyRule)
			return
		}
		entries[key.Value] = value
	})
	return entries
}

const keyRule = "a key must be a string; quote it"

// pairs visits the entries of a map in their order, each key once.
func (r *reader) pairs(node *yaml.Node, place, path string, visit func(key, value *yaml.Node)) {
	if what := ambiguity(node); what != "" || node.Kind != yaml.MappingNode {
		r.unreadable(place, path, cmp.Or(what, "must be a map"))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, at := node.Content[i], join(path, node.Content[i].Value)
		r.note(place, at, key.Line)
		switch what := ambiguity(key); {
		case what != "" || key.Kind != yaml.ScalarNode:
			r.unreadable(place, at, cmp.Or(what, keyRule))
		case seen[key.Value]:
			r.wrong(place, at, "the key stands here twice")
		default:
			seen[key.Value] = true
			visit(key, node.Content[i+1])
		}
	}
}

// strict refuses members that the value does not have, and durations that are not in seconds.
var strict = json.JoinOptions(json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.UnmarshalFunc(func(text []byte, d *time.Duration) error {
		unquoted, err := jsontext.AppendUnquote(nil, text)
		if err != nil || !durationShape.Match(unquoted) {
			return errors.New("no duration")
		}
		*d, err = time.ParseDuration(string(unquoted))
		return err
	})))

// decode fills v. It records each mistake and removes it from the tree, until the rest can be read.
func (r *reader) decode(tree, v any, place, path string) {
	for {
		text, err := json.Marshal(tree)
		if err == nil {
			err = json.Unmarshal(text, v, strict)
		}
		var mistake *json.SemanticError
		switch {
		case err == nil:
			return
		case !errors.As(err, &mistake):
			r.unreadable(place, path, err.Error())
			return
		case mistake.JSONPointer == "":
			r.unreadable(place, path, wanted(mistake))
			return
		}
		at, branch := path, tree
		for token := range mistake.JSONPointer.Tokens() {
			entries, ok := branch.(map[string]any)
			if !ok { // a list is removed whole
				if r.unread[place+": "+at] = true; at == path {
					tree = nil
				}
				at += "[" + token + "]"
				break
			}
			at, branch = join(at, token), entries[token]
			if _, deeper := branch.(map[string]any); !deeper || token == mistake.JSONPointer.LastToken() {
				delete(entries, token)
			}
		}
		r.report(place, at, wanted(mistake))
		r.unread[place+": "+at] = true
	}
}

func wanted(mistake *json.SemanticError) string {
	if errors.Is(mistake.Err, json.ErrUnknownName) {
		return "unknown key"
	}
	if t := mistake.GoType; t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[*time.Duration]() {
		return `must be a duration in seconds, in quotes, such as "600s"`
	}
	if errors.Is(mistake.Err, errTerms) {
		return errTerms.Error()
	}
	const whole = "a whole number"
	return "must be " + map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Int: whole, reflect.Int64: whole,
		reflect.Float64: "a number", reflect.Slice: "a list", reflect.Struct: "a map", reflect.Map: "a map",
	}[mistake.GoType.Kind()]
}

// ambiguity says why YAML readers could disagree about a node; empty if they cannot.
func ambiguity(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "" || node.ShortTag() == "!!merge":
		return "anchors, aliases and merge keys are not read; write it out"
	case node.Style&yaml.TaggedStyle != 0:
		return "tags are not read"
	case node.Kind != yaml.ScalarNode || node.Style&quotedStyles != 0:
		return ""
	}
	clear := false
	switch node.ShortTag() {
	case "!!str":
		clear = !slices.Contains(boolWords, strings.ToLower(node.Value)) && !sexagesimal.MatchString(node.Value)
	case "!!int":
		clear = plainInt.MatchString(node.Value)
	case "!!float":
		clear = plainFloat.MatchString(node.Value)
	case "!!bool":
		clear = node.Value == "true" || node.Value == "false"
	case "!!null":
		return "has no value; leave the key out"
	}
	if !clear {
		return shown(node.Value) + " means different things to different readers of YAML; quote it, or write it " +
			"as true, false or a plain decimal number"
	}
	return ""
}

// shown returns a value of our own file as a message shows it: plain or quoted, and never long.
func shown(value string) string {
	if strings.IndexAny(value, alphanumeric) == 0 && strings.Trim(value, alphanumeric+"_.:-") == "" &&
		len(value) <= 256 {
		return value
	}
	if len(value) > 60 {
		value = strings.ToValidUTF8(value[:60], "") + "..."
	}
	return strconv.Quote(value)
}

func join(path, key string) string {
	if path == "" {
		return shown(key)
	}
	return path + "." + shown(key)
}

// durationShape is a string in seconds, as google_pubsub_subscription has it: "600s", "0.5s".
var durationShape = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.[0-9]{1,3})?s$`)
