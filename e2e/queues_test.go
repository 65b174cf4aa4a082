package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// queueStory is an event type of a queue, as its effect is seen in the service that does it.
type queueStory struct {
	queue, eventType string
	// content is the payload or the data; %s is a new id.
	content string
	// gateway: the gateway does it, and is told by the id in content how to answer.
	gateway bool
	// index: what is done is done to the document of the id in content.
	index bool
}

// queueStories are the types of all queues whose effect another service does. A type of such a
// queue that is not here fails the test.
var queueStories = []queueStory{
	{queue: "sub-payment-initiation", eventType: "initial", content: `{"subscription_id":"%s","amount":"9.99","currency":"EUR"}`, gateway: true},
	{queue: "sub-payment-initiation", eventType: "renewal", content: `{"subscription_id":"%s","amount":"9.99","currency":"EUR"}`, gateway: true},
	{queue: "sub-payment-initiation", eventType: "upgrade", content: `{"subscription_id":"%s"}`, gateway: true},
	{queue: "sub-payment-initiation", eventType: "downgrade", content: `{"subscription_id":"%s"}`, gateway: true},
	{queue: "sub-trial-payment", eventType: "trial", content: `{"subscription_id":"%s","amount":"1.00","currency":"EUR"}`, gateway: true},
	{queue: "pay-refund-initiation", eventType: "refund", content: `{"payment_id":"%s","amount":"9.99","currency":"EUR"}`, gateway: true},
	{queue: "sub-plan-change", eventType: "upgrade", content: `{"subscription_id":"%s"}`},
	{queue: "sub-plan-change", eventType: "downgrade", content: `{"subscription_id":"%s"}`},
	{queue: "sub-usage-sync", eventType: "usage_sync", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "initial", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "renewal", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "upgrade", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "downgrade", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "payment_declined", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "cancellation", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "trial", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "trial_completed", content: `{"subscription_id":"%s"}`},
	{queue: "pay-subscription-update", eventType: "trial_canceled", content: `{"subscription_id":"%s"}`},
	{queue: "events-high", eventType: "subscription_created", content: `{"subscription_id":"%s"}`},
	{queue: "events-high", eventType: "payment_processing", content: `{"payment_id":"%s"}`},
	{queue: "events-high", eventType: "api_sync", content: `{"api_id":"%s"}`},
	{queue: "events-normal", eventType: "invoice_generation", content: `{"subscription_id":"%s"}`},
	{queue: "events-normal", eventType: "quota_warning", content: `{"subscription_id":"%s","meter":"calls","percent":80}`},
	{queue: "notifications-send", eventType: "notification.email.order_confirmed", content: `{"user_id":"u","order_id":"%s"}`},
	{queue: "notifications-send", eventType: "notification.sms.order_confirmed", content: `{"user_id":"u","order_id":"%s"}`},
	{queue: "notifications-send", eventType: "notification.push.order_confirmed", content: `{"user_id":"u","order_id":"%s"}`},
	{queue: "search-index", eventType: "product.updated", content: `{"document_id":"%s","version":1}`, index: true},
	{queue: "search-index", eventType: "product.sold", content: `{"document_id":"%s","version":1,"sold_at":"2026-03-01T12:00:00Z"}`, index: true},
	{queue: "analytics-track", eventType: "analytics.event", content: `{"name":"seen","subject_id":"%s"}`},
}

// ownCases are queues, and types of queues, whose cases need more than a message and a service that is
// told how to answer.
var ownCases = []string{"paynow-events", "events-low", "notifications-fanout", "fis-ingestion", "orders-process", "events-high usage_tracking"}

