package importer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/signature"
)

// Composer turns old messages into messages for the webhook service.
type Composer struct {
	Type    string            // of messages without a type; empty: their queue must have exactly one type
	Members map[string]string // new names of the content's members; a member with an empty name is left out
}

func unfit(code, detail string) *Result { return &Result{Code: code, Detail: detail} }

var notAnObject = unfit("not_an_object", "the message is not a JSON object in UTF-8 without duplicate names")

type object map[string]jsontext.Value

func (o object) object(name string) (inside object, ok bool) {
	inside = object{}
	return inside, o[name] == nil || json.Unmarshal(o[name], &inside) == nil
}

func (o object) set(name string, inside object) {
	o[name], _ = json.Marshal(inside, json.Deterministic(true)) // its values were decoded
}

func (c Composer) compose(known *catalog.Catalog, m Message, now time.Time) (made Item, why *Result) {
	q, ok := known.Queue(m.Queue)
	i := slices.IndexFunc(contract.Formats, func(f contract.Format) bool {
		return f.Name == q.Contract && f.Content != ""
	})
	switch {
	case m.Odd != "":
		return made, unfit("odd", m.Odd)
	case !ok || !q.Enabled:
		return made, unfit("no_queue", "no enabled queue handles its type")
	case i < 0:
		return made, unfit("contract_unsupported", "only a provider's webhooks fill this queue")
	}
	format, data := &contract.Formats[i], m.Body
	if m.Content {
		data = slices.Concat([]byte(`{"`+format.Content+`":`), data, []byte{'}'})
	}
	given := contract.Given{ID: m.ID, Type: cmp.Or(m.Type, c.Type, onlyType(q)), At: cmp.Or(m.Created, now)}
	data, err := known.Contracts.Complete(q.Contract, data, given)
	var body object
	if err != nil || json.Unmarshal(data, &body) != nil || body[format.Content].Kind() != '{' {
		return made, notAnObject
	}
	maps.DeleteFunc(body, func(_ string, v jsontext.Value) bool { return v.Kind() == 'n' })
	if body[format.Type] == nil {
		return made, unfit("no_type", "the message has no type; give it with --type")
	}
	if why = cmp.Or(c.rename(body, format.Content), m.count(body, format)); why != nil {
		return made, why
	}
	made.id, made.eventType = textOf(body[format.ID]), textOf(body[format.Type])
	if m.Due.After(now) {
		made.DeliverAt = m.Due.UTC()
	}
	// A limit above the queue's own is ignored.
	if h, ok := q.Handler(made.eventType); ok && m.MaxAttempts < cmp.Or(h.MaxAttempts, q.MaxAttempts) {
		made.MaxAttempts = m.MaxAttempts
	}
	if made.Message, err = json.Marshal(body, json.Deterministic(true)); err != nil {
		return made, notAnObject
	}
	return made, nil
}

// TypeOf returns the event type that a message would be sent as, or the code of why it cannot be sent.
func (c Composer) TypeOf(known *catalog.Catalog, m Message) string {
	made, why := c.compose(known, m, time.Time{})
	if why != nil {
		return why.Code
	}
	return cmp.Or(made.eventType, "unreadable")
}

// count writes the number of earlier attempts into the body, and version 1 if it has none.
func (m Message) count(body object, format *contract.Format) *Result {
	if format.Attempts != "" {
		said, why := number(body[format.Attempts])
		body[format.Attempts] = jsontext.Value(strconv.Itoa(m.tried(said)))
		return why
	}
	if body[format.Version] == nil {
		body[format.Version] = jsontext.Value("1")
	}
	in, name, _ := strings.Cut(format.Attempt, ".")
	metadata, ok := body.object(in)
	if !ok {
		return unfit("bad_metadata", in+" is not an object")
	}
	next, why := number(metadata[name]) // the first attempt is number 1
	metadata[name] = jsontext.Value(strconv.Itoa(m.tried(max(next-1, 0)) + 1))
	body.set(in, metadata)
	return why
}

func (m Message) tried(said int) int {
	tried := max(said, m.Attempts)
	switch m.Part {
	case Claimed: // the attempt that claimed it counts
		return tried + 1
	case Failed:
		return 0
	default:
		return tried
	}
}

func number(value jsontext.Value) (int, *Result) {
	n, err := strconv.Atoi(cmp.Or(string(value), "0"))
	if err != nil || n < 0 || n > 1000 {
		return 0, unfit("bad_attempts", "the number of attempts is not 0 to 1000")
	}
	return n, nil
}

func (c Composer) rename(body object, content string) *Result {
	if len(c.Members) == 0 {
		return nil
	}
	members, ok := body.object(content)
	if !ok {
		return notAnObject
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
			return unfit("member_twice", fmt.Sprintf("two members of %s would have the same name", content))
		}
		renamed[to] = value
	}
	body.set(content, renamed)
	return nil
}

// onlyType returns the event type of a queue that has exactly one; empty for others.
func onlyType(q catalog.Queue) string {
	for name := range q.Handlers {
		if len(q.Handlers) == 1 && !strings.ContainsAny(name, "*#") {
			return name
		}
	}
	return ""
}

// textOf returns a JSON string that is an id; empty for anything else, so that no report repeats it.
func textOf(value jsontext.Value) string {
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil || !pii.ID.Valid(string(text)) {
		return ""
	}
	return string(text)
}

// HTTPIngest is the webhook service's API for producers.
type HTTPIngest struct {
	Base   string // the service's address, such as https://webhook.example.com
	Signer *signature.Signer
	Client *http.Client
	Now    func() time.Time
}

const maxAnswer = 16 << 20

// Send posts the items in one signed request.
func (h *HTTPIngest) Send(ctx context.Context, queue string, items []Item) ([]Result, error) {
	body, err := json.Marshal(map[string][]Item{"messages": items})
	if err != nil {
		return nil, fmt.Errorf("%w: the messages cannot be encoded", ErrClosed)
	}
	answer, err := h.Post(ctx, "/queues/"+url.PathEscape(queue)+"/messages", "", body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("importer: the webhook service: %w", err)
	case answer.Status == http.StatusOK:
		if answer.Unread || slices.ContainsFunc(answer.Results, func(r Result) bool { return r.Status == 0 }) {
			return nil, fmt.Errorf("%w: the answer is not its own: is this the webhook service's address?", ErrClosed)
		}
		return answer.Results, nil
	case transient(answer.Status):
		return slices.Repeat([]Result{answer.Result}, len(items)), nil
	default:
		return nil, fmt.Errorf("%w: it answers %d %s", ErrClosed, answer.Status, answer.Code)
	}
}

// Answer is the answer to a body: about all of it, or about each message of a list.
type Answer struct {
	Result
	Results []Result `json:"results"`
	Unread  bool     `json:"-"` // it is not JSON, such as a proxy's answer: only the status is known
}

// Post posts a signed body. id is optional.
func (h *HTTPIngest) Post(ctx context.Context, path, id string, body []byte) (answer Answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Base+path, bytes.NewReader(body))
	if err != nil {
		return answer, fmt.Errorf("%w: its address is no URL", ErrClosed)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range h.Signer.SignFor(request.URL.RequestURI(), id, body, h.Now()) {
		request.Header.Set(name, value)
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return answer, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	answer.Unread = json.Unmarshal(text, &answer) != nil
	answer.Status = response.StatusCode
	if after, failed := strconv.Atoi(response.Header.Get("Retry-After")); failed == nil { // it may be left out
		answer.RetryAfter = after
	}
	return answer, err
}
