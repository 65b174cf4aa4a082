// Package catalogtest has the catalog that is built in, for tests.
package catalogtest

import (
	"maps"
	"slices"
	"sync"

	"billhook/catalog"
)

var shipped = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.Load("") })

// Shipped returns the built-in catalog, read once. The test owns its queues and their handlers; all else is
// shared. It panics if the catalog is wrong: the tests of the catalog say why.
func Shipped() *catalog.Catalog {
	read, err := shipped()
	if err != nil {
		panic(err)
	}
	c := *read
	c.Queues = slices.Clone(c.Queues)
	for i := range c.Queues {
		c.Queues[i].Handlers = maps.Clone(c.Queues[i].Handlers)
	}
	return &c
}

// Contracts returns a catalog with the built-in contracts, and without queues.
func Contracts() *catalog.Catalog { return &catalog.Catalog{Contracts: Shipped().Contracts} }
