package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/notifications"
	"billhook/internal/apps/payments"
	"billhook/internal/compose/system"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Check reports the mistakes for which a worker of the pool, or of all pools, would refuse the catalog,
// except mistakes in addresses and secrets.
func Check(c *catalog.Catalog, pool string) error {
	unread := struct{ store.Store }{}
	config := Config{Catalog: c, Targets: uncalled(c), Store: unread, Now: time.Now}
	registry := handler.NewRegistry()
	config.register(registry, &Worker{})
	return refuse(c, queuesOf(c, pool), registry)
}

// Mistakes returns the mistakes of loading a catalog, then those of Check on lines without a mistake so far.
// It does not call Check without contracts, because a worker would refuse everything.
func Mistakes(c *catalog.Catalog, loading error) []*catalog.Mistake {
	known := catalog.Mistakes(loading)
	if c.Contracts == nil {
		return known
	}
	named := *c // an entry without an id is a mistake of loading
	named.Queues = slices.DeleteFunc(slices.Clone(c.Queues), func(q catalog.Queue) bool { return q.ID == "" })
	return append(known, slices.DeleteFunc(catalog.Mistakes(Check(&named, "")), func(m *catalog.Mistake) bool {
		return slices.ContainsFunc(known, func(k *catalog.Mistake) bool {
			return k.File == m.File && k.Line == m.Line && (m.Line > 0 || k.Error() == m.Error())
		})
	})...)
}

func queuesOf(c *catalog.Catalog, pool string) []catalog.Queue {
	others := func(q catalog.Queue) bool { return pool != "" && q.Pool != pool }
	return slices.DeleteFunc(slices.Clone(c.Queues), others)
}

func refuse(c *catalog.Catalog, queues []catalog.Queue, registry *handler.Registry) error {
	own := *c
	own.Queues = queues
	var missing error
	if _, delivers := c.HandledBy(endpoints.Handler); delivers && c.Endpoints == (catalog.Endpoints{}) {
		const what = "is missing, and a queue delivers to them"
		missing = &catalog.Mistake{File: "targets.yaml", Key: "endpoints", What: what}
	}
	return errors.Join(missing, notifications.Check(c), registry.Check(&own))
}

// Start logs the queues that the worker serves, and makes it add its counts to the store until Close.
func (w *Worker) Start() {
	for _, q := range w.served {
		handlers := []string{}
		for eventType, h := range q.Handlers {
			handlers = append(handlers, eventType+" -> "+h.Name)
		}
		slices.Sort(handlers)
		w.log.LogAttrs(context.Background(), slog.LevelInfo, "queue served", slog.String("queue", q.ID),
			slog.String("pool", q.Pool), slog.Any("handlers", handlers))
	}
	w.rates.Start()
}

// lastCount bounds how long a drained worker tries to add its last counts.
const lastCount = 1500 * time.Millisecond

// Close adds the last counts. It is called after the last delivery.
func (w *Worker) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), lastCount)
	defer cancel()
	w.rates.Close(ctx)
}

// uncalled returns targets to register handlers with, which are never called.
func uncalled(c *catalog.Catalog) delivery.Targets {
	targets := delivery.Targets{}
	for _, t := range c.TargetsOf("") {
		targets[t.Name] = &delivery.Target{}
	}
	return targets
}

// apart returns the configuration of a worker that delivers nothing: it has all queues, publishes nothing,
// and has neither addresses nor secrets of targets.
func (c Config) apart() Config {
	c.Pool, c.Publisher, c.Targets = "", unpublished{}, uncalled(c.Catalog)
	c.Backlogs, c.Alarm, c.AfterFunc = nil, byTheMinute{}, nil
	return c
}

// trial returns this worker with other files of its catalog, on a store that refuses writes.
func (c Config) trial(files map[string]string) (dryrun.Worker, error) {
	if len(files) > 0 {
		replaced, err := c.Catalog.With(files)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", dryrun.ErrCatalog, err)
		}
		c.Catalog = replaced
	}
	c = c.apart()
	c.Store, c.Log = dryrun.ReadOnly(c.Store), c.Log.With("trial", true)
	w, err := c.delivering()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dryrun.ErrCatalog, err)
	}
	return w.push, nil
}

