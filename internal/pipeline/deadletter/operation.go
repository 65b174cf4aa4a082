package deadletter

import (
	"fmt"
	"time"

	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Kind is what an operation does.
type Kind string

// The kinds.
const (
	Replay  Kind = "replay"
	Discard Kind = "discard"
	// Complete: a person has done by hand what the message was for.
	Complete Kind = "complete"
)

// Kinds are those of an operation.
var Kinds = []Kind{Replay, Discard, Complete}

var ends = map[Kind]State{Replay: Replayed, Discard: Discarded, Complete: Completed}

// Progress is where an operation stands.
type Progress string

// The stages of an operation.
const (
	// Waiting: a second person has to approve it.
	Waiting  Progress = "waiting_for_approval"
	Running  Progress = "running"
	Finished Progress = "finished"
	// Cancelled: a person has stopped it. What it had done stays done.
	Cancelled Progress = "cancelled"
	// Rejected: a second person has refused it. It has done nothing.
	Rejected Progress = "rejected"
)

// Over reports whether an operation of this progress does nothing any more.
func (p Progress) Over() bool { return p == Finished || p == Cancelled || p == Rejected }

// Operation is one replay, discard or completion by hand, and its own audit.
type Operation struct {
	ID     string `json:"id"`
	Kind   Kind   `json:"kind" store:"kind"`
	Filter Filter `json:"filter" store:",inline"`
	Who    string `json:"who" store:"who"`
	Why    string `json:"why" store:"why"`
	// Force replays also what has been replayed MaxReplays times.
	Force bool `json:"force" store:"force"`
	// Rate is how many items a second are replayed at most.
	Rate     int64    `json:"rate" store:"rate"`
	Progress Progress `json:"progress" store:"progress"`
	// Total matched at the start; Done of them are dealt with, Skipped passed by.
	Total   int64 `json:"total" store:"total"`
	Done    int64 `json:"done" store:"done"`
	Skipped int64 `json:"skipped" store:"skipped"`
	// ApprovedBy is the second person, and ApprovedWhy the reason that they gave.
	ApprovedBy  string    `json:"approved_by,omitempty" store:"approved_by"`
	ApprovedWhy string    `json:"approved_why,omitempty" store:"approved_why,omitzero"`
	CreatedAt   time.Time `json:"created_at" store:"created_at"`
	// FinishedAt is when it was finished, cancelled or rejected.
	FinishedAt time.Time `json:"finished_at,omitzero" store:"finished_at,omitzero"`
	// EndedBy has cancelled or rejected it, and EndedWhy is the reason that they gave.
	EndedBy  string `json:"ended_by,omitempty" store:"ended_by,omitzero"`
	EndedWhy string `json:"ended_why,omitempty" store:"ended_why,omitzero"`
	// Runner has the operation to itself until RunnerUntil; empty: there is none.
	Runner      string    `json:"-" store:"runner"`
	RunnerUntil time.Time `json:"-" store:"runner_until,omitzero"`

	version store.Version
}

func (op *Operation) key() store.Key { return store.Key{Collection: audit.Collection, ID: op.ID} }

func (op *Operation) fields() map[string]any { return store.Encode(op) }

// Matching is the filter of what the operation would deal with: what is kept since it was begun is not for it.
func (op *Operation) Matching() Filter {
	f, last := op.Filter, op.CreatedAt.Add(time.Microsecond)
	if f.Until.IsZero() || f.Until.After(last) {
		f.Until = last
	}
	return f
}

// OperationOf reads an operation's document.
func OperationOf(doc store.Document) (Operation, error) {
	op := Operation{ID: doc.Key.ID, version: doc.Version}
	if err := store.Decode(doc.Fields, &op); err != nil || op.Kind == "" || op.Progress == "" || op.Filter.Queue == "" || op.Rate < 1 {
		return Operation{}, fmt.Errorf("deadletter: operation %s is not readable", doc.Key.ID)
	}
	return op, nil
}
