// Package catalog is the one declaration of every queue, topic, message, product, source and target: YAML
// files, embedded and replaceable, and what loads and checks them. It owns the names and numbers, which
// nothing else may repeat, and refuses to load what it does not fully understand.
package catalog

import (
	"io/fs"
	"iter"
	"slices"
	"time"

	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/retry"
)

// Catalog is the loaded declaration. It is read-only after Load.
type Catalog struct {
	TasksPool      string              // the pool whose worker runs the tasks of all pools; empty: no queue runs
	Queues         []Queue             // in the order of the file
	Topics         []Topic             // shared by several queues, as an exchange was
	OutboundTopics []Topic             // published to for others; Billhook consumes none of them
	Products       map[string]Product  // by product id
	Contracts      *contract.Set       // the body formats, with what messages.yaml declares of them
	Providers      map[string]Provider // whose webhooks a source may send, by name
	Sources        map[string]Source   // by name, as in POST /webhooks/{source}
	Accounts       map[string][]string // the queues and topics that each account may send to by a token
	Notifications  map[string][]string // the channels of each event type
	Targets        map[string]Target   // the services that handlers post to, by name
	Endpoints      Endpoints           // the addresses that third parties register
	Journal        Journal             // the accounts of the books, and the rules that make entries of events
	Usage          Usage               // which usage is counted, and when a warning is emitted

	files fs.FS    // the files that it was read from; nil: none
	hash  string   // of the files
	lines lines    // of the files
	only  []string // the queues that it was narrowed to; none: all
	tasks tasks    // which pool runs the tasks
}

// Queue is one queue with its dead letters and its worker's rules; the tags are the names in the file.
type Queue struct {
	// ID names the topic, unless the queue shares one; everything else is derived from it.
	ID          string `json:"id"`
	Alias       string `json:"alias"`       // the name the queue had before, such as q:sub:payment_initiation
	Description string `json:"description"` // what its messages do, in a sentence
	// Enabled is false while the queue has no handlers: then a push or a message to it is answered 404.
	Enabled  bool   `json:"enabled"`
	Contract string `json:"contract"` // the body format of its messages
	// SharedTopic is the shared topic that the queue takes its messages from; empty: it has its own.
	SharedTopic string `json:"topic"`
	// routing keys that it takes from its topic; none: all of them
	Bindings []routing.Pattern `json:"bindings"`
	// OrderingKey lists the fields that the ordering key is taken from, best first; empty: unordered.
	OrderingKey []string `json:"ordering_key"`
	// Priority is low, normal or high: for people, and the label of its metrics.
	Priority string             `json:"priority"`
	Pool     string             `json:"pool"`     // the worker service that serves the queue
	Handlers map[string]Handler `json:"handlers"` // by event type, or by a pattern of event types
	// MaxAttempts is how often a message is tried before it is dead-lettered.
	MaxAttempts int          `json:"max_attempts"`
	Backoff     retry.Policy `json:"retry_policy"` // the waits between attempts
	// ShortenWaits has replaced the waits that the catalog declares
	ShortWaits bool `json:"-"`
	// AckDeadline is how long Pub/Sub waits for the answer to a push, 10 to 600; at most lease.
	AckDeadline    time.Duration `json:"-"`
	Lease          time.Duration `json:"lease"`           // how long an attempt owns its event
	HandlerTimeout time.Duration `json:"handler_timeout"` // how long an attempt may take, below the ack deadline
	// MessageTTL is the age at which a message is no longer handled, unless it is replayed; 0 is never.
	MessageTTL       time.Duration `json:"message_ttl"`
	MessageRetention time.Duration `json:"message_retention_duration"` // how long Pub/Sub keeps a message
	// RememberFor is how long the idempotency record is kept; 0: none is.
	RememberFor time.Duration `json:"remember_for"`
	// Concurrency is how many messages one instance handles at once.
	Concurrency int `json:"concurrency"`
	// SlotWait is how long a message of a full instance waits; after it the push is refused.
	SlotWait     time.Duration `json:"slot_wait"`
	MinInstances int           `json:"min_instances"` // the fewest instances of the queue's service
	MaxInstances int           `json:"max_instances"` // the most instances of the queue's service
	// waiting messages above which an alert fires; 0 is none
	BacklogAlertAbove int `json:"backlog_alert_above"`
	BacklogWarnAbove  int `json:"backlog_warn_above"` // the same of a warning, which is smaller; 0 is none
	// OldestAlert is above the wait for a next attempt, and below the age at which a message is useless.
	OldestAlert time.Duration `json:"oldest_alert"`
	DeadLetter  DeadLetter    `json:"dead_letter"` // what becomes of a message that cannot be handled
	OnTerminal  OnTerminal    `json:"on_terminal"` // ack or reject: the answer once the dead letter is confirmed
	// NackBudget is the time in which an instance nacks one push for the sake of a single message; later ones
	// are kept or dead-lettered, and acknowledged. 0 is no limit.
	NackBudget  time.Duration `json:"nack_budget"`
	OnCorrected OnCorrected   `json:"on_corrected"` // refuse or accept another payload under a dead letter's id
	DedupeBy    DedupeBy      `json:"dedupe_by"`    // what identifies an event of the queue
	FourEyes    bool          `json:"four_eyes"`    // whether changes of its dead letters need two people
	Batch       Batch         `json:"batch"`        // how many concurrent attempts one call of a handler takes
	Rate        Rate          `json:"rate"`         // how many messages a second the webhook service takes
	MaxBacklog  MaxBacklog    `json:"max_backlog"`  // how many messages may wait in the broker
}

