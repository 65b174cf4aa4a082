package operations_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/search"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// named credits an order by an event of the tenant's customer, with its own ordering key.
func (r *rig) named(
	t *testing.T, tenant, customer, event, order string, to ledger.Account, key string, minute int,
) {
	t.Helper()
	e := record("orders", tenant, event)
	e.OrderingKey, e.Customer, e.CreatedAt = key, contract.CustomerOf(tenant, customer),
		at.Add(time.Duration(minute)*time.Minute)
	e.Entry = r.credit(t, tenant, event, order, to, 100, time.Duration(minute)*time.Minute)
	r.commit(t, own(e))
}

// For the support of a customer whose points are missing.
func TestEverythingOfACustomerIsFoundByTheirID(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.named(t, "default", "c1", "e1", "o1", ledger.UserPoints("u1"), "u1", 1)
	r.named(t, "default", "c1", "e3", "o3", ledger.UserPoints("u2"), "u2", 3)
	r.named(t, "default", "c1", "e2", "o2", ledger.CustomerPoints("c1"), "c1", 2)
	r.named(t, "acme", "c1", "e1", "o1", ledger.UserPoints("u9"), "u9", 1)
	r.named(t, "default", "c2", "e5", "o5", ledger.UserPoints("u1"), "u1", 1)
	failing, nothing := record("orders", "default", "e4"), record("orders", "default", "e0")
	failing.Status, failing.LastError, failing.Customer, failing.CreatedAt = dedupe.Failed, "callee_down",
		contract.CustomerOf("default", "c1"), at.Add(4*time.Minute)
	nothing.Ref, nothing.Customer, nothing.CreatedAt = "no-entry", failing.Customer, at
	r.order(t, "e-shop", "shop-1")
	died := dead("orders", "d6", "unknown_product", 0)
	died.EventID, died.Customer = "e6", failing.Customer
	paid := refund("default", "pay:1", payments.Refunded, 0)
	paid.Fields["subscription_id"] = "s1"
	r.commit(t, own(failing), own(nothing), inStore(died), paid, store.Create(customers.Key("default", "c1"),
		map[string]any{"uid": "u1"}),
		subscriptions.Event{
			Tenant: "default", Subscription: "s1", EventID: "e7", Customer: "c1", UID: "usr_42",
		}.Write())

	found := look[search.Activity](t, r, "customers/c1/activity")
	require.Equal(t, []string{
		"order o3 was credited to u2, while the customer is mapped to u1",
		"event e4, order.paid, has failed with callee_down and is tried again",
		"event e6 is a dead letter of queue orders: unknown_product",
	}, found.Findings)
	require.Equal(t, []string{"e4 u1", "e3 u2", "e2 c1", "e1 u1", "e0 u1"},
		filetest.Map(found.Events, func(of events.Line) string { return of.EventID + " " + of.OrderingKey }),
		"with any ordering key, the newest first")
	require.Len(t, found.Moves, 3)
	require.Equal(t, []search.ActivityBalance{
		{Account: "points:customer:c1", Balance: 100},
		{Account: "points:user:u1", Balance: 200},
		{Account: "points:user:u2", Balance: 100},
	}, found.Balances)
	require.Equal(t, []any{"shop-1", "pay:1", "e6", "s1", int64(100)},
		[]any{
			found.Orders[0].ID, found.Refunds[0].PaymentID, found.DeadLetters[0].EventID, found.Subscriptions[0],
			found.GuestPoints,
		})
	require.Empty(t, found.More)
	r.get(t, "customers/c1/activity?tenant=acme", &found)
	require.Equal(t, []string{"order o1 was credited to u9, while the customer is mapped to nobody"},
		found.Findings)

	for i := range 60 {
		r.named(t, "default", "c3", fmt.Sprint("m", i), fmt.Sprint("m", i),
			ledger.UserPoints(fmt.Sprint("m", i)), "k", i)
	}
	db := &storetest.Counter{Store: r.store}
	r.over(db)
	r.get(t, "customers/c3/activity", &found)
	require.Equal(t, []string{"events", "balances", "orders"}, found.More)
	require.Len(t, found.Events, 50)
	require.LessOrEqual(t, db.Gets.Load()+db.Queries.Load(), int64(2+3*dedupe.Shards+50+1+1+50+10))
}

func TestEntryIsShownByItsEventOrItsIDAndProvenToItsTenant(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.enter(t, sale("default", "e1", "2026-03", 100), sale("acme", "e2", "2026-03", 1))
	for i := range 3 {
		r.seal(t)
		r.enter(t, sale("default", fmt.Sprint("more-", i), "2026-03", 1))
	}
	whole := ledger.EntryID("default", "e1")
	for _, path := range []string{"e1", whole, whole[:12], "e1?tenant=default"} {
		shown := look[journal.Entry](t, r, "journal/entries/"+path)
		require.Equal(t, []any{"e1", int64(1), false}, []any{shown.EventID, shown.Seal, shown.Changed})
		require.Len(t, shown.Hash, 64)
	}
	seals := look[console.List[seal.Seal]](t, r, "journal/seals")
	require.Len(t, seals.Items, 3)
	for i, s := range seals.Items {
		require.NoError(t, s.Check(), "the hash of a seal that was read as JSON is right")
		require.EqualValues(t, 3-i, s.Number, "the newest first")
	}
	r.refuses(t, http.MethodGet, "/v1/ops/journal/entries/e2/proof", "", http.StatusNotFound, "entry_unknown")
	proof := look[seal.Proof](t, r, "journal/entries/"+whole[:12]+"/proof")
	require.Equal(t, whole, proof.Entry)
	r.store.FailReads(1)
	r.refuses(t, http.MethodGet, "/v1/ops/journal/entries/e1/proof", "", http.StatusServiceUnavailable,
		"store_unavailable")
	r.get(t, "journal/entries/e2/proof?tenant=acme", &proof)
	kept, _ := filetest.Both(seal.List(t.Context(), r.store, "acme", store.Cursor{}, 1))(t)
	require.Equal(t, "acme", filetest.Must(seal.CheckProof([]byte(proof.Proof), kept))(t).Tenant)
	require.Contains(t, r.get(t, "journal/tenants", nil), `"items":["acme","default"]`)
}

