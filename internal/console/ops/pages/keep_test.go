package pages_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/console/ops/pages"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// partner is a third party whose answer is chosen by the test.
type partner struct {
	post func(context.Context) (int, error)
}

func (p partner) Post(ctx context.Context, _ endpoints.Address, _ string, _ []byte) (int, error) {
	return p.post(ctx)
}
func (partner) Check(context.Context, string) error { return nil }

// shop is the pages over the API over a store.
type shop struct {
	site   http.Handler
	store  store.Store
	routes chi.Routes
	// who looks, by the name that they say.
	who string
}

// oracle is a worker that would process whatever it is shown.
type oracle struct{ *catalog.Catalog }

func (o oracle) Try(_ context.Context, m dryrun.Message) (dryrun.Trial, error) {
	return dryrun.Trial{Queue: m.Queue, Tenant: "default", EventID: m.Attributes["event_id"], Outcome: retry.Processed, Result: "credited"}, nil
}

// openShop opens the pages on a new store. What is changed is changed at noon.
func openShop(t testing.TB, third partner) *shop {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return shopOver(t, db, third)
}

// shopOver opens the pages on a store.
func shopOver(t testing.TB, db store.Store, third partner) *shop {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	var mu sync.Mutex
	ids := 0
	newID := func() string {
		mu.Lock()
		defer mu.Unlock()
		ids++
		return fmt.Sprint("id-", ids)
	}
	now, log := func() time.Time { return noon }, slog.New(slog.NewTextHandler(t.Output(), nil))
	api := &ops.API{
		Reads: ops.Reads{Store: db, Catalog: c, Now: now}, Access: ops.Access{OpenOnLoopback: true}, Log: log,
		Customers: &customers.Operator{Store: db, Now: now, NewID: newID},
		Products:  &products.Keeper{Store: db, Start: map[string]catalog.Product{"hat": {Points: 250}}, Now: now, NewID: newID},
		Endpoints: &endpoints.Keeper{Store: db, Poster: third, OldSecretFor: time.Hour, Now: now, NewID: newID, NewSecret: func() string { return "whsec_" + newID() }},
		Stock:     &orders.Keeper{Store: db, Now: now, NewID: newID},
		Periods:   &journal.Periods{Store: db, Now: now, NewID: newID},
		Pauses:    &pause.Keeper{Store: db, Now: now, NewID: newID},
		Operator: &deadletter.Operator{
			Store: db, Queue: c.Queue, Now: now, NewID: newID,
			Wait: func(context.Context, time.Duration) error { return nil }, Relay: func(context.Context, string) error { return nil },
		},
		Tries:    &dryrun.Desk{Store: db, Now: now, Worker: func(map[string]string) (dryrun.Worker, error) { return oracle{c}, nil }},
		Reverter: &journal.Reverter{Store: db, Catalog: c, Now: now, NewID: newID},
	}
	site, err := pages.New(pages.Config{Longest: time.Minute, API: api.Caller(), Guard: ops.NewSessions(api.Access, nil, log, now).Guard, Catalog: c, Log: log, Now: now})
	require.NoError(t, err)
	router := chi.NewRouter()
	site.Routes(router)
	return &shop{site: router, store: db, routes: router, who: "ada"}
}

// ask asks for a page, or sends it a form, as a browser on this machine does.
func (s *shop) ask(t testing.TB, path string, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
	request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	request.Header.Set("X-Operator", s.who)
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		request.Header.Set("Origin", "http://127.0.0.1:8081")
	}
	w := httptest.NewRecorder()
	s.site.ServeHTTP(w, request)
	return w
}

// send sends a form, and returns the page that it leads to.
func (s *shop) send(t *testing.T, path string, form url.Values) (at, page string) {
	t.Helper()
	answer := s.ask(t, path, form)
	require.Equal(t, http.StatusSeeOther, answer.Code, answer.Body)
	at = answer.Header().Get("Location")
	shown := s.ask(t, at, nil)
	return at, shown.Body.String()
}

// says asks for a page, and requires that it is there and says so.
func (s *shop) says(t *testing.T, path string, texts ...string) string {
	t.Helper()
	answer := s.ask(t, path, nil)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	for _, text := range texts {
		require.Contains(t, answer.Body.String(), text, path)
	}
	return answer.Body.String()
}

