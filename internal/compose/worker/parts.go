package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/compose/system"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/serve"
)

// recorder counts what this worker does. It adds nothing to the store until Start.
func (c Config) recorder() *rates.Recorder {
	return rates.NewRecorder(rates.Config{
		Store: c.Store, Now: c.Now, Log: c.Log, AfterFunc: alarm.AfterFunc,
		Self: rates.Service{
			Instance: c.Instance, Name: "worker", Pool: c.Pool, Version: serve.BuildOf().Version, Catalog: c.Catalog.Hash(), StartedAt: c.Now(),
		},
		Breakers: c.Targets.Breakers,
	})
}

// Start says in the log which queues the worker serves, and has it add what it counts to the store, until Close.
func (w *Worker) Start() {
	for _, q := range w.served {
		handlers := []string{}
		for eventType, h := range q.Handlers {
			handlers = append(handlers, eventType+" -> "+h.Name)
		}
		slices.Sort(handlers)
		w.log.LogAttrs(context.Background(), slog.LevelInfo, "queue served", slog.String("queue", q.ID), slog.String("pool", q.Pool), slog.Any("handlers", handlers))
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

// trial returns the worker that this one would be with other files of its catalog, for all pools. Its store takes no writes,
// its publisher no messages, and it has the address and the secret of no target.
func (c Config) trial(files map[string]string) (dryrun.Worker, error) {
	if len(files) > 0 {
		replaced, err := c.Catalog.With(files)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", dryrun.ErrCatalog, err)
		}
		c.Catalog = replaced
	}
	c.Pool, c.Store, c.Publisher, c.Targets = "", dryrun.ReadOnly(c.Store), unpublished{}, uncalled(c.Catalog)
	c.Backlogs, c.Alarm, c.AfterFunc, c.Log = nil, byTheMinute{}, nil, c.Log.With("trial", true)
	w, err := New(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dryrun.ErrCatalog, err)
	}
	return w.push, nil
}

type unpublished struct{}

func (unpublished) Publish(context.Context, string, contract.Message) (string, error) {
	return "", errors.New("a trial publishes nothing")
}

var exampleAt = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

// example is a body of a format, for people who look at a contract. eventType may be a pattern.
func (c Config) example(format, eventType string) ([]byte, error) {
	eventType = strings.NewReplacer("*", "sample", "#", "sample").Replace(eventType)
	if format == contract.PayNowV1 {
		eventType = contract.OrderPaid // the format says what a body of any other type has
	}
	return samples.Message(c.Catalog, catalog.Queue{Contract: format}, eventType, "1", exampleAt)
}

// Examiner makes the ops API's doctor of the way to Pub/Sub's subscriptions.
func Examiner(look *pubsub.Switch, c *catalog.Catalog) system.Doctor { return examiner{look, c} }

type examiner struct {
	look    *pubsub.Switch
	catalog *catalog.Catalog
}

func (e examiner) Examine(ctx context.Context, paused map[string]pause.Pause) (system.Examination, error) {
	found, err := e.look.Examine(ctx, e.catalog, paused)
	return system.Examination{Findings: found.Findings, Unread: len(found.Unread), Catalogs: found.Catalogs}, err
}
