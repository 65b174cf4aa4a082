package pubsub

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/platform/finding"
)

// label is what Terraform names the installation by, on what it makes.
const label = "app"

// listed is how many resources one answer has.
const listed = 1000

// known are the full names of what the catalog has, whether its queues are enabled or not.
type known struct {
	// topics have the queue that they are of, or their own id. Others may read outbound topics.
	topics, outbound map[string]string
	subscriptions    map[string]bool
}

func (t Target) known(c *catalog.Catalog) known {
	k := known{topics: map[string]string{}, outbound: map[string]string{}, subscriptions: map[string]bool{}}
	for _, topic := range c.OutboundTopics {
		k.outbound[t.topicName(topic.ID)] = topic.ID
	}
	for _, q := range c.Queues {
		k.topics[t.topicName(q.Topic())] = q.ID
		k.subscriptions[t.subscriptionName(q.PushSubscription())] = true
		if !q.DeadLetter.Drop {
			k.topics[t.topicName(q.DeadLetter.Topic)] = q.ID
			k.subscriptions[t.subscriptionName(q.DeadLetterHold())] = true
			k.subscriptions[t.subscriptionName(q.DeadLetterPush())] = true
		}
	}
	for _, topic := range c.Topics {
		k.topics[t.topicName(topic.ID)] = topic.ID
	}
	return k
}

// strays finds the topics and subscriptions of this installation that the catalog does not have, and others'
// subscriptions on its topics. What else is in the project it leaves alone.
func (a admin) strays(ctx context.Context, c *catalog.Catalog, look Look) ([]finding.Finding, []finding.Unread, error) {
	s := &search{examiner: examiner{admin: a, look: look}, known: a.target.known(c), seen: map[string]bool{}}
	err := cmp.Or(s.topics(ctx), s.subscriptions(ctx), s.readers(ctx))
	return s.findings, s.unread, err
}

// search looks for what the catalog does not have.
type search struct {
	examiner
	known known
	// there are the catalog's topics that there are; nil: they could not be listed.
	there []string
	// seen are the subscriptions that were looked at.
	seen map[string]bool
}

func (s *search) topics(ctx context.Context) error {
	s.there = []string{}
	for topic, err := range s.client.TopicAdminClient.ListTopics(ctx, &pubsubpb.ListTopicsRequest{Project: "projects/" + s.target.ProjectID, PageSize: listed}).All() {
		if err != nil {
			s.there = nil
			return s.denied(err, "topics that the catalog does not have", listsTopics)
		}
		_, outbound := s.known.outbound[topic.Name]
		_, ours := s.known.topics[topic.Name]
		switch {
		case ours:
			s.there = append(s.there, topic.Name)
		case !outbound && s.made(topic.Name, topic.Labels):
			s.find("topic", idOf(topic.Name), StrayTopic, "", "")
		}
	}
	return nil
}

func (s *search) subscriptions(ctx context.Context) error {
	for have, err := range s.client.SubscriptionAdminClient.ListSubscriptions(ctx, &pubsubpb.ListSubscriptionsRequest{Project: "projects/" + s.target.ProjectID, PageSize: listed}).All() {
		if err != nil {
			return s.denied(err, "subscriptions that the catalog does not have", listsSubscriptions)
		}
		s.seen[have.Name] = true
		if s.known.subscriptions[have.Name] {
			continue
		}
		of, ours := s.known.topics[have.Topic]
		s.queue = of
		switch endpoint := have.GetPushConfig().GetPushEndpoint(); {
		case s.made(have.Name, have.Labels) || s.pushedHere(endpoint):
			s.find("subscription", idOf(have.Name), Stray, "of topic "+idOf(have.Topic)+", "+cmp.Or(endpoint, "without an endpoint"), "")
		case ours && !slices.Contains(s.look.Known, idOf(have.Name)):
			s.find("subscription", idOf(have.Name), Foreign, "of topic "+idOf(have.Topic)+", "+cmp.Or(endpoint, "without an endpoint"), "")
		}
	}
	return nil
}

// readers asks each topic for its subscriptions: those of other projects are in no list of this one's.
func (s *search) readers(ctx context.Context) error {
	topics := s.there
	if topics == nil {
		topics = slices.Sorted(maps.Keys(s.known.topics))
	}
	found, failed := make([][]string, len(topics)), make([]error, len(topics))
	var group errgroup.Group
	group.SetLimit(examinedAtOnce)
	for i, topic := range topics {
		group.Go(func() error {
			for name, err := range s.client.TopicAdminClient.ListTopicSubscriptions(ctx, &pubsubpb.ListTopicSubscriptionsRequest{Topic: topic, PageSize: listed}).All() {
				if err != nil {
					failed[i] = err
					return nil
				}
				found[i] = append(found[i], name)
			}
			return nil
		})
	}
	_ = group.Wait() // each has its error
	for i, topic := range topics {
		s.queue = s.known.topics[topic]
		if err := failed[i]; err != nil && status.Code(err) != codes.NotFound {
			if err := s.denied(err, "the subscriptions of topic "+idOf(topic), listsReaders); err != nil {
				return err
			}
		}
		for _, name := range found[i] {
			if !s.seen[name] && !s.known.subscriptions[name] && !slices.Contains(s.look.Known, idOf(name)) {
				s.find("subscription", idOf(name), Foreign, "of topic "+idOf(topic)+": "+name, "")
			}
		}
	}
	return nil
}

// denied notes what the account may not list; any other error is returned.
func (s *search) denied(err error, what, permission string) error {
	if s.hidden(err, what, permission) {
		return nil
	}
	return fmt.Errorf("list %s: %w", what, err)
}

// made reports whether this installation made a resource: its label says so, or, without a label, its name does.
func (s *search) made(name string, labels map[string]string) bool {
	if of := labels[label]; of != "" && s.look.Label != "" {
		return of == s.look.Label
	}
	return s.target.Installation != "" && strings.HasPrefix(idOf(name), s.target.prefix())
}

// pushedHere reports whether an endpoint is at one of this installation's workers.
func (s *search) pushedHere(endpoint string) bool {
	here := func(base string) bool { return base != "" && strings.HasPrefix(endpoint, base+"/") }
	return here(s.target.PushBaseURL) || slices.ContainsFunc(slices.Collect(maps.Values(s.target.Pools)), func(p Pool) bool { return here(p.URL) })
}