func (s *shop) commit(t *testing.T, writes ...store.Write) {
	t.Helper()
	_, err := s.store.Commit(t.Context(), writes)
	require.NoError(t, err)
}

func TestAProductIsSetAndRetiredOnItsPage(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	s.says(t, "/ops/products", `href="/ops/products/hat"`, "250", "catalog")
	s.says(t, "/ops/products?id=scarf", `href="/ops/products/scarf/set"`)
	s.says(t, "/ops/products/hat/set", "250 points", `name="expect" value="250"`, "Set product hat")
	at, page := s.send(t, "/ops/products/hat/set", url.Values{"points": {"1000"}, "expect": {"250"}, "why": {"ticket 7"}})
	require.Equal(t, "/ops/products/hat", at)
	require.Contains(t, page, "1,000</span> points")
	require.Contains(t, page, "ticket 7")
	require.Contains(t, page, "origin catalog, points 250, state active")

	refused := s.ask(t, "/ops/products/hat/set", url.Values{"points": {"1200"}, "expect": {"250"}, "why": {"ticket 8"}})
	require.Equal(t, http.StatusConflict, refused.Code)
	for _, text := range []string{"not worth what was expected", `value="1200"`, "ticket 8</textarea>", `name="expect" value="1000"`} {
		require.Contains(t, refused.Body.String(), text, "the form again, as it was filled in, and what it is worth now")
	}
	require.Equal(t, http.StatusUnprocessableEntity, s.ask(t, "/ops/products/hat/set", url.Values{"points": {"many"}, "expect": {"1000"}, "why": {"w"}}).Code)
	require.Equal(t, http.StatusUnprocessableEntity, s.ask(t, "/ops/products/hat/set", url.Values{"points": {"5"}, "expect": {"1000"}}).Code, "a reason is required")

	_, page = s.send(t, "/ops/products/hat/retire", url.Values{"expect": {"1000"}, "why": {"sold out"}})
	require.Contains(t, page, "It is retired")
	s.says(t, "/ops/products/hat/retire", "retired already")
	s.says(t, "/ops/products/scarf", "Neither the catalog nor the store knows", "Nobody has changed it.")
	_, page = s.send(t, "/ops/products/scarf/set", url.Values{"points": {"5"}, "expect": {"0"}, "why": {"sold since today"}})
	require.Contains(t, page, "5</span> points")
}

func TestTheStockOfAProductIsSetOnItsPage(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	s.says(t, "/ops/stock", "No product has a stock.")
	s.says(t, "/ops/stock/hat", "Nobody has set the stock")
	_, page := s.send(t, "/ops/stock/hat/set", url.Values{"available": {"40"}, "expect": {"0"}, "why": {"a delivery"}})
	require.Contains(t, page, "40</span> pieces")
	require.Contains(t, page, "a delivery")
	s.says(t, "/ops/stock", `href="/ops/stock/hat"`)
	refused := s.ask(t, "/ops/stock/hat/set", url.Values{"available": {"50"}, "expect": {"39"}, "why": {"w"}})
	require.Equal(t, http.StatusConflict, refused.Code)
	require.Contains(t, refused.Body.String(), "Not as many pieces are available")
	require.Equal(t, http.StatusUnprocessableEntity, s.ask(t, "/ops/stock/hat/set", url.Values{"available": {""}, "expect": {"40"}, "why": {"w"}}).Code)
}

func TestACustomerIsFoundLinkedAndUnlinked(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	credit, err := ledger.Credit(ledger.Move{
		Tenant: "default", Order: "o1", EventID: "e1", From: ledger.IssuedPoints("o1"), To: ledger.CustomerPoints("c1"), Amount: 2000, Currency: ledger.Points, CreatedAt: noon,
	})
	require.NoError(t, err)
	s.commit(t, credit...)
	s.says(t, "/ops/customers", "Name a customer")
	s.says(t, "/ops/customers?id=+c1+", "nobody", "2,000 points", `href="/ops/customers/c1/link"`)
	at, _ := s.send(t, "/ops/customers/c1/link", url.Values{"uid": {" user_42"}, "expect": {""}, "why": {"ticket 7"}})
	require.Equal(t, "/ops/customers/c1", at)
	s.says(t, "/ops/customers?id=c1", "user_42", "2,000 points of 1 guests' orders", `href="/ops/customers/c1/unlink"`)
	refused := s.ask(t, "/ops/customers/c1/link", url.Values{"uid": {"user_43"}, "expect": {"user_41"}, "why": {"ticket 8"}})
	require.Equal(t, http.StatusConflict, refused.Code)
	require.Contains(t, refused.Body.String(), `name="expect" value="user_42"`, "what it is linked to by now")
	at, _ = s.send(t, "/ops/customers/c1/unlink", url.Values{"expect": {"user_42"}, "why": {"two people"}})
	require.Equal(t, "/ops/customers/c1", at)
	s.says(t, "/ops/customers/c1/unlink", "It is linked to nobody.")
	require.Equal(t, http.StatusUnprocessableEntity, s.ask(t, "/ops/customers?id=c%2F1", nil).Code)
}

