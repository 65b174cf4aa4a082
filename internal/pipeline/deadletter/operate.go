package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// The bounds of an operation.
const (
	// MaxItems is how many items one operation may touch.
	MaxItems = 10_000
	// MaxReplays is after how many replays an item is left alone, unless forced.
	MaxReplays = 3
	// Rate is how many items a second are replayed unless an operation says otherwise, and MaxRate how
	// many it may say.
	Rate    = 50
	MaxRate = 1000
	batch   = 25
	// hold is how long a runner has an operation to itself without a sign of life.
	hold = 15 * time.Second
)

// The errors of the operator. Any other is the store's.
var (
	// ErrUnknown: there is no such operation or item.
	ErrUnknown = errors.New("deadletter: not known")
	// ErrRefused is wrapped by every refusal of what was asked; its text says why.
	ErrRefused = errors.New("deadletter: refused")
	// ErrChanged is an ErrRefused: other items match than those that somebody has seen.
	ErrChanged = fmt.Errorf("%w", ErrRefused)
	// ErrBusy: another call runs the operation.
	ErrBusy = errors.New("deadletter: the operation is being run")
)

// Operator looks at dead letters and deals with them.
type Operator struct {
	Store store.Store
	// Queue finds a queue by its id.
	Queue func(id string) (catalog.Queue, bool)
	Now   func() time.Time
	// NewID returns a random id.
	NewID func() string
	// Wait waits for a time, or returns ctx's error.
	Wait func(ctx context.Context, d time.Duration) error
	// Relay publishes what the outbox lane holds; what it cannot publish now is published
	// later. The error is that it could not.
	Relay func(ctx context.Context, lane string) error
}