// everyQueue tries each type of each queue that another service works for: happy, duplicate, terminal, transient and then
// success, exhausted, expired.
func everyQueue(t *testing.T, s *stack) {
	c, err := catalog.Load("")
	require.NoError(t, err)
	stories := map[string]bool{}
	for _, story := range queueStories {
		q, ok := c.Queue(story.queue)
		require.True(t, ok, story.queue)
		for eventType, h := range q.Handlers {
			if own, _ := q.Handler(story.eventType); own.Name == h.Name {
				stories[q.ID+" "+eventType] = true
			}
		}
		t.Run(story.queue+" "+story.eventType, func(t *testing.T) {
			t.Parallel()
			runQueueStory(t, s, q, story)
		})
	}
	for _, q := range c.Queues {
		for eventType := range q.Handlers {
			if q.Enabled && !slices.Contains(ownCases, q.ID) && !slices.Contains(ownCases, q.ID+" "+eventType) {
				require.True(t, stories[q.ID+" "+eventType], "no case for %s of %s", eventType, q.ID)
			}
		}
	}
}

// queueEvent is one event of a story.
type queueEvent struct{ id, subject string }

func (s *stack) newQueueEvent() queueEvent {
	n := fmt.Sprint(s.seq.Add(1))
	return queueEvent{id: "q-" + n, subject: "about-" + n}
}

// put puts the event on the queue through the producers' door.
func (s *stack) put(t *testing.T, q catalog.Queue, story queueStory, e queueEvent) {
	t.Helper()
	answer := s.signed(t, "/queues/"+q.ID+"/messages", string(story.body(q, e)))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	require.Equal(t, e.id, answer.EventID)
}

func (story queueStory) body(q catalog.Queue, e queueEvent) []byte {
	content := fmt.Sprintf(story.content, e.subject)
	if q.Contract == contract.EnvelopeV1 {
		return fmt.Appendf(nil, `{"id":%q,"action":%q,"created_at":"2026-03-01T12:00:00Z","attempts":0,"payload":%s}`, e.id, story.eventType, content)
	}
	return fmt.Appendf(nil, `{"id":%q,"type":%q,"version":1,"timestamp":"2026-03-01T12:00:00Z","producer":"e2e","data":%s}`, e.id, story.eventType, content)
}

// instruct tells the service how to answer the next deliveries of the event.
func (s *stack) instruct(t *testing.T, story queueStory, e queueEvent, mode standin.Mode, times int) {
	t.Helper()
	if story.gateway {
		require.NoError(t, s.gateway.Tell(map[standin.Mode]standin.Act{standin.Fail: standin.FailOrder, standin.Refuse: standin.RefuseOrder}[mode], times, e.subject))
		return
	}
	require.NoError(t, s.service.TellOf(story.applied(e), mode, times))
}

// applied is what the service knows an event by.
func (story queueStory) applied(e queueEvent) string {
	if story.index {
		return dedupe.DefaultTenant + "~" + e.subject
	}
	return e.id
}

func (s *stack) effects(story queueStory, e queueEvent) int {
	if story.gateway {
		return s.gateway.CarriedOut(e.id)
	}
	return s.service.Applied(story.applied(e))
}

