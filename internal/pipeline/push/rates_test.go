package push_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/rates"
)

func TestDeliveriesAreCountedByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{credit: times(1, errors.New("down"))})
	first := paid("e1", known, 1)
	r.deliver(first)                    // it fails
	r.deliver(first.again(2))           // it is done
	r.deliver(first.again(3))           // it is a duplicate
	r.deliver(paid("e2", "unknown", 1)) // no attempt helps
	commits := r.counter.Commits.Load()
	require.NoError(t, r.rates.Flush(t.Context()))
	require.Equal(t, commits, r.counter.Commits.Load(), "the rig's deliveries have written no counts")
	now, err := rates.Recent(t.Context(), r.db, time.Unix(0, r.now.Load()))
	require.NoError(t, err)
	page := httptest.NewRecorder()
	r.metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		`billhook_deliveries_total{outcome="processed",queue="orders",reason="credited"} 1`,
		`billhook_deliveries_total{outcome="retry",queue="orders",reason="handler_error"} 1`,
		`billhook_deliveries_total{outcome="duplicate",queue="orders",reason="processed_before"} 1`,
		`billhook_deliveries_total{outcome="dead_lettered",queue="orders",reason="unknown_product"} 1`,
		`billhook_delivery_duration_seconds_count{queue="orders"} 4`,
	} {
		require.Contains(t, page.Body.String(), want+"\n")
	}
	require.Equal(t, rates.Counts{In: 2, Processed: 1, Other: 1, Dead: 1, Failed: 1}, now.Queues["orders"])
}

// What comes late was let in by a door that may be gone, such as a message that has waited for a day.
func TestTheReleaseOfTheDoorIsNotedOfWhatItHasLetInLately(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	for id, by := range map[string]struct {
		release string
		ago     time.Duration
	}{"e1": {"v2:1a2b3c4d", time.Second}, "e2": {"v1:00000000", time.Hour}, "e3": {"", 0}} {
		m := paid(id, known, 1)
		m.attributes[contract.AttrDoorReceived] = r.config.Now().Add(-by.ago).Format(time.RFC3339Nano)
		if by.release != "" {
			m.attributes[contract.AttrDoorRelease] = by.release
		}
		require.Equal(t, 200, r.deliverNow(m).code)
	}
	require.NoError(t, r.rates.Flush(t.Context()))
	now, err := rates.Recent(t.Context(), r.db, r.config.Now())
	require.NoError(t, err)
	require.Equal(t, []rates.Door{{Release: "v2:1a2b3c4d", SeenAt: r.config.Now()}}, now.Doors)
}
