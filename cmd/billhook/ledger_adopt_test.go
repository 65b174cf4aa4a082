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
	"github.com/stretchr/testify/require"

	"billhook/internal/ledger"
	"billhook/internal/ledger/ledgertest"
	"billhook/internal/ops"
	"billhook/internal/standin"
	"billhook/internal/store"
)

func TestEntriesAreAdoptedFromATerminal(t *testing.T) {
	t.Parallel()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	router := chi.NewRouter()
	(&ops.API{Reads: ops.Reads{Store: db, Now: time.Now}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}}}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	say := func(arguments ...string) (string, error) {
		var out strings.Builder
		root, err := commands(func(name string) string { return map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada"}[name] }, &out)
		require.NoError(t, err)
		root.SetArgs(append([]string{"ledger", "adopt", "--server", server.URL}, arguments...))
		err = root.ExecuteContext(t.Context())
		return out.String(), err
	}
	former := func(order string) store.Write {
		writes, err := ledger.Credit(ledger.Move{
			Order: order, EventID: "e1", From: ledger.IssuedPoints(order), To: ledger.CustomerPoints("c1"), Amount: 100, Currency: ledger.Points,
			CreatedAt: time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC),
		})
		require.NoError(t, err)
		return ledgertest.Former(writes[0])
	}
	_, err = db.Commit(t.Context(), []store.Write{former("o1"), former("o2")})
	require.NoError(t, err)

	out, err := say()
	require.NoError(t, err)
	require.Equal(t, "looked at 2 entries, adopted 2\n", out)
	out, err = say("--json")
	require.NoError(t, err)
	var all ledger.Adopted
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Equal(t, ledger.Adopted{Looked: 2, Broken: []string{}}, all)

	broken := former("o3")
	broken.Fields["amount"] = int64(0)
	_, err = db.Commit(t.Context(), []store.Write{broken})
	require.NoError(t, err)
	out, err = say()
	require.ErrorContains(t, err, broken.Key.ID)
	require.Equal(t, "looked at 3 entries, adopted 0\n", out)
}
