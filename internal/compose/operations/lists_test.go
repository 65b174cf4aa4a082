package operations_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/search"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func and(path, parameter string) string {
	if strings.Contains(path, "?") {
		return path + "&" + parameter
	}
	return path + "?" + parameter
}

// pages follows the pages of a list of /v1/ops to its end.
func pages[T any](t require.TestingT, r *rig, path string) (found [][]T) {
	for ask := path; ; {
		require.Less(t, len(found), 1000)
		page := look[console.List[T]](t, r, ask)
		if found = append(found, page.Items); page.Next == "" {
			return found
		}
		ask = and(path, "page="+url.QueryEscape(page.Next))
	}
}

// all returns a field of each item of a list of /v1/ops.
func (r *rig) all(t require.TestingT, path, field string) []string {
	items := slices.Concat(pages[map[string]any](t, r, path)...)
	return filetest.Map(items, func(item map[string]any) string { return fmt.Sprint(item[field]) })
}

var paged = []string{
	"events", "dead-letters", "operations", "operations/op/items", "audit", "audit?who=local:ada", "endpoints",
	"endpoints?tenant=t1", "endpoints/p0/changes", "orders", "orders?state=all", "stock",
	"stock/hat/changes", "products", "products/hat/changes", "refunds", "refunds?state=all",
	"usage?month=2026-03", "usage/s:1/entries?period=2026-03&meter=calls",
	"journal/entries?period=2026-03", "journal/entries?period=2026-03&account=cash",
	"journal/entries?account=points:user:u1", "journal/seals", "journal/periods", "customers/c1/changes",
}

func TestSmallPagesOfEachListHaveTheItemsOfALargePage(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.stock(t, 10)
	for i := range 5 {
		n := fmt.Sprint(i)
		r.commit(t, used(usage.Total{Tenant: "default", Subscription: "t-" + n, Meter: "rows", Used: 1})...)
		r.seal(t)
		r.enter(t, sale("default", "sealed-"+n, "2026-03", 1))
		r.does(t, http.MethodPut, "/v1/ops/products/hat", `{"points":1`+n+`,"why":"w"}`, nil)
		r.does(t, http.MethodPut, "/v1/ops/products/p"+n, `{"points":1,"why":"w"}`, nil)
		r.does(t, http.MethodPut, "/v1/ops/stock/hat", `{"available":1`+n+`,"why":"w"}`, nil)
		r.does(t, http.MethodPut, "/v1/ops/customers/c1", `{"uid":"u`+n+`","why":"w"}`, nil)
		r.does(t, http.MethodPost, "/v1/ops/endpoints",
			`{"id":"p`+n+`","url":"https://p.example","tenant":"t1","why":"w"}`, nil)
		r.does(t, http.MethodPost, "/v1/ops/endpoints/p0/disable", `{"why":"w"}`, nil)
		r.does(t, http.MethodPost, "/v1/ops/endpoints/p0/enable", `{"why":"w"}`, nil)
		r.does(t, http.MethodPost, "/v1/ops/journal/periods/2026-0"+fmt.Sprint(i%2+1)+"/close", `{"why":"w"}`, nil)
	}
	for _, list := range paged {
		whole := pages[json.RawMessage](t, r, and(list, "limit=100"))
		require.Len(t, whole, 1, list)
		require.GreaterOrEqual(t, len(whole[0]), 2, list)
		for _, limit := range []int{1, 3} {
			found := pages[json.RawMessage](t, r, and(list, fmt.Sprint("limit=", limit)))
			for _, page := range found {
				require.LessOrEqual(t, len(page), limit, list)
			}
			require.Equal(t, whole[0], slices.Concat(found...), "%s by %d", list, limit)
		}
	}
}

