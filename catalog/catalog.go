// Package catalog is the one declaration of every queue, message, product and source:
// four YAML files, embedded in the program and replaceable at run time, and the
// Go that loads and checks them. Topics, subscriptions, Terraform, alerts,
// emulators, the worker and the docs all read it.
//
// It owns the names and numbers; nothing else in the repository may repeat one.
// It refuses to load what it does not fully understand: an unknown key, a bad
// duration or a broken relation is an error that names file, queue and key.
package catalog

import (
	"slices"
	"time"

	"billhook/internal/contract"
	"billhook/internal/retry"
)

// Catalog is the loaded declaration. It is read-only after Load.
type Catalog struct {
	// Queues in the order of the file.
	Queues []Queue
	// OutboundTopics are published to for others; Billhook consumes none of them.
	OutboundTopics []OutboundTopic
	// Products by product id.
	Products map[string]Product
	// Contracts are what bodies may say: the formats, and what messages.yaml declares of them.
	Contracts *contract.Set
	// Sources by name, as in POST /webhooks/{source}.
	Sources map[string]Source
}

// Queue is one queue: a topic, its push subscription, its dead letters and the
// rules of its worker.
type Queue struct {
	// ID names the topic; everything else is derived from it.
	ID string
	// Alias is the name the queue had before, such as q:sub:payment_initiation.
	Alias       string
	Description string
	// Enabled is false while the queue has no handlers: it has no topic, and a push or a
	// message to it is answered 404.
	Enabled bool
	// Contract is the body format its messages have: paynow.v1, envelope.v1 or message.v1.
	Contract string
	// Filter is the binding, a Pub/Sub subscription filter; empty takes everything.
	Filter string
	// OrderingKey lists what the ordering key is made of, best first: the name of
	// an attribute or body field each. Empty: the queue is unordered.
	OrderingKey []string
	Priority    string
	// Pool names the worker service that serves the queue.
	Pool string
	// Handlers by event type.
	Handlers map[string]Handler
	// MaxAttempts is how often a message is tried before it is dead-lettered.
	MaxAttempts int
	Backoff     retry.Policy
	// AckDeadline, Lease, HandlerTimeout: HandlerTimeout < AckDeadline <= Lease.
	AckDeadline    time.Duration
	Lease          time.Duration
	HandlerTimeout time.Duration
	// MessageTTL is the age at which a message is no longer handled; 0 is never. It does not
	// apply to a replay: somebody wants that now.
	MessageTTL time.Duration
	// MessageRetention is how long Pub/Sub keeps an unacknowledged message.
	MessageRetention time.Duration
	// RememberFor is how long the idempotency record is kept.
	RememberFor time.Duration
	// Concurrency is how many messages one instance handles at once.
	Concurrency int
	// SlotWait is how long a message waits for its turn where that many are being
	// handled; after it the push is refused.
	SlotWait     time.Duration
	MinInstances int
	MaxInstances int
	// BacklogAlertAbove is the number of waiting messages above which the alert
	// fires, where workers were added before; 0 is none.
	BacklogAlertAbove int
	// OldestAlert is the age of the oldest unacknowledged message at which the alert
	// fires: longer than a message waits for its next attempt, and before it is useless.
	OldestAlert time.Duration
	DeadLetter  DeadLetter
	OnTerminal  OnTerminal
	// NackBudget is how often an instance nacks a push for the sake of a single message:
	// once in this time. Beyond it the message is kept, or its dead letter is confirmed, and
	// the push is acknowledged. 0 is no limit.
	NackBudget time.Duration
	// OnOrphan is what a sweep does with an event whose worker is gone and whose
	// redelivery is not in sight.
	OnOrphan OnOrphan
	// OnPoison is what becomes of the later messages of an ordering key after a dead letter.
	OnPoison OnPoison
	// OnCorrected is what becomes of another payload under the id of an event that was
	// dead-lettered.
	OnCorrected OnCorrected
	// FourEyes: what is done to the queue's dead letters needs a second person.
	FourEyes bool
}

// OnPoison is what becomes of the messages behind a dead letter.
type OnPoison string

// The two ways to go on after a dead letter.
const (
	Skip OnPoison = "skip" // later messages of its key flow
	Park OnPoison = "park" // they wait, in order, until it is replayed or discarded
)

// OnCorrected is what becomes of another payload under the id of a dead letter, of which
// nothing was applied. Under the id of any other event it is a conflict.
type OnCorrected string

// The two ways to take a corrected payload.
const (
	Refuse OnCorrected = "refuse" // a conflict, and a dead letter of its own
	Accept OnCorrected = "accept" // a new attempt, which closes the dead letter
)

// OnOrphan is what becomes of an event that was claimed and never finished.
type OnOrphan string

// The two ways to deal with an orphan.
const (
	Report    OnOrphan = "report"    // logged and counted, for a person to decide
	Republish OnOrphan = "republish" // published again on its queue
)

// OnTerminal is how a message that cannot succeed is answered once its dead
// letter is confirmed.
type OnTerminal string