// The page of a changed entry says so, as do its lines in lists. None of these is a server error.
func TestChangedEntryIsShownAsChanged(t *testing.T) {
	t.Parallel()
	debit := func(f map[string]any) { f["lines"].([]any)[0].(map[string]any)["debit"] = int64(9) }
	type row struct {
		sealed bool
		change func(fields map[string]any)
		// listed: it cannot be read, so lists say so, too.
		listed bool
	}
	filetest.Each(t, map[string]row{
		"sealed, and reads well":         {true, func(f map[string]any) { f["rule"] = "another" }, false},
		"sealed, and cannot be read":     {true, func(f map[string]any) { delete(f, "kind") }, true},
		"sealed, with a field more":      {true, func(f map[string]any) { f["leaf"] = int64(7) }, false},
		"sealed, its amount changed":     {true, debit, true},
		"not sealed, and cannot be read": {false, func(f map[string]any) { delete(f, "kind") }, true},
		"not sealed, its amount changed": {false, debit, true},
		"sealed, in another shard":       {true, func(f map[string]any) { f["shard"] = int64(9) }, true},
	}, func(t *testing.T, test row) {
		r := open(t)
		r.enter(t, sale("default", "e1", "2026-03", 1), sale("default", "e2", "2026-03", 2))
		if test.sealed {
			r.seal(t)
		}
		id := ledger.EntryID("default", "e1")
		storetest.Edit(t, r.store, ledger.Key(id), test.change)
		refunded := record("refunds", "default", "e1")
		refunded.Ref = id
		r.commit(t, own(refunded))

		var shown, other journal.Entry
		r.get(t, "journal/entries/e1", &shown)
		r.get(t, "journal/entries/e2", &other)
		require.Equal(t, []bool{true, test.sealed, false}, []bool{shown.Changed, shown.Seal > 0, other.Changed})
		inLists := map[bool]string{true: "true", false: "<nil>"}[test.listed]
		require.ElementsMatch(t, []string{inLists, "<nil>"}, r.all(t, "journal/entries?period=2026-03", "changed"))
		require.True(t, r.event(t, "e1").Effect[0].Changed || !test.listed)
		trial := look[seal.TrialBalance](t, r, "journal/balances?period=2026-03")
		want := int64(3)
		if !test.sealed {
			want = 2
			require.Equal(t, []string{id}, trial.Changed)
		}
		require.Equal(t, want, trial.Balances[0].Closing, "a sealed entry counts as it was sealed")
	})
}

func TestChangedBooksAreRefusedOrFoundAndLogged(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.enter(t, sale("default", "e1", "2026-03", 1), sale("default", "e2", "2026-03", 2))
	r.seal(t)
	r.commit(t, store.Delete(ledger.Key(ledger.EntryID("default", "e2")), 0))
	part := look[seal.Verified](t, r, "journal/verify")
	require.Len(t, part.Findings, 1)
	require.Equal(t, seal.Missing, part.Findings[0].Kind)
	require.Contains(t, r.log.String(), `"msg":"books do not verify","tenant":"default","kind":"missing",`+
		`"document":"entries/`+ledger.EntryID("default", "e2"))
	sealed := store.Key{Collection: seal.Seals, ID: seal.ID("default", 1)}
	storetest.Edit(t, r.store, sealed, func(fields map[string]any) { fields["count"] = int64(3) })
	r.refuses(t, http.MethodGet, "/v1/ops/journal/balances?period=2026-03", "", http.StatusConflict,
		"books_changed")
	entry := ledger.Key(r.credit(t, "default", "e", "o1", ledger.UserPoints("u1"), 1, 0))
	storetest.Edit(t, r.store, entry, func(fields map[string]any) { delete(fields, "from") })
	r.refuses(t, http.MethodGet, "/v1/ops/accounts/points:user:u1", "", http.StatusConflict, "books_changed")
}

func TestEventShowsItsEntries(t *testing.T) {
	t.Parallel()
	r := open(t)
	of, elsewhere, failed := record("orders", "default", "points"), record("refunds", "default", "e1"),
		record("orders", "default", "x")
	of.Entry = r.credit(t, "default", "points", "o1", ledger.UserPoints("u1"), 1000, time.Second)
	elsewhere.Ref = ledger.EntryID("default", "e1")
	r.enter(t, sale("default", "e1", "2026-03", 250))
	// Other queues and tenants have events of the same id, and a reference may name no entry.
	acme, nothing := record("orders", "acme", "x"), record("orders", "default", "y")
	failed.Status, failed.Ref, acme.Ref, nothing.Ref = dedupe.Failed, of.Entry, of.Entry,
		"usage-entry-of-another-collection"
	r.commit(t, own(of), own(elsewhere), own(failed), own(acme), own(record("refunds", "default", "x")),
		own(nothing))
	for event, want := range map[string]string{"points": of.Entry, "e1": elsewhere.Ref} {
		effect := r.event(t, event).Effect
		require.Len(t, effect, 1, event)
		require.Equal(t, want, effect[0].ID)
	}
	for _, path := range []string{"x?queue=orders&tenant=default", "x?tenant=acme", "x?queue=refunds", "y"} {
		require.Empty(t, r.event(t, path).Effect, path)
	}
}