func TestTheSecretOfAnEndpointIsShownOnce(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{func(context.Context) (int, error) { return 204, nil }})
	form := url.Values{"url": {"https://partner.example.com/hooks"}, "events": {"invoice.* , order.paid"}, "id": {"p:1"}, "why": {"contract 12"}}
	refused := s.ask(t, "/ops/new-endpoint", url.Values{"url": form["url"], "events": form["events"]})
	require.Equal(t, http.StatusUnprocessableEntity, refused.Code)
	require.Contains(t, refused.Body.String(), "invoice.* , order.paid")
	added := s.ask(t, "/ops/new-endpoint", form)
	require.Equal(t, http.StatusOK, added.Code, added.Body)
	require.Equal(t, "no-store", added.Header().Get("Cache-Control"))
	secret := regexp.MustCompile(`whsec_[\w-]+`)
	first := secret.FindString(added.Body.String())
	require.NotEmpty(t, first)
	again := s.ask(t, "/ops/new-endpoint", form)
	require.Equal(t, http.StatusConflict, again.Code, "sent again, it is not registered again")
	require.NotRegexp(t, secret, again.Body.String())

	rotated := s.ask(t, "/ops/endpoints/p:1/rotate", url.Values{"why": {"a year has passed"}})
	require.Equal(t, http.StatusOK, rotated.Code)
	require.NotEqual(t, first, secret.FindString(rotated.Body.String()))
	for _, page := range []string{"", "/rotate", "/test", "/enable", "/disable", "/remove"} {
		require.NotRegexp(t, secret, s.says(t, "/ops/endpoints/p:1"+page, "partner.example.com"))
	}
	require.NotRegexp(t, secret, s.says(t, "/ops/endpoints", "<code>order.paid</code>", `href="/ops/endpoints/p:1"`))

	_, page := s.send(t, "/ops/endpoints/p:1/disable", url.Values{"why": {"they have asked"}})
	require.Contains(t, page, "disabled</span> by_hand")
	require.Contains(t, page, "they have asked")
	s.says(t, "/ops/endpoints?state=disabled", "p:1")
	s.says(t, "/ops/endpoints?state=failing", "No endpoint is in this list.")
	_, page = s.send(t, "/ops/endpoints/p:1/enable", url.Values{"why": {"mended"}})
	require.Contains(t, page, "enabled</span>")
	at, _ := s.send(t, "/ops/endpoints/p:1/remove", url.Values{"why": {"the contract has ended"}})
	require.Equal(t, "/ops/endpoints", at)
	require.Equal(t, http.StatusNotFound, s.ask(t, "/ops/endpoints/p:1", nil).Code)
}

func TestAnEndpointIsTestedForAsLongAsAPageMayTake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		third func(context.Context) (int, error)
		says  string
	}{
		"it takes it":        {func(context.Context) (int, error) { return 204, nil }, "It has answered 204"},
		"it refuses it":      {func(context.Context) (int, error) { return 503, context.Canceled }, "status 503"},
		"it does not answer": {func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, "It has not taken the test: no_answer_yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openShop(t, partner{test.third})
				require.Equal(t, http.StatusOK, s.ask(t, "/ops/new-endpoint", url.Values{"url": {"https://p.example/h"}, "id": {"p"}, "why": {"w"}}).Code)
				tested := s.ask(t, "/ops/endpoints/p/test", url.Values{})
				require.Equal(t, http.StatusOK, tested.Code)
				require.Contains(t, tested.Body.String(), test.says)
			})
		})
	}
}

