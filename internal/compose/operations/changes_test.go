package operations_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/payments"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/compose/operations"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

const registered = `POST /v1/ops/endpoints {"id":"orders","url":"https://p.example","why":"before"}`

// first are the requests before a route can change something: method, path and body.
var first = map[string][]string{
	"DELETE /v1/ops/products/{id}":        {`PUT /v1/ops/products/orders {"points":5,"why":"before"}`},
	"DELETE /v1/ops/customers/{id}":       {`PUT /v1/ops/customers/orders {"uid":"u1","why":"before"}`},
	"DELETE /v1/ops/endpoints/{id}":       {registered},
	"POST /v1/ops/endpoints/{id}/rotate":  {registered},
	"POST /v1/ops/endpoints/{id}/disable": {registered},
	"POST /v1/ops/endpoints/{id}/enable": {
		registered, `POST /v1/ops/endpoints/orders/disable {"why":"before"}`,
	},
	"POST /v1/ops/queues/{id}/resume": {`POST /v1/ops/queues/orders/pause {"why":"before"}`},
	"POST /v1/ops/journal/periods/{period}/reopen": {
		`POST /v1/ops/journal/periods/2026-02/close {"why":"before"}`,
	},
}

// shelf is a rig with a document of the id orders of each kind.
func shelf(t *testing.T) *rig {
	t.Helper()
	r, letter := open(t), dead("orders", "orders", "r", time.Minute)
	letter.EventID, letter.Data, letter.Attributes = "orders", []byte(`{"a":1}`),
		map[string]string{"event_id": "orders"}
	op := bulk.Operation{
		Kind: deadletter.Replay, Filter: bulk.Filter{Queue: "orders"}, Who: "ilse", Why: "w", Total: 1, Rate: 50,
		Progress: bulk.Waiting, CreatedAt: at,
	}
	r.commit(t, inStore(letter), store.Create(store.Key{Collection: audit.Collection, ID: "orders"},
		store.Encode(&op)))
	r.enter(t, sale("default", "orders", "2026-03", 100))
	return r
}

// shelfBefore is a shelf on which a route can change something.
func shelfBefore(t *testing.T, route string) *rig {
	t.Helper()
	r := shelf(t)
	for _, request := range first[route] {
		before := strings.SplitN(request, " ", 3)
		r.does(t, before[0], before[1], before[2], nil)
	}
	return r
}

// The effect of a change is tested in its own package.
func TestEachChangeIsAuditedInItsOwnCommit(t *testing.T) {
	t.Parallel()
	open(t).each(t, func(method, route, path, body string) {
		name := method + " " + route
		if method == http.MethodGet || noReason[name] != "" {
			return
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shelfBefore(t, name)
			r.store.OnCommit = func(_ context.Context, writes []store.Write, do func() error) error {
				if !slices.ContainsFunc(writes, func(w store.Write) bool {
					return w.Key.Collection == audit.Collection
				}) {
					t.Errorf("%s: a commit without its entry: %v", name, writes)
				}
				return do()
			}
			got := r.send(t, method, path, strings.Replace(body, `"why":"w"`, `"why":"because 7"`, 1))
			answer := got.Body.String()
			require.Less(t, got.Code, http.StatusBadRequest, answer)
			r.documented(t)(t, method, route, got)
			r.store.OnCommit = nil
			entries := look[console.List[audit.Entry]](t, r, "audit?limit=100")
			i := slices.IndexFunc(entries.Items, func(e audit.Entry) bool { return e.Why == "because 7" })
			require.GreaterOrEqual(t, i, 0, "%s is not in %v", name, entries.Items)
			require.Equal(t, "local:ada", entries.Items[i].Who)
			require.NotEqual(t, entries.Items[i].Before, entries.Items[i].After,
				"the document before and after")
			for _, secret := range []string{"whsec_", "p.example", "because"} {
				require.NotContains(t, r.log.String(), secret,
					"the log holds neither reasons, addresses nor secrets")
			}
			require.NotContains(t, r.get(t, "audit", nil), "whsec_")
			require.Equal(t, route == "/v1/ops/endpoints" || strings.HasSuffix(route, "/rotate"),
				strings.Contains(answer, "whsec_"), "a secret is shown once")
		})
	})
}

