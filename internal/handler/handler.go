// Package handler is the socket that domain packages plug into: an event type of a
// queue names a handler in the catalog, and the registry holds the function of that
// name. It owns the shapes of an event and of an effect; it refuses to run, retry
// or record anything.
package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
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
	// Body is the decoded body; contract.As gives it as the Go type that a handler takes.
	Body       contract.Body
	Attributes map[string]string
}

// Effect is what a Tx handler wants committed together with the event's record.
type Effect struct {
	Writes []store.Write
	// Emit are messages that exist exactly if the effect does: they are committed
	// with it and published after it, at least once, in order per ordering key.
	Emit []Emission
	// Result is a short code that the record keeps, such as credited.
	Result string
}

// Emission is a message for another queue.
type Emission struct {
	// Topic is a queue's id, or an outbound topic's: one that the catalog lists for the
	// handler.
	Topic string
	// OrderingKey is what the message waits behind; empty: nothing.
	OrderingKey string
	// Body is the message, such as contract.Of(&contract.Envelope{...}), without its id and
	// time: the id is derived from the event and the emission's place in Emit, so a
	// repetition has the same.
	Body contract.Body
}

// Tx is a handler whose whole effect is documents. It returns writes and performs
// none: they are committed with the event's record, or not at all, so the effect
// happens once whatever crashes.
//
// Tx may read the store. Where it read, its writes must hold preconditions for what
// it read; a failed precondition calls it again with a higher Try. An error marked
// with the retry package's marks says what it means; any other is tried again.
type Tx func(ctx context.Context, event Event) (Effect, error)

// Leased is a handler whose effect is outside: a gateway, another service. It runs
// under a lease on the event's record. The event's id is the idempotency key that it
// gives to the other side.
//
// A worker that dies in Do leaves it unknown whether the effect took place. So a
// Leased handler either has Reconcile, or declares that it is SafeToRepeat.
type Leased struct {
	// Do performs the effect and returns a short code that the record keeps. An error
	// marked with the retry package's marks says what it means; any other is tried
	// again. After ctx ends it must return: what it does then is nobody's.
	Do func(ctx context.Context, event Event) (result string, err error)
	// Reconcile asks the other side what became of an earlier attempt, by the event's
	// id. done says that the effect took place, and result is then what Do would have
	// returned; else Do is called. An error means that it is still not known, and is
	// treated as Do's would be. It is called before every attempt but the first.
	Reconcile func(ctx context.Context, event Event) (result string, done bool, err error)
	// SafeToRepeat declares that a second Do with the same id changes nothing.
	SafeToRepeat bool
}

// Registry maps handler names to handlers. Fill it before serving; it is not safe
// for concurrent registration.
type Registry struct {
	handlers map[string]Handler
}

// Handler is one registered handler: exactly one of the two is set.
type Handler struct {
	Tx     Tx
	Leased *Leased
	// emits are the topics that a Tx may emit to.
	emits []string
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{handlers: map[string]Handler{}} }

// Tx registers a handler under the name by which the catalog calls it, with the topics
// that it emits to. It panics on an empty or repeated name: that is a mistake in a main.
func (r *Registry) Tx(name string, h Tx, emits ...string) {
	if h == nil {
		panic("handler: empty registration")
	}
	r.add(name, Handler{Tx: h, emits: emits})
}

// Leased registers a handler whose effect is outside. It panics where Tx would, and
// for one that has no Reconcile and is not SafeToRepeat: after a crash nobody could
// say what to do.
func (r *Registry) Leased(name string, h Leased) {
	switch {
	case h.Do == nil:
		panic("handler: empty registration")
	case h.Reconcile == nil && !h.SafeToRepeat:
		panic("handler: " + name + " has no Reconcile and is not SafeToRepeat")
	}
	r.add(name, Handler{Leased: &h})
}

func (r *Registry) add(name string, h Handler) {
	if name == "" {
		panic("handler: empty registration")
	}
	if _, twice := r.handlers[name]; twice {
		panic("handler: registered twice: " + name)
	}
	r.handlers[name] = h
}

// Lookup finds the handler of a name; ok reports whether there is one.
func (r *Registry) Lookup(name string) (h Handler, ok bool) {
	h, ok = r.handlers[name]
	return h, ok
}

// Check reports, of every enabled queue, the handlers that are not registered, and those
// whose entry in the catalog does not list just the topics that they emit to: of one too
// few the worker would refuse messages, and one too many is a grant that nobody needs.
func (r *Registry) Check(c *catalog.Catalog) error {
	var errs []error
	for _, q := range c.Queues {
		if !q.Enabled {
			continue
		}
		for eventType, h := range q.Handlers {
			registered, ok := r.handlers[h.Name]
			emits, listed := slices.Sorted(slices.Values(registered.emits)), slices.Sorted(slices.Values(h.Emits))
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("queue %s: event type %s: no handler is registered as %q", q.ID, eventType, h.Name))
			case !slices.Equal(emits, listed):
				errs = append(errs, fmt.Errorf("queue %s: event type %s: %s emits to %q, and the catalog lists %q", q.ID, eventType, h.Name, emits, listed))
			}
		}
	}
	return errors.Join(errs...)
}
