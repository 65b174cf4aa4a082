package events

import (
	"cmp"
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
)

// ErrUnkept: no payload is kept.
var ErrUnkept = console.Refuse(console.Absent, "payload_not_kept",
	"No payload is kept here. A message that waits has its own, "+
		"and so has a dead letter, unless it was too large: then the hold subscription has it.")

// Payload has the kept messages of an event, at most ten.
type Payload struct {
	EventID string        `json:"event_id" show:"Event"`
	Queue   string        `json:"queue" show:"Queue"`
	Tenant  string        `json:"tenant" show:"Tenant"`
	Items   []KeptMessage `json:"items" show:"Kept"`
	More    bool          `json:"more"`
}

// KeptMessage is a message as it is stored: numbers in its payload are as the sender wrote them.
type KeptMessage struct {
	// Place is dead_letter, delayed, outbox, or lease if a worker is processing the message.
	Place Where `json:"place" show:"Kept in"`
	// DeadLetter is the id of the dead letter that has it, and State the dead letter's state.
	DeadLetter string           `json:"dead_letter,omitempty" show:"Dead letter" link:"dead-letters"`
	State      deadletter.State `json:"state,omitempty" show:"State"`
	Message
}

// Message is a message as it is shown.
type Message struct {
	// Data is the payload if it is JSON, else Base64 is.
	Data        jsontext.Value    `json:"data,omitempty" show:"Payload"`
	Base64      []byte            `json:"data_base64,omitempty" show:"Payload (not JSON)"`
	Attributes  map[string]string `json:"attributes,omitempty" show:"Attributes"`
	OrderingKey string            `json:"ordering_key,omitempty" show:"Ordering key"`
}

// MessageOf returns the message in the form that is shown.
func MessageOf(m contract.Message) Message {
	shown := Message{Attributes: m.Attributes, OrderingKey: m.OrderingKey}
	if data := jsontext.Value(m.Data); data.IsValid(jsontext.AllowDuplicateNames(true)) {
		shown.Data = data
	} else {
		shown.Base64 = m.Data
	}
	return shown
}

// stored is a kept message of an event, as a worker would try it, and the time since when it is kept. Its
// From is empty if it cannot be tried.
type stored struct {
	dryrun.Message
	Tenant string
	Place  Where
	// DeadLetter is the dead letter that has the message; zero: none.
	DeadLetter deadletter.Item
}

func (f found) kept() (all []stored, err error) {
	for _, item := range f.deadLetters {
		if len(item.Data) > 0 {
			m := dryrun.Message{Message: item.Message(), Queue: item.Queue, PublishedAt: item.Kept, From: fromOf(item)}
			all = append(all, stored{m, item.TenantID(), PlaceDeadLetter, item})
		}
	}
	for _, k := range f.own {
		m := dryrun.Message{Message: k.Message, Queue: k.Queue, PublishedAt: k.CreatedAt}
		if !k.Emitted { // an emission is the event only once it is published
			m.From = dryrun.From{Kind: string(PlaceDelayed), ID: k.ID}
		}
		all = append(all, stored{Message: m, Tenant: cmp.Or(k.Tenant, contract.DefaultTenant), Place: placeOf(k)})
	}
	for _, doc := range f.records {
		r, err := dedupe.FromDocument(doc)
		if err != nil {
			return nil, err
		}
		if r.Message != nil {
			from := dryrun.From{Kind: "claimed", ID: doc.Key.ID}
			m := dryrun.Message{Message: *r.Message, Queue: r.Queue, PublishedAt: r.CreatedAt, From: from}
			all = append(all, stored{Message: m, Tenant: r.Tenant, Place: PlaceLease})
		}
	}
	return all, nil
}

// payload returns the kept messages of an event. First it records in the audit who looks, and why.
func (a Reads) payload(ctx context.Context, by audit.Author, in PayloadOf) (Payload, error) {
	f, event, _, err := a.look(ctx, in.EventOf)
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
		return Payload{}, ErrUnkept
	}
	shown := Payload{
		EventID: in.ID, Queue: event.Queue, Tenant: event.Tenant, Items: []KeptMessage{},
		More: f.more || len(items) > closely,
	}
	var deadLetters []any
	for _, kept := range items[:min(len(items), closely)] {
		died, message := kept.DeadLetter, MessageOf(kept.Message.Message)
		shown.Items = append(shown.Items, KeptMessage{kept.Place, died.ID, died.State, message})
		if died.ID != "" {
			deadLetters = append(deadLetters, died.ID)
		}
	}
	looked := map[string]any{"queue": event.Queue, "tenant": event.Tenant, "event_id": in.ID}
	if len(deadLetters) > 0 {
		looked["dead_letters"] = deadLetters
	}
	return shown, a.Looked(ctx, in.By(by), in.ID, looked)
}

// PayloadKind is the kind of the audit's entries about payloads that somebody has looked at.
const PayloadKind = "payload"

// Looked records in the audit that somebody looks at a payload. After an error the payload must not be shown.
func (a Reads) Looked(ctx context.Context, by audit.Change, subject string, at map[string]any) error {
	entry := audit.Entry{Kind: PayloadKind, Subject: subject, Action: "look", At: a.Now(), After: at}
	writes, err := entry.By(by).With(a.NewID())
	if err != nil {
		return err
	}
	_, err = a.Store.Commit(ctx, writes)
	return err
}
