package deadletter

import (
	"cmp"
	"fmt"
	"time"

	"billhook/internal/store"
)

// State is where an item stands.
type State string

// The states of an item.
const (
	// Open: nobody has dealt with it, or its replay failed again.
	Open State = "open"
	// Replayed: it is on its queue again, and nothing worse has been heard of it.
	Replayed State = "replayed"
	// Corrected: another payload has come under its event's id, and was applied, or has a
	// dead letter of its own. It stays so.
	Corrected State = "corrected"
	// Discarded: somebody has decided that it is not needed.
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
