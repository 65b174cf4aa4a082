package browser

import (
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
	"billhook/internal/console/ops"
	"billhook/internal/console/ops/pages"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
)

// address is a page that is looked at.
type address struct {
	// name is a file's, too.
	name, path string
	// refused: what it asks for is refused, whatever there is.
	refused bool
}

// routes are those of the pages that are looked at, as the pages themselves declare them, such as
// /ops/queues/{id}.
func (s *shop) routes(t *testing.T) []string {
	t.Helper()
	site, err := pages.New(pages.Config{
		Guard: func(next http.Handler) http.Handler { return next }, Catalog: s.catalog, Now: time.Now,
		Sessions: ops.NewSessions(ops.Access{}, nil, slog.New(slog.DiscardHandler), time.Now),
	})
	require.NoError(t, err)
	router := chi.NewRouter()
	site.Routes(router)
	var all []string
	require.NoError(t, chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method == http.MethodGet && !strings.HasSuffix(route, "*") && route != "/ops" {
			all = append(all, route)
		}
		return nil
	}))
	slices.Sort(all)
	return slices.Compact(all)
}

// subjects are what the routes with a place for an id are shown about: the beginning of the routes, and
// the ids. The longest beginning holds.
func (s *shop) subjects(t *testing.T) map[string][]string {
	t.Helper()
	orders, updates := s.queueOf("order.paid").ID, s.queueOf("cancellation").ID
	var letters, long ops.DeadLetters
	s.get(t, "/v1/ops/dead-letters?queue="+orders, &letters)
	s.get(t, "/v1/ops/dead-letters?queue="+updates+"&event_id="+longID[:128], &long)
	require.NotEmpty(t, letters.Items)
	require.NotEmpty(t, long.Items)
	var operations ops.List[deadletter.Operation]
	s.get(t, "/v1/ops/operations", &operations)
	found := map[string][]string{
		"/ops/queues/{":            {orders, s.queueOf(notification).ID, s.queueOf("usage_sync").ID},
		"/ops/catalog/queues/{":    {orders},
		"/ops/catalog/contracts/{": {"message.v1:order.created:1", "paynow.v1"},
		"/ops/dead-letters/{":      {letters.Items[0].ID, long.Items[0].ID},
		"/ops/events/{":            {event, eventOfLetter, longID[:128]},
		"/ops/accounts/{":          {string(ledger.UserPoints(buyer))},
		"/ops/customers/{":         {buyersCustomer},
		"/ops/subscriptions/{":     {usageOf},
		"/ops/orders/{":            {shopOrder},
		"/ops/refunds/{":           {payment},
		"/ops/journal/entries/{":   {s.entry(t)},
		"/ops/products/{":          {"700000000000000995"},
		"/ops/endpoints/{":         {longID[:100]},
		"/ops/periods/{":           {period},
		"/ops/stock/{":             {samples.Product},
	}
	for _, op := range operations.Items {
		of := "/ops/operations/{"
		if op.Progress == deadletter.Waiting { // the first, for there is most to do with it
			found[of] = slices.Insert(found[of], 0, op.ID)
		} else {
			found[of] = append(found[of], op.ID)
		}
	}
	return found
}

// entry is the id of one entry of the journal.
func (s *shop) entry(t *testing.T) string {
	t.Helper()
	var entries ops.List[ledger.Entry]
	s.get(t, "/v1/ops/journal/entries?period="+period, &entries)
	require.NotEmpty(t, entries.Items)
	return entries.Items[0].ID
}

// questions are pages that show more with a question in their address.
func (s *shop) questions() map[string][]string {
	orders := s.queueOf("order.paid").ID
	return map[string][]string{
		"/ops/dead-letters/replay":  {"queue=" + orders},
		"/ops/dead-letters/discard": {"queue=" + orders}, "/ops/dead-letters/complete": {"queue=" + orders},

		"/ops/search":       {"q=" + event, "q=" + buyer, "q=" + longID[:128], "q=" + url.QueryEscape(markup)},
		"/ops/dead-letters": {"queue=" + orders, "queue=" + orders + "&reason=unknown_product"},
		"/ops/events":       {"status=DEAD_LETTERED", "event_id=" + event},
	}
}

// onlyAsked are the routes that show nothing without a question.
var onlyAsked = []string{"/ops/dead-letters/replay", "/ops/dead-letters/discard", "/ops/dead-letters/complete"}

// addresses are all pages of the shop, each route at least once. An empty shop is asked for the pages of a full one.
func (s *shop) addresses(t *testing.T) (all []address) {
	t.Helper()
	subjects, questions := s.subjects(t), s.questions()
	for _, route := range s.routes(t) {
		name := strings.Trim(strings.NewReplacer("/", "-", "{", "", "}", "").Replace(strings.TrimPrefix(route, "/ops")), "-")
		if name == "" {
			name = "overview"
		}
		before, _, has := strings.Cut(route, "{")
		if !has {
			if !slices.Contains(onlyAsked, route) {
				all = append(all, address{name: name, path: route})
			}
			for i, question := range questions[route] {
				all = append(all, address{name: fmt.Sprint(name, "-asked-", i+1), path: route + "?" + question, refused: strings.Contains(question, "%3Cscript")})
			}
			continue
		}
		_, behind, _ := strings.Cut(route, "}")
		ids := subjects[before+"{"]
		require.NotEmpty(t, ids, "subjects has no example for %s", route)
		require.NotContains(t, behind, "{")
		if behind != "" { // what can be done with one of them
			ids = ids[:1]
		}
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
