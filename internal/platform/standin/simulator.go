package standin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"billhook/internal/contract"
	"billhook/internal/platform/backlog"
)

// ErrClosed: the simulator has been closed.
var ErrClosed = errors.New("standin: closed")

// SimulatorConfig configures a Simulator.
type SimulatorConfig struct {
	ProjectID string
	// Topics are further topics, beside those of the subscriptions.
	Topics        []string
	Subscriptions []Subscription
	// Token makes the bearer token of a push; nil: no token.
	Token func() (string, error)
	// Transport sends the pushes; nil: the simulator makes its own.
	Transport http.RoundTripper
}

// Message is a message in a subscription.
type Message struct {
	contract.Message
	// ID is a number that is unique even across restarts.
	ID          string
	PublishTime time.Time
	Failures    int `json:",omitempty"` // nacks and missed deadlines
}

// Simulator is Pub/Sub's subscription side. It pushes as Google documents, and is safe for concurrent use.
type Simulator struct {
	config SimulatorConfig
	client *http.Client
	ctx    context.Context // parent of every push
	cancel context.CancelFunc
	pushes sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	baseURL string
	nextID  int64
	topics  map[string][]*subscription
	subs    map[string]*subscription
	// log is the file of changes; nil: none. logFailed is the error after which it is not written any more.
	log       *os.File
	logFailed error
}

type subscription struct {
	Subscription
	lanes   map[string]*lane // by ordering key
	ready   []*lane          // lanes whose first message may be pushed
	waiting map[*Message]bool

	// paused: it keeps published messages and does not push them.
	paused bool

	// outstanding counts the messages that are being pushed; window is its maximum.
	outstanding, window int
	// pushBackoff is the current pause after a failure, which ends at pausedUntil.
	pushBackoff time.Duration
	pausedUntil time.Time
	// pauses counts the push backoffs, so that a push sent before the current pause does not lengthen it.
	pauses int
}

// lane has the messages of one ordering key, delivered one by one, or a single message without a key.
type lane struct {
	key   string
	queue []*Message // its first message is being pushed, waits for a retry, or is ready
}

