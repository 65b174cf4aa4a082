package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

// Kept is one dead letter with the attributes of its message.
type Kept struct {
	Item
	Attributes map[string]string `json:"attributes" show:"Attributes,detail"`
	// Target is the service that its handler calls, and Path where; empty: it calls none.
	Target string `json:"target,omitempty" show:"Target,detail"`
	Path   string `json:"path,omitempty" show:"Path,detail"`
	// Later is what came after it; absent where nothing follows it in order, or it is not open.
	Later *Later `json:"later,omitempty" show:"Later messages of its key,detail"`
	// Size is the size of the minimized payload that is kept, in bytes.
	Size int64 `json:"payload_bytes" show:"Payload bytes,detail"`
	// Data is that payload where it is JSON; else Base64 has it. Both are there for somebody who has
	// asked for the payload.
	Data   jsontext.Value `json:"data,omitempty" show:"Payload,detail"`
	Base64 []byte         `json:"data_base64,omitempty" show:"Payload (not JSON),detail"`
}

func (o *Operator) kept(item Item) Kept {
	kept := Kept{Item: item, Attributes: item.Attributes, Size: int64(len(item.Data))}
	q, _ := o.Queue(item.Queue)
	h, _ := q.Handler(item.EventType)
	kept.Target, kept.Path = strings.Join(h.Targets(), ", "), h.Post.Path
	return kept
}

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

// Later looks at what came after an open dead letter; nil where nothing follows anything.
func (o *Operator) Later(ctx context.Context, item Item) (*Later, error) {
	q, known := o.Queue(item.Queue)
	key, tenant := item.OrderingKey, item.tenant()
	if !known || !q.Ordered() || item.State != Open || key == "" || key == contract.UnknownOrderingKey {
		return nil, nil
	}
	since := cmp.Or(item.FirstPublished, item.Died())
	records, last, err := dedupe.List(ctx, o.Store, dedupe.Listing{
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
	line, err := lane.Open(ctx, o.Store, lane.Name{Queue: q.ID, Tenant: tenant, OrderingKey: key})
	if err != nil || !line.Exists() {
		return &later, err
	}
	_, kept, err := lane.First(ctx, o.Store, line, laterLooked+1)
	later.Waiting += min(kept, laterLooked)
	later.More = later.More || kept > laterLooked
	return &later, err
}

// Became says what has become of it since somebody began to deal with it.
func (i Item) Became() string {
	switch {
	case i.State == Open && i.ReplayCount > 0:
		return "dead again"
	case i.State == Open:
		return "still open"
	case i.State == Replayed:
		return "still waiting"
	case i.State == Completed:
		return "completed by hand"
	default:
		return string(cmp.Or(i.Outcome, retry.Outcome(i.State)))
	}
}
