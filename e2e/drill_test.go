package e2e_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
)

// ask calls the worker's ops API.
func (s *stack) ask(t *testing.T, method, path string, question, answer any) {
	t.Helper()
	require.Less(t, s.as(t, "drill", method, path, question, answer), http.StatusMultipleChoices, path)
}

// letter waits for the one open dead letter of the event and returns it.
func (s *stack) letter(t *testing.T, queue, eventID string) deadletter.Item {
	t.Helper()
	var found ops.DeadLetters
	require.Eventually(t, func() bool {
		s.ask(t, http.MethodGet, "/v1/ops/dead-letters?queue="+url.QueryEscape(queue)+"&event_id="+eventID, nil, &found)
		return len(found.Items) > 0
	}, patience, pollInterval)
	require.Len(t, found.Items, 1)
	return found.Items[0]
}

// replay replays one item and waits for the end of the operation.
func (s *stack) replay(t *testing.T, item deadletter.Item) {
	t.Helper()
	var op deadletter.Operation
	s.ask(t, http.MethodPost, "/v1/ops/dead-letters/replay", ops.Request{
		Filter: deadletter.Filter{Queue: item.Queue, Item: item.ID}, Why: "the drill", Expect: 1,
	}, &op)
	require.Equal(t, "local:drill", op.Who)
	s.ask(t, http.MethodPost, "/v1/ops/operations/"+op.ID+"/run", struct{}{}, &op)
	require.Equal(t, deadletter.Finished, op.Progress)
	require.EqualValues(t, 1, op.Done)
}

// drillTx: a refund comes before its order until its attempts are used up. After the order it
// is replayed.
func drillTx(t *testing.T, s *stack) {
	o := s.newOrder()
	refund := o
	refund.EventID = s.newOrder().EventID
	s.accepted(t, samples.Read(samples.Refund, samples.Event{EventID: refund.EventID, OrderID: o.OrderID, CustomerID: o.CustomerID, UID: o.UID}))
	deliveries := s.until(t, refund.EventID, "dead_lettered")
	for i, d := range deliveries[:5] {
		require.Equal(t, i+1, d.Attempt, "attempts rise")
	}
	require.Equal(t, "order_not_seen", deliveries[4].Reason)
	item := s.letter(t, e2e.Queue, refund.EventID)
	require.EqualValues(t, 5, item.Attempts)
	require.Equal(t, []string{"order_not_seen", "attempts_exhausted"}, []string{item.Reason, item.Detail})

	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	s.replay(t, item)
	s.until(t, refund.EventID, "processed")
	require.Equal(t, int64(0), s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, "COMPLETED", status(t, s.store, refund.EventID))
	var story ops.Letter
	s.ask(t, http.MethodGet, "/v1/ops/dead-letters/"+url.PathEscape(item.ID), nil, &story)
	require.Equal(t, deadletter.Processed, story.State)
	require.EqualValues(t, 1, story.ReplayCount)
}

// item waits until the item has the state and returns it.
func (s *stack) item(t *testing.T, id string, state deadletter.State) deadletter.Item {
	t.Helper()
	var found ops.Letter
	require.Eventually(t, func() bool {
		s.ask(t, http.MethodGet, "/v1/ops/dead-letters/"+url.PathEscape(id), nil, &found)
		return found.State == state
	}, patience, 50*time.Millisecond)
	return found.Item
}

// untilReason waits for a delivery of the event with the reason.
func (s *stack) untilReason(t *testing.T, eventID, reason string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, d := range s.log.Deliveries(eventID) {
			if d.Reason == reason {
				return true
			}
		}
		return false
	}, patience, 20*time.Millisecond)
}
