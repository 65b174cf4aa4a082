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

// RabbitMQ has queues over AMQP. Accepted messages are acknowledged, and the others return to their place. A
// message without an id is first put back with a message_id, so that its event id is the same in every run.
type RabbitMQ struct {
	connection *amqp.Connection
	channel    *amqp.Channel // transactional
	catalog    *catalog.Catalog
	queues     []brokerQueue
	newID      func() string
	at         int
}

// brokerQueue is a queue of the broker. All its messages are in one part.
type brokerQueue struct {
	Name
	part Part
}

// NewRabbitMQ connects to a broker by its amqp:// or amqps:// URL. Dead letters are taken only with failed.
func NewRabbitMQ(
	address string, names []Name, c *catalog.Catalog, failed bool, newID func() string,
) (*RabbitMQ, error) {
	if _, err := amqp.ParseURI(address); err != nil {
		return nil, errors.New("rabbitmq: the address is no amqp:// URL") // the error may repeat a password
	}
	connection, err := amqp.Dial(address)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	r := &RabbitMQ{connection: connection, catalog: c, newID: newID}
	if r.channel, err = connection.Channel(); err == nil {
		err = r.channel.Tx()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rabbitmq: %w", err), connection.Close())
	}
	for _, name := range names {
		q, _ := c.Queue(name.Queue)
		r.queues = append(r.queues, brokerQueue{name, Waiting})
		if !failed {
			name.Left = cmp.Or(name.Left, failedStay)
		}
		for _, name.Source = range q.DeadLetter.Aliases {
			r.queues = append(r.queues, brokerQueue{name, Failed})
		}
	}
	return r, nil
}

// Look gets a sample and puts it back at once; the broker marks it as redelivered.
func (r *RabbitMQ) Look(_ context.Context, sample int) (places []Place, messages []Message, err error) {
	for _, q := range r.queues {
		count, some, err := r.show(q, sample-len(messages))
		if err != nil {
			return nil, nil, err
		}
		if messages = append(messages, some...); count > 0 {
			places = append(places, Place{Queue: q.Queue, Name: q.Source, Part: q.part, Count: count, Left: q.Left})
		}
	}
	return places, messages, nil
}

// show counts a queue's ready messages (0 if it is missing), and gets up to sample that would be moved.
func (r *RabbitMQ) show(q brokerQueue, sample int) (count int64, messages []Message, err error) {
	channel, err := r.connection.Channel() // the broker closes it if the queue is missing
	if err != nil {
		return 0, nil, fmt.Errorf("rabbitmq: %w", err)
	}
	defer func() { _ = channel.Close() }() // it puts back the sample
	queue, err := channel.QueueDeclarePassive(q.Source, false, false, false, false, nil)
	if refused, ok := errors.AsType[*amqp.Error](err); ok && refused.Code == amqp.NotFound {
		return 0, nil, nil
	}
	for more := q.Left == ""; err == nil && more && len(messages) < sample; {
		var d amqp.Delivery
		if d, more, err = channel.Get(q.Source, false); more {
			messages = append(messages, r.message(q, d))
		}
	}
	return int64(queue.Messages), messages, at(q.Source, err)
}

// Take gets messages one by one, because a consumer's deliveries would have no end.
func (r *RabbitMQ) Take(ctx context.Context, limit int) (taken []Message, err error) {
	for r.at < len(r.queues) && ctx.Err() == nil {
		q, marked := r.queues[r.at], 0
		count, _, err := r.show(q, 0)
		for more := count > 0 && q.Left == ""; err == nil && more && len(taken)+marked < limit; {
			var d amqp.Delivery
			switch d, more, err = r.channel.Get(q.Source, false); {
			case err != nil:
				err = at(q.Source, err)
			case more && identified(d):
				taken = append(taken, r.message(q, d))
			case more:
				marked++
				err = r.mark(ctx, q.Source, d)
			}
		}
		if err == nil && marked > 0 { // they go to the end of the queue
			err = at(q.Source, r.channel.TxCommit())
		}
		if err != nil || len(taken) > 0 {
			return taken, err
		}
		if marked == 0 {
			r.at++
		}
	}
	return nil, nil
}

// at adds the queue's name to an error.
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

// mark republishes a message at the end of its queue with a message_id, in the next commit.
func (r *RabbitMQ) mark(ctx context.Context, queue string, d amqp.Delivery) error {
	err := r.channel.PublishWithContext(ctx, "", queue, true, false, amqp.Publishing{
		MessageId: r.newID(), Type: typeOf(queue, d), Body: d.Body, Headers: d.Headers, AppId: d.AppId,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		Timestamp: d.Timestamp,
	})
	if err == nil {
		err = d.Ack(false)
	}
	return at(queue, err)
}

// typeOf returns the type outside the body. A routing key that is the queue's name is no type.
func typeOf(queue string, d amqp.Delivery) string {
	if d.RoutingKey == queue {
		return d.Type
	}
	return cmp.Or(d.Type, d.RoutingKey)
}

func (r *RabbitMQ) message(of brokerQueue, d amqp.Delivery) Message {
	m := Message{
		Source: of.Source, Queue: of.Queue, Part: of.part, Body: d.Body, ID: d.MessageId, tag: d.DeliveryTag,
		Type: typeOf(of.Source, d), Created: d.Timestamp, Attempts: deaths(of.Source, d.Headers),
	}
	delay, ok := integer(d.Headers["x-delay"])
	if !ok {
		return m
	}
	if delay > maxDelay || delay < -maxDelay {
		m.Odd = "its x-delay is longer than the delayed message exchange takes"
		return m
	}
	// The delayed message exchange negates the delay when it is over.
	wait := time.Duration(max(delay, -delay)) * time.Millisecond
	q, _ := r.catalog.Queue(of.Queue)
	if i := slices.Index(q.Backoff.Schedule, wait); i > 0 {
		m.Attempts = max(m.Attempts, i)
	}
	if delay > 0 {
		m.Due = cmp.Or(d.Timestamp, time.Now()).Add(wait)
	}
	return m
}

const maxDelay = 1<<32 - 1

// deaths returns how often a message was rejected in the queue, or expired in the one where it waited.
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

// Settle acknowledges accepted messages. Refused ones return to their place at the end of the run.
func (r *RabbitMQ) Settle(_ context.Context, accepted, _ []Message) error {
	for _, m := range accepted {
		if err := at(m.Source, r.channel.Ack(m.tag, false)); err != nil {
			return err
		}
	}
	return at("acknowledge", r.channel.TxCommit())
}

// Release ends the connection.
func (r *RabbitMQ) Release(context.Context) error { return r.connection.Close() }
