package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/usage"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

func TestUsageIsLookedAtAndExportedFromATerminal(t *testing.T) {
	t.Parallel()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c, err := catalog.Load("")
	require.NoError(t, err)
	clock := func() time.Time { return time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC) }
	limits := c.Usage
	limits.Meters = map[string]catalog.Meter{"calls": {Quota: 1000}}
	warnings, ok := c.EmitsTo(usage.Handler)
	require.True(t, ok)
	tracker := usage.Tracker{Store: db, Limits: limits, Warnings: warnings, Now: clock}
	count := func(id, subscription, meter string, quantity int64) {
		body, _, err := c.Contracts.Compose(contract.Of(&contract.Event{Type: "usage_tracking", Version: 1, Data: map[string]any{
			"subscription_id": subscription, "meter": meter, "quantity": quantity,
		}}), contract.Stamp{ID: id, At: clock()})
		require.NoError(t, err)
		effect, err := handler.Typed(tracker.Track)(context.Background(), handler.Event{Tenant: dedupe.DefaultTenant, ID: id, Body: body})
		require.NoError(t, err)
		_, err = db.Commit(t.Context(), effect.Writes)
		require.NoError(t, err)
	}
	for i := range perPage + 1 {
		count(fmt.Sprintf("u-%03d", i), "s-1", "calls", 8)
	}
	count("u-r", "s-1", "rows", -2)
	counted, ok := c.HandledBy(usage.Handler)
	require.True(t, ok)
	crossed := dedupe.Record{
		Queue: counted.ID, Tenant: dedupe.DefaultTenant, EventID: "u-099", Status: dedupe.Completed,
		Emitted: []handler.Emitted{{EventID: "w-80", EventType: "quota_warning", To: "events-normal"}},
	}
	_, err = db.Commit(t.Context(), []store.Write{
		store.Create(dedupe.Key(crossed.Queue, crossed.Tenant, crossed.EventID), crossed.Fields()),
		store.Create(store.Key{Collection: lane.Outbox.Entries(), ID: "l-1"}, map[string]any{"emits": "w-80", "tenant": dedupe.DefaultTenant}),
	})
	require.NoError(t, err)
	router := chi.NewRouter()
	(&ops.API{Reads: ops.Reads{Store: db, Now: clock, Catalog: c}, Log: slog.New(slog.DiscardHandler), Access: ops.Access{Tokens: []string{opsToken}}}).Routes(router)
	server := httptest.NewServer(router)
	t.Cleanup(server.Close)
	say := func(args string) (string, error) {
		var out strings.Builder
		root, err := commands(func(name string) string { return map[string]string{"OPS_TOKEN": opsToken}[name] }, &out)
		require.NoError(t, err)
		root.SetArgs(append(strings.Fields(args), "--server", server.URL))
		err = root.ExecuteContext(t.Context())
		return out.String(), err
	}
	const exportedTotals = "tenant,subscription,period,start,end,meter,used,entries,quota,plan,warned,counted_at\n" +
		"default,s-1,2026-03,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z,calls,808,101,1000,,80,2026-03-02T10:15:00Z\n" +
		"default,s-1,2026-03,2026-03-01T00:00:00Z,2026-04-01T00:00:00Z,rows,-2,1,0,,0,2026-03-02T10:15:00Z\n"
	const exportedRow = "tenant,subscription,period,meter,event_id,quantity,occurred_at,counted_at\n" +
		"default,s-1,2026-03,rows,u-r,-2,2026-03-02T10:15:00Z,2026-03-02T10:15:00Z\n"
	const rowInJSON = `{"tenant":"default","subscription":"s-1","period":"2026-03","meter":"rows","event_id":"u-r","quantity":-2,` +
		`"occurred_at":"2026-03-02T10:15:00Z","counted_at":"2026-03-02T10:15:00Z"}` + "\n"
	for args, want := range map[string]string{
		"usage show s-1": "Period 2026-03, from 2026-03-01T00:00:00Z to 2026-04-01T00:00:00Z\n" +
			"METER  USED  QUOTA  PART  WARNED  ENTRIES  COUNTED\n" +
			"calls  808   1000   80 %  80 %    101      2026-03-02T10:15:00Z\n" +
			"rows   -2    -      -     -       1        2026-03-02T10:15:00Z\n" +
			"The warning of calls at 80 %: quota_warning to events-normal, event w-80: waiting in the outbox\n",
		"usage show s-1 --period 2026-02": "Period 2026-02\nMETER  USED  QUOTA  PART  WARNED  ENTRIES  COUNTED\n",
		"usage ls --month 2026-03 --limit 1": "SUBSCRIPTION  PERIOD   METER  USED  ENTRIES  COUNTED\n" +
			"s-1           2026-03  calls  808   101      2026-03-02T10:15:00Z\nThere are more; raise --limit.\n",
		"usage export --month 2026-03":                                              exportedTotals,
		"usage export s-1 --meter rows":                                             exportedRow,
		"usage export s-1 --meter rows --period 2026-03":                            exportedRow,
		"usage export s-1 --meter rows --format jsonl":                              rowInJSON,
		"usage export s-1 --meter rows --json":                                      rowInJSON,
		"usage export s-2":                                                          "tenant,subscription,period,meter,event_id,quantity,occurred_at,counted_at\n",
		"usage export s-1 --meter rows --period 2026-03 --tenant other":             "tenant,subscription,period,meter,event_id,quantity,occurred_at,counted_at\n",
		"usage export s-1 --meter rows --period 2026-03 --format jsonl --tenant no": "",
	} {
		out, err := say(args)
		require.NoError(t, err, args)
		require.Equal(t, want, out, args)
	}
	out, err := say("usage export s-1")
	require.NoError(t, err)
	require.Equal(t, 1+perPage+1+1, strings.Count(out, "\n"), "all pages of all meters")
	out, err = say("usage ls --subscription s-1 --json")
	require.NoError(t, err)
	require.Contains(t, out, `"used": 808`)
	for args, want := range map[string]string{
		"usage export":                        "name a subscription",
		"usage export s-1 --month 2026-03":    "name a subscription",
		"usage export s-1 --format xml":       "--format",
		"usage ls":                            "usage_of_what",
		"usage show s-1 --period 2026/03":     "period_invalid",
		"usage export s-1 --period a/b":       "period_invalid",
		"usage ls --month 2026-3 --limit 100": "month_invalid",
	} {
		_, err := say(args)
		require.ErrorContains(t, err, want, args)
	}
}
