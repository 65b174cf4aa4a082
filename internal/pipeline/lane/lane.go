// Package lane owns the messages that wait to be published: the emissions of effects (the outbox), and
// messages that wait longer than the broker can (delayed). An entry is one message. A lane is for one
// ordering key, and stays until its last message is delivered. A ticket has a delayed message's rank, which
// stays, and its number, which is new at each wait. The package does not decide which messages wait.
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

// Kind is a kind of lane. Each kind has its own collections.
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
	Newest   string    `store:"newest"`             // the id of its last entry, also after that was published
	DueAt    time.Time `store:"due_at,omitzero"`    // when a relay reads the lane; zero: it is empty
	OldestAt time.Time `store:"oldest_at,omitzero"` // when its oldest entry was added or, if delayed, was due
	Last     int64     `store:"last,omitzero"`      // the greatest number of any ticket
	Again    []again   `store:"again,omitzero"`     // messages that wait again, in order of rank and number
	Stays    bool      `store:"stays,omitzero"`     // the lane outlives its entries
	QueueID  string    `store:"queue,omitzero"`     // the queue, if the lane outlives its entries; for Keys
	ExpireAt time.Time `store:"expire_at,omitzero"` // when a lane without entries may be removed
}

type again struct {
	Rank   int64 `store:"rank"`
	Number int64 `store:"number"`
}

// Kept is a message that waits to be published.
type Kept struct {
	Topic   string `store:"topic,required"`
	Content `store:"message,required"`
	DueAt   time.Time `store:"due_at,omitzero"` // when it may be published; zero: at once
	// Timer: DueAt is the emission's own Due. It is always stored, so that the other messages can be counted.
	Timer   bool `store:"timer"`
	Source  `store:",inline"`
	ID      string // of its document
	Emitted bool   // false: it is its source's own message, and waits for an attempt

	lane store.Key
}

// Content has the fields that no query compares. The database keeps no index of them, since an index of
// rising times would be a hot spot.
type Content struct {
	Message   contract.Message `store:",inline"`
	CreatedAt time.Time        `store:"created_at"`
}

// Source is the event that a message comes from.
type Source struct {
	Queue   string `store:"queue"`
	Tenant  string `store:"tenant"`
	EventID string `store:"event_id"`
	Emits   string `store:"emits,omitzero"` // the event id of the message, if the event has emitted it
}

func moment(at time.Time) time.Time { return at.UTC().Truncate(time.Microsecond) }

// Name identifies a lane by what all its messages share.
type Name struct {
	Queue       string // the queue, or topic, of its messages
	Tenant      string // because two tenants may use the same key
	OrderingKey string // empty: the lane is for one message
	Message     string // unique to that one message
}

// id is a hash, so that lanes are spread over the database's key ranges.
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
	name    Name // set only by Open
	key     store.Key
	version store.Version // 0: it does not exist
	head
}

// laneOf reads a lane. Without a document, the lane does not exist.
func laneOf(doc store.Document) Lane {
	l := Lane{key: doc.Key, version: doc.Version}
	_ = store.Decode(doc.Fields, &l.head) // no field is required
	return l
}

// ID is the id of the lane in its collection.
func (l Lane) ID() string { return l.key.ID }

// Exists reports whether the lane existed when it was read.
func (l Lane) Exists() bool { return l.version != 0 }

// Holds reports whether the lane has a message that waits to be published.
func (l Lane) Holds() bool { return !l.DueAt.IsZero() }

func (l Lane) replace(next head) store.Write {
	return store.Replace(l.key, l.version, store.Encode(&next))
}

func (l Lane) entries(limit int) store.Query {
	collection := strings.TrimSuffix(l.key.Collection, "Keys")
	return store.Query{Collection: collection, IDPrefix: l.key.ID + "-", Limit: limit}
}

// KeptOf reads an entry of the outbox or of the delayed messages.
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

// Outbox reports whether the message is in the outbox, to be published at once.
func (k Kept) Outbox() bool { return k.lane.Collection == Outbox.Lanes() }

// Longest returns at most limit lanes whose oldest message has waited since until or before, oldest first.
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

// Keys returns at most limit lanes of a queue, one for each ordering key, and whether there are more.
func Keys(ctx context.Context, from store.Querier, queue string, limit int) ([]Lane, bool, error) {
	ofQueue := store.Query{Equal: map[string]any{"queue": queue}, Limit: limit + 1}
	keys, err := lanesOf(ctx, from, Delayed, ofQueue)
	return keys[:min(len(keys), limit)], len(keys) > limit, err
}

// First returns the next message that a lane publishes, and how many wait there, counted up to limit.
func First(ctx context.Context, from store.Querier, of Lane, limit int) (Kept, int64, error) {
	first, err := next(ctx, from, of)
	if err != nil || first.Topic == "" {
		return first, 0, err
	}
	waiting, err := store.Count(ctx, from, of.entries(limit))
	return first, waiting, err
}

// LineOf reads the lane of a waiting message, and the event of the next message to be published there; empty
// if there is none. It makes two reads. If the lane was removed meanwhile, it does not exist.
func LineOf(ctx context.Context, from store.Store, k Kept) (line Lane, first Source, err error) {
	doc, err := store.Find(ctx, from, k.lane)
	if line = laneOf(doc); err != nil || !line.Exists() {
		return line, first, err
	}
	next, err := next(ctx, from, line)
	return line, next.Source, err
}

// next returns the entry that a lane publishes next; without a topic if there is none.
func next(ctx context.Context, from store.Querier, of Lane) (first Kept, err error) {
	entries, _, err := store.List(ctx, from, of.entries(1), KeptOf)
	if len(entries) > 0 {
		first = entries[0]
	}
	return first, err
}
