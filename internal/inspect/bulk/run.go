package bulk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// The bounds of an operation.
const (
	// MaxItems is how many items one operation may touch.
	MaxItems = 10_000
	// MaxReplays is the number of replays after which an item is skipped, unless forced.
	MaxReplays = 3
	// Rate is the number of items replayed per second unless an operation sets another, up to MaxRate.
	Rate    = 50
	MaxRate = 1000
	batch   = 25
	// hold is how long a runner keeps an operation to itself after its last commit.
	hold = 15 * time.Second
)

// The errors of the operator. Any other is the store's.
var (
	// ErrUnknown: there is no such operation or item.
	ErrUnknown = console.Refuse(console.Absent, "unknown", "There is nothing of that id.")
	// ErrRefused is wrapped by a refusal of what was requested; the text says why.
	ErrRefused = console.Refuse(console.Refused, "refused", "")
	// ErrChanged: not as many items match as the person has seen.
	ErrChanged = console.Refuse(console.Conflict, "changed", "")
	// ErrNoQueue: the catalog has no such queue.
	ErrNoQueue = console.Refuse(console.Absent, "queue_unknown",
		"Name a queue of the catalog, or its dead letters, by id or alias.")
	errBusy = fmt.Errorf("%w: %w",
		console.Refuse(console.Conflict, "busy", "The operation is being run; ask again."), store.ErrBusy)
)

// Operator shows dead letters and performs operations on them.
type Operator struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Now     func() time.Time
	// NewID returns a random id.
	NewID func() string
	// Wait waits for a time, or returns ctx's error.
	Wait func(ctx context.Context, d time.Duration) error
	// Relay publishes the messages of an outbox lane; after an error they are published later. nil: this process
	// does not publish, and leaves replays to the process that does, at their rate.
	Relay func(ctx context.Context, lane string) error
}

// Run continues an operation until it is over or ctx ends. A later call, on any instance, continues where it
// stopped; of two concurrent calls one gets store.ErrBusy. Each batch is one commit of items, messages and
// progress, so a cancelled operation changes nothing more.
func (o *Operator) Run(ctx context.Context, id string) (Operation, error) {
	op, err := o.Operation(ctx, id)
	if err != nil {
		return Operation{}, err
	}
	if o.Relay == nil && op.Kind == deadletter.Replay && op.Progress == Running {
		return op, nil
	}
	runner := o.NewID()
	op, err = o.change(ctx, op.ID, func(op *Operation) ([]store.Write, error) {
		switch {
		case op.Progress.Over():
			return nil, errDecided
		case op.Progress == Waiting:
			return nil, fmt.Errorf("%w: the operation waits for the approval of somebody else", ErrRefused)
		case op.Runner != "" && o.Now().Before(op.RunnerUntil):
			return nil, store.ErrBusy
		}
		op.Runner, op.RunnerUntil = runner, o.Now().Add(hold)
		return nil, nil
	})
	if err != nil || op.Progress.Over() {
		return op, err
	}
	whole, err := o.work(ctx, op, runner)
	if err != nil && !errors.Is(err, store.ErrBusy) && ctx.Err() == nil {
		return op, err
	}
	// Release the operation, even after ctx has ended, so that another call may continue at once.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), hold/3)
	defer cancel()
	op, failed := o.change(last, op.ID, func(op *Operation) ([]store.Write, error) {
		if op.Runner != runner {
			return nil, errDecided // cancelled, or continued by another call
		}
		if op.Runner, op.RunnerUntil = "", (time.Time{}); whole {
			op.Progress, op.Skipped = Finished, op.Total-op.Done
			op.FinishedAt = o.Now().UTC().Truncate(time.Microsecond)
		}
		return nil, nil
	})
	if errors.Is(err, store.ErrBusy) && failed == nil && !op.Progress.Over() {
		return op, err
	}
	return op, failed
}

