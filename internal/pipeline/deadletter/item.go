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
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// State is where an item stands.
type State string

// The states of an item.
const (
	// Open: it waits for a person, or its replay failed again.
	Open State = "open"
	// Replayed: it is on its queue again, and nothing is known of its end yet.
	Replayed State = "replayed"
	// Processed: its replay has ended, and not in another death. Item.Outcome says how.
	Processed State = "processed"
	// Corrected: another payload with its event's id was applied, or has a dead letter of its
	// own. This state is final.
	Corrected State = "corrected"
	// Discarded: a person has decided that it is not needed.
	Discarded State = "discarded"
	// Completed: a person has done by hand what the message was for.
	Completed State = "completed"
)

// States are those of a dead letter, with the one first that lists show by default.
var States = []State{Open, Replayed, Processed, Corrected, Discarded, Completed}

// Item is one dead letter as it is kept.
type Item struct {
	ID              string    `json:"id" show:"ID,id" link:"dead-letters"`
	State           State     `json:"state" store:"state,required" show:"State,less"`
	Queue           string    `json:"queue" store:"queue,required" show:"Queue,less" link:"queues"`
	Reason          string    `json:"reason" store:"reason" show:"Reason"`
	Status          int64     `json:"status" store:"status" show:"Status,detail"`
	Attempts        int64     `json:"attempts" store:"attempts" show:"Attempts,detail"`
	ReplayCount     int64     `json:"replay_count" store:"replay_count" show:"Replays,detail"`
	EventID         string    `json:"event_id" store:"event_id" show:"Event" link:"events/{event_id}?queue={queue}"`
	EventType       string    `json:"event_type" store:"event_type" show:"Type,less"`
	OrderingKey     string    `json:"ordering_key" store:"ordering_key" show:"Key,detail"`
	SourceMessageID string    `json:"source_message_id" store:"source_message_id"`
	FirstPublished  time.Time `json:"first_published_at,omitzero" store:"first_published_at,omitzero" show:"First published,detail"`
	DeadLettered    time.Time `json:"dead_lettered_at,omitzero" store:"dead_lettered_at,omitzero" show:"Given up,detail"`
	Kept            time.Time `json:"kept_at" store:"kept_at" show:"Kept,less"`
	Detail          string    `json:"detail" store:"detail" show:"Detail,less"`
	Expires         time.Time `json:"expire_at" store:"expire_at,required" show:"Kept until,detail"`
	// Outcome is how the replay of what is Processed has ended.
	Outcome retry.Outcome `json:"outcome,omitempty" store:"outcome,omitzero" show:"Outcome,detail"`
	// History is what people have done with it, the newest first, at most MaxHistory.
	History []Act `json:"history,omitempty" store:"history,omitzero" show:"What people did with it"`
	// Closed is when it was replayed, processed, discarded, completed or corrected last.
	Closed time.Time `json:"closed_at,omitzero" store:"closed_at,omitzero" show:"Closed,detail"`
	// CorrectedBy is the id of the message that took its place, Corrections how often one has.
	CorrectedBy string `json:"corrected_by,omitempty" store:"corrected_by,omitzero" show:"Corrected by message,detail"`
	Corrections int64  `json:"-" store:"corrections,omitzero"`
	// Endings is how often a replay of it has ended.
	Endings int64 `json:"-" store:"endings,omitzero"`
	// Omitted is the size of a payload that was too large to keep; 0: it is here.
	Omitted int64 `json:"data_omitted,omitempty" store:"data_omitted,omitzero"`
	// Operation is the id of the operation that dealt with it last.
	Operation string `json:"operation,omitempty" store:"operation,omitzero" show:"Last operation,detail" link:"operations"`
	// Tenant is that of the event.
	Tenant string `json:"-" store:"tenant"`
	// Customer is whose event it is, as contract.CustomerOf names them; empty: nobody's.
	Customer string `json:"-" store:"customer,omitzero"`

	// Data and Attributes are the message as it was, with what its death added to the attributes.
	Data       []byte            `json:"-" store:"data,omitzero,strict"`
	Attributes map[string]string `json:"-" store:"attributes"`

	version store.Version
}

// MaxHistory bounds an item's history.
const MaxHistory = 10

// Act is what a person has done with an item.
type Act struct {
	Kind      Kind      `json:"kind" store:"kind" show:"What"`
	Operation string    `json:"operation" store:"operation" show:"Operation" link:"operations"`
	Who       string    `json:"who" store:"who" show:"Who"`
	Why       string    `json:"why" store:"why" show:"Why"`
	At        time.Time `json:"at" store:"at" show:"At"`
}

func (i *Item) note(act Act) {
	i.History = append([]Act{act}, i.History...)
	i.History = i.History[:min(len(i.History), MaxHistory)]
}

// Died is when the message was dead-lettered, or else when it was kept.
func (i Item) Died() time.Time { return cmp.Or(i.DeadLettered, i.Kept) }

