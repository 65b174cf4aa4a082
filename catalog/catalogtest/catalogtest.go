// Package catalogtest has the catalog that is built in, for tests.
package catalogtest

import "billhook/catalog"

// Shipped is the built-in catalog. It panics where that is wrong: the tests of the catalog say why.
func Shipped() *catalog.Catalog {
	c, err := catalog.Load("")
	if err != nil {
		panic(err)
	}
	return c
}

// Contracts is a catalog with the built-in contracts, and without queues.
func Contracts() *catalog.Catalog { return &catalog.Catalog{Contracts: Shipped().Contracts} }
