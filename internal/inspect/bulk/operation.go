// Package bulk owns operations on dead letters: a person chooses some by a filter, and replays, discards or
// completes them. An operation is its own audit record, continues after a crash, and waits for a second
// person if the queue requires it. The package does not change messages.
package bulk

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// kinds says what each kind of operation does.
var kinds = map[deadletter.Kind]string{
	deadletter.Replay: "Publish a queue's dead letters to it again, each under its ordering key, in their " +
		"original order",
	deadletter.Discard: "Close a queue's dead letters for good; they stay on record",
	deadletter.Complete: "Close a queue's dead letters as completed by hand: done elsewhere, as the " +
		"reason says; " +
		"they stay on record",
}

// Progress is the stage of an operation.
type Progress string

// The stages of an operation.
const (
	// Waiting: a second person has to approve it.
	Waiting   Progress = "waiting_for_approval"
	Running   Progress = "running"   // it goes on by itself
	Finished  Progress = "finished"  // it has been through all of its dead letters
	Cancelled Progress = "cancelled" // a person has stopped it; what it had done stays done
	Rejected  Progress = "rejected"  // a second person has refused it, and it has done nothing
)

// Over reports whether an operation in this stage has ended.
func (p Progress) Over() bool { return p == Finished || p == Cancelled || p == Rejected }

// Operation is one replay, discard or completion by hand, and its own audit record.
type Operation struct {
	ID     string          `json:"id" show:"Operation,id" link:"operations"`
	Kind   deadletter.Kind `json:"kind" store:"kind" show:"Kind,less"`
	Filter Filter          `json:"filter" store:",inline" show:"Of"`
	Who    string          `json:"who" store:"who" show:"Who"`
	Why    string          `json:"why" store:"why" show:"Why"`
	// Force also replays items that were replayed MaxReplays times.
	Force bool `json:"force" store:"force"`
	// Rate is the maximum number of items that are replayed per second.
	Rate     int64    `json:"rate" store:"rate" show:"Rate,detail"`
	Progress Progress `json:"progress" store:"progress" show:"Progress"`
	// Total items matched at the start; Done of them were changed, and Skipped were not.
	Total   int64 `json:"total" store:"total" show:"Total"`
	Done    int64 `json:"done" store:"done" show:"Done"`
	Skipped int64 `json:"skipped" store:"skipped" show:"Skipped,detail"`
	// Outcomes counts what became of the items of a replay; nil: it was not requested.
	Outcomes *Outcomes `json:"outcomes,omitempty" show:"Became,detail"`
	// ApprovedBy is the second person, and ApprovedWhy the reason that they gave.
	ApprovedBy  string    `json:"approved_by,omitempty" store:"approved_by" show:"Approved by,less"`
	ApprovedWhy string    `json:"approved_why,omitempty" store:"approved_why,omitzero" show:"Approved why,detail"`
	CreatedAt   time.Time `json:"created_at" store:"created_at" show:"Begun,less"`
	// FinishedAt is when it was finished, cancelled or rejected.
	FinishedAt time.Time `json:"finished_at,omitzero" store:"finished_at,omitzero" show:"Ended,detail"`
	// EndedBy is the person who cancelled or rejected it, and EndedWhy the reason that they gave.
	EndedBy  string `json:"ended_by,omitempty" store:"ended_by,omitzero" show:"Ended by,detail"`
	EndedWhy string `json:"ended_why,omitempty" store:"ended_why,omitzero" show:"Ended why,detail"`
	// Runner is the id of the call that has it to itself until RunnerUntil; empty: no call does.
	Runner      string    `json:"-" store:"runner"`
	RunnerUntil time.Time `json:"-" store:"runner_until,omitzero"`
}

func operationKey(id string) store.Key { return store.Key{Collection: audit.Collection, ID: id} }

// Stands says how far the operation is. goesOn: it runs, or the result of one of its replays is open.
func (op Operation) Stands() (line string, goesOn bool) {
	line = fmt.Sprintf("operation %s: %d of %d", op.ID, op.Done, op.Total)
	if op.Outcomes != nil {
		line += "; " + op.Outcomes.String()
	}
	waits := op.Outcomes == nil || op.Outcomes.Waiting > 0
	return line, op.Progress == Running || op.Kind == deadletter.Replay && op.Progress.Over() && waits
}

// Missed returns an error if some items of a replay are neither processed nor dealt with by others.
func (op Operation) Missed() error {
	switch {
	case op.Kind != deadletter.Replay:
		return nil
	case op.Progress == Waiting:
		return errors.New("nothing is replayed yet: it waits for the approval of somebody else")
	case op.Outcomes == nil || op.Outcomes.DeadAgain+op.Outcomes.Waiting == 0 && op.Progress == Finished:
		return nil
	}
	const again = "look again with billhook operations items"
	return fmt.Errorf("not all are processed: %s; %s %s", op.Outcomes, again, op.ID)
}

