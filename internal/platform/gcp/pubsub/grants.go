package pubsub

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"cloud.google.com/go/iam/apiv1/iampb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/platform/finding"
)

// agent is Pub/Sub's own service account; the number is the project's.
var agent = regexp.MustCompile(`^serviceAccount:service-\d+@gcp-sa-pubsub\.iam\.gserviceaccount\.com$`)

// Permissions to read who holds what.
const (
	readsTopicPolicy        = "pubsub.topics.getIamPolicy"
	readsSubscriptionPolicy = "pubsub.subscriptions.getIamPolicy"
)

// Permissions are those that Examine takes.
var Permissions = []string{getsTopic, listsTopics, readsTopicPolicy, getsSubscription, listsSubscriptions, readsSubscriptionPolicy}

// publish looks for the grants of the services that publish on a topic.
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
			e.unread = append(e.unread, finding.Unread{What: "the grant of " + service + " on topic " + e.target.id(id), Why: "the service's account is not known"})
			continue
		}
		if !e.granted(ctx, policy, "roles/pubsub.publisher", func(member string) bool { return member == "serviceAccount:"+account }) {
			code := NoWorkerPublishes
			switch {
			case service == catalog.Webhook:
				code = NoDoorPublishes
			case id == e.letters:
				code = NoLettersPublished
			}
			e.find("topic", e.target.id(id), code, "", "roles/pubsub.publisher for "+account+", the account of "+service)
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
		if policy != nil && !e.granted(ctx, policy, grant.role, agent.MatchString) {
			e.find(grant.kind, idOf(grant.resource), grant.code, "", grant.role+" for Pub/Sub's service agent")
		}
	}
	return nil
}

// policy reads who holds what on a topic or subscription. It is nil where the account may not look, and of a
// resource that is missing, which is a finding of its own.
func (e *examiner) policy(ctx context.Context, kind, name string) (*iampb.Policy, error) {
	var read func(context.Context, *iampb.GetIamPolicyRequest, ...gax.CallOption) (*iampb.Policy, error)
	permission := readsTopicPolicy
	read = e.client.TopicAdminClient.GetIamPolicy
	if kind == "subscription" {
		read, permission = e.client.SubscriptionAdminClient.GetIamPolicy, readsSubscriptionPolicy
	}
	policy, err := read(ctx, &iampb.GetIamPolicyRequest{Resource: name})
	switch {
	case err == nil:
		return policy, nil
	case status.Code(err) == codes.NotFound, e.hidden(err, "the grants on "+kind+" "+idOf(name), permission):
		return nil, nil
	default:
		return nil, fmt.Errorf("read the IAM policy of %s %s: %w", kind, idOf(name), err)
	}
}

// granted reports whether a member holds the role, whatever the hour: a condition may
// not hold when it counts.
func (e *examiner) granted(ctx context.Context, policy *iampb.Policy, role string, is func(member string) bool) bool {
	enough := []string{role, "roles/pubsub.editor", "roles/pubsub.admin"}
	return slices.ContainsFunc(policy.GetBindings(), func(b *iampb.Binding) bool {
		return b.Condition == nil && slices.Contains(enough, b.Role) && slices.ContainsFunc(b.Members, is)
	}) || (e.look.Inherits != nil && e.look.Inherits(ctx, append(enough, "roles/editor", "roles/owner"), is))
}
