package pubsub

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
)

// Code says in what a live resource differs from the catalog.
type Code string

// What Examine finds.
const (
	TopicMissing         Code = "topic_missing"
	SubscriptionMissing  Code = "subscription_missing"
	HoldMissing          Code = "hold_subscription_missing"
	LettersPushMissing   Code = "dead_letter_push_missing"
	LettersUnkept        Code = "dead_letters_unkept"
	LeftOver             Code = "left_over"
	MessagesUnkept       Code = "messages_unkept"
	WrongTopic           Code = "wrong_topic"
	Detached             Code = "detached"
	Expiring             Code = "expiring"
	NotPushed            Code = "not_pushed"
	Pushed               Code = "pushed"
	WrongEndpoint        Code = "wrong_endpoint"
	Unwrapped            Code = "unwrapped"
	WrongAccount         Code = "wrong_service_account"
	WrongAudience        Code = "wrong_audience"
	OrderingOff          Code = "ordering_off"
	OrderingOn           Code = "ordering_on"
	WrongFilter          Code = "wrong_filter"
	DeadlineBelowHandler Code = "ack_deadline_below_handler"
	WrongDeadline        Code = "wrong_ack_deadline"
	WrongRetryPolicy     Code = "wrong_retry_policy"
	ShortRetention       Code = "short_retention"
	NoDeadLetterPolicy   Code = "dead_letter_policy_missing"
	WrongDeadLetters     Code = "wrong_dead_letter_policy"
	DeadLetterPolicy     Code = "dead_letter_policy_unwanted"
	NoPublisherGrant     Code = "publisher_grant_missing"
	NoSubscriberGrant    Code = "subscriber_grant_missing"
	GrantUnread          Code = "grant_unread"
)

// effects says what each does to whoever waits for an event.
var effects = map[Code]string{
	TopicMissing:         "What is published to it is refused: the webhook service answers 503, and a sender that gives up loses the event.",
	SubscriptionMissing:  "Nobody is given what is published, and no copy of it is kept.",
	HoldMissing:          "Dead letters have no copy but the store's: one that the worker cannot keep in time is gone.",
	LettersPushMissing:   "Dead letters do not reach the store: they are neither listed nor replayed, and no alert counts them there.",
	LettersUnkept:        "No subscription keeps what is published there: a message that cannot be handled is gone for good.",
	LeftOver:             "The queue is not enabled, so the worker answers 404 to every push, and the messages wait until they are too old.",
	MessagesUnkept:       "The queue is not enabled and has no subscription: what is published to its topic is gone without a trace, and no publisher is told.",
	WrongTopic:           "It takes other messages than its queue's, and the queue's own reach nobody.",
	Detached:             "It was cut off from its topic: nothing reaches it any more.",
	Expiring:             "Without a message for that long Pub/Sub deletes it, and everything published after that is lost.",
	NotPushed:            "It is a pull subscription and nobody pulls: its messages wait until they are too old.",
	Pushed:               "It is to keep copies and pushes them away instead.",
	WrongEndpoint:        "The pushes go somewhere else: the queue's messages are not handled, or not by this worker.",
	Unwrapped:            "The push comes without its envelope, so the worker cannot read it and refuses every message.",
	WrongAccount:         "The worker answers 403 to every push: nothing of the queue is handled.",
	WrongAudience:        "The worker answers 401 to every push: nothing of the queue is handled.",
	OrderingOff:          "Events of one customer overtake each other: a refund can be handled before its order.",
	OrderingOn:           "One slow message holds up others that have nothing to do with it.",
	WrongFilter:          "Messages bound to the queue are passed by, or messages that are not bound to it arrive and are dropped.",
	DeadlineBelowHandler: "Messages are delivered again while their handler still works on them: answers are late, and attempts are used up.",
	WrongDeadline:        "A message of a worker that is gone comes back sooner or later than its queue is built for.",
	WrongRetryPolicy:     "A failed message comes back faster or slower than its queue says: a dependency in trouble is hammered, or a customer waits.",
	ShortRetention:       "A message that cannot be delivered is deleted that much earlier than the catalog promises.",
	NoDeadLetterPolicy:   "A message that no worker can answer, such as one that kills it, is delivered for ever and holds up its ordering key.",
	WrongDeadLetters:     "A message that no worker can answer is given up too early or too late, or is put where nobody looks.",
	DeadLetterPolicy:     "On Google's emulator an ordered subscription stops pushing after its first dead letter.",
	NoPublisherGrant:     "Pub/Sub cannot write the dead letter, so a message that no worker can answer is delivered for ever.",
	NoSubscriberGrant:    "Pub/Sub cannot take the message off its subscription, so a message that no worker can answer is delivered for ever.",
	GrantUnread:          "Whether Pub/Sub may dead-letter is not known: ask again with an account that may read IAM policies.",
}

