package browser

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/pages"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
)

// routes are those that the pages declare, such as /ops/queues/{id}.
func (s *shop) routes(t *testing.T) (all []string) {
	t.Helper()
	site := &pages.Pages{
		Declared: operations.All(operations.Apps{}), Catalog: s.catalog, Now: time.Now,
		Sessions: &access.Sessions{Log: slog.New(slog.DiscardHandler), Now: time.Now},
	}
	router := chi.NewRouter()
	site.Routes(router)
	walk := func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method == http.MethodGet && !strings.HasSuffix(route, "*") && route != "/ops" {
			all = append(all, route)
		}
		return nil
	}
	require.NoError(t, chi.Walk(router, walk))
	slices.Sort(all)
	return slices.Compact(all)
}

// subjects are example ids of the routes with an id, by the beginning of the route. The longest one counts.
func (s *shop) subjects(t *testing.T) map[string][]string {
	t.Helper()
	orders, updates := s.queueOf("order.paid").ID, s.queueOf("cancellation").ID
	var deadLetters, long console.List[deadletter.Item]
	s.get(t, "/v1/ops/dead-letters?queue="+orders, &deadLetters)
	s.get(t, "/v1/ops/dead-letters?queue="+updates+"&event_id="+longID[:128], &long)
	var operations console.List[bulk.Operation]
	s.get(t, "/v1/ops/operations", &operations)
	var entries console.List[ledger.Entry]
	s.get(t, "/v1/ops/journal/entries?period="+period, &entries)
	found := map[string][]string{
		"/ops/queues/{":            {orders, s.queueOf(notification).ID, s.queueOf("usage_sync").ID},
		"/ops/catalog/queues/{":    {orders},
		"/ops/catalog/contracts/{": {"message.v1:order.created:1", "payment.v1"},
		"/ops/dead-letters/{":      {deadLetters.Items[0].ID, long.Items[0].ID},
		"/ops/events/{":            {event, eventOfDeadLetter, longID[:128]},
		"/ops/accounts/{":          {string(ledger.UserPoints(buyer))},
		"/ops/customers/{":         {buyersCustomer},
		"/ops/subscriptions/{":     {usageOf},
		"/ops/usage/{":             {usageOf},
		"/ops/orders/{":            {shopOrder},
		"/ops/refunds/{":           {payment},
		"/ops/journal/entries/{":   {entries.Items[0].ID},
		"/ops/products/{":          {"700000000000000995"},
		"/ops/endpoints/{":         {longID[:100], samples.Partner},
		"/ops/journal/periods/{":   {period},
		"/ops/stock/{":             {samples.Product},
		"/ops/runbooks/{":          {"dead-letters"},
		"/ops/reasons/{":           {"unknown_product"},
	}
	const of = "/ops/operations/{"
	for _, op := range operations.Items {
		if op.Progress == bulk.Waiting { // the first, for there is most to do with it
			found[of] = slices.Insert(found[of], 0, op.ID)
		} else {
			found[of] = append(found[of], op.ID)
		}
	}
	return found
}

// addresses are all pages of a full shop, each route at least once, some with a query.
func (s *shop) addresses(t *testing.T) (all []address) {
	t.Helper()
	orders := "queue=" + s.queueOf("order.paid").ID
	questions := map[string][]string{
		"/ops/search":       {"q=" + event, "q=" + buyer, "q=" + longID[:128], "q=" + url.QueryEscape(markup)},
		"/ops/dead-letters": {orders, orders + "&reason=unknown_product"},
		"/ops/events":       {"status=DEAD_LETTERED", "event_id=" + event},
	}
	// These pages need a query.
	onlyAsked := map[string]string{
		"/ops/dead-letters/preview": orders, "/ops/dead-letters/-/replay": orders,
		"/ops/dead-letters/-/discard": orders, "/ops/dead-letters/-/complete": orders,
	}
	subjects := s.subjects(t)
	for _, route := range s.routes(t) {
		name := strings.NewReplacer("/", "-", "{", "", "}", "").Replace(strings.TrimPrefix(route, "/ops"))
		name = cmp.Or(strings.Trim(name, "-"), "overview")
		if strings.HasSuffix(route, ".csv") { // a file
			continue
		}
		before, rest, has := strings.Cut(route, "{")
		_, behind, _ := strings.Cut(rest, "}")
		ids := subjects[before+"{"]
		switch {
		case onlyAsked[route] != "":
			all = append(all, address{name: name, path: route + "?" + onlyAsked[route]})
		case !has:
			all = append(all, address{name: name, path: route})
		case behind != "": // an operation on one of them
			require.NotContains(t, behind, "{")
			require.NotEmpty(t, ids, "subjects has no example for %s", route)
			ids = ids[:1]
		}
		for i, question := range questions[route] {
			all = append(all, address{
				fmt.Sprint(name, "-query-", i+1), route + "?" + question, strings.Contains(question, "%3Cscript"),
			})
		}
		require.Equal(t, has, len(ids) > 0, "subjects has no example for %s", route)
		for i, id := range ids {
			one := address{name: name, path: before + url.PathEscape(id) + behind}
			if i > 0 {
				one.name = fmt.Sprint(name, "-", i+1)
			}
			all = append(all, one)
		}
	}
	return all
}
