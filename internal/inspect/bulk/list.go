package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

// Filter selects items; that of an operation names a queue. Since and Until bound the time at which an item
// was stored.
type Filter struct {
	Queue       string    `json:"queue" store:"queue" expects:"filter.queue" help:"the queue, or its dead letters, by id or alias"`
	Reason      string    `json:"reason,omitempty" store:"reason" expects:"filter.reason" help:"only of this reason"`
	EventType   string    `json:"event_type,omitempty" store:"event_type" expects:"filter.event_type" help:"only of this event type"`
	EventID     string    `json:"event_id,omitempty" store:"event_id" expects:"filter.event_id" help:"only of this event"`
	OrderingKey string    `json:"ordering_key,omitempty" store:"ordering_key" expects:"filter.ordering_key" help:"only of this ordering key"`
	Since       time.Time `json:"since,omitzero" store:"since,omitzero" expects:"filter.since" help:"only kept from then on"`
	Until       time.Time `json:"until,omitzero" store:"until,omitzero" expects:"filter.until" help:"only kept before then"`
	// Items are the ids of items, at most MaxChosen; empty: all.
	Items []string `json:"items,omitempty" store:"items,omitzero" expects:"filter.items" help:"only these, by their ids"`
}

// String says what it selects.
func (f Filter) String() string {
	parts := []string{f.Queue}
	for _, part := range [][2]string{
		{"reason", f.Reason},
		{"type", f.EventType},
		{"event", f.EventID},
		{"key", f.OrderingKey},
		{"kept since", console.Stamp(f.Since)},
		{"kept before", console.Stamp(f.Until)},
	} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+part[1])
		}
	}
	if len(f.Items) > 0 {
		parts = append(parts, fmt.Sprint(len(f.Items), " chosen"))
	}
	return strings.Join(parts, ", ")
}

// MaxChosen is how many items a filter may name.
const MaxChosen = 100

func (f Filter) equal(state deadletter.State) map[string]any {
	return store.Equals("queue", f.Queue, "reason", f.Reason, "event_type", f.EventType, "event_id", f.EventID,
		"ordering_key", f.OrderingKey, "state", string(state))
}

func (f Filter) selects(i deadletter.Item, state deadletter.State) bool {
	of := Filter{
		Queue: i.Queue, Reason: i.Reason, EventType: i.EventType, EventID: i.EventID, OrderingKey: i.OrderingKey,
	}
	has := of.equal(i.State)
	for name, value := range f.equal(state) {
		if has[name] != value {
			return false
		}
	}
	return !i.Kept.Before(f.Since) && (f.Until.IsZero() || i.Kept.Before(f.Until)) &&
		(len(f.Items) == 0 || slices.Contains(f.Items, i.ID))
}

func (f Filter) query(state deadletter.State, limit int) store.Query {
	since, until := f.Since.Truncate(time.Microsecond), f.Until.Truncate(time.Microsecond)
	newest := &store.Newest{Field: "kept_at", Since: since, Until: until}
	return store.Query{Collection: deadletter.Collection, Equal: f.equal(state), Newest: newest, Limit: limit}
}

// ofEvent queries the dead letters of one event by its id alone, because they are few.
func ofEvent(from store.Querier) store.Querier { return store.Few{Querier: from, Field: "event_id"} }

// Choose returns the filter with the id of its queue, which may be named by its dead letters' topic or alias,
// and with whole ids of items. The error may be ErrNoQueue.
func (o *Operator) Choose(ctx context.Context, f Filter) (Filter, error) {
	q, ok := o.Catalog.DeadLetters(f.Queue)
	if !ok && f.Queue != "" {
		return Filter{}, ErrNoQueue
	}
	f.Queue = q.ID
	if len(f.Items) > MaxChosen {
		return f, nil // List refuses them
	}
	f.Items = slices.Clone(f.Items)
	for i, id := range f.Items {
		item, err := o.Show(ctx, id)
		if err != nil && !errors.Is(err, ErrUnknown) {
			return Filter{}, err
		}
		f.Items[i] = cmp.Or(item.ID, id)
	}
	return f, nil
}

// living narrows the filter to items that have not expired. Expired ones are removed only some time later.
func (o *Operator) living(f Filter) Filter {
	q, _ := o.Catalog.Queue(f.Queue)
	if from := o.Now().Add(time.Microsecond - q.DeadLetter.Retention); from.After(f.Since) {
		f.Since = from
	}
	return f
}