// Rate limits messages for a queue in a second, over all instances. The zero value is no limit.
type Rate struct {
	PerSecond int `json:"per_second"` // messages of all users together; 0 is no limit
	PerUser   int `json:"per_user"`   // messages of each user; 0 is no limit
	// User lists the attributes or body fields that say whose a message is, best first.
	User []string `json:"user"`
}

// MaxBacklog bounds the messages of a queue that wait in the broker. The zero value is no bound.
type MaxBacklog struct {
	Messages int    `json:"messages"` // how many may wait before on_full holds; 0 is any number
	OnFull   OnFull `json:"on_full"`  // refuse more, or alert
}

// What a queue does where it has a choice.
type (
	// OnTerminal is the answer to a message that cannot succeed, once its dead letter is confirmed.
	OnTerminal string
	// DedupeBy is what two messages of the same event have in common.
	DedupeBy string
	// OnCorrected says whether another payload under the id of a dead letter is taken.
	OnCorrected string
	// OnFull says what happens once more messages wait than the queue's bound.
	OnFull string
)

// The choices.
const (
	Reject OnTerminal  = "reject" // the 4xx of its class
	Ack    OnTerminal  = "ack"    // 200
	Refuse OnCorrected = "refuse" // a conflict, and a dead letter of its own
	Accept OnCorrected = "accept" // a new attempt, which closes the dead letter

	ByEventID        DedupeBy = "event_id"        // the id of its message
	ByIdempotencyKey DedupeBy = "idempotency_key" // the key that its message names, else its id

	RefuseMore OnFull = "refuse" // the webhook service refuses more, until some are done
	AlertAlone OnFull = "alert"  // an alert fires, and the webhook service takes what comes
)

// Handler is what one event type of a queue runs: a handler of the registry, or a post.
type Handler struct {
	// Name is the handler's in the registry, such as points.credit; a post's is made of target and path.
	Name string `json:"name"`
	Post Post   `json:"post"` // the request that handles it, in place of a handler of Go
	// Emits are ids of queues and topics; the worker refuses an emission to any other.
	Emits       []string      `json:"emits"`
	EmitsIfRun  []string      `json:"emits_if_run"` // queues that need not run; messages go to those that do
	WaitsFor    time.Duration `json:"waits_for"`    // how long it waits for the event that must follow; 0: none
	Calls       []string      `json:"calls"`        // targets that a handler of Go calls; a post has its own
	MaxAttempts int           `json:"max_attempts"` // that of the queue unless the event type has its own
	Backoff     retry.Policy  `json:"retry_policy"` // that of the queue unless the event type has its own
	Timeout     time.Duration `json:"timeout"`      // how long one attempt may take
}

// DeadLetter says what happens to a message that cannot be handled.
type DeadLetter struct {
	Drop        bool          `json:"drop"`         // no dead-letter topic: the message is counted and dropped
	Topic       string        `json:"-"`            // follows from the queue's id
	Aliases     []string      `json:"aliases"`      // former names: of an exchange, of a queue
	Retention   time.Duration `json:"retention"`    // how long a dead letter can be replayed
	AlertAbove  int           `json:"alert_above"`  // open dead letters above which an alert fires; 0 is none
	OldestAlert time.Duration `json:"oldest_alert"` // age of the oldest above which an alert fires; 0 is none
	WarnAbove   int           `json:"warn_above"`   // the smaller number above which a warning does; 0 is none
	OldestWarn  time.Duration `json:"oldest_warn"`  // the smaller age above which a warning does; 0 is none
}

// Topic is a topic that several queues share, or that others subscribe to.
type Topic struct {
	ID          string `json:"id" show:"Topic"`                     // the topic's id
	Alias       string `json:"alias" show:"Alias,less"`             // the name of the exchange that it was
	Description string `json:"description" show:"Description,less"` // what is published to it
}

// Product is what a product of the store is worth.
type Product struct {
	Points int64 `json:"points"` // what one piece is worth, at least 1
}

