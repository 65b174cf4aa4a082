package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// queueStory is an event type of a queue whose effect a service has.
type queueStory struct {
	*stack
	queue     catalog.Queue
	handler   catalog.Handler
	eventType string
}

// ownCases are queues, and event types of queues, with cases of their own: they have more than one effect.
var ownCases = []string{
	"paynow-events", "events-low", "notifications-fanout", "fis-ingestion", "orders-process",
	"events-high usage_tracking",
}

// everyQueue has each outcome for each of them: processed, duplicate, refused, retried, exhausted, expired.
func everyQueue(t *testing.T, s *stack) {
	for _, q := range s.catalog.Queues {
		for handled, h := range q.Handlers {
			if !q.Enabled || slices.Contains(ownCases, q.ID) || slices.Contains(ownCases, q.ID+" "+handled) {
				continue
			}
			one := q
			one.Handlers = map[string]catalog.Handler{handled: h}
			story := queueStory{s, q, h, samples.TypeFor(s.catalog, one)}
			t.Run(q.ID+" "+handled, func(t *testing.T) {
				t.Parallel()
				story.run(t)
			})
		}
	}
}

// body is a message whose ordering key is its id too.
func (s queueStory) body(t *testing.T, id string) string {
	t.Helper()
	key := ""
	if s.catalog.KeyMember(s.queue, s.eventType) != "" {
		key = id
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return string(filetest.Must(samples.Keyed(s.catalog, s.queue, s.eventType, id, key, at))(t))
}

func (s queueStory) put(t *testing.T, id string) {
	t.Helper()
	answer := s.signed(t, "/queues/"+s.queue.ID, s.body(t, id))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	require.Equal(t, id, answer.EventID)
}

// effect returns how often an event took effect, and how its service is made to fail: the gateway knows it by
// the payment, an index by the document, and any other service by the event.
func (s queueStory) effect(id string) (times int, behave func(standin.Mode, int) error) {
	if s.handler.Post.Target == "" {
		return s.gateway.CarriedOut(id), func(m standin.Mode, n int) error { return s.gateway.Behave(id, m, n) }
	}
	if s.handler.Post.Form == catalog.Bulk {
		id = dedupe.DefaultTenant + "~" + id
	}
	return s.service.Applied(id), func(m standin.Mode, n int) error { return s.service.Behave(id, m, n) }
}

func (s queueStory) requireEffects(t *testing.T, id string, want, deadLetters int) {
	t.Helper()
	got, _ := s.effect(id)
	require.Equal(t, want, got, id)
	s.requireDeadLetters(t, s.queue, id, deadLetters)
}

func (s queueStory) run(t *testing.T) {
	t.Helper()
	q, n, recorded, end := s.queue, s.seq.Add(1), s.queue.Remembers(), "dead_lettered"
	if q.DeadLetter.Drop {
		end = "dropped"
	}
	id := func(name string) string { return fmt.Sprint(name, "-", n) }
	happy, refused, late, hopeless, stale := id("happy"), id("refused"), id("late"), id("hopeless"), id("stale")
	for of, fails := range map[string]struct {
		mode  standin.Mode
		times int
	}{refused: {standin.Refuse, 1}, late: {standin.Fail, 1}, hopeless: {standin.Fail, 100}} {
		_, behave := s.effect(of)
		require.NoError(t, behave(fails.mode, fails.times))
	}
	for _, one := range []string{happy, refused, late, hopeless} {
		s.put(t, one)
	}

	s.until(t, happy, "processed")
	s.requireEffects(t, happy, 1, 0)
	if recorded {
		s.put(t, happy)
		s.until(t, happy, "duplicate")
		s.requireEffects(t, happy, 1, 0)
	}

	s.until(t, refused, end)
	s.requireEffects(t, refused, 0, 1)

	deliveries := s.until(t, hopeless, end)
	last := deliveries[len(deliveries)-1]
	require.Equal(t, []any{"callee_failed_503", s.handler.MaxAttempts}, []any{last.Reason, last.Attempt})
	s.requireEffects(t, hopeless, 0, 1)

	if s.handler.MaxAttempts > 1 {
		deliveries = s.until(t, late, "processed")
		require.Equal(t, 2, deliveries[len(deliveries)-1].Attempt)
		s.requireEffects(t, late, 1, 0)
	}

	if q.MessageTTL > 0 {
		attributes := contract.Attributes{
			Contract: q.Contract, EventID: stale, EventType: s.eventType, RoutingKey: s.eventType,
			OrderingKey:    contract.UnknownOrderingKey,
			FirstPublished: time.Now().Add(-q.MessageTTL - time.Minute).UTC().Format(time.RFC3339Nano),
		}
		m := contract.Message{Data: []byte(s.body(t, stale)), Attributes: q.Addressed(attributes.Map())}
		require.NoError(t, filetest.ErrorOf(s.publish(t.Context(), q.Topic(), m)))
		s.until(t, stale, "expired")
		s.requireEffects(t, stale, 0, 0)
	}
	if recorded {
		require.Equal(t, dedupe.Completed, s.ends(t, q.ID, happy).Status)
	}
}

func (s *stack) requireDeadLetters(t *testing.T, q catalog.Queue, eventID string, want int) {
	t.Helper()
	if q.DeadLetter.Drop {
		want = 0
	}
	of := map[string]any{"event_id": eventID, "queue": q.ID}
	query := store.Query{Collection: deadletter.Collection, Equal: of, Limit: 9}
	require.Eventually(t, func() bool {
		page, err := s.store.Query(t.Context(), query)
		return err == nil && len(page.Documents) == want
	}, patience, pollInterval, "%s %s", q.ID, eventID)
}
