package operations_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/usage"
	"billhook/internal/console"
	"billhook/internal/dedupe"
)

// and is an address with one more parameter.
func and(path, parameter string) string {
	if strings.Contains(path, "?") {
		return path + "&" + parameter
	}
	return path + "?" + parameter
}

// all follows the pages of a list of /v1/ops to its end. It returns a field of each item.
func (r *rig) all(t require.TestingT, path, field string) (found []string) {
	for ask, pages := path, 0; ; pages++ {
		require.Less(t, pages, 1000)
		var page console.List[map[string]any]
		r.get(t, ask, &page)
		for _, item := range page.Items {
			found = append(found, fmt.Sprint(item[field]))
		}
		if page.Next == "" {
			return found
		}
		ask = and(path, "page="+url.QueryEscape(page.Next))
	}
}

// paged are the lists that have pages.
var paged = []string{
	"events", "dead-letters", "operations", "operations/op/items", "audit", "audit?who=local:ada", "endpoints", "endpoints?tenant=t1", "endpoints/p0/changes", "orders", "orders?state=all", "stock",
	"stock/hat/changes", "products", "products/hat/changes", "refunds", "refunds?state=all", "usage?month=2026-03", "usage/s:1/entries?period=2026-03&meter=calls",
	"journal/entries?period=2026-03", "journal/entries?period=2026-03&account=cash", "journal/entries?account=points:user:u1", "journal/seals", "journal/periods", "customers/c1/changes",
}

func TestTheSmallPagesOfEachListHaveWhatItsLargePageHas(t *testing.T) {
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
		r.does(t, http.MethodPost, "/v1/ops/endpoints", `{"id":"p`+n+`","url":"https://p.example","tenant":"t1","why":"w"}`, nil)
		r.does(t, http.MethodPost, "/v1/ops/endpoints/p0/disable", `{"why":"w"}`, nil)
		r.does(t, http.MethodPost, "/v1/ops/endpoints/p0/enable", `{"why":"w"}`, nil)
		r.does(t, http.MethodPost, "/v1/ops/journal/periods/2026-0"+fmt.Sprint(i%2+1)+"/close", `{"why":"w"}`, nil)
	}
	for _, list := range paged {
		whole := console.List[json.RawMessage]{}
		r.get(t, and(list, "limit=100"), &whole)
		require.Empty(t, whole.Next, list)
		require.GreaterOrEqual(t, len(whole.Items), 2, list)
		for _, limit := range []int{1, 3} {
			var found []json.RawMessage
			for next := ""; ; {
				var page console.List[json.RawMessage]
				r.get(t, and(list, fmt.Sprintf("limit=%d%s", limit, next)), &page)
				require.LessOrEqual(t, len(page.Items), limit, list)
				found = append(found, page.Items...)
				if page.Next == "" {
					break
				}
				next = "&page=" + url.QueryEscape(page.Next)
			}
			require.Equal(t, whole.Items, found, "%s by %d", list, limit)
		}
	}
}

func TestTheJobLogIsFiltered(t *testing.T) {
	t.Parallel()
	r := open(t)
	other := created("refunds", "e4", dedupe.Completed, time.Minute)
	other.EventType, other.CorrelationID, other.OrderingKey = "refund.made", "c4", "u4"
	r.commit(t, own(created("orders", "e1", dedupe.Completed, 0)), own(created("orders", "e2", dedupe.Failed, 2*time.Hour)), own(other),
		own(created("orders", "e5", dedupe.DeadLettered, 40*24*time.Hour)), own(created("orders", "e6", dedupe.Completed, 24*time.Hour)))
	for query, want := range map[string][]string{
		"":                                    {"e1", "e4", "e2", "e6", "e5"},
		"queue=q:orders":                      {"e1", "e2", "e6", "e5"},
		"queue=orders&status=COMPLETED":       {"e1", "e6"},
		"type=refund.made":                    {"e4"},
		"correlation_id=c4":                   {"e4"},
		"key=u4":                              {"e4"},
		"event_id=e5&since=1h":                nil,
		"since=2026-03-02T10:14:00.000001Z":   {"e1"},
		"since=3h&until=2026-03-02T10:00:00Z": {"e2"},
	} {
		require.Equal(t, want, r.all(t, "events?limit=2&"+query, "event_id"), query)
	}
}

