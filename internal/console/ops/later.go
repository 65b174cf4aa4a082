package ops

import (
	"cmp"
	"context"
	"fmt"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
)

// Later says what became of the later messages of a dead letter's ordering key: the queue went on without
// it, and its replay comes behind these.
type Later struct {
	// Done counts the events that are completed, Dead those that have a dead letter of their own, and
	// Waiting those that are with a worker, in the broker after a failure, or kept for later.
	Done    int64 `json:"done"`
	Dead    int64 `json:"dead_lettered"`
	Waiting int64 `json:"waiting"`
	// More: only the newest laterLooked were looked at.
	More bool `json:"more"`
}

// laterLooked is how many events of the key are looked at, and how many kept messages are counted.
const laterLooked = 100

// String is what a person reads.
func (l Later) String() string {
	text := fmt.Sprintf("%d done, %d dead-lettered, %d waiting", l.Done, l.Dead, l.Waiting)
	if l.More {
		text += ", and more"
	}
	return text
}

// later looks at what came after an open dead letter; nil where nothing follows anything.
func (a Reads) later(ctx context.Context, item deadletter.Item) (*Later, error) {
	q, known := a.Catalog.Queue(item.Queue)
	key, tenant := item.OrderingKey, cmp.Or(item.Tenant, contract.DefaultTenant)
	if !known || !q.Ordered() || item.State != deadletter.Open || key == "" || key == contract.UnknownOrderingKey {
		return nil, nil
	}
	since := cmp.Or(item.FirstPublished, item.Died())
	records, last, err := dedupe.List(ctx, a.Store, dedupe.Listing{
		Equal: map[string]any{"queue": q.ID, "ordering_key": key}, Since: since, Limit: laterLooked,
	})
	if err != nil {
		return nil, err
	}
	later := Later{More: !last.IsZero()}
	for _, r := range records {
		switch {
		case r.Tenant != tenant, r.EventID == item.EventID, !cmp.Or(r.PublishedAt, r.CreatedAt).After(since):
		case r.Status == dedupe.Completed:
			later.Done++
		case r.Status == dedupe.DeadLettered:
			later.Dead++
		case r.Status == dedupe.Processing, r.DelayTicket == "": // else it is among those that are kept
			later.Waiting++
		}
	}
	line, err := lane.Open(ctx, a.Store, lane.Name{Queue: q.ID, Tenant: tenant, OrderingKey: key})
	if err != nil || !line.Exists() {
		return &later, err
	}
	_, kept, err := lane.First(ctx, a.Store, line, laterLooked+1)
	later.Waiting += min(kept, laterLooked)
	later.More = later.More || kept > laterLooked
	return &later, err
}
