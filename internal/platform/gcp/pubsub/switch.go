package pubsub

import (
	"context"
	"fmt"
	"maps"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/pipeline/pause"
)

// PausedLabel marks the subscription of a paused queue. Its value is the time, such as 20261122t114455z.
const PausedLabel = "billhook-paused"

// CatalogLabel has the hash of the catalog from which a subscription was made, for people.
const CatalogLabel = "billhook-catalog"

const (
	pausedFormat  = "20060102t150405z"
	switchTimeout = 10 * time.Second
)

// Switch pauses and resumes the subscriptions of queues.
type Switch struct{ admin }

// NewSwitch returns the switch of a project's subscriptions. Without the workers' address it cannot resume.
func NewSwitch(ctx context.Context, target Target, options ...option.ClientOption) (*Switch, error) {
	if err := target.check(); target.PushBaseURL != "" && err != nil {
		return nil, err
	}
	a, err := open(ctx, target, options)
	return &Switch{a}, err
}

// Close ends the connection.
func (s *Switch) Close() error { return s.client.Close() }

// Standing implements pause.Viewer.
func (s *Switch) Standing(ctx context.Context, q catalog.Queue) (pause.Standing, error) {
	have, err := s.look(ctx, q)
	return standing(have), err
}

// look reads the push subscription of a queue, nil if missing. The error has only Google's code.
func (s *Switch) look(ctx context.Context, q catalog.Queue) (*pb.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, switchTimeout)
	defer cancel()
	have, err := s.read(ctx, s.target.subscriptionName(q.PushSubscription()))
	if err != nil {
		id := s.target.id(q.PushSubscription())
		return nil, fmt.Errorf("pubsub: read subscription %s: %s", id, status.Code(err))
	}
	return have, nil
}

// standing reads the label, or on Google's emulator, which keeps no labels, an attribute of the push config.
func standing(have *pb.Subscription) pause.Standing {
	_, labelled := have.GetLabels()[PausedLabel]
	_, emulated := have.GetPushConfig().GetAttributes()[PausedLabel]
	marked, pushes := labelled || emulated, have.GetPushConfig().GetPushEndpoint() != ""
	switch {
	case have == nil:
		return pause.Missing
	case marked && pushes:
		return pause.Undone
	case marked:
		return pause.Paused
	case pushes:
		return pause.Pushing
	default:
		return pause.Unmarked
	}
}

// Pause implements pause.Switch.
func (s *Switch) Pause(ctx context.Context, q catalog.Queue, at time.Time) error {
	return s.change(ctx, q, &pb.PushConfig{}, at.UTC().Format(pausedFormat))
}

// Resume implements pause.Switch. It sets the target's endpoint.
func (s *Switch) Resume(ctx context.Context, q catalog.Queue) error {
	if s.target.PushBaseURL == "" && s.target.Pools[q.Pool].URL == "" {
		return fmt.Errorf("pubsub: resume %s: PUSH_BASE_URL is not set", s.target.id(q.PushSubscription()))
	}
	return s.change(ctx, q, s.target.pushConfig(q.Pool, q.PushPath()), "")
}

// change sets endpoint and mark in one request, so that nobody sees one without the other.
func (s *Switch) change(ctx context.Context, q catalog.Queue, to *pb.PushConfig, mark string) error {
	have, err := s.look(ctx, q)
	if err != nil {
		return err
	}
	if have == nil {
		return fmt.Errorf("pubsub: there is no subscription %s", s.target.id(q.PushSubscription()))
	}
	fields := []string{"push_config", "labels"}
	have.PushConfig = to
	delete(have.Labels, PausedLabel)
	switch {
	case s.target.Emulator:
		fields = fields[:1]
		if mark != "" {
			to.Attributes = map[string]string{PausedLabel: mark}
		}
	case mark != "":
		labels := map[string]string{PausedLabel: mark}
		maps.Copy(labels, have.Labels)
		have.Labels = labels
	}
	ctx, cancel := context.WithTimeout(ctx, switchTimeout)
	defer cancel()
	if err := s.update(ctx, have, fields...); err != nil {
		return fmt.Errorf("pubsub: change subscription %s: %s", s.target.id(q.PushSubscription()), status.Code(err))
	}
	return nil
}

// Examine compares the queues' resources, without services' grants or resources outside the catalog. Without
// the workers' address it compares only the path of the pushes.
func (s *Switch) Examine(
	ctx context.Context, c *catalog.Catalog, recorded map[string]pause.Pause,
) (Examination, error) {
	return s.examine(ctx, c, Look{Paused: recorded}, false)
}
