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
	"billhook/internal/audit"
	"billhook/internal/contract"
	"billhook/internal/delayed"
	"billhook/internal/outbox"
	"billhook/internal/store"
)

// Audit holds the operations: who did what to which dead letters, when, why, and what
// came of it. They are kept, beside the entries of the audit package.
const Audit = audit.Collection

// Kind is what an operation does.
type Kind string

// The kinds.
const (
	Replay  Kind = "replay"
	Discard Kind = "discard"
)

// Progress is where an operation stands.
type Progress string

// The stages of an operation.
const (
	// Waiting: a second person has to approve it.
	Waiting  Progress = "waiting_for_approval"
	Running  Progress = "running"
	Finished Progress = "finished"
)

// The bounds of an operation.
const (
	// MaxItems is how many items one operation may touch.
	MaxItems = 10_000
	// MaxReplays is after how many replays an item is left alone, unless forced.
	MaxReplays = 3
	// MaxRate is how many items a second a replay may be asked for.
	MaxRate = 1000
	// batch is how many items one commit deals with.
	batch = 25
	// hold is how long a runner has an operation to itself without a sign of life.
	hold = 15 * time.Second
)

// The errors of the operator, beside the store's.
var (
	// ErrUnknown: there is no such operation or item.
	ErrUnknown = errors.New("deadletter: not known")
	// ErrRefused is wrapped by every refusal of what was asked; its text says why.
	ErrRefused = errors.New("deadletter: refused")
	// ErrBusy: somebody else is running the operation.
	ErrBusy = errors.New("deadletter: the operation is being run")
)

