// Package deadletters shows dead letters: what happened to each and what to do, how many there are by reason,
// and what an operation on them would change. It changes nothing.
package deadletters

import (
	"cmp"
	"context"

	"billhook/internal/console"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Reads reads dead letters for people.
type Reads struct {
	events.Reads
	Operator *bulk.Operator
}

// Choice is the part of a request that chooses dead letters.
type Choice struct {
	Queue       string `json:"-" query:"queue" arg:"" help:"queue"`
	Reason      string `json:"-" query:"reason" validate:"omitempty,id" help:"only of this reason"`
	EventType   string `json:"-" query:"type" validate:"omitempty,id" help:"only of this event type"`
	EventID     string `json:"-" query:"event_id" validate:"omitempty,id" help:"only of this event"`
	OrderingKey string `json:"-" query:"key" validate:"omitempty,uid" help:"only of this ordering key"`
	console.Span
}

// Chosen is a Choice that may also name dead letters by their ids.
type Chosen struct {
	Choice
	Items []string `json:"-" query:"items" arg:"id" help:"only these, by their ids"`
}

// ListDeadLetters requests a page of dead letters.
type ListDeadLetters struct {
	Chosen
	State string `json:"-" query:"state" validate:"oneof=open replayed processed corrected discarded completed all" default:"open" help:"the state, or all"`
	console.Page
}

// OneDeadLetter is a request about one dead letter.
type OneDeadLetter struct {
	ID string `json:"-" path:"id" validate:"required" help:"id"`
}

// LookAtPayload requests the payload of a dead letter.
type LookAtPayload struct {
	OneDeadLetter
	console.Change
}

// Operations returns the operations that show dead letters to people before they decide.
func (a Reads) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "dlq ls", Path: "GET /v1/ops/dead-letters", Beside: []string{"dlq reasons"},
			Summary: "List the dead letters of one queue or all, newest first",
			Empty:   "No dead letter is in this list. A message comes here when it cannot be handled.",
		}, a.list),
		console.New(console.Row{
			Name: "dlq reasons", Path: "GET /v1/ops/dead-letters/reasons",
			Summary: "Count the open dead letters of one queue or all, by reason",
			Empty:   "No dead letter is open. A message comes here when it cannot be handled.",
		}, func(ctx context.Context, _ audit.Author, in Choice) (console.List[Reason], error) {
			f, err := a.choose(ctx, Chosen{Choice: in})
			if err != nil {
				return console.List[Reason]{}, err
			}
			all, err := a.reasons(ctx, f)
			return console.ListOf(all, store.Cursor{}), err
		}),
		console.New(console.Row{
			Name: "dlq show", Path: "GET /v1/ops/dead-letters/{id}",
			Summary: "Show what happened to a dead letter, what to do, and what people did with it",
		}, func(ctx context.Context, _ audit.Author, in OneDeadLetter) (Kept, error) {
			item, err := a.Operator.Show(ctx, in.ID)
			kept := a.kept(item)
			if err == nil {
				kept.Later, err = a.Later(ctx, item)
			}
			return kept, err
		}),
		console.New(console.Row{
			Name: "dlq payload", Path: "POST /v1/ops/dead-letters/{id}/payload", Needs: console.Reason, Once: true,
			Summary: "Show the minimized payload of a dead letter; the audit says who has looked, and why",
		}, func(ctx context.Context, by audit.Author, in LookAtPayload) (Kept, error) {
			item, err := a.Operator.Show(ctx, in.ID)
			if err == nil && len(item.Data) == 0 {
				err = events.ErrUnkept
			}
			if err != nil {
				return Kept{}, err
			}
			kept, shown := a.kept(item), events.MessageOf(item.Message())
			kept.Data, kept.Base64 = shown.Data, shown.Base64
			looked := map[string]any{"queue": item.Queue, "event_id": item.EventID, "dead_letters": []any{item.ID}}
			return kept, a.Looked(ctx, in.By(by), item.ID, looked)
		}),
		console.New(console.Row{
			Name: "dlq preview", Path: "GET /v1/ops/dead-letters/preview",
			Summary: "Show which dead letters an operation would change, and what a worker would do with each now",
		}, func(ctx context.Context, _ audit.Author, in Chosen) (Preview, error) {
			f, err := a.choose(ctx, in)
			if err == nil && f.Queue == "" {
				err = bulk.ErrNoQueue
			}
			if err != nil {
				return Preview{}, err
			}
			return a.Preview(ctx, f)
		}),
		console.New(console.Row{
			Name: "operations preview", Path: "GET /v1/ops/operations/{id}/preview",
			Summary: "Show what an operation that waits for approval would change if it were approved now",
		}, func(ctx context.Context, _ audit.Author, in bulk.OneOperation) (Preview, error) {
			op, err := a.Operator.Operation(ctx, in.ID)
			if err != nil {
				return Preview{}, err
			}
			return a.Preview(ctx, op.Matching())
		}),
	}
}

func (a Reads) list(
	ctx context.Context, _ audit.Author, in ListDeadLetters,
) (all console.List[deadletter.Item], err error) {
	f, err := a.choose(ctx, in.Chosen)
	state := console.AllOr[deadletter.State](in.State)
	if err == nil && cmp.Or(f.Queue, f.EventID, f.OrderingKey, string(state)) == "" {
		err = console.Refuse(console.Malformed, "state_invalid",
			"Of all queues the list has one state; for all states name a queue, an event or a key.")
	}
	if err != nil {
		return all, err
	}
	return console.Listed(a.Operator.List(ctx, f, state, in.After, in.Limit))
}

func (a Reads) choose(ctx context.Context, in Chosen) (bulk.Filter, error) {
	return a.Operator.Choose(ctx, bulk.Filter{
		Queue: in.Queue, Reason: in.Reason, EventType: in.EventType, EventID: in.EventID,
		OrderingKey: in.OrderingKey,
		Since:       in.Since.Time, Until: in.Until.Time, Items: in.Items,
	})
}
