// Package handler is the socket of domain packages: an event type of a queue names a handler in the catalog,
// and the registry holds the function of that name. It refuses to run, retry or record anything.
package handler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Event is one decoded and validated delivery.
type Event struct {
	Queue         string
	Tenant        string
	ID            string // the idempotency key, unique within queue and tenant
	Type          string
	CorrelationID string
	OrderingKey   string
	MessageID     string
	PublishedAt   time.Time
	Attempt       int // 1 for the first
	// Try rises with each conflict of this attempt's commit: what the handler read has changed, and it must look
	// again.
	Try int
	// Body is the decoded body; contract.As gives it as the Go type that a handler takes.
	Body       contract.Body
	Attributes map[string]string
}

// CalleeKey is what the event is known by outside, such as its Idempotency-Key.
func (e Event) CalleeKey() string { return CalleeKey(e.Queue, e.Tenant, e.ID) }

// namespace of the keys; any fixed one would do.
var namespace = uuid.MustParse("8a0a3c0e-53f4-4c27-9d0b-0f4d1a6f2f57")

// CalleeKey derives the key of an event, whose id is one within its queue and tenant alone.
func CalleeKey(queue, tenant, eventID string) string {
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "%q %q %q", queue, tenant, eventID)).String()
}

// Effect is what a handler wants committed together with the event's record.
type Effect struct {
	Writes []store.Write
	// Emit are committed with the effect and published after it, at least once, in order per ordering key.
	Emit   []Emission
	Result string // a short code that the record keeps, such as credited
	// Ref is the id of what the effect made, which the record and each answer to the event have. Empty: nothing
	// to name.
	Ref string
	// Entry is the id of the entry of the books that the effect makes, for the record alone, where Ref does not
	// say it.
	Entry string
	// Withdraw are the Names of delayed emissions, of this tenant and queue, that are removed if they still
	// wait.
	Withdraw []string
	// Superseded: a later event has been handled before, which is the outcome of what is completed all the same.
	Superseded bool
}

// Emission is a message for a queue or a topic.
type Emission struct {
	To          string // the id of a queue or topic that the catalog lists for the handler
	RoutingKey  string // matched with the bindings of a shared topic; a queue named by To needs none
	OrderingKey string // keeps messages in order; empty: the message waits for none
	// Since is when its age, and so its message TTL, begins. Zero: with its own publishing.
	Since time.Time
	// Due is when it is published, 30 days ahead at most, and nothing waits behind it; zero: right after the
	// commit.
	Due time.Time
	// Name, of one that is Due later, is what to Withdraw it by. While it waits, a second one of its name is a
	// conflict.
	Name string
	// Body has no id and no time of its own: its id follows from the event and its place in Emit.
	Body contract.Body
}

// Emitted is what is remembered of an emission that was committed.
type Emitted struct {
	EventID   string `store:"event_id,required"`
	EventType string `store:"event_type"`
	To        string `store:"to"`
}

// EmittedIDs are the event ids of what was emitted.
func EmittedIDs(all []Emitted) []string {
	ids := make([]string, len(all))
	for i, one := range all {
		ids[i] = one.EventID
	}
	return ids
}

// Tx is a handler whose whole effect is documents. It returns writes and performs none: they are committed
// with the event's record, or not at all. Where it has read the store, its writes must hold preconditions for
// that; a failed one calls it again with a higher Try. The retry package's marks say what an error means; an
// unmarked one is tried again.
type Tx func(ctx context.Context, event Event) (Effect, error)

// Leased is a handler whose effect is outside: a gateway, another service. It runs under a lease on the
// event's record, and gives the event's CalleeKey to the other side as the idempotency key. Its writes and
// emissions are committed with the completion of the record while the lease is held, or not at all. A worker
// that dies in Do leaves it unknown whether the effect took place: so it either has Reconcile, or declares
// that it is SafeToRepeat.
type Leased struct {
	// Do performs the effect. Its errors mean what those of a Tx mean. It must return when ctx ends.
	Do func(ctx context.Context, event Event) (Effect, error)
	// Reconcile asks the other side about the event's key before Do is called again. An error leaves that open.
	Reconcile func(ctx context.Context, event Event) (Reconciled, error)
	// Plan says what Do would do, for people who want to see it first. It neither writes nor calls. nil: it
	// cannot say.
	Plan func(ctx context.Context, event Event) (Plan, error)
	// SafeToRepeat declares that a second Do with the same id changes nothing.
	SafeToRepeat bool
	// ManyPlaces declares that events go to places of their own: where one is down, the others do not wait.
	ManyPlaces bool
	// batched: Do gathers concurrent attempts.
	batched bool
}

