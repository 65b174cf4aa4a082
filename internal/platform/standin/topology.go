package standin

import (
	"time"

	"billhook/catalog"
	"billhook/internal/contract/routing"
)

// Subscription configures one subscription, in the terms of google_pubsub_subscription.
type Subscription struct {
	ID    string
	Topic string
	// Path is the path of the push endpoint. If it is empty, the subscription holds its
	// messages (see Simulator.Held).
	Path    string
	Ordered bool
	// Filter lets messages through; its zero value lets through all.
	Filter      routing.Filter
	AckDeadline time.Duration
	// MinimumBackoff and MaximumBackoff are the retry policy.
	MinimumBackoff, MaximumBackoff time.Duration
	// DeadLetterTopic and MaxDeliveryAttempts are the dead-letter policy; an empty topic means
	// none.
	DeadLetterTopic     string
	MaxDeliveryAttempts int
	Retention           time.Duration
}

// Topology lists the subscriptions of the queues: the push subscription of each queue, and for
// each dead-letter topic the hold and the push subscription that feeds the store.
func Topology(queues []catalog.Queue) []Subscription {
	var all []Subscription
	seen := map[string]bool{}
	for _, q := range queues {
		minimum, maximum := q.BrokerBackoff()
		push := Subscription{
			ID: q.PushSubscription(), Topic: q.Topic(), Path: q.PushPath(),
			Ordered: q.Ordered(), Filter: q.Filter(), AckDeadline: q.AckDeadline,
			MinimumBackoff: minimum, MaximumBackoff: maximum, Retention: q.MessageRetention,
		}
		if q.DeadLetter.Drop {
			all = append(all, push)
			continue
		}
		push.DeadLetterTopic, push.MaxDeliveryAttempts = q.DeadLetter.Topic, catalog.BrokerMaxDeliveryAttempts
		all = append(all, push)
		if seen[q.DeadLetter.Topic] {
			continue
		}
		seen[q.DeadLetter.Topic] = true
		all = append(all, Subscription{
			ID: q.DeadLetterHold(), Topic: q.DeadLetter.Topic, Retention: q.DeadLetter.Retention,
		}, Subscription{
			ID: q.DeadLetterPush(), Topic: q.DeadLetter.Topic, Path: q.DeadLetterPushPath(),
			AckDeadline: q.AckDeadline, MinimumBackoff: minimum, MaximumBackoff: maximum,
			Retention: q.DeadLetter.Retention,
		})
	}
	return all
}
