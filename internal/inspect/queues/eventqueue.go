package queues

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pii"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
)

// EventQueue serves the API of the event queue that Billhook replaces, over all queues, so that existing
// scripts keep working (requirements: event retry, section 5).
type EventQueue struct {
	Reads

	Operator *bulk.Operator
	Log      *slog.Logger
}

type listDeadEvents struct {
	Limit int `json:"-" query:"limit" default:"100" validate:"min=1,max=1000" help:"the most"`
}

type retryOf struct {
	ID string `json:"-" path:"event_id" validate:"required" help:"event id, or that of the dead letter"`
}

type cleanup struct {
	// named as in the event queue
	Days int    `json:"-" query:"olderThanDays" default:"7" validate:"min=1,max=3660" help:"days since the events were completed"`
	Page string `json:"-" query:"page" help:"where to continue: page of the previous answer"`
}

// Operations returns the operations that those scripts call.
func (a EventQueue) Operations() []console.Operation {
	return []console.Operation{
		console.New(console.Row{Name: "event-queue stats", Path: "GET /api/v1/events/stats"}, a.stats),
		console.New(console.Row{Name: "event-queue ls", Path: "GET /api/v1/events/dead-letter"}, a.deadEvents),
		console.New(console.Row{
			Name: "event-queue retry", Path: "POST /api/v1/events/dead-letter/{event_id}/retry", Needs: console.Act,
		}, a.retry),
		console.New(console.Row{
			Name: "event-queue cleanup", Path: "DELETE /api/v1/events/cleanup", Needs: console.Act,
		}, a.cleanupDays),
	}
}

// Stats counts the events of all queues by the event queue's statuses, each event once. It leaves out timers:
// emissions and messages that are meant for a later time.
type Stats struct {
	// Pending counts the messages that wait for their first attempt or have no record: in the broker (also on
	// paused queues), kept behind others of their ordering key, or in the outbox.
	Pending int64 `json:"pending"`
	// Processing, Completed and Failed count the records of events. A failed event will be retried.
	Processing int64 `json:"processing"`
	Completed  int64 `json:"completed"`
	Failed     int64 `json:"failed"`
	DeadLetter int64 `json:"deadLetter"`
	// AtLeast: a count stopped at its limit, or the number of a queue's messages in the broker is not known.
	AtLeast bool `json:"atLeast,omitempty"`
}

// stats counts the events of all queues, each number up to deadletter.CountTo. A failed or processing event
// has a record, and also a message in the broker or in a lane. So Pending is the number of messages minus
// these.
func (a EventQueue) stats(ctx context.Context, _ audit.Author, _ struct{}) (stats Stats, err error) {
	var messages, kept int64
	counts := []struct {
		collection string
		equal      map[string]any
		recorded   dedupe.Status // counts the records of this status
		into       *int64
		more       bool
	}{
		{collection: lane.Delayed.Entries(), equal: map[string]any{"timer": false}, into: &kept},
		{collection: lane.Outbox.Entries(), into: &messages},
		{recorded: dedupe.Processing, into: &stats.Processing},
		{recorded: dedupe.Completed, into: &stats.Completed},
		{recorded: dedupe.Failed, into: &stats.Failed},
		{
			collection: deadletter.Collection, equal: store.Equals("state", string(deadletter.Open)),
			into: &stats.DeadLetter,
		},
	}
	var held map[string]backlog.Held
	err = store.AtOnce(ctx, len(counts)+1, func(ctx context.Context, i int) (err error) {
		if i == len(counts) {
			held, _, err = a.InBroker(ctx)
			return err
		}
		one, counted := &counts[i], Count{}
		if one.recorded == "" {
			counted, err = a.CountOf(ctx, one.collection, one.equal)
		} else {
			counted, err = a.recorded(ctx, dedupe.Listing{Equal: map[string]any{"status": string(one.recorded)}})
		}
		*one.into, one.more = counted.Count, counted.More
		return err
	})
	if err != nil {
		return Stats{}, err
	}
	for _, c := range counts {
		stats.AtLeast = stats.AtLeast || c.more
	}
	messages += kept
	for _, q := range a.Catalog.Queues {
		one, known := held[q.ID]
		messages += one.Messages
		stats.AtLeast = stats.AtLeast || (q.Enabled && !known)
	}
	// The broker's count is older than the records, so the difference may be negative.
	stats.Pending = max(0, messages-stats.Processing-stats.Failed)
	return stats, nil
}

// DeadEvent is an open dead letter with the columns of the event queue's table.
type DeadEvent struct {
	// ID is the dead letter's id, EventID the event's. A retry accepts either.
	ID       string `json:"id"`
	EventID  string `json:"eventId"`
	Queue    string `json:"queue"`
	Type     string `json:"type"`
	Priority string `json:"priority"`
	Status   string `json:"status"` // dead_letter
	// PayloadBytes is the size of the minimized message. POST /v1/ops/dead-letters/{id}/payload returns the
	// message to somebody who gives a reason.
	PayloadBytes int       `json:"payloadBytes"`
	Attempts     int64     `json:"attempts"`
	MaxAttempts  int       `json:"maxAttempts"`
	Error        string    `json:"error"`
	CreatedAt    time.Time `json:"createdAt,omitzero"`
	UpdatedAt    time.Time `json:"updatedAt,omitzero"`
}