// Filter selects open items of one queue. Empty fields select everything.
type Filter struct {
	Queue       string    `json:"queue"`
	Reason      string    `json:"reason,omitempty"`
	EventType   string    `json:"event_type,omitempty"`
	EventID     string    `json:"event_id,omitempty"`
	OrderingKey string    `json:"ordering_key,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	// Item is the id of one item.
	Item string `json:"item,omitempty"`
}

func (f Filter) equal(state State) map[string]any {
	equal := map[string]any{"queue": f.Queue}
	for name, value := range map[string]string{
		"reason": f.Reason, "event_type": f.EventType, "event_id": f.EventID, "ordering_key": f.OrderingKey, "state": string(state),
	} {
		if value != "" {
			equal[name] = value
		}
	}
	return equal
}

// takes reports what the query cannot: the times and the one item.
func (f Filter) takes(i Item) bool {
	at := i.Kept
	if i.DeadLettered != nil {
		at = *i.DeadLettered
	}
	return (f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until)) && (f.Item == "" || f.Item == i.ID)
}

// OperatorStore is what the operator needs of the database; see the store package.
type OperatorStore interface {
	Get(ctx context.Context, key store.Key) (store.Document, error)
	Commit(ctx context.Context, writes []store.Write) ([]store.Version, error)
	Query(ctx context.Context, query store.Query) (store.Page, error)
}

// Operator looks at dead letters and deals with them.
type Operator struct {
	Store OperatorStore
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

// List returns a page of items, in the order of their ids, open ones unless another
// state is asked for. after is the id to go on behind; next is empty on the last page.
func (o *Operator) List(ctx context.Context, f Filter, state State, after string, limit int) (items []Item, next string, err error) {
	for len(items) < limit {
		page, err := o.Store.Query(ctx, store.Query{Collection: Collection, Equal: f.equal(state), After: after, Limit: limit})
		if err != nil {
			return nil, "", fmt.Errorf("deadletter: list: %w", err)
		}
		for _, doc := range page.Documents {
			item, err := ItemOf(doc)
			if err != nil {
				return nil, "", err
			}
			if len(items) < limit && f.takes(item) && o.Now().Before(item.Expires) {
				items = append(items, item)
				after = item.ID
			} else if len(items) == limit {
				return items, after, nil
			}
		}
		if page.Next == "" {
			return items, "", nil
		}
		after = page.Next
	}
	return items, after, nil
}

// Show returns one item.
func (o *Operator) Show(ctx context.Context, id string) (Item, error) {
	doc, err := o.Store.Get(ctx, store.Key{Collection: Collection, ID: id})
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return Item{}, fmt.Errorf("%w: item %s", ErrUnknown, strconv.Quote(id))
	case err != nil:
		return Item{}, fmt.Errorf("deadletter: show: %w", err)
	}
	return ItemOf(doc)
}

// Preview is exactly what an operation would touch, if nothing changed.
type Preview struct {
	Total    int            `json:"total"`
	ByReason map[string]int `json:"by_reason"`
	ByType   map[string]int `json:"by_type"`
	// Keys is how many ordering keys they have.
	Keys int `json:"keys"`
	// Looping were replayed MaxReplays times and are passed by without force; Omitted
	// were too large to keep and cannot be replayed from here.
	Looping int        `json:"looping"`
	Omitted int        `json:"omitted"`
	Oldest  *time.Time `json:"oldest,omitempty"`
	Newest  *time.Time `json:"newest,omitempty"`
}

// Preview reads what matches, without touching it.
func (o *Operator) Preview(ctx context.Context, f Filter) (Preview, error) {
	matched, err := o.matches(ctx, f, time.Time{})
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Total: len(matched), ByReason: map[string]int{}, ByType: map[string]int{}}
	keys := map[string]bool{}
	for _, m := range matched {
		p.ByReason[m.reason]++
		p.ByType[m.eventType]++
		keys[m.key] = true
		if m.replays >= MaxReplays {
			p.Looping++
		}
		if m.omitted {
			p.Omitted++
		}
		if p.Oldest == nil || m.died.Before(*p.Oldest) {
			p.Oldest = &m.died
		}
		if p.Newest == nil || m.died.After(*p.Newest) {
			p.Newest = &m.died
		}
	}
	p.Keys = len(keys)
	if p.Total == 0 {
		return p, o.corrected(ctx, f)
	}
	return p, nil
}

// match is as much of an item as an operation remembers of it.
type match struct {
	id, key, reason, eventType string
	first, died                time.Time
	message                    uint64
	replays                    int64
	omitted                    bool
}

// matches reads the open items of a filter in their original order: by the time of
// their first publishing, then by their message id, which rises. Those kept after a
// given time are left out.
func (o *Operator) matches(ctx context.Context, f Filter, before time.Time) ([]match, error) {
	var all []match
	for after := ""; ; {
		items, next, err := o.List(ctx, f, Open, after, 100)
		if err != nil {
			return nil, err
		}
		for _, i := range items {
			if !before.IsZero() && i.Kept.After(before) {
				continue
			}
			m := match{id: i.ID, key: i.OrderingKey, reason: i.Reason, eventType: i.EventType, first: i.Kept, died: i.Kept, replays: i.ReplayCount, omitted: i.Omitted > 0}
			if i.FirstPublished != nil {
				m.first = *i.FirstPublished
			}
			if i.DeadLettered != nil {
				m.died = *i.DeadLettered
			}
			m.message, _ = strconv.ParseUint(i.SourceMessageID, 10, 64)
			all = append(all, m)
		}
		if len(all) > MaxItems {
			return nil, fmt.Errorf("%w: more than %d items match; narrow the filter", ErrRefused, MaxItems)
		}
		if next == "" {
			break
		}
		after = next
	}
	slices.SortFunc(all, func(a, b match) int {
		return cmp.Or(a.first.Compare(b.first), cmp.Compare(a.message, b.message), strings.Compare(a.id, b.id))
	})
	return all, nil
}

// Operation is one replay or discard, and its own audit.
type Operation struct {
	ID     string `json:"id"`
	Kind   Kind   `json:"kind"`
	Filter Filter `json:"filter"`
	Who    string `json:"who"`
	Why    string `json:"why"`
	// Force replays also what has been replayed MaxReplays times.
	Force bool `json:"force"`
	// Rate is how many items a second are replayed at most.
	Rate     int64    `json:"rate"`
	Progress Progress `json:"progress"`
	// Total matched at the start; Done of them are dealt with, Skipped passed by.
	Total      int64      `json:"total"`
	Done       int64      `json:"done"`
	Skipped    int64      `json:"skipped"`
	ApprovedBy string     `json:"approved_by,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`

	runner      string
	runnerUntil time.Time
	version     store.Version
}

