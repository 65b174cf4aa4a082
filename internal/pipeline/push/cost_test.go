package push_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/pipeline/handler"
)

// forgetful makes a queue of the kind of analytics-track: losing some messages is accepted.
func forgetful(q *catalog.Queue) {
	q.RememberFor, q.DeadLetter, q.OnTerminal, q.MaxAttempts = 0, catalog.DeadLetter{Drop: true}, catalog.Ack, 1
	for eventType, h := range q.Handlers {
		h.MaxAttempts = 1
		q.Handlers[eventType] = h
	}
}

// TestATimeOfDeliveryIsKeptWithoutRecordsToo: what waits for its time is written down until then.
func TestATimeOfDeliveryIsKeptWithoutRecordsToo(t *testing.T) {
	t.Parallel()
	tracked := 0
	r := newRig(t, setup{queue: forgetful, leased: repeats(func(context.Context, handler.Event) (string, error) {
		tracked++
		return "tracked", nil
	})})
	m := paid("e1", known, 1).with(func(m *message) { m.attributes["deliver_at"] = start.Add(time.Hour).Format(time.RFC3339) })
	got := r.deliver(m)
	require.Equal(t, 200, got.code)
	require.True(t, got.Delayed)
	require.Zero(t, tracked)
	r.pass(time.Hour + time.Second)
	back := r.release(t)
	require.Len(t, back, 1)
	require.Equal(t, 200, r.deliver(back[0]).code)
	require.Equal(t, 1, tracked)
	_, found := r.record(t, "e1")
	require.False(t, found)
}