func (a EventQueue) deadEvents(ctx context.Context, _ audit.Author, in listDeadEvents) ([]DeadEvent, error) {
	items, _, err := a.Operator.List(ctx, bulk.Filter{}, deadletter.Open, store.Cursor{}, in.Limit)
	events := make([]DeadEvent, len(items))
	for i, item := range items {
		q, _ := a.Catalog.Queue(item.Queue)
		h, _ := q.Handler(item.EventType)
		events[i] = DeadEvent{
			ID: item.ID, EventID: item.EventID, Queue: item.Queue, Type: item.EventType, Priority: q.Priority,
			Status:       "dead_letter",
			PayloadBytes: len(item.Data), Attempts: item.Attempts, MaxAttempts: h.MaxAttempts, Error: item.Reason,
			CreatedAt: item.FirstPublished, UpdatedAt: item.Died(),
		}
	}
	return events, err
}

// Retried is the result of a retry.
type Retried struct {
	ID        string        `json:"id"`
	EventID   string        `json:"eventId"`
	Queue     string        `json:"queue"`
	Operation string        `json:"operation"`
	Progress  bulk.Progress `json:"progress"`
	// Replayed: the message goes to its queue again, with all its attempts.
	Replayed bool `json:"replayed"`
}

const runTime = 20 * time.Second

const retryWhy = "retry asked for through /api/v1/events"

func (a EventQueue) retry(ctx context.Context, by audit.Author, in retryOf) (Retried, error) {
	item, err := a.openDeadLetter(ctx, in.ID)
	if err != nil {
		return Retried{}, err
	}
	op, err := a.Operator.Begin(ctx, bulk.Operation{
		Kind: deadletter.Replay, Filter: bulk.Filter{Queue: item.Queue, Items: []string{item.ID}}, Why: retryWhy,
	}, by, 1)
	if err == nil && op.Progress == bulk.Running {
		ctx, cancel := context.WithTimeout(ctx, runTime)
		defer cancel()
		op, err = a.Operator.Run(ctx, op.ID)
	}
	return Retried{
		ID: item.ID, EventID: item.EventID, Queue: item.Queue, Operation: op.ID, Progress: op.Progress,
		Replayed: op.Done > 0,
	}, err
}

var (
	errNotOpen = console.Refuse(console.Absent, "dead_letter_unknown",
		"No open dead letter has this id or event id.")
	errSeveralQueues = console.Refuse(console.Conflict, "id_needed",
		"Several open dead letters have this event id; retry them by their own ids.")
)

func (a EventQueue) openDeadLetter(ctx context.Context, id string) (deadletter.Item, error) {
	if item, err := a.Operator.Show(ctx, id); err == nil && item.State == deadletter.Open {
		return item, nil
	}
	if !pii.ID.Valid(id) {
		return deadletter.Item{}, errNotOpen
	}
	items, _, err := a.Operator.List(ctx, bulk.Filter{EventID: id}, deadletter.Open, store.Cursor{}, 2)
	switch {
	case err != nil:
		return deadletter.Item{}, err
	case len(items) == 0:
		return deadletter.Item{}, errNotOpen
	case len(items) > 1:
		return deadletter.Item{}, errSeveralQueues
	}
	return items[0], nil
}

// CleanedDays is the result of a cleanup by age.
type CleanedDays struct {
	// Remembered counts the records that were old enough but stay, because a late duplicate of their event could
	// still arrive.
	Deleted    int `json:"deleted"`
	Remembered int `json:"remembered"`
	// Page continues where the request stopped because it took too long; empty: the cleanup is complete.
	Page string `json:"page,omitempty"`
}

// cleanupDays keeps what its queue still remembers: otherwise a late duplicate would be processed.
func (a EventQueue) cleanupDays(ctx context.Context, by audit.Author, in cleanup) (CleanedDays, error) {
	begun := a.Now().UTC()
	var after store.Cursor
	if at, id, found := strings.Cut(in.Page, "~"); found {
		micros, _ := strconv.ParseInt(at, 10, 64) // an invalid number starts at an arbitrary record
		after = store.Cursor{At: time.UnixMicro(micros).UTC(), ID: id}
	}
	var cleaned CleanedDays
	for {
		done, next, err := dedupe.Prune(ctx, a.Store, begun.AddDate(0, 0, -in.Days), begun, after)
		cleaned.Deleted, cleaned.Remembered = cleaned.Deleted+done.Removed, cleaned.Remembered+done.Remembered
		after = next
		if err != nil || next.IsZero() || a.Now().Sub(begun) >= runTime {
			if !next.IsZero() {
				cleaned.Page = fmt.Sprintf("%d~%s", next.At.UnixMicro(), next.ID)
			}
			a.Log.LogAttrs(ctx, slog.LevelInfo, "ops cleanup", slog.String("who", by.String()),
				slog.Int("removed", cleaned.Deleted), slog.Int("remembered", cleaned.Remembered),
				slog.Bool("failed", err != nil))
			return cleaned, err
		}
	}
}
