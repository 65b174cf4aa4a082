package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

func TestTheBuiltInCatalogIsSound(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	require.Len(t, c.Queues, 15)
	printed, err := c.JSON()
	require.NoError(t, err)
	require.NotEmpty(t, printed)
}
