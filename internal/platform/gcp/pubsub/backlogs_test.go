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

// series is Cloud Monitoring's answer about one subscription.
func series(id, points string) string {
	return `{"resource":{"labels":{"subscription_id":"` + id + `"}},"points":[` + points + `]}`
}

func point(at, value string) string {
	return `{"interval":{"endTime":"` + at + `"},"value":{` + value + `}}`
}

func TestTheNewestNumberOfEachSubscriptionIsItsBacklog(t *testing.T) {
	t.Parallel()
	const messages, ages = "subscription/num_undelivered_messages", "subscription/oldest_unacked_message_age"
	at := func(minute string) string { return "2026-11-22T12:" + minute + "Z" }
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	of := func(all ...string) string { return `{"timeSeries":[` + strings.Join(all, ",") + `]}` }
	for name, test := range map[string]struct {
		installation string
		answers      map[string]string // by metric and page; none: it is refused
		want         map[string]backlog.Held
		at           time.Time
	}{
		"numbers and ages, on two pages": {
			"", map[string]string{
				messages: `{"nextPageToken":"2",` + of(
					series("orders-push", point(at("03:00"), `"int64Value":"100000"`)+","+point(at("02:00"), `"int64Value":"7"`)),
					series("silent-push", ""), series("odd-push", point("noon", `"int64Value":"1"`)), series("typed-push", point(at("02:00"), `"doubleValue":1.5`)),
					`{"points":[`+point(at("02:00"), `"int64Value":"1"`)+`]}`)[1:],
				messages + "2": of(series("letters-push", point(at("02:30"), `"int64Value":"0"`))),
				ages: of(series("orders-push", point(at("03:00"), `"int64Value":"180"`)), series("letters-push", point(at("03:00"), `"int64Value":"0"`)),
					series("unseen-push", point(at("03:00"), `"int64Value":"9"`))),
			},
			map[string]backlog.Held{"orders-push": {Messages: 100_000, Oldest: noon}, "letters-push": {}}, noon.Add(150 * time.Second),
		},
		"numbers without their ages": {
			"", map[string]string{messages: of(series("orders-push", point(at("03:00"), `"int64Value":"3"`)))},
			map[string]backlog.Held{"orders-push": {Messages: 3}}, noon.Add(3 * time.Minute),
		},
		"those of an installation alone, by the catalog's ids": {
			"shop", map[string]string{messages: of(series("orders-push", point(at("03:00"), `"int64Value":"180"`)), series("shop-orders-push", point(at("04:00"), `"int64Value":"0"`)))},
			map[string]backlog.Held{"orders-push": {}}, noon.Add(4 * time.Minute),
		},
		"nothing that may be read": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				start, _ := time.Parse(time.RFC3339, query.Get("interval.startTime"))
				end, _ := time.Parse(time.RFC3339, query.Get("interval.endTime"))
				for metric, answer := range test.answers {
					metric, page := strings.TrimSuffix(metric, "2"), metric[len(strings.TrimSuffix(metric, "2")):]
					filter := `metric.type = "pubsub.googleapis.com/` + metric + `"`
					if test.installation != "" {
						filter += ` AND resource.labels.subscription_id = starts_with("shop-")`
					}
					if query.Get("filter") == filter && query.Get("pageToken") == page && end.Sub(start) == 4*time.Minute && r.URL.Path == "/v3/projects/p/timeSeries" {
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, answer)
						return
					}
				}
				w.WriteHeader(http.StatusForbidden)
			}))
			t.Cleanup(server.Close)
			now := func() time.Time { return noon.Add(4 * time.Minute) }
			b, err := pubsub.NewBacklogs(t.Context(), pubsub.Names{ProjectID: "p", Installation: test.installation}, now, option.WithEndpoint(server.URL), option.WithHTTPClient(server.Client()))
			require.NoError(t, err)
			held, counted, err := b.Backlogs(t.Context())
			if test.answers == nil {
				require.ErrorContains(t, err, "pubsub: backlogs: ")
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, held)
			require.Equal(t, test.at, counted, "the oldest of them")
		})
	}
}
