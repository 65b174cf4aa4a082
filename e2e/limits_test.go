package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
)

// The door refuses what a full queue, a queue's rate and a user's rate do not let through, and says
// when to come again. The one who was refused is let through later.
func TestTheDoorHoldsQueuesToTheirBoundsAndRates(t *testing.T) {
	t.Parallel()
	s := startEmbeddedOf(t, changedCatalog(t,
		"    pool: bulk\n", "    pool: bulk\n    backlog_alert_above: 2\n    backlog_warn_above: 1\n    max_backlog: { messages: 3, on_full: refuse }\n",
		"    pool: events-normal\n", "    pool: events-normal\n    rate: { per_second: 400, per_user: 1, user: [subscription_id] }\n"))
	c, err := catalog.Load("")
	require.NoError(t, err)

	// The platform hangs over three messages, so that they wait in the broker.
	bulk, _ := c.Queue("sub-usage-sync")
	story := queueStory{queue: bulk.ID, eventType: "usage_sync", content: `{"subscription_id":"%s"}`}
	for range 3 {
		e := s.newQueueEvent()
		s.instruct(t, story, e, standin.Hang, 1)
		_, err := s.publish(t.Context(), bulk.Topic(), contract.Message{Data: story.body(bulk, e), Attributes: map[string]string{
			contract.AttrContract: bulk.Contract, contract.AttrEventID: e.id, contract.AttrEventType: story.eventType,
			contract.AttrOrderingKey: contract.UnknownOrderingKey,
		}})
		require.NoError(t, err)
	}
	var counted map[string]any
	require.Eventually(t, func() bool {
		counted, err = s.task(t.Context(), "count-backlogs")
		return err == nil && counted["messages"] == 3.0
	}, patience, pollInterval, "%v", counted)
	late := s.newQueueEvent()
	full := s.signed(t, "/queues/"+bulk.ID+"/messages", string(story.body(bulk, late)))
	require.Equal(t, []any{http.StatusTooManyRequests, "queue_full", "60"}, []any{full.Status, full.Code, full.RetryAfter}, "%v", counted)

	events, _ := c.Queue("events-normal")
	about := queueStory{queue: events.ID, eventType: "quota_warning", content: `{"subscription_id":"%s","meter":"calls","percent":80}`}
	one := s.newQueueEvent()
	refused := false
	for range 20 {
		answer := s.signed(t, "/queues/"+events.ID+"/messages", string(about.body(events, queueEvent{id: s.newQueueEvent().id, subject: one.subject})))
		if answer.Status == http.StatusAccepted {
			continue
		}
		require.Equal(t, []any{http.StatusTooManyRequests, "user_rate_limited", "1"}, []any{answer.Status, answer.Code, answer.RetryAfter})
		refused = true
		s.put(t, events, about, s.newQueueEvent()) // another user is let through
		break
	}
	require.True(t, refused)
	require.Eventually(t, func() bool {
		return s.signed(t, "/queues/"+events.ID+"/messages", string(about.body(events, one))).Status == http.StatusAccepted
	}, patience, time.Second)
	s.until(t, one.id, "processed")
}
