package tasks_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store/storetest"
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
			r := newRig(t)
			counter := &storetest.Counter{Store: r.db}
			r.service.Store, r.service.Backlogs = counter, test.meter
			r.service.Catalog.Queues = []catalog.Queue{
				{ID: "orders", Enabled: true}, {ID: "clicks", Enabled: true}, {ID: "asleep"}, {ID: "unseen", Enabled: true},
			}
			code, body := r.call(t, "count-backlogs")
			require.Equal(t, test.status, code)
			require.Contains(t, body, test.answer)
			require.Contains(t, r.log.String(), `"task":"count-backlogs"`)
			counted, err := backlog.Read(t.Context(), r.db)
			require.NoError(t, err)
			require.Equal(t, test.written, counted.Messages)
			if test.written != nil {
				require.Equal(t, start.Add(-time.Minute), counted.At, "the time of the count, not of the task")
				require.Equal(t, map[string]any{"orders": start.Add(-time.Hour)}, counted.Oldest)
				require.Equal(t, int64(1), counter.Written.Load())
				r.measured(t, `billhook_backlog_messages{queue="orders"} 7`)
			}
		})
	}
}
