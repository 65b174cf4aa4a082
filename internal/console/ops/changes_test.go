package ops_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// step is a request of a person: its method and path, its body, and the code of its refusal, or else a part of its
// answer, in quotes.
type step struct{ asks, body, want string }

// Each kind of what people keep is changed, shown, refused and audited. What a change does is its own package's to
// show.
func TestWhatPeopleKeepIsChangedShownAndAudited(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"products": {
			{"GET products/hat", "", `"origin":"catalog"`},
			{"PUT products/new:1", `{"points":500,"why":"sold since today"}`, `"points":500`},
			{"PUT products/hat", `{"points":300,"why":"dearer"}`, `"points":300`},
			{"GET products/hat?tenant=acme", "", `"points":250`},
			{"PUT products/hat?tenant=a%2Fb", `{"points":7,"why":"w"}`, "tenant_invalid"},
			{"PUT products/hat", `{"points":400,"why":"w","expect":250}`, "changed"},
			{"DELETE products/hat", `{"why":"out of it","expect":300}`, `"state":"retired"`},
			{"GET products/hat", "", "product_retired"},
			{"GET products/hat/changes", "", `"before":{"origin":"store","points":300,"state":"active"}`},
			{"GET products/hat/changes", "", `"action":"retire","who":"local:ada","why":"out of it"`},
		},
		"stock": {
			{"GET stock/hat", "", "stock_unknown"},
			{"PUT stock/hat", `{"available":0,"why":"lost","expect":0}`, `"available":0`},
			{"PUT stock/hat", `{"available":7,"why":"found","expect":5}`, "changed"},
			{"PUT stock/hat", `{"why":"found"}`, "body_malformed"},
			{"PUT stock/hat?tenant=a%2Fb", `{"available":7,"why":"w"}`, "tenant_invalid"},
			{"GET stock/hat/changes", "", `"who":"local:ada","why":"lost"`},
		},
		"customers": {
			{"GET customers/c1", "", "customer_not_linked"},
			{"GET customers/c1/preview", "", `"guest_points":100`},
			{"PUT customers/c1", `{"uid":"u1","why":"ticket 7","expect":""}`, `"moved_points":100`},
			{"PUT customers/c1?force=1", `{"uid":"u2","why":"w"}`, "parameter_unknown"},
			{"PUT customers/c1", `{"uid":"u2","why":"w","expect":""}`, "customer_changed"},
			{"DELETE customers/c1?tenant=a%2Fb", `{"why":"w"}`, "tenant_invalid"},
			{"DELETE customers/c1", `{"why":"w","expect":"u7"}`, "customer_changed"},
			{"DELETE customers/c1", `{"why":"two people"}`, `"uid":""`},
			{"GET customers/c1", "", "customer_not_linked"},
			{"GET customers/c1/changes", "", `"who":"local:ada","why":"ticket 7"`},
			{"GET operations", "", `"items":[]`},
		},
		"endpoints": {
			{"POST endpoints", `{"id":"p:1","url":"https://p.example/h","events":["a.*"],"tenant":"t1","why":"partner"}`, `"secret":"whsec_`},
			{"POST endpoints", `{"id":"p:1","url":"https://p.example/h","why":"again"}`, "endpoint_exists"},
			{"POST endpoints", `{"id":"a b","url":"https://p.example/h","why":"w"}`, "refused"},
			{"POST endpoints/p:1/rotate", `{"why":"a year has passed"}`, `"secret":"whsec_`},
			{"POST endpoints/p:1/disable", `{"why":"they have asked"}`, `"state":"disabled"`},
			{"GET endpoints?state=disabled", "", `"id":"p:1"`},
			{"POST endpoints/p:1/test", "", `"status":204`},
			{"POST endpoints/q/rotate", `{"why":"w"}`, "endpoint_unknown"},
			{"DELETE endpoints/p:1", `{"why":"left"}`, `"id":"p:1"`},
			{"DELETE endpoints/p:1", `{"why":"left"}`, "endpoint_unknown"},
			{"GET endpoints/p:1/changes", "", `"action":"remove","who":"local:ada","why":"left"`},
		},
		"pauses": {
			{"POST queues/q:orders/pause", `{"why":"the books are closed"}`, `"queue":"orders"`},
			{"GET pauses", "", `"who":"local:ada","why":"the books are closed"`},
			{"GET queues", "", `"subscription":"unknown"`},
			{"POST queues/refunds/pause", `{"why":"w"}`, "refused"},
			{"POST queues/orders/resume", `{"why":"mended"}`, `"queue":"orders"`},
			{"GET pauses", "", `"items":[]`},
			{"GET queues/orders/changes", "", `"action":"resume","who":"local:ada","why":"mended"`},
		},
		"the books": {
			{"POST journal/periods/2026-03/close", `{"why":"w"}`, "period_not_over"},
			{"POST journal/periods/2026-02/close?tenant=a%2Fb", `{"why":"w"}`, "tenant_invalid"},
			{"POST journal/periods/2026-02/close", `{"why":"the books are done"}`, `"state":"clos`},
			{"POST journal/entries/e9/revert", `{"why":"w"}`, "entry_unknown"},
			{"POST journal/entries/e1/revert?tenant=a%2Fb", `{"why":"w"}`, "tenant_invalid"},
			{"POST journal/entries/e1/revert", `{"why":"booked twice"}`, `"reverts":"`},
			{"POST journal/entries/e1/revert", `{"why":"booked twice"}`, "entry_reverted"},
			{"GET journal/entries/e1", "", `"reverted_by":"`},
			{"GET audit?kind=period", "", `"who":"local:ada","why":"the books are done"`},
			{"GET audit?kind=entry", "", `"who":"local:ada","why":"booked twice"`},
		},
		"what messages alone change": {
			{"GET orders/o%3A1?tenant=default", "", `"state":"PaymentInitiated"`},
			{"GET orders/o2", "", `"reason":"out_of_stock"`},
			{"GET orders?state=OrderCancelled", "", `"items":[{"order_id":"o2"`},
			{"GET refunds/pay%3A1?tenant=shop", "", `"state":"refused"`},
			{"GET refunds?state=refused", "", `"items":[{"payment_id":"pay:1"`},
			{"GET usage/s:1", "", `"calls":{"used":85,"entries":1,"quota":100,"percent":85,"warned":80,"warning":{"emitted_by":"e80"}`},
			{"GET usage/s:2", "", `"period":"20260301T000000Z","start":"2026-03-01T00:00:00Z","end":"2026-04-01T00:00:00Z"`},
			{"GET subscriptions/s%3A1", "", `"status":"canceled"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			r.credit(t, "default", "e1", "o1", ledger.CustomerPoints("c1"), 100, 0)
			r.enter(t, sale("default", "e1", "2026-03", 100))
			r.order(t, "e-o1", "o:1")
			r.order(t, "e-o2", "o2", "hat 1")
			r.commit(t, used(usage.Total{Tenant: "default", Subscription: "s:1", Meter: "calls", Used: 85, Quota: 100, Warned: 80, WarnedBy: "e80"})...)
			told, _ := usage.Tell(usage.Told{Tenant: "default", Subscription: "s:2", EventID: "e", At: at, Start: "2026-03-01T00:00:00Z", End: "2026-04-01T00:00:00Z"})
			subscribed := func(event, status, day string) store.Write {
				return subscriptions.Event{Tenant: "default", Subscription: "s:1", EventID: event, Status: status, Product: "p", Customer: "c", UID: "u", OccurredAt: day + "T00:00:00Z", RecordedAt: at}.Write()
			}
			r.commit(t, told, refund("shop", "pay:1", payments.Refused, 0), subscribed("b", "active", "2026-03-01"), subscribed("a", "canceled", "2026-03-02"))
			for _, s := range steps {
				method, path, _ := strings.Cut(s.asks, " ")
				got := r.send(t, method, "/v1/ops/"+path, s.body)
				if strings.Contains(s.want, `"`) {
					require.Less(t, got.Code, 300, "%s %s: %s", s.asks, s.body, got.Body)
					require.Contains(t, got.Body.String(), s.want, s.asks)
					continue
				}
				require.Equal(t, s.want, codeOf(got.Body.String()), "%s %s: %s", s.asks, s.body, got.Body)
				require.NotContains(t, got.Body.String(), "p.example")
			}
			for _, secret := range []string{"whsec_", "p.example", "ilse", "dearer", "ticket"} {
				require.NotContains(t, r.log.String(), secret, "reasons are for the audit, and addresses and secrets for nobody")
			}
			require.NotContains(t, r.get(t, "audit", nil), "whsec_")
		})
	}
}

