package pages_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// counted adds to the shop what a worker has counted in the last hour: one queue that does well, and one
// that fails, whose target has an open breaker. It returns both.
func (s *shop) counted(t *testing.T) (well, failing catalog.Queue) {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for _, q := range c.Queues {
		posts := false
		for _, h := range q.Handlers {
			posts = posts || len(h.Targets()) > 0
		}
		if !q.Enabled || q.DeadLetter.Drop {
			continue
		}
		if posts {
			failing = q
		} else {
			well = q
		}
	}
	var target string
	for _, h := range failing.Handlers {
		target = h.Targets()[0]
	}
	r := rates.NewRecorder(rates.Config{
		Store: s.store, Now: func() time.Time { return noon }, Self: rates.Service{Instance: "i1"},
		Breakers: func() []rates.Breaker {
			return []rates.Breaker{{Target: target, State: "open", Since: noon.Add(-time.Minute)}}
		},
	})
	for range 3 {
		r.Arrived(well.ID)
		r.Ended(well.ID, retry.Processed, 1)
	}
	r.Ended(failing.ID, retry.Retry, 1)
	r.Answered(target, 503, "callee_failed_503", 1234*time.Millisecond)
	require.NoError(t, r.Flush(t.Context()))
	return well, failing
}

func TestTheOverviewHasTheWorstQueueFirst(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	well, failing := s.counted(t)
	answer := s.ask(t, "/ops/", nil)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
	page := answer.Body.String()
	names := regexp.MustCompile(`<h2><a href="/ops/queues/([^"]+)">`).FindAllStringSubmatch(page, -1)
	require.Equal(t, failing.ID, names[0][1])
	require.Contains(t, page, "breaker open")
	require.Contains(t, page, "3 in, 3 out, 0 % failed")
	require.Contains(t, page, `aria-label="24 hours: about 3 in, 3 out, 0 % of attempts failed"`)
	_, of, _ := strings.Cut(page, well.ID)
	require.Contains(t, of, "<path class=\"plot-done\" d=\"M161 40v-40h6v40z\"/>", "the last hour of 24")
	require.NotContains(t, page, "style=")
}

func TestAQueuesPageExplainsHowItStands(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	_, failing := s.counted(t)
	item := deadletter.Item{Queue: failing.ID, State: deadletter.Open, Reason: "product_unknown", Kept: noon, DeadLettered: noon, EventID: "e7"}
	_, err := s.store.Commit(t.Context(), []store.Write{store.Create(store.Key{Collection: deadletter.Collection, ID: "d1"}, store.Encode(&item))})
	require.NoError(t, err)
	answer := s.ask(t, "/ops/queues/"+failing.ID, nil)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
	for _, seen := range []string{
		"breaker open", "callee_failed_503", "1,234 ms", "product_unknown", "1 attempts failed and follow again: 100 % of attempts failed", "/ops/queues/" + failing.ID + "/pause",
	} {
		require.Contains(t, answer.Body.String(), seen)
	}
	require.Equal(t, http.StatusNotFound, s.ask(t, "/ops/queues/nobody", nil).Code)
}

func TestAQueueIsPausedAndResumedBehindAReason(t *testing.T) {
	t.Parallel()
	s := openShop(t, partner{})
	_, q := s.counted(t)
	at := "/ops/queues/" + q.ID
	require.Contains(t, s.ask(t, at+"/pause", nil).Body.String(), "Pause "+q.ID)
	refused := s.ask(t, at+"/pause", url.Values{"why": {""}})
	require.Equal(t, http.StatusUnprocessableEntity, refused.Code)
	require.Contains(t, refused.Body.String(), `role="alert"`)
	require.NotContains(t, s.ask(t, at, nil).Body.String(), "Paused since")
	done := s.ask(t, at+"/pause", url.Values{"why": {"the target is mended"}})
	require.Equal(t, http.StatusSeeOther, done.Code, done.Body.String())
	require.Equal(t, at, done.Header().Get("Location"))
	paused := s.ask(t, at, nil).Body.String()
	require.Contains(t, paused, "the target is mended")
	require.Contains(t, paused, "Resume "+q.ID)
	require.Contains(t, paused, "it cannot be seen from here")
	require.Contains(t, s.ask(t, at+"/resume", nil).Body.String(), "This worker may not change subscriptions")
	require.Equal(t, http.StatusSeeOther, s.ask(t, at+"/resume", url.Values{"why": {"it works again"}}).Code)
	require.NotContains(t, s.ask(t, at, nil).Body.String(), "Paused since")
}
