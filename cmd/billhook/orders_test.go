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

	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/console/ops"
	"billhook/internal/platform/standin"
)

// serveOrders serves a worker's ops API of a shop that has five hats and no caps: o1 reserves three
// hats and waits for its payment, o2 was a hat and a cap, o3 is a hat and paid.
func serveOrders(t *testing.T) (say func(input string, args ...string) (string, error)) {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	shop, err := orderstest.Open(db)
	require.NoError(t, err)
	keeper := *shop.Keeper
	keeper.Now = func() time.Time { // changes stand in the audit by their time
		shop.Wait(time.Second)
		return shop.Now()
	}
	router := chi.NewRouter()
	(&ops.API{
		Reads: ops.Reads{Store: db, Now: shop.Now, Catalog: shop.Catalog}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}},
		Stock: &keeper,
	}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	environment := map[string]string{"OPS_TOKEN": opsToken, "OPS_OPERATOR": "ada"}
	say = func(input string, args ...string) (string, error) {
		var out strings.Builder
		root, err := commands(func(name string) string { return environment[name] }, &out)
		require.NoError(t, err)
		root.SetIn(strings.NewReader(input))
		root.SetArgs(append(args, "--server", server.URL))
		err = root.ExecuteContext(t.Context())
		return out.String(), err
	}
	_, err = say("", "stock", "set", "hat", "--available", "5", "--why", "counted")
	require.NoError(t, err)
	for _, e := range []orderstest.Event{
		orderstest.Created("e1", "o1", "hat 3"), orderstest.Created("e2", "o2", "cap 1", "hat 1"), orderstest.Created("e3", "o3", "hat 1"),
		orderstest.About("e4", "order.payment_confirmed", "o3"),
	} {
		_, err := shop.Deliver(t.Context(), db, e, false)
		require.NoError(t, err)
	}
	return say
}

