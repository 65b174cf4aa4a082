// Package deadletter owns what becomes of a message that cannot be handled: the
// copy on the dead-letter topic, with the reason, and the item in the store that
// people look at. It refuses to decide that a message is dead.
package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/store"
)

// The attributes that a dead letter has beside those of its message.
const (
	AttrReason             = "dead_letter_reason"
	AttrStatus             = "dead_letter_status"
	AttrDetail             = "dead_letter_detail"
	AttrSourceQueue        = "source_queue"
	AttrSourceSubscription = "source_subscription"
	AttrSourceMessageID    = "source_message_id"
	AttrAttempts           = "delivery_attempts"
	AttrDeadLetteredAt     = "dead_lettered_at"
	AttrReplayCount        = "replay_count"
)

// Letter is one dead letter: the message as it was, and why it is dead.
type Letter struct {
	Message contract.Message
	// Reason is a code, such as unknown_product.
	Reason string
	// Status is the class code of the failure: 400, 409 or 422.
	Status int
	// Detail says more, in codes and field paths: never a payload value.
	Detail             string
	SourceQueue        string
	SourceSubscription string
	SourceMessageID    string
	Attempts           int
	FirstPublishedAt   time.Time
	DeadLetteredAt     time.Time
}

// Publisher puts a message on a topic. It returns without an error only after the
// broker has confirmed; after an error the message may or may not be there.
type Publisher interface {
	Publish(ctx context.Context, topic string, m contract.Message) (messageID string, err error)
}

// Publish puts the letter on its queue's dead-letter topic and returns once that is
// confirmed. The copy has no ordering key: one dead letter must not wait for another.
func Publish(ctx context.Context, to Publisher, queue catalog.Queue, letter Letter) error {
	attributes := make(map[string]string, len(letter.Message.Attributes)+11)
	maps.Copy(attributes, letter.Message.Attributes)
	attributes[AttrReason] = letter.Reason
	attributes[AttrStatus] = strconv.Itoa(letter.Status)
	attributes[AttrDetail] = clip(letter.Detail, contract.MaxAttributeValue)
	attributes[AttrSourceQueue] = letter.SourceQueue
	attributes[AttrSourceSubscription] = letter.SourceSubscription
	attributes[AttrSourceMessageID] = letter.SourceMessageID
	attributes[AttrAttempts] = strconv.Itoa(letter.Attempts)
	attributes[AttrDeadLetteredAt] = stamp(letter.DeadLetteredAt)
	if attributes[contract.AttrFirstPublished] == "" && !letter.FirstPublishedAt.IsZero() {
		attributes[contract.AttrFirstPublished] = stamp(letter.FirstPublishedAt)
	}
	if attributes[AttrReplayCount] == "" {
		attributes[AttrReplayCount] = "0"
	}
	if _, err := to.Publish(ctx, queue.DeadLetter.Topic, contract.Message{Data: letter.Message.Data, Attributes: attributes}); err != nil {
		return fmt.Errorf("deadletter: publish: %w", err)
	}
	return nil
}

// Collection holds the items.
const Collection = "deadLetters"

// maxStoredData is the largest payload kept in an item; a Firestore document ends
// at 1 MiB. A larger one stays on the hold subscription alone.
const maxStoredData = 900 << 10

// Store is where the items are kept.
type Store interface {
	// Commit applies all writes or none; an error wrapping store.ErrExists means that
	// the item is there already.
	Commit(ctx context.Context, writes []store.Write) ([]store.Version, error)
}

// Keep stores what arrived on a dead-letter topic, one item per source message, and
// reports whether it was new.
func Keep(ctx context.Context, to Store, queue catalog.Queue, m contract.Message, messageID string, now time.Time) (bool, error) {
	attributes := make(map[string]any, len(m.Attributes))
	for name, value := range m.Attributes {
		attributes[name] = value
	}
	source := m.Attributes[AttrSourceMessageID]
	if source == "" {
		source = messageID // dead-lettered by the broker itself
	}
	reason := m.Attributes[AttrReason]
	if reason == "" {
		reason = "delivery_attempts_exhausted" // the broker's own policy names none
	}
	status, _ := strconv.ParseInt(m.Attributes[AttrStatus], 10, 64)
	attempts, _ := strconv.ParseInt(m.Attributes[AttrAttempts], 10, 64)
	fields := map[string]any{
		"queue": queue.ID, "source_message_id": source, "reason": reason, "status": status,
		"detail": m.Attributes[AttrDetail], "attempts": attempts,
		"event_id": m.Attributes[contract.AttrEventID], "event_type": m.Attributes[contract.AttrEventType],
		"ordering_key": m.Attributes[contract.AttrOrderingKey], "attributes": attributes,
		"kept_at": now.UTC().Truncate(time.Microsecond), "expire_at": now.Add(queue.DeadLetter.Retention).UTC().Truncate(time.Microsecond),
	}
	for field, name := range map[string]string{"first_published_at": contract.AttrFirstPublished, "dead_lettered_at": AttrDeadLetteredAt} {
		if at, err := time.Parse(time.RFC3339Nano, m.Attributes[name]); err == nil {
			fields[field] = at.UTC().Truncate(time.Microsecond)
		}
	}
	name, data := "data", string(m.Data)
	if !utf8.ValidString(data) {
		name, data = "data_base64", base64.StdEncoding.EncodeToString(m.Data)
	}
	if len(data) > maxStoredData {
		fields["data_omitted"] = int64(len(m.Data))
	} else {
		fields[name] = data
	}
	_, err := to.Commit(ctx, []store.Write{store.Create(itemKey(queue.ID, source), fields)})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, store.ErrExists):
		return false, nil
	default:
		return false, fmt.Errorf("deadletter: keep: %w", err)
	}
}

func itemKey(queue, sourceMessageID string) store.Key {
	id := queue + "~" + url.PathEscape(sourceMessageID)
	sum := sha256.Sum256([]byte(id))
	return store.Key{Collection: Collection, ID: hex.EncodeToString(sum[:4]) + "-" + id}
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// clip shortens text to at most limit bytes without cutting a character.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
