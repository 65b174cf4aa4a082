package importer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"billhook/catalog"
)

// RabbitMQ are queues over AMQP: what is accepted is acknowledged, and any other comes back to its place. A
// message without an id is put back with a message_id first, so that its event id is the same in every run.
type RabbitMQ struct {
	connection *amqp.Connection
	// channel is transactional: acknowledgements and publications count when they are committed.
	channel *amqp.Channel
	catalog *catalog.Catalog
	queues  []list
	newID   func() string
	now     func() time.Time
	at      int
}

var _ Source = (*RabbitMQ)(nil)

// Broker says how the messages of a broker are taken.
type Broker struct {
	// Address is an amqp:// or amqps:// URL.
	Address string
	Names   []Name
	Catalog *catalog.Catalog
	// Failed takes the queues' dead letters too.
	Failed bool
	NewID  func() string
	Now    func() time.Time
}

// NewRabbitMQ connects to a broker. The queues that it does not have count as empty.
func NewRabbitMQ(b Broker) (*RabbitMQ, error) {
	if _, err := amqp.ParseURI(b.Address); err != nil {
		return nil, errors.New("rabbitmq: the address is no amqp:// URL") // the error may repeat a password
	}
	connection, err := amqp.Dial(b.Address)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	r := &RabbitMQ{connection: connection, catalog: b.Catalog, newID: b.NewID, now: b.Now}
	if r.channel, err = connection.Channel(); err == nil {
		err = r.channel.Tx()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rabbitmq: %w", err), connection.Close())
	}
	for _, name := range b.Names {
		q, _ := b.Catalog.Queue(name.Queue)
		r.queues = append(r.queues, list{Name: name, parts: []Part{Waiting}})
		for _, dead := range q.DeadLetter.Aliases {
			l := list{Name: Name{name.Queue, dead, name.Left}, parts: []Part{Failed}}
			if !b.Failed {
				l.Left = cmp.Or(l.Left, failedStay)
			}
			r.queues = append(r.queues, l)
		}
	}
	return r, nil
}

// count returns how many messages of a queue are ready; 0 where there is no such queue.
func (r *RabbitMQ) count(name string) (int64, error) {
	channel, err := r.connection.Channel() // the broker closes it where there is no such queue
	if err != nil {
		return 0, fmt.Errorf("rabbitmq: %w", err)
	}
	defer func() { _ = channel.Close() }()
	queue, err := channel.QueueDeclarePassive(name, false, false, false, false, nil)
	if refused, ok := errors.AsType[*amqp.Error](err); ok && refused.Code == amqp.NotFound {
		return 0, nil
	}
	return int64(queue.Messages), at(name, err)
}

// Look delivers a sample and puts it back at once; the broker marks it as delivered before.
func (r *RabbitMQ) Look(_ context.Context, sample int) (places []Place, messages []Message, err error) {
	for _, l := range r.queues {
		place := Place{Queue: l.Queue, Name: l.Source, Part: l.parts[0], Left: l.Left}
		if place.Count, err = r.count(l.Source); err != nil {
			return nil, nil, err
		}
		if place.Count == 0 {
			continue
		}
		if l.Left == "" {
			some, err := r.sample(l, sample-len(messages))
			if err != nil {
				return nil, nil, err
			}
			messages = append(messages, some...)
		}
		places = append(places, place)
	}
	return places, messages, nil
}

func (r *RabbitMQ) sample(l list, limit int) (messages []Message, err error) {
	channel, err := r.connection.Channel()
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	defer func() { _ = channel.Close() }() // puts back what was delivered on it
	for range limit {
		d, ok, err := channel.Get(l.Source, false)
		switch {
		case err != nil:
			return nil, at(l.Source, err)
		case !ok:
			return messages, nil
		}
		messages = append(messages, r.message(l, d))
	}
	return messages, nil
}

