package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/compose/operations"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
)

func TestUsageIsShownAndListedWithAllItsPages(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	c, err := catalog.Load("")
	require.NoError(t, err)
	clock := func() time.Time { return time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC) }
	limits := c.Usage
	limits.Meters = map[string]catalog.Meter{"calls": {Quota: 1000}}
	warnings, ok := c.EmitsTo(usage.Handler)
	require.True(t, ok)
	tracker := usage.Tracker{Store: db, Limits: limits, Warnings: warnings, Now: clock}
	count := func(id, subscription, meter string, quantity int64) {
		body, _, err := c.Contracts.Compose(contract.Of(&contract.Event{Type: "usage_tracking", Version: 1, Data: map[string]any{
			"subscription_id": subscription, "meter": meter, "quantity": quantity,
		}}), contract.Stamp{ID: id, At: clock()})
		require.NoError(t, err)
		effect, err := handler.Typed(tracker.Track)(t.Context(), handler.Event{Tenant: dedupe.DefaultTenant, ID: id, Body: body})
		require.NoError(t, err)
		commit(t, db, effect.Writes...)
	}
	for i := range perPage + 1 {
		count(fmt.Sprintf("u-%03d", i), "s-1", "calls", 8)
	}
	count("u-r", "s-1", "rows", -2)
	reads := ops.Reads{Store: db, Now: clock, Catalog: c}
	server := serveAPI(t, &ops.API{Reads: reads, Operations: operations.All(operations.Apps{Store: db, Reads: reads})})
	play(t, asAda, server, []step{
		{line: "usage show s-1", want: "calls: 808 used of 1000, 80 %, in 101 entries, the last counted 2026-03-02T10:15:00Z; warned at 80 %…\nrows: -2 used, in 1 entries"},
		{line: "usage show s-1 --period 2026-02", want: "Nothing was used in period 2026-02."},
		{line: "usage ls --limit 1", want: "There are more; raise --limit."},
		{line: "usage ls --month 2026-03 -o csv", want: "\ndefault,s-1,2026-03,calls,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z,808,101,,1000,80,"},
		{line: "usage entries s-1 --meter rows -o csv", want: "\ndefault,s-1,2026-03,rows,u-r,-2,2026-03-02T10:15:00Z,2026-03-02T10:15:00Z"},
		{line: "usage entries s-2", want: "No event has told of a use in this period."},
		{line: "usage show s-1 --period 2026/03", fails: "period_invalid"},
	})
	out, err := say(t, asAda, "usage", "entries", "s-1", "--limit", "0", "-o", "csv", "--server", server)
	require.NoError(t, err)
	require.Equal(t, 1+perPage+1+1, strings.Count(out, "\n"), "all pages of all meters")
}

// TestSearchNamesTheCommandThatShowsWhatItFinds: the user auth0|u7 has a customer, points of two days and a subscription.
func TestSearchNamesTheCommandThatShowsWhatItFinds(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	at, paid := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC), int64(999)
	commit(t, db,
		store.Create(customers.Key("default", "c-7"), map[string]any{"tenant": "default", "customer_id": "c-7", "uid": "auth0|u7"}),
		subscriptions.Event{
			Tenant: "default", Subscription: "sub-1", EventID: "e1", EventType: "subscription.renewed", Status: "active", UID: "auth0|u7",
			Product: "p1", Customer: "c-7", Amount: &paid, Currency: "USD", OccurredAt: "2026-03-01T00:00:00Z",
		}.Write(),
	)
	for order, day := range map[string]int{"o1": 0, "o2": 1} {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: order, EventID: "e", From: ledger.IssuedPoints(order), To: ledger.UserPoints("auth0|u7"),
			Amount: 100, Currency: ledger.Points, CreatedAt: at.AddDate(0, 0, day),
		})
		require.NoError(t, err)
		commit(t, db, writes...)
	}
	reads := ops.Reads{Store: db, Now: func() time.Time { return at }, Catalog: &catalog.Catalog{}}
	server := serveAPI(t, &ops.API{Reads: reads, Operations: operations.All(operations.Apps{Store: db, Reads: reads})})
	const account = "accounts show 'points:user:auth0|u7'"
	play(t, asAda, server, []step{
		{line: `search " 'auth0|u7' " --wide`, want: "customers show c-7…Looked through each queue"},
		{line: "search nobody", want: "Nothing has this id: nobody"},
		{line: account, want: "BALANCE 200 points"},
		{line: account + " --as-of 2026-03-02", want: "\nBALANCE 100 points\nBEFORE 2026-03-03T00:00:00Z"},
		{line: account + " --limit 1", want: "There are more entries"},
		{line: "subscriptions show sub-1 --wide", want: "e1 subscription.renewed active 2026-03-01T00:00:00Z - - 9.99 USD"},
		{line: "subscriptions show sub-2", fails: "subscription_unknown"},
	})
	for id, want := range map[string]string{"e-1.a:b": "e-1.a:b", "a|b": "'a|b'", "a'; rm": `'a'\''; rm'`, "x~y": "'x~y'", "": ""} {
		require.Equal(t, want, quoted(id), "a shell takes an id as one word")
	}
}
