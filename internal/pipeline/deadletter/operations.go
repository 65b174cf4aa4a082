package deadletter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Choice is the part of a request that chooses dead letters.
type Choice struct {
	Queue       string `json:"-" query:"queue" arg:"" help:"queue"`
	Reason      string `json:"-" query:"reason" validate:"omitempty,id" help:"only of this reason"`
	EventType   string `json:"-" query:"type" validate:"omitempty,id" help:"only of this event type"`
	EventID     string `json:"-" query:"event_id" validate:"omitempty,id" help:"only of this event"`
	OrderingKey string `json:"-" query:"key" validate:"omitempty,uid" help:"only of this ordering key"`
	console.Span
}

// Chosen is a Choice that may name some.
type Chosen struct {
	Choice
	Items []string `json:"-" query:"items" arg:"id" help:"only these, by their ids"`
}

// ListDeadLetters asks for dead letters.
type ListDeadLetters struct {
	Chosen
	State string `json:"-" query:"state" validate:"oneof=open replayed processed corrected discarded completed all" default:"open" help:"the state, or all"`
	console.Page
}

// OneDeadLetter asks for a dead letter.
type OneDeadLetter struct {
	ID string `json:"-" path:"id" validate:"required" help:"id"`
}

// LookAtPayload asks for the payload of a dead letter.
type LookAtPayload struct {
	OneDeadLetter
	console.Change
}

// Begin asks for an operation.
type Begin struct {
	Filter
	Expect int   `json:"expect" expects:"total" help:"the total of the preview"`
	Rate   int64 `json:"rate" default:"50" help:"how many to replay a second, at most; 0 means 50"`
	Force  bool  `json:"force" help:"also dead letters that were replayed too often"`
	console.Change
}

// ListOfOperations asks for the operations of a stage.
type ListOfOperations struct {
	Progress string `json:"-" query:"progress" validate:"omitempty,oneof=waiting_for_approval running finished cancelled rejected" help:"only operations with this progress"`
	console.Page
}

// OneOperation asks for an operation.
type OneOperation struct {
	ID string `json:"-" path:"id" validate:"required" help:"operation"`
}

// ListOfItems asks for the dead letters that an operation was the last to deal with.
type ListOfItems struct {
	OneOperation
	State string `json:"-" query:"state" validate:"omitempty,oneof=open replayed processed corrected discarded completed all" help:"only those in this state"`
	console.Page
}

// Approve asks to approve an operation.
type Approve struct {
	OneOperation
	Expect int `json:"expect" expects:"total" help:"the total of the operation's preview"`
	console.Change
}

// End asks to cancel an operation, or to reject it.
type End struct {
	OneOperation
	console.Change
}

// ErrNoQueue: the catalog has no such queue.
var ErrNoQueue = errors.New("deadletter: no such queue")

// ErrUnkept: nothing is kept of the payload.
var ErrUnkept = errors.New("deadletter: no payload is kept")

// Unkept is how ErrUnkept is answered.
var Unkept = console.Refusal{
	Of: ErrUnkept, Kind: console.Absent, Code: "payload_not_kept",
	Detail: "No payload is kept here. A message that waits has its own, and so has a dead letter, unless it was too large: then the hold subscription has it.",
}

// PayloadKind is the kind of the audit's entries about payloads that somebody has looked at.
const PayloadKind = "payload"

// Failures are how the errors of the operator are answered.
var Failures = []console.Refusal{
	{Of: ErrUnknown, Kind: console.Absent, Code: "unknown", Detail: "There is nothing of that id."},
	{Of: ErrChanged, Kind: console.Conflict, Code: "changed", Detail: ""},
	{Of: ErrRefused, Kind: console.Refused, Code: "refused", Detail: ""},
	{Of: ErrBusy, Kind: console.Conflict, Code: "busy", Detail: "The operation is being run; ask again."},
	{Of: ErrNoQueue, Kind: console.Absent, Code: "queue_unknown", Detail: "Name a queue of the catalog, or its dead letters, by id or alias."},
	Unkept,
}

const queriesAtOnce = 8

// runTime is how long one request runs an operation. The client asks again.
const runTime = 20 * time.Second

// Operations are what people do with dead letters, and with the operations on them.
func (o *Operator) Operations(c *catalog.Catalog) []console.Operation {
	return slices.Concat(o.deadLetters(c), o.changes(c), o.operations())
}

