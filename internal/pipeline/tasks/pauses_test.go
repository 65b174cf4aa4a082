package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/store"
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
			r := newRig(t)
			r.service.Catalog = &catalog.Catalog{Queues: []catalog.Queue{{ID: "orders", Enabled: true}}}
			r.service.Subscriptions = subscription(test.stands)
			record := pause.Pause{Queue: "orders", Who: "ada", Why: "w", At: start.Add(-test.since)}
			_, err := r.db.Commit(t.Context(), []store.Write{store.Create(store.Key{Collection: pause.Collection, ID: "orders"}, store.Encode(&record))})
			require.NoError(t, err)
			code, body := r.call(t, "count-backlogs")
			require.Equal(t, http.StatusOK, code)
			require.Contains(t, body, fmt.Sprintf(`"pauses_undone":%d`, test.undone))
			if test.line == "" {
				require.NotContains(t, r.log.String(), `"msg":"pause`)
				return
			}
			require.Contains(t, r.log.String(), `"msg":"`+test.line+`","queue":"orders"`)
		})
	}
}
