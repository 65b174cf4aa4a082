// Package lane owns the messages that wait to be published: the emissions of effects (the outbox), and messages that wait
// longer than the broker can (delayed). An entry is one message; a lane stands for one ordering key, and stays until its
// last message is delivered. A ticket comes back with each delayed message: its rank stays, its number is new each time.
// It refuses to decide that a message waits, and never publishes what is not committed.
package lane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	// Held is the number of the message that was last put into the lane again.
	Held int64 `store:"held,omitzero"`
	// Stays: the lane outlives its entries.
	Stays bool `store:"stays,omitzero"`
	// QueueID is the queue of a lane that stays, for NoneWaits.
	QueueID string `store:"queue,omitzero"`
	// ExpireAt is when a lane without entries may be removed.
	ExpireAt time.Time `store:"expire_at,omitzero"`
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

// fields has the zero values of held and stays, too, once the lane has given out a number.
func (h head) fields() map[string]any {
	fields := store.Encode(&h)
	if h.Last != 0 {
		fields["held"], fields["stays"] = h.Held, h.Stays
	}
	return fields
}

func moment(at time.Time) time.Time { return at.UTC().Truncate(time.Microsecond) }

// Name names a lane.
type Name struct {
	// Queue is the queue, or topic, that its messages go to.
	Queue string
	// Tenant is that of all its messages: the messages of one do not wait for those of another, whose keys may be the same.
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

// Open reads the lane of delayed messages of a name.
func Open(ctx context.Context, from store.Getter, name Name) (Lane, error) {
	doc, err := store.Find(ctx, from, store.Key{Collection: Delayed.Lanes(), ID: name.id()})
	l := laneOf(doc)
	l.name = name
	if l.Stays = name.OrderingKey != ""; l.Stays {
		l.QueueID = name.Queue
	}
	return l, err
}

// NoneWaits reports, in one read, whether no ordering key of a queue has a lane.
func NoneWaits(ctx context.Context, from store.Querier, queue string) (bool, error) {
	page, err := from.Query(ctx, store.Query{Collection: Delayed.Lanes(), Equal: map[string]any{"queue": queue}, Limit: 1})
	if err != nil {
		return false, fmt.Errorf("lane: look for lanes: %w", err)
	}
	return len(page.Documents) == 0, nil
}

// Longest returns the lanes whose oldest message has waited since until or longer, the longest first, at most limit.
func Longest(ctx context.Context, from store.Querier, of Kind, until time.Time, limit int) ([]Lane, error) {
	return lanesOf(ctx, from, of, store.Query{Due: &store.Due{Field: "oldest_at", Until: until}, Limit: limit})
}

func lanesOf(ctx context.Context, from store.Querier, of Kind, query store.Query) ([]Lane, error) {
	query.Collection = of.Lanes()
	lanes, _, err := store.List(ctx, from, query, func(doc store.Document) (Lane, error) { return laneOf(doc), nil })
	return lanes, err
}

// ID is the lane's, in its collection.
func (l Lane) ID() string { return l.key.ID }

// Queue is that of the lane's name.
func (l Lane) Queue() string { return l.name.Queue }

// Exists reports whether the lane was there when it was read.
func (l Lane) Exists() bool { return l.version != 0 }

// Holds reports whether a message of the lane waits to be published.
func (l Lane) Holds() bool { return !l.DueAt.IsZero() }

// Behind reports whether a message must wait: it has never waited, or one before it waits again.
func (l Lane) Behind(m contract.Message) bool {
	if !l.Exists() || !l.Stays {
		return false
	}
	t, ok := ticketOf(m)
	return !ok || t.published < l.Held
}

func (l Lane) replace(next head) store.Write { return store.Replace(l.key, l.version, next.fields()) }

// grace is how long a new lane of the outbox is left to the worker that made it.
const grace = 30 * time.Second

// Batch collects messages of the outbox that are to be committed together.
type Batch struct {
	now    time.Time
	writes []store.Write
	lanes  []string
	newest map[string]string // lane -> its last entry
}

// NewBatch returns an empty batch of the given moment.
func NewBatch(now time.Time) *Batch { return &Batch{now: moment(now), newest: map[string]string{}} }

// Add adds a message, which has an id of its own, behind those of its topic and ordering key.
func (b *Batch) Add(topic, id string, m contract.Message, from Source) {
	lane := Name{Queue: topic, Tenant: from.Tenant, OrderingKey: m.OrderingKey, Message: id}.id()
	// Within a lane the order is that of the commits' times, then that of the batch.
	key := store.Key{Collection: Outbox.Entries(), ID: fmt.Sprintf("%s-%020d-%03d-%s", lane, b.now.UnixMicro(), len(b.writes), id)}
	b.writes = append(b.writes, store.Create(key, store.Encode(&Kept{Topic: topic, Message: m, CreatedAt: b.now, Source: from})))
	if b.newest[lane] == "" {
		b.lanes = append(b.lanes, lane)
	}
	b.newest[lane] = key.ID
}

// Lanes are what is to be relayed once the batch is committed.
func (b *Batch) Lanes() []string { return b.lanes }

// Writes returns what commits the batch: an entry for each message, and a document for each lane.
func (b *Batch) Writes() []store.Write {
	writes := b.writes
	for _, lane := range b.lanes {
		// It changes the version whatever was there: a relay that has not seen the entry cannot remove the lane.
		next := head{Newest: b.newest[lane], DueAt: b.now.Add(grace), OldestAt: b.now}
		writes = append(writes, store.Set(store.Key{Collection: Outbox.Lanes(), ID: lane}, next.fields()))
	}
	return writes
}
