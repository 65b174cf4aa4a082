package ops_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/products"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// search returns what an id leads to, as "<kind> <id>: <label>", and by what it was found.
func (r *rig) search(t *testing.T, query string) (found map[string]string, whole ops.Search) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/search?"+query, nil, &whole).Code)
	found = map[string]string{}
	for _, item := range whole.Items {
		name := fmt.Sprintf("%s %s: %s", item.Kind, item.ID, item.Label)
		if item.Tenant == "acme" {
			name += " of acme"
		}
		require.NotContains(t, found, name, "each thing once")
		found[name] = item.How
	}
	return found, whole
}

// shelve writes one document of every kind that a search looks for.
func (r *rig) shelve(t *testing.T) {
	t.Helper()
	shop, err := orderstest.Open(r.store)
	require.NoError(t, err)
	_, err = shop.Deliver(t.Context(), r.store, orderstest.Created("e1", "o1"), false)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.change(t, http.MethodPut, "/v1/ops/stock/hat", `{"available":3,"why":"counted"}`, nil))
	refund(t, r.store, "default", "pay:1", "succeeded")
	count(t, r.store, "shop", "s:1", "calls", 3)
	r.points(t, "default", "points-1", "u1")
	r.enter(t, sale("acme", "e-sale", "2026-03", 100))
	r.put(t, "orders", "u9", "e-late", at.Add(time.Hour))
	batch := lane.NewBatch(at)
	batch.Add("topic", "m", contract.Message{Attributes: map[string]string{"event_type": "told"}}, lane.Source{Queue: "orders", Tenant: "default", EventID: "e2", Emits: "e-told"})
	r.commit(t, batch.Writes()...)
	made := record("orders", "default", "e2")
	other := record("orders", "acme", "e2")
	other.CorrelationID, other.IdempotencyKey, other.OrderingKey = "c-acme", "p-acme", "u-acme"
	died := deadletter.Item{Queue: "orders", State: deadletter.Open, Reason: "unknown_product", EventID: "e3", OrderingKey: "u3", SourceMessageID: "m3", Kept: at, Expires: at.Add(time.Hour), Tenant: "default"}
	r.commit(t,
		own(made), own(other), operation("op-1", "orders", deadletter.Running), store.Create(store.Key{Collection: deadletter.Collection, ID: "dl-3"}, store.Encode(&died)),
		store.Create(customers.Key("default", "c-7"), map[string]any{"tenant": "default", "customer_id": "c-7", "uid": "auth0|u7"}), store.Create(endpoints.Key("partner"), map[string]any{"endpoint_id": "partner", "tenant": "default", "state": "disabled", "reason": "gone"}),
		store.Create(products.Key("default", "cup"), map[string]any{"tenant": "default", "product_id": "cup", "state": "retired"}),
		subscriptions.Event{Tenant: "default", Subscription: "sub-1", EventID: "e-sub", Customer: "c-8", UID: "auth0|u8", OccurredAt: "2026-03-01T00:00:00Z"}.Write())
}

func TestASearchFindsAnIDOfAnyKind(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.shelve(t)
	for id, want := range map[string]map[string]string{
		"e2":               {"event e2: order.paid, COMPLETED": "event id", "event e2: order.paid, COMPLETED of acme": "event id"},
		"c1":               {"event e2: order.paid, COMPLETED": "correlation id, the newest"},
		"p1":               {"event e2: order.paid, COMPLETED": "idempotency key"},
		"e-late":           {"event e-late: WAITING": "event id, waiting for its attempt"},
		"e-told":           {"event e-told: told, WAITING": "event id, waiting to be published"},
		"u-acme":           {"event e2: order.paid, COMPLETED of acme": "ordering key, the newest"},
		"dl-3":             {"dead_letter dl-3: unknown_product, open": "id"},
		"e3":               {"dead_letter dl-3: unknown_product, open": "event id"},
		"u3":               {"dead_letter dl-3: unknown_product, open": "ordering key"},
		"m3":               {"dead_letter dl-3: unknown_product, open": "message id"},
		"op-1":             {"operation op-1: replay, running": "id"},
		"o1":               {"order o1: PaymentInitiated": "id"},
		"usr_42":           {"order o1: PaymentInitiated": "user"},
		"pay:1":            {"refund pay:1: refunded": "payment"},
		"c-7":              {"customer c-7: linked to auth0|u7": "id"},
		"auth0|u7":         {"customer c-7: linked to auth0|u7": "user"},
		"points:user:u1":   {"account points:user:u1: 100 points": "name"},
		"cash":             {},
		"points-1":         {"entry " + strings.TrimSuffix(ledger.ChainPrefix("default", "points-1"), "~") + "~0000: credit, 2026-03": "order whose points it moves"},
		"e-sale":           {"entry " + ledger.EntryID("acme", "e-sale") + ": journal, 2026-03 of acme": "event id"},
		"s:1":              {"subscription s:1: ": "id, in its usage"},
		"sub-1":            {"subscription sub-1: ": "id, in its events"},
		"c-8":              {"subscription sub-1: ": "customer"},
		"auth0|u8":         {"subscription sub-1: ": "user"},
		"hat":              {"product hat: of the catalog": "id", "stock hat: 3 available": "product"},
		"cup":              {"product cup: retired": "id"},
		"partner":          {"endpoint partner: disabled, gone": "id"},
		"q:orders":         {"queue orders: off": "id or alias"},
		"../a/b":           {},
		"__reserved__":     {},
		"nothing-has-this": {},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			found, whole := r.search(t, url.Values{"q": {id}}.Encode())
			require.Equal(t, want, found)
			require.Equal(t, id, whole.Query)
			require.Greater(t, len(whole.Looked), 30, "it says all that it looked through")
		})
	}
}

