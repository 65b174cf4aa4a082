package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
	// Looping were replayed MaxReplays times and are passed by without force; Omitted
	// were too large to keep and cannot be replayed from here.
	Looping int `json:"looping"`
	Omitted int `json:"omitted"`
	// Oldest and Newest are since when the first and the last of them are kept.
	Oldest time.Time `json:"oldest,omitzero" show:"Oldest"`
	Newest time.Time `json:"newest,omitzero" show:"Newest"`
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
	for after := (store.Cursor{}); p.Looked < MaxLooked; {
		items, next, err := o.List(ctx, f, Open, after, perPage)
		if err != nil {
			return Preview{}, err
		}
		for _, i := range items {
			p.add(i)
			if len(p.Sample) < MaxSample {
				p.Sample = append(p.Sample, i)
			}
			keys[i.OrderingKey] = true
		}
		if after = next; after.IsZero() {
			break
		}
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

// total is how many open items match, exactly. The error is ErrRefused where they are too many, or corrected.
func (o *Operator) total(ctx context.Context, f Filter) (int, error) {
	total, err := o.standing(ctx, f)
	switch {
	case err != nil:
		return 0, err
	case total == 0:
		return 0, o.corrected(ctx, f)
	case total > MaxItems:
		return 0, tooMany()
	}
	return total, nil
}

// standing counts the open items of a filter, without those that have expired and are not removed yet.
func (o *Operator) standing(ctx context.Context, f Filter) (int, error) {
	if len(f.Items) > 0 {
		items, err := o.named(ctx, f, Open)
		return len(items), err
	}
	gone, err := o.Store.Query(ctx, store.Query{
		Collection: Collection, Equal: map[string]any{"queue": f.Queue, "state": string(Open)},
		Due: &store.Due{Field: "expire_at", Until: o.Now()}, Limit: perPage,
	})
	if err != nil {
		return 0, fmt.Errorf("deadletter: expired: %w", err)
	}
	if len(gone.Documents) == perPage { // there may be more
		all, err := o.matches(ctx, f, time.Time{})
		return len(all), err
	}
	counted, err := count(ctx, o.Store, f, MaxItems+perPage+1)
	if err != nil {
		return 0, err
	}
	total := int(counted)
	for _, doc := range gone.Documents {
		item, err := ItemOf(doc)
		if err != nil {
			return 0, err
		}
		if f.selects(item, Open) {
			total--
		}
	}
	return total, nil
}

func tooMany() error {
	return fmt.Errorf("%w: more than %d items match; narrow the filter", ErrRefused, MaxItems)
}

// count counts the open items of a filter up to a limit.
func count(ctx context.Context, from store.Querier, f Filter, limit int) (int64, error) {
	page, err := from.Query(ctx, store.Query{Collection: Collection, Equal: f.equal(Open), Newest: f.newest(), Count: true, Limit: limit})
	if err != nil {
		return 0, fmt.Errorf("deadletter: count: %w", err)
	}
	return page.Count, nil
}

// Reason is how many dead letters of a queue are open for one reason. One that has expired is counted
// until the database removes it.
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

const (
	looks      = 5  // how often it looks for reasons
	atEachLook = 20 // how many items it reads for that
	maxReasons = 20 // how many reasons of a queue it counts
)

// Reasons counts the open items of a filter, which names a queue and no items, by their reasons, the most
// frequent first. It finds the reasons among the newest items and those at some times since the oldest; the
// database counts each, up to CountTo. What is left goes under Others.
func (o *Operator) Reasons(ctx context.Context, f Filter) ([]Reason, error) {
	total, err := count(ctx, o.Store, f, CountTo+1)
	if err != nil || total == 0 {
		return nil, err
	}
	var found []Reason
	now, oldest := o.Now(), time.Time{}
	newest, left, looked := cmp.Or(f.Until, now), total, f
	for n := 0; n < looks && left > 0; n++ {
		if n == 1 {
			if oldest, err = oldestOf(ctx, o.Store, f.Queue, now); err != nil {
				return nil, err
			}
		}
		if n > 0 {
			looked.Until = newest.Add(-time.Duration(n) * newest.Sub(latest(oldest, f.Since)) / looks)
		}
		page, err := o.Store.Query(ctx, store.Query{Collection: Collection, Equal: f.equal(Open), Newest: looked.newest(), Limit: atEachLook})
		if err != nil {
			return nil, fmt.Errorf("deadletter: reasons: %w", err)
		}
		for _, doc := range page.Documents {
			item, err := ItemOf(doc)
			if err != nil {
				return nil, err
			}
			known := item.Reason == "" || slices.ContainsFunc(found, func(r Reason) bool { return r.Reason == item.Reason })
			if known || len(found) == maxReasons {
				continue
			}
			one := f
			one.Reason = item.Reason
			counted, err := count(ctx, o.Store, one, CountTo+1)
			if err != nil {
				return nil, err
			}
			found = append(found, Reason{Queue: item.Queue, Reason: item.Reason, Count: min(counted, CountTo), More: counted > CountTo, Newest: item.Kept})
			left -= min(counted, CountTo)
		}
	}
	slices.SortFunc(found, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
	if left > 0 {
		found = append(found, Reason{Queue: f.Queue, Others: true, Count: left, More: total > CountTo})
	}
	return found, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
