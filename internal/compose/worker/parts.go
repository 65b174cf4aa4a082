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

// Start says in the log which queues the worker serves, and has it add what it counts to the store, until
// Close.
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

// lastCount bounds how long a worker that has drained tries to add what it has counted.
const lastCount = 1500 * time.Millisecond

// Close adds what the worker has counted and not yet added. It is called once nothing is delivered any more.
func (w *Worker) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), lastCount)
	defer cancel()
	w.rates.Close(ctx)
}

// uncalled are targets that handlers are registered for, and that are never called.
func uncalled(c *catalog.Catalog) delivery.Targets {
	targets := delivery.Targets{}
	for _, t := range c.TargetsOf("") {
		targets[t.Name] = &delivery.Target{}
	}
	return targets
}

// apart is the configuration of what delivers nothing: it knows all queues, publishes no message, and has the
// address and the secret of no target.
func (c Config) apart() Config {
	c.Pool, c.Publisher, c.Targets = "", unpublished{}, uncalled(c.Catalog)
	c.Backlogs, c.Alarm, c.AfterFunc = nil, byTheMinute{}, nil
	return c
}

// trial returns the worker that this one would be with other files of its catalog. Its store takes no writes.
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

// example is a body of a format, for people who look at a contract. eventType may be a pattern.
func (c Config) example(format, eventType string) ([]byte, error) {
	eventType = strings.NewReplacer("*", "sample", "#", "sample").Replace(eventType)
	if format == contract.PaymentV1 {
		eventType = contract.OrderPaid // the format says what a body of any other type has
	}
	return samples.Message(c.Catalog, catalog.Queue{Contract: format}, eventType, "1", exampleAt)
}

// Examiner makes the ops API's doctor of the way to Pub/Sub's subscriptions.
func Examiner(look *pubsub.Switch, c *catalog.Catalog) system.Doctor {
	return func(ctx context.Context, paused map[string]pause.Pause) (system.Examination, error) {
		found, err := look.Examine(ctx, c, paused)
		return system.Examination{Findings: found.Findings, Unread: len(found.Unread), Catalogs: found.Catalogs},
			err
	}
}

// Where the gateway takes orders. Behind the path and an order's key it says what became of one.
const (
	paymentsPath = "/v1/payments"
	refundsPath  = "/v1/refunds"
)

// registerPayments registers the handlers of payments and refunds; the registry's own check reports what is
// missing.
func registerPayments(
	r *handler.Registry, c *catalog.Catalog, targets delivery.Targets, db store.GetCommitter,
	now func() time.Time,
) {
	refundQueue, _ := c.HandledBy(payments.RefundHandler)
	payment := func(name string) payments.Payments {
		updates, _ := c.EmitsTo(name)
		return payments.Payments{
			Gateway: gatewayOf(c, targets, name, paymentsPath), Updates: updates, Refunds: refundQueue,
		}
	}
	payments.Register(r, payment("payments.initiate"), payment("payments.initiate_trial"), payments.Refunds{
		Gateway: gatewayOf(c, targets, payments.RefundHandler, refundsPath), Store: db, Now: now,
	})
}

func gatewayOf(c *catalog.Catalog, targets delivery.Targets, name, path string) gateway {
	q, _ := c.HandledBy(name)
	for _, h := range q.Handlers {
		if h.Name == name && len(h.Calls) > 0 {
			return gateway{h.Calls[0], targets[h.Calls[0]], path}
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

// Do posts an order.
func (g gateway) Do(ctx context.Context, key string, order []byte) ([]byte, error) {
	answer, err := g.target.Call(ctx, delivery.Request{
		Method: http.MethodPost, Path: g.path, ID: key, Body: order, MaxAnswer: payments.MaxAnswer,
	})
	if answer.Status == http.StatusConflict {
		// It means "I have that" to some and "this contradicts what I have" to others, so the gateway is asked.
		known, ok, asked := g.Reconcile(ctx, key)
		if asked != nil || ok {
			return known, asked
		}
	}
	return answer.Body, err
}

// Request implements payments.Gateway.
func (g gateway) Request(key string, order []byte) handler.Call {
	return handler.Call{Target: g.name, Method: http.MethodPost, Path: g.path, ID: key, Body: order}
}

// Reconcile asks for the order of a key. 404 alone says that there is none.
func (g gateway) Reconcile(ctx context.Context, key string) (body []byte, known bool, err error) {
	answer, err := g.target.Call(ctx, delivery.Request{
		Method: http.MethodGet, Path: g.path + "/" + key, ID: key, MaxAnswer: payments.MaxAnswer,
		Unknown: []int{http.StatusNotFound},
	})
	switch {
	case answer.Status == http.StatusNotFound:
		return nil, false, nil
	case err != nil && retry.Decide(err).Class.Terminal():
		// The question was refused, not the order: what became of that is not known.
		return nil, false, retry.Transient("callee_unclear_"+strconv.Itoa(answer.Status), nil)
	case err != nil:
		return nil, false, err
	}
	return answer.Body, true, nil
}
