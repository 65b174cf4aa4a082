package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/service"
	"billhook/internal/compose/worker"
	"billhook/internal/console/access"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
	"billhook/internal/retry"
)

type arm struct {
	// name is also the name of its queue.
	name string
	// ordered: an event waits until the previous one of its key is acknowledged.
	ordered bool
	// control: its handler is wrong on purpose, to show that the trial notices.
	control bool
	// handler is the catalog's entry; without a name it is the worker's handler named after the arm.
	handler catalog.Handler
	batch   catalog.Batch
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

// arms are in the order of the report. Those that post, refund and keep books use Billhook's own handlers.
var arms = []*arm{
	{name: armTx},
	{name: armTxOrdered, ordered: true, handler: catalog.Handler{Emits: []string{outbox}}},
	{name: "leased", handler: catalog.Handler{Post: effectPost}},
	{name: armLeasedOrdered, ordered: true, handler: catalog.Handler{Post: effectPost}},
	{
		name: "batched", batch: catalog.Batch{Size: 8, Wait: 20 * time.Millisecond},
		handler: catalog.Handler{Post: batchPost},
	},
	{name: armRefunds, handler: catalog.Handler{Name: "refunds.initiate", Calls: []string{gateway}}},
	{name: armJournal, handler: catalog.Handler{Name: catalog.JournalPost, Emits: []string{posted}}},
	{name: armCheckThenAct, control: true},
	{name: armMarkThenAct, control: true},
}

// chosen returns the arms in a comma-separated list of names; empty: all.
func chosen(names string) ([]*arm, error) {
	if names == "" {
		return arms, nil
	}
	wanted := strings.Split(names, ",")
	found := slices.DeleteFunc(slices.Clone(arms), func(a *arm) bool { return !slices.Contains(wanted, a.name) })
	if len(found) < len(wanted) {
		return nil, fmt.Errorf("not all of these are arms: %s", names)
	}
	return found, nil
}

const (
	chaosEvent = "chaos.event"
	// outbox and posted are the topics of emitted messages.
	outbox      = "chaos-outbox"
	posted      = "chaos-posted"
	chaosSecret = "the-secret-of-what-chaos-calls"
	// effects and gateway are the targets. A wait for their answers may be longer than a lease.
	effects      = "effects"
	gateway      = "gateway"
	answerWithin = 700 * time.Millisecond
	attempts     = 1000
	// A lease is shorter than a stall; a catalog file may not declare such a short one.
	chaosLease   = 300 * time.Millisecond
	chaosTimeout = 4 * time.Second
)

var (
	// effectPost reconciles before it repeats a post.
	effectPost = catalog.Post{Target: effects, Path: "/effects", Reconcile: "/effects/{id}"}
	batchPost  = catalog.Post{Target: effects, Path: "/batches", Form: catalog.NDJSON}
)

// happened is the time of all events.
var happened = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// The amount of each paid invoice, 12.50, in cents.
const (
	currency = "EUR"
	cents    = 1250
)

// body returns the body of an event's message: a paid invoice, a refund, or an event of a subscription.
func (a *arm) body(e *event) contract.Body {
	at, action := happened.Format(time.RFC3339), chaosEvent
	switch a.name {
	case armJournal:
		const form = `{"invoice_id":%q,"amount":"12.50","currency":%q}` // a map would change the order of members
		paid := jsontext.Value(fmt.Sprintf(form, e.key, currency))
		return contract.Of(&contract.Event{
			ID: e.id, Type: "billing.invoice.paid", Timestamp: at, Version: 1, Data: paid,
		})
	case armRefunds:
		action = "refund"
	}
	of := contract.Payload{SubscriptionID: e.key, PaymentID: e.key}
	return contract.Of(&contract.Envelope{ID: e.id, Action: action, CreatedAt: at, Payload: of})
}

// queue returns the arm's queue. Attempts are practically unlimited, because a dead letter would be a loss.
func (a *arm) queue() catalog.Queue {
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

// outsideVariable has the URL of the trial's services. If it is set, this program is chaos' worker.
const outsideVariable = "CHAOS_OUTSIDE"

// work runs the worker of cmd/worker with the arms' queues.
func work(r *run, outsideURL string) {
	verifier := filetest.Must(auth.New(auth.Config{Mode: auth.ModeNone, EmulatorHost: true}))(r)
	services := service.Config{Host: "127.0.0.1", Project: project, MetricsPort: "0"}
	life := context.WithoutCancel(r.ctx) // it ends with the process
	publisher, documents := filetest.Both(services.Open(life, services.MainDatabase()))(r)
	declared := catalogtest.Shipped()
	declared.Queues = filetest.Map(arms, (*arm).queue)
	declared.Targets[effects] = catalog.Target{Name: effects, Scheme: catalog.SchemeGeneric, Internal: true}
	for name, target := range declared.Targets {
		target.Timeouts.Total = answerWithin
		declared.Targets[name] = target
	}
	targets := filetest.Must(delivery.Open(declared, "", func(catalog.Target) (string, []string) {
		return outsideURL, []string{chaosSecret}
	}, time.Now))(r)
	log, metrics := telemetry.NewLogger(os.Stdout, slog.LevelInfo), telemetry.NewMetrics()
	pushes := filetest.Must(worker.New(worker.Config{
		Catalog: declared, Store: documents, Publisher: publisher, Targets: targets,
		Authenticator: verifier, Access: access.Access{OpenOnLoopback: true},
		Log: log, Metrics: metrics, Now: time.Now, AfterFunc: alarm.AfterFunc,
		Handlers: handlers{documents}.register,
	}))(r)
	server := serve.Server{Name: "worker", Log: log, ReadTimeout: time.Minute}
	r.must(services.Serve(r.ctx, server, "0", pushes, metrics))
}

type handlers struct{ store store.Store }

func (h handlers) register(r *handler.Registry) {
	r.Tx("chaos."+armTx, h.tx)
	r.Tx("chaos."+armTxOrdered, h.txOrdered, outbox)
	r.Tx("chaos."+armCheckThenAct, h.checkThenAct)
	r.Tx("chaos."+armMarkThenAct, h.markThenAct)
}

// effectsOf has the number of an event's effects, or lists a key's events; marksOf has the controls' marks.
const (
	effectsOf = "chaosEffects"
	marksOf   = "chaosMarks"
)

var applied = handler.Effect{Result: "applied"}

// tx counts the event without a read, so only the record in the same commit prevents a second count.
func (h handlers) tx(ctx context.Context, event handler.Event) (handler.Effect, error) {
	return handler.Effect{Writes: []store.Write{once(event)}, Result: applied.Result}, stall(ctx, event)
}

func once(event handler.Event) store.Write {
	return store.Increment(store.Key{Collection: effectsOf, ID: event.ID}, map[string]int64{"times": 1}, nil)
}

func (h handlers) txOrdered(ctx context.Context, event handler.Event) (handler.Effect, error) {
	doc, err := store.Find(ctx, h.store, store.Key{Collection: effectsOf, ID: event.OrderingKey})
	if err != nil {
		return handler.Effect{}, retry.Down("store_unavailable", err)
	}
	seen, _ := doc.Fields["seen"].([]any)
	write := store.Replace(doc.Key, doc.Version, map[string]any{"seen": append(seen, event.ID)})
	about := contract.Payload{EventID: event.ID, SubscriptionID: event.OrderingKey}
	message := contract.Of(&contract.Envelope{Action: chaosEvent, Payload: about})
	return handler.Effect{
		Writes: []store.Write{write}, Result: applied.Result,
		Emit: []handler.Emission{{To: outbox, OrderingKey: event.OrderingKey, Body: message}},
	}, stall(ctx, event)
}

// checkThenAct and markThenAct are wrong on purpose: their steps are not in one commit.
func (h handlers) checkThenAct(ctx context.Context, event handler.Event) (handler.Effect, error) {
	marked, err := store.Find(ctx, h.store, markOf(event))
	if err == nil && marked.Version == 0 {
		err = h.act(ctx, event, store.Set(markOf(event), done))
	}
	return applied, err
}

func (h handlers) markThenAct(ctx context.Context, event handler.Event) (handler.Effect, error) {
	_, err := h.store.Commit(ctx, []store.Write{store.Create(markOf(event), done)})
	switch {
	case errors.Is(err, store.ErrExists):
		return applied, nil
	case err == nil:
		err = h.act(ctx, event)
	}
	return applied, err
}

var done = map[string]any{"done": true}

func markOf(event handler.Event) store.Key { return store.Key{Collection: marksOf, ID: event.ID} }

// act counts the event, and then commits each of the other writes.
func (h handlers) act(ctx context.Context, event handler.Event, follows ...store.Write) error {
	err := stall(ctx, event)
	for _, write := range append([]store.Write{once(event)}, follows...) {
		if err == nil {
			_, err = h.store.Commit(ctx, []store.Write{write})
		}
	}
	return err
}

// stall waits for the duration in the delivery's attribute, or until ctx ends.
func stall(ctx context.Context, event handler.Event) error {
	wait, _ := time.ParseDuration(event.Attributes[stalls]) // 0 without the attribute
	e2e.Wait(ctx, wait)
	return ctx.Err()
}