// The effects and refusals of changes are tested in their own packages and by the pages. These are the
// others.
func TestChangesAndReadsAreAnsweredOverHTTP(t *testing.T) {
	t.Parallel()
	r := shelf(t)
	r.commit(t, used(usage.Total{
		Tenant: "default", Subscription: "s:1", Meter: "calls", Used: 85, Quota: 100, Warned: 80, WarnedBy: "e80",
	})...)
	period, _ := usage.PeriodWrite(subscriptions.Event{
		Tenant: "default", Subscription: "s:2", EventID: "e", PeriodStart: "2026-03-01T00:00:00Z",
		PeriodEnd: "2026-04-01T00:00:00Z",
	})
	r.commit(t, period, refund("shop", "pay:1", payments.Refused, 0))
	// want is the code of a refusal or, in quotes, a part of an answer
	for _, step := range []struct{ request, body, want string }{
		{"PUT products/hat?tenant=acme", `{"points":7,"why":"w"}`, `"points":7`},
		{"DELETE products/hat", `{"why":"w","expect":"0"}`, `"state":"retired"`},
		{"GET products/hat", "", "product_retired"},
		{
			"POST endpoints", `{"id":"p:1","url":"https://p.example","events":["a.*"],"why":"w"}`, `"state":"enabled"`,
		},
		{"POST endpoints", `{"id":"p:1","url":"https://p.example","why":"w"}`, "endpoint_exists"},
		{"POST endpoints/p:1/test", "", `"status":204`},
		{"POST queues/q:orders/pause", `{"why":"w"}`, `"kept_until":"2026-03-02T10:15:00Z"`},
		{"GET queues", "", `"subscription":"unknown"`},
		{"GET refunds/pay%3A1?tenant=shop", "", `"state":"refused"`},
		{"POST events/try", `{"event_id":"orders"}`, `"outcome":"processed"`},
		{"POST events/try", `{"queue":"orders","message":{"data":{"a":1}}}`, `"outcome":"processed"`},
		{"POST events/try", `{"queue":"orders","message":{"data_base64":"e30="}}`, `"outcome":"processed"`},
		{
			"GET usage/s:1", "",
			`"calls":{"used":85,"entries":1,"quota":100,"percent":85,"warned":80,"warned_by":"e80"`,
		},
		{
			"GET usage/s:2", "",
			`"period":"20260301T000000Z","start":"2026-03-01T00:00:00Z","end":"2026-04-01T00:00:00Z"`,
		},
	} {
		method, path, _ := strings.Cut(step.request, " ")
		got := r.send(t, method, "/v1/ops/"+path, step.body)
		if strings.Contains(step.want, `"`) {
			require.Contains(t, got.Body.String(), step.want, step.request)
			continue
		}
		require.Equal(t, step.want, codeOf(got.Body.String()), "%s %s: %s", step.request, step.body, got.Body)
		require.NotContains(t, got.Body.String(), "p.example")
	}
}

