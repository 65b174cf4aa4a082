package tasks_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

// meter is a broker that counts.
type meter struct {
	held map[string]backlog.Held
	at   time.Time
	err  error
}

func (m meter) Backlogs(context.Context) (map[string]backlog.Held, time.Time, error) {
	return m.held, m.at, m.err
}

func TestTheBacklogsOfQueuesAreWrittenInOneDocument(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meter   tasks.Backlogs
		answer  string
		status  int
		written map[string]any
	}{
		"counted": {
			meter{map[string]backlog.Held{"orders-push": {Messages: 7, Oldest: start.Add(-time.Hour)}, "clicks-push": {}, "asleep-push": {Messages: 9}, "orders-dlq-push": {Messages: 3}}, start.Add(-time.Minute), nil},
			`{"queues":3,"messages":16,"kept":1,"pauses_undone":0}`, http.StatusOK, map[string]any{"orders": int64(7), "clicks": int64(0), "asleep": int64(9)},
		},
		"nothing is known":    {meter{map[string]backlog.Held{}, start, nil}, `{"queues":0,"messages":0,"kept":0,"pauses_undone":0}`, http.StatusOK, nil},
		"nothing counts here": {nil, `{"queues":0,"messages":0,"kept":0,"pauses_undone":0}`, http.StatusOK, nil},
		"not told":            {meter{err: errors.New("denied")}, `"code":"task_failed"`, http.StatusServiceUnavailable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			counter := &storetest.Counter{Store: db}
			var log strings.Builder
			router, metrics := chi.NewRouter(), telemetry.NewMetrics()
			(&tasks.Service{
				Catalog:  &catalog.Catalog{Queues: []catalog.Queue{{ID: "orders", Enabled: true}, {ID: "clicks", Enabled: true}, {ID: "asleep"}, {ID: "unseen", Enabled: true}}},
				Store:    counter,
				Backlogs: test.meter, Log: slog.New(slog.NewJSONHandler(&log, nil)), Metrics: metrics, Now: func() time.Time { return start },
			}).Routes(router)
			answer := httptest.NewRecorder()
			router.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tasks/count-backlogs", nil))
			require.Equal(t, test.status, answer.Code)
			require.Contains(t, answer.Body.String(), test.answer)
			require.Contains(t, log.String(), `"task":"count-backlogs"`)
			counted, err := backlog.Read(t.Context(), db)
			require.NoError(t, err)
			require.Equal(t, test.written, counted.Messages)
			if test.written != nil {
				require.Equal(t, start.Add(-time.Minute), counted.At, "the time of the count, not of the task")
				require.Equal(t, map[string]any{"orders": start.Add(-time.Hour)}, counted.Oldest)
				require.Equal(t, int64(1), counter.Written.Load())
				page := httptest.NewRecorder()
				metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
				require.Contains(t, page.Body.String(), `billhook_backlog_messages{queue="orders"} 7`)
			}
		})
	}
}
