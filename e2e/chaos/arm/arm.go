// Package arm owns what the chaos harness and its workers have to agree on: the arms
// of the experiment, the queue of each, and where its effects are to be found. It
// refuses to know who delivers, who handles, and who counts.
package arm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// Arm is one way to handle an event, under the same deliveries as every other.
type Arm struct {
	// Name is its own, its queue's and, with Handlers before it, its handler's.
	Name string
	// Ordered: each event of a key waits for the acknowledgement of the one before.
	Ordered bool
	// Outside: the effect is an outside service's, not a document.
	Outside bool
	// Control: a handler that does it wrong, to show that the harness would see it.
	Control bool
}

// The arms.
const (
	Tx            = "tx"
	TxOrdered     = "tx-ordered"
	Leased        = "leased"
	LeasedOrdered = "leased-ordered"
	CheckThenAct  = "check-then-act"
	MarkThenAct   = "mark-then-act"
	UnfencedLease = "unfenced-lease"
)

// All are the arms in the order in which they are reported.
var All = []Arm{
	{Name: Tx},
	{Name: TxOrdered, Ordered: true},
	{Name: Leased, Outside: true},
	{Name: LeasedOrdered, Ordered: true, Outside: true},
	{Name: CheckThenAct, Control: true},
	{Name: MarkThenAct, Control: true},
	{Name: UnfencedLease, Control: true},
}

// Choose returns the arms of a comma-separated list of names; all, where it is empty.
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

// Handlers begins the names of the handlers.
const Handlers = "chaos."

// EventType is that of every event.
const EventType = "chaos.event"

// Topic is what ordered Tx events emit to.
const Topic = "chaos-told"

// The attributes by which a delivery asks its handler to stall, in milliseconds: before
// the effect and after it. They are no part of the payload.
const (
	StallBefore = "chaos_stall_before"
	StallAfter  = "chaos_stall_after"
)

// Lease is so short that a stalled handler outlives it, which no catalog file would
// allow: there the handler's time is up first.
const (
	Lease   = 300 * time.Millisecond
	timeout = 4 * time.Second
)

// Collections of the handlers.
const (
	// Effects counts how often an event took effect.
	Effects = "chaosEffects"
	// Keys holds the order in which the events of a key took effect.
	Keys = "chaosKeys"
	// Marks holds what a control's handler remembers of an event.
	Marks = "chaosMarks"
)

// Key is the document of an event, or of an ordering key, of an arm.
func Key(collection, arm, id string) store.Key {
	return store.Key{Collection: collection, ID: arm + "~" + id}
}

// Queues are the catalog of the experiment: one queue for each arm. Nothing is ever
// given up: a dead letter would be a loss.
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
		if a.Name == TxOrdered {
			tells := q.Handlers[EventType]
			tells.Emits = []string{Topic}
			q.Handlers[EventType] = tells
		}
		queues = append(queues, q)
	}
	return queues
}
