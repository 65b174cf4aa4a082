package worker_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/console/ops"
)

func TestEachContractIsShownWithASchemaAndAnExampleThatKeepsIt(t *testing.T) {
	t.Parallel()
	c := config(t, func(*worker.Config) {})
	w, err := worker.New(c)
	require.NoError(t, err)
	var all ops.Declared
	answered(t, w, "/v1/ops/catalog", &all)
	require.NotEmpty(t, all.Hash)
	require.Len(t, all.Queues, len(c.Catalog.Queues))
	require.NotEmpty(t, all.Contracts)
	taken := map[string]bool{}
	for _, q := range all.Queues {
		var declared ops.QueueDeclaration
		answered(t, w, "/v1/ops/catalog/queues/"+q.ID, &declared)
		require.Equal(t, q, declared.DeclaredQueue)
		require.NotEmpty(t, declared.Words)
		require.Equal(t, q.Enabled, len(declared.ProducedBy) > 0, q.ID)
		for _, one := range declared.Takes {
			require.NotEmpty(t, one.Contracts, "%s %s", q.ID, one.Type)
			for _, id := range one.Contracts {
				taken[id] = true
			}
		}
	}
	for _, of := range all.Contracts {
		var declared ops.ContractDeclaration
		answered(t, w, "/v1/ops/catalog/contracts/"+url.PathEscape(of.ID), &declared)
		require.Equal(t, of, declared.DeclaredContract)
		require.Equal(t, taken[of.ID], len(declared.ConsumedBy) > 0, of.ID)
		body, err := c.Catalog.Contracts.Decode(of.Format, declared.Example)
		require.NoError(t, err, "%s: %s", of.ID, declared.Example)
		require.NoError(t, body.Validate(), "%s: %s", of.ID, declared.Example)
		require.Equal(t, of.ID, body.Contract().ID())
	}
}
