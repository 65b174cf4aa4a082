// Package handler connects domain packages to queues: the catalog names a handler for each event type, and
// the registry holds the function of that name. It does not run, retry or record anything.
package handler

import (
	"cmp"
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
	// Try rises with each conflict of this attempt's commit: the handler must then read the store again.
	Try        int
	Body       contract.Body // decoded; contract.As returns it as the Go type that a handler takes
	Attributes map[string]string
}

// CalleeKey is the event's key in other services, for example the Idempotency-Key of a request.
func (e Event) CalleeKey() string { return CalleeKey(e.Queue, e.Tenant, e.ID) }

// namespace of the keys, chosen at random once.
var namespace = uuid.MustParse("8a0a3c0e-53f4-4c27-9d0b-0f4d1a6f2f57")

// CalleeKey derives the key of an event from its id, which is unique only within its queue and tenant.
func CalleeKey(queue, tenant, eventID string) string {
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "%q %q %q", queue, tenant, eventID)).String()
}

// Effect is what a handler wants committed together with the event's record.
type Effect struct {
	Writes []store.Write
	// Emit are committed with the effect and published after it, at least once, in order per ordering key.
	Emit   []Emission
	Result string // a short code for the record, such as credited
	Ref    string // optional id of what the effect made, for the record and each answer to the event
	// optional id of the ledger entry that the effect makes, for the record, if Ref is another id
	Entry string
	// Withdraw has the Names of delayed emissions of this tenant and queue, to remove if they still wait.
	Withdraw []string
	// Superseded: a later event was handled before. The record is completed with that outcome.
	Superseded bool
}

// Emission is a message for a queue or a topic.
type Emission struct {
	To          string    // the id of a queue or topic that the catalog lists for the handler
	RoutingKey  string    // matched with a shared topic's bindings; not needed if To is a queue
	OrderingKey string    // keeps messages in order; empty: in no order
	Since       time.Time // when its age, and so its message TTL, begins; zero: when it is published
	// Due is when it is published, at most 30 days ahead, out of order; zero: right after the commit.
	Due time.Time
	// Name lets another event Withdraw an emission with Due. While it waits, its name cannot be used again.
	Name string
	// Body has no id or time of its own: its id is derived from the event and its index in Emit.
	Body contract.Body
}

// Emitted is the record of a committed emission.
type Emitted struct {
	EventID   string `store:"event_id,required"`
	EventType string `store:"event_type"`
	To        string `store:"to"`
}

// EmittedIDs returns the event ids of emissions.
func EmittedIDs(all []Emitted) []string {
	ids := make([]string, len(all))
	for i, one := range all {
		ids[i] = one.EventID
	}
	return ids
}

// Tx is a handler whose whole effect is documents. It returns writes and performs none: they are committed
// with the event's record, or not at all. Each document that it has read needs a precondition in its writes;
// if one fails, Tx is called again with a higher Try. Package retry decides what an error means.
type Tx func(ctx context.Context, event Event) (Effect, error)

// Leased is a handler whose effect is in another service. It runs under a lease on the event's record, and
// sends the event's CalleeKey as the idempotency key. Its writes and emissions are committed with the
// record's completion while the lease is held, or not at all. A worker that dies in Do leaves the effect
// unknown, so a Leased either has Reconcile or is SafeToRepeat.
type Leased struct {
	// Do performs the effect. Its errors have the same meanings as a Tx's. It must return when ctx ends.
	Do func(ctx context.Context, event Event) (Effect, error)
	// Reconcile queries the other service by the event's key before Do is called again.
	Reconcile func(ctx context.Context, event Event) (Reconciled, error)
	// Plan returns what Do would do, for a trial. It neither writes nor calls. Optional.
	Plan func(ctx context.Context, event Event) (Plan, error)
	// SafeToRepeat declares that a second Do for the same event changes nothing.
	SafeToRepeat bool
	// ManyPlaces declares that events have different targets: when one is down, the others' events do not wait.
	ManyPlaces bool
	// batched: Do gathers concurrent attempts.
	batched bool
}

// Reconciled says whether an effect took place, and if so, what Do would have returned.
type Reconciled struct {
	Done   bool
	Effect Effect
}

// Plan is what a Leased would do with an event.
type Plan struct {
	Writes []store.Write // committed before the first call
	Calls  []Call        // if there are none, Effect is what Do would return
	Effect Effect
}

// Call is a handler's request to another service, without its signature.
type Call struct {
	// Target is the catalog's name of the service, or "endpoint:" and the id of an endpoint.
	Target string         `json:"target" show:"Calls"`
	Method string         `json:"method" show:"Method"`
	Path   string         `json:"path" show:"Path"`
	ID     string         `json:"id" show:"Id"` // the idempotency key
	Body   jsontext.Value `json:"body" show:"Body"`
}

// Typed turns a function that takes its body as a Go type into a Tx, or into a part of a Leased.
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
	body   reflect.Type // nil: any
	emits  []string     // the queues and topics that it may emit to
}

// Registry maps handler names to handlers. Fill it before serving: registration is not concurrency-safe.
type Registry struct {
	handlers map[string]Handler
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{handlers: map[string]Handler{}} }

// RegisterTx registers a handler of bodies of type B. It panics on an empty or repeated name.
func RegisterTx[B any](
	r *Registry, name string, h func(context.Context, Event, B) (Effect, error), emits ...string,
) {
	r.add(name, Handler{Tx: Typed(h), body: reflect.TypeFor[B](), emits: emits})
}

// RegisterLeased registers a Leased, like RegisterTx. It also panics if h lacks Reconcile and SafeToRepeat.
func RegisterLeased[B any](r *Registry, name string, h Leased, emits ...string) {
	r.add(name, Handler{Leased: &h, body: reflect.TypeFor[B](), emits: emits})
}

// Tx registers a handler that takes any body.
func (r *Registry) Tx(name string, h Tx, emits ...string) {
	r.add(name, Handler{Tx: h, emits: emits})
}

// Leased registers a Leased that takes any body.
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

// Check reports the mistakes of all enabled queues together.
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
			emits, listed := slices.Clone(registered.emits), slices.Clone(h.Emits)
			slices.Sort(emits)
			slices.Sort(listed)
			if !slices.Equal(emits, listed) {
				wrong("%s emits to %q, and the catalog lists %q", h.Name, emits, listed)
			}
			leased := cmp.Or(registered.Leased, &Leased{})
			if leased.batched != (q.Batch.Size > 0) {
				wrong("%s and the queue disagree on whether attempts are gathered into batches", h.Name)
			}
			if !leased.SafeToRepeat && !q.Remembers() {
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