// Begin records an operation. expect is the number that its preview gave: where that
// is no longer what matches, it is refused. Nothing is touched before Run.
func (o *Operator) Begin(ctx context.Context, op Operation, expect int) (Operation, error) {
	q, ok := o.Queue(op.Filter.Queue)
	switch {
	case !ok:
		return Operation{}, fmt.Errorf("%w: no queue of that name", ErrRefused)
	case op.Kind != Replay && op.Kind != Discard:
		return Operation{}, fmt.Errorf("%w: the kind must be replay or discard", ErrRefused)
	case strings.TrimSpace(op.Why) == "" && op.Kind == Discard:
		return Operation{}, fmt.Errorf("%w: a discard needs a reason", ErrRefused)
	case len(op.Why) > 1000 || len(op.Who) > 200:
		return Operation{}, fmt.Errorf("%w: reason or name too long", ErrRefused)
	case op.Rate < 0 || op.Rate > MaxRate:
		return Operation{}, fmt.Errorf("%w: the rate must be 1 to %d a second", ErrRefused, MaxRate)
	}
	op.Rate = cmp.Or(op.Rate, 50)
	preview, err := o.Preview(ctx, op.Filter)
	switch {
	case err != nil:
		return Operation{}, err
	case preview.Total != expect:
		return Operation{}, fmt.Errorf("%w: %d items match now, not %d; look at them again", ErrRefused, preview.Total, expect)
	case preview.Total == 0:
		return Operation{}, fmt.Errorf("%w: nothing matches", ErrRefused)
	}
	op.ID, op.Total, op.CreatedAt, op.Progress = o.NewID(), int64(preview.Total), o.Now().UTC().Truncate(time.Microsecond), Running
	op.Done, op.Skipped, op.ApprovedBy, op.FinishedAt = 0, 0, "", nil
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

// Approve lets a waiting operation run. The second pair of eyes is somebody else's.
func (o *Operator) Approve(ctx context.Context, id, who string) (Operation, error) {
	op, err := o.Operation(ctx, id)
	switch {
	case err != nil:
		return Operation{}, err
	case op.Progress != Waiting:
		return Operation{}, fmt.Errorf("%w: the operation does not wait for approval", ErrRefused)
	case who == "" || who == op.Who:
		return Operation{}, fmt.Errorf("%w: somebody else has to approve it", ErrRefused)
	}
	op.Progress, op.ApprovedBy = Running, who
	_, err = o.Store.Commit(ctx, []store.Write{store.Update(op.key(), op.version, op.fields())})
	if errors.Is(err, store.ErrStale) {
		return Operation{}, ErrBusy
	}
	return op, err
}

// Operation returns one operation.
func (o *Operator) Operation(ctx context.Context, id string) (Operation, error) {
	doc, err := o.Store.Get(ctx, store.Key{Collection: Audit, ID: id})
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid), err == nil && audit.IsEntry(id):
		return Operation{}, fmt.Errorf("%w: operation %s", ErrUnknown, strconv.Quote(id))
	case err != nil:
		return Operation{}, fmt.Errorf("deadletter: operation: %w", err)
	}
	return operationOf(doc)
}

// Operations returns a page of operations, of one stage or all.
func (o *Operator) Operations(ctx context.Context, progress Progress, after string, limit int) (ops []Operation, next string, err error) {
	query := store.Query{Collection: Audit, After: after, Limit: limit}
	if progress != "" {
		query.Equal = map[string]any{"progress": string(progress)}
	}
	page, err := o.Store.Query(ctx, query)
	if err != nil {
		return nil, "", fmt.Errorf("deadletter: operations: %w", err)
	}
	for _, doc := range page.Documents {
		if audit.IsEntry(doc.Key.ID) {
			return ops, "", nil // entries come behind all operations
		}
		op, err := operationOf(doc)
		if err != nil {
			return nil, "", err
		}
		ops = append(ops, op)
	}
	return ops, page.Next, nil
}

