package worker

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/serve"
)

// recorder counts what this worker does. It adds nothing to the store until Start.
func (c Config) recorder() *rates.Recorder {
	return rates.NewRecorder(rates.Config{
		Store: c.Store, Now: c.Now, Log: c.Log, AfterFunc: alarm.AfterFunc,
		Self:     rates.Service{Instance: c.Instance, Service: "worker", Pool: c.Pool, Version: serve.BuildOf().Version, Catalog: c.Catalog.Hash(), StartedAt: c.Now()},
		Breakers: c.Targets.Breakers,
	})
}

// Start says in the log which queues the worker serves, and by which handlers, and has it add what
// it counts to the store every few seconds, until Close.
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
