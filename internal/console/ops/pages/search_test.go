package pages_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
)

// desk is a worker's pages over a store in which something of each kind is.
type desk struct{ *shop }

// openDesk opens the pages at noon. Order o1 waits for its payment. User auth0|u7 has a customer, points
// of two days and a subscription. The books of acme have three sales, two of which are sealed.
func openDesk(t *testing.T) *desk {
	t.Helper()
	s := &desk{openShop(t, partner{})}
	machine, err := orderstest.Open(s.store)
	require.NoError(t, err)
	_, err = machine.Deliver(t.Context(), s.store, orderstest.Created("e-order", "o1"), false)
	require.NoError(t, err)
	paid := int64(999)
	s.commit(t, store.Create(customers.Key("default", "c-7"), map[string]any{"tenant": "default", "customer_id": "c-7", "uid": "auth0|u7"}),
		subscriptions.Event{Tenant: "default", Subscription: "sub-1", EventID: "e-sub", EventType: "subscription.renewed", Status: "active", UID: "auth0|u7", Product: "p1", Customer: "c-7", Amount: &paid, Currency: "USD", OccurredAt: "2026-11-01T00:00:00Z"}.Write())
	for order, day := range map[string]int{"r1": 20, "r2": 21} {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: order, EventID: "e-" + order, From: ledger.IssuedPoints(order), To: ledger.UserPoints("auth0|u7"), Amount: 100, Currency: ledger.Points, CreatedAt: time.Date(2026, 11, day, 9, 0, 0, 0, time.UTC),
		})
		require.NoError(t, err)
		s.commit(t, writes...)
	}
	s.sells(t, "s1", 10)
	s.sells(t, "s2", 20)
	_, err = (&seal.Sealer{Store: s.store, Origins: sealtest.Trusting{}, Now: func() time.Time { return noon }}).Run(t.Context())
	require.NoError(t, err)
	s.sells(t, "s3", 22)
	record := dedupe.Record{Queue: "one-queue", Tenant: dedupe.DefaultTenant, EventID: "e-last", EventType: "order.paid", Status: dedupe.Failed, OrderingKey: "auth0|u7", Customer: contract.CustomerOf(dedupe.DefaultTenant, "c-7"), CreatedAt: noon}
	s.commit(t, store.Create(dedupe.Key(record.Queue, record.Tenant, record.EventID), record.Fields()))
	return s
}

// sells posts a sale of 12.50 on a day of the month.
func (s *desk) sells(t *testing.T, event string, day int) {
	t.Helper()
	at := time.Date(2026, 11, day, 9, 0, 0, 0, time.UTC)
	writes, err := ledger.Post(ledger.Entry{
		Tenant: "acme", Kind: ledger.KindJournal, EventID: event, EventType: "invoice.paid", Rule: "sale", Period: "2026-11", OccurredAt: at, PostedAt: at,
		Lines: []ledger.Line{{Account: "cash", Currency: "EUR", Debit: 1250}, {Account: "revenue", Currency: "EUR", Credit: 1250}},
	})
	require.NoError(t, err)
	s.commit(t, append(writes, sealtest.Record(t, "fis-ingestion", writes[0]))...)
}

// asks returns the text of a page as people see it: without markup, and with single spaces.
func (s *desk) asks(t *testing.T, path string, form url.Values) (status int, text, html string) {
	t.Helper()
	w := s.ask(t, path, form)
	_, main, _ := strings.Cut(w.Body.String(), "<main")
	text = regexp.MustCompile(`<[^>]*>`).ReplaceAllString("<"+main, " ")
	return w.Code, strings.Join(strings.Fields(text), " "), w.Body.String()
}

func (s *desk) shows(t *testing.T, path string, parts ...string) (html string) {
	t.Helper()
	status, text, html := s.asks(t, path, nil)
	require.Equal(t, http.StatusOK, status, "%s: %s", path, text)
	for _, part := range parts {
		require.Contains(t, text, part, path)
	}
	return html
}

