package pubsub_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/api/option"

	"billhook/internal/platform/backlog"
	"billhook/internal/platform/gcp/pubsub"
)

// page is a page of Cloud Monitoring's answer, in a row of testdata/series.yaml.
type page struct {
	Next   string
	Series map[string][]string
	Other  []string
}

func (p page) json() string {
	all := p.Other
	for id, points := range p.Series {
		var said []string
		for _, point := range points {
			at, value, _ := strings.Cut(point, " ")
			said = append(said, `{"interval":{"endTime":"2026-11-22T12:`+at+`Z"},"value":{`+value+`}}`)
		}
		all = append(all, `{"resource":{"labels":{"subscription_id":"`+id+`"}},"points":[`+strings.Join(said, ",")+`]}`)
	}
	return `{"nextPageToken":"` + p.Next + `","timeSeries":[` + strings.Join(all, ",") + `]}`
}

func TestTheNewestNumberOfEachSubscriptionIsItsBacklog(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	text, err := os.ReadFile(filepath.Join("testdata", "series.yaml"))
	require.NoError(t, err)
	var all []struct {
		What, Installation string
		Answers            map[string]page // by metric and page; none: it is refused
		Held               map[string]backlog.Held
		Counted            time.Duration
	}
	require.NoError(t, yaml.Unmarshal(text, &all))
	for _, test := range all {
		t.Run(test.What, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				start, _ := time.Parse(time.RFC3339, query.Get("interval.startTime"))
				end, _ := time.Parse(time.RFC3339, query.Get("interval.endTime"))
				for metric, answer := range test.Answers {
					metric, page := strings.TrimSuffix(metric, "2"), metric[len(strings.TrimSuffix(metric, "2")):]
					filter := `metric.type = "pubsub.googleapis.com/` + metric + `"`
					if test.Installation != "" {
						filter += ` AND resource.labels.subscription_id = starts_with("shop-")`
					}
					if query.Get("filter") == filter && query.Get("pageToken") == page && end.Sub(start) == 4*time.Minute && r.URL.Path == "/v3/projects/p/timeSeries" {
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, answer.json())
						return
					}
				}
				w.WriteHeader(http.StatusForbidden)
			}))
			t.Cleanup(server.Close)
			now := func() time.Time { return noon.Add(4 * time.Minute) }
			b, err := pubsub.NewBacklogs(t.Context(), pubsub.Names{ProjectID: "p", Installation: test.Installation}, now, option.WithEndpoint(server.URL), option.WithHTTPClient(server.Client()))
			require.NoError(t, err)
			held, counted, err := b.Backlogs(t.Context())
			if test.Answers == nil {
				require.ErrorContains(t, err, "pubsub: backlogs: ")
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.Held, held)
			require.Equal(t, noon.Add(test.Counted), counted, "the oldest of them")
		})
	}
}
