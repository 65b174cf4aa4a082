// Package ops is the API for people, and its access control: events, queues, job log, balances,
// customers, products, dead letters and trials. It shows ids, codes, amounts and times alone; the
// minimized payload of a message it shows to somebody who says why, and writes that down first, and
// to whom tries it. It answers known people alone.
package ops

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/store"
)

// Reads reads what the API shows. An error is one of those below, or the store's: then nothing
// is known.
type Reads struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Now     func() time.Time
	NewID   func() string
	// Broker is asked what it holds; nil: what a task has counted is shown.
	Broker Broker
	// Viewer shows the subscriptions of paused queues; nil: they cannot be seen from here.
	Viewer pause.Viewer
	// Example makes a body of a format, for an event type or a pattern of them; nil: contracts are
	// shown without one.
	Example    func(format, eventType string) ([]byte, error)
	Deployment *Deployment
	Links      Links
}

var errSeveral = errors.New("ops: several queues or tenants know this event id")

const most = 100

// Line is one event in the job log.
type Line struct {
	EventID   string        `json:"event_id" show:"Event" link:"events/{event_id}?queue={queue}"`
	Queue     string        `json:"queue" show:"Queue" link:"queues"`
	Status    dedupe.Status `json:"status" show:"Status"`
	CreatedAt time.Time     `json:"created_at,omitzero" show:"Recorded"`
	EventType string        `json:"event_type" show:"Type,less"`
	// Action is the job log's word for the type.
	Action   string `json:"action"`
	Tenant   string `json:"tenant" show:"Tenant,detail"`
	Attempts int64  `json:"attempts" show:"Attempts,less"`
	Result   string `json:"result" show:"Result,less"`
	Reason   string `json:"reason" show:"Reason,less"`
	// Ref is the id of what the effect made, such as an entry of the books.
	Ref           string `json:"ref,omitempty" show:"Made,detail"`
	CorrelationID string `json:"correlation_id" show:"Correlation id,detail"`
	// IdempotencyKey names the source of the message, or is the event's id.
	IdempotencyKey string    `json:"idempotency_key" show:"Idempotency key,detail"`
	OrderingKey    string    `json:"ordering_key" show:"Ordering key,detail"`
	MessageID      string    `json:"message_id" show:"Message,detail"`
	NextRetryAt    time.Time `json:"next_retry_at,omitzero" show:"Next attempt,less"`
	UpdatedAt      time.Time `json:"updated_at,omitzero"`
	ProcessedAt    time.Time `json:"processed_at,omitzero" show:"Processed,detail"`
}

// Record is the same for all lines of one record, and for no other: the event may have gone on.
func (l Line) Record() string {
	return strings.Join([]string{l.Queue, l.Tenant, l.EventID, strconv.FormatInt(l.CreatedAt.UnixMicro(), 10)}, "~")
}

// Events returns a page of the job log, the newest first, as dedupe.List does.
func (a Reads) Events(ctx context.Context, page dedupe.Listing) ([]Line, store.Cursor, error) {
	found, next, err := dedupe.List(ctx, a.Store, page)
	lines := make([]Line, len(found))
	for i, record := range found {
		lines[i] = line(record)
	}
	return lines, next, err
}

func line(r dedupe.Record) Line {
	return Line{
		EventID: r.EventID, EventType: r.EventType, Action: r.EventType, Queue: r.Queue, Tenant: r.Tenant, Status: r.Status, Attempts: r.Attempts,
		Result: r.Result, Ref: r.Ref, Reason: r.LastError, CorrelationID: r.CorrelationID, IdempotencyKey: r.IdempotencyKey, OrderingKey: r.OrderingKey, MessageID: r.MessageID,
		NextRetryAt: r.NextRetryAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ProcessedAt: r.ProcessedAt,
	}
}
