package pubsub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/store"
)

// Look has an examination's inputs besides the catalog and the target.
type Look struct {
	// Paused has the recorded pauses by queue; nil: unknown, and only the marks are compared.
	Paused map[string]pause.Pause
	// Accounts has the services' accounts by the names of catalog.Publishers; nil: grants are not examined.
	Accounts map[string]string
	// Inherits reports whether a member holds one of the roles on the whole project; nil: no member does.
	Inherits func(roles []string, is func(member string) bool) bool
	// Label is the installation's value of the label app; empty: labels are ignored.
	Label string
	Known []string // ids of foreign subscriptions on the installation's topics that are expected
}

// Examine compares each queue with its resources in the project, and changes nothing. It returns the harmful
// differences in the catalog's order, then resources outside the catalog, and those that the account may not
// read. A recorded and marked pause is no difference, nor are Provision's settings on an emulator. Not
// examined: grants on a folder, and whether Pub/Sub's agent may mint the push account's tokens.
func Examine(
	ctx context.Context, c *catalog.Catalog, target Target, look Look, options ...option.ClientOption,
) (Examination, error) {
	if err := target.check(); err != nil {
		return Examination{}, err
	}
	a, err := open(ctx, target, options)
	if err != nil {
		return Examination{}, err
	}
	defer func() { _ = a.client.Close() }() // all requests are answered by now
	return a.examine(ctx, c, look, true)
}

// Examination has the results of an examination.
type Examination struct {
	Findings []finding.Finding
	// Catalogs has, by enabled queue, the hash of the catalog in its subscription's label.
	Catalogs map[string]string
	Unread   []finding.Unread
}

const (
	getsTopic               = "pubsub.topics.get"
	getsSubscription        = "pubsub.subscriptions.get"
	listsTopics             = "pubsub.topics.list"
	listsSubscriptions      = "pubsub.subscriptions.list"
	readsTopicPolicy        = "pubsub.topics.getIamPolicy"
	readsSubscriptionPolicy = "pubsub.subscriptions.getIamPolicy"
)

func (a admin) examine(ctx context.Context, c *catalog.Catalog, look Look, strays bool) (Examination, error) {
	others, publishers := c.OtherTopics(), c.Publishers()
	all := make([]examiner, len(others)+len(c.Queues))
	_ = store.AtOnce(ctx, len(all), func(ctx context.Context, i int) error { // each examiner keeps its own error
		e := &all[i]
		*e = examiner{admin: a, look: look, publishers: publishers}
		if i < len(others) {
			e.queue = others[i]
			e.failed = e.topic(ctx, e.queue)
			return nil
		}
		q := c.Queues[i-len(others)]
		e.queue, e.deadLetters = q.ID, q.DeadLetter.Topic
		if q.Enabled {
			e.failed = e.enabled(ctx, q)
		} else {
			e.failed = e.disabled(ctx, q, slices.Contains(others, q.Topic()))
		}
		if e.failed != nil {
			e.failed = fmt.Errorf("queue %s: %w", q.ID, e.failed)
		}
		return nil
	})
	var beside []examiner
	if strays {
		beside = append(beside, a.strays(ctx, c, look))
	}
	found := Examination{Catalogs: map[string]string{}}
	for _, e := range slices.Concat(all, beside) {
		found.Findings = append(found.Findings, e.findings...)
		found.Unread = append(found.Unread, e.unread...)
		if e.catalog != "" {
			found.Catalogs[e.queue] = e.catalog
		}
		if e.failed != nil {
			return Examination{}, e.failed
		}
	}
	return found, nil
}

// examiner examines one queue, or one topic that several queues share.
type examiner struct {
	admin
	look        Look
	queue       string
	findings    []finding.Finding
	deadLetters string
	publishers  map[string][]string
	catalog     string
	unread      []finding.Unread
	failed      error
}

// hidden records a resource that the account may not read, if that is the error. It returns any other error.
func (e *examiner) hidden(err error, what, permission string) (bool, error) {
	if status.Code(err) != codes.PermissionDenied {
		return false, err
	}
	denied := finding.Unread{What: what, Permission: permission, Why: codes.PermissionDenied.String()}
	e.unread = append(e.unread, denied)
	return true, nil
}

func (e *examiner) find(kind, id string, code finding.Code, have, want string) {
	f := code.Of(kind, id, have, want)
	f.Queue = e.queue
	e.findings = append(e.findings, f)
}

