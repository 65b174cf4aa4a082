package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/usage"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook/samples"
)

// billion is the most that one event counts.
const billion = 1_000_000_000

// use sends an event of usage through the producers' door; with an empty at it occurred now.
func (s *stack) use(t *testing.T, id, subscription string, quantity int64, at string) {
	t.Helper()
	data := map[string]any{"subscription_id": subscription, "meter": "calls", "quantity": quantity}
	if at != "" {
		data["occurred_at"] = at
	}
	body, err := json.Marshal(map[string]any{
		"id": id, "type": "usage_tracking", "version": 1, "timestamp": time.Now().UTC().Format(time.RFC3339), "producer": "e2e", "data": data,
	})
	require.NoError(t, err)
	status := http.StatusAccepted
	if quantity > billion { // the contract's bound
		status = http.StatusUnprocessableEntity
	}
	answer := s.signed(t, "/queues/event_queue:high/messages", string(body))
	require.Equal(t, status, answer.Status, answer.Body)
}

// usageCounted: usage is counted once in the subscription's own period, corrected, and warned of
// once at each threshold. What is too late, or from the future, is a dead letter.
func usageCounted(t *testing.T, s *stack) {
	renewed := s.newSubscription()
	s.accepted(t, samples.Read(samples.SubscriptionRenewed, renewed)) // its period has ended long ago
	s.until(t, renewed.EventID, "processed")
	c, err := catalog.Load("")
	require.NoError(t, err)
	subscription := renewed.SubscriptionID
	id := func(n int) string { return fmt.Sprintf("used-%s-%d", subscription, n) }
	emits := func(n int, percents ...int64) {
		t.Helper()
		emitted := s.emits(t, "event_queue:high", id(n))
		require.Len(t, emitted, len(percents), "event %d", n)
		for _, warning := range emitted {
			s.until(t, warning, "processed")
			require.Equal(t, 1, s.service.Applied(warning), "the platform is told")
		}
	}
	s.use(t, id(0), subscription, 1, "")
	s.until(t, id(0), "processed")
	var shown ops.Usage
	s.ask(t, http.MethodGet, "/v1/ops/usage/"+subscription, nil, &shown)
	quota, _ := c.Usage.QuotaOf("calls", shown.Meters["calls"].Plan)
	require.Positive(t, quota, "the sample's plan has a quota")
	require.NotEqual(t, usage.Month(time.Now()).ID, shown.Period, "the period is the subscription's own")

	s.use(t, id(1), subscription, quota*8/10-1, "")
	emits(1, 80)
	s.use(t, id(2), subscription, quota, "")
	emits(2, 100)
	s.use(t, id(3), subscription, -quota, "")
	emits(3)
	s.use(t, id(4), subscription, quota, "")
	emits(4)
	s.use(t, id(2), subscription, quota, "")
	s.until(t, id(2), "duplicate")

	s.use(t, id(5), subscription, 1, "2020-01-01T00:00:00Z")
	require.Equal(t, "usage_too_late", s.until(t, id(5), "dead_lettered")[0].Reason)
	s.use(t, id(6), subscription, 1, time.Now().Add(c.Usage.Ahead+time.Hour).UTC().Format(time.RFC3339))
	require.Equal(t, "usage_in_the_future", s.until(t, id(6), "dead_lettered")[0].Reason)
	s.use(t, id(7), subscription, billion+1, "")

	s.ask(t, http.MethodGet, "/v1/ops/usage/"+subscription+"?period="+shown.Period, nil, &shown)
	calls := shown.Meters["calls"]
	require.Equal(t, []int64{quota * 18 / 10, 5, 100}, []int64{calls.Used, calls.Entries, calls.Warned})
	told := s.ends(t, "events-normal", calls.Warning.Emission.EventID)
	require.Equal(t, &ops.Warning{EmittedBy: id(2), Emission: &ops.Emission{
		EventID: told.EventID, Tenant: dedupe.DefaultTenant, EventType: "quota_warning", Queue: told.Queue, State: ops.EmissionProcessed,
	}}, calls.Warning, "warned means emitted")
	var entries ops.List[usage.Entry]
	s.ask(t, http.MethodGet, "/v1/ops/usage/"+subscription+"/entries?meter=calls&period="+shown.Period, nil, &entries)
	sum := int64(0)
	for _, entry := range entries.Items {
		sum += entry.Quantity
	}
	require.Equal(t, calls.Used, sum)

	other := s.newSubscription().SubscriptionID
	s.use(t, "used-"+other, other, 1, "")
	s.until(t, "used-"+other, "processed")
	s.ask(t, http.MethodGet, "/v1/ops/usage/"+other, nil, &shown)
	require.Len(t, shown.Period, len("2026-11"), "nothing was told of it, so it has calendar months")
	require.EqualValues(t, 1, shown.Meters["calls"].Used)
}
