package contract

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Given is what the transport says about a message, beside its body.
type Given struct {
	// ID is the event id in the message's attributes.
	ID string
	// Type is the event type for a body that has none.
	Type          string
	CorrelationID string
	// At is the time for a body that has none.
	At time.Time
}

// Complete returns a body of the format with missing members filled in: the event type, the time, and the id,
// which may become a hash of the body. A body without the format's content is a raw object (requirements:
// billing queues, section 12); its members become the content. The error is ErrMalformed or ErrFormat.
func (s *Set) Complete(format string, data []byte, given Given) ([]byte, error) {
	f := s.format(format)
	switch {
	case f == nil:
		return nil, ErrFormat
	case f.Content == "":
		return data, nil
	case !jsontext.Value(data).IsValid():
		return nil, ErrMalformed
	}
	head := map[string]jsontext.Value{}
	if !EachMember(data, func(name string, value jsontext.Value) {
		if value.Kind() != 'n' {
			head[name] = value
		}
	}) {
		return nil, ErrMalformed
	}
	own, raw := text(head[f.Type]), head[f.Content].Kind() != '{'
	if raw {
		if err := f.sort(head, given.Type); err != nil {
			return nil, err
		}
	}
	lacks := raw
	fill := func(name, with string) {
		if has := head[name]; with != "" && (len(has) == 0 || string(has) == `""`) {
			// invalid UTF-8 is replaced here, and its shape is refused later
			head[name], _ = jsontext.AppendQuote(nil, with)
			lacks = true
		}
	}
	fill(f.Type, given.Type)
	fill(f.Time, given.At.UTC().Format(time.RFC3339Nano))
	fill("correlation_id", given.CorrelationID)
	fill(f.ID, given.ID)
	if own != "" {
		given.Type = ""
	}
	if len(head[f.ID]) == 0 {
		fill(f.ID, hashOf(data, given.Type))
	}
	if !lacks {
		return data, nil
	}
	whole, err := json.Marshal(head)
	if err != nil {
		return nil, ErrMalformed
	}
	return whole, nil
}

// sort moves the members of a raw object into the content, except those of the head.
func (k *known) sort(head map[string]jsontext.Value, eventType string) error {
	versions, _ := k.declared.Find(cmp.Or(text(head[k.Type]), eventType))
	content := map[string]jsontext.Value{}
	for name, value := range head {
		declared := versions[1] != nil && versions[1].members[k.Content+"."+name] != nil
		if !declared && name != k.Content && k.whole.members[name] != nil {
			continue
		}
		content[name] = value
		delete(head, name)
	}
	if len(content) == 0 {
		return ErrMalformed // an empty object is not a message
	}
	whole, err := json.Marshal(content)
	if err != nil {
		return ErrMalformed
	}
	head[k.Content] = whole
	if k.Version != "" {
		head[k.Version] = jsontext.Value("1")
	}
	return nil
}

func text(value jsontext.Value) string {
	if value.Kind() != '"' {
		return ""
	}
	unquoted, _ := jsontext.AppendUnquote(nil, value)
	return string(unquoted)
}

func hashOf(data []byte, eventType string) string {
	body := jsontext.Value(data).Clone()
	_ = body.Compact() // it is valid
	sum := sha256.New()
	_, _ = sum.Write(body)
	if eventType != "" {
		_, _ = sum.Write([]byte{0})
		_, _ = sum.Write([]byte(eventType))
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}
