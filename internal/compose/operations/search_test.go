package operations_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/apps/search"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// search returns what an id leads to, as "<kind> <id>: <label>", and by what it was found.
func (r *rig) search(t *testing.T, query string) (found map[string]string) {
	t.Helper()
	var whole search.Search
	r.get(t, "search?"+query, &whole)
	found = map[string]string{}
	for _, item := range whole.Items {
		name := fmt.Sprintf("%s %s: %s", item.Kind, item.ID, item.Label)
		if item.Tenant == "acme" {
			name += " of acme"
		}
		require.NotContains(t, found, name, "each thing once")
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
	r.emitted(t, "orders", "told")
	other, died := record("orders", "acme", "e2"), dead("orders", "dl-3", "unknown_product", 0)
	other.CorrelationID, other.IdempotencyKey, other.OrderingKey = "c-acme", "p-acme", "u-acme"
	died.EventID, died.OrderingKey, died.SourceMessageID, died.Tenant = "e3", "u3", "m3", "default"
	op := deadletter.Operation{Kind: deadletter.Replay, Filter: deadletter.Filter{Queue: "orders"}, Rate: 50, Progress: deadletter.Running, CreatedAt: at}
	r.commit(t, append(used(usage.Total{Tenant: "shop", Subscription: "s:1", Meter: "calls", Used: 3}),
		own(record("orders", "default", "e2")), own(other), inStore(died), refund("default", "pay:1", payments.Refunded, 0),
		store.Create(store.Key{Collection: audit.Collection, ID: "op-1"}, store.Encode(&op)),
		store.Create(customers.Key("default", "c-7"), map[string]any{"tenant": "default", "customer_id": "c-7", "uid": "auth0|u7"}),
		store.Create(endpoints.Key("partner"), map[string]any{"endpoint_id": "partner", "tenant": "default", "state": "disabled", "reason": "gone"}),
		store.Create(products.Key("default", "cup"), map[string]any{"tenant": "default", "product_id": "cup", "state": "retired"}),
		subscriptions.Event{Tenant: "default", Subscription: "sub-1", EventID: "e-sub", Customer: "c-8", UID: "auth0|u8", OccurredAt: "2026-03-01T00:00:00Z"}.Write())...)
}

func TestASearchFindsAnIDOfAnyKindAndKeepsToATenant(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.shelve(t)
	const event, acme = "event e2: order.paid, COMPLETED", "event e2: order.paid, COMPLETED of acme"
	const letter, entry = "dead_letter dl-3: unknown_product, open", "entry "
	for id, want := range map[string]map[string]string{
		"e2":                      {event: "event id", acme: "event id"},
		"c1":                      {event: "correlation id, the newest"},
		"p1":                      {event: "idempotency key"},
		"e-late":                  {"event e-late: WAITING": "event id, waiting for its attempt"},
		"of-told":                 {"event of-told: WAITING": "event id, waiting to be published"},
		"u-acme":                  {acme: "ordering key, the newest"},
		"dl-3":                    {letter: "id"},
		"e3":                      {letter: "event id"},
		"u3":                      {letter: "ordering key"},
		"m3":                      {letter: "message id"},
		"op-1":                    {"operation op-1: replay, running": "id"},
		"o1":                      {"order o1: PaymentInitiated": "id"},
		"usr_42":                  {"order o1: PaymentInitiated": "user"},
		"pay:1":                   {"refund pay:1: refunded": "payment"},
		"c-7":                     {"customer c-7: linked to auth0|u7": "id"},
		"auth0|u7":                {"customer c-7: linked to auth0|u7": "user"},
		"points:user:u1":          {"account points:user:u1: 100 points": "name"},
		"cash":                    {},
		"points-1":                {entry + strings.TrimSuffix(ledger.ChainPrefix("default", "points-1"), "~") + "~0000: credit, 2026-03": "order whose points it moves"},
		"e-sale":                  {entry + ledger.EntryID("acme", "e-sale") + ": journal, 2026-03 of acme": "event id"},
		"s:1":                     {"subscription s:1: ": "id, in its usage"},
		"sub-1":                   {"subscription sub-1: ": "id, in its events"},
		"c-8":                     {"subscription sub-1: ": "customer"},
		"auth0|u8":                {"subscription sub-1: ": "user"},
		"hat":                     {"product hat: of the catalog": "id", "stock hat: 3 available": "product"},
		"cup":                     {"product cup: retired": "id"},
		"partner":                 {"endpoint partner: disabled, gone": "id"},
		"q:orders":                {"queue orders: runs": "id or alias"},
		"refunds":                 {"queue refunds: off": "id or alias"},
		"../a/b":                  {},
		"__reserved__":            {},
		"nothing-has-this":        {},
		"e2 in acme":              {acme: "event id"},
		"c1 in acme":              {},
		"o1 in acme":              {},
		"cash in acme":            {"account cash: of the journal, in 2026-03 of acme": "name in the journal, this month and the last"},
		"s:1 in shop":             {"subscription s:1: ": "id, in its usage"},
		"c-7 in acme":             {},
		"c-7 in default":          {"customer c-7: linked to auth0|u7": "id"},
		"\u00a0“c-7”,\t":          {"customer c-7: linked to auth0|u7": "id"},
		`<"c-7">`:                 {"customer c-7: linked to auth0|u7": "id"},
		strings.Repeat("~", 1000): {},
	} {
		t.Run(id[:min(len(id), 30)], func(t *testing.T) {
			t.Parallel()
			pasted, tenant, narrow := strings.Cut(id, " in ")
			query := url.Values{"q": {pasted}}
			if narrow {
				query.Set("tenant", tenant)
			}
			found := r.search(t, query.Encode())
			require.Equal(t, want, found)
		})
	}
}

func TestASearchShowsTenOfEachAndSaysThatThereAreMore(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 12 {
		r.commit(t, own(created("orders", fmt.Sprintf("e%02d", i), dedupe.Completed, time.Duration(i)*time.Minute)), own(record("orders", fmt.Sprint("tenant-", i), "e2")))
	}
	var whole search.Search
	r.get(t, "search?q=u1", &whole)
	require.Len(t, whole.Items, 10)
	require.Equal(t, []search.Kind{search.KindEvent}, whole.More)
	for i := range 12 {
		for _, id := range []string{"e2", "u1"} {
			r.get(t, fmt.Sprintf("search?q=%s&tenant=tenant-%d", id, i), &whole)
			require.Len(t, whole.Items, 1, "what a tenant has is not lost among others")
		}
	}
}
