package twophase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/internal/handler"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// phase is a phase document as last read or written. Without a state there is none.
type phase struct {
	version store.Version
	state   State
	// result is CommitThere's code, once committed; reason the refusal's, once rolled back.
	result, reason string
	created        time.Time
	// expires is zero while prepared: a reservation that nobody remembers is lost.
	expires time.Time
}

// expired reports whether the phase no longer counts. Removal by TTL is late, and
// emulators never do it: the field decides.
func (p phase) expired(now time.Time) bool {
	return !p.expires.IsZero() && !now.Before(p.expires)
}

// outcome is what a final phase says, to whoever asks.
func (p phase) outcome() (result string, err error) {
	if p.state == RolledBack {
		return "", retry.Permanent(p.reason, nil)
	}
	return p.result, nil
}

func (p phase) fields(event handler.Event, now time.Time) map[string]any {
	fields := map[string]any{
		"queue": event.Queue, "tenant": event.Tenant, "event_id": event.ID,
		"state": string(p.state), "result": p.result, "reason": p.reason,
		"created_at": p.created.UTC().Truncate(time.Microsecond), "updated_at": now.UTC().Truncate(time.Microsecond),
	}
	if !p.expires.IsZero() {
		fields["expire_at"] = p.expires.UTC().Truncate(time.Microsecond)
	}
	return fields
}

// read returns the phase of an event. A document that cannot be read must not pass
// for absent: what it remembers would be done again.
func (w Work) read(ctx context.Context, event handler.Event) (phase, error) {
	doc, err := w.Store.Get(ctx, Key(event.Queue, event.Tenant, event.ID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return phase{}, nil
	case err != nil:
		return phase{}, retry.Outage("store_unavailable", fmt.Errorf("twophase: read phase: %w", err))
	}
	readable := true
	text := func(name string) string {
		value, ok := doc.Fields[name].(string)
		readable = readable && ok
		return value
	}
	at := func(name string) time.Time {
		value, ok := doc.Fields[name].(time.Time)
		readable = readable && ok
		return value
	}
	p := phase{
		version: doc.Version, state: State(text("state")), result: text("result"), reason: text("reason"),
		created: at("created_at"),
	}
	switch p.state {
	case Prepared:
	case Committed, RolledBack:
		p.expires = at("expire_at")
	default:
		readable = false
	}
	if !readable {
		return phase{}, retry.Transient("phase_unreadable", fmt.Errorf("twophase: %s is not readable", doc.Key))
	}
	return p, nil
}