// Entries of the journal have no order of their own.
func TestEachListIsFiltered(t *testing.T) {
	t.Parallel()
	r := open(t)
	other, rent := created("refunds", "e4", dedupe.Completed, time.Minute), sale("default", "rent", "2026-03", 7)
	other.EventType, other.CorrelationID, other.OrderingKey = "refund.made", "c4", "u4"
	third := dead("refunds", "d3", "s", 3*time.Minute)
	third.EventType, third.OrderingKey = "refund.made", "u4"
	r.commit(t, own(created("orders", "e1", dedupe.Completed, 0)),
		own(created("orders", "e2", dedupe.Failed, 2*time.Hour)), own(other),
		own(created("orders", "e5", dedupe.DeadLettered, 40*24*time.Hour)),
		own(created("orders", "e6", dedupe.Completed, 24*time.Hour)),
		inStore(dead("orders", "d1", "r", time.Minute)), inStore(dead("orders", "d5", "r", time.Minute)),
		inStore(dead("refunds", "d2", "r", 2*time.Minute)), inStore(third),
		inStore(dead("refunds", "d4", "r", 4*time.Minute)))
	for n, e := range []audit.Entry{
		{Kind: bulk.AuditKind, Subject: "op-1", Action: "cancel", Who: "bob"},
		{Kind: "product", Subject: "hat", Action: "retire", Who: "ada"},
		{Kind: bulk.AuditKind, Subject: "op-1", Action: "replay", Who: "ada"},
		{Kind: "queue", Subject: "orders", Action: "pause", Who: "bob"},
		{Kind: "product", Subject: "hat", Action: "set", Who: "ada"},
	} {
		e.Why, e.At = "w", at.Add(-time.Duration(n)*time.Minute)
		r.commit(t, filetest.Must(e.With(fmt.Sprint("r", n)))(t)...)
	}
	rent.Lines[0].Account, rent.Lines[1].Account = "rent", "cash"
	r.enter(t, sale("default", "e1", "2026-03", 1), sale("default", "e3", "2026-02", 3),
		sale("acme", "e1", "2026-03", 4), rent)
	for i, tenant := range []string{"default", "default", "acme"} {
		r.credit(t, tenant, fmt.Sprint("e-o", i), fmt.Sprint("o", i), ledger.UserPoints("u1"), 100, 0)
	}
	for range 2 { // the second time a journal runs
		for list, want := range filetest.YAML[map[string][]string](t, "testdata", "lists.yaml") {
			path, field, _ := strings.Cut(list, " ")
			found := r.all(t, path, field)
			if require.ElementsMatch(t, want, found, list); !strings.HasPrefix(path, "journal/") {
				require.Equal(t, want, found, list)
			}
		}
		r.keepsJournal()
	}
	for _, doc := range storetest.All(t, r.store, audit.Collection) { // an entry is no operation
		r.refuses(t, http.MethodGet, "/v1/ops/operations/"+url.PathEscape(doc.Key.ID), "", 404, "unknown")
	}
	preview := look[deadletters.Preview](t, r, "dead-letters/preview?queue=refunds&items=d2,d3,d9")
	require.Equal(t, deadletters.Counts{"r": 1, "s": 1}, preview.ByReason)
}

// Refusals beyond the tags of a request, which the tests of package api cover.
func TestContradictoryRequestIsRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")), own(record("refunds", "default", "e2")),
		own(record("orders", "default", "e2")), own(record("orders", "other", "e2")))
	r.enter(t, sale("default", "e1", "2026-03", 1))
	large := r.bury(t, declared.Queues[0], "e3", "103", "")
	all := filetest.YAML[map[string][]string](t, "testdata", "refusals.yaml")
	all["search_too_long"] = []string{"search?q=" + strings.Repeat("e", 1001)}
	all["refused"] = append(all["refused"],
		"dead-letters/preview?queue=orders&items="+strings.Repeat("a,", 100)+"a")
	for want, requests := range all {
		for _, request := range requests {
			method, rest, changes := strings.Cut(strings.Replace(request, "{large}", large, 1), " ")
			if !changes {
				method, rest = http.MethodGet, request
			}
			path, body, _ := strings.Cut(rest, " ")
			got := r.send(t, method, "/v1/ops/"+path, body)
			require.Equal(t, want, codeOf(got.Body.String()), "%s: %s", request, got.Body)
			require.True(t, got.Code >= 400 && got.Code < 500, request)
			require.Contains(t, got.Body.String(), `"detail":"`, request)
			require.NotContains(t, got.Body.String(), "ilse")
		}
	}
	require.Empty(t, storetest.All(t, r.store, audit.Collection), "what is refused is not in the audit")
}

// search returns the results for an id, as "<kind> <id>: <label>", and by which member each was found.
func (r *rig) search(t *testing.T, query string) (found map[string]string) {
	t.Helper()
	whole := look[search.Search](t, r, "search?"+query)
	found = map[string]string{}
	for _, item := range whole.Items {
		name := fmt.Sprintf("%s %s: %s", item.Kind, item.ID, item.Label)
		if item.Tenant == "acme" {
			name += " of acme"
		}
		require.NotContains(t, found, name, "each result once")
		found[name] = item.How
	}
	return found
}

