package catalog

import (
	"bytes"
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

	"go.yaml.in/yaml/v3"
)

// What YAML readers disagree about is refused rather than read: Go and Terraform's
// yamldecode must see the same values.
var (
	plainInt   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	plainFloat = regexp.MustCompile(`^-?(0|[1-9][0-9]*)\.[0-9]+$`)
	// sexagesimal is a number in base 60 to readers of YAML 1.1, such as 10:30.
	sexagesimal = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)
	plainWord   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:-]{0,255}$`)
	boolWords   = []string{"y", "n", "yes", "no", "on", "off"}
)

const quotedStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// document parses the one document of a file, whose root must be a map.
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

// reader turns nodes into values and collects what is wrong with them, each mistake
// behind the place (file, queue) and the path of its key.
type reader struct {
	mistakes []error
	// unread holds place and path of each value that could not be read: what is
	// checked about it afterwards would only be noise.
	unread map[string]bool
}

// wrong records a mistake about a value, unless that value could not be read.
func (r *reader) wrong(place, path, what string) {
	if r.isUnread(place, path) || (strings.HasPrefix(place, queuePlace) && r.isUnread(queuesFile, "defaults."+path)) {
		return
	}
	if path != "" {
		place += ": " + path
	}
	r.mistakes = append(r.mistakes, fmt.Errorf("%s: %s", place, what))
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

// unreadable records a value that could not be read, and returns false.
func (r *reader) unreadable(place, path, what string) bool {
	r.wrong(place, path, what)
	r.unread[place+": "+path] = true
	return false
}

var (
	nodeType     = reflect.TypeFor[*yaml.Node]()
	durationType = reflect.TypeFor[duration]()
)

// value fills v from node, and reports whether v is usable. Pointers stay nil where
// the value is missing or unusable.
func (r *reader) value(node *yaml.Node, v reflect.Value, place, path string) bool {
	if v.Type() == nodeType {
		v.Set(reflect.ValueOf(node))
		return true
	}
	if what := ambiguity(node); what != "" {
		return r.unreadable(place, path, what)
	}
	switch v.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		if !r.value(node, fresh.Elem(), place, path) {
			return false
		}
		v.Set(fresh)
		return true
	case reflect.Struct:
		fields := map[string]reflect.Value{}
		collectFields(v, fields)
		return r.entries(node, place, path, func(key string, item *yaml.Node) {
			field, ok := fields[key]
			if !ok {
				r.unreadable(place, join(path, key), "unknown key")
				return
			}
			r.value(item, field, place, join(path, key))
		})
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		return r.entries(node, place, path, func(key string, item *yaml.Node) {
			fresh := reflect.New(v.Type().Elem()).Elem()
			if r.value(item, fresh, place, join(path, key)) {
				v.SetMapIndex(reflect.ValueOf(key), fresh)
			}
		})
	case reflect.Slice:
		if node.Kind != yaml.SequenceNode {
			return r.unreadable(place, path, "must be a list")
		}
		for i, item := range node.Content {
			fresh := reflect.New(v.Type().Elem()).Elem()
			if r.value(item, fresh, place, fmt.Sprintf("%s[%d]", path, i)) {
				v.Set(reflect.Append(v, fresh))
			}
		}
		return true
	default:
		if what := scalar(node, v); what != "" {
			return r.unreadable(place, path, what)
		}
		return true
	}
}

// entries visits the keys of a map, each once.
func (r *reader) entries(node *yaml.Node, place, path string, visit func(key string, item *yaml.Node)) bool {
	if node.Kind != yaml.MappingNode {
		return r.unreadable(place, path, "must be a map")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		switch what := ambiguity(key); {
		case what != "":
			r.unreadable(place, join(path, key.Value), what)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			r.unreadable(place, join(path, key.Value), "a key must be a string; quote it")
		case seen[key.Value]:
			r.wrong(place, join(path, key.Value), "the key stands here twice")
		default:
			seen[key.Value] = true
			visit(key.Value, node.Content[i+1])
		}
	}
	return true
}

func collectFields(v reflect.Value, into map[string]reflect.Value) {
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous {
			collectFields(v.Field(i), into)
			continue
		}
		into[v.Type().Field(i).Tag.Get("yaml")] = v.Field(i)
	}
}

// scalar fills v from a scalar node; it says what is wrong, or nothing.
func scalar(node *yaml.Node, v reflect.Value) string {
	tag := node.ShortTag()
	if node.Kind != yaml.ScalarNode {
		tag = ""
	}
	if v.Type() == durationType {
		parsed, ok := parseDuration(node.Value)
		if tag != "!!str" || !ok {
			return `must be a duration in seconds, in quotes, such as "600s"`
		}
		v.SetInt(int64(parsed))
		return ""
	}
	switch v.Kind() {
	case reflect.String:
		if tag != "!!str" {
			return "must be a string"
		}
		v.SetString(node.Value)
	case reflect.Bool:
		if tag != "!!bool" {
			return "must be true or false"
		}
		v.SetBool(node.Value == "true")
	case reflect.Int, reflect.Int64:
		parsed, err := strconv.ParseInt(node.Value, 10, 64)
		if tag != "!!int" || err != nil {
			return "must be a whole number"
		}
		v.SetInt(parsed)
	case reflect.Float64:
		parsed, err := strconv.ParseFloat(node.Value, 64)
		if (tag != "!!int" && tag != "!!float") || err != nil {
			return "must be a number"
		}
		v.SetFloat(parsed)
	default:
		return "cannot be read into " + v.Type().String()
	}
	return ""
}

// ambiguity says why YAML readers could disagree about a node, or nothing.
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
		return shown(node.Value) + " means different things to different readers of YAML; quote it, or write it as true, false or a plain decimal number"
	}
	return ""
}

// shown is a value of the catalog as a message shows it: bare where it is a plain
// word, else quoted, and never long. The catalog is our own file, not a payload.
func shown(value string) string {
	if plainWord.MatchString(value) {
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

// duration is a string in seconds, as google_pubsub_subscription has it: "600s", "0.5s".
type duration time.Duration

var durationShape = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.[0-9]{1,3})?s$`)

func parseDuration(text string) (time.Duration, bool) {
	if !durationShape.MatchString(text) {
		return 0, false
	}
	parsed, err := time.ParseDuration(text)
	return parsed, err == nil
}
