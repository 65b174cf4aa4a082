// Package lane owns the messages that wait to be published: the emissions of effects (the outbox), and
// messages that wait longer than the broker can (delayed). An entry is one message; a lane stands for one
// ordering key, and stays until its last message is delivered. A ticket comes back with each delayed message:
// its rank stays, its number is new each time. It refuses to decide that a message waits, and never publishes
// what is not committed.
package lane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/platform/store"
)

// Kind is one kind of lanes. It is kept in collections of its own.
type Kind string

// The kinds.
const (
	Outbox  Kind = "outbox"
	Delayed Kind = "delayed"
)

// Entries is the collection of the kind's messages.
func (k Kind) Entries() string { return string(k) }

// Lanes is the collection of the kind's lanes.
func (k Kind) Lanes() string { return string(k) + "Keys" }

type head struct {
	// Newest is the id of its last entry, also when that has been published.
	Newest string `store:"newest"`
	// DueAt is when a relay looks at the lane; zero: all its entries are published.
	DueAt time.Time `store:"due_at,omitzero"`
	// OldestAt is when its oldest entry was added or, of a delayed one, was due.
	OldestAt time.Time `store:"oldest_at,omitzero"`
	// Last is the greatest number given out.
	Last int64 `store:"last,omitzero"`
	// Again are messages that came back and were put into the lane again. Both their ranks and their numbers
	// rise.
	Again []again `store:"again,omitzero"`
	// Stays: the lane outlives its entries.
	Stays bool `store:"stays,omitzero"`
	// QueueID is the queue of a lane that stays, for Keys.
	QueueID string `store:"queue,omitzero"`
	// ExpireAt is when a lane without entries may be removed.
	ExpireAt time.Time `store:"expire_at,omitzero"`
}

type again struct {
	Rank   int64 `store:"rank"`
	Number int64 `store:"number"`
}

// Kept is a message that waits to be published.
type Kept struct {
	Topic     string           `store:"topic,required"`
	Message   contract.Message `store:"message,required"`
	CreatedAt time.Time        `store:"created_at"`
	// DueAt is when it may be published; zero: at once.
	DueAt time.Time `store:"due_at,omitzero"`
	// Timer: it is not wanted before DueAt. It is always there, so that what waits otherwise can be counted.
	Timer  bool `store:"timer"`
	Source `store:",inline"`
	// ID is that of its document.
	ID string
	// Emitted: else the message is its source's own, and waits for an attempt.
	Emitted bool

	lane store.Key
}

// Source is the event that a message comes from.
type Source struct {
	Queue   string `store:"queue"`
	Tenant  string `store:"tenant"`
	EventID string `store:"event_id"`
	// Emits is the event id of the message, where the event has emitted it.
	Emits string `store:"emits,omitzero"`
}

func moment(at time.Time) time.Time { return at.UTC().Truncate(time.Microsecond) }

// Name names a lane.
type Name struct {
	// Queue is the queue, or topic, that its messages go to.
	Queue string
	// Tenant is that of all its messages: the messages of one do not wait for those of another, whose keys may
	// be the same.
	Tenant string
	// OrderingKey is that of all messages of the lane; empty: the lane is for one message.
	OrderingKey string
	// Message is unique to that one message.
	Message string
}

// id is a hash, so that lanes are spread over the database's ranges.
func (n Name) id() string {
	text := n.Queue + "\x00" + n.Tenant + "\x00" + n.OrderingKey
	if n.OrderingKey == "" {
		text += "\x00" + n.Message
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}

// Lane is a lane as it was read.
type Lane struct {
	name    Name // of one that was opened
	key     store.Key
	version store.Version // 0: there is none
	head
}

// laneOf reads a lane; of no document, one that is not there.
func laneOf(doc store.Document) Lane {
	l := Lane{key: doc.Key, version: doc.Version}
	_ = store.Decode(doc.Fields, &l.head) // requires nothing
	return l
}

// ID is the lane's, in its collection.
func (l Lane) ID() string { return l.key.ID }

// Exists reports whether the lane was there when it was read.
func (l Lane) Exists() bool { return l.version != 0 }

// Holds reports whether a message of the lane waits to be published.
func (l Lane) Holds() bool { return !l.DueAt.IsZero() }

func (l Lane) replace(next head) store.Write {
	return store.Replace(l.key, l.version, store.Encode(&next))
}

func (l Lane) entries(limit int) store.Query {
	return store.Query{
		Collection: strings.TrimSuffix(l.key.Collection, "Keys"), IDPrefix: l.key.ID + "-", Limit: limit,
	}
}

// KeptOf reads an entry of either kind.
func KeptOf(doc store.Document) (Kept, error) {
	k := Kept{ID: doc.Key.ID}
	if err := store.Decode(doc.Fields, &k); err != nil {
		return Kept{}, fmt.Errorf("lane: entry %s is not readable", doc.Key.ID)
	}
	id, _, _ := strings.Cut(doc.Key.ID, "-")
	k.lane = store.Key{Collection: Kind(doc.Key.Collection).Lanes(), ID: id}
	k.Emitted = doc.Key.Collection == Outbox.Entries() || strings.HasSuffix(doc.Key.ID, emitted)
	return k, nil
}

// Outbox reports whether the message waits to be published at once.
func (k Kept) Outbox() bool { return k.lane.Collection == Outbox.Lanes() }

// Longest returns the lanes whose oldest message has waited since until or longer, the longest first, at most
// limit.
func Longest(ctx context.Context, from store.Querier, of Kind, until time.Time, limit int) ([]Lane, error) {
	return lanesOf(ctx, from, of, store.Query{Due: &store.Due{Field: "oldest_at", Until: until}, Limit: limit})
}

func lanesOf(ctx context.Context, from store.Querier, of Kind, query store.Query) ([]Lane, error) {
	query.Collection = of.Lanes()
	lanes, _, err := store.List(ctx, from, query, func(doc store.Document) (Lane, error) {
		return laneOf(doc), nil
	})
	return lanes, err
}

// Keys returns the lanes of a queue's ordering keys, at most limit, and whether there are more: with a limit
// of 0, whether there is one.
func Keys(
	ctx context.Context, from store.Querier, queue string, limit int,
) (keys []Lane, more bool, err error) {
	keys, err = lanesOf(ctx, from, Delayed, store.Query{Equal: map[string]any{"queue": queue}, Limit: limit + 1})
	return keys[:min(len(keys), limit)], len(keys) > limit, err
}

// First returns the message of a lane that is published next, and how many wait there, counted up to limit.
func First(
	ctx context.Context, from store.Querier, of Lane, limit int,
) (first Kept, waiting int64, err error) {
	if first, err = next(ctx, from, of); err != nil || first.Topic == "" {
		return first, 0, err
	}
	waiting, err = store.Count(ctx, from, of.entries(limit))
	return first, waiting, err
}

// LineOf reads the lane of a message that waits, and the event whose message is its next to be published,
// which is empty where there is none: two reads. A lane that is gone by now does not exist, and has no first.
func LineOf(ctx context.Context, from store.Store, k Kept) (line Lane, first Source, err error) {
	doc, err := store.Find(ctx, from, k.lane)
	if line = laneOf(doc); err != nil || !line.Exists() {
		return line, first, err
	}
	next, err := next(ctx, from, line)
	return line, next.Source, err
}

// next is the entry of a lane that is published next; without a topic where there is none.
func next(ctx context.Context, from store.Querier, of Lane) (first Kept, err error) {
	entries, _, err := store.List(ctx, from, of.entries(1), KeptOf)
	if len(entries) > 0 {
		first = entries[0]
	}
	return first, err
}