func (i Item) tenant() string { return cmp.Or(i.Tenant, contract.DefaultTenant) }

// Key is the item's key.
func (i Item) Key() store.Key { return store.Key{Collection: Collection, ID: i.ID} }

// Message is the message that died, with what its death added to the attributes.
func (i Item) Message() contract.Message {
	return contract.Message{Data: i.Data, Attributes: i.Attributes, OrderingKey: i.OrderingKey}
}

func (i *Item) fields() map[string]any { return store.Encode(i) }

// ItemOf reads an item.
func ItemOf(doc store.Document) (Item, error) {
	item := Item{ID: doc.Key.ID, version: doc.Version}
	err := store.Decode(doc.Fields, &item)
	if item.Kept.IsZero() && (item.State == Corrected || item.State == Processed) {
		item.Kept = item.Closed // it has not arrived yet, or was removed before its replay ended
	}
	if err != nil || item.Queue == "" || item.State == "" || item.Kept.IsZero() {
		return Item{}, fmt.Errorf("deadletter: item %s is not readable", doc.Key.ID)
	}
	return item, nil
}

// Standing is how many dead letters of a queue are open, and since when. One that has
// expired is counted until the database removes it.
type Standing struct {
	Open int64
	// More: there are more than Open.
	More bool
	// Oldest is since when the oldest of them is kept; zero where none is open.
	Oldest time.Time
}

// CountTo is where counting ends, unless the queue's alert is higher: a database charges for what it counts.
const CountTo = 10_000

// Look asks where a queue stands, in one query or, where something is open, in two,
// whatever the number of its dead letters.
func Look(ctx context.Context, from store.Querier, queue catalog.Queue, now time.Time) (Standing, error) {
	most := max(CountTo, queue.DeadLetter.AlertAbove+1)
	open, err := count(ctx, from, Filter{Queue: queue.ID}, most+1)
	if err != nil || open == 0 {
		return Standing{}, err
	}
	standing := Standing{Open: min(open, int64(most)), More: open > int64(most)}
	standing.Oldest, err = oldestOf(ctx, from, queue.ID, now)
	return standing, err
}

func oldestOf(ctx context.Context, from store.Querier, queue string, now time.Time) (oldest time.Time, err error) {
	first, err := from.Query(ctx, store.Query{
		Collection: Collection, Equal: map[string]any{"queue": queue, "state": string(Open)},
		// Another instance's clock may be ahead of this one's.
		Due: &store.Due{Field: "kept_at", Until: now.Add(time.Hour)}, Limit: 1,
	})
	if err != nil {
		return oldest, fmt.Errorf("deadletter: oldest: %w", err)
	}
	for _, doc := range first.Documents {
		oldest, _ = doc.Fields["kept_at"].(time.Time)
	}
	return oldest, nil
}

// Age is how long the oldest has waited at a time, 0 where none is open.
func (s Standing) Age(now time.Time) time.Duration {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Oldest))
}

// Filter selects open items. Empty fields select everything; an operation is about one queue. Since
// and Until are of the time that an item is kept since: not before Since, before Until.
type Filter struct {
	Queue       string    `json:"queue" store:"queue" expects:"filter.queue" help:"the queue, or its dead letters, by id or alias"`
	Reason      string    `json:"reason,omitempty" store:"reason" expects:"filter.reason" help:"only of this reason"`
	EventType   string    `json:"event_type,omitempty" store:"event_type" expects:"filter.event_type" help:"only of this event type"`
	EventID     string    `json:"event_id,omitempty" store:"event_id" expects:"filter.event_id" help:"only of this event"`
	OrderingKey string    `json:"ordering_key,omitempty" store:"ordering_key" expects:"filter.ordering_key" help:"only of this ordering key"`
	Since       time.Time `json:"since,omitzero" store:"since,omitzero" expects:"filter.since" help:"only kept from then on"`
	Until       time.Time `json:"until,omitzero" store:"until,omitzero" expects:"filter.until" help:"only kept before then"`
	// Items are the ids of some, at most MaxChosen.
	Items []string `json:"items,omitempty" store:"items,omitzero" expects:"filter.items" help:"only these, by their ids"`
}

// String says what it selects.
func (f Filter) String() string {
	parts := []string{f.Queue}
	for _, part := range [][2]string{{"reason", f.Reason}, {"type", f.EventType}, {"event", f.EventID}, {"key", f.OrderingKey}} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+part[1])
		}
	}
	if !f.Since.IsZero() {
		parts = append(parts, "kept since "+f.Since.UTC().Format(time.RFC3339))
	}
	if !f.Until.IsZero() {
		parts = append(parts, "kept before "+f.Until.UTC().Format(time.RFC3339))
	}
	if len(f.Items) > 0 {
		parts = append(parts, fmt.Sprint(len(f.Items), " chosen"))
	}
	return strings.Join(parts, ", ")
}

