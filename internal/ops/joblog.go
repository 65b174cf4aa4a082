package ops

import (
	"context"
	"maps"
	"net/http"
	"time"

	"billhook/internal/dedupe"
	"billhook/internal/serve"
	"billhook/internal/store"
)

// Line is one event in the job log.
type Line struct {
	EventID        string     `json:"event_id"`
	EventType      string     `json:"event_type"`
	Action         string     `json:"action"`
	Queue          string     `json:"queue"`
	Tenant         string     `json:"tenant"`
	Status         string     `json:"status"`
	Attempts       int64      `json:"attempts"`
	Result         string     `json:"result"`
	Reason         string     `json:"reason"`
	CorrelationID  string     `json:"correlation_id"`
	IdempotencyKey string     `json:"idempotency_key"`
	OrderingKey    string     `json:"ordering_key"`
	MessageID      string     `json:"message_id"`
	NextRetryAt    *time.Time `json:"next_retry_at,omitempty"`
	CreatedAt      *time.Time `json:"created_at,omitempty"`
	UpdatedAt      *time.Time `json:"updated_at,omitempty"`
	ProcessedAt    *time.Time `json:"processed_at,omitempty"`
}

// List is a page of a list. Next asks for the one after, with the same filters; a page
// may be short, or empty, and have a next.
type List[Item any] struct {
	Items []Item `json:"items"`
	Next  string `json:"next"`
}

// The bounds of the job log.
const (
	// MaxLines is the most that a page holds.
	MaxLines = 200
	lines    = 50
	// span is how far back it goes where nothing says so; longest how far it may.
	span    = 24 * time.Hour
	longest = 31 * 24 * time.Hour
	// ahead is how far behind now it ends where nothing says so: clocks differ.
	ahead = time.Minute
	// buckets is how many queries one request makes: two days of hours without an event.
	buckets = 48
	// readAhead is how much of an hour is read at least where only some of it may match.
	readAhead = 100
)

// events answers the job log, newest hour first, in the order of the ids within it: no
// query needs a composite index, nor a range over a field that rises with time. What
// one event or correlation has is found without hours, however old, where no time is
// asked for.
func (a *API) events(w http.ResponseWriter, r *http.Request) {
	asked := read(r, "queue", "status", "event_id", "correlation_id", "type", "since", "until", "limit", "page")
	equal := map[string]any{}
	for field, value := range map[string]string{
		"queue": asked.queue(a.Catalog), "status": asked.status(), "event_id": asked.id("event_id"),
		"correlation_id": asked.id("correlation_id"), "event_type": asked.id("type"),
	} {
		if value != "" {
			equal[field] = value
		}
	}
	now, limit := a.Now().UTC(), asked.limit(lines, MaxLines)
	var first place
	if asked.values.Has("since") || asked.values.Has("until") || (equal["event_id"] == nil && equal["correlation_id"] == nil) {
		first.until = asked.at("until", now, now.Add(ahead)).Truncate(time.Microsecond)
		first.since = asked.at("since", now, earlier(first.until, now).Add(-span)).Truncate(time.Microsecond)
		if !first.since.Before(first.until) || first.until.Sub(first.since) > longest+ahead {
			asked.refuse("since_invalid", "The parameter since is before until, and at most 31 days before.")
		}
		first.hour = newest(first)
	}
	at := asked.page("events", first)
	if asked.refused(w) {
		return
	}
	found, next, err := a.find(r.Context(), equal, at, limit)
	if err != nil {
		a.down(w, r, err)
		return
	}
	answer := List[Line]{Items: found}
	if next != nil {
		answer.Next = asked.token("events", *next)
	}
	serve.WriteJSON(w, http.StatusOK, answer)
}

// find reads up to limit lines from a place on, and returns where to go on, nil at the end.
func (a *API) find(ctx context.Context, equal map[string]any, at place, limit int) ([]Line, *place, error) {
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
func newest(p place) string { return dedupe.Hour(p.until.Add(-time.Microsecond)) }

// before is the hour before.
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
		EventID: r.EventID, EventType: r.EventType, Action: r.EventType, Queue: r.Queue, Tenant: r.Tenant, Status: string(r.Status), Attempts: r.Attempts,
		Result: r.Result, Reason: r.LastError, CorrelationID: r.CorrelationID, IdempotencyKey: r.IdempotencyKey, OrderingKey: r.OrderingKey, MessageID: r.MessageID,
		NextRetryAt: moment(r.NextRetryAt), CreatedAt: moment(r.CreatedAt), UpdatedAt: moment(r.UpdatedAt), ProcessedAt: moment(r.ProcessedAt),
	}
}
