package pubsub

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/store"
)

// Look is what an examination goes by, besides the catalog and the target.
type Look struct {
	// Paused are the recorded pauses, by queue; nil: they are not known, and the marks alone are looked at.
	Paused map[string]pause.Pause
	// Accounts are the e-mail addresses of the services' accounts, by the names of catalog.Publishers. Who may publish
	// is not looked at without them.
	Accounts map[string]string
	// Inherits reports whether a member of the project holds one of the roles on the whole project; nil: none does.
	Inherits func(ctx context.Context, roles []string, is func(member string) bool) bool
	// Label is the value of the label app on what Terraform made for this installation; empty: labels are not gone by.
	Label string
	// Known are the ids of others' subscriptions on the installation's topics that are no finding.
	Known []string
}

// Examine compares each queue with what the project has, and changes nothing. It returns every harmful difference, in
// the order of the catalog, at the end what the catalog does not have, and what the account may not look at. After an
// error the findings are those up to there. A queue that is paused as recorded and marked differs on purpose, and so does
// what Provision makes on an emulator. Grants inherited from a folder are not seen, nor whether Pub/Sub's agent may mint
// tokens for the push account.
func Examine(ctx context.Context, c *catalog.Catalog, target Target, look Look, options ...option.ClientOption) (Examination, error) {
	if err := target.check(); err != nil {
		return Examination{}, err
	}
	a, err := open(ctx, target, options)
	if err != nil {
		return Examination{}, err
	}
	defer a.close()
	found, err := a.examine(ctx, c, look)
	if err != nil {
		return found, err
	}
	strays, unread, err := a.strays(ctx, c, look)
	found.Findings, found.Unread = append(found.Findings, strays...), append(found.Unread, unread...)
	return found, err
}

// Examination is what an examination has found.
type Examination struct {
	Findings []finding.Finding
	// Catalogs are the hashes of the catalogs that the enabled queues' subscriptions were made of, by
	// queue. One whose subscription does not say it is not among them.
	Catalogs map[string]string
	Unread   []finding.Unread
	// Kept are the queues that do not run and whose subscription keeps what waits, without an endpoint.
	Kept []string
}

const (
	getsTopic          = "pubsub.topics.get"
	getsSubscription   = "pubsub.subscriptions.get"
	listsTopics        = "pubsub.topics.list"
	listsSubscriptions = "pubsub.subscriptions.list"
	// listsReaders lists the subscriptions of a topic, of other projects too.
	listsReaders = "pubsub.topics.get"
)

