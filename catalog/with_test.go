package catalog_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

func TestFilesReplaceThoseOfACatalog(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	narrowed := mustOnly(t, shipped, "paynow-events", "pay-subscription-update")
	other, err := narrowed.With(map[string]string{"products.yaml": "products: {hat: {points: 7}}\n"})
	require.NoError(t, err)
	require.Equal(t, map[string]catalog.Product{"hat": {Points: 7}}, other.Products)
	require.Len(t, shipped.Products, 2, "the catalog itself stays as it is")
	for _, q := range other.Queues {
		was, ok := narrowed.Queue(q.ID)
		require.True(t, ok)
		require.Equal(t, was.Enabled, q.Enabled, q.ID)
	}
	again, err := other.With(nil)
	require.NoError(t, err)
	require.Equal(t, other.Products, again.Products, "files that were replaced before stay replaced")
}

// A folder may lack files that another catalog brings.
func TestAFolderWithoutMessagesTakesThoseThatAreGiven(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"queues.yaml", "topics.yaml", "targets.yaml", "notifications.yaml", "products.yaml", "sources.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text(t, ".", name)), 0o600))
	}
	_, err := from(t, folder).With(map[string]string{"messages.yaml": "message.v1: {}\n"})
	require.ErrorContains(t, err, ": queue sub-plan-change: handlers.upgrade: is declared by no envelope.v1 contract")
}

func TestFilesThatMakeNoCatalogAreRefused(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	for name, test := range map[string]struct {
		of    *catalog.Catalog
		files map[string]string
		want  string
	}{
		"a file of another name":      {shipped, map[string]string{"../queues.yaml": "", "prices.yaml": ""}, "prices.yaml: no file of a catalog has this name"},
		"a mistake":                   {shipped, map[string]string{"products.yaml": "products: {hat: {points: 0}}\n"}, "products.yaml:1: product hat: points: must be 1 to 1000000000"},
		"a catalog of no files":       {&catalog.Catalog{}, map[string]string{"products.yaml": ""}, "made of no files"},
		"a queue that is gone by now": {mustOnly(t, shipped, "paynow-events", "pay-subscription-update"), map[string]string{"topics.yaml": "topics: []\n"}, ": queue orders-process: topic: no shared topic has the id orders"},
	} {
		_, err := test.of.With(test.files)
		require.ErrorContains(t, err, test.want, name)
	}
}

func mustOnly(t *testing.T, c *catalog.Catalog, names ...string) *catalog.Catalog {
	t.Helper()
	only, err := c.Only(names)
	require.NoError(t, err)
	return only
}
