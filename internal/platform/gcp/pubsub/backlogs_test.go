package pubsub_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"billhook/internal/platform/backlog"
	"billhook/internal/platform/gcp/pubsub"
)

func backlogs(t *testing.T, answer http.HandlerFunc) *pubsub.Backlogs {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	b, err := pubsub.NewBacklogs(t.Context(), pubsub.Names{ProjectID: "shop"}, func() time.Time { return time.Date(2026, 11, 22, 12, 4, 0, 0, time.UTC) }, option.WithEndpoint(server.URL), option.WithHTTPClient(server.Client()))
	require.NoError(t, err)
	return b
}

func TestTheNewestNumberOfEachSubscriptionIsItsBacklog(t *testing.T) {
	t.Parallel()
	b := backlogs(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if query.Get("filter") == `metric.type = "pubsub.googleapis.com/subscription/oldest_unacked_message_age"` {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"timeSeries":[
				{"resource":{"labels":{"subscription_id":"orders-push"}},"points":[{"interval":{"endTime":"2026-11-22T12:03:00Z"},"value":{"int64Value":"180"}}]},
				{"resource":{"labels":{"subscription_id":"letters-push"}},"points":[{"interval":{"endTime":"2026-11-22T12:03:00Z"},"value":{"int64Value":"0"}}]},
				{"resource":{"labels":{"subscription_id":"unseen-push"}},"points":[{"interval":{"endTime":"2026-11-22T12:03:00Z"},"value":{"int64Value":"9"}}]}]}`)
			return
		}
		if r.URL.Path != "/v3/projects/shop/timeSeries" || query.Get("filter") != `metric.type = "pubsub.googleapis.com/subscription/num_undelivered_messages"` {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		start, err := time.Parse(time.RFC3339, query.Get("interval.startTime"))
		end, err2 := time.Parse(time.RFC3339, query.Get("interval.endTime"))
		if err != nil || err2 != nil || end.Sub(start) != 4*time.Minute {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if query.Get("pageToken") == "" {
			_, _ = io.WriteString(w, `{"nextPageToken":"2","timeSeries":[
				{"resource":{"labels":{"subscription_id":"orders-push"}},"points":[
					{"interval":{"endTime":"2026-11-22T12:03:00Z"},"value":{"int64Value":"100000"}},
					{"interval":{"endTime":"2026-11-22T12:02:00Z"},"value":{"int64Value":"7"}}]},
				{"resource":{"labels":{"subscription_id":"silent-push"}},"points":[]},
				{"resource":{"labels":{"subscription_id":"odd-push"}},"points":[{"interval":{"endTime":"noon"},"value":{"int64Value":"1"}}]},
				{"resource":{"labels":{"subscription_id":"typed-push"}},"points":[{"interval":{"endTime":"2026-11-22T12:02:00Z"},"value":{"doubleValue":1.5}}]},
				{"points":[{"interval":{"endTime":"2026-11-22T12:02:00Z"},"value":{"int64Value":"1"}}]}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"timeSeries":[{"resource":{"labels":{"subscription_id":"letters-push"}},"points":[
			{"interval":{"endTime":"2026-11-22T12:02:30Z"},"value":{"int64Value":"0"}}]}]}`)
	})
	held, at, err := b.Backlogs(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]backlog.Held{
		"orders-push": {Messages: 100_000, Oldest: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}, "letters-push": {},
	}, held)
	require.Equal(t, time.Date(2026, 11, 22, 12, 2, 30, 0, time.UTC), at, "the oldest of them")
}

func TestBacklogsThatAreNotToldAreAnError(t *testing.T) {
	t.Parallel()
	b := backlogs(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	_, _, err := b.Backlogs(t.Context())
	require.ErrorContains(t, err, "pubsub: backlogs: ")
}

func TestBacklogsAreToldWithoutTheirAges(t *testing.T) {
	t.Parallel()
	b := backlogs(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Query().Get("filter"), "oldest") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"timeSeries":[{"resource":{"labels":{"subscription_id":"orders-push"}},"points":[
			{"interval":{"endTime":"2026-11-22T12:03:00Z"},"value":{"int64Value":"3"}}]}]}`)
	})
	held, _, err := b.Backlogs(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]backlog.Held{"orders-push": {Messages: 3}}, held, "the door refuses by the number")
}