// Run goes on with an operation until it is finished or ctx ends, and returns how far
// it is. Whoever calls it again, on whatever instance, goes on where it stopped. Two
// at once: one is told ErrBusy, and were both to run, the operation's version lets one
// commit. Each batch is one commit: the items, their messages in the outbox, and the
// progress, or nothing of it.
func (o *Operator) Run(ctx context.Context, id string) (Operation, error) {
	op, err := o.Operation(ctx, id)
	switch {
	case err != nil:
		return Operation{}, err
	case op.Progress == Finished:
		return op, nil
	case op.Progress == Waiting:
		return op, fmt.Errorf("%w: the operation waits for the approval of somebody else", ErrRefused)
	case op.runner != "" && o.Now().Before(op.runnerUntil):
		return op, ErrBusy
	}
	runner := o.NewID()
	if err := o.commit(ctx, &op, runner, nil); err != nil {
		return op, err
	}
	left, err := o.matches(ctx, op.Filter, op.CreatedAt)
	if err != nil {
		return op, err
	}
	left = slices.DeleteFunc(left, func(m match) bool { return op.Kind == Replay && (m.omitted || (m.replays >= MaxReplays && !op.Force)) })
	for len(left) > 0 && ctx.Err() == nil {
		size := min(batch, len(left))
		if op.Kind == Replay {
			size = min(size, int(op.Rate))
		}
		began := o.Now()
		done, relay, err := o.step(ctx, &op, runner, left[:size])
		if err != nil {
			return op, err
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
		now := o.Now().UTC().Truncate(time.Microsecond)
		op.Progress, op.FinishedAt, op.Skipped = Finished, &now, op.Total-op.Done
	}
	// The next may go on at once.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), hold/3)
	defer cancel()
	return op, o.commit(last, &op, "", nil)
}

// step deals with some items in one commit, and returns how many they were: those
// that somebody else has dealt with meanwhile are passed by.
func (o *Operator) step(ctx context.Context, op *Operation, runner string, some []match) (done int64, lanes []string, err error) {
	q, ok := o.Queue(op.Filter.Queue)
	if !ok {
		return 0, nil, fmt.Errorf("%w: the queue is gone", ErrRefused)
	}
	for {
		now := o.Now().UTC().Truncate(time.Microsecond)
		messages, writes, beside, released := outbox.NewBatch(now), []store.Write{}, []store.Write{}, map[string]bool{}
		for _, m := range some {
			item, err := o.Show(ctx, m.id)
			if errors.Is(err, ErrUnknown) {
				continue // it has expired
			}
			if err != nil {
				return 0, nil, err
			}
			if item.State != Open || item.Kept.After(op.CreatedAt) {
				continue
			}
			fields := maps.Clone(item.fields)
			fields["state"], fields["operation"], fields["closed_at"] = string(Discarded), op.ID, now
			if op.Kind == Replay {
				item.ReplayCount++
				fields["state"], fields["replay_count"] = string(Replayed), item.ReplayCount
				messages.Add(q.Topic(), item.ID+"-"+strconv.FormatInt(item.ReplayCount, 10), replayed(item, q),
					outbox.Source{Queue: item.Queue, Tenant: item.Message.Attributes[contract.AttrTenant], EventID: item.EventID})
			}
			writes = append(writes, store.Update(item.Key(), item.version, fields))
			if key := item.OrderingKey; op.Kind == Discard && q.OnPoison == catalog.Park && !released[key] {
				// What waits behind it need not wait longer.
				released[key] = true
				lane, err := delayed.Open(ctx, o.Store, delayed.Name{Queue: q.ID, OrderingKey: key})
				if err != nil {
					return 0, nil, err
				}
				if w, ok := lane.Go(now); ok {
					beside = append(beside, w)
				}
			}
		}
		if len(writes) == 0 {
			return 0, nil, nil
		}
		before := *op
		op.Done += int64(len(writes))
		done = int64(len(writes))
		err := o.commit(ctx, op, runner, slices.Concat(writes, beside, messages.Writes()))
		if err == nil {
			return done, messages.Lanes(), nil
		}
		*op = before
		if !errors.Is(err, ErrBusy) {
			return 0, nil, err
		}
		// An item or the operation itself has changed: whose is it now?
		found, lookErr := o.Operation(ctx, op.ID)
		if lookErr != nil {
			return 0, nil, lookErr
		}
		if found.runner != runner {
			return 0, nil, ErrBusy
		}
		*op = found
	}
}

// replayed is the message as it was first published, with the count of its replays.
func replayed(i Item, q catalog.Queue) contract.Message {
	attributes := maps.Clone(i.Message.Attributes)
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
	attributes[AttrReplayCount], attributes[AttrReplayOf] = strconv.FormatInt(i.ReplayCount, 10), i.ID
	m := contract.Message{Data: i.Message.Data, Attributes: q.Addressed(attributes)}
	if key := attributes[contract.AttrOrderingKey]; q.Ordered() && key != contract.UnknownOrderingKey {
		m.OrderingKey = key
	}
	return m
}

// commit writes the operation at the version it was read at, beside other writes. The
// error is ErrBusy where anything of it has changed.
func (o *Operator) commit(ctx context.Context, op *Operation, runner string, beside []store.Write) error {
	op.runner, op.runnerUntil = runner, time.Time{}
	if runner != "" {
		op.runnerUntil = o.Now().Add(hold).UTC().Truncate(time.Microsecond)
	}
	versions, err := o.Store.Commit(ctx, append([]store.Write{store.Update(op.key(), op.version, op.fields())}, beside...))
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

func (op *Operation) key() store.Key { return store.Key{Collection: Audit, ID: op.ID} }

func (op *Operation) fields() map[string]any {
	fields := map[string]any{
		"kind": string(op.Kind), "progress": string(op.Progress), "who": op.Who, "why": op.Why, "approved_by": op.ApprovedBy,
		"queue": op.Filter.Queue, "reason": op.Filter.Reason, "event_type": op.Filter.EventType, "event_id": op.Filter.EventID,
		"ordering_key": op.Filter.OrderingKey, "item": op.Filter.Item, "force": op.Force, "rate": op.Rate,
		"total": op.Total, "done": op.Done, "skipped": op.Skipped, "runner": op.runner, "created_at": op.CreatedAt,
	}
	for name, at := range map[string]time.Time{"since": op.Filter.Since, "until": op.Filter.Until, "runner_until": op.runnerUntil} {
		if !at.IsZero() {
			fields[name] = at.UTC().Truncate(time.Microsecond)
		}
	}
	if op.FinishedAt != nil {
		fields["finished_at"] = *op.FinishedAt
	}
	return fields
}

func operationOf(doc store.Document) (Operation, error) {
	text := func(name string) string { value, _ := doc.Fields[name].(string); return value }
	number := func(name string) int64 { value, _ := doc.Fields[name].(int64); return value }
	at := func(name string) time.Time { value, _ := doc.Fields[name].(time.Time); return value }
	force, _ := doc.Fields["force"].(bool)
	op := Operation{
		ID: doc.Key.ID, Kind: Kind(text("kind")), Progress: Progress(text("progress")), Who: text("who"), Why: text("why"),
		Filter: Filter{
			Queue: text("queue"), Reason: text("reason"), EventType: text("event_type"), EventID: text("event_id"),
			OrderingKey: text("ordering_key"), Item: text("item"), Since: at("since"), Until: at("until"),
		},
		Force: force, Rate: number("rate"), Total: number("total"), Done: number("done"), Skipped: number("skipped"),
		ApprovedBy: text("approved_by"), CreatedAt: at("created_at"), runner: text("runner"), runnerUntil: at("runner_until"), version: doc.Version,
	}
	if finished := at("finished_at"); !finished.IsZero() {
		op.FinishedAt = &finished
	}
	if op.Kind == "" || op.Progress == "" || op.Filter.Queue == "" || op.Rate < 1 {
		return Operation{}, fmt.Errorf("deadletter: operation %s is not readable", doc.Key.ID)
	}
	return op, nil
}
