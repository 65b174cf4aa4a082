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
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/store"
)

const (
	label    = "app" // Terraform labels all resources with the installation's name
	pageSize = 1000
)

// known has the full names of all topics and subscriptions in the catalog, even of disabled queues. The value
// of a topic that others may not read is its queue's id, or its own.
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

// strays finds topics and subscriptions of this installation, and readers of its topics, outside the catalog.
func (a admin) strays(ctx context.Context, c *catalog.Catalog, look Look) examiner {
	s := &search{examiner: examiner{admin: a, look: look}, known: a.target.known(c), seen: map[string]bool{}}
	s.failed = cmp.Or(s.topics(ctx), s.subscriptions(ctx), s.readers(ctx))
	return s.examiner
}

type search struct {
	examiner
	known map[string]string
	there []string // the existing topics of the catalog; nil: they could not be listed
	seen  map[string]bool
}

func (s *search) topics(ctx context.Context) error {
	s.there = []string{}
	request := &pb.ListTopicsRequest{Project: "projects/" + s.target.ProjectID, PageSize: pageSize}
	for topic, err := range s.client.TopicAdminClient.ListTopics(ctx, request).All() {
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
	request := &pb.ListSubscriptionsRequest{Project: "projects/" + s.target.ProjectID, PageSize: pageSize}
	for have, err := range s.client.SubscriptionAdminClient.ListSubscriptions(ctx, request).All() {
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

// readers lists each topic's subscriptions, because those of other projects are not in this project's list.
func (s *search) readers(ctx context.Context) error {
	topics := s.there
	if topics == nil {
		all := slices.Sorted(maps.Keys(s.known))
		topics = slices.DeleteFunc(all, func(name string) bool { return s.known[name] == "" })
	}
	found, failed := make([][]string, len(topics)), make([]error, len(topics))
	_ = store.AtOnce(ctx, len(topics), func(ctx context.Context, i int) error { // each has its error
		request := &pb.ListTopicSubscriptionsRequest{Topic: topics[i], PageSize: pageSize}
		for name, err := range s.client.TopicAdminClient.ListTopicSubscriptions(ctx, request).All() {
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

// denied records what the account may not list, and returns any other error.
func (s *search) denied(err error, what, permission string) error {
	if _, err = s.hidden(err, what, permission); err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// made reports whether this installation made a resource, by its label or, without one, by its name.
func (s *search) made(name string, labels map[string]string) bool {
	if of := labels[label]; of != "" && s.look.Label != "" {
		return of == s.look.Label
	}
	return s.target.Installation != "" && strings.HasPrefix(idOf(name), s.target.prefix())
}

func (s *search) pushedHere(endpoint string) bool {
	here := func(p Pool) bool { return p.URL != "" && strings.HasPrefix(endpoint, p.URL+"/") }
	return here(Pool{URL: s.target.PushBaseURL}) ||
		slices.ContainsFunc(slices.Collect(maps.Values(s.target.Pools)), here)
}

// agent is Pub/Sub's own service account; the number is the project's.
var agent = regexp.MustCompile(`^serviceAccount:service-\d+@gcp-sa-pubsub\.iam\.gserviceaccount\.com$`)

// Permissions are the permissions that Examine needs.
var Permissions = []string{
	getsTopic, listsTopics, readsTopicPolicy, getsSubscription, listsSubscriptions, readsSubscriptionPolicy,
}

// publish examines whether the services that publish to a topic have the grant for it.
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
			what := "the grant of " + service + " on topic " + e.target.id(id)
			e.unread = append(e.unread, finding.Unread{What: what, Why: "the service's account is not known"})
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
			want := "roles/pubsub.publisher for " + account + ", the account of " + service
			e.find("topic", e.target.id(id), code, "", want)
		}
	}
	return nil
}

// grants examines the two grants that a dead-letter policy needs.
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

// policy returns nil if the account may not read it, or if the resource is missing, which is its own finding.
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

// granted ignores a grant with a condition, because the condition may not hold later.
func (e *examiner) granted(policy *iampb.Policy, role string, is func(member string) bool) bool {
	enough := []string{role, "roles/pubsub.editor", "roles/pubsub.admin"}
	return slices.ContainsFunc(policy.GetBindings(), func(b *iampb.Binding) bool {
		return b.Condition == nil && slices.Contains(enough, b.Role) && slices.ContainsFunc(b.Members, is)
	}) || (e.look.Inherits != nil && e.look.Inherits(append(enough, "roles/editor", "roles/owner"), is))
}

const (
	apply = "Apply Terraform again; on an emulator run billhook admin provision."
	// anew is the remedy for settings that cannot be changed.
	anew = "It cannot be changed. Once the subscription is empty (billhook queues ls), delete it and apply " +
		"Terraform again; on an emulator run billhook admin provision."
	ask      = "Ask who changed it, and apply Terraform again; on an emulator run billhook admin provision."
	granting = "Apply Terraform again, and ask who removed the grant. A new grant takes some minutes."
)

// The findings of Examine, with the effect on messages and the remedy.
var (
	TopicMissing = finding.New("topic_missing",
		"Publishing fails: the webhook service answers 503, and a sender that gives up loses the event.", apply)
	SubscriptionMissing = finding.New("subscription_missing",
		"Published messages reach nobody, and no copy is kept.", apply+" Then send them again.")
	HoldMissing = finding.New("hold_subscription_missing",
		"Dead letters have no copy outside the store: one that the worker cannot keep in time is lost.", apply)
	DeadLettersPushMissing = finding.New("dead_letter_push_missing",
		"Dead letters do not reach the store: they are not listed, not replayed, and alert nobody.",
		apply+" The hold subscription has those from meanwhile.")
	DeadLettersUnkept = finding.New("dead_letters_unkept",
		"No subscription keeps dead letters: a message that cannot be handled is lost.", apply)
	LeftOver = finding.New("left_over",
		"The queue is not enabled: the worker answers 404 to every push, and messages wait until they expire.",
		"Remove its endpoint (billhook admin provision does), or enable the queue.")
	MessagesUnkept = finding.New("messages_unkept",
		"The queue is not enabled and has no subscription: its messages are lost, and no publisher notices.",
		"Delete the topic, or enable the queue.")
	WrongTopic = finding.New("wrong_topic", "It gets another topic's messages instead of its queue's.", anew)
	Detached   = finding.New("detached", "It is detached from its topic and gets no more messages.",
		"Delete it, and apply Terraform again. Then send again what was published meanwhile.")
	Expiring = finding.New("expiring",
		"After that time without a message Pub/Sub deletes it, and all later messages are lost.", apply)
	NotPushed = finding.New("not_pushed",
		"Nobody pulls its messages: they wait until they expire.", apply)
	Pushed               = finding.New("pushed", "It should keep copies, and pushes them away instead.", ask)
	WrongEndpoint        = finding.New("wrong_endpoint", "This worker does not get the queue's messages.", ask)
	Unwrapped            = finding.New("unwrapped", "The worker refuses pushes without an envelope.", ask)
	WrongAccount         = finding.New("wrong_service_account", "The worker answers 403 to every push.", ask)
	WrongAudience        = finding.New("wrong_audience", "The worker answers 401 to every push.", ask)
	OrderingOff          = finding.New("ordering_off", "A refund can be handled before its order.", anew)
	OrderingOn           = finding.New("ordering_on", "A slow message holds up unrelated messages.", anew)
	WrongFilter          = finding.New("wrong_filter", "It misses messages of the queue, or gets others.", anew)
	DeadlineBelowHandler = finding.New("ack_deadline_below_handler",
		"Messages are redelivered while their handler still runs: attempts are used up.", apply)
	WrongDeadline = finding.New("wrong_ack_deadline",
		"When a worker dies, its messages are redelivered sooner or later than the queue expects.", apply)
	WrongRetryPolicy = finding.New("wrong_retry_policy",
		"Failed messages are redelivered too soon, which loads a failing dependency, or too late.", apply)
	ShortRetention     = finding.New("short_retention", "An undelivered message is deleted too early.", apply)
	NoDeadLetterPolicy = finding.New("dead_letter_policy_missing",
		"A message that kills every worker is delivered for ever and holds up its ordering key.", apply)
	WrongDeadLetters = finding.New("wrong_dead_letter_policy",
		"A message that no worker can answer is dead-lettered too early, too late or elsewhere.", apply)
	DeadLetterPolicy = finding.New("dead_letter_policy_unwanted",
		"On Google's emulator an ordered subscription stops pushing after its first dead letter.",
		"Delete the subscription, and run billhook admin provision.")
	NoPublisherGrant = finding.New("publisher_grant_missing",
		"Pub/Sub cannot publish dead letters: a message that no worker can answer is delivered for ever.", granting)
	NoSubscriberGrant = finding.New("subscriber_grant_missing",
		"Pub/Sub cannot ack dead letters: a message that no worker can answer is delivered for ever.", granting)
	NoWebhookPublishes = finding.New("webhook_grant_missing",
		"The webhook service may not publish: it answers 503, and a sender that gives up loses the event.",
		granting)
	NoWorkerPublishes = finding.New("worker_grant_missing",
		"The worker may not publish: emissions, replays and delayed messages wait.", granting)
	NoDeadLettersPublished = finding.New("dead_letter_grant_missing",
		"The worker may not publish dead letters: a failing event returns until Pub/Sub gives it up.", granting)
	Stray = finding.New("stray_subscription",
		"It is not in the catalog: pushes are answered 404 or handled twice, or messages wait until they expire.",
		"See whether its messages are wanted (gcloud pubsub subscriptions pull); then delete it.")
	Foreign = finding.New("foreign_subscription",
		"It is not in the catalog and gets a copy of each message: its reader sees them, or the copies cost money.",
		"Ask who made it. Delete it, or name it in --known.")
	StrayTopic = finding.New("stray_topic", "It is not in the catalog: messages published there reach no queue.",
		"See who publishes there, and delete it.")
	PauseUndone = finding.New("pause_undone",
		"The queue is paused, and its messages are pushed anyway: somebody set the endpoint outside Billhook.",
		"Pause it again (billhook queues pause), or resume it if it need not be paused.")
	PauseUnrecorded = finding.New("pause_unrecorded",
		"Its messages wait until they expire, and no record says who paused the queue, and why.",
		"Ask who paused it; then resume it (billhook queues resume).")
	PauseUnread = finding.New("pause_unread",
		"Its messages wait until they expire. The worker that knows who paused the queue could not be reached.",
		"Try again with access to the worker (--server, IAP_TOKEN or OPS_TOKEN).")
	PauseUnmarked = finding.New("pause_unmarked",
		"The queue is paused without a mark: the next run of provision or Terraform sets the endpoint again.",
		"Pause it again (billhook queues pause).")
	PauseMarkLeft = finding.New("pause_mark_left",
		"The queue is not paused, and its messages are pushed; Terraform refuses to plan because of its mark.",
		"Resume it again (billhook queues resume).")
)
