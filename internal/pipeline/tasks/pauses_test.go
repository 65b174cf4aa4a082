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
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// subscription is a queue's subscription that stands so; empty: it cannot be read.
type subscription pause.Standing

func (s subscription) Standing(context.Context, catalog.Queue) (pause.Standing, error) {
	if s == "" {
		return pause.Unknown, errors.New("PermissionDenied")
	}
	return pause.Standing(s), nil
}

func TestAPauseThatWasUndoneIsALineForTheAlert(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stands pause.Standing
		since  time.Duration
		undone int
		line   string
	}{
		"it holds":                  {pause.Paused, time.Hour, 0, ""},
		"it pushes":                 {pause.Pushing, time.Hour, 1, "pause undone"},
		"it is marked and pushes":   {pause.Undone, time.Hour, 1, "pause undone"},
		"it pushes nothing anyhow":  {pause.Unmarked, time.Hour, 0, ""},
		"it was made a moment ago":  {pause.Pushing, time.Second, 0, ""},
		"it cannot be seen":         {"", time.Hour, 0, "pause not seen"},
		"it has no subscription":    {pause.Missing, time.Hour, 0, ""},
		"it begins to hold by then": {pause.Pushing, time.Minute, 1, "pause undone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			record := pause.Pause{Queue: "orders", Who: "ada", Why: "w", At: start.Add(-test.since)}
			_, err = db.Commit(t.Context(), []store.Write{store.Create(store.Key{Collection: pause.Collection, ID: "orders"}, store.Encode(&record))})
			require.NoError(t, err)
			var log strings.Builder
			router := chi.NewRouter()
			(&tasks.Service{
				Catalog: &catalog.Catalog{Queues: []catalog.Queue{{ID: "orders", Enabled: true}}}, Store: db, Subscriptions: subscription(test.stands),
				Log: slog.New(slog.NewJSONHandler(&log, nil)), Metrics: telemetry.NewMetrics(), Now: func() time.Time { return start },
			}).Routes(router)
			answer := httptest.NewRecorder()
			router.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tasks/count-backlogs", nil))
			require.Equal(t, http.StatusOK, answer.Code)
			require.Contains(t, answer.Body.String(), `"pauses_undone":`+string(rune('0'+test.undone)))
			if test.line == "" {
				require.NotContains(t, log.String(), `"msg":"pause`)
				return
			}
			require.Contains(t, log.String(), `"msg":"`+test.line+`","queue":"orders"`)
		})
	}
}
