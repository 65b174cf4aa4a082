// Package pubsub publishes on Google Cloud Pub/Sub and creates what the catalog declares there. It owns the
// client library's settings and its pitfalls: paused ordering keys, batches that only wait, unbounded
// buffers. A publish returns only after the broker's confirmation.
package pubsub

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"billhook/internal/contract"
)

// Bounds of one topic's publisher. A message above them waits until its context ends.
const (
	maxOutstandingMessages = 1000
	maxOutstandingBytes    = 64 << 20
	// publishTimeout is below the caller's deadline, so that the caller learns the outcome.
	publishTimeout = 4 * time.Second
)

// EmulatorOptions make a client talk to an emulator at host:port, without credentials.
func EmulatorOptions(addr string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint(addr),
		option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
	}
}

// Publisher publishes messages. It is safe for concurrent use.
type Publisher struct {
	client *pubsub.Client
	names  Names

	mu     sync.Mutex
	topics map[string]*pubsub.Publisher
	closed bool
}

// NewPublisher returns a publisher to the installation's topics, by default of PUBSUB_EMULATOR_HOST.
func NewPublisher(ctx context.Context, names Names, options ...option.ClientOption) (*Publisher, error) {
	// Nothing collects the library's traces and its metrics of each request.
	options = append([]option.ClientOption{option.WithTelemetryDisabled()}, options...)
	client, err := pubsub.NewClient(ctx, names.ProjectID, options...)
	if err != nil {
		return nil, fmt.Errorf("pubsub: client: %w", err)
	}
	return &Publisher{client: client, names: names, topics: map[string]*pubsub.Publisher{}}, nil
}

// Publish publishes the message on the topic of the catalog and returns its id once the broker has confirmed
// it. Until ctx ends it waits for the confirmation, for room and for earlier messages of the key. A message
// above Pub/Sub's limits is an error wrapping contract.ErrLimit. After any other error, which never names the
// ordering key, the message may be on the topic; see contract.PublishCause.
func (p *Publisher) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	if err := m.Check(); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		// The library would pause the key first, and fail the key's messages in flight.
		return "", fmt.Errorf("pubsub: publish to %s: %w", topic, err)
	}
	to, err := p.begin(p.names.id(topic))
	if err != nil {
		return "", fmt.Errorf("pubsub: publish to %s: %w", topic, err)
	}
	message := &pubsub.Message{Data: m.Data, Attributes: m.Attributes, OrderingKey: m.OrderingKey}
	result := to.Publish(ctx, message)
	full := ctx.Err() // the library's Publish waits only for room
	if full == nil {
		select {
		case <-result.Ready():
		case <-ctx.Done():
		}
	}
	select {
	case <-result.Ready():
		id, err := settle(ctx, to, m.OrderingKey, result)
		if err != nil && full != nil {
			return "", fmt.Errorf("pubsub: publish to %s: %w: %w", topic, contract.ErrPublisherFull, full)
		}
		return id, err
	default:
		// The library keeps trying. When it gives up, it may pause the key, which is then resumed here.
		go func() {
			<-result.Ready()
			_, _ = settle(context.WithoutCancel(ctx), to, m.OrderingKey, result)
		}()
		return "", fmt.Errorf("pubsub: publish to %s: %w", topic, ctx.Err())
	}
}

// causes maps the broker's own codes to their meaning for an operator.
var causes = map[codes.Code]error{
	codes.NotFound: contract.ErrTopicMissing, codes.ResourceExhausted: contract.ErrBrokerQuota,
	codes.PermissionDenied: contract.ErrPublishDenied, codes.Unauthenticated: contract.ErrPublishDenied,
	codes.Unavailable: contract.ErrBrokerDown, codes.DeadlineExceeded: contract.ErrBrokerDown,
	codes.Internal: contract.ErrBrokerDown,
}

func settle(ctx context.Context, to *pubsub.Publisher, key string, r *pubsub.PublishResult) (string, error) {
	id, err := r.Get(ctx)
	if err == nil {
		return id, nil
	}
	if key != "" {
		to.ResumePublish(key)
	}
	var paused pubsub.ErrPublishingPaused
	switch {
	case errors.As(err, &paused):
		// The library's own text names the ordering key, which is a customer's id.
		err = contract.ErrKeyHeldUp
	case errors.Is(err, pubsub.ErrOversizedMessage), status.Code(err) == codes.InvalidArgument:
		// The library also counts the request around a message. The broker's text may quote the message.
		err = fmt.Errorf("%w: refused as too large or invalid", contract.ErrLimit)
	case causes[status.Code(err)] != nil:
		err = fmt.Errorf("%w: %w", causes[status.Code(err)], err)
	}
	return "", fmt.Errorf("pubsub: publish to %s: %w", to.ID(), err)
}

func (p *Publisher) begin(id string) (*pubsub.Publisher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("the publisher is closed")
	}
	to, ok := p.topics[id]
	if !ok {
		to = p.client.Publisher(id)
		to.EnableMessageOrdering = true
		// A batch cannot have several ordering keys, so waiting for one only costs time.
		to.PublishSettings.CountThreshold = 1
		to.PublishSettings.Timeout = publishTimeout
		to.PublishSettings.FlowControlSettings = pubsub.FlowControlSettings{
			MaxOutstandingMessages: maxOutstandingMessages,
			MaxOutstandingBytes:    maxOutstandingBytes,
			LimitExceededBehavior:  pubsub.FlowControlBlock,
		}
		p.topics[id] = to
	}
	return to, nil
}

// Close waits for running publishes and closes the connection. It may be called again.
func (p *Publisher) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	for _, to := range p.topics { // the map no longer changes
		to.Stop() // it waits
	}
	if err := p.client.Close(); err != nil {
		return fmt.Errorf("pubsub: close: %w", err)
	}
	return nil
}

// Names are the names of topics and subscriptions in a project. The rest of the program knows only the
// catalog's ids, to which this package adds the installation's name.
type Names struct {
	ProjectID string
	// Installation, if any, is a prefix of the ids: topic orders of installation shop is shop-orders.
	Installation string
}

// installationName has the form that Terraform accepts; the name is also a prefix of accounts.
var installationName = regexp.MustCompile(`^[a-z][a-z0-9-]{1,10}[a-z0-9]$`)

// Check refuses an installation's name that cannot be a prefix of ids.
func (n Names) Check() error {
	switch {
	case n.Installation == "":
		return nil
	case !installationName.MatchString(n.Installation):
		return errors.New("INSTALLATION: must be 3 to 12 of a-z, 0-9 and -, begin with a letter and not end with -")
	case strings.HasPrefix(n.Installation, "goog"):
		return errors.New("INSTALLATION: must not begin with goog, which Pub/Sub keeps for itself")
	default:
		return nil
	}
}

func (n Names) id(inCatalog string) string { return n.prefix() + inCatalog }

func (n Names) prefix() string {
	if n.Installation == "" {
		return ""
	}
	return n.Installation + "-"
}

func (n Names) topicName(id string) string { return "projects/" + n.ProjectID + "/topics/" + n.id(id) }

func (n Names) subscriptionName(id string) string {
	return "projects/" + n.ProjectID + "/subscriptions/" + n.id(id)
}
