package lane

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/handler"
	"billhook/internal/retry"
)

// namespace of the ids of emitted messages; any fixed one would do.
var namespace = uuid.MustParse("6e6f7468-696e-572d-8c6f-73742d747769")

// ID is the event id of the n-th message (0 is the first) that an event emits. It is
// the same however often the event is handled, so that a consumer of the message
// recognizes it.
func ID(event handler.Event, n int) string {
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "%q %q %q %d", event.Queue, event.Tenant, event.ID, n)).String()
}

// Emitted has the event ids of an effect's emissions, and the lanes to relay after its commit.
type Emitted struct{ IDs, Lanes []string }

// Emit gives the effect's emissions their ids and times, and adds the writes that commit them
// to the effect's. The catalog has their contracts and topics. The error, for an emission that
// no broker would take, is marked permanent.
func Emit(c *catalog.Catalog, event handler.Event, effect *handler.Effect, now time.Time) (e Emitted, err error) {
	batch := NewBatch(now)
	for n, emission := range effect.Emit {
		id := ID(event, n)
		body, message, err := c.Contracts.Compose(emission.Body, contract.Stamp{
			ID: id, Tenant: event.Tenant, RoutingKey: emission.RoutingKey, OrderingKey: emission.OrderingKey, Since: emission.Since, At: batch.now,
		})
		if err != nil {
			return Emitted{}, retry.Permanent("emission_invalid", err)
		}
		topic, knownAs := emission.To, id
		if q, ok := c.Queue(emission.To); ok {
			knownAs = q.EventID(id, body.IdempotencyKey())
			topic, message.Attributes = q.Topic(), q.Addressed(message.Attributes)
		}
		e.IDs = append(e.IDs, knownAs)
		batch.Add(topic, id, message, Source{Queue: event.Queue, Tenant: event.Tenant, EventID: event.ID})
	}
	effect.Writes = append(effect.Writes, batch.Writes()...)
	e.Lanes = batch.Lanes()
	return e, nil
}
