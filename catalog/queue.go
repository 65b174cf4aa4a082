package catalog

import (
	"cmp"
	"maps"
	"time"

	"billhook/internal/contract/routing"
)

// Handler finds the handler of an event type: its own, else the handler of the narrowest pattern.
func (q Queue) Handler(eventType string) (Handler, bool) {
	return routing.Table[Handler](q.Handlers).Find(eventType)
}

// EventID returns the id that identifies an event within its queue and tenant.
func (q Queue) EventID(id, idempotencyKey string) string {
	if q.DedupeBy == ByIdempotencyKey && idempotencyKey != "" {
		return idempotencyKey
	}
	return id
}

// Charges reports whether a handler calls a target by itself, as the handlers that pay and refund do.
func (q Queue) Charges() bool {
	for _, h := range q.Handlers {
		if len(h.Calls) > 0 {
			return true
		}
	}
	return false
}

// Remembers reports whether the queue's events have records: without them a duplicate cannot be recognized.
func (q Queue) Remembers() bool { return q.RememberFor > 0 || !q.DeadLetter.Drop }

// Ordered reports whether messages of one key follow each other.
func (q Queue) Ordered() bool { return len(q.OrderingKey) > 0 }

// Topic is the id of the topic that the queue takes its messages from.
func (q Queue) Topic() string { return cmp.Or(q.SharedTopic, q.ID) }

func (q Queue) binding() routing.Binding {
	return routing.Binding{Queue: q.ID, Patterns: q.Bindings, Own: q.SharedTopic == ""}
}

// Takes reports whether a message of the topic, with these attributes, is for the queue.
func (q Queue) Takes(attributes map[string]string) bool { return q.binding().Takes(attributes) }

// Filter returns a filter that passes what the queue takes, and as little else as Pub/Sub's limits allow.
func (q Queue) Filter() routing.Filter { return q.binding().Filter() }

// Addressed returns the attributes of a message for this queue alone, which name it if its topic has others.
func (q Queue) Addressed(attributes map[string]string) map[string]string {
	if len(q.Bindings) == 0 {
		return attributes
	}
	addressed := map[string]string{}
	maps.Copy(addressed, attributes)
	addressed[routing.AttrQueue] = q.ID
	return addressed
}

// PushSubscription is the id of the subscription that pushes to the worker.
func (q Queue) PushSubscription() string { return q.ID + "-push" }

// DeadLetterHold is the id of the pull subscription that keeps dead letters.
func (q Queue) DeadLetterHold() string { return q.DeadLetter.Topic + "-hold" }

// DeadLetterPush is the id of the subscription that feeds the dead-letter store.
func (q Queue) DeadLetterPush() string { return q.DeadLetter.Topic + "-push" }

// PushPath is the worker's path for the queue's deliveries.
func (q Queue) PushPath() string { return "/push/" + q.ID }

// DeadLetterPushPath is the worker's path for the queue's dead letters.
func (q Queue) DeadLetterPushPath() string { return "/push/dead-letters/" + q.ID }

// BrokerMaxBackoff is the longest wait that the broker knows (Pub/Sub documentation: retry policy).
const BrokerMaxBackoff = 600 * time.Second

// BrokerMaxDeliveryAttempts is the backstop for a worker that never answers, and Pub/Sub's own maximum. The
// broker also counts failures that are not the message's: 100 deliveries of an outage last 16 hours.
const BrokerMaxDeliveryAttempts = 100

// BrokerBackoff is the subscription's retry_policy, for outages: the worker keeps a message's own waits.
func (q Queue) BrokerBackoff() (minimum, maximum time.Duration) {
	return min(q.Backoff.Wait(1, 0), BrokerMaxBackoff), BrokerMaxBackoff
}

// BrokerKeepsTime reports whether the broker's waits follow the policy of every event type of the queue.
func (q Queue) BrokerKeepsTime() bool {
	for _, h := range q.Handlers {
		p := h.Backoff
		if len(p.Schedule) > 0 || p.Multiplier != 2 || p.Jitter != 0 || p.Base != q.Backoff.Base || p.Base <= 0 {
			return false
		}
		for failed := 1; failed < h.MaxAttempts; failed++ {
			doubled := p.Base << (failed - 1)
			if p.Wait(failed, 0) != min(doubled, BrokerMaxBackoff) || doubled <= 0 {
				return false
			}
		}
	}
	return true
}

// LongestTimeout is the longest timeout of the queue and its event types.
func (q Queue) LongestTimeout() time.Duration {
	longest := q.HandlerTimeout
	for _, h := range q.Handlers {
		longest = max(longest, h.Timeout)
	}
	return longest
}