func (o *Operator) deadLetters(c *catalog.Catalog) []console.Operation {
	return []console.Operation{
		console.New(console.Row{
			Name: "dlq ls", Path: "GET /v1/ops/dead-letters", Errors: Failures, Beside: []string{"dlq reasons"},
			Summary: "List the dead letters of one queue or all, newest first",
			Empty:   "No dead letter is in this list. A message comes here when it cannot be handled.",
		}, func(ctx context.Context, _ audit.Author, in ListDeadLetters) (console.List[Item], error) {
			f, err := o.Chosen(ctx, c, in.Chosen)
			state := console.AllOr[State](in.State)
			if err == nil && f.Queue == "" && state == "" {
				err = console.Refuse(console.Malformed, "state_invalid", "Of all queues the list has one state; name a queue for all states.")
			}
			if err != nil {
				return console.List[Item]{}, err
			}
			return console.Listed(o.List(ctx, f, state, in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "dlq reasons", Path: "GET /v1/ops/dead-letters/reasons", Errors: Failures,
			Summary: "Count the open dead letters of one queue or all, by reason", Empty: "No dead letter is open. A message comes here when it cannot be handled.",
		}, func(ctx context.Context, _ audit.Author, in Choice) (console.List[Reason], error) {
			f, err := o.Chosen(ctx, c, Chosen{Choice: in})
			if err != nil {
				return console.List[Reason]{}, err
			}
			all, err := o.reasons(ctx, c, f)
			return console.ListOf(all, store.Cursor{}), err
		}),
		console.New(console.Row{
			Name: "dlq show", Path: "GET /v1/ops/dead-letters/{id}", Errors: Failures,
			Summary: "Show what happened to a dead letter, what to do, and what people did with it",
		}, func(ctx context.Context, _ audit.Author, in OneDeadLetter) (Kept, error) {
			item, err := o.Show(ctx, in.ID)
			kept := o.kept(item)
			if err == nil {
				kept.Later, err = o.Later(ctx, item)
			}
			return kept, err
		}),
		console.New(console.Row{
			Name: "dlq payload", Path: "POST /v1/ops/dead-letters/{id}/payload", Needs: console.Reason, Once: true, Errors: Failures,
			Summary: "Show the minimized payload of a dead letter; the audit says who has looked, and why",
		}, func(ctx context.Context, by audit.Author, in LookAtPayload) (Kept, error) { return o.look(ctx, in, by) }),
	}
}

func (o *Operator) changes(c *catalog.Catalog) (all []console.Operation) {
	for _, kind := range Kinds {
		all = append(all, console.New(console.Row{
			Name: "dlq " + string(kind), Path: "POST /v1/ops/dead-letters/" + string(kind), Summary: kinds[kind].summary,
			Needs: console.Reason, Created: true, Before: "dlq preview", Follow: "operations run", Errors: Failures,
		}, func(ctx context.Context, by audit.Author, in Begin) (op Operation, err error) {
			if in.Queue, err = queueOf(c, in.Queue); err != nil {
				return op, err
			}
			if in.Items, err = o.whole(ctx, in.Items); err != nil {
				return op, err
			}
			return o.Begin(ctx, Operation{Kind: kind, Filter: in.Filter, Why: in.Why, Force: in.Force, Rate: in.Rate}, by, in.Expect)
		}))
	}
	return all
}

func (o *Operator) operations() []console.Operation {
	ending := func(verb, summary string, do func(ctx context.Context, id string, by audit.Change) (Operation, error)) console.Operation {
		return console.New(console.Row{
			Name: "operations " + verb, Path: "POST /v1/ops/operations/{id}/" + verb, Needs: console.Reason,
			Summary: summary, Before: "operations show", Errors: Failures,
		}, func(ctx context.Context, by audit.Author, in End) (Operation, error) {
			return do(ctx, in.ID, in.By(by))
		})
	}
	return []console.Operation{
		console.New(console.Row{
			Name: "operations ls", Path: "GET /v1/ops/operations", Errors: Failures,
			Summary: "List operations on dead letters, newest first: who, what, why, and the progress",
			Empty:   "No operation is in this list. A replay, a discard or a completion of dead letters begins one.",
		}, func(ctx context.Context, _ audit.Author, in ListOfOperations) (console.List[Operation], error) {
			return console.Listed(o.InStage(ctx, Progress(in.Progress), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "operations show", Path: "GET /v1/ops/operations/{id}", Errors: Failures,
			Summary: "Show an operation on dead letters, and the results of what it replayed", Beside: []string{"operations items"},
		}, func(ctx context.Context, _ audit.Author, in OneOperation) (Operation, error) {
			op, err := o.Operation(ctx, in.ID)
			if err != nil || op.Kind != Replay {
				return op, err
			}
			outcomes, err := o.Outcomes(ctx, op)
			op.Outcomes = &outcomes
			return op, err
		}),
		console.New(console.Row{
			Name: "operations items", Path: "GET /v1/ops/operations/{id}/items", Errors: Failures,
			Summary: "List the dead letters whose latest operation this is", Empty: "It has changed no dead letter, or later operations have changed them since.",
		}, func(ctx context.Context, _ audit.Author, in ListOfItems) (console.List[Item], error) {
			if op, err := o.Operation(ctx, in.ID); err == nil {
				in.ID = op.ID // else it is that of no operation, which has dealt with nothing
			} else if !errors.Is(err, ErrUnknown) {
				return console.List[Item]{}, err
			}
			return console.Listed(o.Items(ctx, in.ID, console.AllOr[State](in.State), in.After, in.Limit))
		}),
		console.New(console.Row{
			Name: "operations approve", Path: "POST /v1/ops/operations/{id}/approve", Needs: console.TwoPeople,
			Summary: "Approve an operation that another person started", Before: "operations preview", Follow: "operations run", Beside: []string{"operations show"}, Errors: Failures,
			Help: "It starts now. It records your name and reason beside those of the person who asked for it.",
		}, func(ctx context.Context, by audit.Author, in Approve) (Operation, error) {
			return o.Approve(ctx, in.ID, in.By(by), in.Expect)
		}),
		ending("reject", "Reject an operation that another person started and that waits for approval", o.Reject),
		ending("cancel", "Cancel an operation; what it has done stays done", o.Cancel),
		console.New(console.Row{
			Name: "operations run", Path: "POST /v1/ops/operations/{id}/run", Needs: console.Act, Before: "operations show", Follow: "operations run", Errors: Failures,
			Summary: "Continue an operation now, for some seconds; otherwise a task continues it every minute",
		}, func(ctx context.Context, _ audit.Author, in OneOperation) (Operation, error) {
			ctx, cancel := context.WithTimeout(ctx, runTime)
			defer cancel()
			return o.Run(ctx, in.ID)
		}),
	}
}

// whole are the ids that these begin; of what is not there they stay.
func (o *Operator) whole(ctx context.Context, ids []string) (whole []string, err error) {
	for _, id := range ids {
		item, err := o.Show(ctx, id)
		if err != nil && !errors.Is(err, ErrUnknown) {
			return nil, err
		}
		whole = append(whole, cmp.Or(item.ID, id))
	}
	return whole, nil
}

// Chosen is the choice as an operation takes it, with whole ids.
func (o *Operator) Chosen(ctx context.Context, c *catalog.Catalog, in Chosen) (f Filter, err error) {
	f = Filter{
		Queue: in.Queue, Reason: in.Reason, EventType: in.EventType, EventID: in.EventID, OrderingKey: in.OrderingKey,
		Since: in.Since.Time, Until: in.Until.Time, Items: in.Items,
	}
	if f.Queue != "" {
		f.Queue, err = queueOf(c, f.Queue)
	}
	if err == nil && len(f.Items) <= MaxChosen {
		f.Items, err = o.whole(ctx, f.Items)
	}
	return f, err
}

func queueOf(of *catalog.Catalog, name string) (string, error) {
	q, ok := of.DeadLetters(name)
	if !ok {
		return "", ErrNoQueue
	}
	return q.ID, nil
}

// reasons counts the open items of a filter by their reasons, of one queue or of all that keep theirs.
func (o *Operator) reasons(ctx context.Context, c *catalog.Catalog, f Filter) ([]Reason, error) {
	counted := make([][]Reason, len(c.Queues))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(queriesAtOnce)
	for i, q := range c.Queues {
		if q.DeadLetter.Drop || (f.Queue != "" && f.Queue != q.ID) {
			continue
		}
		one := f
		one.Queue = q.ID
		group.Go(func() (err error) { counted[i], err = o.Reasons(ctx, one); return err })
	}
	err := group.Wait()
	all := slices.Concat(counted...)
	slices.SortStableFunc(all, func(a, b Reason) int { return cmp.Compare(b.Count, a.Count) })
	return all, err
}

// look returns a dead letter with its payload once the audit says who looks at it, and why.
func (o *Operator) look(ctx context.Context, in LookAtPayload, by audit.Author) (Kept, error) {
	item, err := o.Show(ctx, in.ID)
	switch {
	case err != nil:
		return Kept{}, err
	case len(item.Data) == 0:
		return Kept{}, ErrUnkept
	}
	looked := map[string]any{"queue": item.Queue, "event_id": item.EventID, "dead_letters": []any{item.ID}}
	entry, err := audit.Entry{
		Kind: PayloadKind, Subject: item.ID, Action: "look", Who: by.String(), Why: in.Why, At: o.Now(), After: looked,
	}.Write(o.NewID())
	if err != nil {
		return Kept{}, err
	}
	if _, err := o.Store.Commit(ctx, []store.Write{entry}); err != nil {
		return Kept{}, err
	}
	kept := o.kept(item)
	if data := jsontext.Value(item.Data); data.IsValid(jsontext.AllowDuplicateNames(true)) {
		kept.Data = data
	} else {
		kept.Base64 = item.Data
	}
	return kept, nil
}
