package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/standin"
)

// ask calls the worker's ops API.
func (s *stack) ask(t *testing.T, method, path string, question, answer any) {
	t.Helper()
	body, err := json.Marshal(question)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), method, s.workerURL+path, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("X-Operator", "drill")
	got, err := e2e.Do(request)
	require.NoError(t, err)
	require.Less(t, got.Status, 300, got.Body)
	require.NoError(t, json.Unmarshal([]byte(got.Body), answer))
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

// openLetters calls the task that counts the open dead letters and returns their number. Dead
// letters of other cases may still arrive: wait for one's own first.
func (s *stack) openLetters(t *testing.T) int {
	t.Helper()
	done, err := s.task(t.Context(), "count-dead-letters")
	require.NoError(t, err)
	open, ok := done["open"].(float64)
	require.True(t, ok, done)
	return int(open)
}

// replay replays one item and waits for the end of the operation.
func (s *stack) replay(t *testing.T, item deadletter.Item) {
	t.Helper()
	s.operate(t, deadletter.Replay, item)
}

// operate replays or discards one item and waits for the end of the operation.
func (s *stack) operate(t *testing.T, kind deadletter.Kind, item deadletter.Item) {
	t.Helper()
	var op deadletter.Operation
	s.ask(t, http.MethodPost, "/v1/ops/dead-letters/"+string(kind), ops.Request{
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
	open := s.openLetters(t)

	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	s.replay(t, item)
	require.Equal(t, open-1, s.openLetters(t), "it is counted no longer, though the hold subscription has its copy")
	s.until(t, refund.EventID, "processed")
	require.Equal(t, int64(0), s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, "COMPLETED", status(t, s.store, refund.EventID))
	var story ops.Letter
	s.ask(t, http.MethodGet, "/v1/ops/dead-letters/"+url.PathEscape(item.ID), nil, &story)
	require.Equal(t, deadletter.Processed, story.State)
	require.EqualValues(t, 1, story.ReplayCount)
}

// drillLeased: the service refuses a webhook and its first replay, and accepts the second
// replay.
func drillLeased(t *testing.T, s *stack) {
	require.NoError(t, s.service.Tell(standin.Refuse, 2))
	e := s.newSubscription()
	s.accepted(t, samples.Read(samples.SubscriptionRenewed, e))
	told := s.emitted(t, e.EventID)
	s.until(t, told, "dead_lettered")
	item := s.letter(t, "q:pay:subscription_update", told)
	require.Equal(t, "callee_refused_422", item.Reason)

	s.replay(t, item)
	s.untilMany(t, told, "dead_lettered", 2)
	again := s.letter(t, "q:pay:subscription_update", told)
	require.Equal(t, item.ID, again.ID, "the same item")
	require.EqualValues(t, 1, again.ReplayCount)
	require.Zero(t, s.service.Applied(told))

	s.replay(t, again)
	s.until(t, told, "processed")
	require.Equal(t, 1, s.service.Applied(told))
}

// drillDiscarded: an order that cannot succeed is counted until it is discarded.
func drillDiscarded(t *testing.T, s *stack) {
	o := s.newOrder()
	o.Lines = append(o.Lines, e2e.Line{Product: "700000000000000998", Quantity: 1, Price: 500})
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "dead_lettered")
	item := s.letter(t, e2e.Queue, o.EventID)
	open := s.openLetters(t)
	s.operate(t, deadletter.Discard, item)
	require.Equal(t, open-1, s.openLetters(t))
}
