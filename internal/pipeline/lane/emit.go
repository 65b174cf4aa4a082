package lane

import (
	"cmp"
	"strconv"
	"time"

	"github.com/google/uuid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

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
