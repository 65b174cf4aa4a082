package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store/storetest"
)

type crashCase struct {
	name string
	// points end one worker after the other; name:2 is the second hit of a point. The last worker lives.
	points []string
	story  func(*testing.T, *crashed)
	// left is the state after the first kill: the status of the event's record, and of the record of the update
	// that it emits. It proves that the point is where its name says.
	left string
	// mode is that of the subscription service for its first request, or for all that it refuses.
	mode standin.Mode
	// calls lists the requests to the subscription service with their statuses; empty: not checked. It applies
	// one POST. After an attempt without a known outcome it gets a GET.
	calls string
}

func TestAWorkerKilledAtAnyStepLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	folder := shortWaits(t, `slot_wait: "15s"`, `slot_wait: "2s"`,
		"ack_deadline_seconds: 60", "ack_deadline_seconds: 10", `lease: "120s"`, `lease: "10s"`,
		`handler_timeout: "30s"`, `handler_timeout: "5s"`,
		"      cancellation:\n", "      cancellation:\n        max_attempts: 2\n") // a test can use up two attempts
	// The first requests to a new emulator take seconds, longer than the worker's timeouts.
	t.Run("no worker dies", func(t *testing.T) { crashCase{story: renewed, calls: posted}.run(t, folder) })
	for _, test := range crashCases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if len(test.points) < 4 { // the longest runs with -short, too
				onlyInFull(t)
			}
			test.run(t, folder)
		})
	}
}

type crashed struct {
	*real
	updates catalog.Queue
	points  []string
	left    string
	// event is the id of the story's event, and update that of the update that it emits: its idempotency key.
	event, update string
	// dropped are messages that the broker has dropped, as after their retention.
	dropped []string

	mu       sync.Mutex
	recorded []string
}

func (test crashCase) run(t *testing.T, folder string) {
	t.Helper()
	id := fmt.Sprint(800_000_000_000_000_000 + rand.Int64N(100_000_000_000_000)*100)
	s := &crashed{
		points: test.points, left: test.left, event: id,
		update: handler.CalleeKey(e2e.Queue, dedupe.DefaultTenant, id),
	}
	_, s.real = startReal(t, site{
		Project: "crash-" + uuid.NewString(), CatalogDir: folder, Queues: paynowQueues, Around: s.recordCalls,
		FailPoint: func() string { return append(slices.Clone(s.points), "")[0] },
	})
	s.updates, _ = s.catalog.EmitsTo("subscriptions.record")
	if test.mode != "" {
		times := map[bool]int{false: 1, true: 9}[test.mode == standin.Refuse]
		require.NoError(t, s.service.Behave("", test.mode, times))
	}
	s.schedule(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("calls: %v, log:\n%s", s.calls(), s.log.Text())
		}
	})
	test.story(t, s)
	if test.calls != "" {
		require.Equal(t, test.calls, s.calls())
	}
	require.Empty(t, s.points)
}

func (s *crashed) recordCalls(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.recorded = append(s.recorded, fmt.Sprint(r.Method, " ", recorder.Status()))
		}()
		service.ServeHTTP(recorder, r)
	})
}

func (s *crashed) calls() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.recorded, ", ")
}

// schedule calls the tasks, as Cloud Scheduler does, also while no worker runs.
func (s *crashed) schedule(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	t.Cleanup(func() { stop(); calling.Wait() })
	calling.Go(func() {
		for e2e.Wait(ctx, 2*time.Second) {
			for _, task := range []string{"relay-outbox", "release-delayed", "sweep-leases"} {
				_, _ = s.task(ctx, task) // the next call tries again
			}
		}
	})
}

func (s *crashed) awaitDeath(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	how, err := s.worker.Died(ctx)
	require.NoError(t, err, "at %s", s.points[0])
	require.Equal(t, "signal: killed", how, "at %s", s.points[0])
	s.points = s.points[1:]
	if s.left != "" {
		require.Equal(t, s.left, s.state(t))
		s.left = ""
	}
}

func (s *crashed) passPoints(t *testing.T) {
	t.Helper()
	for len(s.points) > 0 {
		s.awaitDeath(t)
		s.startWorker(t)
	}
}

func (s *crashed) sends(t *testing.T, body []byte) {
	t.Helper()
	s.accepted(t, body)
	s.passPoints(t)
}

func (s *crashed) state(t *testing.T) string {
	t.Helper()
	update := s.recordOf(t, s.updates.ID, s.update)
	return cmp.Or(s.status(t, s.event), "-") + " " + cmp.Or(string(update.Status), "-")
}

// settles waits until the records have the state and every message is acknowledged, so that nothing changes.
func (s *crashed) settles(t *testing.T, state string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return s.state(t) == state && len(storetest.All(t, s.store, lane.Outbox.Entries())) == 0 &&
			len(storetest.All(t, s.store, lane.Outbox.Lanes())) == 0
	}, patience, 2*pollInterval)
	open := map[string]bool{}
	require.Eventually(t, func() bool {
		for _, id := range paynowQueues {
			q, _ := s.catalog.Queue(id)
			for _, m := range s.pull(t, s.tapOf(q.Topic())) {
				open[q.ID+" "+m.MessageId] = true
			}
			for _, m := range s.pull(t, q.DeadLetterHold()) {
				open[q.DeadLetter.Topic+" "+m.MessageId] = true
			}
		}
		acked := s.acked()
		maps.DeleteFunc(open, func(id string, _ bool) bool { return acked[id] || slices.Contains(s.dropped, id) })
		return len(open) == 0
	}, patience, pollInterval, "never acked: %v", open)
}

// acked returns the messages whose acknowledgement a worker has logged, by topic and id: no fail point is
// between that line and the answer.
func (s *crashed) acked() map[string]bool {
	acked := map[string]bool{}
	for line := range bytes.Lines([]byte(s.log.Text())) {
		var said struct {
			Message, Queue string
			MessageID      string `json:"message_id"`
			Status         int
		}
		_ = json.Unmarshal(line, &said) // another line has none of them
		switch {
		case said.Message == "delivery" && (said.Status == http.StatusOK || said.Status == http.StatusNoContent):
			acked[said.Queue+" "+said.MessageID] = true
		case said.Message == "dead letter kept":
			q, _ := s.catalog.Queue(said.Queue)
			acked[q.DeadLetter.Topic+" "+said.MessageID] = true
		}
	}
	return acked
}
