package deadletters

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

// Reason counts the open dead letters of a queue with one reason, up to deadletter.CountTo.
type Reason struct {
	Queue string `json:"queue" show:"Queue,less" link:"queues"`
	// Reason is empty for Others: the dead letters whose reason none of the newest items has.
	Reason string `json:"reason" show:"Reason" link:"dead-letters?queue={queue}&reason={reason}"`
	Others bool   `json:"others,omitempty"`
	Count  int64  `json:"count" show:"Open"`
	// More: there are more than Count.
	More bool `json:"more"`
	// Newest is when the newest of them was stored; zero for Others.
	Newest time.Time `json:"newest_at,omitzero" show:"Newest,less"`
}

// Notes say what the counts leave out.
func (r Reason) Notes() (lines []string) {
	if r.More {
		lines = append(lines, fmt.Sprintf("There are more than %d of %s.", r.Count,
			cmp.Or(r.Reason, "other reasons")))
	} else if r.Others {
		lines = append(lines, fmt.Sprintf("%d of %s have other reasons.", r.Count, r.Queue))
	}
	return lines
}

// looked is how many of the newest items are read to find the reasons.
const looked = 20

// Reasons counts the open items of a filter, which names a queue and no items, by each reason that the newest
// have, up to deadletter.CountTo and the most frequent first. Others counts the rest.
func Reasons(ctx context.Context, o *bulk.Operator, f bulk.Filter) (found []Reason, err error) {
	total, err := f.Count(ctx, o.Store, deadletter.CountTo+1)
	if err != nil || total == 0 {
		return nil, err
	}
	newest, _, err := o.List(ctx, f, deadletter.Open, store.Cursor{}, looked)
	if err != nil {
		return nil, err
	}
	left := total
	for _, item := range newest {
		if item.Reason == "" || slices.ContainsFunc(found, func(r Reason) bool { return r.Reason == item.Reason }) {
			continue
		}
		one := f
		one.Reason = item.Reason
		n, err := one.Count(ctx, o.Store, deadletter.CountTo+1)
		if err != nil {
			return nil, err
		}
		found = append(found, Reason{
			Queue: item.Queue, Reason: item.Reason, Count: min(n, deadletter.CountTo), More: n > deadletter.CountTo,
			Newest: item.Kept,
		})
		left -= min(n, deadletter.CountTo)
	}
	slices.SortFunc(found, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
	if left > 0 {
		found = append(found, Reason{Queue: f.Queue, Others: true, Count: left, More: total > deadletter.CountTo})
	}
	return found, nil
}

// reasons counts the open items of a filter by reason, in one queue or in all that keep dead letters.
func (a Reads) reasons(ctx context.Context, f bulk.Filter) ([]Reason, error) {
	counted := make([][]Reason, len(a.Catalog.Queues))
	err := store.AtOnce(ctx, len(counted), func(ctx context.Context, i int) (err error) {
		one, q := f, a.Catalog.Queues[i]
		if one.Queue = q.ID; !q.DeadLetter.Drop && (f.Queue == "" || f.Queue == q.ID) {
			counted[i], err = Reasons(ctx, a.Operator, one)
		}
		return err
	})
	all := slices.Concat(counted...)
	slices.SortStableFunc(all, func(a, b Reason) int { return cmp.Compare(b.Count, a.Count) })
	return all, err
}
