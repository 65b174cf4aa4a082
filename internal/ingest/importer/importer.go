// Package importer moves what waits in Redis lists, RabbitMQ queues or a Postgres table to the webhook
// service: claim, send, and remove what was accepted. It refuses to remove a message that is not accepted,
// and to change its data unless it is told to.
package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/time/rate"

	"billhook/catalog"
	"billhook/internal/pii"
)

// Part is the place of a message within its old queue.
type Part string

const (
	// Waiting messages have nobody who works on them.
	Waiting Part = "waiting"
	// Claimed messages were taken by a worker that never finished them.
	Claimed Part = "claimed"
	// Delayed messages wait for their time.
	Delayed Part = "delayed"
	// Failed messages have used up their attempts. They are sent with all of them again.
	Failed Part = "failed"
)

// Message is an old message.
type Message struct {
	// Source is the list, queue or table that has the message, and Handle how it finds it again.
	Source, Handle string
	// tag and row are the handles of what AMQP and Postgres have.
	tag uint64
	row int64
	// Queue is the id of the catalog's queue that takes it; empty: none does.
	Queue string
	Part  Part
	Body  []byte
	// Content: the body is the content alone, such as a payload.
	Content bool
	// ID and Type are those of a body that has none; an ID is the same however often it is taken.
	ID, Type string
	// MaxAttempts is 0 where it is as often as its queue says.
	Attempts, MaxAttempts int
	// Due is when it is to be handled; zero: at once. Created is when it was made; zero: not known.
	Due, Created time.Time
	// Odd is why it cannot be moved, such as a time that never comes; empty: it can.
	Odd string
}

// Place counts the messages in one part of an old queue.
type Place struct {
	// Queue is the catalog's. Name is that of the list, the queue or the rows.
	Queue string `json:"queue" show:"Queue"`
	Name  string `json:"name" show:"Old name"`
	Part  Part   `json:"part" show:"Part"`
	Count int64  `json:"count" show:"Messages"`
	// Left is why the messages would stay where they are; empty: they would be moved.
	Left string `json:"left,omitempty" show:"Stays because"`
}

// Source is a queue old system.
type Source interface {
	// Look counts what there is, and returns up to sample of what would be moved. It changes nothing.
	Look(ctx context.Context, sample int) ([]Place, []Message, error)
	// Take claims up to limit messages, those of an earlier run first; none: nothing is left.
	Take(ctx context.Context, limit int) ([]Message, error)
	// Settle removes the accepted messages, and keeps the refused ones. Others stay claimed.
	Settle(ctx context.Context, accepted, refused []Message) error
	// Release gives back what was refused, and ends the connection.
	Release(ctx context.Context) error
}

// Item is a message as the webhook service takes it.
type Item struct {
	Message     jsontext.Value `json:"message"`
	DeliverAt   time.Time      `json:"deliver_at,omitzero"`
	MaxAttempts int            `json:"max_attempts,omitzero"`
	// id and eventType are the event's, where the message says them.
	id, eventType string
}

