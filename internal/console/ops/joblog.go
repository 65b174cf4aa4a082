package ops

import (
	"context"
	"strconv"
	"strings"
	"time"

	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
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

// Record is the same for all lines of one record, and for no other: the event may have gone on.
func (l Line) Record() string {
	return strings.Join([]string{l.Queue, l.Tenant, l.EventID, strconv.FormatInt(l.CreatedAt.UnixMicro(), 10)}, "~")
}

// List is a page of a list. Next is the parameter page for the next one, with the same filters.
// A short or empty page may have a next one.
type List[Item any] struct {
	Items []Item `json:"items"`
	Next  string `json:"next"`
}

// pageOf is a page with the items, in JSON [] where there are none.
func pageOf[Item any](items []Item, next string) List[Item] {
	return List[Item]{Items: append([]Item{}, items...), Next: next}
}

// lines is how many a page holds unless more are asked for: dedupe.MaxListed at most.
const lines = 50

// Events returns up to limit lines of the job log behind a place, the newest first, as dedupe.List
// does. equal are fields of the records.
func (a Reads) Events(ctx context.Context, equal map[string]any, at Place, limit int) ([]Line, store.Cursor, error) {
	found, next, err := dedupe.List(ctx, a.Store, dedupe.Listing{Equal: equal, Since: at.since, Until: at.until, After: at.Cursor, Limit: limit})
	page := make([]Line, len(found))
	for i, record := range found {
		page[i] = line(record)
	}
	return page, next, err
}

func line(r dedupe.Record) Line {
	return Line{
		EventID: r.EventID, EventType: r.EventType, Action: r.EventType, Queue: r.Queue, Tenant: r.Tenant, Status: r.Status, Attempts: r.Attempts,
		Result: r.Result, Ref: r.Ref, Reason: r.LastError, CorrelationID: r.CorrelationID, IdempotencyKey: r.IdempotencyKey, OrderingKey: r.OrderingKey, MessageID: r.MessageID,
		NextRetryAt: r.NextRetryAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ProcessedAt: r.ProcessedAt,
	}
}
