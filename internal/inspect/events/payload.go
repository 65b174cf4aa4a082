package events

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Payload is what is kept of an event's messages, at most ten.
type Payload struct {
	EventID string        `json:"event_id" show:"Event"`
	Queue   string        `json:"queue" show:"Queue"`
	Tenant  string        `json:"tenant" show:"Tenant"`
	Items   []KeptMessage `json:"items" show:"Kept"`
	More    bool          `json:"more"`
}

// KeptMessage is a message as it is kept: numbers in its payload are as they were written.
type KeptMessage struct {
	// Place is dead_letter, delayed, outbox, or lease where a worker has the message in hand.
	Place Where `json:"place" show:"Kept in"`
	// DeadLetter is the id of the dead letter that has it, and State where that stands.
	DeadLetter string           `json:"dead_letter,omitempty" show:"Dead letter" link:"dead-letters"`
	State      deadletter.State `json:"state,omitempty" show:"State"`
	Message
}

// Message is a message as it is shown.
type Message struct {
	// Data is the payload where it is JSON; else Base64 has it.
	Data        jsontext.Value    `json:"data,omitempty" show:"Payload"`
	Base64      []byte            `json:"data_base64,omitempty" show:"Payload (not JSON)"`
	Attributes  map[string]string `json:"attributes,omitempty" show:"Attributes"`
	OrderingKey string            `json:"ordering_key,omitempty" show:"Ordering key"`
}

func messageOf(m contract.Message) Message {
	shown := Message{Attributes: m.Attributes, OrderingKey: m.OrderingKey}
	if data := jsontext.Value(m.Data); data.IsValid(jsontext.AllowDuplicateNames(true)) {
		shown.Data = data
	} else {
		shown.Base64 = m.Data
	}
	return shown
}

func (f found) kept() (all []KeptMessage, err error) {
	for _, doc := range f.deadLetters {
		deadLetter := DeadLetterIn(doc)
		if len(deadLetter.Data) > 0 {
			all = append(all, KeptMessage{PlaceDeadLetter, deadLetter.ID, deadLetter.State, messageOf(deadLetter.Message())})
		}
	}
	for _, waits := range append(f.own(), f.coming...) {
		place := PlaceDelayed
		if waits.Outbox() {
			place = PlaceOutbox
		}
		all = append(all, KeptMessage{Place: place, Message: messageOf(waits.Message)})
	}
	for _, doc := range f.records {
		record, err := dedupe.FromDocument(doc)
		if err != nil {
			return nil, err
		}
		if record.Message != nil {
			all = append(all, KeptMessage{Place: PlaceLease, Message: messageOf(*record.Message)})
		}
	}
	return all, nil
}

// showPayload shows what is kept of an event's messages, and first records in the audit who looks, and why.
func (a Reads) showPayload(ctx context.Context, by audit.Author, in PayloadOf) (Payload, error) {
	q, err := a.Filtered(in.Queue)
	if err != nil {
		return Payload{}, err
	}
	f, err := a.find(ctx, in.ID, q.ID, in.Tenant)
	if err != nil {
		return Payload{}, err
	}
	event, _, err := story(in.ID, f)
	if err != nil {
		return Payload{}, err
	}
	items, err := f.kept()
	switch {
	case err != nil:
		return Payload{}, err
	case len(items) == 0 && event.Status == "":
		return Payload{}, errNowhere
	case len(items) == 0:
		return Payload{}, deadletter.ErrUnkept
	}
	if event.Queue == "" && len(f.coming) > 0 {
		event.Queue, event.Tenant = a.Destination(f.coming[0]), f.coming[0].Tenant
	}
	shown := items[:min(len(items), closely)]
	var deadLetters []any
	for _, item := range shown {
		if item.DeadLetter != "" {
			deadLetters = append(deadLetters, item.DeadLetter)
		}
	}
	looked := map[string]any{"queue": event.Queue, "tenant": event.Tenant, "event_id": in.ID}
	if len(deadLetters) > 0 {
		looked["dead_letters"] = deadLetters
	}
	entry, err := audit.Entry{Kind: deadletter.PayloadKind, Subject: in.ID, Action: "look", Who: by.String(), Why: in.Why, At: a.Now(), After: looked}.Write(a.NewID())
	if err != nil {
		return Payload{}, err
	}
	if _, err := a.Store.Commit(ctx, []store.Write{entry}); err != nil {
		return Payload{}, err
	}
	return Payload{EventID: in.ID, Queue: event.Queue, Tenant: event.Tenant, Items: shown, More: f.more || len(shown) < len(items)}, nil
}
