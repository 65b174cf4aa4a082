package bulk

import (
	"context"
	"errors"
	"time"

	"billhook/internal/console"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
)

// Begin is a request to begin an operation.
type Begin struct {
	Filter
	Expect int   `json:"expect" expects:"total" help:"the total of the preview"`
	Rate   int64 `json:"rate" default:"50" help:"how many to replay a second, at most; 0 means 50"`
	Force  bool  `json:"force" help:"also dead letters that were replayed too often"`
	console.Change
}

// ListOfOperations requests a page of operations, of one stage or all.
type ListOfOperations struct {
	Progress string `json:"-" query:"progress" validate:"omitempty,oneof=waiting_for_approval running finished cancelled rejected" help:"only operations with this progress"`
	console.Page
}

// OneOperation is a request about one operation.
type OneOperation struct {
	ID string `json:"-" path:"id" validate:"required" help:"operation"`
}

// ListOfItems requests the dead letters whose latest operation this is.
type ListOfItems struct {
	OneOperation
	State string `json:"-" query:"state" validate:"omitempty,oneof=open replayed processed corrected discarded completed all" help:"only those in this state"`
	console.Page
}

// Approve is a request to approve an operation.
type Approve struct {
	OneOperation
	Expect int `json:"expect" expects:"total" help:"the total of the operation's preview"`
	console.Change
}

// End is a request to cancel or to reject an operation.
type End struct {
	OneOperation
	console.Change
}

// runTime is how long one request runs an operation. After it, the client sends another request.
const runTime = 20 * time.Second

// Operations returns what people can do with dead letters, and with the operations on them.
func (o *Operator) Operations() (all []console.Operation) {
	for _, kind := range []deadletter.Kind{deadletter.Replay, deadletter.Discard, deadletter.Complete} {
		all = append(all, console.New(console.Row{
			Name: "dlq " + string(kind), Path: "POST /v1/ops/dead-letters/" + string(kind), Summary: kinds[kind],
			Needs: console.Reason, Created: true, Before: "dlq preview", Follow: "operations run",
		}, func(ctx context.Context, by audit.Author, in Begin) (op Operation, err error) {
			if in.Filter, err = o.Choose(ctx, in.Filter); err != nil {
				return op, err
			}
			op = Operation{Kind: kind, Filter: in.Filter, Why: in.Why, Force: in.Force, Rate: in.Rate}
			return o.Begin(ctx, op, by, in.Expect)
		}))
	}
	ending := func(to Progress, summary string) console.Operation {
		return console.New(console.Row{
			Name: "operations " + endings[to], Path: "POST /v1/ops/operations/{id}/" + endings[to],
			Summary: summary, Needs: console.Reason, Before: "operations show",
		}, func(ctx context.Context, by audit.Author, in End) (Operation, error) {
			return o.End(ctx, in.ID, to, in.By(by))
		})
	}
	return append(all,
		console.New(console.Row{
			Name: "operations ls", Path: "GET /v1/ops/operations",
			Summary: "List operations on dead letters, newest first: who, what, why, and the progress",
			Empty:   "No operation is in this list. A replay, a discard or a completion of dead letters begins one.",
		}, func(ctx context.Context, _ audit.Author, in ListOfOperations) (console.List[Operation], error) {
			return console.Listed(o.InStage(ctx, Progress(in.Progress), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "operations show", Path: "GET /v1/ops/operations/{id}",
			Summary: "Show an operation on dead letters, and the results of what it replayed",
			Beside:  []string{"operations items"},
		}, func(ctx context.Context, _ audit.Author, in OneOperation) (Operation, error) {
			op, err := o.Operation(ctx, in.ID)
			if err != nil || op.Kind != deadletter.Replay {
				return op, err
			}
			outcomes, err := o.Outcomes(ctx, op)
			op.Outcomes = &outcomes
			return op, err
		}),
		console.New(console.Row{
			Name: "operations items", Path: "GET /v1/ops/operations/{id}/items",
			Summary: "List the dead letters whose latest operation this is",
			Empty:   "It has changed no dead letter, or later operations have changed them since.",
		}, func(ctx context.Context, _ audit.Author, in ListOfItems) (console.List[deadletter.Item], error) {
			if op, err := o.Operation(ctx, in.ID); err == nil {
				in.ID = op.ID // else no operation has this id, and the list is empty
			} else if !errors.Is(err, ErrUnknown) {
				return console.List[deadletter.Item]{}, err
			}
			return console.Listed(o.Items(ctx, in.ID, console.AllOr[deadletter.State](in.State), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "operations approve", Path: "POST /v1/ops/operations/{id}/approve", Needs: console.TwoPeople,
			Summary: "Approve an operation that another person started",
			Before:  "operations preview", Follow: "operations run", Beside: []string{"operations show"},
			Help: "It starts now. It records your name and reason beside those of the person who asked for it.",
		}, func(ctx context.Context, by audit.Author, in Approve) (Operation, error) {
			return o.Approve(ctx, in.ID, in.By(by), in.Expect)
		}),
		ending(Rejected, "Reject an operation that another person started and that waits for approval"),
		ending(Cancelled, "Cancel an operation; what it has done stays done"),
		console.New(console.Row{
			Name: "operations run", Path: "POST /v1/ops/operations/{id}/run", Needs: console.Act,
			Before: "operations show", Follow: "operations run",
			Summary: "Continue an operation now, for some seconds; otherwise a task continues it every minute",
		}, func(ctx context.Context, _ audit.Author, in OneOperation) (Operation, error) {
			ctx, cancel := context.WithTimeout(ctx, runTime)
			defer cancel()
			return o.Run(ctx, in.ID)
		}),
	)
}
