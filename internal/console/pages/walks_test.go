package pages_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

type walkthrough struct {
	seed  func(*testing.T, *shop)
	steps []step
}

var walks = map[string]walkthrough{
	"a product is set and retired": {steps: []step{
		{asks: "/ops/products", says: []string{`href="/ops/products/hat"`, "250", "catalog"}},
		{asks: "/ops/products?id=scarf", says: []string{"Neither the catalog nor the store", `href="/ops/products/scarf/set"`}},
		{asks: "/ops/products/hat/set", says: []string{"Points 250", `name="expect" value="0"`, "Set product hat"}},
		{asks: "/ops/products/hat/set", form: form("ticket 7", "points", "1000", "expect", "{seen}"), says: []string{"Points 1,000", "ticket 7", "origin catalog, points 250, state active"}},
		{asks: "/ops/products/hat/set", form: form("ticket 8", "points", "1200", "expect", "{seen}"), status: 409,
			says: []string{"Somebody has changed it meanwhile", `value="1200"`, "ticket 8</textarea>", `!name="expect" value="0"`}},
		{asks: "/ops/products/hat/set", form: form("w", "points", "many", "expect", "{seen}"), status: 422},
		{asks: "/ops/products/hat/retire", form: form("sold out", "expect", "{seen}"), says: []string{"The product is retired"}},
		{asks: "/ops/products/scarf", says: []string{"Neither the catalog nor the store has", "Nobody has changed it yet."}},
		{asks: "/ops/products/scarf/set", says: []string{`!name="expect"`}},
		{asks: "/ops/products/scarf/set", form: form("sold since today", "points", "5", "expect", "0"), says: []string{"Points 5"}},
	}},
	"a customer is found, linked and unlinked": {seed: func(t *testing.T, s *shop) {
		s.credit(t, "o1", ledger.CustomerPoints("c1"), 2000, 22)
	}, steps: []step{
		{asks: "/ops/customers", says: []string{"No customer is linked to a user."}},
		{asks: "/ops/customers?id=+c1+", says: []string{"linked to nobody", "Guest points 2,000", `href="/ops/customers/c1/link"`, "!/unlink"}},
		{asks: "/ops/customers/c1/link", form: form("ticket 7", "uid", " user_42"), says: []string{"User user_42", "Moved points 2,000", "ticket 7", "/unlink"}},
		{asks: "/ops/customers", says: []string{`href="/ops/customers/c1"`, `href="/ops/search?q=user_42"`}},
		{asks: "/ops/customers/c1/link", form: form("ticket 8", "uid", "user_43", "expect", "0"), status: 409, says: []string{`!name="expect" value="0"`}},
		{asks: "/ops/customers/c1/unlink", form: form("two people", "expect", "{seen}"), says: []string{"linked to nobody"}},
		{asks: "/ops/customers?id=c%2F1", status: 422},
	}},
	"an endpoint is kept, and its secret shown once": {seed: func(t *testing.T, s *shop) {
		s.commit(t, store.Create(dedupe.Key("one-queue", "default", "e1"), dedupe.Record{
			Identity: dedupe.Identity{Queue: "one-queue", Tenant: "default", EventID: "e1", EventType: "webhook_delivery", OrderingKey: "p:1"},
			Status:   dedupe.Failed, Times: dedupe.Times{CreatedAt: noon}, Tries: dedupe.Tries{Attempts: 1, Log: []dedupe.Attempt{
				{Number: 1, Begun: noon, Ended: noon.Add(1500 * time.Millisecond), Outcome: retry.Retry, Reason: "callee_failed_503"},
			}},
		}.Fields()))
	}, steps: []step{
		{asks: "/ops/endpoints/-/add", form: form("", "url", "https://partner.example.com/hooks", "events", "invoice.* , order.paid"), status: 422, says: []string{"invoice.* , order.paid"}},
		{asks: "/ops/endpoints/-/add", form: form("contract 12", "url", "https://partner.example.com/hooks", "events", "invoice.* , order.paid", "id", "p:1"), status: 200, says: []string{"whsec_id-1"}},
		{asks: "/ops/endpoints/-/add", form: form("contract 12", "url", "https://partner.example.com/hooks", "id", "p:1"), status: 409, says: []string{"!whsec_"}},
		{asks: "/ops/endpoints/p:1/rotate", form: form("a year has passed"), status: 200, says: []string{"whsec_", "!whsec_id-1<"}},
		{asks: "/ops/endpoints/p:1", says: []string{
			"<h1>Endpoint p:1</h1>", "partner.example.com", "!whsec_", "/p:1/disable", "!/p:1/enable", "FAILED – 1 callee_failed_503 1,500",
			"0 of 1 attempts succeeded (0 %). An attempt took 1500 ms in the median", `href="/ops/events/e1?queue=one-queue`,
		}},
		{asks: "/ops/endpoints/p:1/rotate", says: []string{"!whsec_"}},
		{asks: "/ops/endpoints", says: []string{"invoice.*, order.paid", `href="/ops/endpoints/p:1"`, "!whsec_"}},
		{asks: "/ops/endpoints/p:1/disable", form: form("they have asked"), says: []string{"disabled", "by_hand", "they have asked"}},
		{asks: "/ops/endpoints?state=failing", says: []string{"No endpoint is in this list."}},
		{asks: "/ops/endpoints/p:1/enable", form: form("mended"), says: []string{"enabled</span>"}},
		{asks: "/ops/endpoints/p:1/rm", form: form("the contract has ended"), says: []string{"!p:1"}},
		{asks: "/ops/endpoints/p:1", status: 404},
	}},
	"a month is closed and asked to be opened again": {seed: func(t *testing.T, s *shop) {
		s.sells(t, "default", "e1", "2026-10", 22)
	}, steps: []step{
		{asks: "/ops/journal/periods", says: []string{"2026-11 open"}},
		{asks: "/ops/journal/periods/2026-10", says: []string{"12.50", "-12.50", `href="/ops/journal/periods/2026-10/close"`, "!/reopen", "1 entries that are not sealed yet"}},
		{asks: "/ops/journal/periods/2026-10/close?tenant=default", form: form("the books are done"), says: []string{"the books are done", "2026-10 takes entries until"}},
		{asks: "/ops/journal/periods", says: []string{"closing</span>"}},
		{asks: "/ops/journal/periods/2026-10/reopen", form: form("an invoice came late"), says: []string{"an invoice came late"}},
		{asks: "/ops/journal/periods/2026-10/reopen", says: []string{"2026-10 opens again when a second person asks for it, after local:ada."}},
	}},
	"dead letters are grouped and filtered": {seed: func(t *testing.T, s *shop) {
		s.does(t, step{asks: "/ops/dead-letters", says: []string{"No dead letter is in this list."}})
		s.dies(t, false, append([]string{"rare"}, strings.Split(strings.Repeat("often ", 60), " ")[:60]...)...)
	}, steps: []step{
		{asks: "/ops/dead-letters", says: []string{"Open, by reason", ">often</a>", "1 of {queue} have other reasons.", ">60</td>", `rel="next"`, "Name one queue", `!type="checkbox"`, "!{d0}"}},
		{asks: "/ops/dead-letters?queue={queue}&reason=rare", says: []string{
			"{d0}", `value="rare"`, "Choose dead letter {d0}", "/ops/dead-letters/-/replay?queue={queue}&amp;reason=rare", "all that match", "!{d1}",
		}},
		{asks: "/ops/dead-letters?queue={queue}&key=%20u1%20", says: []string{"{d1}"}},
		{asks: "/ops/dead-letters?state=all", status: 400, says: []string{"Of all queues the list has one state"}},
		{asks: "/ops/dead-letters/{d0}", says: []string{"It could not be handled: rare; Billhook gave up on", `href="/ops/events/e0?queue={queue}"`, "Nobody has dealt with it.", "/payload\""}},
	}},
	"the form of a replay says how many and what would happen": {seed: func(t *testing.T, s *shop) { s.dies(t, false, "a", "b", "b", "a") }, steps: []step{
		{asks: "/ops/dead-letters/-/replay?queue={queue}", says: []string{
			"Replay 4 dead letters of {queue}", `name="expect" value="4"`, "a 2 b 2", "credited", `name="rate"`, "required", "Each was tried just now", `status-ok">processed`,
		}},
		{asks: "/ops/dead-letters/-/replay?queue={queue}&chosen=yes&items={d0}&items={d2}&items=gone", says: []string{"Replay 2 dead letters", "3 chosen"}},
		{asks: "/ops/dead-letters/-/complete?queue={queue}", says: []string{"Complete by hand 4 dead letters", "they stay on record"}},
		{asks: "/ops/dead-letters/-/discard?queue={queue}", says: []string{"Discard 4 dead letters"}},
		{asks: "/ops/dead-letters/-/replay?queue={queue}&chosen=yes", status: 422, says: []string{"Choose at least one", `href="/ops/dead-letters?queue={queue}"`}},
		{asks: "/ops/dead-letters/-/replay?queue={queue}&reason=none", says: []string{"No open dead letter matches any more."}},
		{asks: "/ops/dead-letters/-/replay?queue={queue}&since=90s", says: []string{"Replay 2 dead letters", `name="since" value="2026-11-22T11:58:30Z"`}},
		{asks: "/ops/dead-letters/-/replay?queue={queue}", form: form("ticket 7", "expect", "3", "rate", "50"), status: 409, says: []string{"4 items match now, not 3", `name="expect" value="4"`}},
	}},
	"dead letters that are chosen are dealt with and the others are not": {seed: func(t *testing.T, s *shop) { s.dies(t, false, "a", "a", "a", "a") }, steps: []step{
		{asks: "/ops/dead-letters/-/replay?queue={queue}&chosen=yes&items={d0}&items={d2}", form: form("the product is set", "expect", "2", "rate", "50"),
			says: []string{"finished", "2 of 2 done", "the product is set", "2 chosen", "still wait", "{d0}", "{d2}", "!{d1}", "data-refresh"}},
		{asks: "/ops/operations", says: []string{`href="{at}"`, "finished"}},
		{asks: "{at}?state=open", says: []string{"It has changed no dead letter"}},
		{asks: "/ops/dead-letters/{d0}", says: []string{"replayed", `href="{at}"`, "the product is set"}},
		{asks: "/ops/dead-letters/{d3}", says: []string{"/ops/dead-letters/-/complete?items=", `href="/ops/runbooks/dead-letters"`}},
		{asks: "/ops/dead-letters/-/complete?queue={queue}&items={d3}", form: form("paid back at the counter", "expect", "1"), says: []string{"Complete by hand: 1 dead letter of {queue}", "1 of 1 done"}},
		{asks: "/ops/dead-letters/-/discard?queue={queue}", form: form("a test", "expect", "1"), says: []string{"1 of 1 done", "!data-refresh"}},
		{asks: "/ops/dead-letters?queue={queue}&state=discarded", says: []string{"{d1}"}},
	}},
	"an operation that needs a second person waits and is cancelled": {seed: func(t *testing.T, s *shop) { s.dies(t, true, "a", "a") }, steps: []step{
		{asks: "/ops/dead-letters/-/replay?queue={queue}", says: []string{"need a second person"}},
		{asks: "/ops/dead-letters/-/replay?queue={queue}", form: form("ticket 7", "expect", "2", "rate", "50"),
			says: []string{"waits for a second person", "0 of 2 done", "You have requested it", "!/approve"}},
		{asks: "/ops/operations?progress=waiting_for_approval", says: []string{`href="{at}"`}},
		{asks: "{at}/approve", form: form("checked", "expect", "2"), status: 422, says: []string{"somebody else has to approve it"}},
		{asks: "{at}/cancel", form: form("the wrong one"), says: []string{"cancelled", "the wrong one"}},
		{asks: "{at}/reject", form: form("w"), status: 422},
		{asks: "{at}/run", form: form(""), says: []string{"cancelled"}},
	}},
	"the second person sees what the first has seen": {seed: func(t *testing.T, s *shop) {
		s.dies(t, true, "a", "b")
		s.does(t, step{asks: "/ops/dead-letters/-/replay?queue={queue}", says: []string{"a 1 b 1", "What a replay would do now", "credited", "{d0}", "{d1}"}},
			step{asks: "/ops/dead-letters/-/replay?queue={queue}", form: form("ticket 7", "expect", "2", "rate", "50")})
		s.who = "bob"
	}, steps: []step{
		{asks: "{at}", says: []string{"{at}/approve"}},
		{asks: "{at}/approve", says: []string{"a 1 b 1", "What a replay would do now", "credited", "{d0}", "{d1}", "ticket 7", "local:ada", `name="expect" value="2"`, `name="why"`}},
		{asks: "{at}/approve", form: form("checked", "expect", "3"), status: 409},
		{asks: "{at}/approve", form: form("checked", "expect", "2"), says: []string{"finished", "local:ada", "Approved by local:bob", "Approved why checked"}},
	}},
	"a queue shows how it stands and is paused": {seed: func(t *testing.T, s *shop) {
		s.dies(t, false, "product_unknown")
		s.works(t)
	}, steps: []step{
		{asks: "/ops/", says: []string{
			"of target", "3 in, 3 out, 0 % failed", "Attempts an hour from 2026-11-21 13:00:00 UTC until now, each chart from 0 to 3", `aria-label="The last 24 hours: about 3 in, 3 out, 0 % of attempts failed; 0 to 3 attempts an hour"`, `<rect class="plot-done" x="23" width=".75" height="3"/>`, "!style=", `href="/ops/queues/{well}"`,
		}},
		{asks: "/ops/queues/{failing}", says: []string{
			"breaker open", "callee_failed_503", "1234 ms", `href="/ops/runbooks/push-failures"`, "Attempts an hour, the last 24 hours processed failed 1 0", "2026-11-21 13:00:00 UTC 2026-11-22 12:00:00 UTC", "1 attempts failed and follow again; 100 % of the attempts failed", "/ops/queues/{failing}/pause",
		}},
		{asks: "/ops/queues/{queue}", says: []string{"product_unknown"}},
		{asks: "/ops/queues/nobody", status: 404},
		{asks: "/ops/queues/{failing}/pause", says: []string{"Pause queue {failing}"}},
		{asks: "/ops/queues/{failing}/pause", form: form("the target is mended"), says: []string{"the target is mended", "Resume {failing}"}},
		{asks: "/ops/queues/{failing}/resume", says: []string{"This worker may not change subscriptions"}},
		{asks: "/ops/queues/{failing}/resume", form: form("it works again"), says: []string{"!paused since"}},
	}},
	"a search leads to a page for each kind": {seed: shelve, steps: []step{
		{asks: "/ops/search?q=o1", says: []string{"Order o1"}},
		{asks: "/ops/search?q=+%27c-7%27+", says: []string{`href="/ops/customers/c-7?tenant=default"`, `href="/ops/subscriptions/sub-1?tenant=default"`}},
		{asks: "/ops/search?q=auth0%7Cu7", says: []string{`href="/ops/accounts/points:user:auth0%7Cu7?tenant=default"`, `href="/ops/events/e-last?queue=one-queue&amp;tenant=default"`}},
		{asks: "/ops/search?q=s1", says: []string{`href="/ops/journal/entries/{s1}?tenant=acme"`}},
		{asks: "/ops/search?q=nobody", says: []string{"Nothing has this id: nobody"}},
		{asks: "/ops/search", says: []string{"It takes the id of an event"}},
		{asks: "/ops/search?q=cash&tenant=acme", says: []string{"cash", "2026-11"}},
		{asks: "/ops/search?q=two+ids", status: 400, says: []string{"one id at a time"}},
	}},
	"an account, a customer, a subscription and an order are shown": {seed: shelve, steps: []step{
		{asks: "/ops/accounts/points:user:auth0%7Cu7", says: []string{"Holder auth0|u7 Balance 200 points", `href="/ops/search?q=auth0%7Cu7`, `name="as_of"`, "r2 credit e-r2 2026-11-21 09:00:00 UTC 100 points 200 points", "r1 credit e-r1 2026-11-20 09:00:00 UTC 100 points 100 points"}},
		{asks: "/ops/accounts/points:user:auth0%7Cu7?as_of=2026-11-20", says: []string{"Balance 100 points", "Before 2026-11-21 00:00:00 UTC", "!e-r2"}},
		{asks: "/ops/accounts/cash?tenant=acme&from=2026-10&to=2026-11", says: []string{"<h1>Account statement cash</h1>", "EUR: opening 0.00, closing 37.50", "s1", "s2"}},
		{asks: "/ops/accounts/points:issued:o1?tenant=acme", says: []string{"<h1>Account statement points:issued</h1>"}},
		{asks: "/ops/customers/c-7?tenant=default", says: []string{
			"<h1>Customer c-7</h1>", "None yet What their events moved, dead letters, orders, refunds.", `class="warning"`, "User auth0|u7", "Needs a person: event e-last, order.paid, has failed", "e-last one-queue FAILED", "Nobody has changed it yet.", `href="/ops/search?q=auth0%7Cu7`, `href="/ops/subscriptions/sub-1`,
		}},
		{asks: "/ops/customers/nobody", says: []string{"linked to nobody", `href="/ops/customers/nobody/link"`}},
		{asks: "/ops/subscriptions", says: []string{`href="/ops/subscriptions/sub-1"`, "active"}},
		{asks: "/ops/subscriptions/sub-1", says: []string{"State active", "e-sub subscription.renewed active 2026-11-01 00:00:00 UTC", "9.99 USD", "Nothing was used in period 2026-11."}},
		{asks: "/ops/subscriptions/none", says: []string{"No event of a subscription of that id has come.", "Period 2026-11"}},
		{asks: "/ops/usage/none/entries?meter=calls&period=2026-11", says: []string{"No usage event came in this period. Services send usage_tracking."}},
		{asks: "/ops/orders/o1", says: []string{"State PaymentInitiated", "OrderCreated 2026-03-02 12:00:00 UTC e-order", "PaymentInitiated 2026-03-02 12:00:00 UTC e-order"}},
		{asks: "/ops/orders", says: []string{"o1 PaymentInitiated"}},
		{asks: "/ops/orders/o2", status: 404, says: []string{"No order of that id has been seen."}},
	}},
	"the books are shown and verified": {seed: shelve, steps: []step{
		{asks: "/ops/journal?tenant=acme", says: []string{"cash asset EUR 0.00 37.50 0.00 37.50", "Total – EUR 0.00 37.50 37.50 0.00", "Summed up to seal 1, and 1 entries that are not sealed yet"}},
		{asks: "/ops/journal/balances.csv?tenant=acme&from=2026-10&to=2026-11", says: []string{"acme,2026-10/2026-11,cash,asset,EUR,0.00,37.50,0.00,37.50"}},
		{asks: "/ops/journal?tenant=nobody", says: []string{"The books of nobody have nothing up to 2026-11."}},
		{asks: "/ops/journal/entries?tenant=acme", says: []string{"s1", "debit 12.50 EUR, cash", "credit 12.50 EUR, revenue"}},
		{asks: "/ops/journal/entries/s1?tenant=acme", says: []string{"Rule sale", "Seal 1", "cash EUR 12.50 0.00", "/revert?tenant=acme", "/proof?tenant=acme"}},
		{asks: "/ops/journal/entries/s3?tenant=acme", says: []string{"It is not sealed yet", "!/proof"}},
		{asks: "/ops/journal/entries/s1/proof?tenant=acme", says: []string{"billhook ledger check-proof", "s1"}},
		{asks: "/ops/journal/verify?tenant=acme", says: []string{"<h1>Verify the books</h1>", "Seals 1 Sealed entries 2 Entries without a seal 1", "The books verify: nothing was found."}},
		{asks: "/ops/journal/verify", says: []string{"The books verify: nothing was found."}},
	}},
}

