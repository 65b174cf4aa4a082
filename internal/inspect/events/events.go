// Package events shows what has come of events, from the records, lanes and dead letters that the push worker
// leaves. It shows ids, codes, amounts and times alone, but the minimized payload to somebody who says why,
// which it writes down first. It changes nothing.
package events

import (
	"context"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// Reads reads what the API shows. An error is one of those below, or the store's: then nothing is known.
type Reads struct {
	Store   store.Store
	Catalog *catalog.Catalog
	Now     func() time.Time
	NewID   func() string
	// Broker is asked what it holds, where it answers at once; nil: what a task has counted is shown, as of
	// Pub/Sub.
	Broker backlog.Counter
	// Viewer shows the subscriptions of paused queues; nil: they cannot be seen from here.
	Viewer pause.Viewer
	Links  Links
	// Worker returns the worker that this program would be with other files of the catalog. The error wraps
	// dryrun.ErrCatalog.
	Worker func(files map[string]string) (dryrun.Worker, error)
}

var errSeveral = console.Refuse(console.Conflict, "queue_needed",
	"Several queues or tenants know this event id; name one with queue or tenant.")

// Line is one event in the job log.
type Line struct {
	EventID   string        `json:"event_id" show:"Event" link:"events/{event_id}?queue={queue}&tenant={tenant}"`
	Queue     string        `json:"queue" show:"Queue" link:"queues"`
	Status    dedupe.Status `json:"status" show:"Status"`
	CreatedAt time.Time     `json:"created_at,omitzero" show:"Recorded"`
	EventType string        `json:"event_type" show:"Type,less"`
	Action    string        `json:"action"`
	Tenant    string        `json:"tenant" show:"Tenant,detail"`
	Attempts  int64         `json:"attempts" show:"Attempts,less"`
	Result    string        `json:"result" show:"Result,less"`
	Reason    string        `json:"reason" show:"Reason,less"`
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

// Events returns a page of the job log, the newest first, as dedupe.List does.
func (a Reads) Events(ctx context.Context, page dedupe.Listing) ([]Line, store.Cursor, error) {
	found, next, err := dedupe.List(ctx, a.Store, page)
	lines := make([]Line, len(found))
	for i, record := range found {
		lines[i] = LineOf(record)
	}
	return lines, next, err
}

// LineOf is what is shown of a record in a list.
func LineOf(r dedupe.Record) Line {
	return Line{
		EventID: r.EventID, EventType: r.EventType, Action: r.EventType, Queue: r.Queue, Tenant: r.Tenant,
		Status: r.Status, Attempts: r.Attempts, Result: r.Result, Ref: r.Ref, Reason: r.LastError,
		CorrelationID: r.CorrelationID, IdempotencyKey: r.IdempotencyKey, OrderingKey: r.OrderingKey,
		MessageID:   r.MessageID,
		NextRetryAt: r.NextRetryAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ProcessedAt: r.ProcessedAt,
	}
}

// InBroker returns what each queue has in the broker, by its id, and when it was counted.
func (a Reads) InBroker(ctx context.Context) (held map[string]backlog.Held, at time.Time, err error) {
	held = map[string]backlog.Held{}
	if a.Broker != nil {
		subscriptions, at, err := a.Broker.Backlogs(ctx)
		for _, q := range a.Catalog.Queues {
			if one, known := subscriptions[q.PushSubscription()]; known {
				held[q.ID] = one
			}
		}
		return held, at, err
	}
	counted, err := backlog.Read(ctx, a.Store)
	for _, q := range a.Catalog.Queues {
		if one, known := counted.Of(q.ID, a.Now()); known {
			held[q.ID] = one
		}
	}
	return held, counted.At, err
}

// Filtered is the queue of an id or alias; the zero queue where the name is empty: all are meant.
func (a Reads) Filtered(name string) (q catalog.Queue, err error) {
	if name == "" {
		return q, nil
	}
	q, ok := a.Catalog.Queue(name)
	if !ok {
		return q, console.Refuse(console.Malformed, "queue_unknown",
			"The catalog has no queue of that name or alias; GET /v1/ops/queues lists them.")
	}
	return q, nil
}

// Named is the queue of an id or alias.
func (a Reads) Named(name string) (catalog.Queue, error) {
	q, ok := a.Catalog.Queue(name)
	if !ok {
		return q, console.Refuse(console.Absent, "queue_unknown", "The catalog has no queue of that name or alias.")
	}
	return q, nil
}
