package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/platform/store"
)

// Preview is what an operation would touch now.
type Preview struct {
	// Total is exact, and Looked of how many the rest tells: all, or the newest MaxLooked.
	Total    int    `json:"total" show:"Dead letters"`
	Looked   int    `json:"looked"`
	ByReason Counts `json:"by_reason" show:"Reasons"`
	ByType   Counts `json:"by_type" show:"Types"`
	// Keys is how many ordering keys they have.
	Keys int `json:"keys" show:"Ordering keys"`
	// Looping were replayed MaxReplays times and are passed by without force; Omitted were too large to keep.
	Looping int       `json:"looping"`
	Omitted int       `json:"omitted"`
	Oldest  time.Time `json:"oldest,omitzero" show:"Oldest"`
	Newest  time.Time `json:"newest,omitzero" show:"Newest"`
	// Sample are the newest of them, with their messages: at most MaxSample.
	Sample []Item `json:"-"`
}

// Counts are how many there are of each name.
type Counts map[string]int

// String has the most frequent first.
func (c Counts) String() string {
	names := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Or(c[b]-c[a], strings.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", cmp.Or(name, "none"), c[name])
	}
	return strings.Join(names, ", ")
}

// MaxLooked is how many items a preview reads, and MaxSample how many of them it returns.
const (
	MaxLooked = 500
	MaxSample = 20
)

// Preview counts what matches and reads the newest of it, without touching it.
func (o *Operator) Preview(ctx context.Context, f Filter) (Preview, error) {
	p := Preview{ByReason: Counts{}, ByType: Counts{}}
	var err error
	if p.Total, err = o.total(ctx, f); err != nil || p.Total == 0 {
		return p, err
	}
	keys := map[string]bool{}
	for after, more := (store.Cursor{}), true; more && p.Looked < MaxLooked; more = !after.IsZero() {
		var items []Item
		if items, after, err = o.List(ctx, o.living(f), Open, after, perPage); err != nil {
			return Preview{}, err
		}
		for _, i := range items {
			p.add(i)
			keys[i.OrderingKey] = true
		}
		p.Sample = append(p.Sample, items[:min(len(items), MaxSample-len(p.Sample))]...)
	}
	p.Keys = len(keys)
	return p, nil
}

// perPage is how many items are read at a time. Each may have a large payload.
const perPage = 100

func (p *Preview) add(i Item) {
	p.Looked++
	p.ByReason[i.Reason]++
	p.ByType[i.EventType]++
	if i.ReplayCount >= MaxReplays {
		p.Looping++
	}
	if i.Omitted > 0 {
		p.Omitted++
	}
	if p.Oldest.IsZero() || i.Kept.Before(p.Oldest) {
		p.Oldest = i.Kept
	}
	if i.Kept.After(p.Newest) {
		p.Newest = i.Kept
	}
}

// total is how many open items match, exactly. The error is ErrRefused where they are too many.
func (o *Operator) total(ctx context.Context, f Filter) (int, error) {
	if len(f.Items) > 0 {
		items, _, err := o.List(ctx, f, Open, store.Cursor{}, MaxChosen)
		return len(items), err
	}
	total, err := count(ctx, o.Store, o.living(f), MaxItems+1)
	if total > MaxItems {
		err = fmt.Errorf("%w: more than %d items match; narrow the filter", ErrRefused, MaxItems)
	}
	return int(total), err
}

// count counts the open items of a filter up to a limit.
func count(ctx context.Context, from store.Querier, f Filter, limit int) (int64, error) {
	page, err := from.Query(ctx, store.Query{Collection: Collection, Equal: f.equal(Open), Newest: f.newest(), Count: true, Limit: limit})
	if err != nil {
		return 0, fmt.Errorf("deadletter: count: %w", err)
	}
	return page.Count, nil
}

// Standing is how many dead letters of a queue are open, with what has expired and is not removed yet.
type Standing struct {
	Open int64
	// More: there are more than Open.
	More bool
	// Oldest is since when the oldest of them is kept; zero where none is open.
	Oldest time.Time
}

// CountTo is where counting ends, unless the queue's alert is higher.
const CountTo = 10_000

// Look asks where a queue stands, in two queries at most.
func Look(ctx context.Context, from store.Querier, queue catalog.Queue, now time.Time) (Standing, error) {
	most := max(CountTo, queue.DeadLetter.AlertAbove+1)
	open, err := count(ctx, from, Filter{Queue: queue.ID}, most+1)
	if err != nil || open == 0 {
		return Standing{}, err
	}
	oldest, _, err := store.List(ctx, from, store.Query{
		Collection: Collection, Equal: map[string]any{"queue": queue.ID, "state": string(Open)},
		Due: &store.Due{Field: "kept_at", Until: now.Add(time.Hour)}, Limit: 1, // another instance's clock may be ahead of this one's
	}, ItemOf)
	standing := Standing{Open: min(open, int64(most)), More: open > int64(most)}
	if len(oldest) > 0 {
		standing.Oldest = oldest[0].Kept
	}
	return standing, err
}

// Age is how long the oldest has waited at a time, 0 where none is open.
func (s Standing) Age(now time.Time) time.Duration {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.Oldest))
}

// Reason is how many dead letters of a queue are open for one reason, counted as of a Standing.
type Reason struct {
	Queue string `json:"queue" show:"Queue,less" link:"queues"`
	// Reason is empty with Others: those whose reason was not among the reasons that were looked at.
	Reason string `json:"reason" show:"Reason" link:"dead-letters?queue={queue}&reason={reason}"`
	Others bool   `json:"others,omitempty"`
	Count  int64  `json:"count" show:"Open"`
	// More: there are more than Count.
	More bool `json:"more"`
	// Newest is since when the newest of those that were looked at is kept; zero for Others.
	Newest time.Time `json:"newest_at,omitzero" show:"Newest,less"`
}

// Notes say what the counts leave out.
func (r Reason) Notes() (lines []string) {
	if r.More {
		lines = append(lines, fmt.Sprintf("There are more than %d of %s.", r.Count, cmp.Or(r.Reason, "other reasons")))
	} else if r.Others {
		lines = append(lines, fmt.Sprintf("%d of %s have other reasons.", r.Count, r.Queue))
	}
	return lines
}

// looked is how many of the newest items are read to find the reasons, and counted how many reasons are counted.
const (
	looked  = 20
	counted = 20
)

// Reasons counts the open items of a filter, which names a queue and no items, by the reasons of the newest, the most
// frequent first and each up to CountTo. What is left goes under Others.
func (o *Operator) Reasons(ctx context.Context, f Filter) (found []Reason, err error) {
	total, err := count(ctx, o.Store, f, CountTo+1)
	if err != nil || total == 0 {
		return nil, err
	}
	newest, _, err := o.List(ctx, f, Open, store.Cursor{}, looked)
	if err != nil {
		return nil, err
	}
	left := total
	for _, item := range newest {
		known := item.Reason == "" || slices.ContainsFunc(found, func(r Reason) bool { return r.Reason == item.Reason })
		if known || len(found) == counted {
			continue
		}
		one := f
		one.Reason = item.Reason
		n, err := count(ctx, o.Store, one, CountTo+1)
		if err != nil {
			return nil, err
		}
		found = append(found, Reason{Queue: item.Queue, Reason: item.Reason, Count: min(n, CountTo), More: n > CountTo, Newest: item.Kept})
		left -= min(n, CountTo)
	}
	slices.SortFunc(found, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
	if left > 0 {
		found = append(found, Reason{Queue: f.Queue, Others: true, Count: left, More: total > CountTo})
	}
	return found, nil
}
