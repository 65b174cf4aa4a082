package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/compose/worker"
	"billhook/internal/console/access"
	"billhook/internal/contract"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
	"billhook/internal/retry"
)

// outsideVariable is the URL of everything that is not Billhook's, which is the trial. A process of this
// program that has it is chaos' worker.
const outsideVariable = "CHAOS_OUTSIDE"

// work is the worker of chaos: that of cmd/worker, with the queues of the arms.
func work(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	verifier, err := auth.New(auth.Config{Mode: auth.ModeNone, EmulatorHost: true})
	if err != nil {
		return err
	}
	documents, err := firestore.NewEmulated(context.WithoutCancel(ctx), getenv("FIRESTORE_EMULATOR_HOST"), project, "")
	if err != nil {
		return err
	}
	defer func() { _ = documents.Close() }() // the process ends; nothing is lost
	shipped, err := catalog.Load("")
	if err != nil {
		return err
	}
	declared := &catalog.Catalog{Contracts: shipped.Contracts, Journal: shipped.Journal}
	for _, a := range arms {
		declared.Queues = append(declared.Queues, a.queue())
	}
	targets := delivery.Targets{}
	defer targets.Close()
	for name, target := range map[string]catalog.Target{
		gateway: shipped.Targets[gateway], service: {Name: service, Scheme: catalog.SchemeGeneric, Internal: true},
	} {
		target.Timeouts.Total = answerWithin
		config := delivery.Config{Target: target, BaseURL: getenv(outsideVariable), Secret: chaosSecret, Transport: numbering{}, Now: time.Now}
		if targets[name], err = delivery.New(config); err != nil {
			return err
		}
	}
	log := telemetry.NewLogger(stdout, slog.LevelInfo)
	service, err := worker.New(worker.Config{
		Catalog: declared, Store: documents, Publisher: publisher(getenv(outsideVariable)), Targets: targets,
		Authenticator: verifier, Access: access.Access{OpenOnLoopback: true},
		Log: log, Metrics: telemetry.NewMetrics(), Now: time.Now, AfterFunc: alarm.AfterFunc,
		Handlers: func(r *handler.Registry) { handlers{documents}.register(r, declared, targets) },
	})
	if err != nil {
		return err
	}
	listener, err := serve.Listen(ctx, "127.0.0.1", "0")
	if err != nil {
		return err
	}
	server := &serve.Server{
		Name: "worker", Handler: service, Log: log, Drain: 8 * time.Second, ReadTimeout: time.Minute,
		Longest: service.Longest(), Draining: service.Drain,
	}
	return server.Run(ctx, listener)
}

type handlers struct{ store store.Store }

func (h handlers) register(r *handler.Registry, declared *catalog.Catalog, targets delivery.Targets) {
	r.Tx("chaos."+armTx, h.tx)
	for _, a := range arms {
		switch {
		case a.name == armTxOrdered:
			r.Tx("chaos."+a.name, h.txOrdered, a.handler.Emits...)
		case a.control != nil:
			r.Tx("chaos."+a.name, h.control(a.control))
		}
	}
	posts := handler.NewRegistry()
	targets.Register(posts, declared, "", func(d time.Duration) (<-chan time.Time, func() bool) {
		t := time.NewTimer(d)
		return t.C, t.Stop
	})
	for _, q := range declared.Queues {
		for _, entry := range q.Handlers {
			if posting, ok := posts.Lookup(entry.Name); ok {
				r.Leased(entry.Name, stalling(*posting.Leased))
			}
		}
	}
}

// stalling is a handler that stalls, and that says by which attempt it calls.
func stalling(of handler.Leased) handler.Leased {
	do, ask := of.Do, of.Reconcile
	of.Do = func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		if err := stall(ctx, event, stallBefore); err != nil {
			return handler.Effect{}, err
		}
		effect, err := do(context.WithValue(ctx, numbering{}, event.Attempt), event)
		if err != nil {
			return effect, err
		}
		return effect, stall(ctx, event, stallAfter)
	}
	if ask != nil {
		of.Reconcile = func(ctx context.Context, event handler.Event) (handler.Effect, bool, error) {
			return ask(context.WithValue(ctx, numbering{}, event.Attempt), event)
		}
	}
	return of
}

