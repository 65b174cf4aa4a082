package trials

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
)

// Preview is what an operation would touch now: what the person sees who begins it, and the one who approves it.
type Preview struct {
	deadletter.Preview
	// Filter is what was chosen, as an operation takes it.
	Filter deadletter.Filter `json:"filter"`
	// Items are the newest of them, at most 20.
	Items []Previewed `json:"items"`
	// FourEyes: an operation on them needs a second person.
	FourEyes bool `json:"-"`
}

// Previewed is a dead letter, and what a worker would do of it now: what it would write, emit and call.
type Previewed struct {
	deadletter.Item
	// Trial is absent where Unknown says why that is not known.
	Trial   *dryrun.Trial `json:"trial,omitempty"`
	Unknown string        `json:"unknown,omitempty"`
	// Later is what came after it, where it is the only one.
	Later *deadletter.Later `json:"later,omitempty"`
}

// Notes are what is left out, and what would become of each were it replayed now.
func (p Preview) Notes() (lines []string) {
	if p.Total == 0 {
		lines = append(lines, "Nothing matches.")
	}
	if p.Looked < p.Total {
		lines = append(lines, fmt.Sprintf("All are counted, and the newest %d were looked at.", p.Looked))
	}
	if p.Looping > 0 {
		lines = append(lines, fmt.Sprintf("A replay passes by %d that were replayed %d times, unless it is forced.", p.Looping, deadletter.MaxReplays))
	}
	if p.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("A replay passes by %d that were too large to keep.", p.Omitted))
	}
	for i, item := range p.Items {
		if i == 0 {
			lines = append(lines, "If these were replayed now:")
		}
		lines = append(lines, fmt.Sprintf("%s %s, died of %s: %s", cmp.Or(item.EventID, item.ID), item.EventType,
			strings.TrimSpace(item.Reason+" "+item.Detail), item.Now()))
		if item.Later != nil {
			lines = append(lines, "  later messages of its key: "+item.Later.String())
		}
		if item.Trial != nil {
			for _, effect := range item.Trial.Effects() {
				lines = append(lines, "  "+effect)
			}
		}
	}
	return lines
}

// Now says what would become of it.
func (p Previewed) Now() string {
	if p.Trial == nil {
		return "not known: " + p.Unknown
	}
	return p.Trial.Would()
}

var failures = []console.Refusal{
	{Of: dryrun.ErrCatalog, Kind: console.Refused, Code: "catalog_refused", Detail: ""},
	{Of: dryrun.ErrNoQueue, Kind: console.Absent, Code: "queue_unknown", Detail: "The catalog runs no queue of that name or alias."},
	{Of: ErrNotKept, Kind: console.Absent, Code: "payload_not_kept", Detail: "No payload of that event is kept: dead letters and what waits have theirs. Send the message in its place."},
	{Of: ErrSeveral, Kind: console.Conflict, Code: "queue_needed", Detail: "Messages of several queues or tenants are kept under this event id; name one with queue or tenant."},
}

// Try asks what a worker would do of an event whose message is kept, or of a message that the request brings.
type Try struct {
	EventID string `json:"event_id,omitempty" arg:"event id" validate:"omitempty,id" help:"event id"`
	Queue   string `json:"queue,omitempty" help:"the queue, by id or alias, where several know the id"`
	Tenant  string `json:"tenant,omitempty" help:"the tenant, where several have the id"`
	// Message is one as it is on the topic, and Body the payload of one without attributes.
	Message *GivenMessage  `json:"message,omitempty" help:"a message in place of an event's, such as dlq payload --json prints"`
	Body    jsontext.Value `json:"body,omitempty" help:"the body of a message for the queue, in place of an event's"`
	// Catalog are files, by their names, that replace those of the running catalog.
	Catalog map[string]string `json:"catalog,omitempty" help:"files by their names, in place of those of the catalog"`
}

// GivenMessage is a message, perhaps with what else is known of a dead letter.
type GivenMessage struct {
	events.Message
	// Queue holds where the request names none.
	Queue string         `json:"queue,omitempty"`
	Rest  jsontext.Value `json:",embed"`
}

// maxTried is the largest body of a request for a trial, in bytes: a message and the files of a catalog.
const maxTried = 4 << 20

const previewTime = time.Second

// Operations are trials, and the previews of what people do with dead letters.
func (d *Operator) Operations(o *deadletter.Operator, c *catalog.Catalog) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "events try", Path: "POST /v1/ops/events/try", Needs: console.Act, Once: true, Body: maxTried, Errors: failures,
			Summary: "Show what the worker would write, emit and call for an event, without doing it",
		}, d.Try),
		console.New(console.Row{
			Name: "dlq preview", Path: "GET /v1/ops/dead-letters/preview", Errors: deadletter.Failures,
			Summary: "Show which dead letters an operation would change, and what a worker would do with each now",
		}, func(ctx context.Context, _ audit.Author, in deadletter.Chosen) (Preview, error) {
			f, err := o.Chosen(ctx, c, in)
			if err == nil && f.Queue == "" {
				err = deadletter.ErrNoQueue
			}
			if err != nil {
				return Preview{}, err
			}
			shown, err := d.preview(ctx, o, f)
			q, _ := c.DeadLetters(f.Queue)
			shown.FourEyes = q.FourEyes
			return shown, err
		}),
		console.New(console.Row{
			Name: "operations preview", Path: "GET /v1/ops/operations/{id}/preview", Errors: deadletter.Failures,
			Summary: "Show what an operation that waits for approval would change if it were approved now",
		}, func(ctx context.Context, _ audit.Author, in deadletter.OneOperation) (Preview, error) {
			op, err := o.Operation(ctx, in.ID)
			if err != nil {
				return Preview{}, err
			}
			return d.preview(ctx, o, op.Matching())
		}),
	}
}

func (d *Operator) preview(ctx context.Context, o *deadletter.Operator, f deadletter.Filter) (Preview, error) {
	counted, err := o.Preview(ctx, f)
	if err != nil {
		return Preview{}, err
	}
	shown := Preview{Preview: counted, Filter: f, Items: []Previewed{}}
	limited, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	worker, refused := d.Worker(nil)
	for _, item := range counted.Sample {
		one := Previewed{Item: item}
		if one.Trial, err = replay(limited, worker, refused, item); err != nil {
			one.Unknown = unknown(limited, err)
		}
		if len(counted.Sample) == 1 {
			if one.Later, err = o.Later(ctx, item); err != nil {
				return Preview{}, err
			}
		}
		shown.Items = append(shown.Items, one)
	}
	return shown, nil
}

func replay(ctx context.Context, worker dryrun.Worker, refused error, item deadletter.Item) (*dryrun.Trial, error) {
	if refused != nil {
		return nil, refused
	}
	m, err := replayOf(worker, item)
	if err != nil {
		return nil, err
	}
	t, err := worker.Try(ctx, m)
	if err != nil {
		return nil, err
	}
	return &t, nil
}

func unknown(limited context.Context, err error) string {
	if limited.Err() != nil {
		return "It could not be tried in time."
	}
	for _, known := range failures {
		if errors.Is(err, known.Of) {
			return known.Detail
		}
	}
	return "The store did not answer; try again."
}
