package ops

import (
	"context"
	"maps"
	"time"

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
	// span is how far back it goes without since; longest is how far it may.
	span    = 24 * time.Hour
	longest = 31 * 24 * time.Hour
	// ahead is how far behind now it ends without until: clocks differ.
	ahead = time.Minute
	// buckets is how many queries one request makes: two days of hours without an event.
	buckets = 48
	// readAhead is how much of an hour is read at least where the span cuts it.
	readAhead = 100
)

// Events returns up to limit lines of the job log from a place on, the newest hour first, in the
// order of the ids within it. It returns the next place, or nil at the end. equal are fields of
// the records. No query needs a composite index, or a range over a field that rises with time.
func (a Reads) Events(ctx context.Context, equal map[string]any, at Place, limit int) ([]Line, *Place, error) {
	found, hourly := []Line{}, at.hour != ""
	for range buckets {
		query := store.Query{Collection: dedupe.Collection, Equal: maps.Clone(equal), After: at.id, Limit: limit - len(found)}
		if hourly {
			query.Equal["hour"] = at.hour
		}
		if edge := hourly && (at.hour == dedupe.Hour(at.since) || at.hour == newest(at)); edge {
			query.Limit = max(query.Limit, readAhead)
		}
		page, err := a.Store.Query(ctx, query)
		if err != nil {
			return nil, nil, err
		}
		for i, doc := range page.Documents {
			record, err := dedupe.FromDocument(doc)
			if err != nil {
				return nil, nil, err
			}
			if !hourly || (!record.CreatedAt.Before(at.since) && record.CreatedAt.Before(at.until)) {
				found = append(found, line(record))
			}
			at.id = doc.Key.ID
			if len(found) == limit && (i < len(page.Documents)-1 || page.Next != "") {
				return found, &at, nil
			}
		}
		if page.Next != "" {
			continue
		}
		if !hourly || at.hour <= dedupe.Hour(at.since) {
			return found, nil, nil
		}
		at.hour, at.id = before(at.hour), ""
		if len(found) == limit {
			return found, &at, nil
		}
	}
	return found, &at, nil
}

// newest is the newest hour of a place's span.
func newest(p Place) string { return dedupe.Hour(p.until.Add(-time.Microsecond)) }

// before is the hour before an hour.
func before(hour string) string {
	at, _ := time.Parse("2006-01-02T15", hour) // ours, or checked with its token
	return dedupe.Hour(at.Add(-time.Hour))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func line(r dedupe.Record) Line {
	return Line{
		EventID: r.EventID, EventType: r.EventType, Action: r.EventType, Queue: r.Queue, Tenant: r.Tenant, Status: r.Status, Attempts: r.Attempts,
		Result: r.Result, Ref: r.Ref, Reason: r.LastError, CorrelationID: r.CorrelationID, IdempotencyKey: r.IdempotencyKey, OrderingKey: r.OrderingKey, MessageID: r.MessageID,
		NextRetryAt: r.NextRetryAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ProcessedAt: r.ProcessedAt,
	}
}