// RunAll continues the newest running operations, as many as most, until ctx ends.
func (o *Operator) RunAll(ctx context.Context, most int, log *slog.Logger) (any, error) {
	running, _, err := o.InStage(ctx, Running, store.Cursor{}, most)
	if err != nil {
		return nil, err
	}
	var ran struct {
		Operations int `json:"operations"` // continued
		Finished   int `json:"finished"`
		Busy       int `json:"busy"`   // run elsewhere
		Failed     int `json:"failed"` // not continued now
	}
	for _, op := range running {
		if ctx.Err() != nil {
			break
		}
		op, err := o.Run(ctx, op.ID)
		switch {
		case errors.Is(err, store.ErrBusy):
			ran.Busy++
		case err != nil:
			ran.Failed++
			log.LogAttrs(ctx, slog.LevelWarn, "operation not run",
				slog.String("operation", op.ID), slog.String("cause", err.Error()))
		default:
			ran.Operations++
			if op.Progress == Finished {
				ran.Finished++
			}
		}
	}
	return ran, nil //nolint:nilerr // a failure is counted, and the next run tries again
}

// work performs the rest of an operation, batch by batch, and reports whether it has reached the end.
func (o *Operator) work(ctx context.Context, op Operation, runner string) (whole bool, err error) {
	left, err := o.matches(ctx, op.Matching())
	if err != nil {
		return false, err
	}
	size, replays := batch, op.Kind == deadletter.Replay
	if replays {
		size = min(batch, int(op.Rate))
		left = slices.DeleteFunc(left, func(i deadletter.Item) bool {
			return i.Omitted > 0 || (i.ReplayCount >= MaxReplays && !op.Force)
		})
	}
	for len(left) > 0 && ctx.Err() == nil {
		began, some := o.Now(), left[:min(size, len(left))]
		done, lanes, err := o.step(ctx, op.ID, runner, some)
		if err != nil {
			return false, err
		}
		left = left[len(some):]
		for _, lane := range lanes {
			if o.Relay(ctx, lane) != nil {
				break // the relay's task publishes the rest
			}
		}
		pace := time.Duration(done) * time.Second / time.Duration(op.Rate)
		if replays && len(left) > 0 && o.Wait(ctx, pace-o.Now().Sub(began)) != nil {
			break
		}
	}
	return len(left) == 0, nil //nolint:nilerr // a wait that is cut off leaves the rest to the next run
}

// step performs the operation on some items in one commit. It returns how many of them were open, and the
// lanes to be relayed.
func (o *Operator) step(
	ctx context.Context, id, runner string, some []deadletter.Item,
) (done int64, lanes []string, err error) {
	_, err = o.change(ctx, id, func(op *Operation) ([]store.Write, error) {
		q, ok := o.Catalog.Queue(op.Filter.Queue)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: the queue is gone", ErrRefused)
		case op.Runner != runner:
			return nil, store.ErrBusy
		}
		now := o.Now().UTC().Truncate(time.Microsecond)
		messages, writes := lane.NewBatch(now), []store.Write{}
		for _, listed := range some {
			item, err := o.Show(ctx, listed.ID)
			switch {
			case errors.Is(err, ErrUnknown): // it has expired
				continue
			case err != nil:
				return nil, err
			case item.State != deadletter.Open, item.Kept.After(op.CreatedAt), item.Operation == op.ID:
				continue // one that it has replayed may have died again, with an earlier time by a slow clock
			}
			if op.Kind == deadletter.Replay {
				again := item.Replay(q)
				messages.Add(q.Topic(), item.ID+"-"+again.Attributes[deadletter.AttrReplayCount], again,
					lane.Source{Queue: item.Queue, Tenant: item.TenantID(), EventID: item.EventID})
			}
			act := deadletter.Act{Kind: op.Kind, Operation: op.ID, Who: op.Who, Why: op.Why, At: now}
			writes = append(writes, item.Dealt(act))
		}
		if done, lanes = int64(len(writes)), messages.Lanes(); done == 0 {
			return nil, errDecided
		}
		op.Done, op.RunnerUntil = op.Done+done, o.Now().Add(hold)
		return slices.Concat(writes, messages.Writes()), nil
	})
	return done, lanes, err
}
