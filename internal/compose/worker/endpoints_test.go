package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/worker"
)

func TestACatalogThatDeliversToEndpointsSaysHow(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	require.NoError(t, worker.Check(c, ""))
	c.Endpoints = catalog.Endpoints{}
	require.ErrorContains(t, worker.Check(c, ""), "targets.yaml: endpoints: is missing, and a queue delivers to them")
	for i := range c.Queues {
		if _, delivers := c.Queues[i].Handlers["webhook_delivery"]; delivers {
			c.Queues[i].Enabled = false
		}
	}
	require.NoError(t, worker.Check(c, ""), "where none does, nothing is needed")
}
