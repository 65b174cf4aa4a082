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
	// TasksPool is the pool whose worker runs the tasks of all pools; empty: no queue runs.
	TasksPool      string
	Queues         []Queue             // in the order of the file
	Topics         []Topic             // shared by several queues, as an exchange was
	OutboundTopics []Topic             // published to for others; Billhook consumes none of them
	Products       map[string]Product  // by product id
	Contracts      *contract.Set       // the body formats, with what messages.yaml declares of them
	Providers      map[string]Provider // whose webhooks a source may send, by name
	Sources        map[string]Source   // by name, as in POST /webhooks/{source}
	// Accounts are the queues and shared topics that an account may send to by a token, by its name.
	Accounts map[string][]string
	// Notifications are the channels that an event is told on, by its type.
	Notifications map[string][]string
	Targets       map[string]Target // the services that handlers post to, by name
	Endpoints     Endpoints         // the addresses that third parties register
	Journal       Journal           // the accounts of the books, and the rules that make entries of events
	Usage         Usage             // which usage is counted, and of what somebody is warned

	files fs.FS    // that it was read from; nil: none
	hash  string   // of the files
	lines lines    // of the files
	only  []string // the queues that it was narrowed to; none: all
	tasks tasks    // who is to run the tasks
}

// Queue is one queue with its dead letters and its worker's rules; the tags are the names in the file.
type Queue struct {
	// ID names the topic, unless the queue shares one; everything else is derived from it.
	ID string `json:"id"`
	// Alias is the name the queue had before, such as q:sub:payment_initiation.
	Alias       string `json:"alias"`
	Description string `json:"description"` // what its messages do, in a sentence
	// Enabled is false while the queue has no handlers: then a push or a message to it is answered 404.
	Enabled  bool   `json:"enabled"`
	Contract string `json:"contract"` // the body format of its messages
	// SharedTopic is the shared topic that the queue takes its messages from; empty: it has its own.
	SharedTopic string `json:"topic"`
	// Bindings are the routing keys that the queue takes from its topic; none: it takes all.
	Bindings []routing.Pattern `json:"bindings"`
	// OrderingKey lists the fields that the ordering key is taken from, best first; empty: unordered.
	OrderingKey []string `json:"ordering_key"`
	Priority    string   `json:"priority"` // low, normal or high: for people, and the label of its metrics
	Pool        string   `json:"pool"`     // the worker service that serves the queue
	// Handlers by event type, or by a pattern of event types.
	Handlers map[string]Handler `json:"handlers"`
	// MaxAttempts is how often a message is tried before it is dead-lettered.
	MaxAttempts int          `json:"max_attempts"`
	Backoff     retry.Policy `json:"retry_policy"` // the waits between attempts
	// ShortWaits: ShortenWaits has replaced the waits that the catalog declares.
	ShortWaits bool `json:"-"`
	// AckDeadline is how long Pub/Sub waits for the answer to a push, as a number of 10 to 600; above
	// handler_timeout, and at most lease.
	AckDeadline time.Duration `json:"-"`
	// how long a claimed event belongs to one attempt; at least ack_deadline_seconds
	Lease time.Duration `json:"lease"`
	// how long one attempt may take; below ack_deadline_seconds
	HandlerTimeout time.Duration `json:"handler_timeout"`
	// MessageTTL is the age at which a message is no longer handled, unless it is replayed; 0 is never.
	MessageTTL time.Duration `json:"message_ttl"`
	// how long Pub/Sub keeps an unacknowledged message
	MessageRetention time.Duration `json:"message_retention_duration"`
	// RememberFor is how long the idempotency record is kept; 0: none is.
	RememberFor time.Duration `json:"remember_for"`
	Concurrency int           `json:"concurrency"` // how many messages one instance handles at once
	// SlotWait is how long a message of a full instance waits; after it the push is refused.
	SlotWait     time.Duration `json:"slot_wait"`
	MinInstances int           `json:"min_instances"` // the fewest instances of the queue's service
	MaxInstances int           `json:"max_instances"` // the most instances of the queue's service
	// BacklogAlertAbove is the number of waiting messages above which the alert fires; 0 is none.
	BacklogAlertAbove int `json:"backlog_alert_above"`
	// BacklogWarnAbove is the smaller number above which a warning does; 0 is none.
	BacklogWarnAbove int `json:"backlog_warn_above"`
	// OldestAlert is above the wait for a next attempt, and below the age at which a message is useless.
	OldestAlert time.Duration `json:"oldest_alert"`
	DeadLetter  DeadLetter    `json:"dead_letter"` // what becomes of a message that cannot be handled
	// ack, or reject: the answer to a message that cannot succeed, once its dead letter is confirmed
	OnTerminal OnTerminal `json:"on_terminal"`
	// NackBudget is the time in which an instance nacks one push for the sake of a single message; later ones
	// are kept or dead-lettered, and acknowledged. 0 is no limit.
	NackBudget time.Duration `json:"nack_budget"`
	// refuse, or accept as a new attempt: another payload under the id of a dead letter
	OnCorrected OnCorrected `json:"on_corrected"`
	// DedupeBy is what an event of the queue is known by.
	DedupeBy DedupeBy `json:"dedupe_by"`
	// FourEyes is whether an operation on the queue's dead letters needs a second person.
	FourEyes bool `json:"four_eyes"`
	// Batch is how many concurrent attempts one call of the queue's handlers takes.
	Batch Batch `json:"batch"`
	// Rate is how many messages the webhook service takes for the queue in a second.
	Rate Rate `json:"rate"`
	// MaxBacklog is how many messages may wait in the broker.
	MaxBacklog MaxBacklog `json:"max_backlog"`
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
	// DedupeBy is what two messages have in common that are the same event.
	DedupeBy string
	// OnCorrected is what becomes of another payload under the id of a dead letter.
	OnCorrected string
	// OnFull is what happens once more messages wait than the queue's bound.
	OnFull string
)

