package catalog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatAQueueSaysOfItselfHasItsNumbers(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	for id, numbers := range map[string][]string{
		"orders-process":          {"order.created", "order_id", "5s, 30s, 2m, 10m", "up to 5 times", "orders-process-dlq", "14d", "above 5 open", "4h", "500 messages", "5 messages a second for it of one user", "100000"},
		"pay-refund-initiation":   {"1m, 2m, 4m", "30s more", "idempotency key", "48d", "two people"},
		"pay-subscription-update": {"subscription_id, else the correlation_id"},
		"analytics-track":         {"tried once", "6h", "100 messages", "No event is remembered", "is dropped", "an alert fires"},
		"fis-ingestion":           {"corrects it", "250 messages at once", "at least 1"},
	} {
		q, ok := c.Queue(id)
		require.True(t, ok)
		text := strings.Join(q.Words(), "\n")
		for _, number := range numbers {
			require.Contains(t, text, number, id)
		}
	}
	c.ShortenWaits(1500 * time.Millisecond)
	require.Contains(t, c.Queues[0].Words()[2], "1.5s")
	require.Contains(t, c.Queues[0].Words()[3], "shortened")
}
