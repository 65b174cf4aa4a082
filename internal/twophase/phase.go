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
	Queue   string `store:"queue"`
	Tenant  string `store:"tenant"`
	EventID string `store:"event_id"`
	State   State  `store:"state,required"`
	// Result is CommitThere's code, once committed; Reason the refusal's, once rolled back.
	Result  string    `store:"result,required"`
	Reason  string    `store:"reason,required"`
	Created time.Time `store:"created_at,required"`
	Updated time.Time `store:"updated_at"`
	// Expires is zero while prepared: a reservation that nobody remembers is lost.
	Expires time.Time `store:"expire_at,omitzero"`
}

// expired reports whether the phase no longer counts. Removal by TTL is late, and
// emulators never do it: the field decides.
func (p phase) expired(now time.Time) bool {
	return !p.Expires.IsZero() && !now.Before(p.Expires)
}

// outcome is what a final phase says, to whoever asks.
func (p phase) outcome() (result string, err error) {
	if p.State == RolledBack {
		return "", retry.Permanent(p.Reason, nil)
	}
	return p.Result, nil
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
	p := phase{version: doc.Version}
	readable := store.Decode(doc.Fields, &p) == nil
	switch p.State {
	case Prepared:
	case Committed, RolledBack:
		readable = readable && !p.Expires.IsZero()
	default:
		readable = false
	}
	if !readable {
		return phase{}, retry.Transient("phase_unreadable", fmt.Errorf("twophase: %s is not readable", doc.Key))
	}
	return p, nil
}