// NewSimulator returns a running simulator. It does not check the subscriptions, as the catalog does.
func NewSimulator(config SimulatorConfig) *Simulator {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, maxWindow // one for each push of a full window
	transport.DisableCompression = true
	s := &Simulator{
		config: config, client: &http.Client{Transport: cmp.Or[http.RoundTripper](config.Transport, transport)},
		nextID: time.Now().UnixMicro(), topics: map[string][]*subscription{}, subs: map[string]*subscription{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, topic := range config.Topics {
		s.topics[topic] = nil
	}
	for _, of := range config.Subscriptions {
		sub := &subscription{Subscription: of, lanes: map[string]*lane{}, window: startWindow}
		sub.waiting = map[*Message]bool{}
		s.subs[of.ID], s.topics[of.Topic] = sub, append(s.topics[of.Topic], sub)
	}
	return s
}

// Publish adds the message to each subscription of the topic whose filter matches, and returns its id. The
// error is contract.ErrTopicMissing, ErrClosed or from Message.Check; after an error no message was added.
func (s *Simulator) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	m.Data, m.Attributes = slices.Clone(m.Data), maps.Clone(m.Attributes) // the caller may reuse its own
	ids, err := s.publish(ctx, topic, []contract.Message{m})
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

func (s *Simulator) publish(
	ctx context.Context, topic string, messages []contract.Message,
) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, m := range messages {
		if err := m.Check(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if _, ok := s.topics[topic]; !ok {
		return nil, fmt.Errorf("%w: %s", contract.ErrTopicMissing, topic)
	}
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = s.take(topic, m) //nolint:contextcheck // what is accepted outlives its publisher's ctx
	}
	if s.logFailed != nil {
		return nil, fmt.Errorf("standin: write: %w", s.logFailed)
	}
	return ids, nil
}

func (s *Simulator) take(topic string, m contract.Message) string {
	s.nextID++
	message := Message{ID: strconv.FormatInt(s.nextID, 10), PublishTime: time.Now().UTC(), Message: m}
	for _, sub := range s.topics[topic] {
		if !sub.Filter.Match(message.Attributes) {
			continue
		}
		own := message
		s.note(logged{Subscription: sub.ID, Got: &own})
		s.enqueue(sub, &own)
	}
	return message.ID
}

func (s *Simulator) enqueue(sub *subscription, d *Message) {
	sub.waiting[d] = true
	if sub.Path == "" {
		return // held messages are not pushed
	}
	l := &lane{}
	if sub.Ordered && d.OrderingKey != "" {
		if l = sub.lanes[d.OrderingKey]; l == nil {
			l = &lane{key: d.OrderingKey}
			sub.lanes[d.OrderingKey] = l
		}
	}
	if l.queue = append(l.queue, d); len(l.queue) == 1 {
		sub.ready = append(sub.ready, l)
	}
	s.dispatch(sub)
}

func (s *Simulator) dispatch(sub *subscription) {
	now := time.Now()
	for !s.closed && !sub.paused && s.baseURL != "" && len(sub.ready) > 0 && sub.outstanding < sub.window &&
		!now.Before(sub.pausedUntil) {
		l := sub.ready[0]
		sub.ready = sub.ready[1:]
		first := l.queue[0]
		if sub.Retention > 0 && now.Sub(first.PublishTime) >= sub.Retention {
			s.remove(sub, l)
			continue
		}
		sub.outstanding++
		s.pushes.Add(1)
		go s.push(sub, l, first, s.baseURL+sub.Path, sub.pauses)
	}
}

func (s *Simulator) push(sub *subscription, l *lane, d *Message, url string, pauses int) {
	defer s.pushes.Done()
	acked := s.send(sub, d, url)

	s.mu.Lock()
	defer s.mu.Unlock()
	sub.outstanding--
	if s.closed {
		return
	}
	if acked {
		s.ack(sub, l)
	} else {
		s.nack(sub, l, pauses)
	}
	s.dispatch(sub)
}

// forward publishes a lane's first message as a dead letter.
func (s *Simulator) forward(sub *subscription, l *lane) {
	d := l.queue[0]
	message := d.Message
	message.Attributes = map[string]string{}
	maps.Copy(message.Attributes, d.Attributes)
	maps.Copy(message.Attributes, map[string]string{
		"CloudPubSubDeadLetterSourceDeliveryCount":       strconv.Itoa(d.Failures),
		"CloudPubSubDeadLetterSourceSubscription":        sub.ID,
		"CloudPubSubDeadLetterSourceSubscriptionProject": s.config.ProjectID,
		"CloudPubSubDeadLetterSourceTopicPublishTime":    d.PublishTime.Format("2006-01-02T15:04:05.000-07:00"),
	})
	// publish before the removal, so that a killed process duplicates the message but does not lose it
	s.take(sub.DeadLetterTopic, message)
	s.remove(sub, l)
}

// remove removes a lane's first message and makes the next one ready.
func (s *Simulator) remove(sub *subscription, l *lane) {
	s.note(logged{Subscription: sub.ID, Done: l.queue[0].ID})
	delete(sub.waiting, l.queue[0])
	l.queue = l.queue[1:]
	if len(l.queue) > 0 {
		sub.ready = append(sub.ready, l)
	} else {
		delete(sub.lanes, l.key)
	}
}

// PushTo sets the worker's URL. The first call starts the pushes; until then messages are accepted and kept.
func (s *Simulator) PushTo(baseURL string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.baseURL = strings.TrimSuffix(baseURL, "/")
	for _, sub := range s.subs {
		s.dispatch(sub)
	}
}

// Held returns the messages of a subscription without a push endpoint, oldest first.
func (s *Simulator) Held(subscription string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subs[subscription]
	if sub == nil || sub.Path != "" {
		return nil
	}
	var held []Message
	for _, d := range sub.inOrder() {
		if sub.Retention > 0 && time.Since(d.PublishTime) >= sub.Retention {
			delete(sub.waiting, d)
			continue
		}
		held = append(held, *d)
	}
	return held
}

// inOrder returns the unacknowledged messages by id, which is the order of publishing.
func (sub *subscription) inOrder() []*Message {
	return slices.SortedFunc(maps.Keys(sub.waiting), func(a, b *Message) int {
		return cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID))
	})
}

// Close cancels running pushes and waits for the simulator's goroutines. Unacknowledged messages stay in the
// file of Load; without a file they are lost.
func (s *Simulator) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.pushes.Wait()
	s.client.CloseIdleConnections()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		return nil
	}
	err := errors.Join(s.rewrite(s.log.Name()), s.log.Close())
	if s.log = nil; err != nil {
		return fmt.Errorf("standin: save: %w", err)
	}
	return nil
}

// Backlogs returns each subscription's unacknowledged messages, including those that are being pushed. It
// never fails.
func (s *Simulator) Backlogs(context.Context) (held map[string]backlog.Held, at time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held = make(map[string]backlog.Held, len(s.subs))
	for id, sub := range s.subs {
		one := backlog.Held{Messages: int64(len(sub.waiting))}
		for d := range sub.waiting {
			if one.Oldest.IsZero() || d.PublishTime.Before(one.Oldest) {
				one.Oldest = d.PublishTime
			}
		}
		held[id] = one
	}
	return held, time.Now(), nil
}
