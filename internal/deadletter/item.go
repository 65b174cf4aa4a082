package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"billhook/catalog"
	"billhook/internal/store"
)

// State is where an item stands.
type State string

// The states of an item.
const (
	// Open: it waits for a person, or its replay failed again.
	Open State = "open"
	// Replayed: it is on its queue again.
	Replayed State = "replayed"
	// Corrected: another payload with its event's id was applied, or has a dead letter of its
	// own. This state is final.
	Corrected State = "corrected"
	// Discarded: a person has decided that it is not needed.
	Discarded State = "discarded"
)

// Item is one dead letter as it is kept.
type Item struct {
	ID              string    `json:"id"`
	State           State     `json:"state" store:"state,required"`
	Queue           string    `json:"queue" store:"queue,required"`
	Reason          string    `json:"reason" store:"reason"`
	Status          int64     `json:"status" store:"status"`
	Detail          string    `json:"detail" store:"detail"`
	Attempts        int64     `json:"attempts" store:"attempts"`
	ReplayCount     int64     `json:"replay_count" store:"replay_count"`
	EventID         string    `json:"event_id" store:"event_id"`
	EventType       string    `json:"event_type" store:"event_type"`
	OrderingKey     string    `json:"ordering_key" store:"ordering_key"`
	SourceMessageID string    `json:"source_message_id" store:"source_message_id"`
	FirstPublished  time.Time `json:"first_published_at,omitzero" store:"first_published_at,omitzero"`
	DeadLettered    time.Time `json:"dead_lettered_at,omitzero" store:"dead_lettered_at,omitzero"`
	Kept            time.Time `json:"kept_at" store:"kept_at"`
	Expires         time.Time `json:"expire_at" store:"expire_at,required"`
	// Closed is when it was replayed, discarded or corrected last.
	Closed time.Time `json:"closed_at,omitzero" store:"closed_at,omitzero"`
	// CorrectedBy is the id of the message that took its place, Corrections how often one has.
	CorrectedBy string `json:"corrected_by,omitempty" store:"corrected_by,omitzero"`
	Corrections int64  `json:"-" store:"corrections,omitzero"`
	// Omitted is the size of a payload that was too large to keep; 0: it is here.
	Omitted int64 `json:"data_omitted,omitempty" store:"data_omitted,omitzero"`
	// Operation is the id of the operation that dealt with it last.
	Operation string `json:"operation,omitempty" store:"operation,omitzero"`
	// Tenant is that of the event, and Hour, in UTC, the one that it was kept in.
	Tenant string `json:"-" store:"tenant"`
	Hour   string `json:"-" store:"hour"`

	// Data and Attributes are the message as it was, with what its death added to the attributes.
	Data       []byte            `json:"-" store:"data,omitzero,strict"`
	Attributes map[string]string `json:"-" store:"attributes"`

	version store.Version
}

// Died is when the message was dead-lettered, or else when it was kept.
func (i Item) Died() time.Time { return cmp.Or(i.DeadLettered, i.Kept) }

// Key is the item's key.
func (i Item) Key() store.Key { return store.Key{Collection: Collection, ID: i.ID} }

// ItemOf reads an item.
func ItemOf(doc store.Document) (Item, error) {
	item := Item{ID: doc.Key.ID, version: doc.Version}
	err := store.Decode(doc.Fields, &item)
	if item.Kept.IsZero() && item.State == Corrected {
		item.Kept = item.Closed // it has not arrived yet
	}
	if err != nil || item.Queue == "" || item.State == "" || item.Kept.IsZero() {
		return Item{}, fmt.Errorf("deadletter: item %s is not readable", doc.Key.ID)
	}
	return item, nil
}

// Standing is how many dead letters of a queue are open, and since when. One that has
// expired is counted until the database removes it.
type Standing struct {
	Open int64
	// More: there are more than Open.
	More bool
	// Oldest is since when the oldest of them is kept; zero where none is open.
	Oldest time.Time
}

// CountTo is where counting ends, or above the queue's alert if that is higher: a
// database charges for what it counts.
const CountTo = 10_000

// Look asks where a queue stands, in one query or, where something is open, in two,
// whatever the number of its dead letters.
func Look(ctx context.Context, from store.Querier, queue catalog.Queue, now time.Time) (Standing, error) {
	most := max(CountTo, queue.DeadLetter.AlertAbove+1)
	counted, err := from.Query(ctx, store.Query{
		Collection: Collection, Equal: map[string]any{"queue": queue.ID, "state": string(Open)}, Count: true, Limit: most + 1,
	})
	if err != nil {
		return Standing{}, fmt.Errorf("deadletter: count: %w", err)
	}
	if counted.Count == 0 {
		return Standing{}, nil
	}
	standing := Standing{Open: min(counted.Count, int64(most)), More: counted.Count > int64(most)}
	first, err := from.Query(ctx, store.Query{
		Collection: Collection, Equal: map[string]any{"queue": queue.ID, "state": string(Open)},
		// Another instance's clock may be ahead of this one's.
		Due: &store.Due{Field: "kept_at", Until: now.Add(time.Hour)}, Limit: 1,
	})
	if err != nil {
		return Standing{}, fmt.Errorf("deadletter: oldest: %w", err)
	}
	for _, doc := range first.Documents {
		standing.Oldest, _ = doc.Fields["kept_at"].(time.Time)
	}
	return standing, nil
}

// Age is how long the oldest has waited at a time, 0 where none is open.
func (s Standing) Age(now time.Time) time.Duration {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Oldest))
}