// chosen returns the items that a filter names and selects, the newest first.
func (o *Operator) chosen(ctx context.Context, f Filter, state deadletter.State) ([]deadletter.Item, error) {
	if len(f.Items) > MaxChosen {
		return nil, fmt.Errorf("%w: name %d items at most, not %d", ErrRefused, MaxChosen, len(f.Items))
	}
	var items []deadletter.Item
	for _, id := range slices.Compact(slices.Sorted(slices.Values(f.Items))) {
		item, err := o.Show(ctx, id)
		switch {
		case errors.Is(err, ErrUnknown):
		case err != nil:
			return nil, err
		case f.selects(item, state):
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b deadletter.Item) int {
		return cmp.Or(b.Kept.Compare(a.Kept), strings.Compare(b.ID, a.ID))
	})
	return items, nil
}

// List returns a page of items in a state, or in any if it is empty: the newest first by the time at which
// they were stored, then by id, the greatest first. It leaves out expired items. next is zero on the last
// page, but the page after next may be empty.
func (o *Operator) List(
	ctx context.Context, f Filter, state deadletter.State, after store.Cursor, limit int,
) (items []deadletter.Item, next store.Cursor, err error) {
	if len(f.Items) > 0 { // one page has all of them
		items, err = o.chosen(ctx, f, state)
	} else {
		query := f.query(state, min(limit, store.MaxPage))
		query.After = after
		items, next, err = store.List(ctx, ofEvent(o.Store), query, deadletter.ItemOf)
	}
	now := o.Now()
	return slices.DeleteFunc(items, func(i deadletter.Item) bool { return !now.Before(i.Expires) }), next, err
}

// Show returns the item with this id, or the only one whose id begins with it.
func (o *Operator) Show(ctx context.Context, id string) (deadletter.Item, error) {
	return named(ctx, o.Store, deadletter.Item{ID: id}.Key(), deadletter.ItemOf)
}

func named[T any](
	ctx context.Context, from store.Store, key store.Key, read func(store.Document) (T, error),
) (found T, err error) {
	doc, err := store.Named(ctx, from, key)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		err = fmt.Errorf("%w: %s", ErrUnknown, strconv.Quote(key.ID))
	}
	if err != nil {
		return found, err
	}
	return read(doc)
}

// perPage is how many items are read at a time. Each may have a large payload.
const perPage = 100

// Each yields the open items of a filter, in the order of List. It ends after an error.
func (o *Operator) Each(ctx context.Context, f Filter) iter.Seq2[deadletter.Item, error] {
	return func(yield func(deadletter.Item, error) bool) {
		for after, more := (store.Cursor{}), true; more; more = !after.IsZero() {
			items, next, err := o.List(ctx, o.living(f), deadletter.Open, after, perPage)
			if err != nil {
				yield(deadletter.Item{}, err)
				return
			}
			for _, i := range items {
				if !yield(i, nil) {
					return
				}
			}
			after = next
		}
	}
}

// Total returns the exact number of open items that match. More than MaxItems are ErrRefused.
func (o *Operator) Total(ctx context.Context, f Filter) (int, error) {
	if len(f.Items) > 0 {
		items, _, err := o.List(ctx, f, deadletter.Open, store.Cursor{}, MaxChosen)
		return len(items), err
	}
	total, err := o.living(f).Count(ctx, o.Store, MaxItems+1)
	if total > MaxItems {
		err = fmt.Errorf("%w: more than %d items match; narrow the filter", ErrRefused, MaxItems)
	}
	return int(total), err
}

// Count counts the open items of a filter, also those that have expired and are not removed yet, up to a
// limit.
func (f Filter) Count(ctx context.Context, from store.Querier, limit int) (int64, error) {
	return store.Count(ctx, ofEvent(from), f.query(deadletter.Open, limit))
}

// matches returns the open items of a filter, without their messages, in the order of their first publishing.
func (o *Operator) matches(ctx context.Context, f Filter) (all []deadletter.Item, err error) {
	for i, err := range o.Each(ctx, f) {
		if err != nil {
			return nil, err
		}
		i.Data, i.Attributes = nil, nil // too much memory for MaxItems
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b deadletter.Item) int {
		published := a.Published().Compare(b.Published())
		return cmp.Or(published, cmp.Compare(number(a), number(b)), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// number returns the message id as a number, as Pub/Sub's are; 0: it is none.
func number(i deadletter.Item) uint64 {
	n, _ := strconv.ParseUint(i.SourceMessageID, 10, 64)
	return n
}
