package deadletter

import (
	"encoding/base64"
	"fmt"
	"time"

	"billhook/internal/contract"
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
	ID              string     `json:"id"`
	State           State      `json:"state"`
	Queue           string     `json:"queue"`
	Reason          string     `json:"reason"`
	Status          int64      `json:"status"`
	Detail          string     `json:"detail"`
	Attempts        int64      `json:"attempts"`
	ReplayCount     int64      `json:"replay_count"`
	EventID         string     `json:"event_id"`
	EventType       string     `json:"event_type"`
	OrderingKey     string     `json:"ordering_key"`
	SourceMessageID string     `json:"source_message_id"`
	FirstPublished  *time.Time `json:"first_published_at,omitempty"`
	DeadLettered    *time.Time `json:"dead_lettered_at,omitempty"`
	Kept            time.Time  `json:"kept_at"`
	Expires         time.Time  `json:"expire_at"`
	// Closed is when it was replayed, discarded or corrected last.
	Closed *time.Time `json:"closed_at,omitempty"`
	// CorrectedBy is the id of the message that took its place.
	CorrectedBy string `json:"corrected_by,omitempty"`
	// Omitted is the size of a payload that was too large to keep; 0: it is here.
	Omitted int64 `json:"data_omitted,omitempty"`
	// Operation is the id of the operation that dealt with it last.
	Operation string `json:"operation,omitempty"`

	// Message is the message as it was, with what its death added to its attributes.
	Message contract.Message `json:"-"`

	version store.Version
	fields  map[string]any
}

// Key is the item's key.
func (i Item) Key() store.Key { return store.Key{Collection: Collection, ID: i.ID} }

// ItemOf reads an item.
func ItemOf(doc store.Document) (Item, error) {
	text := func(name string) string { value, _ := doc.Fields[name].(string); return value }
	number := func(name string) int64 { value, _ := doc.Fields[name].(int64); return value }
	at := func(name string) *time.Time {
		if value, ok := doc.Fields[name].(time.Time); ok {
			return &value
		}
		return nil
	}
	item := Item{
		ID: doc.Key.ID, State: State(text("state")), Queue: text("queue"), Reason: text("reason"), Status: number("status"),
		Detail: text("detail"), Attempts: number("attempts"), ReplayCount: number("replay_count"), EventID: text("event_id"),
		EventType: text("event_type"), OrderingKey: text("ordering_key"), SourceMessageID: text("source_message_id"),
		FirstPublished: at("first_published_at"), DeadLettered: at("dead_lettered_at"), Omitted: number("data_omitted"),
		Operation: text("operation"), Closed: at("closed_at"), CorrectedBy: text("corrected_by"), version: doc.Version, fields: doc.Fields,
	}
	kept, expires := at("kept_at"), at("expire_at")
	if kept == nil && item.State == Corrected {
		kept = item.Closed // it has not arrived yet
	}
	if item.Queue == "" || item.State == "" || kept == nil || expires == nil {
		return Item{}, fmt.Errorf("deadletter: item %s is not readable", doc.Key.ID)
	}
	item.Kept, item.Expires = *kept, *expires
	item.Message.Data = []byte(text("data"))
	if encoded := text("data_base64"); encoded != "" {
		data, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return Item{}, fmt.Errorf("deadletter: the payload of item %s is not readable", doc.Key.ID)
		}
		item.Message.Data = data
	}
	attributes, _ := doc.Fields["attributes"].(map[string]any)
	item.Message.Attributes = make(map[string]string, len(attributes))
	for name, value := range attributes {
		if text, ok := value.(string); ok {
			item.Message.Attributes[name] = text
		}
	}
	return item, nil
}
