package pubsub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/pause"
)

// Code says in what a live resource differs from the catalog. Its text is its name.
type Code struct{ name, effect string }

// String is the code's name.
func (c Code) String() string { return c.name }

// MarshalText is the code's name.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.name), nil }

// What Examine finds, and what each does to a message.
var (
	TopicMissing         = Code{"topic_missing", "What is published to it is refused: the webhook service answers 503, and a sender that gives up loses the event."}
	SubscriptionMissing  = Code{"subscription_missing", "Nobody is given what is published, and no copy of it is kept."}
	HoldMissing          = Code{"hold_subscription_missing", "Dead letters have no copy but the store's: one that the worker cannot keep in time is gone."}
	LettersPushMissing   = Code{"dead_letter_push_missing", "Dead letters do not reach the store: they are neither listed nor replayed, and no alert counts them there."}
	LettersUnkept        = Code{"dead_letters_unkept", "No subscription keeps what is published there: a message that cannot be handled is gone for good."}
	LeftOver             = Code{"left_over", "The queue is not enabled, so the worker answers 404 to every push, and the messages wait until they are too old."}
	MessagesUnkept       = Code{"messages_unkept", "The queue is not enabled and has no subscription: what is published to its topic is gone without a trace, and no publisher is told."}
	WrongTopic           = Code{"wrong_topic", "It takes other messages than its queue's, and the queue's own reach nobody."}
	Detached             = Code{"detached", "It was cut off from its topic: nothing reaches it any more."}
	Expiring             = Code{"expiring", "Without a message for that long Pub/Sub deletes it, and everything published after that is lost."}
	NotPushed            = Code{"not_pushed", "It is a pull subscription and nobody pulls: its messages wait until they are too old."}
	Pushed               = Code{"pushed", "It is to keep copies and pushes them away instead."}
	WrongEndpoint        = Code{"wrong_endpoint", "The pushes go somewhere else: the queue's messages are not handled, or not by this worker."}
	Unwrapped            = Code{"unwrapped", "The push comes without its envelope, so the worker cannot read it and refuses every message."}
	WrongAccount         = Code{"wrong_service_account", "The worker answers 403 to every push: nothing of the queue is handled."}
	WrongAudience        = Code{"wrong_audience", "The worker answers 401 to every push: nothing of the queue is handled."}
	OrderingOff          = Code{"ordering_off", "Events of one customer overtake each other: a refund can be handled before its order."}
	OrderingOn           = Code{"ordering_on", "One slow message holds up others that have nothing to do with it."}
	WrongFilter          = Code{"wrong_filter", "Messages bound to the queue are passed by, or messages that are not bound to it arrive and are dropped."}
	DeadlineBelowHandler = Code{"ack_deadline_below_handler", "Messages are delivered again while their handler still works on them: answers are late, and attempts are used up."}
	WrongDeadline        = Code{"wrong_ack_deadline", "A message of a worker that is gone comes back sooner or later than its queue is built for."}
	WrongRetryPolicy     = Code{"wrong_retry_policy", "A failed message comes back faster or slower than its queue says: a dependency in trouble is hammered, or a customer waits."}
	ShortRetention       = Code{"short_retention", "A message that cannot be delivered is deleted that much earlier than the catalog promises."}
	NoDeadLetterPolicy   = Code{"dead_letter_policy_missing", "A message that no worker can answer, such as one that kills it, is delivered for ever and holds up its ordering key."}
	WrongDeadLetters     = Code{"wrong_dead_letter_policy", "A message that no worker can answer is given up too early or too late, or is put where nobody looks."}
	DeadLetterPolicy     = Code{"dead_letter_policy_unwanted", "On Google's emulator an ordered subscription stops pushing after its first dead letter."}
	NoPublisherGrant     = Code{"publisher_grant_missing", "Pub/Sub cannot write the dead letter, so a message that no worker can answer is delivered for ever."}
	NoSubscriberGrant    = Code{"subscriber_grant_missing", "Pub/Sub cannot take the message off its subscription, so a message that no worker can answer is delivered for ever."}
	PauseUndone          = Code{"pause_undone", "The queue is paused, and its messages are pushed all the same: what it was paused for goes on. Somebody has given the subscription its endpoint past Billhook."}
	PauseUnrecorded      = Code{"pause_unrecorded", "Its messages wait until they are too old, and nobody is recorded to have paused the queue: nobody knows when to resume it."}
	PauseUnread          = Code{"pause_unread", "Its messages wait until they are too old. Who has paused the queue is not known: the worker could not be asked."}
	PauseUnmarked        = Code{"pause_unmarked", "The queue is paused, and nothing at Pub/Sub says so: the next run of provision or Terraform gives the subscription its endpoint."}
	PauseMarkLeft        = Code{"pause_mark_left", "The queue is not paused and its messages are pushed; for its mark Terraform refuses to plan."}
	GrantUnread          = Code{"grant_unread", "Whether Pub/Sub may dead-letter is not known: ask again with an account that may read IAM policies."}
)

