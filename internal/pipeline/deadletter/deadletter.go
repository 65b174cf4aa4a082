// Package deadletter owns messages that cannot be handled: the copy on the dead-letter topic with its reason,
// and the item in the store. It does not decide which messages are dead-lettered, and never changes one.
package deadletter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// The attributes that a dead letter adds to its message's attributes.
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
	// AttrReplayOf is the id of the item that a replayed message comes from.
	AttrReplayOf = "replay_of"
)

// brokerPrefix begins the attributes that Pub/Sub's own dead-letter policy adds.
const (
	brokerPrefix   = "CloudPubSubDeadLetter"
	brokerAttempts = "CloudPubSubDeadLetterSourceDeliveryCount"
)

// Publish publishes a dead letter on its queue's topic, without an ordering key, and waits for Pub/Sub's
// confirmation; the error is an Outage. key is the message's idempotency key. Attributes that do not fit are
// left out, the contract's own last, and the detail says how many.
func Publish(ctx context.Context, to contract.Publisher, queue catalog.Queue, key string, dead Item) error {
	from := dead.Attributes
	attributes := map[string]string{
		AttrReason: dead.Reason, AttrStatus: strconv.FormatInt(dead.Status, 10),
		AttrDetail: "", AttrSourceQueue: queue.ID, AttrSourceSubscription: queue.PushSubscription(),
		AttrSourceMessageID: dead.SourceMessageID, AttrAttempts: strconv.FormatInt(dead.Attempts, 10),
		AttrDeadLetteredAt: stamp(dead.DeadLettered), AttrReplayCount: cmp.Or(from[AttrReplayCount], "0"),
	}
	if !dead.FirstPublished.IsZero() && from[contract.AttrFirstPublished] == "" {
		attributes[contract.AttrFirstPublished] = stamp(dead.FirstPublished)
	}
	if key != "" && from[contract.AttrIdempotencyKey] == "" {
		attributes[contract.AttrIdempotencyKey] = key
	}
	m, detail := contract.Message{Data: dead.Data, Attributes: attributes}, dead.Detail
	// The detail is added below, and the request around the message also takes bytes.
	room := contract.MaxMessageBytes - m.Size() - 2*contract.MaxAttributeValue
	if lost := carry(attributes, from, room); lost > 0 {
		detail = strings.TrimPrefix(fmt.Sprintf("%s; %d attributes left out or cut", detail, lost), "; ")
	}
	attributes[AttrDetail] = detail
	for name, value := range attributes {
		attributes[name] = strings.ToValidUTF8(value[:min(len(value), contract.MaxAttributeValue)], "")
	}
	if _, err := to.Publish(ctx, queue.DeadLetter.Topic, m); err != nil {
		return retry.Outage("dead_letter_unconfirmed", err)
	}
	return nil
}

// carry adds the message's attributes that fit, and returns how many it left out or cut.
func carry(attributes, from map[string]string, room int) (lost int) {
	known := contract.AttributesOf(from).Map()
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(from)), func(name string) bool {
		return known[name] != ""
	})
	for _, name := range append(slices.Sorted(maps.Keys(known)), others...) {
		_, set := attributes[name]
		size := len(name) + min(len(from[name]), contract.MaxAttributeValue)
		switch {
		case set || strings.HasPrefix(name, brokerPrefix): // of an earlier death
		case name == "", len(name) > contract.MaxAttributeKey, len(attributes) == contract.MaxAttributes,
			size > room:
			lost++
		default:
			attributes[name], room = from[name], room-size
			if len(from[name]) > contract.MaxAttributeValue {
				lost++
			}
		}
	}
	return lost
}

// Collection holds the items.
const Collection = "deadLetters"

// maxStoredData is the largest payload of an item, in bytes. A larger one stays on the hold subscription.
const maxStoredData = 768 << 10