func (e *examiner) enabled(ctx context.Context, q catalog.Queue) error {
	topics, subscriptions := e.target.Plan(q)
	for _, id := range topics {
		if err := e.topic(ctx, id); err != nil {
			return err
		}
	}
	deadLettersKept := q.DeadLetter.Drop
	for _, want := range subscriptions {
		have, hidden, err := e.subscription(ctx, want.Name)
		if err != nil {
			return err
		}
		deadLettersKept = deadLettersKept || hidden || have.GetTopic() == e.target.topicName(q.DeadLetter.Topic)
		switch {
		case hidden:
		case have == nil:
			code := DeadLettersPushMissing
			if want.PushConfig == nil {
				code = HoldMissing
			} else if want.Topic == e.target.topicName(q.Topic()) {
				code = SubscriptionMissing
			}
			e.find("subscription", idOf(want.Name), code, "", "")
		default:
			e.compare(q, have, want)
			if policy := have.DeadLetterPolicy; policy != nil && want.DeadLetterPolicy != nil && !e.target.Emulator {
				if err := e.grants(ctx, policy.DeadLetterTopic, have.Name); err != nil {
					return err
				}
			}
		}
	}
	if !deadLettersKept {
		e.find("topic", e.target.id(q.DeadLetter.Topic), DeadLettersUnkept, "", "")
	}
	return nil
}

// disabled examines a disabled queue, which needs no endpoints. kept: another queue uses its topic.
func (e *examiner) disabled(ctx context.Context, q catalog.Queue, kept bool) error {
	for _, id := range pushes(q) {
		have, hidden, err := e.subscription(ctx, e.target.subscriptionName(id))
		if err != nil {
			return err
		}
		kept = kept || hidden || have != nil && id == q.PushSubscription()
		if have.GetPushConfig().GetPushEndpoint() != "" {
			e.find("subscription", e.target.id(id), LeftOver, "", "")
		}
	}
	topic, _, err := e.readTopic(ctx, q.Topic())
	if topic != nil && !kept {
		e.find("topic", e.target.id(q.Topic()), MessagesUnkept, "", "")
	}
	return err
}

func (e *examiner) topic(ctx context.Context, id string) error {
	topic, hidden, err := e.readTopic(ctx, id)
	if err != nil {
		return err
	}
	if topic == nil && !hidden {
		e.find("topic", e.target.id(id), TopicMissing, "", "")
		return nil
	}
	return e.publish(ctx, id)
}

// readTopic returns nil for a topic that is missing or that the account may not read.
func (e *examiner) readTopic(ctx context.Context, id string) (topic *pb.Topic, hidden bool, err error) {
	name := e.target.topicName(id)
	topic, err = e.client.TopicAdminClient.GetTopic(ctx, &pb.GetTopicRequest{Topic: name})
	topic, err = found(topic, err, name)
	hidden, err = e.hidden(err, "topic "+idOf(name), getsTopic)
	return topic, hidden, err
}

func (e *examiner) subscription(ctx context.Context, name string) (*pb.Subscription, bool, error) {
	have, err := e.read(ctx, name)
	hidden, err := e.hidden(err, "subscription "+idOf(name), getsSubscription)
	return have, hidden, err
}

// setting is a setting of a subscription that differs from the plan, in words.
type setting struct {
	code              finding.Code
	field, have, want string // field is the field to update; empty: it cannot be changed
}