func TestTheAuditIsOfAllKindsTheNewestFirstWithOperations(t *testing.T) {
	t.Parallel()
	r := open(t)
	ago := func(minutes int) time.Time { return at.Add(-time.Duration(minutes) * time.Minute) }
	for n, e := range []audit.Entry{
		{Kind: "product", Subject: "hat", Action: "set", Who: "ada", Why: "w", At: ago(4)},
		{Kind: "queue", Subject: "orders", Action: "pause", Who: "bob", Why: "w", At: ago(3)},
		{Kind: "product", Subject: "hat", Action: "retire", Who: "ada", Why: "w", At: ago(1)},
		{Kind: deadletter.AuditKind, Subject: "op-1", Action: "cancel", Who: "bob", Why: "w", At: ago(0)},
	} {
		write, err := e.Write(fmt.Sprint("r", n))
		require.NoError(t, err)
		r.commit(t, write)
	}
	op := deadletter.Operation{Kind: deadletter.Replay, Filter: deadletter.Filter{Queue: "orders"}, Who: "ada", Why: "w", Rate: 50, Progress: deadletter.Cancelled, ApprovedBy: "eve", CreatedAt: ago(2)}
	r.commit(t, store.Create(store.Key{Collection: audit.Collection, ID: "op-1"}, store.Encode(&op)))
	for query, want := range map[string][]string{
		"":                               {"cancel", "retire", "replay", "pause", "set"},
		"kind=product":                   {"retire", "set"},
		"kind=moon":                      nil,
		"kind=operation":                 {"cancel", "replay"},
		"subject=op-1":                   {"cancel", "replay"},
		"subject=op-1&limit=1":           {"cancel", "replay"},
		"who=ada":                        {"retire", "replay", "set"},
		"who=ada&limit=1":                {"retire", "replay", "set"},
		"subject=op-1&who=bob":           {"cancel"},
		"since=2m":                       {"cancel", "retire", "replay"},
		"until=1m":                       {"replay", "pause", "set"},
		"since=3m&until=1m&subject=op-1": {"replay"},
		"until=2m&subject=op-1":          nil,
	} {
		require.Equal(t, want, r.all(t, "audit?"+query, "action"), query)
	}
}

