// Package handler is the socket that domain packages plug into: an event type of a
// queue names a handler in the catalog, and the registry holds the function of that
// name. It owns the shapes of an event and of an effect; it refuses to run, retry
// or record anything.
package handler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/catalog"
	"billhook/internal/store"
)

// Event is one decoded and validated delivery.
type Event struct {
	Queue  string
	Tenant string
	// ID is the idempotency key, unique within queue and tenant.
	ID            string
	Type          string
	Contract      string
	CorrelationID string
	OrderingKey   string
	MessageID     string
	PublishedAt   time.Time
	// Attempt is 1 for the first.
	Attempt int
	// Try is 0, and rises when the commit of this attempt met a conflict: what the
	// handler assumed or read is no longer so, and it must look again.
	Try int
	// Body is the decoded body of the contract, such as *contract.PayNow.
	Body       any
	Attributes map[string]string
}

// Effect is what a Tx handler wants committed together with the event's record.
type Effect struct {
	Writes []store.Write
	// Result is a short code that the record keeps, such as credited.
	Result string
}

// Tx is a handler whose whole effect is documents. It returns writes and performs
// none: they are committed with the event's record, or not at all, so the effect
// happens once whatever crashes.
//
// Tx may read the store. Where it read, its writes must hold preconditions for what
// it read; a failed precondition calls it again with a higher Try. An error marked
// with the retry package's marks says what it means; any other is tried again.
type Tx func(ctx context.Context, event Event) (Effect, error)

// Registry maps handler names to handlers. Fill it before serving; it is not safe
// for concurrent registration.
type Registry struct {
	tx map[string]Tx
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{tx: map[string]Tx{}} }

// Tx registers a handler under the name by which the catalog calls it. It panics
// on an empty or repeated name: that is a mistake in a main.
func (r *Registry) Tx(name string, h Tx) {
	if name == "" || h == nil {
		panic("handler: empty registration")
	}
	if _, twice := r.tx[name]; twice {
		panic("handler: registered twice: " + name)
	}
	r.tx[name] = h
}

// Lookup finds the handler of a name; ok reports whether there is one.
func (r *Registry) Lookup(name string) (h Tx, ok bool) {
	h, ok = r.tx[name]
	return h, ok
}

// Check reports every enabled queue's handler that is not registered, all together.
func (r *Registry) Check(c *catalog.Catalog) error {
	var errs []error
	for _, q := range c.Queues {
		if !q.Enabled {
			continue
		}
		for eventType, h := range q.Handlers {
			if _, ok := r.tx[h.Name]; !ok {
				errs = append(errs, fmt.Errorf("queue %s: event type %s: no handler is registered as %q", q.ID, eventType, h.Name))
			}
		}
	}
	return errors.Join(errs...)
}
