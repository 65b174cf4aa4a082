package worker_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/store"
)

// shelf remembers what was published.
type shelf struct{ taken []contract.Message }

func (s *shelf) Publish(_ context.Context, _ string, m contract.Message) (string, error) {
	s.taken = append(s.taken, m)
	return "1", nil
}

func TestReleaseDelayedPublishesWhatIsDueOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	broker := &shelf{}
	var db store.Store
	w, err := worker.New(config(t, func(c *worker.Config) {
		c.Publisher, c.Now, db = broker, func() time.Time { return now }, c.Store
	}))
	require.NoError(t, err)
	put := func(event, key string, due time.Time) {
		t.Helper()
		kept, err := lane.Open(t.Context(), db, lane.Name{Queue: "q", OrderingKey: key, Message: event})
		require.NoError(t, err)
		_, writes, err := kept.Put(lane.Waiting{
			Topic: "q", Message: contract.Message{Data: []byte(`{}`), Attributes: map[string]string{"event_id": event}, OrderingKey: key}, Due: due, EventID: event,
		}, now)
		require.NoError(t, err)
		_, err = db.Commit(t.Context(), writes)
		require.NoError(t, err)
	}
	put("e1", "k", now.Add(time.Hour))
	put("e2", "k", time.Time{})
	put("e3", "k", now.Add(2*time.Hour))
	put("e4", "k", time.Time{})
	put("e5", "", now.Add(time.Minute))
	run := func() (published any, ids []string) {
		t.Helper()
		server := httptest.NewServer(w)
		defer server.Close()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/tasks/release-delayed", nil)
		require.NoError(t, err)
		broker.taken = nil
		done, err := tasks.Call(server.Client(), request)
		require.NoError(t, err)
		for _, m := range broker.taken {
			ids = append(ids, m.Attributes["event_id"])
		}
		return done["published"], ids
	}
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{
		{0, nil}, {time.Minute, []string{"e5"}}, {58 * time.Minute, nil}, {time.Minute, []string{"e1", "e2"}},
		{59 * time.Minute, nil}, {time.Minute, []string{"e3", "e4"}}, {time.Hour, nil},
	} {
		now = now.Add(step.after)
		published, ids := run()
		require.Equal(t, step.want, ids)
		require.EqualValues(t, len(step.want), published)
	}
	require.Contains(t, tasks.Names, "release-delayed")
}