// The choices.
const (
	Reject OnTerminal  = "reject" // the 4xx of its class
	Ack    OnTerminal  = "ack"    // 200
	Refuse OnCorrected = "refuse" // a conflict, and a dead letter of its own
	Accept OnCorrected = "accept" // a new attempt, which closes the dead letter

	ByEventID DedupeBy = "event_id" // the id of its message
	// the key that its message names, or the id of one that names none
	ByIdempotencyKey DedupeBy = "idempotency_key"

	RefuseMore OnFull = "refuse" // the webhook service refuses more, until some are done
	AlertAlone OnFull = "alert"  // an alert fires, and the webhook service takes what comes
)

// Handler is what one event type of a queue runs: a handler of the registry, or a post.
type Handler struct {
	// Name is the handler's in the registry, such as points.credit; a post's is made of target and path.
	Name string `json:"name"`
	Post Post   `json:"post"` // the request that handles it, in place of a handler of Go
	// Emits are ids of queues and topics; the worker refuses an emission to any other.
	Emits []string `json:"emits"`
	// EmitsIfRun are ids of queues that need not run. Messages go to those that do.
	EmitsIfRun []string `json:"emits_if_run"`
	// WaitsFor is how long it waits for the event that must follow; 0: it waits for none.
	WaitsFor time.Duration `json:"waits_for"`
	// Calls are names of targets that a handler of Go calls; a post says its target itself.
	Calls []string `json:"calls"`
	// MaxAttempts is that of the queue unless the event type has its own.
	MaxAttempts int           `json:"max_attempts"`
	Backoff     retry.Policy  `json:"retry_policy"` // as of the queue, where it says nothing else
	Timeout     time.Duration `json:"timeout"`      // how long one attempt may take
}

// DeadLetter is what becomes of a message that cannot be handled.
type DeadLetter struct {
	// Drop leaves the queue without a dead-letter topic: the message is counted and gone.
	Drop bool `json:"drop"`
	// Topic follows from the queue's id.
	Topic string `json:"-"`
	// Aliases are former names of the dead letters: of an exchange, of a queue.
	Aliases   []string      `json:"aliases"`
	Retention time.Duration `json:"retention"` // how long a dead letter can be replayed
	// AlertAbove is the number of open dead letters above which the alert fires; 0 is none.
	AlertAbove int `json:"alert_above"`
	// the age of the oldest one above which an alert fires; 0 is none
	OldestAlert time.Duration `json:"oldest_alert"`
	// WarnAbove is the smaller number above which a warning does; 0 is none.
	WarnAbove int `json:"warn_above"`
	// the age of the oldest one above which a warning does; 0 is none
	OldestWarn time.Duration `json:"oldest_warn"`
}

// Topic is a topic that is no queue's own: several queues share it, or others subscribe to it.
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
	// Scheme is a provider of catalog/providers; generic or standard where it sends bodies of the contract's
	// formats.
	Scheme Scheme `json:"scheme"`
	// SecretVariable names the environment variable with its secrets.
	SecretVariable string `json:"secret_variable"`
	// APIKeyVariable names that with the key of the provider's API; empty: nothing is read there.
	APIKeyVariable string `json:"api_key_variable"`
	MaxBodyBytes   int64  `json:"max_body_bytes"` // the largest body that is read
	// RatePerSecond limits the messages for each queue at one instance; 0 is no limit.
	RatePerSecond float64 `json:"rate_per_second"`
	Burst         int     `json:"burst"` // how many may come at once
	// Events is event type -> queue id; a type that is not in it is ignored.
	Events map[string]string `json:"events"`
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

// OtherTopics lists the outbound topics, and the shared ones of which an enabled queue takes messages.
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

// find hands out pointers to look at: a queue is large to copy.
func (c *Catalog) find(is func(*Queue) bool) (Queue, bool) {
	for i := range c.Queues {
		if is(&c.Queues[i]) {
			return c.Queues[i], true
		}
	}
	return Queue{}, false
}

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

// KeepsJournal reports whether an enabled queue has a handler of the journal. Of no catalog it is true.
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