// shelve writes one document of every kind that a search looks for.
func (r *rig) shelve(t *testing.T) {
	t.Helper()
	r.order(t, "e1", "o1")
	r.does(t, "PUT", "/v1/ops/stock/hat", `{"available":3,"why":"counted"}`, nil)
	r.credit(t, "default", "e-points-1", "points-1", ledger.UserPoints("u1"), 100, 0)
	r.enter(t, sale("acme", "e-sale", "2026-03", 100))
	r.put(t, "orders", "u9", "e-late", at.Add(time.Hour), false)
	r.emitted(t, "orders", "emitted")
	other, died := record("orders", "acme", "e2"), dead("orders", "dl-3", "unknown_product", 0)
	other.CorrelationID, other.IdempotencyKey, other.OrderingKey = "c-acme", "p-acme", "u-acme"
	died.EventID, died.OrderingKey, died.SourceMessageID, died.Tenant = "e3", "u3", "m3", "default"
	op := bulk.Operation{
		Kind: deadletter.Replay, Filter: bulk.Filter{Queue: "orders"}, Rate: 50, Progress: bulk.Running,
		CreatedAt: at,
	}
	r.commit(t, append(used(usage.Total{Tenant: "shop", Subscription: "s:1", Meter: "calls", Used: 3}),
		own(record("orders", "default", "e2")), own(other), inStore(died),
		refund("default", "pay:1", payments.Refunded, 0),
		store.Create(store.Key{Collection: audit.Collection, ID: "op-1"}, store.Encode(&op)),
		store.Create(customers.Key("default", "c-7"),
			map[string]any{"tenant": "default", "customer_id": "c-7", "uid": "auth0|u7"}),
		store.Create(endpoints.Key("partner"),
			map[string]any{"endpoint_id": "partner", "tenant": "default", "state": "disabled", "reason": "closed"}),
		store.Create(products.Key("default", "cup"),
			map[string]any{"tenant": "default", "product_id": "cup", "state": "retired"}),
		subscriptions.Event{
			Tenant: "default", Subscription: "sub-1", EventID: "e-sub", Customer: "c-8", UID: "auth0|u8",
			OccurredAt: "2026-03-01T00:00:00Z",
		}.Write())...)
}

func TestSearchFindsAnIDOfAnyKindAndKeepsToATenant(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.shelve(t)
	r.keepsJournal()
	all := filetest.YAML[map[string]map[string]string](t, "testdata", "searches.yaml")
	all[strings.Repeat("~", 1000)] = map[string]string{}
	chain := strings.TrimSuffix(ledger.ChainPrefix("default", "points-1"), "~")
	all["points-1"] = map[string]string{
		"entry " + chain + "~0000: credit, 2026-03": "order whose points it moves",
	}
	sold := ledger.EntryID("acme", "e-sale")
	all["e-sale"] = map[string]string{"entry " + sold + ": journal, 2026-03 of acme": "event id"}
	for id, want := range all {
		t.Run(id[:min(len(id), 30)], func(t *testing.T) {
			t.Parallel()
			pasted, tenant, narrow := strings.Cut(id, " in ")
			query := url.Values{"q": {pasted}}
			if narrow {
				query.Set("tenant", tenant)
			}
			require.Equal(t, want, r.search(t, query.Encode()))
		})
	}
}

func TestSearchShowsTenOfEachKindAndLinksItsList(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 12 {
		r.commit(t, own(created("orders", fmt.Sprintf("e%02d", i), dedupe.Completed, time.Duration(i)*time.Minute)),
			own(record("orders", fmt.Sprint("tenant-", i), "e2")))
	}
	whole := look[search.Search](t, r, "search?q=u1")
	require.Len(t, whole.Items, 10)
	require.Len(t, whole.More, 1)
	require.Len(t, r.all(t, strings.TrimPrefix(whole.More[0].Path, "/v1/ops/"), "event_id"), 24)
	for i := range 12 {
		for _, id := range []string{"e2", "u1"} {
			r.get(t, fmt.Sprintf("search?q=%s&tenant=tenant-%d", id, i), &whole)
			require.Len(t, whole.Items, 1, "a tenant's items are found among those of others")
		}
	}
}

// noted is a store that records its queries.
type noted struct {
	*storetest.Faults

	queries sync.Map
}

func (n *noted) Query(ctx context.Context, q store.Query) (store.Page, error) {
	n.queries.Store(fmt.Sprint(q.Collection, q.Equal), q)
	return n.Faults.Query(ctx, q)
}

// The id has more documents of each kind than are shown, and more operations begin with it. Each list that
// the answer names exists.
func TestSearchReadsFiftyDocumentsAtMost(t *testing.T) {
	t.Parallel()
	r := open(t)
	db, places := &noted{Faults: r.store}, 0
	r.over(db)
	look[search.Search](t, r, "search?q=cash")
	for i := range 12 {
		r.commit(t, store.Create(store.Key{Collection: audit.Collection, ID: fmt.Sprint("cash-", i)},
			map[string]any{}))
	}
	db.queries.Range(func(_, query any) bool {
		q, _ := query.(store.Query)
		for i := range 12 * len(q.Equal) {
			key, fields := store.Key{Collection: q.Collection, ID: fmt.Sprint("x", places, "-", i)},
				maps.Clone(q.Equal)
			fields["tenant"] = "default"
			r.commit(t, store.Create(key, fields))
		}
		places += len(q.Equal)
		return true
	})
	require.Greater(t, places, 25)
	counter := &storetest.Counter{Store: r.store}
	r.over(counter)
	whole := look[search.Search](t, r, "search?q=cash")
	require.LessOrEqual(t, counter.Reads.Load(), int64(50))
	require.Greater(t, len(whole.More), 15)
	for _, list := range whole.More {
		answer := r.send(t, http.MethodGet, list.Path, "")
		// None of these documents can be read as one of its kind.
		understood := []string{"", "store_unavailable", "subscription_unknown"}
		require.Contains(t, understood, codeOf(answer.Body.String()), "%s: %s", list.Path, answer.Body)
	}
}
