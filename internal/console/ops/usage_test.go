package ops_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/usage"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
)

// count has an event of usage counted, of a meter with a quota of 100.
func count(t *testing.T, db store.Store, tenant, subscription, meter string, quantity int64) {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	id := fmt.Sprintf("u-%s-%s-%d", subscription, meter, quantity)
	body, _, err := c.Contracts.Compose(contract.Of(&contract.Event{Type: "usage_tracking", Version: 1, Data: map[string]any{
		"subscription_id": subscription, "meter": meter, "quantity": quantity,
	}}), contract.Stamp{ID: id, At: at})
	require.NoError(t, err)
	limits := c.Usage
	limits.Meters = map[string]catalog.Meter{"calls": {Quota: 100}}
	warnings, ok := c.EmitsTo(usage.Handler)
	require.True(t, ok)
	tracker := usage.Tracker{Store: db, Limits: limits, Warnings: warnings, Now: func() time.Time { return at }}
	effect, err := handler.Typed(tracker.Track)(context.Background(), handler.Event{Tenant: tenant, ID: id, Body: body})
	require.NoError(t, err)
	_, err = db.Commit(t.Context(), effect.Writes)
	require.NoError(t, err)
}

func TestUsageIsShownByItsSubscription(t *testing.T) {
	t.Parallel()
	r := open(t)
	count(t, r.store, "default", "s:1", "calls", 85)
	count(t, r.store, "default", "s:1", "rows", -3)
	count(t, r.store, "shop", "s:1", "calls", 1)
	count(t, r.store, "default", "s:10", "calls", 7)
	told, ok := usage.Tell(usage.Told{Tenant: "default", Subscription: "s:2", EventID: "e", At: at, Start: "2026-03-01T00:00:00Z", End: "2026-04-01T00:00:00Z"})
	require.True(t, ok)
	r.commit(t, told)
	count(t, r.store, "default", "s:2", "rows", 5)
	const march = `"start":"2026-03-01T00:00:00Z","end":"2026-04-01T00:00:00Z"`
	const entry = `{"tenant":"default","subscription":"s:1","period":"2026-03","meter":"calls","event_id":"u-s:1-calls-85","quantity":85,
		"occurred_at":"2026-03-02T09:00:00Z","counted_at":"2026-03-02T09:00:00Z"}`
	for path, test := range map[string]struct {
		status int
		want   string
	}{
		"/s:1": {200, `{"subscription":"s:1","tenant":"default","period":"2026-03",` + march + `,"meters":{
			"calls":{"used":85,"entries":1,"quota":100,"percent":85,"warned":80,"warning":{"emitted_by":"u-s:1-calls-85"},"counted_at":"2026-03-02T09:00:00Z"},
			"rows":{"used":-3,"entries":1,"counted_at":"2026-03-02T09:00:00Z"}}}`},
		"/s%3A1?period=2026-03&tenant=shop": {200, `{"subscription":"s:1","tenant":"shop","period":"2026-03",` + march + `,"meters":{
			"calls":{"used":1,"entries":1,"quota":100,"percent":1,"counted_at":"2026-03-02T09:00:00Z"}}}`},
		"/s:1?period=2026-02": {200, `{"subscription":"s:1","tenant":"default","period":"2026-02","meters":{}}`},
		"/s:2": {200, `{"subscription":"s:2","tenant":"default","period":"20260301T000000Z",` + march + `,"meters":{
			"rows":{"used":5,"entries":1,"counted_at":"2026-03-02T09:00:00Z"}}}`},
		"?month=2026-03&tenant=shop": {200, `{"items":[{"tenant":"shop","subscription":"s:1","period":"2026-03","meter":"calls",` + march + `,
			"used":1,"entries":1,"quota":100,"counted_at":"2026-03-02T09:00:00Z"}],"next":""}`},
		"?subscription=s:2": {200, `{"items":[{"tenant":"default","subscription":"s:2","period":"20260301T000000Z","meter":"rows",` + march + `,
			"used":5,"entries":1,"counted_at":"2026-03-02T09:00:00Z"}],"next":""}`},
		"/s:1/entries?period=2026-03&meter=calls": {200, `{"items":[` + entry + `],"next":""}`},
		"/s:1/entries?period=2026-03&meter=none":  {200, `{"items":[],"next":""}`},
		"/s:1/entries?period=2026-03":             {400, "usage_of_what"},
		"/s:1?period=a%20b":                       {400, "period_invalid"},
		"/s:1?tenant=a%20b":                       {400, "tenant_invalid"},
		"/s%201":                                  {400, "subscription_invalid"},
		"/s:1?meter=calls":                        {400, "parameter_unknown"},
		"?month=2026-13":                          {400, "month_invalid"},
		"?month=2026-03&subscription=s:1":         {400, "usage_of_what"},
		"?tenant=shop":                            {400, "usage_of_what"},
	} {
		got := r.request(t, http.MethodGet, "/v1/ops/usage"+path, "")
		require.Equal(t, test.status, got.Code, "%s: %s", path, got.Body)
		if test.status == http.StatusOK {
			require.JSONEq(t, test.want, got.Body.String(), path)
			continue
		}
		require.Contains(t, got.Body.String(), `"code":"`+test.want+`"`)
	}
}

func TestUsageIsListedPageByPage(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 5 {
		count(t, r.store, "default", "s-1", "calls", int64(i))
		count(t, r.store, "default", fmt.Sprint("t-", i), "rows", 1)
	}
	for path, want := range map[string]int{"/v1/ops/usage?month=2026-03": 6, "/v1/ops/usage/s-1/entries?period=2026-03&meter=calls": 5} {
		found := 0
		for next := ""; ; {
			var page ops.List[map[string]any]
			r.ask(t, path+"&limit=2"+next, nil, &page)
			if found += len(page.Items); page.Next == "" {
				break
			}
			next = "&page=" + page.Next
		}
		require.Equal(t, want, found, path)
	}
}
