package pauses

import (
	"context"
	"fmt"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Notes says who has paused the queue, what its subscription does, and what becomes of its messages.
func (s PauseState) Notes() []string {
	paused := s.Queue + " is not paused"
	if s.Pause != nil {
		paused = fmt.Sprintf("%s is paused since %s by %s: %s", s.Queue, console.Stamp(s.Pause.At), s.Pause.Who,
			s.Pause.Why)
	}
	notes := []string{paused + ". Its subscription " + s.Subscription.Words() + "."}
	if s.Problem != "" {
		notes = append(notes, "Why: "+s.Problem)
	}
	if !s.Granted {
		notes = append(notes, fmt.Sprintf("This worker may not change subscriptions: "+
			"run billhook admin switch %s, with your own credentials.", s.Queue))
	}
	if s.MessageTTLSeconds > 0 {
		notes = append(notes, fmt.Sprintf("A message older than %s is dropped unhandled.", s.MessageTTLSeconds))
	}
	if s.Pause == nil {
		return notes
	}
	notes = append(notes, fmt.Sprintf("What is published waits in Pub/Sub, the first of it until %s; "+
		"what waited before goes earlier.", console.Stamp(s.KeptUntil)))
	if !s.DroppedFrom.IsZero() {
		notes = append(notes, fmt.Sprintf("From %s on the first of what is published now is dropped "+
			"when the queue is resumed.", console.Stamp(s.DroppedFrom)))
	}
	return append(notes, fmt.Sprintf("Terraform refuses to plan until paused_queues names %s.", s.Queue))
}

// Failure says how the subscription differs from what was requested; empty: it does not.
func (s PauseState) Failure() string {
	if s.Settled() {
		return ""
	}
	return fmt.Sprintf("the subscription of %s is %s, and should be %s", s.Queue, s.Subscription,
		wanted(s.Pause != nil))
}

// Of is a request about one queue.
type Of struct {
	ID string `json:"-" path:"id" validate:"required" help:"queue"`
}

// SwitchQueue is a request to pause or resume a queue.
type SwitchQueue struct {
	Of
	console.Change
}

// Operations returns the operations on pauses. find returns a queue by its id or alias.
func (o *Operator) Operations(find func(string) (catalog.Queue, error)) []console.Operation {
	change := func(verb string, pauses bool, summary, help string) console.Operation {
		return console.New(console.Row{
			Name: "queues " + verb, Path: "POST /v1/ops/queues/{id}/" + verb, Needs: console.Reason,
			Before: "pauses show", Summary: summary, Help: help,
		}, func(ctx context.Context, by audit.Author, in SwitchQueue) (PauseState, error) {
			q, err := find(in.ID)
			if err != nil {
				return PauseState{}, err
			}
			return o.Set(ctx, q, pauses, in.By(by))
		})
	}
	return []console.Operation{
		console.New(console.Row{
			Name: "pauses ls", Path: "GET /v1/ops/pauses", Summary: "List the queues that are paused",
			Empty: "No queue is paused. Pause one with queues pause.",
		},
			func(ctx context.Context, _ audit.Author, _ struct{}) (console.List[pause.Pause], error) {
				all, err := pause.List(ctx, o.Store)
				return console.ListOf(all, store.Cursor{}), err
			}),
		console.New(console.Row{
			Name: "pauses show", Path: "GET /v1/ops/queues/{id}/pause",
			Summary: "Show whether a queue is paused, and what its subscription does",
		}, func(ctx context.Context, _ audit.Author, in Of) (PauseState, error) {
			q, err := find(in.ID)
			if err != nil {
				return PauseState{}, err
			}
			return o.Look(ctx, q)
		}),
		change("pause", true,
			"Pause a queue: its messages wait in Pub/Sub, without an attempt, until it is resumed",
			"A push that is under way ends as ever. Done again, it mends what was left half done."),
		change("resume", false, "Resume a paused queue: its messages are pushed again",
			"Done again, it mends what was left half done."),
		console.New(console.Row{
			Name: "queues history", Path: "GET /v1/ops/queues/{id}/changes",
			Summary: "Show who paused and resumed a queue, when and why, newest first",
			Empty:   "Nobody has paused it yet.",
		}, func(ctx context.Context, _ audit.Author, in console.HistoryOf) (console.List[audit.Entry], error) {
			q, err := find(in.ID)
			if err != nil {
				return console.List[audit.Entry]{}, err
			}
			return console.Listed(audit.Subject{Kind: Kind, ID: q.ID}.List(ctx, o.Store, in.After, in.Limit))
		}),
	}
}
