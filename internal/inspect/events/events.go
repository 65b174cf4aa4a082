// Package events shows what became of events, from the records, lanes and dead letters that the push worker
// writes. It shows only ids, codes, amounts and times, and the minimized payload to somebody who gives a
// reason, which it records in the audit first. It changes nothing else.
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
	// Broker counts the messages that it holds, if it can answer at once; nil: the counts that a task has stored
	// are shown, as for Pub/Sub.
	Broker backlog.Counter
	// Viewer shows the subscriptions of paused queues; nil: they cannot be seen from here.
	Viewer pause.Viewer
	Links  Links
	// Worker returns a worker for trials, with these files in place of the catalog's. The error wraps
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

// LineOf returns the line of a record in the job log.
func LineOf(r dedupe.Record) Line {
	return Line{
		EventID: r.EventID, EventType: r.EventType, Action: r.EventType, Queue: r.Queue, Tenant: r.Tenant,
		Status: r.Status, Attempts: r.Attempts, Result: r.Result, Ref: r.Ref, Reason: r.LastError,
		CorrelationID: r.CorrelationID, IdempotencyKey: r.IdempotencyKey, OrderingKey: r.OrderingKey,
		MessageID:   r.MessageID,
		NextRetryAt: r.NextRetryAt, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, ProcessedAt: r.ProcessedAt,
	}
}

// InBroker returns the messages of each queue in the broker, by queue id, and when they were counted.
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

// Filtered returns the queue with this id or alias; for an empty name the zero queue, which means all.
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

// Named returns the queue with this id or alias.
func (a Reads) Named(name string) (catalog.Queue, error) {
	q, ok := a.Catalog.Queue(name)
	if !ok {
		return q, console.Refuse(console.Absent, "queue_unknown", "The catalog has no queue of that name or alias.")
	}
	return q, nil
}
