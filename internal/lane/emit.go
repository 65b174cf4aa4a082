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

// Emit gives the effect's emissions their ids and times, and adds the writes that commit them
// to the effect's. The catalog has their contracts and topics. It returns the lanes to relay
// after that commit. The error, for an emission that no broker would take, is marked
// permanent.
func Emit(c *catalog.Catalog, event handler.Event, effect *handler.Effect, now time.Time) (lanes []string, err error) {
	batch := NewBatch(now)
	for n := range effect.Emit {
		emission := &effect.Emit[n]
		id := ID(event, n)
		body, message, err := c.Contracts.Compose(emission.Body, contract.Stamp{
			ID: id, Tenant: event.Tenant, RoutingKey: emission.RoutingKey, OrderingKey: emission.OrderingKey, At: batch.now,
		})
		if err != nil {
			return nil, retry.Permanent("emission_invalid", err)
		}
		emission.Body = body
		topic := emission.To
		if q, ok := c.Queue(emission.To); ok {
			topic, message.Attributes = q.Topic(), q.Addressed(message.Attributes)
		}
		batch.Add(topic, id, message, Source{Queue: event.Queue, Tenant: event.Tenant, EventID: event.ID})
	}
	effect.Writes = append(effect.Writes, batch.Writes()...)
	return batch.Lanes(), nil
}
