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
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// queueStory are event types of a queue, separated by blanks, whose effect a service has.
type queueStory struct {
	queue, eventType string
	// content is the payload or the data; %s is a new id.
	content string
	// effect is who has the effect: a service, the gateway, or an index, whose documents have the id in content.
	effect effect
}

type effect int

const (
	byService effect = iota
	byGateway
	byIndex
)

// queueStories are the types of all queues whose effect a service has. A type that is missing fails the test.
var queueStories = []queueStory{
	{
		"sub-payment-initiation", "initial renewal upgrade downgrade",
		`{"subscription_id":"%s","amount":"9.99","currency":"EUR"}`, byGateway,
	},
	{"sub-trial-payment", "trial", `{"subscription_id":"%s","amount":"1.00","currency":"EUR"}`, byGateway},
	{"pay-refund-initiation", "refund", `{"payment_id":"%s","amount":"9.99","currency":"EUR"}`, byGateway},
	{"sub-plan-change", "upgrade downgrade", `{"subscription_id":"%s"}`, byService},
	{"sub-usage-sync", "usage_sync", `{"subscription_id":"%s"}`, byService},
	{"pay-subscription-update", "initial renewal upgrade downgrade", `{"subscription_id":"%s"}`, byService},
	{"pay-subscription-update", "payment_declined cancellation", `{"subscription_id":"%s"}`, byService},
	{"pay-subscription-update", "trial trial_completed trial_canceled", `{"subscription_id":"%s"}`, byService},
	{"events-high", "subscription_created", `{"subscription_id":"%s"}`, byService},
	{"events-high", "payment_processing", `{"payment_id":"%s"}`, byService},
	{"events-high", "api_sync", `{"api_id":"%s"}`, byService},
	{"events-normal", "invoice_generation", `{"subscription_id":"%s"}`, byService},
	{"events-normal", "quota_warning", `{"subscription_id":"%s","meter":"calls","percent":80}`, byService},
	{"notifications-send", "notification.email.order_confirmed", `{"user_id":"u","order_id":"%s"}`, byService},
	{"notifications-send", "notification.sms.order_confirmed", `{"user_id":"u","order_id":"%s"}`, byService},
	{"notifications-send", "notification.push.order_confirmed", `{"user_id":"u","order_id":"%s"}`, byService},
	{"search-index", "product.updated", `{"document_id":"%s","version":1}`, byIndex},
	{
		"search-index", "product.sold",
		`{"document_id":"%s","version":1,"sold_at":"2026-03-01T12:00:00Z"}`, byIndex,
	},
	{"analytics-track", "analytics.event", `{"name":"seen","subject_id":"%s"}`, byService},
}

// ownCases are queues, and event types of queues, with cases of their own: they have more than one effect.
var ownCases = []string{
	"paynow-events", "events-low", "notifications-fanout", "fis-ingestion", "orders-process",
	"events-high usage_tracking",
}

// everyQueue has each outcome for each of them: processed, duplicate, refused, retried, exhausted, expired.
func everyQueue(t *testing.T, s *stack) {
	c, stories := loaded(t, ""), map[string]bool{}
	for _, story := range queueStories {
		q, ok := c.Queue(story.queue)
		require.True(t, ok, story.queue)
		for one := range strings.FieldsSeq(story.eventType) {
			each := story
			each.eventType = one
			for eventType, h := range q.Handlers {
				if own, _ := q.Handler(one); own.Name == h.Name {
					stories[q.ID+" "+eventType] = true
				}
			}
			t.Run(q.ID+" "+one, func(t *testing.T) {
				t.Parallel()
				runQueueStory(t, s, q, each)
			})
		}
	}
	for _, q := range c.Queues {
		for eventType := range q.Handlers {
			if q.Enabled && !slices.Contains(ownCases, q.ID) && !slices.Contains(ownCases, q.ID+" "+eventType) {
				require.True(t, stories[q.ID+" "+eventType], "no case for %s of %s", eventType, q.ID)
			}
		}
	}
}

type queueEvent struct{ id, subject string }

