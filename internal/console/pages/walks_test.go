package pages_test

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/compose/operations"
	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

type shop struct {
	site    http.Handler
	store   store.Store
	catalog *catalog.Catalog
	who     string
	// names are ids by their names, such as {letter}, in addresses and in what pages say.
	names map[string]string
}

// openShop opens the pages on a new store. What is changed is changed at noon.
func openShop(t testing.TB, third operationstest.Partner) *shop {
	t.Helper()
	db := storetest.Open(t)
	c := catalogtest.Shipped()
	var ids atomic.Int64
	newID := func() string { return fmt.Sprint("id-", ids.Add(1)) }
	now, log := func() time.Time { return noon }, slog.New(slog.NewTextHandler(t.Output(), nil))
	apps := operationstest.Over(db, c, now, newID)
	apps.Endpoints.Poster = third
	server := &api.Server{Author: access.Author, Log: log, Store: db, Now: now, Catalog: operations.All(apps)}
	site := opened(t, server, server.Catalog, access.Access{OpenOnLoopback: true}, time.Minute)
	return &shop{site: site, store: db, catalog: c, who: "ada", names: map[string]string{}}
}

func (s *shop) ask(t testing.TB, path, form string) *httptest.ResponseRecorder {
	t.Helper()
	method := http.MethodGet
	if form != "" {
		method = http.MethodPost
	}
	return visited(t, s.site, method, path, form, func(r *http.Request) { r.Header.Set("X-Operator", s.who) })
}

// step is one of testdata/walks.yaml, which says what each member is.
type step struct {
	Asks, Form string
	Status     int
	Says       []string
}

var anchor = regexp.MustCompile(`href="([^"]+)" rel="next"`)

var expects = regexp.MustCompile(`name="expect" value="(\d+)"`)

// does takes the steps. {at} is where the last change led to, {next} the next page of the last list, and
// {seen} what the last form expects.
func (s *shop) does(t *testing.T, steps ...step) (page string) {
	t.Helper()
	named := func(text string) string {
		for name, id := range s.names {
			text = strings.ReplaceAll(text, "{"+name+"}", id)
		}
		return text
	}
	for _, one := range steps {
		answer := s.ask(t, named(one.Asks), s.filled(t, named(one.Asks), named(one.Form)))
		want := one.Status
		if one.Form == "" && answer.Code == http.StatusSeeOther { // what was looked for is elsewhere
			answer = s.ask(t, answer.Header().Get("Location"), "")
		}
		switch {
		case one.Form != "" && want == 0:
			require.Equal(t, http.StatusSeeOther, answer.Code, "%s: %s", one.Asks, answer.Body)
			s.names["at"] = answer.Header().Get("Location")
			answer = s.ask(t, s.names["at"], "")
			fallthrough
		case want == 0:
			want = http.StatusOK
		}
		page = answer.Body.String()
		require.Equal(t, want, answer.Code, "%s: %s", one.Asks, page)
		requireExplained(t, one.Asks, page)
		for _, part := range one.Says {
			if text, absent := strings.CutPrefix(named(part), "!"); absent {
				require.NotContains(t, page, text, one.Asks)
			} else {
				require.Contains(t, page+"\n"+shown(page), text, one.Asks)
			}
		}
		if next := anchor.FindStringSubmatch(page); next != nil {
			s.names["next"] = strings.ReplaceAll(next[1], "&amp;", "&")
		}
		if seen := expects.FindStringSubmatch(page); seen != nil {
			s.names["seen"] = seen[1]
		}
	}
	return page
}

var hidden = regexp.MustCompile(`type="hidden" name="([a-z_]+)" value="([^"]*)"`)

// filled is a form with what its page sends along, but for what the person has seen, which the form says.
func (s *shop) filled(t *testing.T, path, form string) string {
	t.Helper()
	if form == "" {
		return ""
	}
	for _, sent := range hidden.FindAllStringSubmatch(s.ask(t, path, "").Body.String(), -1) {
		if sent[1] != "expect" {
			form += "&" + sent[1] + "=" + url.QueryEscape(html.UnescapeString(sent[2]))
		}
	}
	return form
}

func (s *shop) commit(t *testing.T, writes ...store.Write) {
	t.Helper()
	storetest.Put(t, s.store, writes...)
}

func morning(day int) time.Time { return time.Date(2026, 11, day, 9, 0, 0, 0, time.UTC) }

func (s *shop) credit(t *testing.T, order string, to ledger.Account, amount int64, day int) {
	t.Helper()
	s.commit(t, ledgertest.Credited(t, ledger.Move{
		Tenant: "default", Order: order, EventID: "e-" + order, To: to, Amount: amount, CreatedAt: morning(day),
	})...)
}

func (s *shop) sells(t *testing.T, tenant, event, period string, day int) []store.Write {
	t.Helper()
	writes := filetest.Must(ledger.Post(ledgertest.Sale(tenant, event, period, 1250, morning(day))))(t)
	s.commit(t, writes...)
	return writes
}