// squeezed has the lines of a table with one space between its columns.
func squeezed(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestOrdersAreLookedAtFromATerminal(t *testing.T) {
	t.Parallel()
	say := serveOrders(t)
	const head = "ORDER STATE REASON SHORT OF USER CREATED PAYMENT DUE\n"
	for _, step := range []struct{ arguments, want, fails string }{
		{"orders ls", head + "o1 PaymentInitiated - - usr_42 2026-03-02T12:00:01Z 2026-03-02T12:15:01Z", ""},
		{"orders ls --state OrderCancelled", head + "o2 OrderCancelled out_of_stock cap usr_42 2026-03-02T12:00:01Z -", ""},
		{"orders ls --state OrderShipped", head[:len(head)-1], ""},
		{"orders ls --state all --limit 1", "There are more; raise --limit.", ""},
		{"orders ls --state all --limit 0", "OrderConfirmed", ""},
		{"orders ls --state OrderCreated", "", "is none of PaymentInitiated"},
		{"orders ls --state orderconfirmed", "ORDER", ""},
		{"orders ls o1", "", "takes no argument; 1 given"},
		{"orders show o1", "PRODUCT QUANTITY\nhat 3\nAT STATE EVENT\n2026-03-02T12:00:01Z OrderCreated e1\n2026-03-02T12:00:01Z ValidateInventory e1\n" +
			"2026-03-02T12:00:01Z InventoryLocked e1\n2026-03-02T12:00:01Z PaymentInitiated e1", ""},
		{"orders show o1 --tenant default", "ORDER o1\nSTATE PaymentInitiated\n", ""},
		{"orders show o3", "2026-03-02T12:00:01Z OrderConfirmed e4", ""},
		{"orders show o1 --tenant other", "", "order_unknown"},
		{"orders show o1 --tenant a/b", "", "tenant_invalid"},
		{"orders show o9", "", "order_unknown"},
		{"orders show ../o1", "", "order_unknown"},
		{"orders show", "", "takes <order id>; 0 given"},
		{"orders show o1 o2", "", "takes <order id>; 2 given"},
	} {
		out, err := say("", strings.Fields(step.arguments)...)
		if step.fails != "" {
			require.ErrorContains(t, err, step.fails, step.arguments)
			require.Empty(t, out, step.arguments)
			continue
		}
		require.NoError(t, err, step.arguments)
		require.Contains(t, squeezed(out), step.want, step.arguments)
	}
	for arguments, want := range map[string]string{
		"orders ls --json": `"order_id": "o1"`, "orders ls --state OrderShipped --json": `"items": []`, "orders show o2 --json": `"short_of": "cap"`,
	} {
		out, err := say("", strings.Fields(arguments)...)
		require.NoError(t, err, arguments)
		require.True(t, json.Valid([]byte(out)), "one document: %s", out)
		require.Contains(t, out, want, arguments)
	}
}

func TestStockIsSetFromATerminal(t *testing.T) {
	t.Parallel()
	say := serveOrders(t)
	const were = "Of hat 1 pieces are available now, 3 reserved and 1 sold."
	for _, step := range []struct{ input, arguments, want, fails string }{
		{"", "stock ls", "PRODUCT AVAILABLE RESERVED SOLD\nhat 1 3 1", ""},
		{"", "stock show hat", "hat 1 3 1", ""},
		{"", "stock show cap", "", "stock_unknown"},
		{"", "stock show a/b", "", "stock_unknown"},
		{"", "stock history hat", "AT BEFORE AFTER WHO WHY\n2026-03-02T12:00:01Z - 5 token:ada counted", ""},
		{"", "stock history cap", "AT BEFORE AFTER WHO WHY", ""},
		// Fewer than are reserved: those stay reserved.
		{"", "stock set hat --available 2 --why found", were + " From now on 2 would be available.", "nothing was changed"},
		{"yes\n", "stock set hat --available 2 --why found", "Type 2 to change it:", "nothing was changed"},
		{"2\n", "stock set hat --available 2 --why found", "Of hat 2 pieces are available.", ""},
		{"", "stock set hat --available 0 --why lost --yes", "Of hat 0 pieces are available.", ""},
		{"", "stock show hat", "hat 0 3 1", ""},
		{"", "stock set hat --available 0 --why again", "Of hat 0 pieces are available.", ""},
		{"", "stock set hat --available 4 --dry-run", "Of hat 0 pieces are available now, 3 reserved and 1 sold. From now on 4 would be available.", ""},
		{"", "stock set cap --available 4 --dry-run", "Of cap 0 pieces are available now, 0 reserved and 0 sold. From now on 4 would be available.", ""},
		{"", "stock show cap", "", "stock_unknown"},
		{"", "stock set cap --available 4 --why new", "Of cap 4 pieces are available.", ""},
		{"", "stock ls", "cap 4 0 0\nhat 0 3 1", ""},
		{"", "stock set hat --available -1 --why w --yes", "", "refused"},
		{"", "stock set hat --available 1000000001 --why w --yes", "", "refused"},
		{"", "stock set hat --available many --why w --yes", "", "--available"},
		{"", "stock set hat --available 1.5 --why w --yes", "", "--available"},
		{"", "stock set hat --why w --yes", "", "available"},
		{"", "stock set hat --available 5 --yes", "", "--why"},
		{"", "stock set a/b --available 5 --why w --yes", "", "refused"},
		{"", "stock set hat --available 5 --why w --json", "", "--yes"},
		{"", "stock show hat", "hat 0 3 1", ""},
	} {
		out, err := say(step.input, strings.Fields(step.arguments)...)
		if step.fails == "" {
			require.NoError(t, err, step.arguments)
		} else {
			require.ErrorContains(t, err, step.fails, step.arguments)
		}
		require.Contains(t, squeezed(out), step.want, step.arguments)
	}
	for _, why := range []string{" ", "\t\n", "lost\x1b[2J", "lost\nand found", "lost\x00", "lost\u0085", strings.Repeat("w", 1001)} {
		_, err := say("", "stock", "set", "hat", "--available", "7", "--why", why, "--yes")
		require.Error(t, err, "%q", why)
		require.NotContains(t, err.Error(), "lost", "%q", why)
	}
	out, err := say("", "stock", "history", "hat")
	require.NoError(t, err)
	var changes []string
	for _, line := range strings.Split(squeezed(strings.TrimSpace(out)), "\n")[1:] {
		cells := strings.Fields(line) // at, before, after, who, why
		changes = append(changes, strings.Join(cells[1:], " "))
	}
	require.Equal(t, []string{"2 0 token:ada lost", "1 2 token:ada found", "- 5 token:ada counted"}, changes, "the newest first, and none of what was refused")
	for _, arguments := range []string{
		"ls", "show hat", "history hat", "set hat --available 9 --why w --yes", "set hat --available 8 --dry-run", "set cap --available 8 --why w --yes", "set belt --available 8 --dry-run",
	} {
		out, err := say("", append([]string{"stock", "--json"}, strings.Fields(arguments)...)...)
		require.NoError(t, err, arguments)
		require.True(t, json.Valid([]byte(out)), "one document: %s", out)
	}
}
