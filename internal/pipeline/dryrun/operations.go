package dryrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
)

// Preview is what an operation would touch now: what the person sees who begins it, and the one who approves it.
type Preview struct {
	deadletter.Preview
	// Filter is what was chosen, as an operation takes it.
	Filter deadletter.Filter `json:"filter"`
	// Items are the newest of them, at most 20.
	Items []Previewed `json:"items"`
}

// Previewed is a dead letter, and what a worker would do of it now: what it would write, emit and call.
type Previewed struct {
	deadletter.Item
	// Trial is absent where Unknown says why that is not known.
	Trial   *Trial `json:"trial,omitempty"`
	Unknown string `json:"unknown,omitempty"`
	// Later is what came after it, where it is the only one.
	Later *deadletter.Later `json:"later,omitempty"`
}

// Notes are what is left out, and what would become of each were it replayed now.
func (p Preview) Notes() (lines []string) {
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

// untried is why a message is not tried.
var untried = []console.Refusal{
	{Of: ErrNoQueue, Kind: console.Absent, Code: "queue_unknown", Detail: "The catalog runs no queue of that name or alias."},
	{Of: ErrNotKept, Kind: console.Absent, Code: "payload_not_kept", Detail: "No payload of that event is kept: dead letters and what waits have theirs. Send the message in its place."},
}

// previewTime is how long all trials of a preview may take.
const previewTime = time.Second

// Operations are the previews of what people do with dead letters.
func (d *Trials) Operations(o *deadletter.Operator, c *catalog.Catalog) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "dlq preview", Path: "GET /v1/ops/dead-letters/preview", Errors: deadletter.Failures,
			Summary: "Show which dead letters an operation would touch, and what a worker would do of them now",
		}, func(ctx context.Context, _ audit.Author, in deadletter.Chosen) (Preview, error) {
			f, err := in.Filter(c)
			if err == nil && f.Queue == "" {
				err = deadletter.ErrNoQueue
			}
			if err != nil {
				return Preview{}, err
			}
			return d.preview(ctx, o, f)
		}),
		console.New(console.Row{
			Name: "operations preview", Path: "GET /v1/ops/operations/{id}/preview", Errors: deadletter.Failures,
			Summary: "Show what an operation that waits for approval would touch, were it approved now",
		}, func(ctx context.Context, _ audit.Author, in deadletter.OneOperation) (Preview, error) {
			op, err := o.Operation(ctx, in.ID)
			if err != nil {
				return Preview{}, err
			}
			return d.preview(ctx, o, op.Matching())
		}),
	}
}

func (d *Trials) preview(ctx context.Context, o *deadletter.Operator, f deadletter.Filter) (Preview, error) {
	counted, err := o.Preview(ctx, f)
	if err != nil {
		return Preview{}, err
	}
	shown := Preview{Preview: counted, Filter: f, Items: []Previewed{}}
	limited, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	for _, item := range counted.Sample {
		one := Previewed{Item: item}
		trial, err := d.Try(limited, Asked{Queue: item.Queue, DeadLetter: &item})
		switch {
		case err == nil:
			one.Trial = &trial
		case limited.Err() != nil:
			one.Unknown = "It could not be tried in time."
		default:
			one.Unknown = unknown(err)
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

// unknown says why a message could not be tried.
func unknown(err error) string {
	for _, known := range untried {
		if errors.Is(err, known.Of) {
			return known.Detail
		}
	}
	return "The store did not answer; try again."
}