// Finding is one difference between the catalog and what is there.
type Finding struct {
	// Queue is the queue's id, or the topic's for one that is no queue's own.
	Queue string `json:"queue"`
	// Kind is topic or subscription.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Code Code   `json:"code"`
	// Have and Want are settings, in words.
	Have string `json:"have,omitempty"`
	Want string `json:"want,omitempty"`
	// Effect is what it does to whoever waits for an event.
	Effect string `json:"effect"`
}

// Examine compares each queue with what the project has, and changes nothing. It
// returns every difference that does harm, in the order of the catalog; on an emulator
// the differences that Provision makes there on purpose are none. An error says that
// something could not be read; the findings are then those up to there.
//
// The grants it looks for are those that the dead-letter policy needs, given to Pub/Sub's
// own agent on the topic and on the subscription; one inherited from the project is not
// seen. It cannot see that the agent may mint tokens for the push account.
func Examine(ctx context.Context, c *catalog.Catalog, target Target, options ...option.ClientOption) ([]Finding, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	client, err := pubsub.NewClient(ctx, target.ProjectID, options...)
	if err != nil {
		return nil, fmt.Errorf("pubsub: client: %w", err)
	}
	defer func() { _ = client.Close() }() // everything asked of it has been answered
	e := &examiner{client: client, target: target, findings: []Finding{}}
	beside := c.Beside()
	for _, id := range beside {
		e.queue = id
		if err := e.topic(ctx, id); err != nil {
			return e.findings, err
		}
	}
	for _, q := range c.Queues {
		e.queue = q.ID
		if err := e.examine(ctx, q, slices.Contains(beside, q.Topic())); err != nil {
			return e.findings, fmt.Errorf("queue %s: %w", q.ID, err)
		}
	}
	return e.findings, nil
}

type examiner struct {
	client   *pubsub.Client
	target   Target
	queue    string
	findings []Finding
}

func (e *examiner) find(kind, id string, code Code, have, want string) {
	e.findings = append(e.findings, Finding{Queue: e.queue, Kind: kind, ID: id, Code: code, Have: have, Want: want, Effect: effects[code]})
}

// examine looks at one queue; taken: another, enabled one takes messages of its topic.
func (e *examiner) examine(ctx context.Context, q catalog.Queue, taken bool) error {
	if !q.Enabled {
		return e.off(ctx, q, taken)
	}
	topics, subscriptions := e.target.plan(q)
	for _, id := range topics {
		if err := e.topic(ctx, id); err != nil {
			return err
		}
	}
	var missing []string
	lettersKept := false
	for _, want := range subscriptions {
		have, err := e.subscription(ctx, want.Name)
		if err != nil {
			return err
		}
		if have == nil {
			missing = append(missing, e.id(want.Name))
			continue
		}
		lettersKept = lettersKept || have.Topic == e.target.topicName(q.DeadLetter.Topic)
		e.compare(q, have, want)
		if policy := have.DeadLetterPolicy; policy != nil && want.DeadLetterPolicy != nil && !e.target.Emulator {
			if err := e.grants(ctx, have.Name, policy.DeadLetterTopic); err != nil {
				return err
			}
		}
	}
	if !q.DeadLetter.Drop && !lettersKept {
		e.find("topic", q.DeadLetter.Topic, LettersUnkept, "", "")
	}
	codes := map[string]Code{q.PushSubscription(): SubscriptionMissing, q.DeadLetterHold(): HoldMissing, q.DeadLetterPush(): LettersPushMissing}
	for _, id := range missing {
		e.find("subscription", id, codes[id], "", "")
	}
	return nil
}

