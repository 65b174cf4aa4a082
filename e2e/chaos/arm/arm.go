// Package arm owns the definitions that the chaos harness and its workers share: the arms of
// the experiment, their queues, and the places of their effects. It refuses to know how events
// are delivered, handled or counted.
package arm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Arm is one way to handle events. All arms get the same kind of deliveries.
type Arm struct {
	// Name is the name of the arm and its queue. With Handlers before it, it is the handler's.
	Name string
	// Ordered: an event waits until the one before it of its key is acknowledged.
	Ordered bool
	// Outside: the effect takes place in an outside service, not in a document.
	Outside bool
	// Money: the effect is the refund of a payment, for which several events ask.
	Money bool
	// Journal: the effect is an entry of the journal, which is sealed while events come in.
	Journal bool
	// Control: the handler is wrong on purpose, to show that the harness notices.
	Control bool
}

// The arms.
const (
	Tx            = "tx"
	TxOrdered     = "tx-ordered"
	Leased        = "leased"
	LeasedOrdered = "leased-ordered"
	Batched       = "batched"
	Refunds       = "refunds"
	Journal       = "journal"
	CheckThenAct  = "check-then-act"
	MarkThenAct   = "mark-then-act"
	UnfencedLease = "unfenced-lease"
)

// All lists the arms in the order of the report.
var All = []Arm{
	{Name: Tx},
	{Name: TxOrdered, Ordered: true},
	{Name: Leased, Outside: true},
	{Name: LeasedOrdered, Ordered: true, Outside: true},
	{Name: Batched, Outside: true},
	{Name: Refunds, Outside: true, Money: true},
	{Name: Journal, Journal: true},
	{Name: CheckThenAct, Control: true},
	{Name: MarkThenAct, Control: true},
	{Name: UnfencedLease, Control: true},
}

// Choose returns the arms of a comma-separated list of names; empty: all.
func Choose(names string) ([]Arm, error) {
	if names == "" {
		return All, nil
	}
	var chosen []Arm
	var mistakes []error
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(All, func(a Arm) bool { return a.Name == name })
		if i < 0 {
			mistakes = append(mistakes, fmt.Errorf("there is no arm %q", name))
			continue
		}
		chosen = append(chosen, All[i])
	}
	return chosen, errors.Join(mistakes...)
}

// Handlers is the prefix of the handlers' names.
const Handlers = "chaos."

// EventType is the type of every event but those of the arms that run Billhook's own handlers.
const EventType = "chaos.event"

// The arm Refunds runs Billhook's own handler.
const (
	// RefundType is the type of its events.
	RefundType = "refund"
	// RefundHandler is the handler's name in the shipped catalog, and Gateway that of its target.
	RefundHandler = "refunds.initiate"
	Gateway       = "gateway"
	// Secret signs what the gateway is asked.
	Secret = "the-secret-of-the-chaos-gateway"
	// Patience is how long the gateway's answer is waited for: longer than a lease.
	Patience = 700 * time.Millisecond
)

// The arm Journal runs Billhook's own handler, under the shipped rules.
const (
	// InvoiceType is the type of its events, and InvoiceHandler the handler's name in the shipped
	// catalog.
	InvoiceType    = "billing.invoice.paid"
	InvoiceHandler = "journal.post"
	// Amount is what each of its events says was paid, in Currency. Cents is the same in minor units.
	Amount   = "12.50"
	Currency = "EUR"
	Cents    = 1250
)

// EventType is the type of the arm's events.
func (a Arm) EventType() string {
	switch {
	case a.Money:
		return RefundType
	case a.Journal:
		return InvoiceType
	default:
		return EventType
	}
}

// Topic gets the emissions of the arm TxOrdered.
const Topic = "chaos-told"

// DomainEvents gets those of the arm Journal.
const DomainEvents = "chaos-posted"

// Attributes of a delivery that make its handler stall before or after the effect, in
// milliseconds. They are not in the payload.
const (
	StallBefore = "chaos_stall_before"
	StallAfter  = "chaos_stall_after"
)

// Item is one event of a batch, or of a call of its own, as the outside service is told.
type Item struct {
	Event, IdempotencyKey, Attempt, Key string
	Cycle                               int64
}

// Lease is shorter than a stall. A catalog file may not declare that, since a handler's timeout
// has to end before its lease.
const (
	Lease   = 300 * time.Millisecond
	timeout = 4 * time.Second
)

// Collections of the handlers.
const (
	// Effects counts how often an event took effect.
	Effects = "chaosEffects"
	// Keys holds the events of a key in the order of their effects.
	Keys = "chaosKeys"
	// Marks holds the events that a control has marked as handled.
	Marks = "chaosMarks"
)

// Key is the document of an event or an ordering key in an arm.
func Key(collection, arm, id string) store.Key {
	return store.Key{Collection: collection, ID: arm + "~" + id}
}

// Queues is the catalog of the experiment: one queue per arm. Attempts are not limited, since a
// dead letter would be a loss.
func Queues() []catalog.Queue {
	var queues []catalog.Queue
	for _, a := range All {
		const attempts = 1000
		backoff := retry.Policy{Base: 50 * time.Millisecond, Max: 50 * time.Millisecond}
		q := catalog.Queue{
			ID: a.Name, Enabled: true, Contract: contract.EnvelopeV1, MaxAttempts: attempts, Backoff: backoff,
			AckDeadline: Lease, Lease: Lease, HandlerTimeout: timeout, RememberFor: time.Hour, Concurrency: 256,
			DeadLetter: catalog.DeadLetter{Topic: a.Name + "-dlq"}, OnTerminal: catalog.Reject, OnOrphan: catalog.Report,
			Handlers: map[string]catalog.Handler{
				EventType: {Name: Handlers + a.Name, MaxAttempts: attempts, Backoff: backoff, Timeout: timeout},
			},
		}
		if a.Ordered {
			q.OrderingKey = []string{"subscription_id"}
		}
		if a.Money {
			q.Handlers = map[string]catalog.Handler{
				RefundType: {Name: RefundHandler, Calls: []string{Gateway}, MaxAttempts: attempts, Backoff: backoff, Timeout: timeout},
			}
		}
		if a.Journal {
			q.Contract = contract.MessageV1
			q.Handlers = map[string]catalog.Handler{
				InvoiceType: {Name: InvoiceHandler, Emits: []string{DomainEvents}, MaxAttempts: attempts, Backoff: backoff, Timeout: timeout},
			}
		}
		if a.Name == Batched {
			q.Batch = catalog.Batch{Size: 8, Wait: 20 * time.Millisecond}
		}
		if a.Name == TxOrdered {
			tells := q.Handlers[EventType]
			tells.Emits = []string{Topic}
			q.Handlers[EventType] = tells
		}
		queues = append(queues, q)
	}
	return queues
}
