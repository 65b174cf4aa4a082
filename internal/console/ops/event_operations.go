package ops

import (
	"context"

	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
)

// EventFilter are the fields by which events are chosen.
type EventFilter struct {
	Queue         string `json:"-" query:"queue" help:"only of this queue, by id or alias"`
	Status        string `json:"-" query:"status" validate:"omitempty,oneof=PROCESSING COMPLETED FAILED DEAD_LETTERED" help:"only of this status"`
	Type          string `json:"-" query:"type" validate:"omitempty,id" help:"only of this event type"`
	EventID       string `json:"-" query:"event_id" validate:"omitempty,id" help:"only of this event id, in any queue"`
	CorrelationID string `json:"-" query:"correlation_id" validate:"omitempty,id" help:"only of this correlation id"`
	Key           string `json:"-" query:"key" validate:"omitempty,uid" help:"only of this ordering key"`
}

// ListEvents asks for the newest events.
type ListEvents struct {
	EventFilter
	console.Span
	console.Page
}

// EventOf asks for what is stored under an event id.
type EventOf struct {
	ID     string `json:"-" path:"event_id" validate:"required,id" help:"event id"`
	Queue  string `json:"-" query:"queue" help:"the queue, by id or alias, where several know the id"`
	Tenant string `json:"-" query:"tenant" validate:"omitempty,id" help:"the tenant, where several have the id"`
}

// PayloadOf asks for the payloads of an event.
type PayloadOf struct {
	EventOf
	console.Change
}

// EventOperations are what people do with events, which is to look at them.
func (a Reads) EventOperations() []console.Operation {
	several := console.Refusal{Of: errSeveral, Kind: console.Conflict, Code: "queue_needed", Detail: "Several queues or tenants know this event id; name one with queue or tenant."}
	return []console.Operation{
		console.New(console.Row{
			Name: "events ls", Path: "GET /v1/ops/events", Summary: "List events, the newest first: the job log", Beside: []string{"queues waiting"},
			Help: "An event is as old as its record: a retry leaves it in its place. What waits for its first attempt has no record\n" +
				"yet: queues waiting counts it.",
			Empty: "No event is in this list. A worker records an event at its first attempt.",
		}, func(ctx context.Context, _ audit.Author, in ListEvents) (console.List[Line], error) {
			equal, err := a.equal(in.EventFilter)
			if err != nil {
				return console.List[Line]{}, err
			}
			items, next, err := a.Events(ctx, dedupe.Listing{
				Equal: equal, Since: in.Since.Time, Until: in.Until.Time, After: in.After, Limit: min(in.Limit, dedupe.MaxListed),
			})
			return console.ListOf(items, next), err
		}),
		console.New(console.Row{
			Name: "events show", Path: "GET /v1/ops/events/{event_id}", Errors: append([]console.Refusal{several}, seal.Failures...),
			Summary: "Show where an event waits, and what happened to it: attempts, dead letters, replays",
		}, func(ctx context.Context, _ audit.Author, in EventOf) (Event, error) {
			q, err := a.filtered(in.Queue)
			if err != nil {
				return Event{}, err
			}
			return a.Event(ctx, in.ID, q.ID, in.Tenant)
		}),
		console.New(console.Row{
			Name: "events payload", Path: "POST /v1/ops/events/{event_id}/payload", Needs: console.Reason, Once: true, Errors: []console.Refusal{several, deadletter.Unkept},
			Summary: "Show the payload of an event that is kept",
			Help:    "The payload is minimized: names and addresses were taken out on receipt. The audit says who has looked, and why.",
		}, a.showPayload),
	}
}

// equal are the fields of the records that a filter asks for.
func (a Reads) equal(f EventFilter) (map[string]any, error) {
	q, err := a.filtered(f.Queue)
	equal := map[string]any{}
	for field, value := range map[string]string{
		"queue": q.ID, "status": f.Status, "event_id": f.EventID, "correlation_id": f.CorrelationID, "ordering_key": f.Key, "event_type": f.Type,
	} {
		if value != "" {
			equal[field] = value
		}
	}
	return equal, err
}
