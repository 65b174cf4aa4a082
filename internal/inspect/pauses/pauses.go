// Package pauses lets people pause and resume queues, and shows the state of each. It does not report what
// was requested as done: after a change it reads what the subscription does.
package pauses

import (
	"context"
	"fmt"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Kind is the kind of the audit's entries about pauses; their subject is the queue's id.
const Kind = "queue"

// ErrInvalid is wrapped by every refusal of a change; the text says why, without a value.
var ErrInvalid = console.Refuse(console.Refused, "refused", "")

// PauseState is the state of a queue, also after a change, and what it means for its messages in the broker.
type PauseState struct {
	Queue string `json:"queue" show:"Queue"` // its id
	// Pause is the record; nil: the queue is not paused.
	Pause *pause.Pause `json:"pause,omitempty"`
	// Changed reports whether this call has written or removed the record.
	Changed bool `json:"changed"`
	// Subscription is what the subscription does now.
	Subscription pause.Standing `json:"subscription" show:"Subscription"`
	// Granted reports whether this worker may change subscriptions; if not, an operator must.
	Granted bool `json:"granted"`
	// Problem is why the subscription could not be changed or read; empty: it could.
	Problem string `json:"problem,omitempty"`
	// RetentionSeconds is how long the broker keeps a message, counted from its publishing.
	RetentionSeconds console.Seconds `json:"retention_seconds" show:"Kept for"`
	// KeptUntil is when the broker deletes what was published at the start of the pause; zero: not paused.
	KeptUntil time.Time `json:"kept_until,omitzero" show:"Kept until"`
	// MessageTTLSeconds is the age from which a message is dropped unhandled; 0: never.
	MessageTTLSeconds console.Seconds `json:"message_ttl_seconds"`
	// DroppedFrom is when what was published at the start of the pause reaches that age; zero: it does not.
	DroppedFrom time.Time `json:"dropped_from,omitzero"`
}

// wanted is what the subscription does if it follows the record.
func wanted(paused bool) pause.Standing {
	if paused {
		return pause.Paused
	}
	return pause.Pushing
}

// Settled reports whether the subscription is known to follow the record.
func (s PauseState) Settled() bool { return s.Subscription == wanted(s.Pause != nil) }

// Operator pauses queues and resumes them. Store, Now and NewID are required.
type Operator struct {
	Store store.Store
	// Viewer and Switch reach the broker; nil: this worker may not.
	Viewer pause.Viewer
	Switch pause.Switch
	Now    func() time.Time
	// NewID returns a random id, which distinguishes entries of the same microsecond.
	NewID func() string
}

func key(queue string) store.Key { return store.Key{Collection: pause.Collection, ID: queue} }

// Look returns the state of a queue. It changes nothing.
func (o *Operator) Look(ctx context.Context, q catalog.Queue) (PauseState, error) {
	doc, err := store.Find(ctx, o.Store, key(q.ID))
	if err != nil {
		return PauseState{}, err
	}
	found := PauseState{
		Queue: q.ID, Granted: o.Switch != nil,
		RetentionSeconds:  console.Seconds(q.MessageRetention.Seconds()),
		MessageTTLSeconds: console.Seconds(q.MessageTTL.Seconds()),
	}
	if doc.Version != 0 {
		record, err := pause.Read(doc)
		if err != nil {
			return PauseState{}, err
		}
		found.Pause, found.KeptUntil = &record, record.At.Add(q.MessageRetention)
		if q.MessageTTL > 0 {
			found.DroppedFrom = record.At.Add(q.MessageTTL)
		}
	}
	found.Subscription, found.Problem = o.view(ctx, q)
	return found, nil
}

// Set writes or removes the record of a pause, then makes the subscription follow it, also if an earlier call
// was killed in between. The error is one of audit.Change.Update or wraps ErrInvalid or pause.ErrBroken;
// after any other the outcome is not known.
func (o *Operator) Set(
	ctx context.Context, q catalog.Queue, pauses bool, by audit.Change,
) (PauseState, error) {
	if !q.Enabled {
		return PauseState{}, fmt.Errorf("%w: the queue does not run here, so nothing of it is pushed; "+
			"it is pushed again once the deployment runs it", ErrInvalid)
	}
	changed, now := false, o.Now().UTC().Truncate(time.Microsecond)
	subject := audit.Subject{Kind: Kind, ID: q.ID}
	_, err := by.Update(ctx, o.Store, key(q.ID), subject, now, o.NewID(),
		func(doc store.Document) (audit.Made, error) {
			was := doc.Version != 0
			record, unreadable := pause.Read(doc) // an unreadable record can be replaced
			changed = was != pauses || (was && unreadable != nil)
			action := map[bool]string{true: "pause", false: "resume"}[pauses]
			made := audit.Made{Action: action, Before: side(was), After: side(pauses)}
			if changed {
				record = pause.Pause{Queue: q.ID, Who: by.Who.String(), Why: by.Why, At: now}
			} else if standing, _ := o.view(ctx, q); standing != wanted(was) {
				made.Action += "_again" // the subscription does not follow its record
			} else {
				return made, nil
			}
			made.Writes = []store.Write{store.Delete(doc.Key, doc.Version)}
			if pauses {
				made.Writes[0] = store.Replace(doc.Key, doc.Version, store.Encode(&record))
			}
			return made, nil
		})
	if err != nil {
		return PauseState{}, err
	}
	found, err := o.settle(ctx, q)
	found.Changed = changed
	return found, err
}

func side(paused bool) map[string]any { return map[string]any{"paused": paused} }

// settle makes the subscription follow the record. It reads the record again after each step, because another
// call may settle it at the same time.
func (o *Operator) settle(ctx context.Context, q catalog.Queue) (PauseState, error) {
	found, err := o.Look(ctx, q)
	if err != nil || o.Switch == nil {
		return found, err
	}
	for range 3 {
		if found.Settled() || found.Subscription == pause.Missing {
			return found, nil
		}
		if record := found.Pause; record != nil {
			err = o.Switch.Pause(ctx, q, record.At)
		} else {
			err = o.Switch.Resume(ctx, q)
		}
		refused := err
		if found, err = o.Look(ctx, q); err != nil {
			return found, err
		}
		if refused != nil && !found.Settled() {
			found.Problem = refused.Error()
			return found, nil
		}
	}
	return found, nil
}

// view reads the subscription. The problem is empty if that succeeded, or if this worker cannot read any
// subscription.
func (o *Operator) view(ctx context.Context, q catalog.Queue) (standing pause.Standing, problem string) {
	if o.Viewer == nil {
		return pause.Unknown, ""
	}
	standing, err := o.Viewer.Standing(ctx, q)
	if err != nil {
		return pause.Unknown, err.Error()
	}
	return standing, ""
}
