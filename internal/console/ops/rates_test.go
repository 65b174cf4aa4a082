package ops_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/rates"
	"billhook/internal/retry"
)

// counted adds what a worker has counted in the last hour.
func (r *rig) counted(t *testing.T) {
	t.Helper()
	recorder := rates.NewRecorder(rates.Config{
		Store: r.store, Now: func() time.Time { return at }, Self: rates.Service{Instance: "i1", Service: "worker"},
		Breakers: func() []rates.Breaker {
			return []rates.Breaker{{Target: "ledger", State: "open", Since: at.Add(-time.Minute)}}
		},
	})
	for range 4 {
		recorder.Arrived("orders")
	}
	for _, outcome := range []retry.Outcome{retry.Processed, retry.Processed, retry.Duplicate, retry.Retry, retry.DeadLettered} {
		recorder.Ended("orders", outcome, 1)
	}
	recorder.Answered("ledger", 503, "callee_failed_503", 20*time.Millisecond)
	require.NoError(t, recorder.Flush(t.Context()))
}

func TestAQueueShowsItsLastHour(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.counted(t)
	var queues ops.Queues
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/queues", nil, &queues).Code)
	require.Equal(t, ops.Rate{Counts: rates.Counts{In: 4, Processed: 2, Other: 1, Dead: 1, Failed: 1}, Out: 4, FailurePercent: 50}, queues.Items[0].LastHour)
	require.Zero(t, queues.Items[1].LastHour)
}

func TestRatesAreOfTheHoursOrDaysThatAreAskedFor(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.counted(t)
	for query, want := range map[string]struct {
		unit            string
		queues, buckets int
	}{
		"": {"hour", 2, 24}, "?hours=2&queue=q:orders": {"hour", 1, 2}, "?days=30": {"day", 2, 30}, "?hours=192": {"hour", 2, 192}, "?days=90&queue=orders": {"day", 1, 90},
	} {
		var got ops.Rates
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/rates"+query, nil, &got).Code, query)
		require.Equal(t, want.unit, got.Unit)
		require.Len(t, got.Items, want.queues)
		require.Len(t, got.Items[0].Buckets, want.buckets)
		require.EqualValues(t, 4, got.Items[0].Buckets[want.buckets-1].In)
		require.True(t, got.About)
	}
	for _, query := range []string{"?hours=0", "?hours=193", "?days=91", "?hours=1&days=1", "?queue=nobody", "?minutes=5"} {
		require.Equal(t, http.StatusBadRequest, r.ask(t, "/v1/ops/rates"+query, nil, nil).Code, query)
	}
}

func TestAQueueSaysWhichKeysWaitAndBehindWhat(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.fill(t)
	r.counted(t)
	r.commit(t, own(created("orders", "e9", "FAILED", 0)), own(created("refunds", "e8", "COMPLETED", 0)))
	var got ops.QueueDetail
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/queues/q:orders", nil, &got).Code)
	require.Equal(t, "orders", got.ID)
	require.Equal(t, filled, got.Waiting)
	require.EqualValues(t, 4, got.LastHour.In)
	require.Len(t, got.Outcomes, 1)
	require.Equal(t, "e9", got.Outcomes[0].EventID)
	require.False(t, got.KeysMore)
	keys := map[string]ops.BlockedKey{}
	for _, key := range got.Keys {
		keys[key.Behind] = key
	}
	require.Len(t, got.Keys, 2)
	require.Equal(t, ops.PlaceDelayed, keys["e3"].Place)
	require.Equal(t, of(2), keys["e3"].Messages)
	require.Equal(t, ops.PlaceDelayed, keys["e1"].Place)
	require.Equal(t, at.Add(time.Hour), keys["e1"].Until)
	require.Equal(t, http.StatusNotFound, r.ask(t, "/v1/ops/queues/nobody", nil, nil).Code)
	require.Equal(t, http.StatusBadRequest, r.ask(t, "/v1/ops/queues/orders?x=1", nil, nil).Code)
}

func TestOneQueueShowsTenKeysAndThatThereAreMore(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 12 {
		r.put(t, "orders", fmt.Sprint("k", i), fmt.Sprint("e", i), at.Add(time.Hour))
	}
	var got ops.QueueDetail
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/queues/orders", nil, &got).Code)
	require.Len(t, got.Keys, 10)
	require.True(t, got.KeysMore)
}

// A page that is refreshed shows the same in the same place.
func TestTheTargetsOfAQueueStandInOneOrder(t *testing.T) {
	t.Parallel()
	r := open(t)
	q, names := catalog.Queue{ID: "many", Handlers: map[string]catalog.Handler{}}, []string{}
	for i := range 20 {
		name := fmt.Sprintf("target-%02d", i)
		names = append(names, name)
		q.Handlers["type."+name] = catalog.Handler{Calls: []string{name}}
	}
	reads := ops.Reads{Store: r.store, Catalog: &catalog.Catalog{Queues: []catalog.Queue{q}}, Now: func() time.Time { return at }}
	detail, err := reads.QueueDetail(t.Context(), q)
	require.NoError(t, err)
	var got []string
	for _, target := range detail.Targets {
		got = append(got, target.Name)
	}
	require.Equal(t, names, got)
}