func TestASearchKeepsToATenant(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.shelve(t)
	for query, want := range map[string]map[string]string{
		"q=e2&tenant=acme":     {"event e2: order.paid, COMPLETED of acme": "event id"},
		"q=c1&tenant=acme":     {},
		"q=o1&tenant=acme":     {},
		"q=cash&tenant=acme":   {"account cash: of the journal, in 2026-03 of acme": "name in the journal, this month and the last"},
		"q=s:1&tenant=shop":    {"subscription s:1: ": "id, in its usage"},
		"q=c-7&tenant=acme":    {},
		"q=c-7&tenant=default": {"customer c-7: linked to auth0|u7": "id"},
	} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			found, _ := r.search(t, query)
			require.Equal(t, want, found)
		})
	}
}

func TestASearchOfATenantIsNotLostAmongOthers(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 30 {
		r.commit(t, own(record("orders", fmt.Sprint("tenant-", i), "e2")))
	}
	_, whole := r.search(t, "q=e2&tenant=tenant-7")
	require.Len(t, whole.Items, 1)
	_, whole = r.search(t, "q=u1&tenant=tenant-7")
	require.Len(t, whole.Items, 1)
	for i := range 30 {
		_, whole = r.search(t, fmt.Sprint("q=e2&tenant=tenant-", i))
		require.Len(t, whole.Items, 1)
	}
}

func TestASearchTakesWhatPeoplePaste(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e2")))
	for _, pasted := range []string{"e2", "  e2\n", `"e2"`, `"e2",`, "“e2”", "`e2`", "<e2>", "\u00a0e2\t"} {
		found, whole := r.search(t, url.Values{"q": {pasted}}.Encode())
		require.Len(t, found, 1, "%q", pasted)
		require.Equal(t, "e2", whole.Query, "%q", pasted)
	}
	for pasted, code := range map[string]string{
		"e2\x00": "search_invalid", "e\x1b[2J2": "search_invalid", "e2\u202ee3": "search_invalid", "e2\xff": "search_invalid", "e2 e3": "search_invalid", "e2\ne3": "search_invalid",
		"\"\"": "search_empty", " ": "search_empty", strings.Repeat("e", 1001): "search_too_long",
	} {
		got := r.ask(t, "/v1/ops/search?"+url.Values{"q": {pasted}}.Encode(), nil, nil)
		require.Equal(t, http.StatusBadRequest, got.Code, "%q", pasted)
		require.Contains(t, got.Body.String(), `"code":"`+code+`"`, "%q", pasted)
	}
	require.Contains(t, r.ask(t, "/v1/ops/search", nil, nil).Body.String(), `"code":"search_empty"`)
	for _, long := range []string{strings.Repeat("e", 1000), strings.Repeat("~", 1000), strings.Repeat("ü", 500)} {
		found, _ := r.search(t, url.Values{"q": {long}}.Encode())
		require.Empty(t, found)
	}
}

func TestASearchShowsTenOfEachAndSaysThatThereAreMore(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 12 {
		r.commit(t, own(created("orders", fmt.Sprintf("e%02d", i), dedupe.Completed, time.Duration(i)*time.Minute)))
	}
	_, whole := r.search(t, "q=u1")
	require.Len(t, whole.Items, 10)
	require.Equal(t, "e00", whole.Items[0].ID, "the newest first")
	require.Contains(t, whole.Looked, ops.Looked{Kind: ops.KindEvent, How: "ordering key, the newest", Found: 10, More: true})
}

func TestASearchThatCannotLookSaysSo(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.store.Down(true)
	require.Equal(t, http.StatusServiceUnavailable, r.ask(t, "/v1/ops/search?q=e1", nil, nil).Code)
}