// Keep stores a message of a dead-letter topic, one item for each source message, and reports whether it is
// new. messageID is its id on that topic. A replay that is dead-lettered again reopens its first item.
func Keep(
	ctx context.Context, to store.GetCommitter, queue catalog.Queue, m contract.Message, messageID string,
	now time.Time,
) (bool, error) {
	source, died := m.Attributes[AttrSourceMessageID], Death{
		Reason: m.Attributes[AttrReason], Status: number(m, AttrStatus),
		Attempts: number(m, AttrAttempts), ReplayCount: max(number(m, AttrReplayCount), 0),
	}
	if _, forwarded := m.Attributes[brokerAttempts]; forwarded {
		// The broker's own policy forwarded it: any other attributes of a death describe an earlier one.
		source, died.Reason, died.Status, died.Attempts = messageID, "", 0, number(m, brokerAttempts)
	}
	if !pii.ID.Valid(source) {
		source = messageID
	}
	died.Reason = cmp.Or(died.Reason, "delivery_attempts_exhausted")
	item := itemFor(queue, m, source, died, now)
	item.Detail, item.Tenant = m.Attributes[AttrDetail], m.Attributes[contract.AttrTenant]
	item.DeadLettered = contract.TimeOf(m.Attributes[AttrDeadLetteredAt])
	item.Customer = contract.CustomerOf(item.Tenant, m.Attributes[contract.AttrCustomerID])
	if again := m.Attributes[AttrReplayOf]; again != "" && died.ReplayCount > 0 {
		if fresh, found, err := reopen(ctx, to, again, item); found || err != nil {
			return fresh, err
		}
	}
	key := itemKey(queue.ID, source, m.Data)
	versions, err := store.Update(ctx, to, key, func(doc store.Document) ([]store.Write, error) {
		filled := item // an item that was corrected before its message arrived stays closed
		filled.Kept = time.Time{}
		switch {
		case doc.Version == 0:
			return []store.Write{store.Create(key, store.Encode(&item))}, nil
		case store.Decode(doc.Fields, &filled) != nil:
			return nil, fmt.Errorf("deadletter: item %s is not readable", key.ID)
		case !filled.Kept.IsZero():
			return nil, nil // it has arrived before
		}
		filled.Kept = item.Kept
		return []store.Write{store.Replace(key, doc.Version, store.Encode(&filled))}, nil
	})
	return len(versions) > 0, err
}

func number(m contract.Message, attribute string) int64 {
	n, _ := strconv.ParseInt(m.Attributes[attribute], 10, 64) // 0 if no worker has set it
	return n
}

func itemFor(queue catalog.Queue, m contract.Message, source string, died Death, now time.Time) Item {
	a := m.Attributes
	item := Item{
		State: Open, Queue: queue.ID, Death: died, Expires: now.Add(queue.DeadLetter.Retention),
		Source: Source{
			EventID:   queue.EventID(a[contract.AttrEventID], a[contract.AttrIdempotencyKey]),
			EventType: a[contract.AttrEventType], OrderingKey: a[contract.AttrOrderingKey], SourceMessageID: source,
		},
		Times:    Times{FirstPublished: contract.TimeOf(a[contract.AttrFirstPublished]), Kept: now},
		Original: Original{Data: append([]byte{}, m.Data...), Attributes: maps.Clone(a)},
	}
	// The store reserves such names.
	maps.DeleteFunc(item.Attributes, func(name, _ string) bool {
		return name == "" || strings.HasPrefix(name, "__")
	})
	if size := len(m.Data); size > maxStoredData ||
		(!utf8.Valid(m.Data) && base64.StdEncoding.EncodedLen(size) > maxStoredData) {
		item.Data, item.Omitted = nil, int64(size)
	}
	return item
}

// reopen writes a new death into the first one's item. fresh: it changed the item; found: there is one.
func reopen(ctx context.Context, to store.GetCommitter, id string, died Item) (fresh, found bool, err error) {
	fresh, err = revise(ctx, to, id, func(item *Item) bool {
		if found = item.Queue == died.Queue; !found {
			return false
		}
		if item.State == Corrected || item.ReplayCount > died.ReplayCount ||
			(item.ReplayCount == died.ReplayCount && item.State != Replayed) {
			return false // known, of an earlier replay, or settled meanwhile
		}
		item.Death = died.Death
		item.State, item.Detail, item.Outcome = died.State, died.Detail, ""
		item.Kept, item.Expires = died.Kept, died.Expires
		item.DeadLettered = cmp.Or(died.DeadLettered, item.DeadLettered)
		return true
	})
	if errors.Is(err, store.ErrNotFound) {
		return false, false, nil // it has expired, or the attribute is made up
	}
	return fresh, found, err
}