// What an operation refuses beyond the tags of its request, which the engine's own tests hold.
func TestAQuestionThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")), own(record("refunds", "default", "e2")), own(record("orders", "default", "e2")), own(record("orders", "other", "e2")))
	r.enter(t, sale("default", "e1", "2026-03", 1))
	for want, paths := range map[string][]string{
		"account_invalid":      {"journal/entries?account=points:issued:o1", "journal/entries?account=a%20b&period=2026-03"},
		"account_unknown":      {"accounts/points:user:nobody", "accounts/points%2Fuser%2Fother"},
		"as_of_invalid":        {"accounts/points:user:u1?as_of=lately"},
		"customer_not_linked":  {"customers/c1"},
		"days_invalid":         {"rates?days=91", "rates?hours=1&days=1"},
		"endpoint_unknown":     {"endpoints/q"},
		"entry_unknown":        {"journal/entries/e9", "journal/entries/e9/proof", "journal/entries/~"},
		"entry_unsealed":       {"journal/entries/e1/proof"},
		"event_id_invalid":     {"events/ilse@example.org"},
		"event_unknown":        {"events/e9", "events/e1?queue=refunds", "events/e1?tenant=other"},
		"key_invalid":          {"dead-letters?queue=orders&key=ilse%40example.org"},
		"limit_invalid":        {"outbox?limit=1000"},
		"order_unknown":        {"orders/o3"},
		"page_invalid":         {"journal/verify?page=x", "journal/verify?tenant=default&page=x"},
		"period_invalid":       {"journal/entries?period=2026-3", "journal/balances?period=x", "usage/s:1?period=a%20b"},
		"product_unknown":      {"products/odd"},
		"queue_needed":         {"events/e2", "events/e2?queue=orders"},
		"refund_unknown":       {"refunds/pay:3"},
		"refused":              {"dead-letters/preview?queue=orders&items=" + strings.Repeat("a,", 100) + "a", "customers/a%20b", "journal/periods/2026-3"},
		"search_empty":         {"search", "search?q=%22%22", "search?q=+"},
		"search_invalid":       {"search?q=e2%00", "search?q=e%1b%5b2J2", "search?q=e2%e2%80%aee3", "search?q=e2%ff", "search?q=e2+e3", "search?q=e2%0ae3"},
		"search_too_long":      {"search?q=" + strings.Repeat("e", 1001)},
		"state_invalid":        {"dead-letters?state=all"},
		"stock_unknown":        {"stock/odd"},
		"subscription_unknown": {"subscriptions/s2"},
		"unknown":              {"dead-letters/nothing", "operations/nothing", "operations/nothing/preview"},
		"usage_of_what":        {"usage?month=2026-03&subscription=s:1"},
		"queue_unknown": {
			"events?queue=nobody", "events/e1?queue=nobody", "queues/nobody", "queues/nobody/pause", "waiting?queue=nobody",
			"rates?queue=nobody", "catalog/queues/x", "dead-letters?queue=nobody", "dead-letters/preview", "dead-letters/reasons?queue=nobody",
		},
	} {
		for _, path := range paths {
			got := r.send(t, http.MethodGet, "/v1/ops/"+path, "")
			require.Equal(t, want, codeOf(got.Body.String()), "%s: %s", path, got.Body)
			require.True(t, got.Code >= 400 && got.Code < 500, path)
			require.Contains(t, got.Body.String(), `"detail":"`, path)
			require.NotContains(t, got.Body.String(), "ilse")
		}
	}
}
