package pubsub

import (
	"context"
	"fmt"
	"time"

	apiv1 "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
)

const (
	// pulls bounds how far Unhold looks, and patience how long it waits for each.
	pulls    = 20
	patience = 5 * time.Second
)

// Unhold takes the copy of one event's dead letter off the queue's hold subscription, which
// otherwise keeps and counts it until its retention ends. It gives all others back at once,
// and reports whether it found one among the first two thousand.
func Unhold(ctx context.Context, q catalog.Queue, names Names, eventID string, options ...option.ClientOption) (found bool, err error) {
	a, err := open(ctx, Target{Names: names}, options)
	if err != nil {
		return false, err
	}
	defer a.close()
	admin, name := a.client.SubscriptionAdminClient, a.target.subscriptionName(q.DeadLetterHold())
	var others []string
	// What was seen stays out until the end, so that each pull brings something new.
	defer func() {
		if len(others) == 0 {
			return
		}
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		// Where this fails they come back by themselves, a minute later.
		_ = admin.ModifyAckDeadline(back, &pubsubpb.ModifyAckDeadlineRequest{Subscription: name, AckIds: others, AckDeadlineSeconds: 0})
	}()
	for range pulls {
		answer, err := pull(ctx, admin, name)
		if err != nil {
			return false, fmt.Errorf("pull from %s: %w", idOf(name), err)
		}
		var ours []string
		for _, m := range answer.GetReceivedMessages() {
			if m.GetMessage().GetAttributes()["event_id"] == eventID {
				ours = append(ours, m.AckId)
			} else {
				others = append(others, m.AckId)
			}
		}
		if len(ours) > 0 {
			if err := admin.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: name, AckIds: ours}); err != nil {
				return false, fmt.Errorf("acknowledge on %s: %w", idOf(name), err)
			}
			return true, nil
		}
		if len(answer.GetReceivedMessages()) == 0 {
			return false, nil
		}
	}
	return false, nil
}

// pull answers with nothing where there is nothing in time.
func pull(ctx context.Context, from *apiv1.SubscriptionAdminClient, name string) (*pubsubpb.PullResponse, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := from.Pull(bounded, &pubsubpb.PullRequest{Subscription: name, MaxMessages: 100})
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		return &pubsubpb.PullResponse{}, nil
	}
	return answer, err
}