// TestAnOperationOfTwoPeopleIsApprovedByAnIdentityThatHasSeenIt: the API, with a token, an identity, and one whose
// address begins with the word token.
func TestAnOperationOfTwoPeopleIsApprovedByAnIdentityThatHasSeenIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, ops.Access{Tokens: []string{token}, Identifier: identities{}})
	r.fourEyes = true
	r.bury(t, queues.Queues[0], "e1", "101", `{"payment_id":"p1","amount":1250}`)
	by := func(who string) func(*http.Request) {
		return func(request *http.Request) {
			if request.RemoteAddr = far; who == "token" {
				request.Header.Set("Authorization", "Bearer "+token)
			} else {
				request.Header.Set("X-Test-Identity", who)
			}
		}
	}
	refused := func(who, path, body string, status int, code string) {
		t.Helper()
		r.refuses(t, http.MethodPost, "/v1/ops/"+path, body, status, code, by(who))
	}
	const replay = `{"queue":"orders","expect":1,"why":"the product is set"}`
	refused("token", "dead-letters/replay", replay, http.StatusForbidden, "identity_needed")
	refused("token", "dead-letters/complete", replay, http.StatusForbidden, "identity_needed")
	answer := r.send(t, http.MethodPost, "/api/v1/events/dead-letter/e1/retry", "", by("token"))
	require.Equal(t, http.StatusForbidden, answer.Code, "as any other way")

	var first, second ops.Preview
	r.does(t, http.MethodGet, "/v1/ops/dead-letters/preview?queue=orders", "", &first, by("ada"))
	var op deadletter.Operation
	r.does(t, http.MethodPost, "/v1/ops/dead-letters/replay", replay, &op, by("ada"))
	require.Equal(t, []any{deadletter.Waiting, "ada@example.org"}, []any{op.Progress, op.Who})
	path := "operations/" + op.ID
	r.does(t, http.MethodGet, "/v1/ops/"+path+"/preview", "", &second, by("token-desk"))
	require.Equal(t, first, second, "the second person sees what the first has seen")
	require.JSONEq(t, `{"payment_id":"p1","amount":1250}`, string(second.Items[0].Trial.Calls[0].Body))

	refused("token", path+"/approve", `{"why":"checked","expect":1}`, http.StatusForbidden, "identity_needed")
	refused("ada", path+"/approve", `{"why":"checked","expect":1}`, http.StatusUnprocessableEntity, "second_person_needed")
	refused("token-desk", path+"/approve", `{"why":"checked"}`, http.StatusConflict, "changed")
	r.does(t, http.MethodPost, "/v1/ops/"+path+"/approve", `{"why":"checked","expect":1}`, &op, by("token-desk"))
	require.Equal(t, []any{deadletter.Running, "token-desk@example.org", "checked"}, []any{op.Progress, op.ApprovedBy, op.ApprovedWhy})

	// Months take the same two.
	const month, why = "journal/periods/2026-02", `{"why":"the books are done"}`
	r.does(t, http.MethodPost, "/v1/ops/"+month+"/close", why, nil, by("token"))
	refused("token", month+"/reopen", why, http.StatusForbidden, "identity_needed")
	r.does(t, http.MethodPost, "/v1/ops/"+month+"/reopen", why, nil, by("ada"))
	refused("ada", month+"/reopen", why, http.StatusUnprocessableEntity, "second_person_needed")
	require.Contains(t, r.does(t, http.MethodPost, "/v1/ops/"+month+"/reopen", why, nil, by("token-desk")), `"state":"open"`)
}

