package delivery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// NotNewer is the result of an event whose document the target has at its version or a later one.
const NotNewer = "not_newer"

// The longest answer to a batch is maxBulkAnswer, and maxItemAnswer for each event in it.
const (
	maxBulkAnswer = 64 << 10
	maxItemAnswer = 4 << 10
)

// Batch returns the handler of a catalog entry with the form ndjson or bulk. One POST carries concurrent
// attempts. A line may be sent again: the target applies it once, by the event's id or version.
// docs/start/first-queue.md describes a line in both forms. The outcome of each event:
//
//	2xx, bulk               what the status of its own item means to Post, except that 409 for an event
//	                        with a version is superseded (the target has that version or a later one),
//	                        and 404 for a delete is delivered (there is no such document)
//	2xx, ndjson             the same if the answer has items; else delivered
//	2xx, unusable items     transient [callee_answer_unclear], for all events
//	400, 413, 422           each half is sent by itself; a single event is refused [callee_refused_422]
//	any other status        what it means to Post, for all events, but transient instead of terminal
//
// An answer with items is {"items":[...]}, one for each event, in the order of the events: {"status":200},
// or in the form bulk {"index":{"_id":"...","status":200}}, under the action's name.
func (t *Target) Batch(
	post catalog.Post, queue func(id string) (catalog.Queue, bool), timer handler.Timer,
) handler.Leased {
	p := poster{Target: t, of: post}
	h := handler.Batch{Queue: queue, Timer: timer, Call: p.batch}.Leased()
	h.Plan = p.plan
	return h
}

type line struct {
	id               string
	action, document string
	version          int64
	text             []byte
	outcome          *handler.Outcome
}

// The actions of a bulk. The type of an event that deletes a document ends with deleted.
const (
	index   = "index"
	remove  = "delete"
	deleted = ".deleted"
)

func (p poster) batch(ctx context.Context, events []handler.Event) ([]handler.Outcome, error) {
	outcomes := make([]handler.Outcome, len(events))
	lines := make([]line, 0, len(events))
	for i, event := range events {
		l, err := p.line(event)
		if l.outcome = &outcomes[i]; err != nil {
			l.outcome.Err = err
			continue
		}
		lines = append(lines, l)
	}
	p.post(ctx, lines)
	return outcomes, nil
}

// line encodes the event. It reads neither attempt nor clock, so each attempt posts the same bytes.
func (p poster) line(event handler.Event) (l line, err error) {
	l.id = event.CalleeKey()
	if p.of.Form != catalog.Bulk {
		if l.text, err = encode(event); p.of.Form == catalog.NDJSON {
			l.text = append(l.text, '\n')
		}
		return l, err
	}
	switch {
	case event.Body.None():
		return line{}, retry.Permanent("body_expected", nil)
	case event.OrderingKey == "" || event.OrderingKey == contract.UnknownOrderingKey:
		return line{}, retry.Permanent("document_missing", nil)
	}
	// No id has a tilde, so documents of two tenants never share an id.
	l.action, l.document, l.version = index, event.Tenant+"~"+event.OrderingKey, event.Body.Number("version")
	if strings.HasSuffix(event.Type, deleted) {
		l.action = remove
	}
	action := struct {
		ID          string `json:"_id"`
		Version     int64  `json:"version,omitzero"`
		VersionType string `json:"version_type,omitempty"`
	}{ID: l.document}
	if l.version > 0 {
		action.Version, action.VersionType = l.version, "external"
	}
	text, err := json.Marshal(map[string]any{l.action: action})
	var document []byte
	if l.action == index && err == nil {
		document, err = event.Body.Document(event.Tenant)
		document = append(document, '\n')
	}
	if err != nil {
		return line{}, retry.Permanent("document_not_encodable", nil)
	}
	l.text = append(append(text, '\n'), document...)
	return l, nil
}

var contentRefused = map[int]bool{
	http.StatusBadRequest: true, http.StatusRequestEntityTooLarge: true, http.StatusUnprocessableEntity: true,
}

// post sends the lines in one POST. If the target refuses their content, it sends each half by itself.
func (p poster) post(ctx context.Context, lines []line) {
	if len(lines) == 0 {
		return
	}
	var body []byte
	for _, l := range lines {
		body = append(body, l.text...)
	}
	answer, err := p.Call(ctx, Request{
		Method: http.MethodPost, Path: p.of.Path, ID: nameOf(lines), ContentType: "application/x-ndjson",
		Body: body, MaxAnswer: maxBulkAnswer + int64(len(lines))*maxItemAnswer,
	})
	switch verdict := retry.Decide(err); {
	case err == nil:
		err = p.settle(answer.Body, lines)
	case contentRefused[answer.Status] && len(lines) > 1:
		half := len(lines) / 2
		p.post(ctx, lines[:half])
		p.post(ctx, lines[half:])
		return
	case verdict.Class.Terminal() && !contentRefused[answer.Status]:
		err = retry.Transient(verdict.Reason, nil)
	}
	if err != nil {
		for _, l := range lines {
			l.outcome.Err = err
		}
	}
}

func nameOf(lines []line) string {
	if len(lines) == 1 {
		return lines[0].id
	}
	sum := sha256.New()
	for _, l := range lines {
		_, _ = sum.Write(append([]byte(l.id), '\n'))
	}
	return "batch-" + hex.EncodeToString(sum.Sum(nil)[:16])
}

// settle sets each line's outcome from the answer's items; if one is missing, it sets none and fails.
func (p poster) settle(body []byte, lines []line) error {
	unclear := retry.Transient("callee_answer_unclear", nil)
	var answer struct {
		Items *[]jsontext.Value `json:"items"`
	}
	itemized := json.Unmarshal(body, &answer) == nil && answer.Items != nil
	if itemized && len(*answer.Items) != len(lines) || !itemized && p.of.Form != catalog.NDJSON {
		return unclear
	}
	statuses := make([]int, len(lines))
	for i, l := range lines {
		statuses[i] = http.StatusOK
		if !itemized {
			continue
		}
		var ok bool
		if statuses[i], ok = p.status((*answer.Items)[i], l); !ok {
			return unclear
		}
	}
	for i, l := range lines {
		switch err := retry.HTTPStatus(statuses[i]); {
		case err == nil, statuses[i] == http.StatusNotFound && l.action == remove:
			l.outcome.Effect.Result = Delivered
		case statuses[i] == http.StatusConflict && l.version > 0:
			l.outcome.Effect = handler.Effect{Result: NotNewer, Superseded: true}
		default:
			l.outcome.Err = err
		}
	}
	return nil
}

// status reads a line's status from an item; ok is false if the item is unreadable or another line's.
func (p poster) status(text jsontext.Value, of line) (status int, ok bool) {
	type item struct {
		ID     string `json:"_id"`
		Status int    `json:"status"`
	}
	var one item
	if p.of.Form == catalog.Bulk {
		var named map[string]item // by its action
		err := json.Unmarshal(text, &named)
		one, ok = named[of.action]
		ok = ok && err == nil && len(named) == 1
	} else {
		ok = json.Unmarshal(text, &one) == nil
	}
	return one.Status, ok && (one.ID == "" || one.ID == of.document)
}