func (s *stack) newQueueEvent() queueEvent {
	n := fmt.Sprint(s.seq.Add(1))
	return queueEvent{id: "q-" + n, subject: "about-" + n}
}

func (s *stack) put(t *testing.T, q catalog.Queue, story queueStory, e queueEvent) {
	t.Helper()
	answer := s.signed(t, "/queues/"+q.ID, story.body(q, e))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	require.Equal(t, e.id, answer.EventID)
}

func (story queueStory) body(q catalog.Queue, e queueEvent) string {
	content := fmt.Sprintf(story.content, e.subject)
	if q.Contract == contract.EnvelopeV1 {
		return envelope(e.id, story.eventType, content, "")
	}
	return platformEvent(e.id, story.eventType, content)
}

func (s *stack) instruct(t *testing.T, story queueStory, e queueEvent, mode standin.Mode, times int) {
	t.Helper()
	if story.effect == byGateway {
		require.NoError(t, s.gateway.Behave(e.subject, mode, times))
		return
	}
	require.NoError(t, s.service.Behave(story.applied(e), mode, times))
}

func (story queueStory) applied(e queueEvent) string {
	if story.effect == byIndex {
		return dedupe.DefaultTenant + "~" + e.subject
	}
	return e.id
}

func (s *stack) effects(story queueStory, e queueEvent) int {
	if story.effect == byGateway {
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
	s.requireDeadLetters(t, q, refused.id, 1)

	deliveries := s.until(t, hopeless.id, end)
	require.Zero(t, s.effects(story, hopeless))
	last := deliveries[len(deliveries)-1]
	require.Equal(t, []any{"callee_failed_503", h.MaxAttempts}, []any{last.Reason, last.Attempt})
	s.requireDeadLetters(t, q, hopeless.id, 1)

	if h.MaxAttempts > 1 {
		deliveries = s.until(t, late.id, "processed")
		require.Equal(t, 2, deliveries[len(deliveries)-1].Attempt)
		require.Equal(t, 1, s.effects(story, late))
		s.requireDeadLetters(t, q, late.id, 0)
	}

	if q.MessageTTL > 0 {
		stale := s.newQueueEvent()
		attributes := contract.Attributes{
			Contract: q.Contract, EventID: stale.id, EventType: story.eventType, RoutingKey: story.eventType,
			OrderingKey:    contract.UnknownOrderingKey,
			FirstPublished: time.Now().Add(-q.MessageTTL - time.Minute).UTC().Format(time.RFC3339Nano),
		}
		m := contract.Message{Data: []byte(story.body(q, stale)), Attributes: q.Addressed(attributes.Map())}
		require.NoError(t, filetest.ErrorOf(s.publish(t.Context(), q.Topic(), m)))
		s.until(t, stale.id, "expired")
		require.Zero(t, s.effects(story, stale))
		s.requireDeadLetters(t, q, stale.id, 0)
	}
	if recorded {
		require.Equal(t, dedupe.Completed, s.ends(t, q.ID, happy.id).Status)
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

func TestAQueueThatDoesNotRunAcceptsNothing(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, loaded(t, shortWaits(t), paynowQueues...))
	m := contract.Message{Data: []byte(`{}`), Attributes: map[string]string{"event_id": "e1"}}
	for _, q := range loaded(t, "").Queues {
		_, err := s.publish(t.Context(), q.Topic(), m)
		if slices.Contains(paynowQueues, q.ID) {
			require.NoError(t, err, q.ID)
			continue
		}
		require.ErrorIs(t, err, contract.ErrTopicMissing, q.ID)
		for path, code := range map[string]string{
			"/queues/" + q.ID: "queue_unknown", "/topics/" + q.Topic(): "topic_unknown",
		} {
			answer := s.signed(t, path, `{"subscription_id":"off"}`)
			require.Equal(t, []any{http.StatusNotFound, code}, []any{answer.Status, answer.Code}, path)
		}
	}
	o := s.newOrder() // its points need no queue of orders
	o.ShopOrder = "order-of-nobody"
	s.accepted(t, o.JSON())
	require.Empty(t, s.ends(t, e2e.Queue, o.EventID).Emitted)
	s.until(t, o.EventID, "processed")
}