// Finding is one difference between the catalog and what is there.
type Finding struct {
	Queue string `json:"queue"` // its id, or that of a topic that is no queue's own
	Kind  string `json:"kind"`  // topic or subscription
	ID    string `json:"id"`    // at Pub/Sub, with the installation before it
	Code  Code   `json:"code"`
	// Have and Want are settings, in words.
	Have   string `json:"have,omitempty"`
	Want   string `json:"want,omitempty"`
	Effect string `json:"effect"` // what the difference does to a message
}

// Examine compares each queue with what the project has, and changes nothing. It
// returns every harmful difference, in the order of the catalog; those that Provision makes
// on an emulator on purpose are none. An error says that something could not be read; the
// findings are then those up to there.
//
// A queue that is paused as recorded and marked differs from the catalog on purpose. recorded are the pauses
// by queue; nil: they are not known, and the marks alone are looked at.
//
// It looks for the grants that the dead-letter policy needs, given to Pub/Sub's own agent on
// the topic and on the subscription. It does not see one inherited from the project, nor
// whether the agent may mint tokens for the push account.
func Examine(ctx context.Context, c *catalog.Catalog, target Target, recorded map[string]pause.Pause, options ...option.ClientOption) ([]Finding, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	a, err := open(ctx, target, options)
	if err != nil {
		return nil, err
	}
	defer a.close()
	found, err := a.examine(ctx, c, recorded, false)
	return found.Findings, err
}

// Examination is what an examination has found.
type Examination struct {
	// Findings are in the order of the catalog.
	Findings []Finding
	// Catalogs are the hashes of the catalogs that the enabled queues' subscriptions were made of, by
	// queue. One whose subscription does not say it is not among them.
	Catalogs map[string]string
	// Unread counts the resources that this account may not look at: whether they are as they should be is
	// not known.
	Unread int
}

// examinedAtOnce is how many queues are looked at at the same time.
const examinedAtOnce = 8