func TestSecondPersonNeedsAnIdentity(t *testing.T) {
	t.Parallel()
	shared := func(request *http.Request) { // a token proves no name
		request.RemoteAddr = far
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("X-Operator", "eve")
	}
	// begin has ada do her part of an operation, by the operation's name.
	type person func(*http.Request)
	begin := map[string]func(t *testing.T, r *rig, ada person) (path, body string){
		"operations approve": func(t *testing.T, r *rig, ada person) (path, body string) {
			const replay = `{"queue":"orders","expect":1,"why":"mended"}`
			var first, second deadletters.Preview
			var op bulk.Operation
			r.fourEyes()
			r.bury(t, declared.Queues[0], "e1", "101", `{"payment_id":"p1"}`)
			r.refuses(t, http.MethodPost, "/v1/ops/dead-letters/replay", replay, http.StatusForbidden,
				"identity_needed", shared)
			r.refuses(t, http.MethodPost, "/api/v1/events/dead-letter/e1/retry", "", http.StatusForbidden, "", shared)
			r.does(t, http.MethodGet, "/v1/ops/dead-letters/preview?queue=orders", "", &first, ada)
			r.does(t, http.MethodPost, "/v1/ops/dead-letters/replay", replay, &op, ada)
			r.does(t, http.MethodGet, "/v1/ops/operations/"+op.ID+"/preview", "", &second, ada)
			require.Equal(t, first.Items, second.Items, "both people see the same items")
			return "/v1/ops/operations/" + op.ID + "/approve", `{"why":"checked","expect":1}`
		},
		"periods reopen": func(t *testing.T, r *rig, ada person) (path, body string) {
			for _, verb := range []string{"close", "reopen"} {
				r.does(t, http.MethodPost, "/v1/ops/journal/periods/2026-02/"+verb,
					`{"why":"the books are done"}`, nil, ada)
			}
			return "/v1/ops/journal/periods/2026-02/reopen", `{"why":"a late entry"}`
		},
	}
	for _, o := range operations.All(operations.Apps{}).Operations {
		if o.Needs != console.TwoPeople {
			continue
		}
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, begin, o.Name, "this operation of two people has no test")
			r := newRig(t, access.Access{Tokens: []string{token}, Identifier: identities{}})
			by := func(who string) person {
				return func(request *http.Request) {
					request.RemoteAddr = far
					request.Header.Set("X-Test-Identity", who)
				}
			}
			path, body := begin[o.Name](t, r, by("ada"))
			for _, first := range []string{"ada", "Ada", "ADA"} {
				r.refuses(t, http.MethodPost, path, body, http.StatusUnprocessableEntity,
					"second_person_needed", by(first))
			}
			r.refuses(t, http.MethodPost, path, body, http.StatusForbidden, "identity_needed", shared)
			r.does(t, http.MethodPost, path, body, nil, by("token-tools"))
		})
	}
}

// expectNothing are the changes that need no version, since a concurrent change does not matter.
var expectNothing = map[string]string{
	"stock add":         "adds to the current stock",
	"journal revert":    "an entry never changes, and has one reversal",
	"queues pause":      "sets the state of the queue, and repairs a pause that was interrupted",
	"queues resume":     "sets the state of the queue, and repairs a pause that was interrupted",
	"operations cancel": "both people want it, and an operation that is over stays so",
	"operations reject": "is refused where the operation no longer waits",
}

func TestChangeOfARecordIsRefusedAfterAConcurrentChange(t *testing.T) {
	t.Parallel()
	known := operations.All(operations.Apps{Reads: events.Reads{Catalog: declared}})
	for _, o := range known.Operations {
		if o.Needs < console.Reason || o.Before == "" || expectNothing[o.Name] != "" {
			continue
		}
		i := slices.IndexFunc(o.Fields, func(f console.Field) bool { return f.Expects != "" })
		require.GreaterOrEqual(t, i, 0,
			"%s takes no expect: say why in expectNothing, or embed console.Edit", o.Name)
		if o.Fields[i].Expects != "version" {
			continue // an operation on dead letters expects their number: its package tests it
		}
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			r := shelfBefore(t, o.Path)
			before, _ := known.Find(o.Before)
			_, after, seen := strings.Cut(r.send(t, http.MethodGet, ofOrders(before.Pattern), "").Body.String(),
				`"version":"`)
			version, _, _ := strings.Cut(after, `"`)
			if !seen {
				version = "0" // there is no document
			}
			expecting := func(version string) string {
				return fmt.Sprintf(`%s,"expect":%q}`, strings.TrimSuffix(cmp.Or(bodies[o.Path], `{"why":"w"}`),
					"}"), version)
			}
			counter := &storetest.Counter{Store: r.store}
			r.over(counter)
			r.refuses(t, o.Method, ofOrders(o.Pattern), expecting(version+"1"), http.StatusConflict, "changed")
			r.refuses(t, o.Method, ofOrders(o.Pattern), expecting("yesterday"), http.StatusBadRequest,
				"body_malformed")
			require.Zero(t, counter.Commits.Load(), "a refused change writes nothing")
			r.does(t, o.Method, ofOrders(o.Pattern), expecting(version), nil)
		})
	}
}
