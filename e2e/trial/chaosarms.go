package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/retry"
)

type arm struct {
	// name is that of its queue, too.
	name string
	// ordered: an event waits until the one before it of its key is acknowledged.
	ordered bool
	// control are the steps of a handler that is wrong on purpose, to show that the trial notices.
	control []step
	// handler is the catalog's entry; without a name it is the worker's handler of the arm's name.
	handler catalog.Handler
	batch   catalog.Batch
	// event makes the message; nil: envelope does.
	event func(*event) contract.Body
}

const (
	armTx            = "tx"
	armTxOrdered     = "tx-ordered"
	armLeasedOrdered = "leased-ordered"
	armRefunds       = "refunds"
	armJournal       = "journal"
	armCheckThenAct  = "check-then-act"
)

// arms in the order of the report. Those that post, refund and keep books run Billhook's own handlers.
var arms = []*arm{
	{name: armTx},
	{name: armTxOrdered, ordered: true, handler: catalog.Handler{Emits: []string{outbox}}},
	{name: "leased", handler: catalog.Handler{Post: effectPost}},
	{name: armLeasedOrdered, ordered: true, handler: catalog.Handler{Post: effectPost}},
	{
		name: "batched", batch: catalog.Batch{Size: 8, Wait: 20 * time.Millisecond},
		handler: catalog.Handler{Post: catalog.Post{Target: service, Path: "/batches", Form: catalog.NDJSON}},
	},
	{name: armRefunds, handler: catalog.Handler{Name: "refunds.initiate", Calls: []string{gateway}}, event: refund},
	{name: armJournal, handler: catalog.Handler{Name: catalog.JournalPost, Emits: []string{posted}}, event: invoice},
	{name: armCheckThenAct, control: []step{look, act, mark}},
	{name: "mark-then-act", control: []step{mark, act}},
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
	chaosEvent = "chaos.event"
	// outbox and posted are the topics of what arms publish about their events.
	outbox      = "chaos-outbox"
	posted      = "chaos-posted"
	chaosSecret = "the-secret-of-what-chaos-calls"
	// service and gateway are the targets. An answer of theirs is waited for longer than a lease.
	service      = "service"
	gateway      = "gateway"
	answerWithin = 700 * time.Millisecond
	// A lease is shorter than a stall. A catalog file may not declare that: a handler's timeout ends before
	// its lease there.
	chaosLease   = 300 * time.Millisecond
	chaosTimeout = 4 * time.Second
)

// effectPost asks before it posts again.
var effectPost = catalog.Post{Target: service, Path: "/effects", Reconcile: "/effects/{id}"}

// happened is when everything happened that the events tell of.
var happened = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func envelope(e *event) contract.Body {
	return contract.Of(&contract.Envelope{
		ID: e.id, Action: chaosEvent, CreatedAt: happened.Format(time.RFC3339), Payload: contract.Payload{SubscriptionID: e.key},
	})
}

func refund(e *event) contract.Body {
	return contract.Of(&contract.Envelope{
		ID: e.id, Action: "refund", CreatedAt: happened.Format(time.RFC3339), Payload: contract.Payload{PaymentID: e.key},
	})
}

// Each invoice is paid with amount, which is cents.
const (
	amount   = "12.50"
	currency = "EUR"
	cents    = 1250
)

type paid struct {
	InvoiceID string `json:"invoice_id"`
	Amount    string `json:"amount"`
	Currency  string `json:"currency"`
}

func invoice(e *event) contract.Body {
	return contract.Of(&contract.Event{
		ID: e.id, Type: "billing.invoice.paid", Timestamp: happened.Format(time.RFC3339), Version: 1,
		Data: paid{e.key, amount, currency},
	})
}

// body is that of an event's message.
func (a *arm) body(e *event) contract.Body {
	if a.event == nil {
		return envelope(e)
	}
	return a.event(e)
}

// queue is the arm's own. Attempts are not limited: a dead letter would be a loss.
func (a *arm) queue() catalog.Queue {
	const attempts = 1000
	backoff := retry.Policy{Base: 50 * time.Millisecond, Max: 50 * time.Millisecond}
	h, says := a.handler, a.body(&event{}).Attributes()
	if h.MaxAttempts, h.Backoff, h.Timeout = attempts, backoff, chaosTimeout; h.Name == "" {
		h.Name = "chaos." + a.name
	}
	q := catalog.Queue{
		ID: a.name, Enabled: true, Contract: says.Contract, MaxAttempts: attempts, Backoff: backoff,
		AckDeadline: chaosLease, Lease: chaosLease, HandlerTimeout: chaosTimeout, RememberFor: time.Hour,
		Concurrency: 256, Batch: a.batch, DeadLetter: catalog.DeadLetter{Topic: a.name + "-dlq"},
		OnTerminal: catalog.Reject, Handlers: map[string]catalog.Handler{says.EventType: h},
	}
	if a.ordered {
		q.OrderingKey = []string{"subscription_id"}
	}
	return q
}