// Begin records an operation of a person, which Run performs. The error is ErrChanged where the number of
// matching items is not expect, the total of its preview, and may be one of audit.TwoPeople.
func (o *Operator) Begin(ctx context.Context, op Operation, by audit.Author, expect int) (Operation, error) {
	q, ok := o.Queue(op.Filter.Queue)
	op.Who = by.String()
	switch {
	case !ok:
		return Operation{}, fmt.Errorf("%w: no queue of that name", ErrRefused)
	case kinds[op.Kind].end == "":
		return Operation{}, fmt.Errorf("%w: the kind must be replay, discard or complete", ErrRefused)
	case strings.TrimSpace(op.Why) == "":
		return Operation{}, fmt.Errorf("%w: a %s needs a reason", ErrRefused, op.Kind)
	case op.Rate < 0 || op.Rate > MaxRate:
		return Operation{}, fmt.Errorf("%w: the rate must be 1 to %d a second", ErrRefused, MaxRate)
	}
	if err := cmp.Or(audit.CheckWhy(op.Why), audit.CheckWho(op.Who)); err != nil {
		return Operation{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if q.FourEyes {
		if err := audit.TwoPeople("", by); err != nil {
			return Operation{}, err
		}
	}
	op.Rate = cmp.Or(op.Rate, Rate)
	total, err := o.expected(ctx, op.Filter, expect)
	if err != nil {
		return Operation{}, err
	}
	op.ID, op.Total, op.CreatedAt, op.Progress = o.NewID(), int64(total), o.Now().UTC().Truncate(time.Microsecond), Running
	op.Done, op.Skipped, op.ApprovedBy, op.ApprovedWhy, op.FinishedAt, op.EndedBy, op.EndedWhy = 0, 0, "", "", time.Time{}, "", ""
	if q.FourEyes {
		op.Progress = Waiting
	}
	versions, err := o.Store.Commit(ctx, []store.Write{store.Create(op.key(), op.fields())})
	if err != nil {
		return Operation{}, fmt.Errorf("deadletter: begin: %w", err)
	}
	op.version = versions[0]
	return op, nil
}

// expected is how many open items match, where these are as many as somebody has seen and at least one.
func (o *Operator) expected(ctx context.Context, f Filter, expect int) (int, error) {
	total, err := o.total(ctx, f)
	switch {
	case err != nil:
		return 0, err
	case total != expect:
		return 0, fmt.Errorf("%w: %d items match now, not %d; look at them again", ErrChanged, total, expect)
	case total == 0:
		return 0, fmt.Errorf("%w: nothing matches", ErrRefused)
	}
	return total, nil
}

// Operation returns one operation.
func (o *Operator) Operation(ctx context.Context, id string) (Operation, error) {
	doc, err := store.Named(ctx, o.Store, store.Key{Collection: audit.Collection, ID: id})
	switch {
	case errors.Is(err, store.ErrAmbiguous):
		return Operation{}, err
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid), err == nil && audit.IsEntry(id):
		return Operation{}, fmt.Errorf("%w: operation %s", ErrUnknown, strconv.Quote(id))
	case err != nil:
		return Operation{}, fmt.Errorf("deadletter: operation: %w", err)
	}
	return OperationOf(doc)
}

// InStage returns a page of operations, of one stage or all, the newest first by the time that they
// were begun at, ties by id, the greatest first. next is zero on the last page.
func (o *Operator) InStage(ctx context.Context, progress Progress, after store.Cursor, limit int) (ops []Operation, next store.Cursor, err error) {
	equal := map[string]any{}
	if progress != "" {
		equal["progress"] = string(progress)
	}
	if ops, err = o.newest(ctx, equal, store.Newest{}, after, limit); err != nil || len(ops) < limit {
		return ops, next, err
	}
	last := ops[len(ops)-1]
	return ops, store.Cursor{At: last.CreatedAt, ID: last.ID}, nil
}

// Begun returns the operations of one person, or of all where who is empty, that were begun in a span of
// time, the newest first as Operations does. The field of the span is set.
func (o *Operator) Begun(ctx context.Context, who string, span store.Newest, after store.Cursor, limit int) ([]Operation, error) {
	equal := map[string]any{}
	if who != "" {
		equal["who"] = who
	}
	return o.newest(ctx, equal, span, after, limit)
}

func (o *Operator) newest(ctx context.Context, equal map[string]any, span store.Newest, after store.Cursor, limit int) (ops []Operation, err error) {
	span.Field = "created_at" // the entries beside them have no such time, and are not found
	page, err := o.Store.Query(ctx, store.Query{Collection: audit.Collection, Equal: equal, Newest: &span, After: after, Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("deadletter: operations: %w", err)
	}
	for _, doc := range page.Documents {
		op, err := OperationOf(doc)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// Run continues an operation until it is over or ctx ends, and returns its progress. Another call, on any
// instance, continues where it stopped; of two at once one gets ErrBusy. Each batch is one commit: the items,
// their messages in the outbox, and the progress. So nothing is done of an operation after it was cancelled.
func (o *Operator) Run(ctx context.Context, id string) (Operation, error) {
	op, err := o.run(ctx, id)
	if errors.Is(err, ErrBusy) {
		if found, lookErr := o.Operation(ctx, id); lookErr == nil && found.Progress.Over() {
			return found, nil // cancelled, or brought to its end by another call
		}
	}
	return op, err
}

func (o *Operator) run(ctx context.Context, id string) (Operation, error) {
	op, err := o.Operation(ctx, id)
	switch {
	case err != nil:
		return Operation{}, err
	case op.Progress.Over():
		return op, nil
	case op.Progress == Waiting:
		return op, fmt.Errorf("%w: the operation waits for the approval of somebody else", ErrRefused)
	case op.Runner != "" && o.Now().Before(op.RunnerUntil):
		return op, ErrBusy
	}
	runner := o.NewID()
	if err := o.commit(ctx, &op, runner, nil); err != nil {
		return op, err
	}
	err = o.work(ctx, &op, runner)
	if err != nil && ctx.Err() == nil {
		return op, err
	}
	// Another call may continue at once, also where this one was cut off.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), hold/3)
	defer cancel()
	if err != nil {
		found, lookErr := o.Operation(last, id)
		if lookErr != nil || found.Runner != runner {
			return op, err
		}
		op = found
	}
	return op, o.commit(last, &op, "", nil)
}

func (o *Operator) work(ctx context.Context, op *Operation, runner string) error {
	left, err := o.matches(ctx, op.Filter, op.CreatedAt)
	if err != nil {
		return err
	}
	left = slices.DeleteFunc(left, func(i Item) bool {
		return op.Kind == Replay && (i.Omitted > 0 || (i.ReplayCount >= MaxReplays && !op.Force))
	})
	for len(left) > 0 && ctx.Err() == nil {
		size := min(batch, len(left))
		if op.Kind == Replay {
			size = min(size, int(op.Rate))
		}
		began := o.Now()
		done, relay, err := o.step(ctx, op, runner, left[:size])
		if err != nil {
			return err
		}
		left = left[size:]
		for _, lane := range relay {
			if o.Relay(ctx, lane) != nil {
				break // the relay's task has the rest
			}
		}
		if op.Kind == Replay && len(left) > 0 {
			if o.Wait(ctx, time.Duration(done)*time.Second/time.Duration(op.Rate)-o.Now().Sub(began)) != nil {
				break
			}
		}
	}
	if len(left) == 0 {
		op.Progress, op.FinishedAt, op.Skipped = Finished, o.Now().UTC().Truncate(time.Microsecond), op.Total-op.Done
	}
	return nil
}

func (o *Operator) step(ctx context.Context, op *Operation, runner string, some []Item) (done int64, lanes []string, err error) {
	q, ok := o.Queue(op.Filter.Queue)
	if !ok {
		return 0, nil, fmt.Errorf("%w: the queue is gone", ErrRefused)
	}
	for {
		now := o.Now().UTC().Truncate(time.Microsecond)
		messages, writes := lane.NewBatch(now), []store.Write{}
		for _, listed := range some {
			item, err := o.Show(ctx, listed.ID)
			if errors.Is(err, ErrUnknown) {
				continue // it has expired
			}
			if err != nil {
				return 0, nil, err
			}
			if item.State != Open || item.Kept.After(op.CreatedAt) || item.Operation == op.ID {
				continue // one that this operation has replayed may have died again by a clock that is behind
			}
			item.State, item.Operation, item.Closed, item.Outcome = kinds[op.Kind].end, op.ID, now, ""
			item.note(Act{Kind: op.Kind, Operation: op.ID, Who: op.Who, Why: op.Why, At: now})
			if op.Kind == Replay {
				again := item.Replay(q)
				item.ReplayCount++
				messages.Add(q.Topic(), item.ID+"-"+again.Attributes[AttrReplayCount], again,
					lane.Source{Queue: item.Queue, Tenant: item.tenant(), EventID: item.EventID})
			}
			writes = append(writes, store.Replace(item.Key(), item.version, item.fields()))
		}
		if len(writes) == 0 {
			return 0, nil, nil
		}
		before := *op
		op.Done += int64(len(writes))
		done = int64(len(writes))
		err := o.commit(ctx, op, runner, slices.Concat(writes, messages.Writes()))
		if err == nil {
			return done, messages.Lanes(), nil
		}
		*op = before
		if !errors.Is(err, ErrBusy) {
			return 0, nil, err
		}
		found, lookErr := o.Operation(ctx, op.ID)
		if lookErr != nil {
			return 0, nil, lookErr
		}
		if found.Runner != runner {
			return 0, nil, ErrBusy
		}
		*op = found
	}
}

// Replay is the message that a replay of the item would publish on its queue.
func (i Item) Replay(q catalog.Queue) contract.Message {
	attributes := maps.Clone(i.Attributes)
	for name := range attributes {
		switch name {
		case AttrReason, AttrStatus, AttrDetail, AttrSourceQueue, AttrSourceSubscription, AttrSourceMessageID, AttrAttempts,
			AttrDeadLetteredAt, contract.AttrDelayTicket, contract.AttrDeliverAt: // it has waited enough
			delete(attributes, name)
		default:
			if strings.HasPrefix(name, brokerPrefix) {
				delete(attributes, name)
			}
		}
	}
	attributes[AttrReplayCount], attributes[AttrReplayOf] = strconv.FormatInt(i.ReplayCount+1, 10), i.ID
	m := contract.Message{Data: i.Data, Attributes: q.Addressed(attributes)}
	if key := attributes[contract.AttrOrderingKey]; q.Ordered() && key != contract.UnknownOrderingKey {
		m.OrderingKey = key
	}
	return m
}

// commit writes the operation at its version, with other writes. The error is ErrBusy where one has changed.
func (o *Operator) commit(ctx context.Context, op *Operation, runner string, others []store.Write) error {
	op.Runner, op.RunnerUntil = runner, time.Time{}
	if runner != "" {
		op.RunnerUntil = o.Now().Add(hold)
	}
	versions, err := o.Store.Commit(ctx, append([]store.Write{store.Replace(op.key(), op.version, op.fields())}, others...))
	switch {
	case err == nil:
		op.version = versions[0]
		return nil
	case errors.Is(err, store.ErrStale), errors.Is(err, store.ErrExists):
		return ErrBusy
	default:
		return fmt.Errorf("deadletter: %s: %w", op.Kind, err)
	}
}
