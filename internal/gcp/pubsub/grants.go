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
)

// agent is Pub/Sub's own service account; the number is the project's.
var agent = regexp.MustCompile(`^serviceAccount:service-\d+@gcp-sa-pubsub\.iam\.gserviceaccount\.com$`)

// grants looks for the two that a dead-letter policy needs.
func (e *examiner) grants(ctx context.Context, topic, subscription string) error {
	for _, grant := range []struct {
		kind, resource, role string
		code                 Code
		read                 func(context.Context, *iampb.GetIamPolicyRequest, ...gax.CallOption) (*iampb.Policy, error)
	}{
		{"topic", topic, "roles/pubsub.publisher", NoPublisherGrant, e.client.TopicAdminClient.GetIamPolicy},
		{"subscription", subscription, "roles/pubsub.subscriber", NoSubscriberGrant, e.client.SubscriptionAdminClient.GetIamPolicy},
	} {
		id := idOf(grant.resource)
		policy, err := grant.read(ctx, &iampb.GetIamPolicyRequest{Resource: grant.resource})
		switch status.Code(err) {
		case codes.OK:
			if !granted(policy, grant.role) {
				e.find(grant.kind, id, grant.code, "", grant.role+" for Pub/Sub's service agent")
			}
		case codes.PermissionDenied:
			e.find(grant.kind, id, GrantUnread, "", "")
		case codes.NotFound: // a topic that is missing is a finding of its own
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