// Reconciled says whether an effect took place, and then what Do would have returned.
type Reconciled struct {
	Done   bool
	Effect Effect
}

// Plan is what a Leased would do of an event.
type Plan struct {
	// Writes are what it would commit before it calls anybody.
	Writes []store.Write
	// Calls are the requests that it would make. Where there are none, Effect is what Do would return.
	Calls  []Call
	Effect Effect
}

// Call is a request that a handler makes outside. What signs the request is no part of it.
type Call struct {
	// Target is the catalog's name of the service, or endpoint: and the id of an endpoint.
	Target string         `json:"target" show:"Calls"`
	Method string         `json:"method" show:"Method"`
	Path   string         `json:"path" show:"Path"`
	ID     string         `json:"id" show:"Id"` // the idempotency key
	Body   jsontext.Value `json:"body" show:"Body"`
}

// Typed is the Tx, or a part of a Leased, that gives a handler its body as what it takes.
func Typed[B, R any](h func(context.Context, Event, B) (R, error)) func(context.Context, Event) (R, error) {
	return func(ctx context.Context, event Event) (result R, err error) {
		body, err := contract.As[B](event.Body)
		if err != nil {
			return result, retry.Permanent("unexpected_body", nil)
		}
		return h(ctx, event, body)
	}
}

// Handler is one registered handler: exactly one of Tx and Leased is set.
type Handler struct {
	Tx     Tx
	Leased *Leased
	body   reflect.Type // that it takes; nil: any
	emits  []string     // the queues and topics that it may emit to
}

// Registry maps handler names to handlers. Fill it before serving: registration is not safe for concurrent
// use.
type Registry struct {
	handlers map[string]Handler
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{handlers: map[string]Handler{}} }

// RegisterTx registers a handler of bodies of type B with what it emits to. It panics on an empty or repeated
// name.
func RegisterTx[B any](
	r *Registry, name string, h func(context.Context, Event, B) (Effect, error), emits ...string,
) {
	r.add(name, Handler{Tx: Typed(h), body: reflect.TypeFor[B](), emits: emits})
}

// RegisterLeased registers a Leased as RegisterTx does a Tx. It panics also without Reconcile and
// SafeToRepeat.
func RegisterLeased[B any](r *Registry, name string, h Leased, emits ...string) {
	r.add(name, Handler{Leased: &h, body: reflect.TypeFor[B](), emits: emits})
}

// Tx registers a handler that takes any body.
func (r *Registry) Tx(name string, h Tx, emits ...string) {
	r.add(name, Handler{Tx: h, emits: emits})
}

// Leased registers a handler whose effect is outside, and which takes any body.
func (r *Registry) Leased(name string, h Leased, emits ...string) {
	r.add(name, Handler{Leased: &h, emits: emits})
}

func (r *Registry) add(name string, h Handler) {
	switch {
	case name == "", h.Leased == nil && h.Tx == nil, h.Leased != nil && h.Leased.Do == nil:
		panic("handler: empty registration")
	case h.Leased != nil && h.Leased.Reconcile == nil && !h.Leased.SafeToRepeat:
		panic("handler: " + name + " has no Reconcile and is not SafeToRepeat")
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

// Check reports the mistakes of every enabled queue, all together.
func (r *Registry) Check(c *catalog.Catalog) error {
	var errs []error
	for _, q := range c.Queues {
		if !q.Enabled {
			continue
		}
		for eventType, h := range q.Handlers {
			wrong := func(format string, args ...any) {
				errs = append(errs, c.WrongHandler(q.ID, eventType, fmt.Errorf(format, args...)))
			}
			registered, ok := r.handlers[h.Name]
			if !ok {
				wrong("no handler is registered as %q", h.Name)
				continue
			}
			if emits, listed := slices.Sorted(slices.Values(registered.emits)),
				slices.Sorted(slices.Values(h.Emits)); !slices.Equal(emits, listed) {
				wrong("%s emits to %q, and the catalog lists %q", h.Name, emits, listed)
			}
			if batched := registered.Leased != nil && registered.Leased.batched; batched != (q.Batch.Size > 0) {
				wrong("%s and the queue disagree on whether attempts are gathered into batches", h.Name)
			}
			if safe := registered.Leased != nil && registered.Leased.SafeToRepeat; !safe && !q.Remembers() {
				wrong("%s is not safe to repeat, and the queue has no records", h.Name)
			}
			if registered.body != nil {
				for _, misfit := range catalog.Mistakes(c.Contracts.Takes(q.Contract, eventType, registered.body)) {
					wrong("%s: %w", h.Name, misfit.Unwrap())
				}
			}
		}
	}
	return errors.Join(errs...)
}
