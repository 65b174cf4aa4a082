package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

type arm struct {
	// name is that of its queue, too.
	name string
	// ordered: an event waits until the one before it of its key is acknowledged.
	ordered bool
	// control: the handler is wrong on purpose, to show that the trial notices.
	control bool
	// handler is the catalog's entry; without a name it is the worker's handler of the arm's name.
	handler catalog.Handler
	batch   catalog.Batch
	// eventType and contract are chaosEvent and the envelope where they are empty.
	eventType, contract string
}

const (
	armTx            = "tx"
	armTxOrdered     = "tx-ordered"
	armLeasedOrdered = "leased-ordered"
	armRefunds       = "refunds"
	armJournal       = "journal"
	armCheckThenAct  = "check-then-act"
	armMarkThenAct   = "mark-then-act"
)

// arms in the order of the report. Those that post, refund and keep books run Billhook's own handlers.
var arms = []*arm{
	{name: armTx},
	{name: armTxOrdered, ordered: true, handler: catalog.Handler{Emits: []string{outboxTopic}}},
	{name: "leased", handler: catalog.Handler{Post: effectPost}},
	{name: armLeasedOrdered, ordered: true, handler: catalog.Handler{Post: effectPost}},
	{name: "batched", handler: catalog.Handler{Post: catalog.Post{Target: service, Path: "/batches", Form: catalog.NDJSON}}, batch: catalog.Batch{Size: 8, Wait: 20 * time.Millisecond}},
	{name: armRefunds, eventType: "refund", handler: catalog.Handler{Name: "refunds.initiate", Calls: []string{gateway}}},
	{name: armJournal, eventType: "billing.invoice.paid", contract: contract.MessageV1, handler: catalog.Handler{Name: catalog.JournalPost, Emits: []string{postedTopic}}},
	{name: armCheckThenAct, control: true},
	{name: armMarkThenAct, control: true},
}

// chosen are the arms of a list of names, separated by commas; empty: all.
func chosen(names string) ([]*arm, error) {
	if names == "" {
		return arms, nil
	}
	var found []*arm
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(arms, func(a *arm) bool { return a.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no arm %q", name)
		}
		found = append(found, arms[i])
	}
	return found, nil
}

const (
	chaosProject = "chaos"
	chaosEvent   = "chaos.event"
	chaosSecret  = "the-secret-of-what-chaos-calls"
	// outboxTopic gets the messages of the arm tx-ordered, postedTopic those of journal.
	outboxTopic = "chaos-outbox"
	postedTopic = "chaos-posted"
	// service and gateway are the targets. An answer of theirs is waited for longer than a lease.
	service      = "service"
	gateway      = "gateway"
	answerWithin = 700 * time.Millisecond
	// Each invoice is paid with amount, which is cents.
	amount   = "12.50"
	currency = "EUR"
	cents    = 1250
)

// effectPost asks before it posts again.
var effectPost = catalog.Post{Target: service, Path: "/effects", Reconcile: "/effects/{id}"}

// Attributes of a delivery that make its handler stall before or after the effect, in milliseconds.
const (
	stallBefore = "chaos_stall_before"
	stallAfter  = "chaos_stall_after"
)

// A lease is shorter than a stall. A catalog file may not declare that: a handler's timeout ends before
// its lease there.
const (
	chaosLease   = 300 * time.Millisecond
	chaosTimeout = 4 * time.Second
)

// Collections of the worker's own handlers: how often an event took effect, the events of a key in the order
// of their effects, and those that a control has marked as handled.
const (
	effectsOf = "chaosEffects"
	keysOf    = "chaosKeys"
	marksOf   = "chaosMarks"
)

func documentOf(collection, arm, id string) store.Key {
	return store.Key{Collection: collection, ID: arm + "~" + id}
}

// queue is the arm's own. Attempts are not limited: a dead letter would be a loss.
func (a *arm) queue() catalog.Queue {
	const attempts = 1000
	backoff := retry.Policy{Base: 50 * time.Millisecond, Max: 50 * time.Millisecond}
	h := a.handler
	if h.MaxAttempts, h.Backoff, h.Timeout = attempts, backoff, chaosTimeout; h.Name == "" {
		h.Name = "chaos." + a.name
	}
	q := catalog.Queue{
		ID: a.name, Enabled: true, Contract: contract.EnvelopeV1, MaxAttempts: attempts, Backoff: backoff,
		AckDeadline: chaosLease, Lease: chaosLease, HandlerTimeout: chaosTimeout, RememberFor: time.Hour,
		Concurrency: 256, Batch: a.batch, DeadLetter: catalog.DeadLetter{Topic: a.name + "-dlq"},
		OnTerminal: catalog.Reject, Handlers: map[string]catalog.Handler{a.typeOf(): h},
	}
	if a.contract != "" {
		q.Contract = a.contract
	}
	if a.ordered {
		q.OrderingKey = []string{"subscription_id"}
	}
	return q
}

func (a *arm) typeOf() string {
	if a.eventType == "" {
		return chaosEvent
	}
	return a.eventType
}
