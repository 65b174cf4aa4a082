// Package pause owns the record that a queue is paused: who paused it, when and why. While it is, its subscription has no push
// endpoint, and what is published waits in the broker. It refuses to report what was asked: it reads the subscription
// afterwards.
package pause

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// Collection has a document for each queue that is paused, under the queue's id.
const Collection = "pauses"

// Kind is what the audit calls the subject of a change; the subject is the queue's id.
const Kind = "queue"

// The errors of a change. Any other means that nothing is known, and nothing certain of the change.
var (
	// ErrInvalid is wrapped by every refusal of a change; its text says why, without a value.
	ErrInvalid = errors.New("pause: invalid change")
	// ErrBroken: what is stored is no pause.
	ErrBroken = errors.New("pause: stored pause is not readable")
)

// Pause says that a queue is paused, by whom, why, and since when.
type Pause struct {
	Queue string    `json:"queue" store:"queue,required" show:"Queue" link:"queues"` // its id
	Who   string    `json:"who" store:"who,required" show:"Who"`
	Why   string    `json:"why" store:"why,required" show:"Why"`
	At    time.Time `json:"at" store:"at,required" show:"Since"`
}

// Standing is what a queue's subscription does, as the broker shows it.
type Standing string

// What a subscription does.
const (
	Pushing Standing = "pushing" // it has its endpoint, and no mark of a pause
	Paused  Standing = "paused"  // it has no endpoint, and the mark of a pause
	// Undone: it has the mark of a pause, and pushes. Somebody has given it an endpoint past Billhook.
	Undone Standing = "undone"
	// Unmarked: it has neither an endpoint nor a mark. Somebody has taken the endpoint past Billhook.
	Unmarked Standing = "unmarked"
	Missing  Standing = "missing" // there is no subscription
	Unknown  Standing = "unknown" // it cannot be read
)

// Words says what the subscription does.
func (s Standing) Words() string {
	return map[Standing]string{
		Pushing:  "pushes",
		Paused:   "pushes nothing",
		Undone:   "is marked as paused and pushes all the same: somebody has given it its endpoint past Billhook",
		Unmarked: "pushes nothing and is not marked as paused: somebody has taken its endpoint past Billhook",
		Missing:  "is not there",
		Unknown:  "cannot be seen from here",
	}[s]
}

// Viewer shows subscriptions.
type Viewer interface {
	// Standing reads the push subscription of the queue. It never returns Unknown without an error.
	Standing(ctx context.Context, q catalog.Queue) (Standing, error)
}

// Switch changes subscriptions. After an error the outcome is unknown: Standing tells.
type Switch interface {
	// Pause takes the subscription's endpoint away and marks it with the time, both at once, any number of times.
	Pause(ctx context.Context, q catalog.Queue, at time.Time) error
	// Resume gives the subscription the catalog's endpoint and removes the mark, both at once, any number of times.
	Resume(ctx context.Context, q catalog.Queue) error
}

// State is how a queue stands, also after a change, and what that means for what waits in the broker.
type State struct {
	Queue string `json:"queue" show:"Queue"` // its id
	// Pause is the record; nil: the queue is not paused.
	Pause *Pause `json:"pause,omitempty"`
	// Changed reports whether this call has written or removed the record.
	Changed bool `json:"changed"`
	// Subscription is what the subscription does now.
	Subscription Standing `json:"subscription" show:"Subscription"`
	// Granted reports whether this worker may change subscriptions; else an operator does.
	Granted bool `json:"granted"`
	// Problem is why the subscription could not be changed or read; empty: it could.
	Problem string `json:"problem,omitempty"`
	// RetentionSeconds is how long the broker keeps a message, counted from its publishing.
	RetentionSeconds console.Seconds `json:"retention_seconds" show:"Kept for"`
	// KeptUntil is, of a paused queue, when the broker deletes what was published at its pause.
	KeptUntil time.Time `json:"kept_until,omitzero" show:"Kept until"`
	// MessageTTLSeconds is the age from which a message is dropped unhandled; 0: none is.
	MessageTTLSeconds console.Seconds `json:"message_ttl_seconds"`
	// DroppedFrom is, of a paused queue with such an age, when what was published at its pause has it.
	DroppedFrom time.Time `json:"dropped_from,omitzero"`
}

