// Package importer moves messages from Redis lists, RabbitMQ queues or a Postgres table to the webhook
// service. It removes only accepted messages, and changes their data only on request.
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

// The parts.
const (
	Waiting Part = "waiting" // messages that no worker has taken
	Claimed Part = "claimed" // messages that a worker took and never finished
	Delayed Part = "delayed" // messages that wait for their time
	Failed  Part = "failed"  // messages that have used up their attempts; they are sent with all of them again
)

// Message is an old message.
type Message struct {
	// Source is the list, queue or table that has the message; Handle identifies it there.
	Source, Handle string
	tag            uint64 // the handle in AMQP
	row            int64  // the handle in Postgres
	Queue          string // the id of the catalog's queue that takes it; empty: none does
	Part           Part
	Body           []byte
	Content        bool   // the body is only the content, such as a payload
	ID, Type       string // for a body without them; an ID is the same in every run
	Attempts       int
	MaxAttempts    int       // 0: its queue's
	Due            time.Time // when it is to be handled; zero: at once
	Created        time.Time // zero: not known
	Odd            string    // why it cannot be moved, such as an infinite time; empty: it can
}

// Place counts the messages in one part of an old queue.
type Place struct {
	Queue string `json:"queue" show:"Queue"` // the catalog's
	Name  string `json:"name" show:"Old name"`
	Part  Part   `json:"part" show:"Part"`
	Count int64  `json:"count" show:"Messages"`
	Left  string `json:"left,omitempty" show:"Stays because"` // empty: the messages would be moved
}

// Source is an old system's queues.
type Source interface {
	// Look counts the messages, and returns up to sample of those that would be moved. It changes nothing.
	Look(ctx context.Context, sample int) ([]Place, []Message, error)
	// Take claims up to limit messages, first those of an earlier run; empty: no message is left.
	Take(ctx context.Context, limit int) ([]Message, error)
	// Settle removes the accepted messages, and keeps the refused ones. Others stay claimed.
	Settle(ctx context.Context, accepted, refused []Message) error
	// Release gives back the refused messages, and ends the connection.
	Release(ctx context.Context) error
}

// Item is a message in the form that the webhook service accepts.
type Item struct {
	Message     jsontext.Value `json:"message"`
	DeliverAt   time.Time      `json:"deliver_at,omitzero"`
	MaxAttempts int            `json:"max_attempts,omitzero"`

	id, eventType string // the event's, if the message has them
}

// Result is the webhook service's answer to one message. A refusal has Code, Detail and Violations.
type Result struct {
	Status      int    `json:"status" show:"Status"`
	EventID     string `json:"event_id,omitempty" show:"Event"`
	Queue       string `json:"queue,omitempty" show:"Queue"`
	MessageID   string `json:"message_id,omitempty" show:"Message,less"`
	OrderingKey string `json:"ordering_key,omitempty" show:"Key,less"`
	// Ignored: no queue takes it, for the Reason.
	Ignored bool   `json:"ignored,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Code    string `json:"code,omitempty" show:"Refused"`
	Detail  string `json:"detail,omitempty"`
	// RetryAfter is the seconds after which it can be sent again; 0: never.
	RetryAfter int             `json:"retry_after,omitempty"`
	Violations []pii.Violation `json:"violations,omitempty"`
}

// Notes returns the reasons of a refusal, and when to send the message again.
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

// ErrClosed is wrapped by errors that every message would cause, such as a wrong secret.
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

// Report is the progress of a run.
type Report struct {
	Moved    int            `json:"moved" show:"Moved"`
	Refused  int            `json:"refused" show:"Refused"`
	Queues   map[string]int `json:"queues"`
	Reasons  map[string]int `json:"reasons,omitempty"` // counts the refused messages by code and field
	Refusals []Refusal      `json:"refusals,omitempty" show:"Refusals"`
	// Unknown counts the messages without an answer at the end; the next run sends them with the same ids.
	Unknown int `json:"unknown,omitempty"`
}

const (
	batchSize   = 100
	maxRefusals = 100
	room        = 1 << 10     // bytes of a request without its items
	roomEach    = 256         // bytes of an item without its message
	inFlight    = time.Minute // the longest that a batch takes after the run is stopped
)

// Run is one run of an import.
type Run struct {
	Source Source
	// Send returns a result for each item. ErrClosed is final; after another error the results are unknown.
	Send     func(ctx context.Context, queue string, items []Item) ([]Result, error)
	Catalog  *catalog.Catalog
	Compose  Composer
	MaxBytes int64         // the longest body of a request
	Limiter  *rate.Limiter // of the messages in a second, with bursts of at least 100; nil: no limit
	Patience time.Duration // the longest wait for a webhook service that does not answer
	Now      func() time.Time
	After    func(time.Duration) <-chan time.Time
	Progress func(Report) // called after each batch

	report Report
}

// Do moves messages until the source has none. After an error it can be run again.
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
	// A batch that has begun is finished, because the next run would send it again.
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

// pack makes requests for one queue each, in the order of the messages. refused cannot be sent.
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

// send repeats a batch until each item is accepted or refused, or until Patience or ctx ends.
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
		if err == nil { // else the result of each item is unknown
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

// named is how a report names a message without an event id: by the id in its body, or by its row.
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