func TestWhatPeopleSeeAndDoPageByPage(t *testing.T) {
	t.Parallel()
	filetest.Each(t, walks, func(t *testing.T, walk walkthrough) {
		s := openShop(t, operationstest.Partner{})
		if walk.seed != nil {
			walk.seed(t, s)
		}
		s.does(t, walk.steps...)
	})
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
	record := dedupe.Record{Status: dedupe.Failed, Times: dedupe.Times{CreatedAt: noon}, Identity: dedupe.Identity{
		Queue: "one-queue", Tenant: dedupe.DefaultTenant, EventID: "e-last", EventType: "order.paid", OrderingKey: "auth0|u7",
		Customer: contract.CustomerOf(dedupe.DefaultTenant, "c-7"),
	}}
	s.commit(t, store.Create(customers.Key("default", "c-7"), map[string]any{"tenant": "default", "customer_id": "c-7", "uid": "auth0|u7"}),
		subscriptions.Event{Tenant: "default", Subscription: "sub-1", EventID: "e-sub", EventType: "subscription.renewed", Status: "active", UID: "auth0|u7", Product: "p1", Customer: "c-7", Amount: &paid, Currency: "USD", OccurredAt: "2026-11-01T00:00:00Z"}.Write(),
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
		"Delivered yes":                        {func(context.Context) (int, error) { return 204, nil }, 200},
		"Status 503":                           {func(context.Context) (int, error) { return 503, context.Canceled }, 200},
		"This has not ended within 4 seconds.": {func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, 503},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				openShop(t, operationstest.Partner{Answers: test.third}).does(t, step{asks: "/ops/endpoints/-/add", form: form("w", "url", "https://p.example/h", "id", "p"), status: 200},
					step{asks: "/ops/endpoints/p/test", form: form(""), status: test.status, says: []string{says}})
			})
		})
	}
}