func TestASearchLeadsToAPageForEachKind(t *testing.T) {
	t.Parallel()
	s := openDesk(t)
	for id, page := range map[string]string{
		"e-last":               "/ops/events/e-last?queue=one-queue&amp;tenant=default",
		"o1":                   "/ops/orders/o1?tenant=default",
		"c-7":                  "/ops/customers/c-7?tenant=default",
		"auth0|u7":             "/ops/accounts/points:user:auth0%7Cu7?tenant=default",
		"points:user:auth0|u7": "/ops/accounts/points:user:auth0%7Cu7?tenant=default",
		"sub-1":                "/ops/subscriptions/sub-1?tenant=default",
		"s1":                   "/ops/journal/entries/" + url.PathEscape(ledger.EntryID("acme", "s1")) + "?tenant=acme",
	} {
		html := s.shows(t, "/ops/search?q="+url.QueryEscape(" '"+id+"' "), "It has looked through", "; by user; by payment")
		require.Contains(t, html, `href="`+page+`"`, id)
	}
	s.shows(t, "/ops/search?q=nobody", "Nothing has the id nobody .")
	s.shows(t, "/ops/search", "It takes the id of an event")
	s.shows(t, "/ops/search?q=cash&tenant=acme", "cash of the journal, in 2026-11")
	status, text, _ := s.asks(t, "/ops/search?q=two+ids", nil)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "one id at a time")
	status, text, _ = s.asks(t, "/ops/search?q=a%1bb", nil)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, text, "No id has a control character.")
}

func TestAnAccountIsShownNowAndOnADay(t *testing.T) {
	t.Parallel()
	s := openDesk(t)
	account := "/ops/accounts/points:user:auth0%7Cu7"
	s.shows(t, account, "200 points Its balance now. It belongs to user auth0|u7 .", "credit r2 100 200 e-r2", "credit r1 100 100 e-r1")
	html := s.shows(t, account+"?as_of=2026-11-20", "100 points Its balance before 2026-11-21 00:00:00 UTC")
	require.NotContains(t, html, "e-r2")
	s.shows(t, account+"?as_of=2026-11-19", "0 points", "Nothing had moved on it by then.")
	status, _, _ := s.asks(t, "/ops/accounts/points:user:nobody", nil)
	require.Equal(t, http.StatusNotFound, status)

	s.shows(t, "/ops/accounts/cash?tenant=acme", "this is 2026-11", "EUR 0.00 37.50 0.00 37.50", "debit 12.50 EUR, cash")
	s.shows(t, "/ops/accounts/cash?tenant=acme&as_of=2026-11-20", "25.00 EUR at the end of the day")
	s.shows(t, "/ops/accounts/revenue?tenant=acme&as_of=2026-11-10", "-12.50 EUR at the end of the day")
	s.shows(t, "/ops/accounts/cash?tenant=acme&period=2026-10", "Nothing has moved on it up to this month.")
}

func TestTheBalanceOfADayIsLeftOutWhereTheMonthIsTooLong(t *testing.T) {
	t.Parallel()
	s := openDesk(t)
	for i := range 50 {
		s.sells(t, fmt.Sprint("more-", i), 22)
	}
	html := s.shows(t, "/ops/accounts/cash?tenant=acme&as_of=2026-11-20", "more entries than a page adds up")
	require.NotContains(t, html, "at the end of the day</small>")
	require.Contains(t, html, `rel="next"`)
}

func TestACustomerIsShownWithWhatHasComeLately(t *testing.T) {
	t.Parallel()
	s := openDesk(t)
	html := s.shows(t, "/ops/customers/c-7?tenant=default", "Linked to auth0|u7", "e-last order.paid FAILED", "Nobody has changed it.")
	require.Contains(t, html, `href="/ops/search?q=auth0%7Cu7"`)
	s.shows(t, "/ops/customers/nobody", "Linked to nobody", "No event names the customer.")
}

func TestASubscriptionIsShownWithItsEventsAndItsUse(t *testing.T) {
	t.Parallel()
	s := openDesk(t)
	s.shows(t, "/ops/subscriptions/sub-1", "active", "e-sub subscription.renewed active 9.99 USD 2026-11-01T00:00:00Z", "Nothing was used in this period.")
	s.shows(t, "/ops/subscriptions/none", "No event of a subscription of this id has come.")
	s.shows(t, "/ops/subscriptions/none?meter=calls&period=2026-11", "Entries of calls in 2026-11", "No event has told of a use.")
}

func TestAnOrderIsDrawnInItsStateMachine(t *testing.T) {
	t.Parallel()
	s := openDesk(t)
	html := s.shows(t, "/ops/orders/o1",
		"OrderCreated Passed 2026-03-02 12:00:00 UTC , by event e-order .",
		"PaymentInitiated It stands here since 2026-03-02 12:00:00 UTC , by event e-order . to PaymentConfirmed: order.payment_confirmed to PaymentFailed: order.payment_failed",
		"OrderShipped It can still come to it.")
	require.Equal(t, 1, strings.Count(html, `aria-current="step"`))
	s.shows(t, "/ops/orders", "o1 PaymentInitiated")
	s.shows(t, "/ops/orders?state=OrderShipped", "No order is in this state.")
	s.shows(t, "/ops/orders?state=all", "o1")
	status, text, _ := s.asks(t, "/ops/orders/o2", nil)
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, text, "No order of that id has been seen.")
}