func runQueueStory(t *testing.T, s *stack, q catalog.Queue, story queueStory) {
	t.Helper()
	h, _ := q.Handler(story.eventType)
	recorded, end := q.Remembers(), "dead_lettered"
	if q.DeadLetter.Drop {
		end = "dropped"
	}
	happy, refused, late, hopeless := s.newQueueEvent(), s.newQueueEvent(), s.newQueueEvent(), s.newQueueEvent()
	s.instruct(t, story, refused, standin.Refuse, 1)
	s.instruct(t, story, late, standin.Fail, 1)
	s.instruct(t, story, hopeless, standin.Fail, 100)
	for _, e := range []queueEvent{happy, refused, late, hopeless} {
		s.put(t, q, story, e)
	}

	s.until(t, happy.id, "processed")
	require.Equal(t, 1, s.effects(story, happy))
	if recorded {
		s.put(t, q, story, happy)
		s.until(t, happy.id, "duplicate")
		require.Equal(t, 1, s.effects(story, happy))
	}

	s.until(t, refused.id, end)
	require.Zero(t, s.effects(story, refused))
	s.requireLetters(t, q, refused.id, 1)

	deliveries := s.until(t, hopeless.id, end)
	require.Zero(t, s.effects(story, hopeless))
	last := deliveries[len(deliveries)-1]
	require.Equal(t, []any{"callee_failed_503", h.MaxAttempts}, []any{last.Reason, last.Attempt})
	s.requireLetters(t, q, hopeless.id, 1)

	if h.MaxAttempts > 1 {
		deliveries = s.until(t, late.id, "processed")
		require.Equal(t, 2, deliveries[len(deliveries)-1].Attempt)
		require.Equal(t, 1, s.effects(story, late))
		s.requireLetters(t, q, late.id, 0)
	}

	if q.MessageTTL > 0 {
		stale := s.newQueueEvent()
		body := story.body(q, stale)
		_, err := s.publish(t.Context(), q.Topic(), contract.Message{Data: body, Attributes: q.Addressed(map[string]string{
			contract.AttrContract: q.Contract, contract.AttrEventID: stale.id, contract.AttrEventType: story.eventType, contract.AttrRoutingKey: story.eventType,
			contract.AttrOrderingKey: contract.UnknownOrderingKey, contract.AttrFirstPublished: time.Now().Add(-q.MessageTTL - time.Minute).UTC().Format(time.RFC3339Nano),
		})})
		require.NoError(t, err)
		s.until(t, stale.id, "expired")
		require.Zero(t, s.effects(story, stale))
		s.requireLetters(t, q, stale.id, 0)
	}
	if recorded {
		doc, err := s.store.Get(t.Context(), dedupe.Key(q.ID, dedupe.DefaultTenant, happy.id))
		require.NoError(t, err)
		require.Equal(t, string(dedupe.Completed), doc.Fields["status"])
	}
}

// requireLetters waits until so many dead letters of the event are in the store.
func (s *stack) requireLetters(t *testing.T, q catalog.Queue, eventID string, want int) {
	t.Helper()
	if q.DeadLetter.Drop {
		want = 0
	}
	require.Eventually(t, func() bool {
		page, err := s.store.Query(t.Context(), store.Query{Collection: deadletter.Collection, Equal: map[string]any{"event_id": eventID, "queue": q.ID}, Limit: 9})
		return err == nil && len(page.Documents) == want
	}, patience, pollInterval, strings.Join([]string{q.ID, eventID}, " "))
}

// TestAQueueThatDoesNotRunTakesNothing: no producer is told that its message was taken, and no topic
// keeps one for a queue that nobody works for.
func TestAQueueThatDoesNotRunTakesNothing(t *testing.T) {
	t.Parallel()
	running := []string{e2e.Queue, "pay-subscription-update"}
	s := startEmbeddedOf(t, shortWaits(t), running...)
	c, err := catalog.Load("")
	require.NoError(t, err)
	var off int
	for _, q := range c.Queues {
		message := contract.Message{Data: []byte(`{}`), Attributes: map[string]string{"event_id": "e1"}}
		if slices.Contains(running, q.ID) {
			_, err := s.publish(t.Context(), q.Topic(), message)
			require.NoError(t, err, q.ID)
			continue
		}
		off++
		_, err := s.publish(t.Context(), q.Topic(), message)
		require.ErrorIs(t, err, contract.ErrTopicMissing, q.ID)
		for path, code := range map[string]string{"/queues/" + q.ID: "queue_unknown", "/topics/" + q.Topic(): "topic_unknown"} {
			answer := s.signed(t, path+"/messages", `{"subscription_id":"off"}`)
			require.Equal(t, http.StatusNotFound, answer.Status, path)
			require.Equal(t, code, answer.Code, path)
		}
	}
	require.Equal(t, len(c.Queues)-len(running), off)

	o := s.newOrder() // its points need no queue of orders
	o.ShopOrder = "order-of-nobody"
	s.accepted(t, o.JSON())
	require.Empty(t, s.ends(t, e2e.Queue, o.EventID).Emitted)
	s.until(t, o.EventID, "processed")
}
