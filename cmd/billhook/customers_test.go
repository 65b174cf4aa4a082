package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/platform/standin"
)

// serveCustomers serves a worker's ops API. In its store the guest c1 has 300 points of two
// orders.
func serveCustomers(t *testing.T) string {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	at := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	now := func() time.Time { return at }
	for order, points := range map[string]int64{"o1": 100, "o2": 200} {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: order, EventID: "e", From: ledger.IssuedPoints(order), To: ledger.CustomerPoints("c1"), Amount: points, Currency: ledger.Points, CreatedAt: at,
		})
		require.NoError(t, err)
		_, err = db.Commit(t.Context(), writes)
		require.NoError(t, err)
	}
	router := chi.NewRouter()
	(&ops.API{
		Reads: ops.Reads{Store: db, Now: now, Catalog: &catalog.Catalog{}}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}},
		Customers: &customers.Operator{Store: db, Now: now, NewID: uuid.NewString},
	}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	return server.URL
}

var asAda = map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada"}

func TestCustomersAreShownLinkedAndUnlinked(t *testing.T) {
	t.Parallel()
	server := serveCustomers(t)
	for _, step := range []struct {
		args string
		want string
	}{
		{"show c1", `
Customer c1 is linked to nobody.
300 points of guests' orders are on points:customer:c1; linking moves them.
`},
		{"link c1 u1 --dry-run", `
Customer c1 is linked to nobody.
300 points of guests' orders are on points:customer:c1; linking moves them.
300 points would move from points:customer:c1 to u1.
`},
		{"link c1 u1 --why ticket-7 --yes", `
300 points would move from points:customer:c1 to u1.
moved: 300 points of 2 orders
Customer c1 is linked to u1.
`},
		{"link c1 u2 --why typo --yes", `
Customer c1 is linked to u1, by hand, since 2026-03-02T10:15:00Z.
300 points of 2 guests' orders were moved to it.
It would be linked to u2 from now on. What was credited to u1 stays there.
0 points would move from points:customer:c1 to u2.
moved: 0 points of 0 orders
Customer c1 is linked to u2.
`},
		{"unlink c1 --dry-run", `
Customer c1 is linked to u2, by hand, since 2026-03-02T10:15:00Z.
It would be linked to nobody. What was credited to u2 stays there.
`},
		{"unlink c1 --why two-people --yes", `
Customer c1 is linked to nobody.
`},
		{"show c1", `
Customer c1 is linked to nobody.
CHANGED               HOW     FROM  TO  WHO        WHY
`},
	} {
		out, err := say(t, asAda, append(append([]string{"customers"}, strings.Fields(step.args)...), "--server", server)...)
		require.NoError(t, err, step.args)
		require.Contains(t, "\n"+out, step.want, step.args)
	}
	out, err := say(t, asAda, "customers", "show", "c1", "--json", "--server", server)
	require.NoError(t, err)
	var shown customer
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Len(t, shown.Changes, 3)
	for _, change := range shown.Changes {
		require.Equal(t, "token:ada", change.Who)
	}
}

func TestAPersonIsAskedBeforeACustomerIsLinked(t *testing.T) {
	t.Parallel()
	server := serveCustomers(t)
	answer := func(typed string, args ...string) error {
		p := &program{env: environment{OpsToken: opsToken}, getenv: func(string) string { return "" }, stdout: io.Discard}
		root := &cobra.Command{Use: "billhook", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(p.customersCommand())
		root.SetIn(strings.NewReader(typed))
		root.SetArgs(append(args, "--server", server))
		return root.ExecuteContext(t.Context())
	}
	for _, typed := range []string{"", "yes\n", "u2\n"} {
		require.ErrorContains(t, answer(typed, "customers", "link", "c1", "u1", "--why", "w"), "nothing was changed")
	}
	_, err := say(t, asAda, "customers", "unlink", "c1", "--why", "w", "--yes", "--server", server)
	require.ErrorContains(t, err, "linked to nobody")
	require.NoError(t, answer("u1\n", "customers", "link", "c1", "u1", "--why", "w"))
	require.ErrorContains(t, answer("u1\n", "customers", "unlink", "c1", "--why", "w"), "nothing was changed")
	require.NoError(t, answer("c1\n", "customers", "unlink", "c1", "--why", "w"))

	for name, args := range map[string][]string{
		"--why":                           {"customers", "link", "c1", "u1", "--yes"},
		"--yes":                           {"customers", "link", "c1", "u1", "--why", "w", "--json"},
		"this is no uid":                  {"customers", "link", "c1", "a@example.org", "--why", "w", "--yes"},
		"the id of a customer or tenant":  {"customers", "show", "a b"},
		"takes <customer> <uid>; 1 given": {"customers", "link", "c1", "--why", "w"},
	} {
		_, err := say(t, asAda, append(args, "--server", server)...)
		require.ErrorContains(t, err, name)
	}
}
