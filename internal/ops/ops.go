// Package ops is the API for people, and its access control: events, queues, job log, balances,
// customers, products, dead letters and trials. Of a dead letter and of a message that is tried it
// shows the minimized payload, of all else ids, codes, amounts and times alone. It answers known
// people alone.
package ops

import (
	"context"
	"errors"
	"time"

	"billhook/catalog"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/lane"
	"billhook/internal/ledger"
	"billhook/internal/pause"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// Reads reads what the API shows. An error is one of those below, or the store's: then nothing
// is known.
type Reads struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Now     func() time.Time
	// Broker is asked what it holds; nil: what a task has counted is shown.
	Broker Broker
	// Viewer shows the subscriptions of paused queues; nil: they cannot be seen from here.
	Viewer pause.Viewer
}

var (
	errUnknown   = errors.New("ops: nothing is stored under this event id")
	errSeveral   = errors.New("ops: several queues or tenants know this event id")
	errNoAccount = errors.New("ops: no entry has moved anything on an account of that name")
)

// Event is the story of one event as far as it is stored.
type Event struct {
	Line
	PayloadHash string    `json:"payload_hash"`
	LeaseUntil  time.Time `json:"lease_until,omitzero"`
	// Emitted are the event ids of the messages that the event's effect emitted.
	// Waiting is how many of them are still in the outbox.
	Emitted     []string     `json:"emitted"`
	Waiting     int          `json:"waiting"`
	Conflicts   []Conflict   `json:"conflicts"`
	DeadLetters []DeadLetter `json:"dead_letters"`
	// Log has the newest attempts, in their order. Records of former releases have none.
	Log []Attempt `json:"log"`
	// More reports whether there are more of these than are shown.
	More bool `json:"more"`
}