func TestDeadLettersAreFoundCountedAndDealtWithByTheirIDs(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, inStore(dead("orders", "d1", "r", time.Minute)), inStore(dead("refunds", "d2", "r", 2*time.Minute)), inStore(dead("orders", "d5", "r", time.Minute)),
		inStore(dead("refunds", "d3", "s", 3*time.Minute)), inStore(dead("refunds", "d4", "r", 4*time.Minute)))
	for _, name := range []string{"orders", "q:orders", "orders-dlq", "orders.exchange"} {
		require.Equal(t, []string{"d5", "d1"}, r.all(t, "dead-letters?queue="+name, "id"), name)
	}
	require.Equal(t, []string{"d5", "d1", "d2", "d3", "d4"}, r.all(t, "dead-letters?limit=3", "id"))
	require.Equal(t, []string{"d3"}, r.all(t, "dead-letters?reason=s", "id"))
	for query, want := range map[string][]string{"": {"2", "2", "1"}, "?queue=q:orders&key=u1": {"2"}, "?since=90s": {"2"}} {
		require.Equal(t, want, r.all(t, "dead-letters/reasons"+query, "count"), query)
	}
	var preview deadletter.Preview
	r.get(t, "dead-letters/preview?queue=refunds&items=d2,d3,d9", &preview)
	require.Equal(t, map[string]int{"r": 1, "s": 1}, preview.ByReason)
	r.get(t, "dead-letters/preview?queue=orders&since=30s", &preview)
	require.Zero(t, preview.Total)

	for body, code := range map[string]string{
		`{"queue":"nobody","expect":1,"why":"x"}`: "queue_unknown", `{"queue":"orders","expect":1,"why":"x"}`: "changed", `{"queue":"orders","reason":"none","expect":0,"why":"x"}`: "refused",
	} {
		got := r.send(t, http.MethodPost, "/v1/ops/dead-letters/discard", body)
		require.Equal(t, code, codeOf(got.Body.String()), body)
	}
	var op ops.Operation
	r.does(t, http.MethodPost, "/v1/ops/dead-letters/discard", `{"queue":"orders-dlq","items":["d1"],"expect":1,"why":"a test order"}`, &op)
	r.does(t, http.MethodPost, "/v1/ops/operations/"+op.ID+"/run", "", nil)
	require.Equal(t, []string{"d5"}, r.all(t, "dead-letters?queue=orders", "id"))
	require.Equal(t, []string{"d1"}, r.all(t, "operations/"+op.ID+"/items?state=discarded", "id"))
	require.Equal(t, []string{"a test order"}, r.all(t, "operations?progress=finished", "why"))
	r.fourEyes = true
	r.does(t, http.MethodPost, "/v1/ops/dead-letters/replay", `{"queue":"orders","expect":1,"why":"w"}`, &op)
	r.does(t, http.MethodPost, "/v1/ops/operations/"+op.ID+"/cancel", `{"why":"the wrong one"}`, nil)
	r.get(t, "operations/"+op.ID, &op)
	require.Equal(t, []any{deadletter.Cancelled, "local:ada", "the wrong one"}, []any{op.Progress, op.EndedBy, op.EndedWhy})
	require.NotNil(t, op.Outcomes)
}

func TestATrialIsOfAnEventOrOfAMessage(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.bury(t, queues.Queues[0], "e1", "101", `{"payment_id":"p1"}`)
	for body, want := range map[string]string{
		`{"event_id":"e1"}`: "", `{"queue":"orders","message":{"data":{"a":1}}}`: "", `{"queue":"orders","message":{"data_base64":"e30="}}`: "",
		`{}`: "body_malformed", `{"event_id":"e1","message":{}}`: "body_malformed", `{"message":{}}`: "body_malformed", `{"queue":"orders","tenant":"t","message":{}}`: "body_malformed",
		`{"event_id":"a b"}`: "event_id_invalid", `{"event_id":"e9"}`: "payload_not_kept", `{"event_id":"e1","queue":"nobody"}`: "queue_unknown",
	} {
		got := r.send(t, http.MethodPost, "/v1/ops/events/try", body)
		require.Equal(t, want, codeOf(got.Body.String()), "%s: %s", body, got.Body)
		require.Equal(t, want == "", json.Valid(got.Body.Bytes()) && got.Code == http.StatusOK, body)
	}
}