// Result is the webhook service's answer to one message. Code, Detail and Violations say why it is not
// accepted.
type Result struct {
	Status      int    `json:"status" show:"Status"`
	EventID     string `json:"event_id,omitempty" show:"Event"`
	Queue       string `json:"queue,omitempty" show:"Queue"`
	MessageID   string `json:"message_id,omitempty" show:"Message,less"`
	OrderingKey string `json:"ordering_key,omitempty" show:"Key,less"`
	// Ignored: no queue wants it, and Reason says why.
	Ignored bool   `json:"ignored,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Code    string `json:"code,omitempty" show:"Refused"`
	Detail  string `json:"detail,omitempty"`
	// RetryAfter is in how many seconds the same can be sent again; 0: never.
	RetryAfter int             `json:"retry_after,omitempty"`
	Violations []pii.Violation `json:"violations,omitempty"`
}

// Notes says why it is not accepted, and when to send it again.
func (r Result) Notes() (notes []string) {
	if r.Detail != "" {
		notes = append(notes, r.Code+": "+r.Detail)
	}
	if r.RetryAfter > 0 {
		notes = append(notes, fmt.Sprintf("Send it again in %d s.", r.RetryAfter))
	}
	if r.Ignored {
		notes = append(notes, "Ignored: "+r.Reason)
	}
	for _, v := range r.Violations {
		notes = append(notes, v.String())
	}
	return notes
}

// ErrClosed is wrapped by errors that no repetition mends, such as a wrong secret.
var ErrClosed = errors.New("importer: the webhook service refuses every message")

// Refusal is a message that stays where it was, with the reason.
type Refusal struct {
	Queue   string   `json:"queue" show:"Queue"`
	Part    Part     `json:"part" show:"Part"`
	EventID string   `json:"event_id,omitempty" show:"Event"`
	Code    string   `json:"code" show:"Reason"`
	Detail  string   `json:"detail,omitempty" show:"Detail,less"`
	Fields  []string `json:"fields,omitempty" show:"Fields"`
}

// Report is how far a run is.
type Report struct {
	Moved   int            `json:"moved" show:"Moved"`
	Refused int            `json:"refused" show:"Refused"`
	Queues  map[string]int `json:"queues"`
	// Reasons counts the refused by code and field.
	Reasons map[string]int `json:"reasons,omitempty"`
	// Refusals are the first of them.
	Refusals []Refusal `json:"refusals,omitempty" show:"Refusals"`
	// Unknown is how many were on their way when the run ended; the next run sends them under the same ids.
	Unknown int `json:"unknown,omitempty"`
}

const (
	batchSize   = 100
	maxRefusals = 100
	// room is what a request needs beside its items.
	room = 1 << 10
	// roomEach is what an item needs beside its message.
	roomEach = 256
	// inFlight bounds what is done for a batch after the run was told to stop.
	inFlight = time.Minute
)

// Run is one run of an import.
type Run struct {
	Source Source
	// Send returns a result for each item. ErrClosed is final; after another error nothing is known.
	Send    func(ctx context.Context, queue string, items []Item) ([]Result, error)
	Catalog *catalog.Catalog
	Compose Composer
	// MaxBytes bounds the body of a request.
	MaxBytes int64
	// Limiter bounds how many messages are sent in a second, with bursts of at least 100; nil: nothing does.
	Limiter *rate.Limiter
	// Patience bounds how long the run waits for a webhook service that does not answer.
	Patience time.Duration
	Now      func() time.Time
	After    func(time.Duration) <-chan time.Time
	// Progress is called after each batch.
	Progress func(Report)

	report Report
}

// Do moves messages until the source has none. With an error it can be run again.
func (r *Run) Do(ctx context.Context) (Report, error) {
	r.report = Report{Queues: map[string]int{}, Reasons: map[string]int{}}
	for {
		err := ctx.Err()
		if err == nil && r.Limiter != nil {
			err = r.Limiter.WaitN(ctx, batchSize)
		}
		if err != nil {
			return r.report, fmt.Errorf("stopped: %w", err)
		}
		taken, err := r.Source.Take(ctx, batchSize)
		if err != nil {
			return r.report, err
		}
		if len(taken) == 0 {
			return r.report, nil
		}
		err = r.move(ctx, taken)
		r.Progress(r.report)
		if err != nil {
			return r.report, err
		}
	}
}

type batch struct {
	queue    string
	messages []Message
	items    []Item
	bytes    int64
}

func (r *Run) move(ctx context.Context, taken []Message) error {
	// What is on its way is finished, or else the next run would send it once more.
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), inFlight+r.Patience)
	defer cancel()
	batches, refused := r.pack(taken)
	var accepted []Message
	var failed error
	for i := range batches {
		yes, no, err := r.send(ctx, finish, &batches[i])
		accepted, refused = append(accepted, yes...), append(refused, no...)
		if failed = err; err != nil {
			break
		}
	}
	r.report.Unknown = len(taken) - len(accepted) - len(refused)
	if err := r.Source.Settle(finish, accepted, refused); err != nil {
		return errors.Join(failed, err)
	}
	for _, m := range accepted {
		r.report.Moved++
		r.report.Queues[m.Queue]++
	}
	return failed
}

// pack makes requests of one queue each, in the order of the messages, and returns what cannot be sent.
func (r *Run) pack(taken []Message) (batches []batch, refused []Message) {
	open := map[string]int{}
	for _, m := range taken {
		made, why := r.Compose.compose(r.Catalog, m, r.Now())
		size := int64(len(made.Message)) + roomEach
		if why == nil && size+room > r.MaxBytes {
			why = unfit("too_large", "the message is larger than the webhook service's requests may be")
		}
		if why != nil {
			r.refuse(m, cmp.Or(made.id, m.named()), *why)
			refused = append(refused, m)
			continue
		}
		at, ok := open[m.Queue]
		if !ok || batches[at].bytes+size > r.MaxBytes {
			at, batches = len(batches), append(batches, batch{queue: m.Queue, bytes: room})
			open[m.Queue] = at
		}
		b := &batches[at]
		b.messages, b.items, b.bytes = append(b.messages, m), append(b.items, made), b.bytes+size
	}
	return batches, refused
}

// send repeats a batch until each item is accepted or refused, as long as patience lasts and ctx stands.
func (r *Run) send(ctx, finish context.Context, b *batch) (accepted, refused []Message, err error) {
	deadline := r.Now().Add(r.Patience)
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		results, err := r.Send(finish, b.queue, b.items)
		if err == nil && len(results) != len(b.items) {
			err = fmt.Errorf("%w: it gave %d results for %d messages", ErrClosed, len(results), len(b.items))
		}
		if errors.Is(err, ErrClosed) {
			return accepted, refused, err
		}
		pause := wait
		if err == nil { // else nothing is known of any item
			var again batch
			for i, result := range results {
				switch m := b.messages[i]; {
				case result.Status >= 200 && result.Status < 300:
					accepted = append(accepted, m)
				case transient(result.Status):
					again.messages, again.items = append(again.messages, m), append(again.items, b.items[i])
					pause = max(pause, time.Duration(result.RetryAfter)*time.Second)
					err = fmt.Errorf("importer: the webhook service answers %d %s", result.Status, result.Code)
				default:
					r.refuse(m, b.items[i].id, result)
					refused = append(refused, m)
				}
			}
			if b.messages, b.items = again.messages, again.items; err == nil {
				return accepted, refused, nil
			}
		}
		if r.Now().Add(pause).After(deadline) {
			return accepted, refused, fmt.Errorf("gave up waiting for the webhook service: %w", err)
		}
		select {
		case <-r.After(pause):
		case <-ctx.Done():
			return accepted, refused, errors.Join(ctx.Err(), err)
		}
	}
}

// named is what a report calls a message that has no event id yet: the id in its body, or its row.
func (m Message) named() string {
	if m.Content {
		return m.ID
	}
	var body object
	if json.Unmarshal(m.Body, &body) != nil {
		return ""
	}
	return textOf(body["id"])
}

func transient(status int) bool {
	return status == 408 || status == 425 || status == 429 || status >= 500
}

func (r *Run) refuse(m Message, id string, why Result) {
	r.report.Refused++
	var fields []string
	for _, v := range why.Violations {
		fields = append(fields, v.String())
		r.report.Reasons[why.Code+" "+v.String()]++
	}
	if fields == nil {
		r.report.Reasons[why.Code]++
	}
	if len(r.report.Refusals) < maxRefusals {
		r.report.Refusals = append(r.report.Refusals,
			Refusal{Queue: m.Queue, Part: m.Part, EventID: id, Code: why.Code, Detail: why.Detail, Fields: fields})
	}
}