// MaxChosen is how many items a filter may name.
const MaxChosen = 100

func (f Filter) equal(state State) map[string]any {
	all := map[string]any{
		"queue": f.Queue, "reason": f.Reason, "event_type": f.EventType, "event_id": f.EventID, "ordering_key": f.OrderingKey, "state": string(state),
	}
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == "" })
	return all
}

func (f Filter) selects(i Item, state State) bool {
	has := Filter{Queue: i.Queue, Reason: i.Reason, EventType: i.EventType, EventID: i.EventID, OrderingKey: i.OrderingKey}.equal(i.State)
	for name, value := range f.equal(state) {
		if has[name] != value {
			return false
		}
	}
	return !i.Kept.Before(f.Since) && (f.Until.IsZero() || i.Kept.Before(f.Until)) && (len(f.Items) == 0 || slices.Contains(f.Items, i.ID))
}

// named returns the items that a filter names and selects, the newest first. It reads these alone.
func (o *Operator) named(ctx context.Context, f Filter, state State) ([]Item, error) {
	if len(f.Items) > MaxChosen {
		return nil, fmt.Errorf("%w: name %d items at most, not %d", ErrRefused, MaxChosen, len(f.Items))
	}
	var items []Item
	for _, id := range slices.Compact(slices.Sorted(slices.Values(f.Items))) {
		item, err := o.Show(ctx, id)
		switch {
		case errors.Is(err, ErrUnknown):
		case err != nil:
			return nil, err
		case f.selects(item, state) && o.Now().Before(item.Expires):
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Or(b.Kept.Compare(a.Kept), strings.Compare(b.ID, a.ID)) })
	return items, nil
}

func (f Filter) newest() *store.Newest {
	return &store.Newest{Field: "kept_at", Since: f.Since.Truncate(time.Microsecond), Until: f.Until.Truncate(time.Microsecond)}
}

// List returns a page of items, the newest first by the time that they are kept since, ties by id, the
// greatest first: those of a state, or all where it is empty. next is zero on the last page. The database
// reads what the page holds, one more, and what has expired and is not removed yet.
func (o *Operator) List(ctx context.Context, f Filter, state State, after store.Cursor, limit int) (items []Item, next store.Cursor, err error) {
	if len(f.Items) > 0 { // one page has all of them
		items, err = o.named(ctx, f, state)
		return items, next, err
	}
	for {
		asked := limit - len(items) + 1 // one more tells whether there is a next page
		page, err := o.Store.Query(ctx, store.Query{Collection: Collection, Equal: f.equal(state), Newest: f.newest(), After: after, Limit: min(asked, store.MaxPage)})
		if err != nil {
			return nil, next, fmt.Errorf("deadletter: list: %w", err)
		}
		for _, doc := range page.Documents {
			item, err := ItemOf(doc)
			switch {
			case err != nil:
				return nil, next, err
			case !o.Now().Before(item.Expires):
			case len(items) == limit:
				return items, after, nil
			default:
				items = append(items, item)
			}
			after = store.Cursor{At: item.Kept, ID: item.ID}
		}
		if len(page.Documents) < min(asked, store.MaxPage) {
			return items, next, nil
		}
	}
}

// Show returns one item.
func (o *Operator) Show(ctx context.Context, id string) (Item, error) {
	doc, err := store.Named(ctx, o.Store, store.Key{Collection: Collection, ID: id})
	switch {
	case errors.Is(err, store.ErrAmbiguous):
		return Item{}, err
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return Item{}, fmt.Errorf("%w: item %s", ErrUnknown, strconv.Quote(id))
	case err != nil:
		return Item{}, fmt.Errorf("deadletter: show: %w", err)
	}
	return ItemOf(doc)
}

// matches returns the open items of a filter, without their messages, in the order of their first publishing.
// Items kept after a given time are left out.
func (o *Operator) matches(ctx context.Context, f Filter, before time.Time) ([]Item, error) {
	var all []Item
	for after := (store.Cursor{}); ; {
		items, next, err := o.List(ctx, f, Open, after, perPage)
		if err != nil {
			return nil, err
		}
		for _, i := range items {
			if before.IsZero() || !i.Kept.After(before) {
				i.Data, i.Attributes = nil, nil // too much memory for MaxItems
				all = append(all, i)
			}
		}
		if len(all) > MaxItems {
			return nil, tooMany()
		}
		if next.IsZero() {
			break
		}
		after = next
	}
	slices.SortFunc(all, func(a, b Item) int {
		return cmp.Or(a.published().Compare(b.published()), cmp.Compare(a.number(), b.number()), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

func (i Item) published() time.Time { return cmp.Or(i.FirstPublished, i.Kept) }

// number is the message id where it is a number, as Pub/Sub's are; else 0.
func (i Item) number() uint64 {
	n, _ := strconv.ParseUint(i.SourceMessageID, 10, 64)
	return n
}