// revise writes an item as change leaves it, if change returns true, and reports whether it wrote.
func revise(ctx context.Context, to store.GetCommitter, id string, change func(*Item) bool) (bool, error) {
	versions, err := store.Update(ctx, to, keyOf(id), func(doc store.Document) ([]store.Write, error) {
		if doc.Version == 0 {
			return nil, store.ErrNotFound
		}
		item, err := ItemOf(doc)
		if err != nil || !change(&item) {
			return nil, err
		}
		return []store.Write{item.replace()}, nil
	})
	return len(versions) > 0, err
}

// itemKey begins with a hash, against hot ranges, of the data too, because an emulator repeats message ids.
func itemKey(queue, sourceMessageID string, data []byte) store.Key {
	id := queue + "~" + url.PathEscape(sourceMessageID)
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s~", id) // a hash takes everything
	_, _ = sum.Write(data)
	return keyOf(hex.EncodeToString(sum.Sum(nil)[:8]) + "-" + id)
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// ItemID returns the id of the item that a message has or would get; for a replay, the replayed item's.
func ItemID(queue catalog.Queue, messageID string, m contract.Message) string {
	// Anybody may write the attribute, so an id of another queue is ignored.
	if id := m.Attributes[AttrReplayOf]; strings.Contains(id, "-"+queue.ID+"~") &&
		store.CheckKey(keyOf(id)) == nil {
		return id
	}
	return itemKey(queue.ID, messageID, m.Data).ID
}

// Correct returns the write that closes an item in any state, for the commit of the message that corrects it.
func Correct(queue catalog.Queue, id, eventID, by string, at time.Time) store.Write {
	at = at.UTC().Truncate(time.Microsecond)
	return store.Increment(keyOf(id), map[string]int64{"corrections": 1}, map[string]any{
		"state": string(Corrected), "closed_at": at, "queue": queue.ID, "event_id": eventID,
		"expire_at": at.Add(queue.DeadLetter.Retention), "corrected_by": by,
	})
}

// Settle sets the state of an item whose replay has ended: Processed, Corrected, or Open if the event has
// another dead letter. If a person has changed the item since, it stays as it is.
func Settle(
	ctx context.Context, in store.GetCommitter, m contract.Message, as State, outcome retry.Outcome,
	at time.Time,
) error {
	_, err := revise(ctx, in, m.Attributes[AttrReplayOf], func(item *Item) bool {
		if item.State != Replayed || item.ReplayCount != number(m, AttrReplayCount) {
			return false
		}
		if item.State = as; as != Open {
			item.Outcome, item.Closed = outcome, at.UTC().Truncate(time.Microsecond)
		}
		return true
	})
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrUnreadable) {
		return nil // there is no item to settle
	}
	return err
}

// EntryUnreadable is the reason of a lane entry whose document cannot be read.
const EntryUnreadable = "entry_unreadable"

// Unreadable returns the writes that keep an unreadable lane entry: its message, or all of it as JSON.
func Unreadable(queue catalog.Queue, doc store.Document, now time.Time) []store.Write {
	var waited struct {
		Message contract.Message `store:"message,required"`
		EventID string           `store:"event_id"`
		Tenant  string           `store:"tenant"`
	}
	err := store.Decode(doc.Fields, &waited)
	m := waited.Message
	if err != nil && len(m.Data) == 0 {
		m.Data, _ = json.Marshal(doc.Fields, json.Deterministic(true)) // JSON can hold every type of a document
	}
	m.Attributes = maps.Clone(m.Attributes)
	if m.Attributes == nil {
		m.Attributes = map[string]string{}
	}
	if m.Attributes[contract.AttrFirstMessageID] == "" { // which identifies its replay
		m.Attributes[contract.AttrFirstMessageID] = doc.Key.ID
	}
	source := m.Attributes[contract.AttrFirstMessageID]
	item := itemFor(queue, m, source, Death{Reason: EntryUnreadable, Status: int64(retry.Malformed)}, now)
	item.Detail, item.DeadLettered, item.Tenant = doc.Key.ID, now, waited.Tenant
	item.EventID = cmp.Or(m.Attributes[contract.AttrEventID], waited.EventID)
	return []store.Write{store.Set(keyOf(ItemID(queue, source, m)), store.Encode(&item))}
}
