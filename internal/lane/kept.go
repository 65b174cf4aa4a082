package lane

import (
	"fmt"
	"time"

	"billhook/internal/contract"
	"billhook/internal/store"
)

// Kept is a message that waits to be published, as its document says.
type Kept struct {
	Topic   string
	Message contract.Message
	// CreatedAt is since when it is kept, and DueAt is when it may be published; zero: at once.
	CreatedAt, DueAt time.Time
	// Source is the event that the message comes from. A delayed message is that event's own.
	Source Source
}

// KeptOf reads an entry of either kind.
func KeptOf(doc store.Document) (Kept, error) {
	var e entry
	if err := store.Decode(doc.Fields, &e); err != nil {
		return Kept{}, fmt.Errorf("lane: entry %s is not readable", doc.Key.ID)
	}
	return Kept{Topic: e.Topic, Message: e.Message, CreatedAt: e.CreatedAt, DueAt: e.DueAt, Source: e.Source}, nil
}
