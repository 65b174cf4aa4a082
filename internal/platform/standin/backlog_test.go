package standin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/backlog"
	"billhook/internal/platform/standin"
)

func TestTheSimulatorSaysWhatItHoldsAndSinceWhen(t *testing.T) {
	t.Parallel()
	answer := http.StatusServiceUnavailable
	s := newBench(t, func(received) (int, error) { return answer, nil }, plain(deadLetterAfter(100)))
	held := func() backlog.Held {
		all, at, err := s.Backlogs(t.Context())
		require.NoError(t, err)
		require.Equal(t, s.clock.Now(), at)
		require.Contains(t, all, "orders-dlq-hold", "a subscription that holds nothing is known to hold nothing")
		return all["orders-push"]
	}
	require.Equal(t, backlog.Held{}, held())
	s.publish("", "first")
	s.settle()
	published := s.clock.Now()
	s.advance(time.Second)
	s.publish("", "second", "third")
	s.settle()
	require.Equal(t, backlog.Held{Messages: 3, Oldest: published}, held(), "what is refused waits on")
	answer = http.StatusNoContent
	s.advance(time.Hour)
	require.Equal(t, backlog.Held{}, held())
}

func TestAReceiverThatIsNormalAgainForgetsWhatItWasTold(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	require.NoError(t, r.Tell(standin.Fail, 100))
	require.NoError(t, r.TellOf("other", standin.Refuse, 100))
	status, _, _ := post(t, r, "evt", notice("evt"))
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NoError(t, r.TellOf("other", standin.Normal, 0))
	status, _, _ = post(t, r, "evt", notice("evt"))
	require.Equal(t, http.StatusServiceUnavailable, status, "what is not about that event stands")
	require.NoError(t, r.Tell(standin.Normal, 0))
	status, _, _ = post(t, r, "evt", notice("evt"))
	require.Equal(t, http.StatusOK, status)
}