func TestAnAccountIsShownAsOfADate(t *testing.T) {
	t.Parallel()
	r := open(t)
	for day := range 5 {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: fmt.Sprint("o", day), EventID: "e", From: ledger.IssuedPoints(fmt.Sprint("o", day)), To: ledger.UserPoints("u1"),
			Amount: 1 << day, Currency: ledger.Points, CreatedAt: time.Date(2026, 3, 1+day, 12, 0, 0, 0, time.UTC),
		})
		require.NoError(t, err)
		r.commit(t, writes...)
	}
	chain, err := ledger.Load(t.Context(), r.store, "default", "o1")
	require.NoError(t, err)
	writes, err := chain.Reverse("back", 2, time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	r.commit(t, writes...)
	for asOf, want := range map[string]struct {
		balance int64
		entries []string
	}{
		"":                                {29, []string{"credit o4", "reversal o1", "credit o3", "credit o2", "credit o1", "credit o0"}},
		"as_of=2026-03-05":                {29, []string{"credit o4", "reversal o1", "credit o3", "credit o2", "credit o1", "credit o0"}},
		"as_of=2026-03-04":                {13, []string{"reversal o1", "credit o3", "credit o2", "credit o1", "credit o0"}},
		"as_of=2026-03-03":                {7, []string{"credit o2", "credit o1", "credit o0"}},
		"as_of=2026-03-03T12:00:00Z":      {3, []string{"credit o1", "credit o0"}},
		"as_of=2026-03-03T12:00:00.0001Z": {7, []string{"credit o2", "credit o1", "credit o0"}},
		"as_of=2026-02-28":                {0, nil},
	} {
		t.Run(asOf, func(t *testing.T) {
			t.Parallel()
			var got []string
			for page := ""; ; {
				var a ops.Account
				require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/accounts/points:user:u1?limit=2&"+asOf+page, nil, &a).Code)
				require.Equal(t, want.balance, a.Balance)
				require.Equal(t, a.Next != "", a.More)
				for _, e := range a.Entries {
					got = append(got, fmt.Sprint(e.Kind, " ", e.Order))
				}
				if a.Next == "" {
					break
				}
				page = "&page=" + url.QueryEscape(a.Next)
			}
			require.Equal(t, want.entries, got)
		})
	}
	require.Contains(t, r.ask(t, "/v1/ops/accounts/points:user:u1?as_of=lately", nil, nil).Body.String(), "as_of_invalid")
}

func TestTooLongAgoIsSaidToBeSo(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 1000 {
		order := fmt.Sprint("o", i)
		writes, err := ledger.Credit(ledger.Move{Tenant: "default", Order: order, EventID: "e", From: ledger.IssuedPoints(order), To: ledger.UserPoints("u1"), Amount: 1, Currency: ledger.Points, CreatedAt: at})
		require.NoError(t, err)
		r.commit(t, writes...)
	}
	got := r.ask(t, "/v1/ops/accounts/points:user:u1?as_of=2026-03-01", nil, nil)
	require.Equal(t, http.StatusUnprocessableEntity, got.Code)
	require.Contains(t, got.Body.String(), "too_long_ago")
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/accounts/points:user:u1?as_of=2026-03-02", nil, nil).Code)
}

// An entry that comes between the two reads of a balance is in both or in neither.
func TestAnEntryThatComesMeanwhileIsNotCountedByHalf(t *testing.T) {
	t.Parallel()
	r := open(t)
	credit := func(order string) []store.Write {
		writes, err := ledger.Credit(ledger.Move{Tenant: "default", Order: order, EventID: "e", From: ledger.IssuedPoints(order), To: ledger.UserPoints("u1"), Amount: 1, Currency: ledger.Points, CreatedAt: at})
		require.NoError(t, err)
		return writes
	}
	r.commit(t, credit("first")...)
	n := 0
	late := &meanwhile{Store: r.store, do: func() {
		if n++; n <= 2 {
			r.commit(t, credit(fmt.Sprint("late", n))...)
		}
	}}
	r.over(late)
	var a ops.Account
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/accounts/points:user:u1?as_of=2026-03-01", nil, &a).Code)
	require.Zero(t, a.Balance)
	late.do = func() { n++; r.commit(t, credit(fmt.Sprint("late", n))...) }
	require.Equal(t, http.StatusConflict, r.ask(t, "/v1/ops/accounts/points:user:u1?as_of=2026-03-01", nil, nil).Code)
}

func TestASubscriptionStandsAsItsNewestEventSays(t *testing.T) {
	t.Parallel()
	r := open(t)
	paid := int64(999)
	r.commit(t,
		subscriptions.Event{Tenant: "default", Subscription: "s:1", EventID: "b", Status: "active", Product: "p", Customer: "c", UID: "u", Amount: &paid, Currency: "USD", OccurredAt: "2026-03-01T00:00:00Z", RecordedAt: at}.Write(),
		subscriptions.Event{Tenant: "default", Subscription: "s:1", EventID: "a", Status: "canceled", Product: "p", Customer: "c", UID: "u", OccurredAt: "2026-03-02T00:00:00Z", RecordedAt: at}.Write())
	var s ops.Subscription
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/subscriptions/s%3A1", nil, &s).Code)
	require.Equal(t, "canceled", s.Status)
	require.Len(t, s.Events, 2)
	require.Equal(t, &paid, s.Events[1].Amount)
	for path, code := range map[string]string{"/s2": "subscription_unknown", "/a%2Fb": "subscription_invalid"} {
		require.Contains(t, r.ask(t, "/v1/ops/subscriptions"+path, nil, nil).Body.String(), `"code":"`+code+`"`)
	}
}

// meanwhile is a store on which something happens before each query.
type meanwhile struct {
	store.Store
	do func()
}

func (m *meanwhile) Query(ctx context.Context, q store.Query) (store.Page, error) {
	m.do()
	return m.Store.Query(ctx, q)
}
