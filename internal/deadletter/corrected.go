package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/store"
)

// ItemID is the id of the item that a message of a queue has in the store, or gets if it is
// dead-lettered: for a replay, that of the item which is replayed.
func ItemID(queue catalog.Queue, messageID string, m contract.Message) string {
	// Anybody may have written the attribute: it names an item of this queue, or nothing.
	if id := m.Attributes[AttrReplayOf]; strings.Contains(id, "-"+queue.ID+"~") && store.CheckKey(store.Key{Collection: Collection, ID: id}) == nil {
		return id
	}
	return itemKey(queue.ID, messageID, m.Data).ID
}

// Correction says what has taken the place of a dead letter.
type Correction struct {
	EventID string
	// MessageID is that of the message with the corrected payload.
	MessageID string
	At        time.Time
}

// Correct returns the writes that close items of a queue as corrected, for the commit of
// what has corrected them. They ask for no version: replayed meanwhile, discarded, or not
// yet here, an item is corrected all the same. Of one that is not here they make as much as
// Keep needs to know that it is closed.
func Correct(queue catalog.Queue, ids []string, c Correction) []store.Write {
	at := c.At.UTC().Truncate(time.Microsecond)
	writes := make([]store.Write, len(ids))
	for i, id := range ids {
		writes[i] = store.Increment(store.Key{Collection: Collection, ID: id}, map[string]int64{"corrections": 1}, map[string]any{
			"state": string(Corrected), "closed_at": at, "corrected_by": c.MessageID,
			"queue": queue.ID, "event_id": c.EventID, "expire_at": at.Add(queue.DeadLetter.Retention),
		})
	}
	return writes
}

// fill puts a dead letter into its item where that was corrected before it arrived, and
// leaves it closed. It reports whether that was news; any other item has arrived before.
func fill(ctx context.Context, to store.GetCommitter, key store.Key, arrived Item) (bool, error) {
	fresh, err := revise(ctx, to, key, func(doc store.Document) (Item, bool, error) {
		item := arrived
		item.Kept = time.Time{}
		switch {
		case store.Decode(doc.Fields, &item) != nil:
			return item, false, fmt.Errorf("deadletter: item %s is not readable", key.ID)
		case !item.Kept.IsZero():
			return item, false, nil
		}
		item.Kept = arrived.Kept
		return item, true, nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil // removed since
	}
	return fresh, err
}

// corrected refuses an operation on one item, or on one event's, that matches nothing
// because what it would touch is corrected.
func (o *Operator) corrected(ctx context.Context, f Filter) error {
	var item Item
	switch {
	case f.Item != "":
		found, err := o.Show(ctx, f.Item)
		if err != nil && !errors.Is(err, ErrUnknown) {
			return err
		}
		item = found
	case f.EventID != "":
		found, _, err := o.List(ctx, f, Corrected, "", 1)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			item = found[0]
		}
	}
	if item.State != Corrected || item.Queue != f.Queue {
		return nil
	}
	return fmt.Errorf("%w: it is corrected: message %s has taken its place, and its event goes on with that payload", ErrRefused, item.CorrectedBy)
}