// wanted is what the subscription does where it follows the record.
func wanted(paused bool) Standing {
	if paused {
		return Paused
	}
	return Pushing
}

// Settled reports whether the subscription is known to follow the record.
func (s State) Settled() bool { return s.Subscription == wanted(s.Pause != nil) }

// Operator pauses queues and resumes them. Store, Now and NewID are required.
type Operator struct {
	Store store.Store
	// Viewer and Switch reach the broker; nil: this worker may not.
	Viewer Viewer
	Switch Switch
	Now    func() time.Time
	// NewID tells apart what happens in one microsecond; random.
	NewID func() string
}

func key(queue string) store.Key { return store.Key{Collection: Collection, ID: queue} }

// List returns the pauses of all queues, by queue. There are at most as many as queues.
func List(ctx context.Context, from store.Querier) ([]Pause, error) {
	all, _, err := store.List(ctx, from, store.Query{Collection: Collection, Limit: store.MaxPage}, Read)
	return all, err
}

// Read reads the document of a pause.
func Read(doc store.Document) (Pause, error) {
	var p Pause
	if err := store.Decode(doc.Fields, &p); err != nil || p.Queue != doc.Key.ID {
		return Pause{}, fmt.Errorf("%w: %s", ErrBroken, doc.Key)
	}
	return p, nil
}

// Look returns how a queue stands, and changes nothing.
func (o *Operator) Look(ctx context.Context, q catalog.Queue) (State, error) {
	doc, err := store.Find(ctx, o.Store, key(q.ID))
	if err != nil {
		return State{}, err
	}
	found := State{
		Queue: q.ID, Granted: o.Switch != nil,
		RetentionSeconds: console.Seconds(q.MessageRetention.Seconds()), MessageTTLSeconds: console.Seconds(q.MessageTTL.Seconds()),
	}
	if doc.Version != 0 {
		record, err := Read(doc)
		if err != nil {
			return State{}, err
		}
		found.Pause, found.KeptUntil = &record, record.At.Add(q.MessageRetention)
		if q.MessageTTL > 0 {
			found.DroppedFrom = record.At.Add(q.MessageTTL)
		}
	}
	found.Subscription, found.Problem = o.view(ctx, q)
	return found, nil
}

// Set records that a queue is paused, or removes the record, and has its subscription follow, also where a
// killed call has not. The error is that of audit.Change.Update, wraps ErrInvalid or ErrBroken, or says that
// nothing is known.
func (o *Operator) Set(ctx context.Context, q catalog.Queue, pauses bool, by audit.Change) (State, error) {
	if !q.Enabled {
		return State{}, fmt.Errorf("%w: the queue does not run here, so nothing of it is pushed; it is pushed again once the deployment runs it", ErrInvalid)
	}
	changed, now := false, o.Now().UTC().Truncate(time.Microsecond)
	_, err := by.Update(ctx, o.Store, key(q.ID), audit.Subject{Kind: Kind, ID: q.ID}, now, o.NewID(), func(doc store.Document) (audit.Made, error) {
		was := doc.Version != 0
		record, unreadable := Read(doc) // what cannot be read can be replaced
		changed = was != pauses || (was && unreadable != nil)
		action := map[bool]string{true: "pause", false: "resume"}[pauses]
		made := audit.Made{Action: action, Before: side(was), After: side(pauses)}
		if changed {
			record = Pause{Queue: q.ID, Who: by.Who.String(), Why: by.Why, At: now}
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
		return State{}, err
	}
	found, err := o.settle(ctx, q)
	found.Changed = changed
	return found, err
}

func side(paused bool) map[string]any { return map[string]any{"paused": paused} }

// settle has the subscription follow the record, which it reads again behind each step: another may settle, too.
func (o *Operator) settle(ctx context.Context, q catalog.Queue) (State, error) {
	found, err := o.Look(ctx, q)
	if err != nil || o.Switch == nil {
		return found, err
	}
	for range 3 {
		if found.Settled() || found.Subscription == Missing {
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

// view reads the subscription. The problem is empty where it could be read, or where this worker has no way to.
func (o *Operator) view(ctx context.Context, q catalog.Queue) (standing Standing, problem string) {
	if o.Viewer == nil {
		return Unknown, ""
	}
	standing, err := o.Viewer.Standing(ctx, q)
	if err != nil {
		return Unknown, err.Error()
	}
	return standing, ""
}
