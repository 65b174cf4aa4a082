package pubsub

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/store"
)

// label is what Terraform names the installation by, on what it makes.
const label = "app"

const listed = 1000

// known are the full names of what the catalog has, whether its queues are enabled or not. The topics that
// others may not read have the queue that they are of, or their own id.
func (t Target) known(c *catalog.Catalog) map[string]string {
	known := map[string]string{}
	for _, topic := range c.OutboundTopics {
		known[t.topicName(topic.ID)] = ""
	}
	for _, q := range c.Queues {
		known[t.topicName(q.Topic())] = q.ID
		known[t.subscriptionName(q.PushSubscription())] = ""
		if !q.DeadLetter.Drop {
			known[t.topicName(q.DeadLetter.Topic)] = q.ID
			known[t.subscriptionName(q.DeadLetterHold())] = ""
			known[t.subscriptionName(q.DeadLetterPush())] = ""
		}
	}
	for _, topic := range c.Topics {
		known[t.topicName(topic.ID)] = topic.ID
	}
	return known
}

// strays leaves alone what is neither this installation's nor reads its topics.
func (a admin) strays(ctx context.Context, c *catalog.Catalog, look Look) examiner {
	s := &search{examiner: examiner{admin: a, look: look}, known: a.target.known(c), seen: map[string]bool{}}
	s.failed = cmp.Or(s.topics(ctx), s.subscriptions(ctx), s.readers(ctx))
	return s.examiner
}

type search struct {
	examiner
	known map[string]string
	// there are the catalog's topics that there are; nil: they could not be listed.
	there []string
	seen  map[string]bool
}

func (s *search) topics(ctx context.Context) error {
	s.there = []string{}
	for topic, err := range s.client.TopicAdminClient.ListTopics(ctx,
		&pubsubpb.ListTopicsRequest{Project: "projects/" + s.target.ProjectID, PageSize: listed}).All() {
		if err != nil {
			s.there = nil
			return s.denied(err, "topics that the catalog does not have", listsTopics)
		}
		switch of, known := s.known[topic.Name]; {
		case of != "":
			s.there = append(s.there, topic.Name)
		case !known && s.made(topic.Name, topic.Labels):
			s.find("topic", idOf(topic.Name), StrayTopic, "", "")
		}
	}
	return nil
}

func (s *search) subscriptions(ctx context.Context) error {
	for have, err := range s.client.SubscriptionAdminClient.ListSubscriptions(ctx,
		&pubsubpb.ListSubscriptionsRequest{Project: "projects/" + s.target.ProjectID, PageSize: listed}).All() {
		if err != nil {
			return s.denied(err, "subscriptions that the catalog does not have", listsSubscriptions)
		}
		s.seen[have.Name] = true
		if _, known := s.known[have.Name]; known {
			continue
		}
		code, endpoint := Foreign, have.GetPushConfig().GetPushEndpoint()
		s.queue = s.known[have.Topic]
		switch {
		case s.made(have.Name, have.Labels) || s.pushedHere(endpoint):
			code = Stray
		case s.queue == "" || slices.Contains(s.look.Known, idOf(have.Name)):
			continue
		}
		is := "of topic " + idOf(have.Topic) + ", " + cmp.Or(endpoint, "without an endpoint")
		s.find("subscription", idOf(have.Name), code, is, "")
	}
	return nil
}

// readers asks each topic for its subscriptions: those of other projects are in no list of this one's.
func (s *search) readers(ctx context.Context) error {
	topics := s.there
	if topics == nil {
		all := slices.Sorted(maps.Keys(s.known))
		topics = slices.DeleteFunc(all, func(name string) bool { return s.known[name] == "" })
	}
	found, failed := make([][]string, len(topics)), make([]error, len(topics))
	_ = store.AtOnce(ctx, len(topics), func(ctx context.Context, i int) error { // each has its error
		for name, err := range s.client.TopicAdminClient.ListTopicSubscriptions(ctx,
			&pubsubpb.ListTopicSubscriptionsRequest{Topic: topics[i], PageSize: listed}).All() {
			if failed[i] = err; err != nil {
				return nil
			}
			found[i] = append(found[i], name)
		}
		return nil
	})
	for i, topic := range topics {
		s.queue = s.known[topic]
		if err := failed[i]; err != nil && status.Code(err) != codes.NotFound {
			if err := s.denied(err, "the subscriptions of topic "+idOf(topic), getsTopic); err != nil {
				return err
			}
		}
		for _, name := range found[i] {
			if _, known := s.known[name]; !known && !s.seen[name] && !slices.Contains(s.look.Known, idOf(name)) {
				s.find("subscription", idOf(name), Foreign, "of topic "+idOf(topic)+": "+name, "")
			}
		}
	}
	return nil
}

