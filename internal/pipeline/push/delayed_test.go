package push_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// keptMessages is how many messages wait.
func (r *rig) keptMessages(t require.TestingT) int {
	page, err := r.counter.Query(context.Background(), store.Query{Collection: lane.Delayed.Entries(), Limit: 100})
	require.NoError(t, err)
	return len(page.Documents)
}

// release runs release-delayed and returns what came back, as the broker delivers it.
func (r *rig) release(t require.TestingT) (back []message) {
	relay := &lane.Relay{Of: lane.Delayed, Store: r.faults, Publisher: r.broker, Now: func() time.Time { return time.Unix(0, r.now.Load()).UTC() }}
	_, err := relay.Due(context.Background(), 100, func(string, error) {})
	require.NoError(t, err)
	for _, m := range r.broker.returned {
		back = append(back, message{
			id: "back-" + m.Attributes[contract.AttrDelayTicket], body: string(m.Data), attributes: m.Attributes,
			published: time.Unix(0, r.now.Load()).UTC(),
		})
	}
	r.broker.returned = nil
	return back
}

// patient gives the queue waits of 20 minutes.
func patient(q *catalog.Queue) {
	for eventType, h := range q.Handlers {
		h.Backoff = retry.Policy{Schedule: []time.Duration{0, 20 * time.Minute}}
		q.Handlers[eventType] = h
	}
}

func inOrder(q *catalog.Queue) { q.OrderingKey = []string{"uid"} }

func both(a, b func(*catalog.Queue)) func(*catalog.Queue) {
	return func(q *catalog.Queue) { a(q); b(q) }
}

func TestAMessageThatIsTooLargeToKeepStaysWithTheBroker(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{queue: both(patient, inOrder), credit: always(errHandler)})
	padded := func(event string) message {
		return paid(event, known, 1).with(func(m *message) { m.body = string(m.data()) + strings.Repeat(" ", 520<<10) })
	}
	require.Equal(t, http.StatusInternalServerError, r.deliver(padded("e1")).code)
	require.Len(t, r.log.lines(t, "message not kept for its wait"), 1)
	require.Equal(t, http.StatusOK, r.deliver(paid("e2", known, 1)).code)
	got := r.deliver(padded("e3"))
	require.Equal(t, http.StatusServiceUnavailable, got.code, "behind another it cannot be kept either")
	require.Equal(t, "behind_delayed", got.Reason)
	at := padded("e4").with(func(m *message) { m.attributes["deliver_at"] = "2026-03-02T11:15:00Z" })
	require.Equal(t, "too_large_to_wait", r.deliver(at).Reason)
	require.Equal(t, 1, r.keptMessages(t))
}

// Other queues of the topic have had it.
func TestAMessageOfASharedTopicComesBackToItsQueueAlone(t *testing.T) {
	t.Parallel()
	shares := func(q *catalog.Queue) { q.SharedTopic, q.Bindings = "orders", []routing.Pattern{"order.*"} }
	r := newRig(t, setup{queue: both(both(budgeted, inOrder), shares), credit: failsFirst(20 * time.Second)})
	require.True(t, r.deliverNow(paid("e1", known, 1).with(func(m *message) { m.attributes["routing_key"] = "order.paid" })).Delayed)
	r.pass(20 * time.Second)
	back := r.release(t)
	require.Len(t, back, 1)
	require.Equal(t, "orders", back[0].attributes["queue"])
	require.Equal(t, http.StatusOK, r.deliver(back[0]).code)
	require.EqualValues(t, 1000, r.balance(t))
	other := paid("e2", known, 1).with(func(m *message) { m.attributes["routing_key"], m.attributes["queue"] = "order.paid", "mails" })
	require.Equal(t, http.StatusNoContent, r.deliver(other).code, "what comes back to another")
	require.EqualValues(t, 1000, r.balance(t))
}
