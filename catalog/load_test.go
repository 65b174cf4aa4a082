package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract/routing"
	"billhook/internal/retry"
)

func TestAQueueTakesWhatItLeavesOpenFromTheDefaults(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(small)
	require.NoError(t, err)
	require.Equal(t, []catalog.Topic{{ID: "seat-news", Alias: "seat.news", Description: "What became of the seats."}}, c.OutboundTopics)
	require.Equal(t, map[string]catalog.Product{"1001": {Points: 10}}, c.Products)
	require.Equal(t, map[string]catalog.Source{"box-office": {
		Name: "box-office", Scheme: catalog.SchemeGeneric, SecretVariable: "WEBHOOK_SECRET_BOX_OFFICE", MaxBodyBytes: 65536,
		RatePerSecond: 10, Burst: 20, Events: map[string]string{"seat.taken": "bookings"},
	}}, c.Sources)

	growing := retry.Policy{Base: 10 * time.Second, Max: 600 * time.Second, Multiplier: 2, Jitter: time.Second}
	quick := growing
	quick.Base = 2 * time.Second
	require.Equal(t, catalog.Queue{
		ID: "bookings", Alias: "q:bookings", Description: "Seats taken and given back.", Enabled: true, Contract: "message.v1",
		SharedTopic: "seats", Bindings: []routing.Pattern{"seat.#", "seat.*"}, OrderingKey: []string{"seat_id"}, Priority: "high", Pool: "seats",
		Handlers: map[string]catalog.Handler{
			"seat.taken": {Name: "seats.take", MaxAttempts: 5, Backoff: growing, Timeout: 30 * time.Second},
			"seat.freed": {Name: "seats.free", Emits: []string{"seat-news"}, MaxAttempts: 3, Backoff: quick, Timeout: 5 * time.Second},
		},
		MaxAttempts: 5, Backoff: growing, AckDeadline: time.Minute, Lease: 2 * time.Minute, HandlerTimeout: 30 * time.Second,
		MessageTTL: time.Hour, MessageRetention: 7 * 24 * time.Hour, RememberFor: 30 * 24 * time.Hour,
		Concurrency: 10, SlotWait: 2 * time.Second, NackBudget: 10 * time.Second, MaxInstances: 2, OldestAlert: 15 * time.Minute, OnTerminal: catalog.Ack, OnCorrected: catalog.Refuse, DedupeBy: catalog.ByEventID,
		DeadLetter: catalog.DeadLetter{Topic: "bookings-dlq", Retention: 14 * 24 * time.Hour, OldestAlert: 4 * time.Hour},
	}, c.Queues[0])
	require.Equal(t, catalog.DeadLetter{Drop: true}, c.Queues[1].DeadLetter)
	require.Equal(t, retry.Policy{Schedule: []time.Duration{0, 5 * time.Second, 30 * time.Second}}, c.Queues[1].Backoff)
}
