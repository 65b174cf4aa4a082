// Package operations collects the operations of all apps, a line for each. It declares none itself.
package operations

import (
	"cmp"
	"log/slog"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/compose/system"
	"billhook/internal/console"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/pauses"
	"billhook/internal/inspect/queues"
	"billhook/internal/inspect/search"
	"billhook/internal/platform/store"
)

// Apps are what the operations work on. The operations of the zero Apps can be listed, as the command line
// does, but not called.
type Apps struct {
	Store       store.Store
	Reads       events.Reads
	Deployment  *system.Deployment
	Example     func(format, eventType string) ([]byte, error)
	Log         *slog.Logger
	Customers   *customers.Operator
	Pauses      *pauses.Operator
	Products    *products.Editor
	Stock       *orders.StockEditor
	Endpoints   *endpoints.Editor
	Periods     *journal.Periods
	Reverter    *journal.Reverter
	DeadLetters *bulk.Operator
}

func (of Apps) runs(handler string) bool {
	if of.Reads.Catalog == nil { // they are listed
		return true
	}
	_, runs := of.Reads.Catalog.HandledBy(handler)
	return runs
}

// All returns the operations of all apps.
func All(of Apps) *console.Catalog {
	origins := journal.Origins{Catalog: of.Reads.Catalog, Store: of.Store}
	return console.NewCatalog(
		cmp.Or(of.Customers, &customers.Operator{}).Operations(),
		search.Reads{Reads: of.Reads}.Operations(),
		cmp.Or(of.DeadLetters, &bulk.Operator{}).Operations(),
		deadletters.Reads{Reads: of.Reads, Operator: of.DeadLetters}.Operations(),
		subscriptions.Operations(of.Store),
		usage.Operations(of.Store, of.Reads.Now),
		cmp.Or(of.Endpoints, &endpoints.Editor{}).Operations(),
		of.Reads.Operations(),
		ledger.Operations(of.Store),
		journal.Operations(of.Store, of.Reads.Catalog, of.Periods, of.Reverter),
		orders.Operations(of.Store),
		payments.Operations(of.Store, !of.runs(payments.RefundHandler)),
		cmp.Or(of.Products, &products.Editor{}).Operations(),
		seal.Operations(seal.Verifier{From: of.Store, Origins: origins}, of.Log),
		cmp.Or(of.Stock, &orders.StockEditor{}).Operations(),
		system.Reads{Reads: of.Reads, Deployment: of.Deployment, Example: of.Example}.Operations(),
		queues.Reads{Reads: of.Reads}.Operations(),
		cmp.Or(of.Pauses, &pauses.Operator{}).Operations(of.Reads.Named),
	)
}

// Scripts returns the operations of the event queue that Billhook replaces.
func Scripts(of Apps) []console.Operation {
	reads := queues.Reads{Reads: of.Reads}
	return queues.EventQueue{Reads: reads, Operator: of.DeadLetters, Log: of.Log}.Operations()
}