// Notes says what a second person can do.
func (op Operation) Notes() []string {
	if op.Progress != Waiting {
		return nil
	}
	approve := "billhook operations approve " + op.ID
	return []string{"It waits for the approval of somebody else: " + approve + ", or reject."}
}

// Matching returns the filter of the items that the operation would change: items stored after its begin are
// excluded.
func (op *Operation) Matching() Filter {
	f, last := op.Filter, op.CreatedAt.Add(time.Microsecond)
	if f.Until.IsZero() || f.Until.After(last) {
		f.Until = last
	}
	return f
}

// OperationOf reads an operation's document.
func OperationOf(doc store.Document) (Operation, error) {
	op := Operation{ID: doc.Key.ID}
	err := store.Decode(doc.Fields, &op)
	if err != nil || op.Kind == "" || op.Progress == "" || op.Filter.Queue == "" || op.Rate < 1 {
		return Operation{}, fmt.Errorf("bulk: operation %s is not readable", doc.Key.ID)
	}
	return op, nil
}

// Operation returns the operation with this id, or the only one whose id begins with it.
func (o *Operator) Operation(ctx context.Context, id string) (Operation, error) {
	return named(ctx, o.Store, operationKey(id), func(doc store.Document) (Operation, error) {
		if audit.IsEntry(doc.Key.ID) { // the collection has both
			return Operation{}, fmt.Errorf("%w: operation %s", ErrUnknown, strconv.Quote(id))
		}
		return OperationOf(doc)
	})
}

// InStage returns a page of the operations in one stage, or of all, the newest first by when they began, then
// by id.
func (o *Operator) InStage(
	ctx context.Context, progress Progress, after store.Cursor, limit int,
) ([]Operation, store.Cursor, error) {
	return store.List(ctx, o.Store, store.Query{
		Collection: audit.Collection, Equal: store.Equals("progress", string(progress)), After: after, Limit: limit,
		Newest: &store.Newest{Field: "created_at"}, // audit entries have no such time, and are not found
	}, OperationOf)
}

// Outcomes counts the items of a replay by what became of them.
type Outcomes struct {
	Processed int64 `json:"processed"`
	DeadAgain int64 `json:"dead_again"`
	// Waiting: their replay has not ended yet.
	Waiting int64 `json:"waiting"`
	// Later: they were closed since in another way, or removed.
	Later    int64 `json:"later"`
	PassedBy int64 `json:"passed_by"`
}

// String lists how many were processed, and the other numbers that are not 0.
func (o Outcomes) String() string {
	parts := []string{fmt.Sprintf("%d processed", o.Processed)}
	for _, more := range []struct {
		of   int64
		text string
	}{
		{o.DeadAgain, "dead again"},
		{o.Waiting, "still waiting"},
		{o.Later, "dealt with since in another way"},
		{o.PassedBy, "passed by"},
	} {
		if more.of > 0 {
			parts = append(parts, fmt.Sprint(more.of, " ", more.text))
		}
	}
	return strings.Join(parts, ", ")
}

// Outcomes counts what became of the items of a replay, in three counting queries.
func (o *Operator) Outcomes(ctx context.Context, op Operation) (Outcomes, error) {
	found := Outcomes{PassedBy: op.Skipped, Later: op.Done}
	// Waiting is counted first. So an item that ends meanwhile is counted twice rather than missed.
	for _, of := range []struct {
		state deadletter.State
		count *int64
	}{
		{deadletter.Replayed, &found.Waiting},
		{deadletter.Open, &found.DeadAgain},
		{deadletter.Processed, &found.Processed},
	} {
		n, err := store.Count(ctx, o.Store, dealtWith(op.ID, of.state, MaxItems))
		if err != nil {
			return Outcomes{}, err
		}
		*of.count, found.Later = n, max(0, found.Later-n)
	}
	return found, nil
}

// Items returns a page, by id, of the items whose latest operation this is: those in one state, or all.
func (o *Operator) Items(
	ctx context.Context, operation string, state deadletter.State, after store.Cursor, limit int,
) ([]deadletter.Item, store.Cursor, error) {
	query := dealtWith(operation, state, limit)
	query.After = after
	return store.List(ctx, o.Store, query, deadletter.ItemOf)
}

func dealtWith(operation string, state deadletter.State, limit int) store.Query {
	equal := store.Equals("operation", operation, "state", string(state))
	return store.Query{Collection: deadletter.Collection, Equal: equal, Limit: limit}
}

// Asked returns operations of a queue that wait for a second person, at most limit, and whether there are
// more.
func Asked(
	ctx context.Context, from store.Querier, queue string, limit int,
) (all []Operation, more bool, err error) {
	equal := store.Equals("progress", string(Waiting), "queue", queue)
	query := store.Query{Collection: audit.Collection, Equal: equal, Limit: limit}
	all, next, err := store.List(ctx, from, query, OperationOf)
	return all, !next.IsZero(), err
}

// DealsWith reports whether the operation would change an open item.
func (op *Operation) DealsWith(item deadletter.Item) bool {
	return op.Matching().selects(item, deadletter.Open)
}
