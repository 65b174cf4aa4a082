package ops

import (
	"context"
	"net/http"
	"time"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
)

// previewTime is for how long the dead letters of a preview are tried.
const previewTime = time.Second

// Preview is what an operation would touch now: what the person sees who begins it, and the one who approves it.
type Preview struct {
	deadletter.Preview
	// Items are the newest of them, at most 20.
	Items []Previewed `json:"items"`
}

// Previewed is a dead letter, and what a worker would do of it now: what it would write, emit and call.
type Previewed struct {
	deadletter.Item
	// Trial is absent where Unknown says why that is not known.
	Trial   *dryrun.Trial `json:"trial,omitempty"`
	Unknown string        `json:"unknown,omitempty"`
	// Later is what came after it, where it is the only one.
	Later *Later `json:"later,omitempty"`
}

func (a *API) previewDeadLetters(r *http.Request) (Preview, error) {
	f, err := a.filter(read(r, filters...))
	if err != nil {
		return Preview{}, err
	}
	return a.preview(r.Context(), f)
}

// previewOperation answers what an operation that waits would touch, were it approved now.
func (a *API) previewOperation(r *http.Request) (Preview, error) {
	op, err := a.Operator.Operation(r.Context(), param(r, "id"))
	if err != nil {
		return Preview{}, err
	}
	return a.preview(r.Context(), op.Matching())
}

func (a *API) preview(ctx context.Context, f deadletter.Filter) (Preview, error) {
	counted, err := a.Operator.Preview(ctx, f)
	if err != nil {
		return Preview{}, err
	}
	shown := Preview{Preview: counted, Items: []Previewed{}}
	limited, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	for _, item := range counted.Sample {
		one := Previewed{Item: item}
		trial, err := a.Tries.Try(limited, dryrun.Asked{Queue: item.Queue, DeadLetter: &item})
		switch {
		case err == nil:
			one.Trial = &trial
		case limited.Err() != nil:
			one.Unknown = "It could not be tried in time."
		default:
			one.Unknown = a.problem(ctx, err).Detail
		}
		if len(counted.Sample) == 1 {
			if one.Later, err = a.later(ctx, item); err != nil {
				return Preview{}, err
			}
		}
		shown.Items = append(shown.Items, one)
	}
	return shown, nil
}
