package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// AuditKind is the kind of the audit's entries about an operation.
const AuditKind = "operation"

// errDecided: the operation is already as the decision wants it, perhaps by a commit of ours whose answer was
// lost.
var errDecided = errors.New("bulk: decided already")

// Begin records a person's operation, which Run performs. The error is ErrChanged if the number of matching
// items is not expect, the total of the preview, and may be one of audit.TwoPeople.
func (o *Operator) Begin(
	ctx context.Context, asked Operation, by audit.Author, expect int,
) (Operation, error) {
	q, ok := o.Catalog.Queue(asked.Filter.Queue)
	op := Operation{
		ID: o.NewID(), Kind: asked.Kind, Filter: asked.Filter, Who: by.String(), Why: asked.Why, Force: asked.Force,
		Rate:     cmp.Or(asked.Rate, Rate),
		Progress: Running, CreatedAt: o.Now().UTC().Truncate(time.Microsecond),
	}
	switch {
	case !ok:
		return Operation{}, ErrNoQueue
	case op.Rate < 0 || op.Rate > MaxRate:
		return Operation{}, fmt.Errorf("%w: the rate must be 1 to %d a second", ErrRefused, MaxRate)
	}
	if q.FourEyes {
		if err := audit.TwoPeople("", by); err != nil {
			return Operation{}, err
		}
		op.Progress = Waiting
	}
	var err error
	if op.Total, err = o.expected(ctx, op.Filter, expect); err != nil {
		return Operation{}, err
	}
	writes, err := audit.Entry{
		Kind: AuditKind, Subject: op.ID, Action: string(op.Kind), Who: op.Who, Why: op.Why, At: op.CreatedAt,
		After: map[string]any{"queue": op.Filter.Queue, "total": op.Total},
	}.With(o.NewID(), store.Create(operationKey(op.ID), store.Encode(&op)))
	if err != nil {
		return Operation{}, err
	}
	if _, err := o.Store.Commit(ctx, writes); err != nil {
		return Operation{}, fmt.Errorf("bulk: begin: %w", err)
	}
	return op, nil
}

// expected returns how many open items match. It refuses if they are not as many as expect, or none.
func (o *Operator) expected(ctx context.Context, f Filter, expect int) (int64, error) {
	total, err := o.Total(ctx, f)
	switch {
	case err != nil:
		return 0, err
	case total != expect:
		return 0, fmt.Errorf("%w: %d items match now, not %d; look at them again", ErrChanged, total, expect)
	case total == 0:
		return 0, fmt.Errorf("%w: nothing matches", ErrRefused)
	}
	return int64(total), nil
}

// change commits the operation as decide has modified it, with the writes that decide returns, by
// store.Update. If decide returns errDecided, it commits nothing and returns the operation.
func (o *Operator) change(
	ctx context.Context, id string, decide func(*Operation) ([]store.Write, error),
) (op Operation, err error) {
	_, err = store.Update(ctx, o.Store, operationKey(id), func(doc store.Document) ([]store.Write, error) {
		if op, err = OperationOf(doc); err != nil {
			return nil, err
		}
		others, err := decide(&op)
		if err != nil {
			return nil, err
		}
		return append(others, store.Replace(doc.Key, doc.Version, store.Encode(&op))), nil
	})
	switch {
	case errors.Is(err, errDecided):
		return op, nil
	case errors.Is(err, store.ErrBusy):
		return op, errBusy
	}
	return op, err
}

// Approve starts a waiting operation. expect and the errors are those of Begin.
func (o *Operator) Approve(ctx context.Context, id string, by audit.Change, expect int) (Operation, error) {
	return o.decide(ctx, id, "approve", by, func(op *Operation) error {
		if op.Progress != Waiting {
			return fmt.Errorf("%w: the operation does not wait for approval", ErrRefused)
		}
		if err := audit.TwoPeople(op.Who, by.Who); err != nil {
			return err
		}
		op.Progress, op.ApprovedBy, op.ApprovedWhy = Running, by.Who.String(), by.Why
		_, err := o.expected(ctx, op.Matching(), expect)
		return err
	})
}

// endings has the ways in which people end an operation early, with the verb for each.
var endings = map[Progress]string{Cancelled: "cancel", Rejected: "reject"}

// End cancels an operation that is not over, so that it changes no further item, or rejects one that waits
// for approval, as a second person. It does nothing if the operation is in that state already.
func (o *Operator) End(ctx context.Context, id string, to Progress, by audit.Change) (Operation, error) {
	return o.decide(ctx, id, endings[to], by, func(op *Operation) error {
		switch {
		case op.Progress == to:
			return errDecided
		case op.Progress.Over():
			return fmt.Errorf("%w: the operation is %s", ErrRefused, op.Progress)
		case to == Rejected && op.Progress != Waiting:
			return fmt.Errorf("%w: the operation does not wait for approval; cancel it", ErrRefused)
		case to == Rejected && audit.SamePerson(by.Who.String(), op.Who):
			return fmt.Errorf("%w: somebody else rejects it; the person who requested it cancels it", ErrRefused)
		}
		op.Progress, op.FinishedAt = to, o.Now().UTC().Truncate(time.Microsecond)
		op.EndedBy, op.EndedWhy = by.Who.String(), by.Why
		return nil
	})
}

// decide commits a person's decision on an operation, with its audit entry. It also ends the runner's hold.
func (o *Operator) decide(
	ctx context.Context, id, action string, by audit.Change, decision func(*Operation) error,
) (Operation, error) {
	op, err := o.Operation(ctx, id)
	if err != nil {
		return Operation{}, err
	}
	return o.change(ctx, op.ID, func(op *Operation) ([]store.Write, error) {
		before := map[string]any{"progress": string(op.Progress), "done": op.Done}
		if err := decision(op); err != nil {
			return nil, err
		}
		op.Runner, op.RunnerUntil = "", time.Time{}
		return audit.Entry{
			Kind: AuditKind, Subject: op.ID, Action: action, At: o.Now().UTC().Truncate(time.Microsecond),
			Before: before, After: map[string]any{"progress": string(op.Progress)},
		}.By(by).With(o.NewID())
	})
}