func TestTheBooksAreShownAndVerified(t *testing.T) {
	t.Parallel()
	s := openDesk(t)
	s.shows(t, "/ops/journal?tenant=acme", "cash EUR 0.00 37.50 0.00 37.50", "Summed up to seal 1, and 1 entries that are not sealed yet", "1 2 2026-11-22 12:00:00 UTC")
	s.shows(t, "/ops/journal?tenant=nobody", "have nothing up to this month", "Nothing of this tenant is sealed yet.")
	s.shows(t, "/ops/journal/entries?tenant=acme", "s1 invoice.paid", "debit 12.50 EUR, cash", "credit 12.50 EUR, revenue")
	s.shows(t, "/ops/journal/entries?tenant=acme&account=revenue&period=2026-10", "No entry fits.")
	html := s.shows(t, "/ops/journal/entries/s1?tenant=acme", "Rule sale", "Seal 1, place", "cash EUR 12.50 –", "Show the proof", "Revert the entry")
	require.Contains(t, html, "/proof?tenant=acme")
	require.NotContains(t, s.shows(t, "/ops/journal/entries/s3?tenant=acme", "Nothing proves an entry before it is sealed."), "/proof")
	s.shows(t, "/ops/journal/entries/s1/proof?tenant=acme", "billhook ledger check-proof", "s1")

	s.shows(t, "/ops/journal/verify?tenant=acme", "Verify the books of acme")
	status, text, _ := s.asks(t, "/ops/journal/verify", url.Values{"tenant": {"acme"}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "The books verify: nothing was found. Seals 1 Sealed entries 2 Entries without a seal 1 Findings 0")
}

func TestAVerificationStopsAtWhatItFindsAndGoesOn(t *testing.T) {
	t.Parallel()
	s := openDesk(t)
	doc, err := s.store.Get(t.Context(), ledger.Key(ledger.EntryID("acme", "s1")))
	require.NoError(t, err)
	for i, side := range []string{"debit", "credit"} {
		line, _ := doc.Fields["lines"].([]any)[i].(map[string]any)
		line[side] = int64(1)
	}
	s.commit(t, store.Set(doc.Key, doc.Fields))
	form, steps, seen := url.Values{"tenant": {"acme"}}, 0, ""
	for {
		steps++
		require.Less(t, steps, 10)
		status, text, html := s.asks(t, "/ops/journal/verify", form)
		require.Equal(t, http.StatusOK, status)
		seen += text
		if !strings.Contains(html, "<form method=\"post\">") {
			require.Contains(t, text, "The books do not verify: 1 findings.")
			break
		}
		require.Contains(t, text, "Go on verifying")
		form = url.Values{}
		for _, field := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`).FindAllStringSubmatch(html, -1) {
			form.Set(field[1], strings.NewReplacer("&#43;", "+", "&#34;", `"`, "&amp;", "&").Replace(field[2]))
		}
	}
	_, text, _ := s.asks(t, "/ops/journal/entries/s1?tenant=acme", nil)
	require.Contains(t, text, "The entry was changed after it was sealed. Verify the books")
	delete(doc.Fields, "kind")
	s.commit(t, store.Set(doc.Key, doc.Fields))
	_, text, _ = s.asks(t, "/ops/journal/entries/s1?tenant=acme", nil)
	require.Contains(t, text, "The entry was changed after it was sealed, and cannot be read any more.")
	// The daily verification finds it, too, and the first page says so.
	_, text, _ = s.asks(t, "/ops/", nil)
	require.NotContains(t, text, "do not verify")
	watch := seal.Watch{
		Verifier: seal.Verifier{From: s.store, Origins: sealtest.Trusting{}}, Store: s.store, Now: func() time.Time { return noon }, Report: func(seal.Finding) {},
	}
	_, err = watch.Step(t.Context())
	require.NoError(t, err)
	_, text, html := s.asks(t, "/ops/", nil)
	require.Contains(t, text, "The books do not verify: 1 findings in the verification of")
	require.Contains(t, html, `href="/ops/journal/verify?tenant=acme"`)
	require.Greater(t, steps, 1)
	require.Contains(t, seen, "changed entries/"+ledger.EntryID("acme", "s1"))
}
