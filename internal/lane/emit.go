package lane

import (
	"fmt"
	"time"

	"github.com/google/uuid"

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

// Emit gives the effect's emissions their ids and times, and adds the writes that
// commit them to the effect's. It returns the lanes to relay after that commit. The
// error, for an emission that no broker would take, is marked permanent.
func Emit(event handler.Event, effect *handler.Effect, now time.Time) (lanes []string, err error) {
	batch := NewBatch(now)
	for n := range effect.Emit {
		emission := &effect.Emit[n]
		id := ID(event, n)
		message, err := compose(event, emission, id, batch.now)
		if err != nil {
			return nil, retry.Permanent("emission_invalid", err)
		}
		batch.Add(emission.To, id, message, Source{Queue: event.Queue, Tenant: event.Tenant, EventID: event.ID})
	}
	effect.Writes = append(effect.Writes, batch.Writes()...)
	return batch.Lanes(), nil
}

// emitted is a body that a handler can make.
type emitted interface {
	contract.Body
	// Stamped returns the body with its id and the time of its making.
	Stamped(id, createdAt string) contract.Body
	Attributes() contract.Attributes
}

// compose gives an emission its id and makes its message.
func compose(event handler.Event, emission *handler.Emission, id string, now time.Time) (contract.Message, error) {
	made, ok := emission.Body.(emitted)
	if !ok {
		return contract.Message{}, contract.ErrMalformed
	}
	emission.Body = made.Stamped(id, now.Format(time.RFC3339Nano))
	if err := emission.Body.Validate(); err != nil {
		return contract.Message{}, err
	}
	data, err := emission.Body.Append(nil)
	if err != nil {
		return contract.Message{}, err
	}
	attributes := emission.Body.(emitted).Attributes()
	attributes.RoutingKey = emission.RoutingKey
	attributes.OrderingKey, attributes.Tenant = emission.OrderingKey, event.Tenant
	attributes.FirstPublished = now.Format(time.RFC3339Nano)
	if attributes.OrderingKey == "" {
		attributes.OrderingKey = contract.UnknownOrderingKey
	}
	m := contract.Message{Data: data, Attributes: attributes.Map(), OrderingKey: emission.OrderingKey}
	if err := attributes.Validate(); err != nil {
		return contract.Message{}, err
	}
	return m, m.Check()
}
