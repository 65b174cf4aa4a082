package main

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/platform/standin"
)

// serveProducts serves a worker's ops API with one product of the catalog.
func serveProducts(t *testing.T) (say func(input string, args ...string) (string, error)) {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	at := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	clock := func() time.Time {
		at = at.Add(time.Minute)
		return at
	}
	start := map[string]catalog.Product{"hat": {Points: 250}}
	router := chi.NewRouter()
	(&ops.API{
		Reads: ops.Reads{Store: db, Now: clock, Catalog: &catalog.Catalog{Products: start}}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}},
		Products: &products.Keeper{Store: db, Start: start, Now: clock, NewID: uuid.NewString},
	}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	environment := map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada"}
	return func(input string, args ...string) (string, error) {
		var out strings.Builder
		root, err := commands(func(name string) string { return environment[name] }, &out)
		require.NoError(t, err)
		root.SetIn(strings.NewReader(input))
		root.SetArgs(append(args, "--server", server.URL))
		err = root.ExecuteContext(t.Context())
		return out.String(), err
	}
}

func TestProductsAreChangedFromATerminal(t *testing.T) {
	t.Parallel()
	say := serveProducts(t)
	for _, step := range []struct {
		input, arguments string
		want, fails      string
	}{
		{arguments: "products ls", want: "PRODUCT  POINTS  STATE   SINCE  FROM\nhat      250     active  -      catalog\n"},
		{arguments: "products set new --points 500 --why sold", want: "new is worth 500 points since 2026-03-02T10:16:00Z.\n"},
		{arguments: "products set new --points 500 --why again", want: "new is worth 500 points since 2026-03-02T10:16:00Z.\n"},
		{arguments: "products set hat --points 300 --why dearer", want: "hat is worth 250 points now, from the catalog.", fails: "nothing was changed"},
		{input: "yes\n", arguments: "products set hat --points 300 --why dearer", want: "Type 300 to change it:", fails: "nothing was changed"},
		{input: "300\n", arguments: "products set hat --points 300 --why dearer", want: "hat is worth 300 points since 2026-03-02T10:18:00Z.\n"},
		{arguments: "products set hat --points 301 --why dearer --yes", want: "hat is worth 301 points since 2026-03-02T10:19:00Z.\n"},
		{input: "300\n", arguments: "products retire hat --why gone", want: "hat is worth 301 points, from the store.", fails: "nothing was changed"},
		{input: "hat\n", arguments: "products retire hat --why gone", want: "hat is retired since 2026-03-02T10:20:00Z"},
		{arguments: "products retire hat --why again", want: "hat is retired since 2026-03-02T10:20:00Z"},
		{arguments: "products set hat --points 5 --why back", want: "hat is worth 5 points since 2026-03-02T10:22:00Z.\n"},
		{arguments: "products retire odd --why gone", fails: "product_unknown"},
		{arguments: "products set new --points 0 --why free", want: "new is worth 500 points now", fails: "nothing was changed"},
		{arguments: "products set other --points 0 --why free", fails: "refused"},
		{arguments: "products set other --points 5", fails: "--why"},
		{arguments: "products retire hat", fails: "--why"},
		{arguments: "products set hat --points 6 --why w --json", fails: "--yes"},
		{arguments: "products ls", want: "PRODUCT  POINTS  STATE   SINCE                 FROM\nhat      5       active  2026-03-02T10:22:00Z  store\nnew      500     active  2026-03-02T10:16:00Z  store\n"},
	} {
		out, err := say(step.input, strings.Fields(step.arguments)...)
		if step.fails == "" {
			require.NoError(t, err, step.arguments)
		} else {
			require.ErrorContains(t, err, step.fails, step.arguments)
		}
		require.Contains(t, out, step.want, step.arguments)
	}
	out, err := say("", "products", "history", "hat")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 5)
	for i, want := range []string{"set retired 5 local", "retire 301 retired", "set 300 301", "set 250 300"} {
		require.Contains(t, strings.Join(strings.Fields(lines[i+1]), " "), strings.TrimSuffix(want, " local"))
		require.Contains(t, lines[i+1], "token:ada")
	}
	for _, args := range [][]string{{"ls"}, {"history", "hat"}, {"set", "new", "--points", "7", "--why", "w", "--yes"}, {"retire", "new", "--why", "w", "--yes"}} {
		out, err := say("", append([]string{"products", "--json"}, args...)...)
		require.NoError(t, err)
		require.True(t, json.Valid([]byte(out)), "one document: %s", out)
	}
}