// Scheme is how a source signs, and what its bodies are.
type Scheme string

// The schemes whose bodies are of the contract's formats. Any other is a provider's name.
const (
	SchemeGeneric  Scheme = "generic"
	SchemeStandard Scheme = "standard"
)

// Source is one sender of webhooks.
type Source struct {
	Name string `json:"-"`
	// Scheme is a provider, or generic or standard for bodies in the contract's formats.
	Scheme         Scheme            `json:"scheme"`
	SecretVariable string            `json:"secret_variable"`  // the environment variable with its secrets
	APIKeyVariable string            `json:"api_key_variable"` // that with the provider's API key; may be empty
	MaxBodyBytes   int64             `json:"max_body_bytes"`   // the largest body that is read
	RatePerSecond  float64           `json:"rate_per_second"`  // of each queue at one instance; 0 is no limit
	Burst          int               `json:"burst"`            // how many may come at once
	Events         map[string]string `json:"events"`           // event type -> queue id; other types are ignored
}

// Queue finds a queue by its id or by its alias.
func (c *Catalog) Queue(name string) (Queue, bool) {
	return c.find(func(q *Queue) bool { return q.ID == name || (q.Alias != "" && q.Alias == name) })
}

// DeadLetters finds a queue by its dead letters' topic or alias, else by its own names.
func (c *Catalog) DeadLetters(name string) (Queue, bool) {
	if q, ok := c.find(func(q *Queue) bool {
		return name != "" && (q.DeadLetter.Topic == name || slices.Contains(q.DeadLetter.Aliases, name))
	}); ok {
		return q, true
	}
	return c.Queue(name)
}

// TopicNamed finds a shared or outbound topic by its id or by its alias.
func (c *Catalog) TopicNamed(name string) (Topic, bool) {
	for _, t := range slices.Concat(c.Topics, c.OutboundTopics) {
		if name != "" && (t.ID == name || t.Alias == name) {
			return t, true
		}
	}
	return Topic{}, false
}

// OtherTopics lists the outbound topics, and the shared ones that an enabled queue takes messages from.
func (c *Catalog) OtherTopics() []string {
	var ids []string
	for _, t := range c.OutboundTopics {
		ids = append(ids, t.ID)
	}
	for _, t := range c.Topics {
		if _, taken := c.find(func(q *Queue) bool { return q.Enabled && q.SharedTopic == t.ID }); taken {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// Enabled lists the enabled queues.
func (c *Catalog) Enabled() []Queue {
	return slices.DeleteFunc(slices.Clone(c.Queues), func(q Queue) bool { return !q.Enabled })
}

// find passes pointers because a queue is large to copy.
func (c *Catalog) find(is func(*Queue) bool) (Queue, bool) {
	for i := range c.Queues {
		if is(&c.Queues[i]) {
			return c.Queues[i], true
		}
	}
	return Queue{}, false
}

// handlers yields the handlers of the enabled queues.
func (c *Catalog) handlers() iter.Seq2[Queue, Handler] {
	return func(yield func(Queue, Handler) bool) {
		for _, q := range c.Queues {
			for _, h := range q.Handlers {
				if q.Enabled && !yield(q, h) {
					return
				}
			}
		}
	}
}

// HandledBy finds the first enabled queue whose handlers include the named one.
func (c *Catalog) HandledBy(name string) (found Queue, ok bool) {
	for q, h := range c.handlers() {
		if h.Name == name {
			return q, true
		}
	}
	return Queue{}, false
}

// KeepsJournal reports whether an enabled queue has a handler of the journal. It is true for a nil catalog.
func (c *Catalog) KeepsJournal() bool {
	if c == nil {
		return true
	}
	_, posts := c.HandledBy(JournalPost)
	_, reverts := c.HandledBy(JournalRevert)
	return posts || reverts
}

// EmitsOf returns the queues and topics that the named handler, of an enabled queue, emits to.
func (c *Catalog) EmitsOf(handler string) []string {
	for _, h := range c.handlers() {
		if h.Name == handler && len(h.Emits) > 0 {
			return h.Emits
		}
	}
	return nil
}

// EmitsTo returns the first queue that the named handler emits to.
func (c *Catalog) EmitsTo(handler string) (Queue, bool) {
	for _, id := range c.EmitsOf(handler) {
		if q, ok := c.Queue(id); ok {
			return q, true
		}
	}
	return Queue{}, false
}

// ShortenWaits replaces each wait between two attempts, for a run on one machine.
func (c *Catalog) ShortenWaits(to time.Duration) {
	short := retry.Policy{Base: to, Max: to}
	for i := range c.Queues {
		q := &c.Queues[i]
		for eventType, h := range q.Handlers {
			h.Backoff = short
			q.Handlers[eventType] = h
		}
		q.Backoff, q.ShortWaits = short, true
	}
}