// off looks at a queue that is not enabled. It has nothing, or what it had once, paused.
func (e *examiner) off(ctx context.Context, q catalog.Queue, taken bool) error {
	kept := false
	for _, id := range pushes(q) {
		have, err := e.subscription(ctx, e.target.subscriptionName(id))
		if err != nil {
			return err
		}
		kept = kept || (have != nil && id == q.PushSubscription())
		if have.GetPushConfig().GetPushEndpoint() != "" {
			e.find("subscription", id, LeftOver, "", "")
		}
	}
	there, err := e.hasTopic(ctx, q.Topic())
	if err != nil {
		return err
	}
	if there && !kept && !taken {
		e.find("topic", q.Topic(), MessagesUnkept, "", "")
	}
	return nil
}

func (e *examiner) id(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func (e *examiner) topic(ctx context.Context, id string) error {
	there, err := e.hasTopic(ctx, id)
	if err == nil && !there {
		e.find("topic", id, TopicMissing, "", "")
	}
	return err
}

func (e *examiner) hasTopic(ctx context.Context, id string) (bool, error) {
	_, err := e.client.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: e.target.topicName(id)})
	switch status.Code(err) {
	case codes.OK:
		return true, nil
	case codes.NotFound:
		return false, nil
	default:
		return false, fmt.Errorf("read topic %s: %w", id, err)
	}
}

// subscription returns nil where there is none.
func (e *examiner) subscription(ctx context.Context, name string) (*pubsubpb.Subscription, error) {
	have, err := e.client.SubscriptionAdminClient.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: name})
	switch status.Code(err) {
	case codes.OK:
		return have, nil
	case codes.NotFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("read subscription %s: %w", e.id(name), err)
	}
}

func (e *examiner) compare(q catalog.Queue, have, want *pubsubpb.Subscription) {
	id := e.id(want.Name)
	differs := func(code Code, have, want string) { e.find("subscription", id, code, have, want) }
	if have.Topic != want.Topic {
		differs(WrongTopic, e.id(have.Topic), e.id(want.Topic))
	}
	if have.Detached {
		differs(Detached, "", "")
	}
	if ttl := have.ExpirationPolicy.GetTtl(); ttl != nil {
		differs(Expiring, ttl.AsDuration().String(), "never")
	}
	e.comparePush(differs, have.PushConfig, want.PushConfig)
	switch {
	case want.EnableMessageOrdering && !have.EnableMessageOrdering:
		differs(OrderingOff, "off", "on")
	case have.EnableMessageOrdering && !want.EnableMessageOrdering:
		differs(OrderingOn, "on", "off")
	}
	if have.Filter != want.Filter {
		differs(WrongFilter, orNone(have.Filter), orNone(want.Filter))
	}
	deadline, handler := time.Duration(have.AckDeadlineSeconds)*time.Second, longestHandler(q)
	switch {
	case want.Name == e.target.subscriptionName(q.PushSubscription()) && deadline <= handler:
		differs(DeadlineBelowHandler, deadline.String(), fmt.Sprintf("%s, for a handler that may take %s", q.AckDeadline, handler))
	case have.AckDeadlineSeconds != want.AckDeadlineSeconds && want.PushConfig != nil:
		differs(WrongDeadline, deadline.String(), (time.Duration(want.AckDeadlineSeconds) * time.Second).String())
	}
	if a, b := have.RetryPolicy, want.RetryPolicy; b != nil && waits(a) != waits(b) {
		differs(WrongRetryPolicy, waits(a), waits(b))
	}
	if a, b := have.MessageRetentionDuration.AsDuration(), want.MessageRetentionDuration.AsDuration(); a < b {
		differs(ShortRetention, a.String(), b.String())
	}
	switch a, b := have.DeadLetterPolicy, want.DeadLetterPolicy; {
	case a == nil && b == nil:
	case a == nil:
		differs(NoDeadLetterPolicy, "", e.backstop(b))
	case b == nil && e.target.Emulator:
		differs(DeadLetterPolicy, e.backstop(a), "none")
	case e.backstop(a) != e.backstop(b):
		differs(WrongDeadLetters, e.backstop(a), e.backstop(b))
	}
}