// Attempt is one attempt that the event's record counts. Its fields are those of dedupe.Attempt.
type Attempt struct {
	// Number is which of the event's attempts it was, and Delivery the broker's number of its
	// delivery; 0: it sent none.
	Number    int64     `json:"number"`
	Delivery  int64     `json:"delivery,omitzero"`
	MessageID string    `json:"message_id,omitempty"`
	Instance  string    `json:"instance,omitempty"`
	Begun     time.Time `json:"begun_at,omitzero"`
	// Ended is missing where the attempt is under way, or its end is not known.
	Ended   time.Time     `json:"ended_at,omitzero"`
	Outcome retry.Outcome `json:"outcome,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	// Next is when the attempt after this one was due.
	Next time.Time `json:"next_at,omitzero"`
}

// Conflict is a message with the event's id that is not that event: its payload differs, or is
// broken.
type Conflict struct {
	Queue       string        `json:"queue"`
	Status      dedupe.Status `json:"status"`
	Reason      string        `json:"reason"`
	PayloadHash string        `json:"payload_hash"`
	MessageID   string        `json:"message_id"`
}

// DeadLetter is one stored dead letter of the event.
type DeadLetter struct {
	Queue           string `json:"queue"`
	Reason          string `json:"reason"`
	Status          int64  `json:"status"`
	Detail          string `json:"detail"`
	Attempts        int64  `json:"attempts"`
	SourceMessageID string `json:"source_message_id"`
	// CorrectedBy is the message that took its place.
	State          deadletter.State `json:"state"`
	CorrectedBy    string           `json:"corrected_by,omitempty"`
	DeadLetteredAt time.Time        `json:"dead_lettered_at,omitzero"`
}

// most bounds how many documents of one event are read.
const most = 100

// Event returns the story of an event. A queue's id and a tenant, where they are not empty, tell
// it from others with the same id.
func (a Reads) Event(ctx context.Context, id, queue, tenant string) (Event, error) {
	events, letters := map[string]any{"event_id": id}, map[string]any{"event_id": id}
	if queue != "" {
		events["queue"], letters["queue"] = queue, queue
	}
	if tenant != "" {
		events["tenant"] = tenant
	}
	records, err := a.Store.Query(ctx, store.Query{Collection: dedupe.Collection, Equal: events, Limit: most})
	if err != nil {
		return Event{}, err
	}
	dead, err := a.Store.Query(ctx, store.Query{Collection: deadletter.Collection, Equal: letters, Limit: most})
	if err != nil {
		return Event{}, err
	}
	event, err := story(id, records.Documents, dead.Documents)
	if err == nil && len(event.Emitted) > 0 {
		waiting, failed := a.Store.Query(ctx, store.Query{Collection: lane.Outbox.Entries(), Equal: events, Limit: most})
		event.Waiting, err = len(waiting.Documents), failed
	}
	event.More = records.Next != "" || dead.Next != ""
	return event, err
}

// story puts together what is stored under an event id.
func story(id string, records, letters []store.Document) (Event, error) {
	event := Event{Line: Line{EventID: id}, Emitted: []string{}, Conflicts: []Conflict{}, DeadLetters: []DeadLetter{}, Log: []Attempt{}}
	for _, doc := range records {
		record, err := dedupe.FromDocument(doc)
		if err != nil {
			return Event{}, err
		}
		if event.Queue == "" {
			event.Queue, event.Tenant = record.Queue, record.Tenant
		}
		if event.Queue != record.Queue || event.Tenant != record.Tenant {
			return Event{}, errSeveral
		}
		if doc.Key == dedupe.Key(record.Queue, record.Tenant, record.EventID) {
			event.Line, event.PayloadHash, event.LeaseUntil = line(record), record.PayloadHash, record.LeaseUntil
			event.Emitted = append(event.Emitted, record.Emitted...)
			for _, a := range record.Log {
				event.Log = append(event.Log, Attempt(a))
			}
			continue
		}
		event.Conflicts = append(event.Conflicts, Conflict{
			Queue: record.Queue, Status: record.Status, Reason: record.LastError,
			PayloadHash: record.PayloadHash, MessageID: record.MessageID,
		})
	}
	for _, doc := range letters {
		letter := describeLetter(doc)
		if event.Queue == "" {
			event.Queue = letter.Queue
		}
		if event.Queue != letter.Queue {
			return Event{}, errSeveral
		}
		event.DeadLetters = append(event.DeadLetters, letter)
	}
	switch {
	case event.Status != "":
	case len(event.Conflicts) > 0: // every message with this id is broken
		first := event.Conflicts[0]
		event.Status, event.Reason, event.PayloadHash, event.MessageID = first.Status, first.Reason, first.PayloadHash, first.MessageID
	case len(event.DeadLetters) > 0: // no worker has answered, and the broker gave up
		first := event.DeadLetters[0]
		event.Status, event.Reason, event.Attempts, event.MessageID = dedupe.DeadLettered, first.Reason, first.Attempts, first.SourceMessageID
	default:
		return Event{}, errUnknown
	}
	return event, nil
}

func describeLetter(doc store.Document) DeadLetter {
	var item deadletter.Item
	_ = store.Decode(doc.Fields, &item) // what is readable is shown, also where a replay needs more
	return DeadLetter{
		Queue: item.Queue, Reason: item.Reason, Status: item.Status, Detail: item.Detail, Attempts: item.Attempts,
		SourceMessageID: item.SourceMessageID, DeadLetteredAt: item.DeadLettered, State: item.State, CorrectedBy: item.CorrectedBy,
	}
}

// Account is one account of the ledger with its newest known balance.
type Account struct {
	Account  string        `json:"account"`
	Currency string        `json:"currency" store:"currency"`
	Balance  int64         `json:"balance" store:"balance"`
	Entries  []ledger.Move `json:"entries"`
	// More reports whether there are more entries than are shown.
	More bool `json:"more"`
}

// Account returns an account with its first entries.
func (a Reads) Account(ctx context.Context, name string) (Account, error) {
	doc, err := a.Store.Get(ctx, ledger.Account(name).Key())
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return Account{}, errNoAccount
	case err != nil:
		return Account{}, err
	}
	page, err := a.Store.Query(ctx, store.Query{Collection: ledger.Entries, Equal: map[string]any{"account": name}, Limit: most})
	if err != nil {
		return Account{}, err
	}
	found := Account{Account: name, Entries: []ledger.Move{}, More: page.Next != ""}
	if err := store.Decode(doc.Fields, &found); err != nil {
		return Account{}, err
	}
	for _, doc := range page.Documents {
		entry, err := ledger.MoveFromDocument(doc)
		if err != nil {
			return Account{}, err
		}
		found.Entries = append(found.Entries, entry)
	}
	return found, nil
}
