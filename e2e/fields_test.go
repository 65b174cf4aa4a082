package e2e_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/contract"
)

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