func (e *examiner) comparePush(differs func(code Code, have, want string), have, want *pubsubpb.PushConfig) {
	a, b := have.GetPushEndpoint(), want.GetPushEndpoint()
	switch {
	case a == "" && b == "":
		return
	case a == "":
		differs(NotPushed, "", b)
		return
	case b == "":
		differs(Pushed, a, "")
		return
	case a != b:
		differs(WrongEndpoint, a, b)
	}
	if have.GetNoWrapper() != nil {
		differs(Unwrapped, "", "")
	}
	if e.target.Emulator {
		return // it forgets the token's settings
	}
	haveToken, wantToken := have.GetOidcToken(), want.GetOidcToken()
	if a, b := haveToken.GetServiceAccountEmail(), wantToken.GetServiceAccountEmail(); a != b {
		differs(WrongAccount, orNone(a), orNone(b))
	}
	if a, b := haveToken.GetAudience(), wantToken.GetAudience(); a != b {
		differs(WrongAudience, orNone(a), orNone(b))
	}
}

func (e *examiner) backstop(p *pubsubpb.DeadLetterPolicy) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%s after %d deliveries", e.id(p.DeadLetterTopic), p.MaxDeliveryAttempts)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func waits(p *pubsubpb.RetryPolicy) string {
	if p == nil {
		return "at once"
	}
	return fmt.Sprintf("%s to %s", p.MinimumBackoff.AsDuration(), p.MaximumBackoff.AsDuration())
}

// longestHandler is the longest that an event of the queue may take.
func longestHandler(q catalog.Queue) time.Duration {
	longest := q.HandlerTimeout
	for _, h := range q.Handlers {
		longest = max(longest, h.Timeout)
	}
	return longest
}

// agent is Pub/Sub's own service account; the number is the project's.
var agent = regexp.MustCompile(`^serviceAccount:service-\d+@gcp-sa-pubsub\.iam\.gserviceaccount\.com$`)

// grants looks for the two that a dead-letter policy needs.
func (e *examiner) grants(ctx context.Context, subscription, topic string) error {
	for _, grant := range []struct {
		kind, resource, role string
		code                 Code
		read                 func(context.Context, *iampb.GetIamPolicyRequest) (*iampb.Policy, error)
	}{
		{"topic", topic, "roles/pubsub.publisher", NoPublisherGrant, func(ctx context.Context, r *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
			return e.client.TopicAdminClient.GetIamPolicy(ctx, r)
		}},
		{"subscription", subscription, "roles/pubsub.subscriber", NoSubscriberGrant, func(ctx context.Context, r *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
			return e.client.SubscriptionAdminClient.GetIamPolicy(ctx, r)
		}},
	} {
		id := e.id(grant.resource)
		policy, err := grant.read(ctx, &iampb.GetIamPolicyRequest{Resource: grant.resource})
		switch status.Code(err) {
		case codes.OK:
			if !granted(policy, grant.role) {
				e.find(grant.kind, id, grant.code, "", grant.role+" for Pub/Sub's service agent")
			}
		case codes.PermissionDenied:
			e.find(grant.kind, id, GrantUnread, "", "")
		case codes.NotFound: // the topic: that it is missing has been found
		default:
			return fmt.Errorf("read the IAM policy of %s %s: %w", grant.kind, id, err)
		}
	}
	return nil
}

// granted reports whether the agent has the role, whatever the hour: a condition may
// not hold when it counts.
func granted(policy *iampb.Policy, role string) bool {
	return slices.ContainsFunc(policy.GetBindings(), func(b *iampb.Binding) bool {
		return b.Condition == nil && slices.Contains([]string{role, "roles/pubsub.editor", "roles/pubsub.admin"}, b.Role) &&
			slices.ContainsFunc(b.Members, agent.MatchString)
	})
}
