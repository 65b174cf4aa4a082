package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCatalogCheckReportsWhatTheWorkerWouldRefuse(t *testing.T) {
	t.Parallel()
	check := func(dir string) (string, error) {
		var printed strings.Builder
		err := run(t.Context(), []string{"catalog", "check"}, func(name string) string { return map[string]string{"CATALOG_DIR": dir}[name] }, &printed)
		return printed.String(), err
	}
	printed, err := check("")
	require.NoError(t, err)
	require.Contains(t, printed, "The catalog is sound: ")
	// The loader takes it, and no program has its handlers.
	printed, err = check(filepath.Join("..", "..", "catalog", "testdata", "small"))
	require.ErrorContains(t, err, `queue bookings: event type seat.taken: no handler is registered as "seats.take"`)
	require.ErrorContains(t, err, `queue bookings: event type seat.freed: no handler is registered as "seats.free"`)
	require.Empty(t, printed)
	_, err = check(filepath.Join("..", "..", "catalog", "testdata", "crooked"))
	require.ErrorContains(t, err, "queue ordered: event type hall.*.closed: post:post-office/cards and the queue disagree on whether attempts are gathered into batches")
	require.NotContains(t, err.Error(), `registered as "post:`, "a post needs no handler of Go")
}
