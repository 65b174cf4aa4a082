package pubsub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
)

// Target is the project to provision, and the worker that receives the pushes.
type Target struct {
	Names

	PushBaseURL string // the worker's address, such as https://worker.example, without a path
	// PushAudience and PushServiceAccount are for the pushes' OIDC token; without an account there is no token.
	PushAudience       string
	PushServiceAccount string
	Pools              map[string]Pool // pools with workers of their own; an empty field is as above
	// Emulator avoids the faults of Google's emulator: a dead-letter policy on an ordered subscription ends its
	// pushes, a retry policy on an unordered one loses messages, and retention ends at 7 days.
	Emulator bool
}

// Pool has the address of one pool's worker, and the account that calls it.
type Pool struct {
	URL, ServiceAccount string
}

// Of returns a pool's address and account, by default the target's own.
func (t Target) Of(pool string) Pool {
	own := t.Pools[pool]
	return Pool{cmp.Or(own.URL, t.PushBaseURL), cmp.Or(own.ServiceAccount, t.PushServiceAccount)}
}

const emulatorRetention = 7 * 24 * time.Hour

// The actions of Provision on a resource.
const (
	Created   = "created"
	Updated   = "updated"
	Unchanged = "unchanged"
	// LeftPaused: the queue is paused, and its subscription still has no endpoint.
	LeftPaused = "paused"
	// SwitchedOff: the queue is disabled, and its subscription had an endpoint until now; Kept: it had none.
	SwitchedOff = "switched off"
	Kept        = "kept"
	Failed      = "failed"
	NotTried    = "not tried" // because an earlier request had no answer
)

// Change is the action of Provision on one resource.
type Change struct {
	Kind   string `json:"kind" show:"Kind"` // topic or subscription
	ID     string `json:"id" show:"ID"`     // at Pub/Sub, with the installation before it
	Action string `json:"action" show:"Action"`
	Error  string `json:"error,omitempty" show:"Why"` // why it failed
}

// check refuses a target whose pushes no worker would accept.
func (t Target) check() error {
	if err := t.Check(); err != nil {
		return fmt.Errorf("pubsub: %w", err)
	}
	addresses, tokens := []string{t.PushBaseURL}, t.PushServiceAccount != ""
	for name, pool := range t.Pools {
		tokens = tokens || pool.ServiceAccount != ""
		addresses = append(addresses, t.Of(name).URL)
	}
	for _, address := range addresses {
		base, err := url.Parse(address)
		if err != nil || base.Host == "" || (base.Scheme != "https" && base.Scheme != "http") ||
			address != base.Scheme+"://"+base.Host {
			return errors.New("pubsub: the push base URL must be http(s)://host, without a path")
		}
	}
	if tokens && t.PushAudience == "" {
		return errors.New("pubsub: a push service account needs the audience that the worker expects")
	}
	return nil
}

type admin struct {
	client *pubsub.Client
	target Target
}

func open(ctx context.Context, target Target, options []option.ClientOption) (admin, error) {
	client, err := pubsub.NewClient(ctx, target.ProjectID, options...)
	if err != nil {
		return admin{}, fmt.Errorf("pubsub: client: %w", err)
	}
	return admin{client, target}, nil
}

func (a admin) read(ctx context.Context, name string) (*pb.Subscription, error) {
	request := &pb.GetSubscriptionRequest{Subscription: name}
	have, err := a.client.SubscriptionAdminClient.GetSubscription(ctx, request)
	return found(have, err, name)
}

