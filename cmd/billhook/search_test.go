package main

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/console/ops"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// serveIDs serves the ops API of a store in which auth0|u7 has a customer, points of two days, and a
// subscription.
func serveIDs(t *testing.T) (server string) {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	at, paid := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC), int64(999)
	writes := []store.Write{
		store.Create(customers.Key("default", "c-7"), map[string]any{"tenant": "default", "customer_id": "c-7", "uid": "auth0|u7"}),
		subscriptions.Event{Tenant: "default", Subscription: "sub-1", EventID: "e1", EventType: "subscription.renewed", Status: "active", UID: "auth0|u7", Product: "p1", Customer: "c-7", Amount: &paid, Currency: "USD", OccurredAt: "2026-03-01T00:00:00Z"}.Write(),
	}
	_, err = db.Commit(t.Context(), writes)
	require.NoError(t, err)
	for order, day := range map[string]int{"o1": 0, "o2": 1} {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: order, EventID: "e", From: ledger.IssuedPoints(order), To: ledger.UserPoints("auth0|u7"), Amount: 100, Currency: ledger.Points, CreatedAt: at.AddDate(0, 0, day),
		})
		require.NoError(t, err)
		_, err = db.Commit(t.Context(), writes)
		require.NoError(t, err)
	}
	router := chi.NewRouter()
	(&ops.API{
		Reads: ops.Reads{Store: db, Now: func() time.Time { return at }, Catalog: &catalog.Catalog{}}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}},
	}).Routes(router)
	worker := httptest.NewServer(router)
	t.Cleanup(worker.Close)
	return worker.URL
}

func TestASearchNamesWhatItFindsAndTheCommandThatShowsIt(t *testing.T) {
	t.Parallel()
	server := serveIDs(t)
	out, err := say(t, asAda, "search", " 'auth0|u7' ", "--wide", "--server", server)
	require.NoError(t, err)
	require.Regexp(t, `customer +c-7 +linked to auth0\|u7 .* customers show c-7`, out)
	require.Regexp(t, `account +points:user:auth0\|u7 +200 points .* ledger account 'points:user:auth0\|u7'`, out)
	require.Regexp(t, `subscription +sub-1 .* subscriptions show sub-1`, out)
	require.Regexp(t, `refund +payment; subscription`, out, "it says what it has looked through")

	out, err = say(t, asAda, "search", "nobody", "--server", server)
	require.NoError(t, err)
	require.Contains(t, out, "Nothing has this id: nobody\n")
	_, err = say(t, asAda, "search", "two ids", "--server", server)
	require.Equal(t, misused, exitOf(err))
	out, err = say(t, asAda, "search", "c-7", "--json", "--server", server)
	require.NoError(t, err)
	var found ops.Search
	require.NoError(t, json.Unmarshal([]byte(out), &found))
	require.Len(t, found.Items, 2)
}

func TestAnAccountIsPrintedAsOfADay(t *testing.T) {
	t.Parallel()
	server := serveIDs(t)
	out, err := say(t, asAda, "ledger", "account", "points:user:auth0|u7", "--server", server)
	require.NoError(t, err)
	require.Contains(t, out, "points:user:auth0|u7 has 200 points, now\n")
	require.Regexp(t, `(?s)credit +o2 +100 +200 .*credit +o1 +100 +100 `, out)
	out, err = say(t, asAda, "ledger", "account", "points:user:auth0|u7", "--as-of", "2026-03-02", "--server", server)
	require.NoError(t, err)
	require.Contains(t, out, "has 100 points, before 2026-03-03T00:00:00Z\n")
	require.NotContains(t, out, "o2")
	out, err = say(t, asAda, "ledger", "account", "points:user:auth0|u7", "--limit", "1", "--server", server)
	require.NoError(t, err)
	require.Contains(t, out, "There are more")
}

func TestASubscriptionIsPrintedWithItsEvents(t *testing.T) {
	t.Parallel()
	server := serveIDs(t)
	out, err := say(t, asAda, "subscriptions", "show", "sub-1", "--wide", "--server", server)
	require.NoError(t, err)
	require.Contains(t, out, "active")
	require.Regexp(t, `2026-03-01T00:00:00Z +subscription.renewed +active +9.99 USD .* e1`, out)
	_, err = say(t, asAda, "subscriptions", "show", "sub-2", "--server", server)
	require.ErrorContains(t, err, "subscription_unknown")
}

func TestAShellTakesAnIDAsOneWord(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"e-1.a:b": "e-1.a:b", "a|b": "'a|b'", "a'; rm": `'a'\''; rm'`, "x~y": "'x~y'", "": ""} {
		require.Equal(t, want, quoted(id))
	}
}
