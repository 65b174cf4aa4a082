// Package pubsub puts messages on Google Cloud Pub/Sub and creates what the catalog
// declares there. It owns the client library's settings and its pitfalls: paused
// ordering keys, batches that only wait, unbounded buffers. It refuses to answer
// before the broker has confirmed.
package pubsub

import (
	"context"
	"fmt"
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

// Bounds of one topic's publisher. What is over them waits until its context ends.
const (
	maxOutstandingMessages = 1000
	maxOutstandingBytes    = 64 << 20
	// publishTimeout ends the library's own retries. It is below the deadline of
	// whoever waits, so that the outcome is known before the wait is over.
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

	mu     sync.Mutex
	topics map[string]*pubsub.Publisher
	late   sync.WaitGroup
}

// NewPublisher returns a publisher to the project's topics. Without options the
// client library decides where: PUBSUB_EMULATOR_HOST, else Google Cloud.
func NewPublisher(ctx context.Context, projectID string, options ...option.ClientOption) (*Publisher, error) {
	client, err := pubsub.NewClient(ctx, projectID, options...)
	if err != nil {
		return nil, fmt.Errorf("pubsub: client: %w", err)
	}
	return &Publisher{client: client, topics: map[string]*pubsub.Publisher{}}, nil
}

// Publish puts the message on the topic and returns its id once the broker has
// confirmed it. A message over Pub/Sub's limits gives an error wrapping
// contract.ErrLimit. After any other error the message may or may not be on the
// topic, and its ordering key is usable again.
func (p *Publisher) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	if err := m.Check(); err != nil {
		return "", err
	}
	to := p.topic(topic)
	result := to.Publish(ctx, &pubsub.Message{Data: m.Data, Attributes: m.Attributes, OrderingKey: m.OrderingKey})
	select {
	case <-result.Ready():
		return p.settle(ctx, to, m.OrderingKey, result)
	case <-ctx.Done():
		// The library goes on trying; the key it may pause is resumed when it gives up.
		p.late.Go(func() {
			<-result.Ready()
			_, _ = p.settle(context.WithoutCancel(ctx), to, m.OrderingKey, result)
		})
		return "", fmt.Errorf("pubsub: publish to %s: %w", topic, ctx.Err())
	}
}

// settle reads a result that is ready, and resumes the key of one that failed.
func (p *Publisher) settle(ctx context.Context, to *pubsub.Publisher, key string, result *pubsub.PublishResult) (string, error) {
	id, err := result.Get(ctx)
	if err == nil {
		return id, nil
	}
	if key != "" {
		to.ResumePublish(key)
	}
	if status.Code(err) == codes.InvalidArgument {
		return "", fmt.Errorf("pubsub: publish to %s: %w: refused as invalid", to.ID(), contract.ErrLimit)
	}
	return "", fmt.Errorf("pubsub: publish to %s: %w", to.ID(), err)
}

func (p *Publisher) topic(id string) *pubsub.Publisher {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, ok := p.topics[id]
	if !ok {
		to = p.client.Publisher(id)
		to.EnableMessageOrdering = true
		// With ordering keys the client cannot batch across keys: waiting for a batch
		// only costs (10 ms by default).
		to.PublishSettings.CountThreshold = 1
		to.PublishSettings.Timeout = publishTimeout
		to.PublishSettings.FlowControlSettings = pubsub.FlowControlSettings{
			MaxOutstandingMessages: maxOutstandingMessages,
			MaxOutstandingBytes:    maxOutstandingBytes,
			LimitExceededBehavior:  pubsub.FlowControlBlock,
		}
		p.topics[id] = to
	}
	return to
}

// Close waits for what is being published and closes the connection.
func (p *Publisher) Close() error {
	p.mu.Lock()
	for _, to := range p.topics {
		to.Stop()
	}
	p.mu.Unlock()
	p.late.Wait()
	if err := p.client.Close(); err != nil {
		return fmt.Errorf("pubsub: close: %w", err)
	}
	return nil
}
