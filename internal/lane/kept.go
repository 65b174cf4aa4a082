package lane

import (
	"fmt"
	"strings"
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
	// Source is the event that the message comes from. Unless it is Emitted, the message is that
	// event's own, and waits for an attempt.
	Source  Source
	Emitted bool
}

// KeptOf reads an entry of either kind.
func KeptOf(doc store.Document) (Kept, error) {
	var e entry
	if err := store.Decode(doc.Fields, &e); err != nil {
		return Kept{}, fmt.Errorf("lane: entry %s is not readable", doc.Key.ID)
	}
	return Kept{
		Topic: e.Topic, Message: e.Message, CreatedAt: e.CreatedAt, DueAt: e.DueAt, Source: e.Source,
		Emitted: doc.Key.Collection == Outbox.Entries() || strings.HasSuffix(doc.Key.ID, emitted),
	}, nil
}
