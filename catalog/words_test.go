package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract/routing"
	"billhook/internal/retry"
)

func TestAQueueIsToldInWordsRuleByRule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		queue catalog.Queue
		want  []string
	}{
		"with every rule": {catalog.Queue{
			ID: "orders", Contract: "message.v1", SharedTopic: "shop", Bindings: []routing.Pattern{"order.*", "refund.#"}, OrderingKey: []string{"order_id", "user_id"},
			Pool: "payments", MaxAttempts: 9, Backoff: retry.Policy{Base: 10 * time.Second, Multiplier: 2, Max: time.Minute, Jitter: 1500 * time.Millisecond},
			AckDeadline: time.Minute, Lease: 2 * time.Minute, HandlerTimeout: 30 * time.Second, MessageTTL: 36 * time.Hour, MessageRetention: 7 * 24 * time.Hour,
			RememberFor: 30 * 24 * time.Hour, DedupeBy: catalog.ByIdempotencyKey, Concurrency: 5, MinInstances: 1, MaxInstances: 4,
			DeadLetter:  catalog.DeadLetter{Topic: "orders-dlq", Retention: 14 * 24 * time.Hour, AlertAbove: 3, OldestAlert: 4 * time.Hour},
			OnCorrected: catalog.Accept, FourEyes: true, Batch: catalog.Batch{Size: 50}, Rate: catalog.Rate{PerSecond: 500, PerUser: 10},
			MaxBacklog: catalog.MaxBacklog{Messages: 1000, OnFull: catalog.RefuseMore},
		}, []string{
			"It takes message.v1 messages of topic shop with the routing keys order.*, refund.#.",
			"Messages of one key follow each other. The key is the order_id, else the user_id.",
			"A message is tried up to 9 times, after waits of 10s, 20s, 40s, 1m, 1m, and so on, and up to 1.5s more by chance.",
			"An attempt may take 30s. Of a worker that is gone the broker delivers again after 1m, and the event is free again after 2m.",
			"A message that is older than 36h is dropped.",
			"The broker keeps a message that nobody has taken for 7d.",
			"An event is remembered for 30d, by its idempotency key.",
			"A message that cannot be handled becomes a dead letter on orders-dlq, and is kept there for 14d.",
			"An alert fires above 3 open dead letters, or where the oldest is older than 4h.",
			"Another payload under the id of a dead letter corrects it, and the same one sent again is tried again.",
			"What is done to its dead letters takes two people.",
			"It is served by pool payments, on at most 4 instances, each with up to 5 messages at once.",
			"It is to have at least 1: a deployment keeps so many where catalog_min_instances is set, else one at the most.",
			"One call of its handler takes up to 50 messages.",
			"The door takes up to 500 messages a second for it.",
			"The door takes up to 10 messages a second for it of one user.",
			"Where more than 1000 messages wait in the broker the door refuses more.",
		}},
		"with few": {catalog.Queue{
			ID: "track", Contract: "message.v1", Pool: "bulk", MaxAttempts: 1, AckDeadline: 10 * time.Second, Lease: time.Minute, HandlerTimeout: 5 * time.Second,
			MessageRetention: time.Hour, Concurrency: 1, MaxInstances: 1, DeadLetter: catalog.DeadLetter{Drop: true},
			MaxBacklog: catalog.MaxBacklog{Messages: 9, OnFull: catalog.AlertAlone},
		}, []string{
			"It takes message.v1 messages of topic track.",
			"Messages are handled in any order.",
			"A message is tried once.",
			"An attempt may take 5s. Of a worker that is gone the broker delivers again after 10s, and the event is free again after 1m.",
			"The broker keeps a message that nobody has taken for 1h.",
			"No event is remembered: a message that comes twice is handled twice.",
			"A message that cannot be handled is dropped and counted: the queue keeps no dead letters.",
			"It is served by pool bulk, on at most 1 instances, each with up to 1 messages at once.",
			"Where more than 9 messages wait in the broker an alert fires.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.queue.Words())
		})
	}
}