func found[T any](have *T, err error, name string) (*T, error) {
	switch status.Code(err) {
	case codes.OK:
		return have, nil
	case codes.NotFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
}

// Provision creates the topics and subscriptions of every enabled queue, and the other topics. It updates
// settings that differ, deletes nothing, and leaves grants to Terraform. A disabled queue gets no topic, so
// that publishing to it fails. If it was enabled before, its messages are kept and no longer pushed.
//
// After a failure it continues, unless nobody answers. It returns a Change per resource, and all failures.
func Provision(
	ctx context.Context, c *catalog.Catalog, target Target, options ...option.ClientOption,
) ([]Change, error) {
	if err := target.check(); err != nil {
		return nil, err
	}
	a, err := open(ctx, target, options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.client.Close() }() // all requests are answered by now
	p := &provisioner{admin: a, catalog: c.Hash()}
	for _, id := range c.OtherTopics() {
		p.try("topic", p.target.id(id), func() (string, error) { return p.topic(ctx, id) })
	}
	for _, q := range c.Queues {
		p.queue(ctx, q)
	}
	done := func(c Change) bool { return c.Action != Failed && c.Action != NotTried }
	if undone := slices.DeleteFunc(slices.Clone(p.changes), done); len(undone) > 0 {
		err := fmt.Errorf("%d of %d resources are not provisioned; run it again", len(undone), len(p.changes))
		p.failures = append(p.failures, err)
	}
	return p.changes, errors.Join(p.failures...)
}

type provisioner struct {
	admin
	catalog    string // the catalog's hash, for the subscriptions' label; empty: no label
	changes    []Change
	failures   []error
	unanswered bool // the last request had no answer, so each further one would time out
}

// silent has the codes of requests that nobody answers.
var silent = []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unauthenticated}

// try provisions one resource, and records the change or the failure.
func (p *provisioner) try(kind, id string, do func() (action string, err error)) {
	change := Change{Kind: kind, ID: id, Action: NotTried}
	if !p.unanswered {
		var err error
		if change.Action, err = do(); err != nil {
			change.Action, change.Error, p.failures = Failed, err.Error(), append(p.failures, err)
			p.unanswered = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
				slices.Contains(silent, status.Code(err))
		}
	}
	if change.Action != "" {
		p.changes = append(p.changes, change)
	}
}

func (p *provisioner) queue(ctx context.Context, q catalog.Queue) {
	if !q.Enabled {
		for _, id := range pushes(q) {
			p.try("subscription", p.target.id(id), func() (string, error) { return p.pause(ctx, id) })
		}
		return
	}
	topics, subscriptions := p.target.Plan(q)
	for _, id := range topics {
		p.try("topic", p.target.id(id), func() (string, error) { return p.topic(ctx, id) })
	}
	for _, want := range subscriptions {
		own := want.Name == p.target.subscriptionName(q.PushSubscription())
		if own && p.catalog != "" && !p.target.Emulator { // the emulator keeps no labels
			want.Labels = map[string]string{CatalogLabel: p.catalog}
		}
		p.try("subscription", idOf(want.Name), func() (string, error) { return p.subscription(ctx, want) })
	}
}

// pause removes the endpoint of a disabled queue, so that its messages wait until it is enabled again.
func (p *provisioner) pause(ctx context.Context, id string) (action string, err error) {
	name := p.target.subscriptionName(id)
	have, err := p.read(ctx, name)
	switch {
	case err != nil || have == nil:
		return "", err
	case have.GetPushConfig().GetPushEndpoint() == "":
		return Kept, nil
	}
	have.PushConfig = &pb.PushConfig{}
	return SwitchedOff, p.update(ctx, have, "push_config")
}

func (a admin) update(ctx context.Context, want *pb.Subscription, fields ...string) error {
	_, err := a.client.SubscriptionAdminClient.UpdateSubscription(ctx, &pb.UpdateSubscriptionRequest{
		Subscription: want, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields},
	})
	if err != nil {
		return fmt.Errorf("update subscription %s: %w", idOf(want.Name), err)
	}
	return nil
}