// examine looks at everything. partly: what the account may not look at is counted, and is no error.
func (a admin) examine(ctx context.Context, c *catalog.Catalog, recorded map[string]pause.Pause, partly bool) (Examination, error) {
	others := c.OtherTopics()
	all := make([]*examiner, len(others)+len(c.Queues))
	failed := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(examinedAtOnce)
	for i, id := range others {
		e := &examiner{admin: a, recorded: recorded, queue: id, partly: partly}
		all[i] = e
		group.Go(func() error {
			failed[i] = e.topic(ctx, id)
			return nil
		})
	}
	for i, q := range c.Queues {
		e := &examiner{admin: a, recorded: recorded, queue: q.ID, partly: partly}
		look := e.enabled
		if !q.Enabled {
			look = e.disabled
		}
		i += len(others)
		all[i] = e
		group.Go(func() error {
			if err := look(ctx, q, slices.Contains(others, q.Topic())); err != nil {
				failed[i] = fmt.Errorf("queue %s: %w", q.ID, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors stand in their places
	found := Examination{Findings: []Finding{}, Catalogs: map[string]string{}}
	for i, e := range all {
		found.Findings = append(found.Findings, e.findings...)
		found.Unread += e.unread
		if e.catalog != "" {
			found.Catalogs[e.queue] = e.catalog
		}
		if failed[i] != nil {
			return found, failed[i]
		}
	}
	return found, nil
}

// examiner looks at one queue, or at one topic that is no queue's own.
type examiner struct {
	admin
	queue    string
	recorded map[string]pause.Pause
	findings []Finding
	// catalog is the hash that the queue's subscription says.
	catalog string
	// partly: what may not be looked at is counted in unread.
	partly bool
	unread int
}

// hidden reports whether the error is that the account may not look, where that is no error.
func (e *examiner) hidden(err error) bool {
	if !e.partly || status.Code(err) != codes.PermissionDenied {
		return false
	}
	e.unread++
	return true
}

func (e *examiner) find(kind, id string, code Code, have, want string) {
	e.findings = append(e.findings, Finding{Queue: e.queue, Kind: kind, ID: id, Code: code, Have: have, Want: want, Effect: code.effect})
}

func (e *examiner) enabled(ctx context.Context, q catalog.Queue, _ bool) error {
	topics, subscriptions := e.target.plan(q)
	for _, id := range topics {
		if err := e.topic(ctx, id); err != nil {
			return err
		}
	}
	var missing []string
	lettersKept := false
	for _, want := range subscriptions {
		have, err := e.read(ctx, want.Name)
		if e.hidden(err) {
			lettersKept = true // perhaps
			continue
		}
		if err != nil {
			return err
		}
		if have == nil {
			missing = append(missing, want.Name)
			continue
		}
		lettersKept = lettersKept || have.Topic == e.target.topicName(q.DeadLetter.Topic)
		e.compare(q, have, want)
		if policy := have.DeadLetterPolicy; policy != nil && want.DeadLetterPolicy != nil && !e.target.Emulator {
			if err := e.grants(ctx, policy.DeadLetterTopic, have.Name); err != nil {
				return err
			}
		}
	}
	if !q.DeadLetter.Drop && !lettersKept {
		e.find("topic", e.target.id(q.DeadLetter.Topic), LettersUnkept, "", "")
	}
	codes := map[string]Code{
		e.target.subscriptionName(q.PushSubscription()): SubscriptionMissing,
		e.target.subscriptionName(q.DeadLetterHold()):   HoldMissing,
		e.target.subscriptionName(q.DeadLetterPush()):   LettersPushMissing,
	}
	for _, name := range missing {
		e.find("subscription", idOf(name), codes[name], "", "")
	}
	return nil
}

// disabled looks at a queue that is not enabled. It has nothing, or what it had once, paused.
// shared: an enabled queue takes messages of its topic.
func (e *examiner) disabled(ctx context.Context, q catalog.Queue, shared bool) error {
	kept := false
	for _, id := range pushes(q) {
		have, err := e.read(ctx, e.target.subscriptionName(id))
		if e.hidden(err) {
			kept = true // perhaps
			continue
		}
		if err != nil {
			return err
		}
		kept = kept || (have != nil && id == q.PushSubscription())
		if have.GetPushConfig().GetPushEndpoint() != "" {
			e.find("subscription", e.target.id(id), LeftOver, "", "")
		}
	}
	topic, err := e.readTopic(ctx, q.Topic())
	if topic != nil && !kept && !shared {
		e.find("topic", e.target.id(q.Topic()), MessagesUnkept, "", "")
	}
	if e.hidden(err) {
		return nil
	}
	return err
}

func (e *examiner) topic(ctx context.Context, id string) error {
	topic, err := e.readTopic(ctx, id)
	switch {
	case e.hidden(err):
		return nil
	case err == nil && topic == nil:
		e.find("topic", e.target.id(id), TopicMissing, "", "")
	}
	return err
}

func (e *examiner) readTopic(ctx context.Context, id string) (*pubsubpb.Topic, error) {
	name := e.target.topicName(id)
	topic, err := e.client.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
	return found(topic, err, name)
}

func (e *examiner) compare(q catalog.Queue, have, want *pubsubpb.Subscription) {
	differs := func(code Code, a, b string) {
		if a != b {
			e.find("subscription", idOf(want.Name), code, a, b)
		}
	}
	differs(WrongTopic, idOf(have.Topic), idOf(want.Topic))
	if have.Detached {
		e.find("subscription", idOf(want.Name), Detached, "", "")
	}
	if ttl := have.ExpirationPolicy.GetTtl(); ttl != nil {
		differs(Expiring, ttl.AsDuration().String(), "never")
	}
	own := want.Name == e.target.subscriptionName(q.PushSubscription())
	if own {
		e.catalog = have.Labels[CatalogLabel]
	}
	rests := own && e.comparePause(q, have)
	switch a, b := have.PushConfig.GetPushEndpoint(), want.PushConfig.GetPushEndpoint(); {
	case rests:
	case b == "":
		differs(Pushed, a, b)
	case a == "":
		differs(NotPushed, a, b)
	case e.target.PushBaseURL == "":
		if !strings.HasSuffix(a, b) {
			differs(WrongEndpoint, a, b)
		}
	default:
		differs(WrongEndpoint, a, b)
		e.compareWrapping(differs, have.PushConfig, want.PushConfig)
	}
	ordering := map[bool]Code{true: OrderingOn, false: OrderingOff}[have.EnableMessageOrdering]
	differs(ordering, onOff[have.EnableMessageOrdering], onOff[want.EnableMessageOrdering])
	differs(WrongFilter, cmp.Or(have.Filter, "none"), cmp.Or(want.Filter, "none"))
	deadline, handler := time.Duration(have.AckDeadlineSeconds)*time.Second, q.LongestTimeout()
	switch {
	case own && deadline <= handler:
		differs(DeadlineBelowHandler, deadline.String(), fmt.Sprintf("%s, for a handler that may take %s", q.AckDeadline, handler))
	case want.PushConfig != nil:
		differs(WrongDeadline, deadline.String(), (time.Duration(want.AckDeadlineSeconds) * time.Second).String())
	}
	if want.RetryPolicy != nil {
		differs(WrongRetryPolicy, waits(have.RetryPolicy), waits(want.RetryPolicy))
	}
	if a, b := have.MessageRetentionDuration.AsDuration(), want.MessageRetentionDuration.AsDuration(); a < b {
		differs(ShortRetention, a.String(), b.String())
	}
	code := WrongDeadLetters
	switch {
	case have.DeadLetterPolicy == nil:
		code = NoDeadLetterPolicy
	case want.DeadLetterPolicy == nil && e.target.Emulator:
		code = DeadLetterPolicy
	}
	differs(code, backstop(have.DeadLetterPolicy), backstop(want.DeadLetterPolicy))
}

// comparePause compares a queue's pause with its subscription. It reports whether the subscription has no
// endpoint because of the pause.
func (e *examiner) comparePause(q catalog.Queue, have *pubsubpb.Subscription) (rests bool) {
	record, paused := e.recorded[q.ID]
	want := "pushed"
	if paused {
		want = fmt.Sprintf("paused since %s by %s", record.At.UTC().Format(time.RFC3339), record.Who)
	}
	find := func(code Code, is string) { e.find("subscription", e.target.id(q.PushSubscription()), code, is, want) }
	switch stands := standing(have); {
	case stands == pause.Paused && !paused:
		code := PauseUnrecorded
		if e.recorded == nil {
			code = PauseUnread
		}
		find(code, "marked as paused, without an endpoint")
		return true
	case stands == pause.Undone && e.recorded != nil && !paused:
		find(PauseMarkLeft, "marked as paused, and pushed")
	case stands == pause.Undone:
		find(PauseUndone, "marked as paused, and pushed")
	case stands == pause.Pushing && paused:
		find(PauseUndone, "pushed")
	case stands == pause.Unmarked && paused:
		find(PauseUnmarked, "without an endpoint and without a mark")
		return true
	default:
		return stands == pause.Paused
	}
	return false
}

var onOff = map[bool]string{true: "on", false: "off"}

func (e *examiner) compareWrapping(differs func(code Code, have, want string), have, want *pubsubpb.PushConfig) {
	if have.GetNoWrapper() != nil {
		differs(Unwrapped, "without its envelope", "with it")
	}
	if e.target.Emulator {
		return // it forgets the token's settings
	}
	a, b := have.GetOidcToken(), want.GetOidcToken()
	differs(WrongAccount, cmp.Or(a.GetServiceAccountEmail(), "none"), cmp.Or(b.GetServiceAccountEmail(), "none"))
	differs(WrongAudience, cmp.Or(a.GetAudience(), "none"), cmp.Or(b.GetAudience(), "none"))
}

func backstop(p *pubsubpb.DeadLetterPolicy) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%s after %d deliveries", idOf(p.DeadLetterTopic), p.MaxDeliveryAttempts)
}

func waits(p *pubsubpb.RetryPolicy) string {
	if p == nil {
		return "at once"
	}
	return fmt.Sprintf("%s to %s", p.MinimumBackoff.AsDuration(), p.MaximumBackoff.AsDuration())
}
