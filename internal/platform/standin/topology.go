package standin

import (
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract/routing"
	"billhook/internal/platform/gcp/pubsub"
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

// Topology lists the subscriptions of the queues, as they are made on Google Cloud: the push subscription of each queue,
// and for each dead-letter topic the hold and the push subscription that feeds the store.
func Topology(queues []catalog.Queue) (all []Subscription) {
	idOf := func(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
	seen := map[string]bool{}
	for _, q := range queues {
		_, subscriptions := pubsub.Target{}.Plan(q)
		for _, of := range subscriptions {
			one := Subscription{
				ID: idOf(of.Name), Topic: idOf(of.Topic), Path: of.PushConfig.GetPushEndpoint(), Ordered: of.EnableMessageOrdering,
				AckDeadline:    time.Duration(of.AckDeadlineSeconds) * time.Second,
				MinimumBackoff: of.RetryPolicy.GetMinimumBackoff().AsDuration(), MaximumBackoff: of.RetryPolicy.GetMaximumBackoff().AsDuration(),
				DeadLetterTopic: idOf(of.DeadLetterPolicy.GetDeadLetterTopic()), MaxDeliveryAttempts: int(of.DeadLetterPolicy.GetMaxDeliveryAttempts()),
				Retention: of.MessageRetentionDuration.AsDuration(),
			}
			if one.ID == q.PushSubscription() {
				one.Filter = q.Filter()
			}
			if !seen[one.ID] {
				all = append(all, one)
			}
			seen[one.ID] = true // queues may share a dead-letter topic
		}
	}
	return all
}