// The last dead letter is of noon, the others a minute apart; they are {d0}, {d1} and so on, of {queue}.
func (s *shop) dies(t *testing.T, fourEyes bool, reasons ...string) {
	t.Helper()
	var q catalog.Queue
	for _, one := range s.catalog.Queues {
		if one.FourEyes == fourEyes && !one.DeadLetter.Drop && one.Enabled {
			q = one
			break
		}
	}
	s.names["queue"] = q.ID
	for n, reason := range reasons {
		kept := noon.Add(time.Duration(n-len(reasons)+1) * time.Minute)
		m := contract.Message{Data: []byte(`{}`), Attributes: map[string]string{
			"event_id": fmt.Sprint("e", n), "event_type": "order.paid", "ordering_key": fmt.Sprint("u", n%2),
			"dead_letter_reason": reason,
			"source_message_id":  fmt.Sprint(100 + n), "delivery_attempts": "1",
			"dead_lettered_at": kept.Format(time.RFC3339),
		}}
		require.NoError(t, filetest.ErrorOf(deadletter.Keep(t.Context(), s.store, q, m, fmt.Sprint(900+n), kept)))
		s.names[fmt.Sprint("d", n)] = deadletter.ItemID(q, fmt.Sprint(100+n), m)
	}
}

func form(why string, pairs ...string) string {
	values := url.Values{"why": {why}}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return strings.NewReplacer("%7B", "{", "%7D", "}").Replace(values.Encode()) // a name is put in
}

func dying(fourEyes bool, reasons ...string) func(*testing.T, *shop) {
	return func(t *testing.T, s *shop) { s.dies(t, fourEyes, reasons...) }
}

// seeds are what is there before a walk of testdata/walks.yaml begins.
var seeds = map[string]func(*testing.T, *shop){
	"a customer is found, linked and unlinked": func(t *testing.T, s *shop) {
		s.credit(t, "o1", ledger.CustomerPoints("c1"), 2000, 22)
	},
	"an endpoint is kept, and its secret shown once": func(t *testing.T, s *shop) {
		s.commit(t, store.Create(dedupe.Key("one-queue", "default", "e1"), dedupe.Record{
			Identity: dedupe.Identity{
				Queue: "one-queue", Tenant: "default", EventID: "e1", EventType: "webhook_delivery", OrderingKey: "p:1",
			},
			Status: dedupe.Failed, Times: dedupe.Times{CreatedAt: noon},
			Tries: dedupe.Tries{Attempts: 1, Log: []dedupe.Attempt{
				{
					Number: 1, Begun: noon, Ended: noon.Add(1500 * time.Millisecond), Outcome: retry.Retry,
					Reason: "callee_failed_503",
				},
			}},
		}.Fields()))
	},
	"a month is closed and asked to be opened again": func(t *testing.T, s *shop) {
		s.sells(t, "default", "e1", "2026-10", 22)
	},
	"dead letters are grouped and filtered": func(t *testing.T, s *shop) {
		s.does(t, step{Asks: "/ops/dead-letters", Says: []string{"No dead letter is in this list."}})
		s.dies(t, false, append([]string{"rare"}, strings.Split(strings.Repeat("often ", 60), " ")[:60]...)...)
	},
	"the form of a replay says how many and what would happen":           dying(false, "a", "b", "b", "a"),
	"dead letters that are chosen are dealt with and the others are not": dying(false, "a", "a", "a", "a"),
	"an operation that needs a second person waits and is cancelled":     dying(true, "a", "a"),
	"the second person sees what the first has seen": func(t *testing.T, s *shop) {
		s.dies(t, true, "a", "b")
		s.does(t, step{
			Asks: "/ops/dead-letters/-/replay?queue={queue}",
			Says: []string{"a 1 b 1", "What a replay would do now", "credited", "{d0}", "{d1}"},
		},
			step{
				Asks: "/ops/dead-letters/-/replay?queue={queue}", Form: form("ticket 7", "expect", "2", "rate", "50"),
			})
		s.who = "bob"
	},
	"a queue shows how it stands and is paused": func(t *testing.T, s *shop) {
		s.dies(t, false, "product_unknown")
		s.works(t)
	},
	"a search leads to a page for each kind":                        shelve,
	"an account, a customer, a subscription and an order are shown": shelve,
	"the books are shown and verified":                              shelve,
	"a verification names what was changed": func(t *testing.T, s *shop) {
		shelve(t, s)
		storetest.Edit(t, s.store, ledger.Key(ledger.EntryID("acme", "s1")), func(fields map[string]any) {
			for i, side := range []string{"debit", "credit"} {
				fields["lines"].([]any)[i].(map[string]any)[side] = int64(1)
			}
		})
	},
	"the first page says that the last verification has found something": func(t *testing.T, s *shop) {
		shelve(t, s)
		storetest.Edit(t, s.store, ledger.Key(ledger.EntryID("acme", "s1")), func(fields map[string]any) {
			delete(fields, "kind")
		})
		require.NoError(t, filetest.ErrorOf((&seal.Watch{
			Verifier: seal.Verifier{From: s.store, Origins: sealtest.Trusting{}}, Store: s.store,
			Now: func() time.Time { return noon }, Report: func(seal.Finding) {},
		}).Step(t.Context())))
	},
}