type unpublished struct{}

func (unpublished) Publish(context.Context, string, contract.Message) (string, error) {
	return "", errors.New("neither a trial nor a process for people publishes")
}

var exampleAt = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

// example returns a sample body of a format. eventType may be a pattern.
func (c Config) example(format, eventType string) ([]byte, error) {
	eventType = strings.NewReplacer("*", "sample", "#", "sample").Replace(eventType)
	if format == contract.PaymentV1 {
		eventType = contract.OrderPaid // it has all members of the format
	}
	return samples.Message(c.Catalog, catalog.Queue{Contract: format}, eventType, "1", exampleAt)
}

// Examiner makes the ops API's doctor from a client of Pub/Sub's subscriptions.
func Examiner(look *pubsub.Switch, c *catalog.Catalog) system.Doctor {
	return func(ctx context.Context, paused map[string]pause.Pause) (e system.Examination, err error) {
		found, err := look.Examine(ctx, c, paused)
		e.Findings, e.Unread, e.Catalogs = found.Findings, len(found.Unread), found.Catalogs
		return e, err
	}
}

// The gateway's paths for orders. The path of one order also has its key.
const (
	paymentsPath = "/v1/payments"
	refundsPath  = "/v1/refunds"
)

// registerPayments registers the handlers of payments and refunds; the registry's check reports a missing
// one.
func (c Config) registerPayments(r *handler.Registry) {
	refunds, _ := c.Catalog.HandledBy(payments.RefundHandler)
	payment := func(name string) payments.Payments {
		updates, _ := c.Catalog.EmitsTo(name)
		return payments.Payments{Gateway: c.gateway(name, paymentsPath), Updates: updates, Refunds: refunds}
	}
	refund := payments.Refunds{
		Gateway: c.gateway(payments.RefundHandler, refundsPath), Store: c.Store, Now: c.Now,
	}
	payments.Register(r, payment("payments.initiate"), payment("payments.initiate_trial"), refund)
}

func (c Config) gateway(name, path string) gateway {
	q, _ := c.Catalog.HandledBy(name)
	for _, h := range q.Handlers {
		if h.Name == name && len(h.Calls) > 0 {
			return gateway{h.Calls[0], c.Targets[h.Calls[0]], path}
		}
	}
	return gateway{}
}

// gateway is a service of the payment gateway, at a path of its target.
type gateway struct {
	name   string // of the target
	target *delivery.Target
	path   string
}

// Do posts an order. A 409 means at some gateways that they have the order, and at others that they have a
// different one under its key. So Do then reads the order.
func (g gateway) Do(ctx context.Context, key string, order []byte) ([]byte, error) {
	answer, err := g.target.Call(ctx, delivery.Request{
		Method: http.MethodPost, Path: g.path, ID: key, Body: order, MaxAnswer: payments.MaxAnswer,
	})
	if answer.Status == http.StatusConflict {
		known, ok, failed := g.Reconcile(ctx, key)
		if failed != nil || ok {
			return known, failed
		}
	}
	return answer.Body, err
}

// Request implements payments.Gateway.
func (g gateway) Request(key string, order []byte) handler.Call {
	return handler.Call{Target: g.name, Method: http.MethodPost, Path: g.path, ID: key, Body: order}
}

// Reconcile reads the order of a key. Only a 404 means that there is none.
func (g gateway) Reconcile(ctx context.Context, key string) (body []byte, known bool, err error) {
	answer, err := g.target.Call(ctx, delivery.Request{
		Method: http.MethodGet, Path: g.path + "/" + key, ID: key, MaxAnswer: payments.MaxAnswer,
		Unknown: []int{http.StatusNotFound},
	})
	switch {
	case answer.Status == http.StatusNotFound:
		return nil, false, nil
	case err != nil && retry.Decide(err).Class.Terminal():
		// The gateway refused the read, not the order, so the order's outcome is unknown.
		return nil, false, retry.Transient("callee_unclear_"+strconv.Itoa(answer.Status), nil)
	case err != nil:
		return nil, false, err
	}
	return answer.Body, true, nil
}