// attemptHeader has the number of the attempt, by which is seen who asks before they post again.
const attemptHeader = "X-Chaos-Attempt"

// numbering sends the number of the attempt that its context has.
type numbering struct{}

func (numbering) RoundTrip(request *http.Request) (*http.Response, error) {
	if attempt, ok := request.Context().Value(numbering{}).(int); ok {
		request = request.Clone(request.Context())
		request.Header.Set(attemptHeader, strconv.Itoa(attempt))
	}
	return http.DefaultTransport.RoundTrip(request)
}

// publisher publishes at the URL of the outside. The status 200 alone confirms it.
type publisher string

func (p publisher) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	answer, err := e2e.Post(ctx, string(p)+"/topics/"+topic, body, nil)
	if err == nil && answer.Status != http.StatusOK {
		err = fmt.Errorf("publish: answered %d", answer.Status)
	}
	return m.Attributes[contract.AttrEventID], err
}

// Collections of the worker's own handlers: how often an event took effect, or the events of a key in the
// order of their effects; and the events that a control has marked as handled.
const (
	effectsOf = "chaosEffects"
	marksOf   = "chaosMarks"
)

var applied = handler.Effect{Result: "applied"}

// tx counts the event without a read. Only the record that is committed with it keeps it from counting twice.
func (h handlers) tx(ctx context.Context, event handler.Event) (handler.Effect, error) {
	return handler.Effect{Writes: []store.Write{once(event)}, Result: "applied"}, stall(ctx, event, stallBefore)
}

func once(event handler.Event) store.Write {
	return store.Increment(store.Key{Collection: effectsOf, ID: event.ID}, map[string]int64{"times": 1}, nil)
}

func (h handlers) txOrdered(ctx context.Context, event handler.Event) (handler.Effect, error) {
	key := store.Key{Collection: effectsOf, ID: event.OrderingKey}
	doc, err := h.store.Get(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return handler.Effect{}, retry.Down("store_unavailable", err)
	}
	seen, _ := doc.Fields["seen"].([]any)
	fields := map[string]any{"seen": append(seen, event.ID)}
	write := store.Create(key, fields)
	if doc.Version != 0 {
		write = store.Replace(key, doc.Version, fields)
	}
	about := contract.Payload{EventID: event.ID, SubscriptionID: event.OrderingKey}
	message := contract.Of(&contract.Envelope{Action: chaosEvent, Payload: about})
	return handler.Effect{
		Writes: []store.Write{write}, Result: "applied",
		Emit: []handler.Emission{{To: outbox, OrderingKey: event.OrderingKey, Body: message}},
	}, stall(ctx, event, stallBefore)
}

// control is the handler of steps that are each right, and wrong together: nothing holds between two of them.
func (h handlers) control(steps []step) handler.Tx {
	return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		for _, step := range steps {
			if done, err := step(ctx, h, event); done || err != nil {
				return applied, err
			}
		}
		return applied, nil
	}
}

// step is one of a control's. done: the event was handled before.
type step func(ctx context.Context, h handlers, event handler.Event) (done bool, err error)

func markOf(event handler.Event) store.Key { return store.Key{Collection: marksOf, ID: event.ID} }

func look(ctx context.Context, h handlers, event handler.Event) (done bool, err error) {
	_, err = h.store.Get(ctx, markOf(event))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func act(ctx context.Context, h handlers, event handler.Event) (done bool, err error) {
	if err := stall(ctx, event, stallBefore); err != nil {
		return false, err
	}
	_, err = h.store.Commit(ctx, []store.Write{once(event)})
	return false, err
}

func mark(ctx context.Context, h handlers, event handler.Event) (done bool, err error) {
	_, err = h.store.Commit(ctx, []store.Write{store.Create(markOf(event), map[string]any{"done": true})})
	if errors.Is(err, store.ErrExists) {
		return true, nil
	}
	return false, err
}

// stall waits for as long as the delivery's attribute says, or until ctx ends.
func stall(ctx context.Context, event handler.Event, where string) error {
	wait, _ := strconv.Atoi(event.Attributes[where]) // without the attribute 0
	select {
	case <-time.After(time.Duration(wait) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