func (t Target) settings(have, want *pb.Subscription) []setting {
	expires := "never"
	if ttl := have.ExpirationPolicy.GetTtl(); ttl != nil {
		expires = ttl.AsDuration().String()
	}
	deadline := func(s *pb.Subscription) string {
		return (time.Duration(s.AckDeadlineSeconds) * time.Second).String()
	}
	none := func(text string) string { return cmp.Or(text, "none") }
	retention := func(s *pb.Subscription) string {
		return s.MessageRetentionDuration.AsDuration().String()
	}
	onOff, ordering := map[bool]string{true: "on", false: "off"}, OrderingOff
	if have.EnableMessageOrdering {
		ordering = OrderingOn
	}
	deadLetters := WrongDeadLetters
	switch {
	case have.DeadLetterPolicy == nil:
		deadLetters = NoDeadLetterPolicy
	case want.DeadLetterPolicy == nil && t.Emulator:
		deadLetters = DeadLetterPolicy
	}
	all := []setting{
		{WrongTopic, "", idOf(have.Topic), idOf(want.Topic)},
		{Expiring, "expiration_policy", expires, "never"},
		{ordering, "", onOff[have.EnableMessageOrdering], onOff[want.EnableMessageOrdering]},
		{WrongFilter, "", none(have.Filter), none(want.Filter)},
		{WrongDeadline, "ack_deadline_seconds", deadline(have), deadline(want)},
		{ShortRetention, "message_retention_duration", retention(have), retention(want)},
		{deadLetters, "dead_letter_policy", backstop(have.DeadLetterPolicy), backstop(want.DeadLetterPolicy)},
	}
	if want.RetryPolicy != nil {
		all = append(all,
			setting{WrongRetryPolicy, "retry_policy", waits(have.RetryPolicy), waits(want.RetryPolicy)})
	}
	code, to, wanted := WrongEndpoint, have.PushConfig.GetPushEndpoint(), want.PushConfig.GetPushEndpoint()
	switch {
	case wanted == "":
		code = Pushed
	case to == "":
		code = NotPushed
	case t.PushBaseURL == "" && strings.HasSuffix(to, wanted):
		to = wanted
	}
	all = append(all, setting{code, "push_config", to, wanted})
	if code == WrongEndpoint && t.PushBaseURL != "" {
		if have.PushConfig.GetNoWrapper() != nil {
			all = append(all, setting{Unwrapped, "push_config", "without its envelope", "with it"})
		}
		if a, b := have.PushConfig.GetOidcToken(), want.PushConfig.GetOidcToken(); !t.Emulator { // it drops tokens
			account, audience := none(b.GetServiceAccountEmail()), none(b.GetAudience())
			all = append(all, setting{WrongAccount, "push_config", none(a.GetServiceAccountEmail()), account},
				setting{WrongAudience, "push_config", none(a.GetAudience()), audience})
		}
	}
	return slices.DeleteFunc(all, func(s setting) bool { return s.have == s.want })
}

func (e *examiner) compare(q catalog.Queue, have, want *pb.Subscription) {
	id := idOf(want.Name)
	if have.Detached {
		e.find("subscription", id, Detached, "", "")
	}
	own, rests, longest := want.Name == e.target.subscriptionName(q.PushSubscription()), false,
		q.LongestTimeout()
	if own {
		e.catalog, rests = have.Labels[CatalogLabel], e.comparePause(q, have)
	}
	isLonger := have.MessageRetentionDuration.AsDuration() > want.MessageRetentionDuration.AsDuration()
	for _, s := range e.target.settings(have, want) {
		switch {
		case s.code == WrongDeadline && own && time.Duration(have.AckDeadlineSeconds)*time.Second <= longest:
			s.code = DeadlineBelowHandler
			s.want = fmt.Sprintf("%s, for a handler that may take %s", q.AckDeadline, longest)
		case rests && s.field == "push_config",
			// A pull subscription's deadline and a longer retention do no harm.
			s.code == WrongDeadline && want.PushConfig == nil, s.code == ShortRetention && isLonger:
			continue
		}
		e.find("subscription", id, s.code, s.have, s.want)
	}
}

// comparePause reports whether the subscription has no endpoint because of the pause.
func (e *examiner) comparePause(q catalog.Queue, have *pb.Subscription) (rests bool) {
	record, paused := e.look.Paused[q.ID]
	want := "pushed"
	if paused {
		want = fmt.Sprintf("paused since %s by %s", record.At.UTC().Format(time.RFC3339), record.Who)
	}
	var code finding.Code
	is := standing(have)
	switch {
	case is == pause.Paused && !paused && e.look.Paused == nil:
		code = PauseUnread
	case is == pause.Paused && !paused:
		code = PauseUnrecorded
	case is == pause.Undone && e.look.Paused != nil && !paused:
		code = PauseMarkLeft
	case is == pause.Undone, is == pause.Pushing && paused:
		code = PauseUndone
	case is == pause.Unmarked && paused:
		code = PauseUnmarked
	default:
		return is == pause.Paused
	}
	e.find("subscription", e.target.id(q.PushSubscription()), code, map[pause.Standing]string{
		pause.Paused: "marked as paused, without an endpoint", pause.Undone: "marked as paused, and pushed",
		pause.Pushing: "pushed", pause.Unmarked: "without an endpoint and without a mark",
	}[is], want)
	return have.GetPushConfig().GetPushEndpoint() == ""
}

func backstop(p *pb.DeadLetterPolicy) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%s after %d deliveries", idOf(p.DeadLetterTopic), p.MaxDeliveryAttempts)
}

func waits(p *pb.RetryPolicy) string {
	if p == nil {
		return "at once"
	}
	return fmt.Sprintf("%s to %s", p.MinimumBackoff.AsDuration(), p.MaximumBackoff.AsDuration())
}
