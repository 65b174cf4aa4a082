package worker

import (
	"context"
	"log/slog"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/apps/usage"
	"billhook/internal/console/api"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// readable has, by collection, the check that a document of a list can be read. The books check their own.
var readable = map[string]func(store.Document) error{
	audit.Collection: func(doc store.Document) error {
		if audit.IsEntry(doc.Key.ID) {
			return reads(audit.EntryOf)(doc)
		}
		return reads(bulk.OperationOf)(doc)
	},
	deadletter.Collection:      reads(deadletter.ItemOf),
	dedupe.Collection:          reads(dedupe.FromDocument),
	lane.Outbox.Entries():      reads(lane.KeptOf),
	lane.Delayed.Entries():     reads(lane.KeptOf),
	orders.Collection:          reads(orders.Read),
	orders.StockCollection:     reads(orders.ReadStock),
	pause.Collection:           reads(pause.Read),
	products.Collection:        reads(products.Read),
	payments.RefundsCollection: reads(payments.ReadRefund),
	endpoints.Collection:       reads(endpoints.Read),
	usage.Collection:           decodes[usage.Total],
	usage.EntriesCollection:    decodes[usage.Entry],
	journal.PeriodsCollection: func(doc store.Document) error {
		_, err := journal.ReadPeriod(doc, time.Time{})
		return err
	},
}

func reads[T any](read func(store.Document) (T, error)) func(store.Document) error {
	return func(doc store.Document) error {
		_, err := read(doc)
		return err
	}
}

func decodes[T any](doc store.Document) error { return store.Decode(doc.Fields, new(T)) }

// lists returns the store for lists: it leaves out, logs, counts and reports documents that cannot be read.
func (c Config) lists(from store.Store) store.Store {
	return store.Readable{Store: from, Check: readable, Skipped: func(ctx context.Context, key store.Key) {
		c.Log.LogAttrs(ctx, slog.LevelWarn, "document left out of a list",
			slog.String("collection", key.Collection), slog.String("id", key.ID))
		c.Metrics.Unreadable(key.Collection)
		api.Skip(ctx, key)
	}}
}

// unreadable keeps a lane's document that cannot be read as a dead letter of the queue that it fits best.
func (c Config) unreadable(doc store.Document, of string, now time.Time) []store.Write {
	c.Log.LogAttrs(context.Background(), slog.LevelError,
		"message of a lane is not readable, kept as a dead letter",
		slog.String("collection", doc.Key.Collection), slog.String("id", doc.Key.ID))
	c.Metrics.Unreadable(doc.Key.Collection)
	source, _ := doc.Fields["queue"].(string)
	topic, _ := doc.Fields["topic"].(string)
	for _, fits := range []func(q catalog.Queue) bool{
		func(q catalog.Queue) bool { return q.ID == source },
		func(q catalog.Queue) bool { return q.ID == of },
		func(q catalog.Queue) bool { return q.Topic() == topic },
		func(catalog.Queue) bool { return true },
	} {
		for _, q := range c.Catalog.Queues {
			if !q.DeadLetter.Drop && fits(q) {
				return deadletter.Unreadable(q, doc, now)
			}
		}
	}
	return nil // no queue keeps dead letters
}
