// Package lane owns the messages that wait to be published: the emissions of effects (the outbox), and messages that wait
// longer than the broker can (delayed). An entry is one message; a lane stands for one ordering key, and stays until its
// last message is delivered. A ticket comes back with each delayed message: its rank stays, its number is new each time.
// It refuses to decide that a message waits, and never publishes what is not committed.
package lane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
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

// ID is the event id of the n-th message that an event emits, from 0 on: the same however often the event is handled.
func ID(event handler.Event, n int) string {
	return uuid.NewSHA1(uuid.MustParse(event.CalleeKey()), []byte(strconv.Itoa(n))).String()
}

// Emitted has an effect's emissions as its record remembers them, and what is due after its commit.
type Emitted struct {
	Messages []handler.Emitted
	// Lanes are to be relayed at once.
	Lanes []string
	// Due is when the first of the delayed emissions is; zero: there is none.
	Due time.Time
}

// Emit gives the effect's emissions their ids and times, and adds the writes that commit and withdraw them to the effect's.
// Those that are due later get delayed lanes of their own. The error, for what no broker would take, is permanent.
func Emit(c *catalog.Catalog, event handler.Event, effect *handler.Effect, now time.Time) (e Emitted, err error) {
	batch := NewBatch(now)
	for n, emission := range effect.Emit {
		id := ID(event, n)
		body, message, err := c.Contracts.Compose(emission.Body, contract.Stamp{
			ID: id, Tenant: event.Tenant, RoutingKey: emission.RoutingKey, OrderingKey: emission.OrderingKey, Since: emission.Since, At: batch.now,
		})
		if err != nil || emission.Due.Sub(now) > contract.MaxAhead {
			return Emitted{}, retry.Permanent("emission_invalid", err)
		}
		topic, knownAs := emission.To, id
		if q, ok := c.Queue(emission.To); ok {
			knownAs = q.EventID(id, body.IdempotencyKey())
			topic, message.Attributes = q.Topic(), q.Addressed(message.Attributes)
		} else if emission.RoutingKey == "" { // on a shared topic nobody takes what has none
			message.Attributes[contract.AttrRoutingKey] = message.Attributes[contract.AttrEventType]
		}
		e.Messages = append(e.Messages, handler.Emitted{EventID: knownAs, EventType: message.Attributes[contract.AttrEventType], To: emission.To})
		from := Source{Queue: event.Queue, Tenant: event.Tenant, EventID: event.ID, Emits: knownAs}
		if emission.Due.IsZero() {
			batch.Add(topic, id, message, from)
			continue
		}
		due := moment(emission.Due)
		if e.Due.IsZero() || due.Before(e.Due) {
			e.Due = due
		}
		key, laneKey := place(event, cmp.Or(emission.Name, id))
		head := head{Newest: key.ID, DueAt: due, OldestAt: due}
		effect.Writes = append(effect.Writes,
			store.Create(key, store.Encode(&Kept{Topic: topic, Message: message, CreatedAt: batch.now, DueAt: due, Timer: true, Source: from})),
			store.Create(laneKey, head.fields()))
	}
	for _, name := range effect.Withdraw {
		key, laneKey := place(event, name)
		effect.Writes = append(effect.Writes, store.Delete(key, 0), store.Delete(laneKey, 0))
	}
	effect.Writes = append(effect.Writes, batch.Writes()...)
	e.Lanes = batch.Lanes()
	return e, nil
}

const emitted = "-emission"

// place has the keys of a delayed emission and of its lane: by its name another event removes both without a read.
func place(event handler.Event, name string) (entry, lane store.Key) {
	id := Name{Queue: event.Queue, Tenant: event.Tenant, Message: "emission " + name}.id()
	return store.Key{Collection: Delayed.Entries(), ID: id + emitted}, store.Key{Collection: Delayed.Lanes(), ID: id}
}