// denied notes what the account may not list; any other error is returned.
func (s *search) denied(err error, what, permission string) error {
	if _, err = s.hidden(err, what, permission); err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// made reports whether this installation made a resource: its label says so, or, without a label, its name
// does.
func (s *search) made(name string, labels map[string]string) bool {
	if of := labels[label]; of != "" && s.look.Label != "" {
		return of == s.look.Label
	}
	return s.target.Installation != "" && strings.HasPrefix(idOf(name), s.target.prefix())
}

func (s *search) pushedHere(endpoint string) bool {
	here := func(base string) bool { return base != "" && strings.HasPrefix(endpoint, base+"/") }
	return here(s.target.PushBaseURL) || slices.ContainsFunc(slices.Collect(maps.Values(s.target.Pools)),
		func(p Pool) bool { return here(p.URL) })
}

// agent is Pub/Sub's own service account; the number is the project's.
var agent = regexp.MustCompile(`^serviceAccount:service-\d+@gcp-sa-pubsub\.iam\.gserviceaccount\.com$`)

const (
	readsTopicPolicy        = "pubsub.topics.getIamPolicy"
	readsSubscriptionPolicy = "pubsub.subscriptions.getIamPolicy"
)

// Permissions are those that Examine takes.
var Permissions = []string{
	getsTopic, listsTopics, readsTopicPolicy, getsSubscription, listsSubscriptions, readsSubscriptionPolicy,
}

func (e *examiner) publish(ctx context.Context, id string) error {
	services := e.publishers[id]
	if e.look.Accounts == nil || e.target.Emulator || len(services) == 0 {
		return nil
	}
	policy, err := e.policy(ctx, "topic", e.target.topicName(id))
	if err != nil || policy == nil {
		return err
	}
	for _, service := range services {
		account, ok := e.look.Accounts[service]
		if !ok {
			e.unread = append(e.unread, finding.Unread{
				What: "the grant of " + service + " on topic " + e.target.id(id),
				Why:  "the service's account is not known",
			})
			continue
		}
		is := func(member string) bool { return member == "serviceAccount:"+account }
		if !e.granted(policy, "roles/pubsub.publisher", is) {
			code := NoWorkerPublishes
			switch {
			case service == catalog.Webhook:
				code = NoWebhookPublishes
			case id == e.deadLetters:
				code = NoDeadLettersPublished
			}
			e.find("topic", e.target.id(id), code, "",
				"roles/pubsub.publisher for "+account+", the account of "+service)
		}
	}
	return nil
}

// grants looks for the two that a dead-letter policy needs.
func (e *examiner) grants(ctx context.Context, topic, subscription string) error {
	for _, grant := range []struct {
		kind, resource, role string
		code                 finding.Code
	}{
		{"topic", topic, "roles/pubsub.publisher", NoPublisherGrant},
		{"subscription", subscription, "roles/pubsub.subscriber", NoSubscriberGrant},
	} {
		policy, err := e.policy(ctx, grant.kind, grant.resource)
		if err != nil {
			return err
		}
		if policy != nil && !e.granted(policy, grant.role, agent.MatchString) {
			e.find(grant.kind, idOf(grant.resource), grant.code, "", grant.role+" for Pub/Sub's service agent")
		}
	}
	return nil
}

// policy is nil where the account may not look, and of a resource that is missing, which is a finding of its
// own.
func (e *examiner) policy(ctx context.Context, kind, name string) (*iampb.Policy, error) {
	read, permission := e.client.TopicAdminClient.GetIamPolicy, readsTopicPolicy
	if kind == "subscription" {
		read, permission = e.client.SubscriptionAdminClient.GetIamPolicy, readsSubscriptionPolicy
	}
	policy, err := read(ctx, &iampb.GetIamPolicyRequest{Resource: name})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	if _, err = e.hidden(err, "the grants on "+kind+" "+idOf(name), permission); err != nil {
		return nil, fmt.Errorf("read the IAM policy of %s %s: %w", kind, idOf(name), err)
	}
	return policy, nil
}

// granted does not count a grant under a condition: it may not hold when it counts.
func (e *examiner) granted(policy *iampb.Policy, role string, is func(member string) bool) bool {
	enough := []string{role, "roles/pubsub.editor", "roles/pubsub.admin"}
	return slices.ContainsFunc(policy.GetBindings(), func(b *iampb.Binding) bool {
		return b.Condition == nil && slices.Contains(enough, b.Role) && slices.ContainsFunc(b.Members, is)
	}) || (e.look.Inherits != nil && e.look.Inherits(append(enough, "roles/editor", "roles/owner"), is))
}

const (
	apply = "Apply Terraform again; on an emulator run billhook admin provision."
	// anew: these settings cannot be changed.
	anew = "It cannot be changed. Once the subscription is empty (billhook queues ls), delete it and apply " +
		"Terraform again; on an emulator run billhook admin provision."
	ask = "Ask who has changed it, and apply Terraform again; on an emulator run billhook admin provision."
)

// What Examine finds, what each does to a message, and what to do.
var (
	TopicMissing = finding.New("topic_missing", "What is published to it is refused: the webhook "+
		"service answers 503, and a sender that gives up loses the event.", apply)
	SubscriptionMissing = finding.New("subscription_missing", "Nobody is given what is published, and no "+
		"copy of it is kept.", apply+" What was published meanwhile has to be sent again.")
	HoldMissing = finding.New("hold_subscription_missing",
		"Dead letters have no copy but the store's: one that the worker cannot keep in time is gone.", apply)
	DeadLettersPushMissing = finding.New("dead_letter_push_missing", "Dead letters do not "+
		"reach the store: they are neither listed nor replayed, and no alert counts them there.",
		apply+" The hold subscription has those from meanwhile.")
	DeadLettersUnkept = finding.New("dead_letters_unkept",
		"No subscription keeps what is published there: a message that cannot be handled is gone for good.", apply)
	LeftOver = finding.New("left_over", "The queue is not "+
		"enabled, so the worker answers 404 to every push, and the messages wait until they are too old.",
		"Take its endpoint away (billhook admin provision does), or enable the queue.")
	MessagesUnkept = finding.New("messages_unkept", "The queue is not enabled and "+
		"has no subscription: what is published to its topic is gone without a trace, and no publisher is told.",
		"Delete the topic, or enable the queue.")
	WrongTopic = finding.New("wrong_topic",
		"It takes other messages than its queue's, and the queue's own reach nobody.", anew)
	Detached = finding.New("detached", "It was cut off from its topic: nothing reaches it "+
		"any more.", "Delete it, and apply Terraform again. What was published meanwhile has to be sent again.")
	Expiring = finding.New("expiring",
		"Without a message for that long Pub/Sub deletes it, and everything published after that is lost.", apply)
	NotPushed = finding.New("not_pushed",
		"It is a pull subscription and nobody pulls: its messages wait until they are too old.", apply)
	Pushed        = finding.New("pushed", "It is to keep copies and pushes them away instead.", ask)
	WrongEndpoint = finding.New("wrong_endpoint",
		"The pushes go somewhere else: the queue's messages are not handled, or not by this worker.", ask)
	Unwrapped = finding.New("unwrapped",
		"The push comes without its envelope, so the worker cannot read it and refuses every message.", ask)
	WrongAccount = finding.New("wrong_service_account",
		"The worker answers 403 to every push: nothing of the queue is handled.", ask)
	WrongAudience = finding.New("wrong_audience",
		"The worker answers 401 to every push: nothing of the queue is handled.", ask)
	OrderingOff = finding.New("ordering_off",
		"Events of one customer overtake each other: a refund can be handled before its order.", anew)
	OrderingOn = finding.New("ordering_on",
		"One slow message holds up others that have nothing to do with it.", anew)
	WrongFilter = finding.New("wrong_filter", "Messages bound to the queue are passed by, or "+
		"messages that are not bound to it arrive and are dropped.", anew)
	DeadlineBelowHandler = finding.New("ack_deadline_below_handler", "Messages are delivered again while "+
		"their handler still works on them: answers are late, and attempts are used up.", apply)
	WrongDeadline = finding.New("wrong_ack_deadline",
		"A message of a worker that is gone comes back sooner or later than its queue is built for.", apply)
	WrongRetryPolicy = finding.New("wrong_retry_policy", "A failed message comes back faster or slower "+
		"than its queue says: a dependency in trouble is hammered, or a customer waits.", apply)
	ShortRetention = finding.New("short_retention",
		"A message that cannot be delivered is deleted that much earlier than the catalog promises.", apply)
	NoDeadLetterPolicy = finding.New("dead_letter_policy_missing", "A message that no worker can answer, "+
		"such as one that kills it, is delivered for ever and holds up its ordering key.", apply)
	WrongDeadLetters = finding.New("wrong_dead_letter_policy", "A message that no worker can answer is "+
		"given up too early or too late, or is put where nobody looks.", apply)
	DeadLetterPolicy = finding.New("dead_letter_policy_unwanted",
		"On Google's emulator an ordered subscription stops pushing after its first dead letter.",
		"Delete the subscription, and run billhook admin provision.")
	NoPublisherGrant = finding.New("publisher_grant_missing", "Pub/Sub cannot write the dead letter, so "+
		"a message that no worker can answer is delivered for ever.", granting)
	NoSubscriberGrant = finding.New("subscriber_grant_missing", "Pub/Sub cannot take the message off its "+
		"subscription, so a message that no worker can answer is delivered for ever.", granting)
	NoWebhookPublishes = finding.New("webhook_grant_missing", "The webhook service may not publish here: "+
		"it answers 503 to what is for this topic, and a sender that gives up loses the event.", granting)
	NoWorkerPublishes = finding.New("worker_grant_missing", "The worker may not publish here: what its "+
		"handlers emit waits in the outbox, and its replays and delayed messages wait with it.", granting)
	NoDeadLettersPublished = finding.New("dead_letter_grant_missing",
		"The worker may not publish the queue's dead letters: an event that cannot succeed comes again, without "+
			"its reason, until Pub/Sub gives it up.", granting)
	Stray = finding.New("stray_subscription",
		"The catalog has no such subscription. Its pushes are answered 404, or handled "+
			"twice; without an endpoint its messages wait for nobody until they are too old.",
		"See whether messages in it are still wanted (gcloud pubsub subscriptions pull); then delete it.")
	Foreign = finding.New("foreign_subscription", "The catalog has no such subscription, and "+
		"it gets a copy of what is published here. Whoever reads it sees the events; if nobody does, the copies "+
		"are kept and paid for until they are too old.", "Ask who made it. Delete it, or name it in --known.")
	StrayTopic = finding.New("stray_topic", "The catalog has no such topic: what is published "+
		"there is accepted, and reaches no queue.", "See who publishes there, and delete it.")
	PauseUndone = finding.New("pause_undone", "The queue is paused, and its messages are pushed "+
		"all the same: what it was paused for goes on. Somebody has given the subscription its endpoint past "+
		"Billhook.", "Pause it again (billhook queues pause), or resume it if it need not be paused.")
	PauseUnrecorded = finding.New("pause_unrecorded", "Its messages wait until they are too "+
		"old, and nobody is recorded to have paused the queue: nobody knows when to resume it.",
		"Ask who has paused it; then resume it (billhook queues resume).")
	PauseUnread = finding.New("pause_unread", "Its messages wait until they "+
		"are too old. Who has paused the queue is not known: the worker could not be asked.",
		"Ask again where the worker can be asked (--server, IAP_TOKEN or OPS_TOKEN).")
	PauseUnmarked = finding.New("pause_unmarked", "The queue is paused, and "+
		"nothing at Pub/Sub says so: the next run of provision or Terraform gives the subscription its endpoint.",
		"Pause it again (billhook queues pause).")
	PauseMarkLeft = finding.New("pause_mark_left", "The queue is not paused and its messages are "+
		"pushed; for its mark Terraform refuses to plan.", "Resume it again (billhook queues resume).")
)

const granting = "Apply Terraform again, and ask who took the grant away. Google takes some minutes to " +
	"heed a new grant."