func TestWhatPeopleSeeAndDoPageByPage(t *testing.T) {
	t.Parallel()
	for name, steps := range filetest.YAML[map[string][]step](t, "testdata", "walks.yaml") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, operationstest.Partner{})
			if seed := seeds[name]; seed != nil {
				seed(t, s)
			}
			s.does(t, steps...)
		})
	}
}

// {well} is a queue that does well, and {failing} one that fails, whose target has an open breaker.
func (s *shop) works(t *testing.T) {
	t.Helper()
	var target string
	for _, q := range s.catalog.Queues {
		of := ""
		for _, h := range q.Handlers {
			if len(h.Targets()) > 0 {
				of = h.Targets()[0]
			}
		}
		switch {
		case !q.Enabled || q.DeadLetter.Drop:
		case of != "":
			s.names["failing"], target = q.ID, of
		default:
			s.names["well"] = q.ID
		}
	}
	r := rates.NewRecorder(rates.Config{
		Store: s.store, Now: func() time.Time { return noon }, Self: rates.Service{Instance: "i1"},
		Breakers: func() []rates.Breaker {
			return []rates.Breaker{{Target: target, State: "open", Since: noon.Add(-time.Minute)}}
		},
	})
	for range 3 {
		r.Arrived(s.names["well"])
		r.Ended(s.names["well"], retry.Processed, 1)
	}
	r.Ended(s.names["failing"], retry.Retry, 1)
	r.Answered(target, 503, "callee_failed_503", 1234*time.Millisecond)
	require.NoError(t, r.Flush(t.Context()))
}

func shelve(t *testing.T, s *shop) {
	t.Helper()
	machine := filetest.Must(orderstest.Open(s.store))(t)
	created := orderstest.Created("e-order", "o1")
	require.NoError(t, filetest.ErrorOf(machine.Deliver(t.Context(), s.store, created, false)))
	paid := int64(999)
	record := dedupe.Record{
		Status: dedupe.Failed, Times: dedupe.Times{CreatedAt: noon}, Identity: dedupe.Identity{
			Queue: "one-queue", Tenant: dedupe.DefaultTenant, EventID: "e-last", EventType: "order.paid",
			OrderingKey: "auth0|u7",
			Customer:    contract.CustomerOf(dedupe.DefaultTenant, "c-7"),
		},
	}
	s.commit(t, store.Create(customers.Key("default", "c-7"),
		map[string]any{"tenant": "default", "customer_id": "c-7", "uid": "auth0|u7"}),
		subscriptions.Event{
			Tenant: "default", Subscription: "sub-1", EventID: "e-sub", EventType: "subscription.renewed",
			Status: "active", UID: "auth0|u7", Product: "p1", Customer: "c-7", Amount: &paid, Currency: "USD",
			OccurredAt: "2026-11-01T00:00:00Z",
		}.Write(),
		store.Create(dedupe.Key(record.Queue, record.Tenant, record.EventID), record.Fields()))
	s.credit(t, "r1", ledger.UserPoints("auth0|u7"), 100, 20)
	s.credit(t, "r2", ledger.UserPoints("auth0|u7"), 100, 21)
	for event, day := range map[string]int{"s1": 10, "s2": 20} {
		s.commit(t, sealtest.Record(t, "fis-ingestion", s.sells(t, "acme", event, "2026-11", day)[0]))
	}
	sealtest.Seal(t, s.store, sealtest.Trusting{}, noon)
	s.commit(t, sealtest.Record(t, "fis-ingestion", s.sells(t, "acme", "s3", "2026-11", 22)[0]))
	s.names["s1"] = url.PathEscape(ledger.EntryID("acme", "s1"))
}

func TestAnEndpointIsTestedForAsLongAsAPageMayTake(t *testing.T) {
	t.Parallel()
	for says, test := range map[string]struct {
		third  func(context.Context) (int, error)
		status int
	}{
		"Delivered yes": {func(context.Context) (int, error) { return 204, nil }, 200},
		"Status 503":    {func(context.Context) (int, error) { return 503, context.Canceled }, 200},
		"This has not ended within 4 seconds.": {
			func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, 503,
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			filetest.Bubble(t, func(t *testing.T) {
				openShop(t, operationstest.Partner{Answers: test.third}).does(t, step{
					Asks: "/ops/endpoints/-/add", Form: form("w", "url", "https://p.example/h", "id", "p"), Status: 200,
				},
					step{Asks: "/ops/endpoints/p/test", Form: form(""), Status: test.status, Says: []string{says}})
			})
		})
	}
}
