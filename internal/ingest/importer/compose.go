package importer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
)

// Composer says how old messages are changed on their way.
type Composer struct {
	// Type is that of messages that do not say theirs; empty: their queue must have one type alone.
	Type string
	// Members renames the members of each message's content. One without a new name is left out.
	Members map[string]string
}

// misfit is why an old message is nothing that the door takes.
type misfit struct{ code, detail string }

func (m *misfit) Error() string { return m.code }

func unfit(code, detail string) error { return &misfit{code, detail} }

type object = map[string]jsontext.Value

// item makes the item of a message, with its event id, where there is one. The error is a *misfit.
func (c Composer) item(known *catalog.Catalog, m Message, now time.Time) (item Item, id string, err error) {
	if m.Odd != "" {
		return item, "", unfit("odd", m.Odd)
	}
	q, ok := known.Queue(m.Queue)
	if !ok || !q.Enabled {
		return item, "", unfit("no_queue", "no enabled queue handles its type")
	}
	shape, ok := shapes[q.Contract]
	if !ok {
		return item, "", unfit("contract_unsupported", "old messages have no way to this queue: a provider's webhooks fill it")
	}
	data := m.Body
	if m.Content {
		data = slices.Concat([]byte(`{"`+shape.content+`":`), data, []byte{'}'})
	}
	made := m.Created
	if made.IsZero() {
		made = now
	}
	data, err = known.Contracts.Complete(q.Contract, data, contract.Given{ID: m.ID, Type: cmp.Or(m.Type, c.Type, onlyType(q)), At: made})
	var body object
	if err != nil || json.Unmarshal(data, &body) != nil || body[shape.content].Kind() != '{' {
		return item, "", unfit("not_an_object", "the message is not a JSON object in UTF-8 without duplicate names that says something")
	}
	maps.DeleteFunc(body, func(_ string, v jsontext.Value) bool { return v.Kind() == 'n' })
	if body[shape.kind] == nil {
		return item, "", unfit("no_type", "the message does not say its type; say it with --type")
	}
	if err := c.rename(body, shape.content); err != nil {
		return item, "", err
	}
	if err := shape.count(body, m); err != nil {
		return item, "", err
	}
	id = textOf(body[shape.id])
	if m.Due.After(now) {
		item.DeliverAt = m.Due.UTC()
	}
	// A limit above the queue's own is no reason to refuse: the queue's own counts.
	if h, ok := q.Handler(textOf(body[shape.kind])); ok && m.MaxAttempts < cmp.Or(h.MaxAttempts, q.MaxAttempts) {
		item.MaxAttempts = m.MaxAttempts
	}
	if item.Message, err = json.Marshal(body, json.Deterministic(true)); err != nil {
		return item, id, unfit("not_an_object", "the message cannot be written as JSON")
	}
	return item, id, nil
}

// TypeOf is the event type that a message would be sent as, else the code of why it cannot be sent.
func (c Composer) TypeOf(known *catalog.Catalog, m Message) string {
	item, _, err := c.item(known, m, time.Time{})
	var body map[string]jsontext.Value
	if misfit, ok := errors.AsType[*misfit](err); ok {
		return misfit.code
	}
	q, _ := known.Queue(m.Queue)
	if err != nil || json.Unmarshal(item.Message, &body) != nil {
		return "unreadable"
	}
	return cmp.Or(textOf(body[shapes[q.Contract].kind]), "unreadable")
}

// shape is what the importer knows of a body format.
type shape struct {
	id, kind, content string
	// count writes how often the message was tried.
	count func(body object, m Message) error
}

var shapes = map[string]shape{
	contract.EnvelopeV1: {"id", "action", "payload", func(body object, m Message) error {
		said, err := number(body["attempts"])
		body["attempts"] = jsontext.Value(strconv.Itoa(m.tried(said)))
		return err
	}},
	contract.MessageV1: {"id", "type", "data", func(body object, m Message) error {
		if body["version"] == nil {
			body["version"] = jsontext.Value("1")
		}
		metadata := object{}
		if body["metadata"] != nil && json.Unmarshal(body["metadata"], &metadata) != nil {
			return unfit("bad_metadata", "metadata is not an object")
		}
		// The first attempt is number 1.
		next, err := number(metadata["attempt"])
		metadata["attempt"] = jsontext.Value(strconv.Itoa(m.tried(max(next-1, 0)) + 1))
		body["metadata"], _ = json.Marshal(metadata, json.Deterministic(true)) // its values were decoded
		return err
	}},
}

// tried is how often the message was tried, of which its body says how often.
func (m Message) tried(said int) int {
	tried := max(said, m.Attempts)
	switch m.Part {
	case Claimed: // The attempt that claimed it counts, as it did for the old sweepers.
		return tried + 1
	case Failed:
		return 0
	default:
		return tried
	}
}

// rename applies Members.
func (c Composer) rename(body object, content string) error {
	if len(c.Members) == 0 {
		return nil
	}
	var members object
	if err := json.Unmarshal(body[content], &members); err != nil {
		return unfit("not_an_object", content+" is not an object")
	}
	renamed := object{}
	for name, value := range members {
		to, listed := c.Members[name]
		switch {
		case !listed:
			to = name
		case to == "":
			continue
		}
		if renamed[to] != nil {
			return unfit("member_twice", fmt.Sprintf("two members of %s would be called the same", content))
		}
		renamed[to] = value
	}
	body[content], _ = json.Marshal(renamed, json.Deterministic(true)) // its values were decoded
	return nil
}

// onlyType is the event type of a queue that has exactly one; empty for others.
func onlyType(q catalog.Queue) string {
	for name := range q.Handlers {
		if len(q.Handlers) == 1 && !strings.ContainsAny(name, "*#") {
			return name
		}
	}
	return ""
}

// textOf is a JSON string as an id; empty for any other form, so that no report repeats it.
func textOf(value jsontext.Value) string {
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil || !pii.ID.Valid(string(text)) {
		return ""
	}
	return string(text)
}

func idOf(message []byte) string {
	var body struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(message, &body) != nil || !pii.ID.Valid(body.ID) {
		return ""
	}
	return body.ID
}

// number reads a count that may be absent.
func number(value jsontext.Value) (int, error) {
	if value == nil {
		return 0, nil
	}
	n, err := strconv.Atoi(string(value))
	if err != nil || n < 0 || n > 1000 {
		return 0, unfit("bad_attempts", "the number of attempts is not 0 to 1000")
	}
	return n, nil
}