// sold posts a sale in a month.
func (s *shop) sold(t *testing.T, event, period string) ledger.Entry {
	t.Helper()
	e := ledger.Entry{
		Tenant: dedupe.DefaultTenant, Kind: ledger.KindJournal, EventID: event, EventType: "order.paid", Rule: "sale", Period: period, OccurredAt: noon, PostedAt: noon,
		Lines: []ledger.Line{{Account: "cash", Currency: "EUR", Debit: 1250}, {Account: "revenue", Currency: "EUR", Credit: 1250}},
	}
	writes, err := ledger.Post(e)
	require.NoError(t, err)
	s.commit(t, writes...)
	e.ID = ledger.EntryID(e.Tenant, event)
	return e
}

func TestAMonthIsClosedAndAskedToBeOpenedAgain(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	s.sold(t, "e1", "2026-10")
	s.says(t, "/ops/periods", "No month of this tenant was ever closed.", `href="/ops/periods/2026-10?tenant=default"`, `href="/ops/periods/2026-05?tenant=default"`)
	s.says(t, "/ops/periods?period=2025-01", `href="/ops/periods/2025-01?tenant=default"`)
	s.says(t, "/ops/periods/2026-10", "12.50", "-12.50", `href="/ops/periods/2026-10/close?tenant=default"`, "1 of the entries are not sealed yet")
	refused := s.ask(t, "/ops/periods/2026-11/close", url.Values{"why": {"too early"}})
	require.Equal(t, http.StatusConflict, refused.Code)
	require.Contains(t, refused.Body.String(), "The month is not over yet")
	at, page := s.send(t, "/ops/periods/2026-10/close?tenant=default", url.Values{"why": {"the books are done"}})
	require.Equal(t, "/ops/periods/2026-10?tenant=default", at)
	require.Contains(t, page, "the books are done")
	require.Contains(t, page, "takes entries until")
	s.says(t, "/ops/periods", "closing</span>")
	_, page = s.send(t, "/ops/periods/2026-10/reopen", url.Values{"why": {"an invoice came late"}})
	require.Contains(t, page, "an invoice came late")
	s.says(t, "/ops/periods/2026-10/reopen", "when a second person asks for the same")
}

func TestAnEntryIsRevertedOnce(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	e := s.sold(t, "e1", "2026-11")
	path := "/ops/journal/entries/" + e.ID + "/revert"
	s.says(t, path, "12.50", "revenue", "Revert the entry")
	require.Equal(t, http.StatusUnprocessableEntity, s.ask(t, path, url.Values{}).Code)
	reverted := s.ask(t, path, url.Values{"why": {"booked twice"}})
	require.Equal(t, http.StatusSeeOther, reverted.Code, reverted.Body)
	require.Equal(t, "/ops/journal/entries/"+ledger.ReversalID(e.ID)+"?tenant=default", reverted.Header().Get("Location"))
	again := s.ask(t, path, url.Values{"why": {"booked twice"}})
	require.Equal(t, http.StatusConflict, again.Code)
	require.Contains(t, again.Body.String(), "It is reverted already")
}

func TestTheOutboxShowsWhatWaitsLongest(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	s.says(t, "/ops/outbox", "Nothing waits to be published.")
	s.commit(t, store.Create(store.Key{Collection: lane.Outbox.Lanes(), ID: "lane-1"}, map[string]any{"due_at": noon, "oldest_at": noon.Add(-90 * time.Minute)}))
	s.says(t, "/ops/outbox", "lane-1", "1h 30m")
}

func TestTheChangesOfAProductHavePages(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	for i := range 25 {
		w, err := audit.Entry{Kind: products.Kind, Tenant: "default", Subject: "hat", Action: "set", Who: "ada", Why: fmt.Sprint("change ", i, "."), At: noon.Add(time.Duration(i) * time.Minute)}.Write("r")
		require.NoError(t, err)
		s.commit(t, w)
	}
	first := s.says(t, "/ops/products/hat", "change 24.", "change 5.")
	require.NotContains(t, first, "change 4.")
	next := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(first)
	require.NotNil(t, next)
	s.says(t, strings.ReplaceAll(next[1], "&amp;", "&"), "change 4.", "change 0.")
}