// Take gets messages one by one. It needs no consumer, whose deliveries would have no end.
func (r *RabbitMQ) Take(ctx context.Context, limit int) (taken []Message, err error) {
	for ; r.at < len(r.queues); r.at++ {
		l := r.queues[r.at]
		if count, err := r.count(l.Source); err != nil {
			return nil, err
		} else if count == 0 || l.Left != "" {
			continue
		}
		marked := 0
		for len(taken) < limit && ctx.Err() == nil {
			d, ok, err := r.channel.Get(l.Source, false)
			if err == nil && !ok {
				break
			}
			if err == nil && identified(d) {
				taken = append(taken, r.message(l, d))
				continue
			}
			if err = at(l.Source, err); err == nil {
				err = r.mark(ctx, l.Source, d)
			}
			if marked++; err == nil && marked%batchSize == 0 {
				err = r.commit(l.Source)
			}
			if err != nil {
				return nil, err
			}
		}
		if marked > 0 {
			if err := r.commit(l.Source); err != nil {
				return nil, err
			}
		}
		switch {
		case len(taken) > 0:
			return taken, nil
		case marked > 0 && ctx.Err() == nil:
			r.at-- // what was marked has come to the end of the queue
		}
	}
	return nil, nil
}

func (r *RabbitMQ) commit(name string) error { return at(name, r.channel.TxCommit()) }

// at is an error with the queue that it is about.
func at(queue string, err error) error {
	if err != nil {
		return fmt.Errorf("rabbitmq: %s: %w", queue, err)
	}
	return nil
}

func identified(d amqp.Delivery) bool {
	var body struct {
		ID string `json:"id"`
	}
	return d.MessageId != "" || (json.Unmarshal(d.Body, &body) == nil && body.ID != "")
}

// mark puts a message to the end of its queue under a message_id, with the next commit.
func (r *RabbitMQ) mark(ctx context.Context, queue string, d amqp.Delivery) error {
	err := r.channel.PublishWithContext(ctx, "", queue, true, false, amqp.Publishing{
		MessageId: r.newID(), Type: typeOf(queue, d), Body: d.Body, Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		DeliveryMode: d.DeliveryMode, Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		Timestamp: d.Timestamp, AppId: d.AppId,
	})
	if err == nil {
		err = d.Ack(false)
	}
	return at(queue, err)
}

// typeOf is the type beside the body; what was published by the queue's name has no routing key.
func typeOf(queue string, d amqp.Delivery) string {
	if d.RoutingKey == queue {
		return d.Type
	}
	return cmp.Or(d.Type, d.RoutingKey)
}

func (r *RabbitMQ) message(l list, d amqp.Delivery) Message {
	m := Message{
		Source: l.Source, Queue: l.Queue, Part: l.parts[0], Body: d.Body, ID: d.MessageId, Type: typeOf(l.Source, d),
		Created: d.Timestamp, Attempts: deaths(l.Source, d.Headers), tag: d.DeliveryTag,
	}
	delay, ok := integer(d.Headers["x-delay"])
	if !ok {
		return m
	}
	if delay > maxDelay || delay < -maxDelay {
		m.Odd = "its x-delay is longer than the delayed message exchange takes"
		return m
	}
	// The delayed message exchange turns the sign of the delay when it is over.
	wait := time.Duration(max(delay, -delay)) * time.Millisecond
	q, _ := r.catalog.Queue(l.Queue)
	if i := slices.Index(q.Backoff.Schedule, wait); i > 0 {
		m.Attempts = max(m.Attempts, i)
	}
	if delay > 0 {
		from := d.Timestamp
		if from.IsZero() {
			from = r.now()
		}
		m.Due = from.Add(wait)
	}
	return m
}

const maxDelay = 1<<32 - 1

// deaths is how often a message was rejected in the queue, or has expired where it waited.
func deaths(queue string, headers amqp.Table) int {
	entries, _ := headers["x-death"].([]any)
	times := map[string]int{}
	for _, entry := range entries {
		death, _ := entry.(amqp.Table)
		count, _ := integer(death["count"])
		in, _ := death["queue"].(string)
		times[in] += int(min(count, 1000))
	}
	if times[queue] > 0 {
		return times[queue]
	}
	return slices.Max(append(slices.Collect(maps.Values(times)), 0))
}

func integer(value any) (int64, bool) {
	if v := reflect.ValueOf(value); v.IsValid() && v.CanInt() {
		return v.Int(), true
	}
	return 0, false
}

// Settle acknowledges accepted messages. Refused ones come back to their place at the end of the run.
func (r *RabbitMQ) Settle(_ context.Context, accepted, _ []Message) error {
	for _, m := range accepted {
		if err := at(m.Source, r.channel.Ack(m.tag, false)); err != nil {
			return err
		}
	}
	return r.commit("acknowledge")
}

// Release ends the connection.
func (r *RabbitMQ) Release(context.Context) error { return r.connection.Close() }