func (a admin) examine(ctx context.Context, c *catalog.Catalog, look Look) (Examination, error) {
	others, publishers := c.OtherTopics(), c.Publishers()
	all := make([]examiner, len(others)+len(c.Queues))
	_ = store.AtOnce(ctx, len(all), func(ctx context.Context, i int) error { // each has its error
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
	found := Examination{Findings: []finding.Finding{}, Catalogs: map[string]string{}, Unread: []finding.Unread{}}
	for _, e := range all {
		found.Findings = append(found.Findings, e.findings...)
		found.Unread = append(found.Unread, e.unread...)
		if e.kept {
			found.Kept = append(found.Kept, e.queue)
		}
		if e.catalog != "" {
			found.Catalogs[e.queue] = e.catalog
		}
		if e.failed != nil {
			return found, e.failed
		}
	}
	return found, nil
}

// examiner looks at one queue, or at one topic that is no queue's own.
type examiner struct {
	admin
	look        Look
	queue       string
	findings    []finding.Finding
	deadLetters string
	publishers  map[string][]string
	catalog     string
	// kept: the queue does not run, and its subscription is still there, without an endpoint.
	kept   bool
	unread []finding.Unread
	failed error
}

// hidden notes what the account may not look at, and reports whether that is what the error says.
func (e *examiner) hidden(err error, what, permission string) bool {
	denied := status.Code(err) == codes.PermissionDenied
	if denied {
		e.unread = append(e.unread, finding.Unread{What: what, Permission: permission, Why: codes.PermissionDenied.String()})
	}
	return denied
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
	var missing []string
	deadLettersKept := false
	for _, want := range subscriptions {
		have, err := e.read(ctx, want.Name)
		if e.hidden(err, "subscription "+idOf(want.Name), getsSubscription) {
			deadLettersKept = true // perhaps
			continue
		}
		if err != nil {
			return err
		}
		if have == nil {
			missing = append(missing, want.Name)
			continue
		}
		deadLettersKept = deadLettersKept || have.Topic == e.target.topicName(q.DeadLetter.Topic)
		e.compare(q, have, want)
		if policy := have.DeadLetterPolicy; policy != nil && want.DeadLetterPolicy != nil && !e.target.Emulator {
			if err := e.grants(ctx, policy.DeadLetterTopic, have.Name); err != nil {
				return err
			}
		}
	}
	if !q.DeadLetter.Drop && !deadLettersKept {
		e.find("topic", e.target.id(q.DeadLetter.Topic), DeadLettersUnkept, "", "")
	}
	codes := map[string]finding.Code{
		e.target.subscriptionName(q.PushSubscription()): SubscriptionMissing,
		e.target.subscriptionName(q.DeadLetterHold()):   HoldMissing,
		e.target.subscriptionName(q.DeadLetterPush()):   DeadLettersPushMissing,
	}
	for _, name := range missing {
		e.find("subscription", idOf(name), codes[name], "", "")
	}
	return nil
}

// disabled looks at a queue that is not enabled: it has nothing, or what it had once, paused.
func (e *examiner) disabled(ctx context.Context, q catalog.Queue, shared bool) error {
	kept := false
	for _, id := range pushes(q) {
		have, err := e.read(ctx, e.target.subscriptionName(id))
		if e.hidden(err, "subscription "+e.target.id(id), getsSubscription) {
			kept = true // perhaps
			continue
		}
		if err != nil {
			return err
		}
		own := have != nil && id == q.PushSubscription()
		kept, e.kept = kept || own, e.kept || own && have.GetPushConfig().GetPushEndpoint() == ""
		if have.GetPushConfig().GetPushEndpoint() != "" {
			e.find("subscription", e.target.id(id), LeftOver, "", "")
		}
	}
	topic, err := e.readTopic(ctx, q.Topic())
	if topic != nil && !kept && !shared {
		e.find("topic", e.target.id(q.Topic()), MessagesUnkept, "", "")
	}
	if e.hidden(err, "topic "+e.target.id(q.Topic()), getsTopic) {
		return nil
	}
	return err
}

func (e *examiner) topic(ctx context.Context, id string) error {
	topic, err := e.readTopic(ctx, id)
	switch hidden := e.hidden(err, "topic "+e.target.id(id), getsTopic); {
	case err != nil && !hidden:
		return err
	case topic == nil && !hidden:
		e.find("topic", e.target.id(id), TopicMissing, "", "")
		return nil
	}
	return e.publish(ctx, id)
}

func (e *examiner) readTopic(ctx context.Context, id string) (*pubsubpb.Topic, error) {
	name := e.target.topicName(id)
	topic, err := e.client.TopicAdminClient.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
	return found(topic, err, name)
}

// setting is one of a subscription's that differs from what it should be, in words.
type setting struct {
	code finding.Code
	// field is that of an update; empty: it cannot be changed.
	field, have, want string
}

func (t Target) settings(have, want *pubsubpb.Subscription) []setting {
	expires := "never"
	if ttl := have.ExpirationPolicy.GetTtl(); ttl != nil {
		expires = ttl.AsDuration().String()
	}
	deadline := func(s *pubsubpb.Subscription) string {
		return (time.Duration(s.AckDeadlineSeconds) * time.Second).String()
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
		{map[bool]finding.Code{true: OrderingOn, false: OrderingOff}[have.EnableMessageOrdering], "", onOff[have.EnableMessageOrdering], onOff[want.EnableMessageOrdering]},
		{WrongFilter, "", cmp.Or(have.Filter, "none"), cmp.Or(want.Filter, "none")},
		{WrongDeadline, "ack_deadline_seconds", deadline(have), deadline(want)},
		{ShortRetention, "message_retention_duration", have.MessageRetentionDuration.AsDuration().String(), want.MessageRetentionDuration.AsDuration().String()},
		{deadLetters, "dead_letter_policy", backstop(have.DeadLetterPolicy), backstop(want.DeadLetterPolicy)},
	}
	if want.RetryPolicy != nil {
		all = append(all, setting{WrongRetryPolicy, "retry_policy", waits(have.RetryPolicy), waits(want.RetryPolicy)})
	}
	return slices.DeleteFunc(all, func(s setting) bool { return s.have == s.want })
}

func (e *examiner) compare(q catalog.Queue, have, want *pubsubpb.Subscription) {
	id := idOf(want.Name)
	if have.Detached {
		e.find("subscription", id, Detached, "", "")
	}
	own := want.Name == e.target.subscriptionName(q.PushSubscription())
	for _, s := range e.target.settings(have, want) {
		switch {
		case s.code == WrongDeadline && own && time.Duration(have.AckDeadlineSeconds)*time.Second <= q.LongestTimeout():
			s.code, s.want = DeadlineBelowHandler, fmt.Sprintf("%s, for a handler that may take %s", q.AckDeadline, q.LongestTimeout())
		case s.code == WrongDeadline && want.PushConfig == nil,
			s.code == ShortRetention && have.MessageRetentionDuration.AsDuration() > want.MessageRetentionDuration.AsDuration():
			continue // which harms nobody
		}
		e.find("subscription", id, s.code, s.have, s.want)
	}
	if own {
		e.catalog = have.Labels[CatalogLabel]
		if e.comparePause(q, have) {
			return
		}
	}
	differs := func(code finding.Code, a, b string) {
		if a != b {
			e.find("subscription", id, code, a, b)
		}
	}
	switch a, b := have.PushConfig.GetPushEndpoint(), want.PushConfig.GetPushEndpoint(); {
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
}

// comparePause reports whether the subscription has no endpoint because of the pause.
func (e *examiner) comparePause(q catalog.Queue, have *pubsubpb.Subscription) (rests bool) {
	record, paused := e.look.Paused[q.ID]
	want := "pushed"
	if paused {
		want = fmt.Sprintf("paused since %s by %s", record.At.UTC().Format(time.RFC3339), record.Who)
	}
	find := func(code finding.Code, is string) {
		e.find("subscription", e.target.id(q.PushSubscription()), code, is, want)
	}
	switch stands := standing(have); {
	case stands == pause.Paused && !paused:
		code := PauseUnrecorded
		if e.look.Paused == nil {
			code = PauseUnread
		}
		find(code, "marked as paused, without an endpoint")
		return true
	case stands == pause.Undone && e.look.Paused != nil && !paused:
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

func (e *examiner) compareWrapping(differs func(code finding.Code, have, want string), have, want *pubsubpb.PushConfig) {
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
