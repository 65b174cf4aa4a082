package standin_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/platform/standin"
)

// TestTheSimulatorHasTheNumbersOfThePrintedCatalog: the simulator's policies equal those in the printed
// catalog, which Terraform reads. Provisioning has its own test.
func TestTheSimulatorHasTheNumbersOfThePrintedCatalog(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	text, err := c.JSON()
	require.NoError(t, err)
	var printed struct {
		Queues []struct {
			Subscription string `json:"push_subscription"`
			Broker       struct {
				Minimum  string `json:"minimum_backoff"`
				Maximum  string `json:"maximum_backoff"`
				Attempts int    `json:"max_delivery_attempts"`
			} `json:"broker"`
		} `json:"queues"`
	}
	require.NoError(t, json.Unmarshal(text, &printed))
	simulated := map[string]standin.Subscription{}
	for _, sub := range standin.Topology(c.Queues) {
		simulated[sub.ID] = sub
	}
	require.NotEmpty(t, printed.Queues)
	for i, q := range printed.Queues {
		sub, ok := simulated[q.Subscription]
		require.True(t, ok, q.Subscription)
		for text, want := range map[string]time.Duration{q.Broker.Minimum: sub.MinimumBackoff, q.Broker.Maximum: sub.MaximumBackoff} {
			got, err := time.ParseDuration(text)
			require.NoError(t, err)
			require.Equal(t, want, got, q.Subscription)
			require.LessOrEqual(t, got, catalog.BrokerMaxBackoff)
		}
		if !c.Queues[i].DeadLetter.Drop {
			require.Equal(t, sub.MaxDeliveryAttempts, q.Broker.Attempts, q.Subscription)
		}
	}
}
