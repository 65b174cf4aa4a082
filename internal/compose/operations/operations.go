// Package operations collects what people can do in all apps: a line for each app. It refuses to declare an
// operation of its own.
package operations

import (
	"cmp"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/console"
	"billhook/internal/console/ops"
	"billhook/internal/platform/store"
)

// Apps are what the operations work on. Of the zero Apps they can be listed and not called: so a command line
// knows them.
type Apps struct {
	Store     store.Store
	Reads     ops.Reads
	Customers *customers.Operator
	Products  *products.Keeper
	Stock     *orders.Keeper
	Endpoints *endpoints.Keeper
}

// All are the operations of all apps.
func All(of Apps) *console.Catalog {
	return console.NewCatalog(
		cmp.Or(of.Customers, &customers.Operator{}).Operations(),
		of.Reads.CustomerOperations(),
		of.Reads.SearchOperations(),
		cmp.Or(of.Endpoints, &endpoints.Keeper{}).Operations(),
		of.Reads.EventOperations(),
		orders.Operations(of.Store),
		payments.Operations(of.Store),
		cmp.Or(of.Products, &products.Keeper{}).Operations(),
		cmp.Or(of.Stock, &orders.Keeper{}).Operations(),
		of.Reads.OutboxOperations(),
		of.Reads.QueueOperations(),
	)
}