// The two answers to a terminal failure.
const (
	Reject OnTerminal = "reject" // the 4xx of its class
	Ack    OnTerminal = "ack"    // 200
)

// Handler is what one event type of a queue runs.
type Handler struct {
	// Name is the handler's name in the registry, such as points.credit.
	Name string
	// Emits are the topics that its effect may tell: ids of queues and outbound topics. The
	// worker refuses every other, and who may publish where is granted by it.
	Emits []string
	// MaxAttempts, Backoff and Timeout are those of the queue unless the event
	// type has its own.
	MaxAttempts int
	Backoff     retry.Policy
	Timeout     time.Duration
}

// DeadLetter is what becomes of a message that cannot be handled.
type DeadLetter struct {
	// Drop: there is no dead-letter topic; the message is counted and gone.
	Drop bool
	// Topic is where dead letters are published.
	Topic     string
	Retention time.Duration
	// AlertAbove is the depth above which the alert fires.
	AlertAbove int
	// OldestAlert is the age of the oldest dead letter at which the alert fires; 0 is none.
	OldestAlert time.Duration
}

// OutboundTopic is a topic that others subscribe to.
type OutboundTopic struct {
	ID          string
	Alias       string
	Description string
}

// Product is what a product of the store is worth.
type Product struct {
	// Points per piece, at least 1.
	Points int64
}

// Scheme is how a source signs.
type Scheme string

// The signature schemes.
const (
	SchemePayNow   Scheme = "paynow"
	SchemeGeneric  Scheme = "generic"
	SchemeStandard Scheme = "standard"
)

// Source is one sender of webhooks.
type Source struct {
	Name   string
	Scheme Scheme
	// SecretVariable names the environment variable with its secrets.
	SecretVariable string
	// MaxBodyBytes is the largest body accepted.
	MaxBodyBytes int64
	// RatePerSecond and Burst limit accepted requests; 0 is no limit.
	RatePerSecond float64
	Burst         int
	// UIDMetadataKey is the body path that may carry the uid, such as
	// checkout.metadata.uid; empty: no metadata is trusted.
	UIDMetadataKey string
	// Events is event type -> queue id; a type that is not in it is ignored.
	Events map[string]string
}

// Queue finds a queue by its id or by its alias.
func (c *Catalog) Queue(name string) (Queue, bool) {
	i := slices.IndexFunc(c.Queues, func(q Queue) bool {
		return q.ID == name || (q.Alias != "" && q.Alias == name)
	})
	if i < 0 {
		return Queue{}, false
	}
	return c.Queues[i], true
}

// HandledBy finds the enabled queue whose handlers include the named one.
func (c *Catalog) HandledBy(name string) (Queue, bool) {
	i := slices.IndexFunc(c.Queues, func(q Queue) bool {
		for _, h := range q.Handlers {
			if q.Enabled && h.Name == name {
				return true
			}
		}
		return false
	})
	if i < 0 {
		return Queue{}, false
	}
	return c.Queues[i], true
}

// Ordered reports whether messages of one key follow each other.
func (q Queue) Ordered() bool { return len(q.OrderingKey) > 0 }

// Topic is the queue's topic id.
func (q Queue) Topic() string { return q.ID }

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

// BrokerMaxBackoff is the longest wait between two attempts that the broker knows
// (Pub/Sub documentation: retry policy, 0 to 600 s).
const BrokerMaxBackoff = 600 * time.Second

// BrokerMaxDeliveryAttempts is the max_delivery_attempts of every subscription's own
// dead-letter policy, and the most that Pub/Sub takes (its documentation: delivery
// attempts, 5 to 100). It is the backstop for a worker that never answers; the worker
// enforces MaxAttempts. The broker also counts what is no fault of the message, such as
// a database that is down: at one delivery in ten minutes, 100 of them last 16 hours.
const BrokerMaxDeliveryAttempts = 100

// BrokerBackoff is the retry_policy of the subscription: from the queue's first wait
// between two attempts, doubling, to the longest that the broker knows. What a message
// waits for by its own policy is the worker's to keep; the broker's waits are those of
// an outage, which are to last.
func (q Queue) BrokerBackoff() (minimum, maximum time.Duration) {
	return min(q.Backoff.Wait(1, 0), BrokerMaxBackoff), BrokerMaxBackoff
}

// BrokerKeepsTime reports whether the broker's waits are the policy of every event type
// of the queue: they double, from one first wait up to the longest that the broker
// knows, and have no jitter.
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

// longestTimeout is that of the queue and its event types.
func (q Queue) longestTimeout() time.Duration {
	longest := q.HandlerTimeout
	for _, h := range q.Handlers {
		longest = max(longest, h.Timeout)
	}
	return longest
}

// LongestWait is the longest that the queue's policies let a message wait between two
// of its attempts, whatever its event type and the dice.
func (q Queue) LongestWait() time.Duration {
	var longest time.Duration
	for _, h := range q.Handlers {
		for failed := 1; failed < h.MaxAttempts; failed++ {
			longest = max(longest, h.Backoff.Wait(failed, 1))
		}
	}
	return longest
}
