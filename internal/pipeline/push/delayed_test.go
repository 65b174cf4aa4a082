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

// timers is how many of them wait for a time that their sender has set.
func (r *rig) timers(t require.TestingT) int {
	page, err := r.counter.Query(context.Background(), store.Query{Collection: lane.Delayed.Entries(), Equal: map[string]any{"timer": true}, Limit: 100})
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

func TestAPatternOfEventTypesHasAHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{queue: func(q *catalog.Queue) {
		q.Handlers["order.*"] = q.Handlers["order.paid"]
		delete(q.Handlers, "order.paid")
	}})
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	require.EqualValues(t, 1000, r.balance(t))
}

func TestTheAgeOfAMessageIsFromItsFirstPublishing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		published time.Time
		first     string
		code      int
	}{
		"published lately":    {start, "", 200},
		"as old as it may be": {start.Add(-time.Hour), "", 200},
		"older":               {start.Add(-time.Hour - 1), "", 204},
		"published again lately, and first older": {start, "2026-03-02T09:14:59Z", 204},
		"published first lately":                  {start, "2026-03-02T09:15:00Z", 200},
		"first published nobody knows when":       {start, "long ago", 422},
		"published nobody knows when":             {time.Time{}, "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{queue: func(q *catalog.Queue) { q.MessageTTL = time.Hour }})
			m := paid("e1", known, 1).with(func(m *message) {
				m.published = test.published
				if test.first != "" {
					m.attributes["first_published_at"] = test.first
				}
			})
			require.Equal(t, test.code, r.deliver(m).code)
			_, there := r.record(t, "e1")
			require.Equal(t, test.code == 200, there, "what has expired is never handled")
		})
	}
}

func TestATimeOfDeliveryIsOneToComeWithinABound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ at, reason string }{
		"now":             {start.Format(time.RFC3339Nano), "credited"},
		"past":            {start.Add(-time.Hour).Format(time.RFC3339Nano), "credited"},
		"no time":         {"tomorrow", "attributes_invalid"},
		"beyond any plan": {start.Add(31 * 24 * time.Hour).Format(time.RFC3339Nano), "deliver_at_too_far"},
		"to come":         {start.Add(time.Hour).Format(time.RFC3339Nano), "deliver_at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{})
			got := r.deliver(paid("e1", known, 1).with(func(m *message) { m.attributes["deliver_at"] = test.at }))
			require.Equal(t, test.reason, got.Reason)
			waits := 0
			if test.reason == "deliver_at" {
				waits = 1
				require.Equal(t, http.StatusOK, got.Status, "nothing has failed")
			}
			require.Equal(t, []int{waits, waits}, []int{r.keptMessages(t), r.timers(t)})
		})
	}
}