func idOf(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

func pushes(q catalog.Queue) []string {
	if q.DeadLetter.Drop {
		return []string{q.PushSubscription()}
	}
	return []string{q.PushSubscription(), q.DeadLetterPush()}
}

// Plan returns an enabled queue's resources for Provision and Examine. It omits a shared topic.
func (t Target) Plan(q catalog.Queue) (topics []string, subscriptions []*pb.Subscription) {
	if q.SharedTopic == "" {
		topics = append(topics, q.Topic())
	}
	minimum, maximum := q.BrokerBackoff()
	retryPolicy := &pb.RetryPolicy{
		MinimumBackoff: durationpb.New(minimum), MaximumBackoff: durationpb.New(maximum),
	}

	push := t.base(q.PushSubscription(), q.Topic(), q.MessageRetention)
	push.AckDeadlineSeconds = int32(q.AckDeadline / time.Second) //nolint:gosec // the catalog bounds it to 600
	push.EnableMessageOrdering = q.Ordered()
	push.Filter = q.Filter().String()
	push.PushConfig = t.pushConfig(q.Pool, q.PushPath())
	if !t.Emulator || q.Ordered() {
		push.RetryPolicy = retryPolicy
	}
	if q.DeadLetter.Drop {
		return topics, []*pb.Subscription{push}
	}
	if !t.Emulator || !q.Ordered() {
		topic := t.topicName(q.DeadLetter.Topic)
		most := int32(catalog.BrokerMaxDeliveryAttempts)
		push.DeadLetterPolicy = &pb.DeadLetterPolicy{DeadLetterTopic: topic, MaxDeliveryAttempts: most}
	}
	hold := t.base(q.DeadLetterHold(), q.DeadLetter.Topic, q.DeadLetter.Retention)
	hold.AckDeadlineSeconds = 60
	dead := t.base(q.DeadLetterPush(), q.DeadLetter.Topic, q.DeadLetter.Retention)
	dead.AckDeadlineSeconds = push.AckDeadlineSeconds
	dead.PushConfig = t.pushConfig(q.Pool, q.DeadLetterPushPath())
	if !t.Emulator {
		dead.RetryPolicy = retryPolicy
	}
	return append(topics, q.DeadLetter.Topic), []*pb.Subscription{hold, push, dead}
}

// base returns a subscription that never expires. By default Pub/Sub deletes one after a month without use.
func (t Target) base(id, topic string, retention time.Duration) *pb.Subscription {
	if t.Emulator {
		retention = min(retention, emulatorRetention)
	}
	return &pb.Subscription{
		Name: t.subscriptionName(id), Topic: t.topicName(topic),
		MessageRetentionDuration: durationpb.New(retention), ExpirationPolicy: &pb.ExpirationPolicy{},
	}
}

func (t Target) pushConfig(pool, path string) *pb.PushConfig {
	worker := t.Of(pool)
	config := &pb.PushConfig{PushEndpoint: worker.URL + path}
	if worker.ServiceAccount != "" {
		token := &pb.PushConfig_OidcToken{ServiceAccountEmail: worker.ServiceAccount, Audience: t.PushAudience}
		config.AuthenticationMethod = &pb.PushConfig_OidcToken_{OidcToken: token}
	}
	return config
}

func (p *provisioner) topic(ctx context.Context, id string) (action string, err error) {
	_, err = p.client.TopicAdminClient.CreateTopic(ctx, &pb.Topic{Name: p.target.topicName(id)})
	switch status.Code(err) {
	case codes.OK:
		return Created, nil
	case codes.AlreadyExists:
		return Unchanged, nil
	default:
		return "", fmt.Errorf("create topic %s: %w", p.target.id(id), err)
	}
}

func (p *provisioner) subscription(ctx context.Context, want *pb.Subscription) (action string, err error) {
	id, action := idOf(want.Name), Unchanged
	have, err := p.read(ctx, want.Name)
	if err != nil {
		return "", err
	}
	if have == nil {
		if _, err := p.client.SubscriptionAdminClient.CreateSubscription(ctx, want); err != nil {
			return "", fmt.Errorf("create subscription %s: %w", id, err)
		}
		return Created, nil
	}
	var fields []string
	for _, s := range p.target.settings(have, want) {
		if s.field == "" {
			return "", fmt.Errorf(
				"subscription %s: topic, ordering and filter cannot be changed; delete it first, when it is empty", id)
		}
		fields = append(fields, s.field)
	}
	fields = slices.Compact(fields) // an endpoint and its token are one field
	if standing(have) == pause.Paused {
		p.changes, action = append(p.changes, Change{Kind: "subscription", ID: id, Action: LeftPaused}), ""
		fields = slices.DeleteFunc(fields, func(field string) bool { return field == "push_config" })
	}
	if own := want.Labels[CatalogLabel]; own != "" && have.Labels[CatalogLabel] != own {
		maps.Copy(want.Labels, have.Labels) // other labels stay
		want.Labels[CatalogLabel], fields = own, append(fields, "labels")
	}
	if len(fields) > 0 {
		return Updated, p.update(ctx, want, fields...)
	}
	return action, nil
}