func TestAVerificationNamesWhatWasChanged(t *testing.T) {
	t.Parallel()
	s := openShop(t, operationstest.Partner{})
	shelve(t, s)
	doc := storetest.Get(t, s.store, ledger.Key(ledger.EntryID("acme", "s1")))
	for i, side := range []string{"debit", "credit"} {
		line, _ := doc.Fields["lines"].([]any)[i].(map[string]any)
		line[side] = int64(1)
	}
	s.commit(t, store.Set(doc.Key, doc.Fields))
	s.does(t, step{asks: "/ops/journal/verify?tenant=acme", says: []string{"The books do not verify: 1 findings.", "changed acme entries/" + ledger.EntryID("acme", "s1")}})
	delete(doc.Fields, "kind")
	s.commit(t, store.Set(doc.Key, doc.Fields))
	// The daily verification finds it, too, and the first page says so.
	_, err := (&seal.Watch{
		Verifier: seal.Verifier{From: s.store, Origins: sealtest.Trusting{}}, Store: s.store, Now: func() time.Time { return noon }, Report: func(seal.Finding) {},
	}).Step(t.Context())
	require.NoError(t, err)
	s.does(t, step{asks: "/ops/journal/entries/s1?tenant=acme", says: []string{"was changed after it was sealed, and cannot be read any more."}},
		step{asks: "/ops/", says: []string{"The books do not verify: 1 findings in the verification of", `href="/ops/journal/verify?tenant=acme"`}})
}
