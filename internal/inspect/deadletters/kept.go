package deadletters

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
)

// Kept is one dead letter with the attributes of its message.
type Kept struct {
	deadletter.Item
	Attributes map[string]string `json:"attributes" show:"Attributes,detail"`
	// Target is the service that its handler calls, and Path the path there; empty: it calls none.
	Target string `json:"target,omitempty" show:"Target,detail"`
	Path   string `json:"path,omitempty" show:"Path,detail"`
	// Later counts the later messages of its ordering key; absent if it is not ordered, or not open.
	Later *Later `json:"later,omitempty" show:"Later messages of its key,detail"`
	// Size is the size of the minimized payload that is kept, in bytes.
	Size int64 `json:"payload_bytes" show:"Payload bytes,detail"`
	// Data is that payload if it is JSON, else Base64 is. Both are empty unless the payload was requested.
	Data   jsontext.Value `json:"data,omitempty" show:"Payload,detail"`
	Base64 []byte         `json:"data_base64,omitempty" show:"Payload (not JSON),detail"`
}

func (a Reads) kept(item deadletter.Item) Kept {
	kept := Kept{Item: item, Attributes: item.Attributes, Size: int64(len(item.Data))}
	q, _ := a.Catalog.Queue(item.Queue)
	h, _ := q.Handler(item.EventType)
	kept.Target, kept.Path = strings.Join(h.Targets(), ", "), h.Post.Path
	return kept
}

// Later counts the later messages of a dead letter's ordering key, by what became of them.
type Later struct {
	// Done counts the completed ones, Dead those with a dead letter, and Waiting those that are with a worker,
	// in the broker, or kept for later.
	Done    int64 `json:"done"`
	Dead    int64 `json:"dead_lettered"`
	Waiting int64 `json:"waiting"`
	// More: only the newest laterLooked were looked at.
	More bool `json:"more"`
}

// laterLooked bounds the events of the key that are read, and the kept messages that are counted.
const laterLooked = 100

// String returns the counts as text.
func (l Later) String() string {
	text := fmt.Sprintf("%d done, %d dead-lettered, %d waiting", l.Done, l.Dead, l.Waiting)
	if l.More {
		text += ", and more"
	}
	return text
}

// Later counts the later messages of a dead letter's ordering key; nil if it is not ordered, or not open.
func (a Reads) Later(ctx context.Context, item deadletter.Item) (*Later, error) {
	q, known := a.Catalog.Queue(item.Queue)
	key, tenant := item.OrderingKey, item.TenantID()
	if !known || !q.Ordered() || item.State != deadletter.Open || key == "" ||
		key == contract.UnknownOrderingKey {
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
		case r.Status == dedupe.Processing, r.DelayTicket == "": // else its lane counts it
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

// Happened says in one sentence what happened.
func (k Kept) Happened() string {
	what, _ := k.cause()
	if k.Reason == "unknown_product" && k.Detail != "" {
		what = "The product " + k.Detail + " is not known here"
	}
	if strings.HasPrefix(k.Reason, "callee_") && k.Attempts > 1 {
		what += " " + times(k.Attempts)
	}
	return fmt.Sprintf("%s; Billhook gave up on %s UTC.", what, k.Died().UTC().Format("2006-01-02 at 15:04"))
}

// ToDo says what a person can do; empty: there is nothing to do.
func (k Kept) ToDo() string {
	if k.State != deadletter.Open {
		return ""
	}
	_, do := k.cause()
	return do
}

// Runbook is the page with more about it.
func (Kept) Runbook() string { return "docs/runbooks/dead-letters.md" }

// Notes say what happened and what to do.
func (k Kept) Notes() []string {
	notes := []string{k.Happened()}
	if do := k.ToDo(); do != "" {
		notes = append(notes, do+" More: "+k.Runbook()+" and docs/reference/reasons.md")
	}
	return notes
}

func times(n int64) string {
	words := []string{
		"", "once", "twice", "three times", "four times", "five times", "six times", "seven times", "eight times",
		"nine times", "ten times",
	}
	if n < int64(len(words)) {
		return words[n]
	}
	return strconv.FormatInt(n, 10) + " times"
}
