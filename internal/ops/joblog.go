package ops

import (
	"cmp"
	"context"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/internal/dedupe"
	"billhook/internal/store"
)

// Line is one event in the job log.
type Line struct {
	EventID   string `json:"event_id"`
	EventType string `json:"event_type"`
	// Action is the job log's word for the type.
	Action   string        `json:"action"`
	Queue    string        `json:"queue"`
	Tenant   string        `json:"tenant"`
	Status   dedupe.Status `json:"status"`
	Attempts int64         `json:"attempts"`
	Result   string        `json:"result"`
	// Ref is the id of what the effect made, such as an entry of the books.
	Ref           string `json:"ref,omitempty"`
	Reason        string `json:"reason"`
	CorrelationID string `json:"correlation_id"`
	// IdempotencyKey names the source of the message, or is the event's id.
	IdempotencyKey string    `json:"idempotency_key"`
	OrderingKey    string    `json:"ordering_key"`
	MessageID      string    `json:"message_id"`
	NextRetryAt    time.Time `json:"next_retry_at,omitzero"`
	CreatedAt      time.Time `json:"created_at,omitzero"`
	UpdatedAt      time.Time `json:"updated_at,omitzero"`
	ProcessedAt    time.Time `json:"processed_at,omitzero"`
}

// List is a page of a list. Next is the parameter page for the next one, with the same filters.
// A short or empty page may have a next one.
type List[Item any] struct {
	Items []Item `json:"items"`
	Next  string `json:"next"`
}

// listOf is a page with the items, in JSON [] where there are none.
func listOf[Item any](items []Item, next string) List[Item] {
	return List[Item]{Items: append([]Item{}, items...), Next: next}
}

// The bounds of the job log.
const (
	// MaxLines is the most that a page holds.
	MaxLines = 200
	lines    = 50
	// maxReads bounds the documents that the database reads for a page.
	maxReads = 250
	// chunk is how many documents of a part are held at most before it is known how many the page needs.
	chunk = (maxReads - MaxLines) / dedupe.Shards
)

// Events returns up to limit lines of the job log behind a place, the newest first, ties by the
// record's id, the greatest first. It returns the place behind them, or nil at the end. equal are
// fields of the records. The database reads at most limit documents, and chunk of each part.
func (a Reads) Events(ctx context.Context, equal map[string]any, at Place, limit int) ([]Line, *Place, error) {
	var parts [dedupe.Shards]part
	for shard := range parts {
		query := store.Query{Collection: dedupe.Collection, Equal: maps.Clone(equal), Newest: &store.Newest{Field: "created_at", Since: at.since, Until: at.until, After: at.position()}}
		query.Equal["shard"] = int64(shard)
		parts[shard].query = query
	}
	found := []Line{}
	for len(found) < limit {
		if err := a.fill(ctx, parts[:], min(chunk, limit-len(found))); err != nil {
			return nil, nil, err
		}
		newest := newestOf(parts[:])
		if newest == nil {
			return found, nil, nil
		}
		for ; newest != nil && len(found) < limit; newest = newestOf(parts[:]) {
			record, err := dedupe.FromDocument(newest.documents[0])
			if err != nil {
				return nil, nil, err
			}
			found, at.at, at.id = append(found, line(record)), record.CreatedAt, newest.documents[0].Key.ID
			newest.documents = newest.documents[1:]
			if newest.unknown() {
				break
			}
		}
	}
	for i := range parts {
		if len(parts[i].documents) > 0 || parts[i].unknown() {
			return found, &at, nil
		}
	}
	return found, nil, nil
}

// part is one part of the time index under way.
type part struct {
	// query asks for what follows the documents.
	query store.Query
	// documents were read and are not on the page.
	documents []store.Document
	// ended: nothing follows the documents.
	ended bool
}

// unknown reports whether it has to be asked what its next document is.
func (p *part) unknown() bool { return len(p.documents) == 0 && !p.ended }

// fill has each part hold so many documents, if it has them.
func (a Reads) fill(ctx context.Context, parts []part, most int) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range parts {
		p := &parts[i]
		p.query.Limit = most - len(p.documents)
		if p.ended || p.query.Limit < 1 {
			continue
		}
		group.Go(func() error {
			page, err := a.Store.Query(ctx, p.query)
			if err != nil {
				return err
			}
			p.documents, p.ended = append(p.documents, page.Documents...), len(page.Documents) < p.query.Limit
			if last := len(p.documents) - 1; last >= 0 {
				behind := *p.query.Newest
				behind.After = &store.Position{At: createdAt(p.documents[last]), ID: p.documents[last].Key.ID}
				p.query.Newest = &behind
			}
			return nil
		})
	}
	return group.Wait()
}

// newestOf is the part whose first document is the newest; nil where no part has one.
func newestOf(parts []part) (newest *part) {
	for i := range parts {
		p := &parts[i]
		if len(p.documents) > 0 && (newest == nil || later(p.documents[0], newest.documents[0])) {
			newest = p
		}
	}
	return newest
}

func later(a, b store.Document) bool {
	return cmp.Or(createdAt(a).Compare(createdAt(b)), cmp.Compare(a.Key.ID, b.Key.ID)) > 0
}

// createdAt is the time by which a record was found.
func createdAt(doc store.Document) time.Time {
	at, _ := doc.Fields["created_at"].(time.Time)
	return at
}

func line(r dedupe.Record) Line {
	return Line{
		EventID: r.EventID, EventType: r.EventType, Action: r.EventType, Queue: r.Queue, Tenant: r.Tenant, Status: r.Status, Attempts: r.Attempts,
		Result: r.Result, Ref: r.Ref, Reason: r.LastError, CorrelationID: r.CorrelationID, IdempotencyKey: r.IdempotencyKey, OrderingKey: r.OrderingKey, MessageID: r.MessageID,
		NextRetryAt: r.NextRetryAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ProcessedAt: r.ProcessedAt,
	}
}
