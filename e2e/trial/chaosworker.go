package main

import (
	"bytes"
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
	verifier, err := auth.New(auth.Config{Mode: "none", EmulatorHost: true})
	if err != nil {
		return err
	}
	documents, err := firestore.NewEmulated(context.WithoutCancel(ctx), getenv("FIRESTORE_EMULATOR_HOST"), chaosProject, "")
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
	for name, target := range map[string]catalog.Target{gateway: shipped.Targets[gateway], service: {Name: service, Scheme: catalog.SchemeGeneric, Internal: true}} {
		target.Timeouts.Total = answerWithin
		config := delivery.Config{Target: target, BaseURL: getenv(outsideVariable), Secret: chaosSecret, Transport: numbering{}, Now: time.Now}
		if targets[name], err = delivery.New(config); err != nil {
			return err
		}
	}
	log, publisher := telemetry.NewLogger(stdout, slog.LevelInfo), publisher{getenv(outsideVariable), &http.Client{Timeout: 3 * time.Second}}
	service, err := worker.New(worker.Config{
		Catalog: declared, Store: documents, Publisher: publisher, Targets: targets,
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
	r.Tx("chaos."+armTxOrdered, h.txOrdered, outboxTopic)
	r.Tx("chaos."+armCheckThenAct, h.checkThenAct)
	r.Tx("chaos."+armMarkThenAct, h.markThenAct)
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

type publisher struct {
	base   string
	client *http.Client
}

// Publish is confirmed by the status 200 alone.
func (p publisher) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+"/topics/"+topic, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return "", err
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("publish: answered %d", response.StatusCode)
	}
	return m.Attributes[contract.AttrEventID], nil
}

var applied = handler.Effect{Result: "applied"}

// tx counts the event without a read. Only the record that is committed with it keeps it from counting twice.
func (h handlers) tx(ctx context.Context, event handler.Event) (handler.Effect, error) {
	return handler.Effect{Writes: []store.Write{once(event)}, Result: "applied"}, stall(ctx, event, stallBefore)
}

func (h handlers) txOrdered(ctx context.Context, event handler.Event) (handler.Effect, error) {
	key := documentOf(keysOf, event.Queue, event.OrderingKey)
	doc, err := h.store.Get(ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return handler.Effect{}, retry.Down("store_unavailable", err)
	}
	seen, _ := doc.Fields["seen"].([]any)
	fields := map[string]any{"seen": append(seen, cycleOf(event))}
	write := store.Create(key, fields)
	if doc.Version != 0 {
		write = store.Replace(key, doc.Version, fields)
	}
	message := contract.Of(&contract.Envelope{Action: chaosEvent, Payload: contract.Payload{
		EventID: event.ID, SubscriptionID: event.OrderingKey, Cycle: cycleOf(event),
	}})
	return handler.Effect{
		Writes: []store.Write{write}, Result: "applied",
		Emit: []handler.Emission{{To: outboxTopic, OrderingKey: event.OrderingKey, Body: message}},
	}, stall(ctx, event, stallBefore)
}

// checkThenAct is the control that doubles: it looks whether the event was handled, handles it, then marks it.
func (h handlers) checkThenAct(ctx context.Context, event handler.Event) (handler.Effect, error) {
	mark := documentOf(marksOf, event.Queue, event.ID)
	_, err := h.store.Get(ctx, mark)
	if err == nil || !errors.Is(err, store.ErrNotFound) {
		return applied, err
	}
	if err := h.act(ctx, event); err != nil {
		return handler.Effect{}, err
	}
	return applied, h.commit(ctx, store.Set(mark, map[string]any{"done": true}))
}

// markThenAct is the control that loses: it marks the event as handled, then handles it.
func (h handlers) markThenAct(ctx context.Context, event handler.Event) (handler.Effect, error) {
	err := h.commit(ctx, store.Create(documentOf(marksOf, event.Queue, event.ID), map[string]any{"done": true}))
	if errors.Is(err, store.ErrExists) {
		return applied, nil
	}
	if err != nil {
		return handler.Effect{}, err
	}
	return applied, h.act(ctx, event)
}

func (h handlers) act(ctx context.Context, event handler.Event) error {
	if err := stall(ctx, event, stallBefore); err != nil {
		return err
	}
	return h.commit(ctx, once(event))
}

func (h handlers) commit(ctx context.Context, write store.Write) error {
	_, err := h.store.Commit(ctx, []store.Write{write})
	return err
}

func once(event handler.Event) store.Write {
	return store.Increment(documentOf(effectsOf, event.Queue, event.ID), map[string]int64{"times": 1}, nil)
}

func cycleOf(event handler.Event) int64 {
	envelope, err := contract.As[*contract.Envelope](event.Body)
	if err != nil {
		return 0
	}
	return envelope.Payload.Cycle
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
