package lane

import (
	"cmp"
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

// grace is how long a new lane of the outbox is left to the worker that created it.
const grace = 30 * time.Second

// Batch collects messages of the outbox for one commit.
type Batch struct {
	now    time.Time
	writes []store.Write
	lanes  []string
	newest map[string]string // lane -> its last entry
}

// NewBatch returns an empty batch whose messages are created at the given time.
func NewBatch(now time.Time) *Batch { return &Batch{now: moment(now), newest: map[string]string{}} }

// Add adds a message with its own id to the batch, after the earlier ones of its topic and ordering key.
func (b *Batch) Add(topic, id string, m contract.Message, from Source) {
	lane := Name{Queue: topic, Tenant: from.Tenant, OrderingKey: m.OrderingKey, Message: id}.id()
	// Within a lane, entries are in the order of their commits' times, then in the order of the batch.
	entry := fmt.Sprintf("%s-%020d-%03d-%s", lane, b.now.UnixMicro(), len(b.writes), id)
	kept := Kept{Topic: topic, Content: Content{m, b.now}, Source: from}
	b.writes = append(b.writes,
		store.Create(store.Key{Collection: Outbox.Entries(), ID: entry}, store.Encode(&kept)))
	if b.newest[lane] == "" {
		b.lanes = append(b.lanes, lane)
	}
	b.newest[lane] = entry
}

// Lanes returns the lanes to relay once the batch is committed.
func (b *Batch) Lanes() []string { return b.lanes }

// Writes returns what commits the batch: an entry for each message, and a document for each lane.
func (b *Batch) Writes() []store.Write {
	writes := b.writes
	for _, lane := range b.lanes {
		// A Set always changes the version, so a relay that has not seen the entry cannot remove the lane.
		next := head{Newest: b.newest[lane], DueAt: b.now.Add(grace), OldestAt: b.now}
		writes = append(writes, store.Set(store.Key{Collection: Outbox.Lanes(), ID: lane}, store.Encode(&next)))
	}
	return writes
}

// ID is the event id of an event's n-th emission, counted from 0. It is the same in every attempt.
func ID(event handler.Event, n int) string {
	return uuid.NewSHA1(uuid.MustParse(event.CalleeKey()), []byte(strconv.Itoa(n))).String()
}

// Emitted has an effect's emissions for the record, and what to do after the commit.
type Emitted struct {
	Messages []handler.Emitted
	Lanes    []string  // to be relayed at once
	Due      time.Time // of the first delayed emission; zero: there is none
}

// Emit gives the effect's emissions ids and times. It adds to the effect the writes that store them, and
// those that remove withdrawn ones. A delayed emission has its own lane. An invalid one is a permanent error.
func Emit(c *catalog.Catalog, event handler.Event, effect *handler.Effect, now time.Time) (Emitted, error) {
	var e Emitted
	for _, name := range effect.Withdraw {
		key, laneKey := place(event, name)
		effect.Writes = append(effect.Writes, store.Delete(key, 0), store.Delete(laneKey, 0))
	}
	batch := NewBatch(now)
	for n, emission := range effect.Emit {
		id := ID(event, n)
		body, message, err := c.Contracts.Compose(emission.Body, contract.Stamp{
			ID: id, Tenant: event.Tenant, RoutingKey: emission.RoutingKey, OrderingKey: emission.OrderingKey,
			Since: emission.Since, At: batch.now,
		})
		if err != nil || emission.Due.Sub(now) > contract.MaxAhead {
			return Emitted{}, retry.Permanent("emission_invalid", err)
		}
		topic, knownAs := emission.To, id
		if q, ok := c.Queue(emission.To); ok {
			knownAs = q.EventID(id, body.IdempotencyKey())
			topic, message.Attributes = q.Topic(), q.Addressed(message.Attributes)
		} else if emission.RoutingKey == "" { // required on a shared topic
			message.Attributes[contract.AttrRoutingKey] = message.Attributes[contract.AttrEventType]
		}
		eventType := message.Attributes[contract.AttrEventType]
		e.Messages = append(e.Messages, handler.Emitted{EventID: knownAs, EventType: eventType, To: emission.To})
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
		kept := Kept{Topic: topic, Content: Content{message, batch.now}, DueAt: due, Timer: true, Source: from}
		effect.Writes = append(effect.Writes, store.Create(key, store.Encode(&kept)),
			store.Create(laneKey, store.Encode(&head{Newest: key.ID, DueAt: due, OldestAt: due})))
	}
	effect.Writes = append(effect.Writes, batch.Writes()...)
	e.Lanes = batch.Lanes()
	return e, nil
}

const emitted = "-emission"

// place returns the keys of a delayed emission and its lane by the emission's name, without a read.
func place(event handler.Event, name string) (entry, lane store.Key) {
	id := Name{Queue: event.Queue, Tenant: event.Tenant, Message: "emission " + name}.id()
	return store.Key{Collection: Delayed.Entries(), ID: id + emitted},
		store.Key{Collection: Delayed.Lanes(), ID: id}
}
