// Package twophase owns work that is prepared here, committed there, and confirmed or rolled back here: a
// refund is reserved, made at the gateway, and then settled. It owns the phase document, which remembers how
// far an event's work has come, and the order of the steps. It refuses to know what is reserved, who the
// other side is, and when to try again.
//
// Every step is idempotent by the event's key, so a crash between any two is mended by running the work
// again:
//
//   - What is reserved here is committed with the creation of the phase document, and settled with its one
//     change: confirmed once or rolled back once, never both. Of two workers the document's version lets one
//     through.
//   - The other side gets the event's CalleeKey as idempotency key. An unknown outcome there settles nothing:
//     the next attempt asks first, and repeats only where nothing happened.
//   - Nothing is rolled back but on a refusal, and then Find is asked once more: what was refused may have
//     been the repetition of a request that got through.
//
// A request that timed out may still arrive, even after the roll back. So the other side must decide once per
// key, refuse a refused key for good, and show Find the effect of every answered request. Where it does not
// remember refusals, Find must void the key there before it reports that nothing happened. An attempt that
// meets a side that does neither ends with the reason two_phase_disagreement: a dead letter for people.
//
// Work whose outcome stays unknown keeps its reservation, and a replay of its dead letter continues it. A
// settled phase document counts for RememberFor; after that the same event is a new one, here as for its
// record.
package twophase

import (
	"context"
	"errors"
	"fmt"
	"time"

	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// Collection holds the phase documents.
const Collection = "twoPhase"

// State is how far the work of an event has come.
type State string

// The states of a phase document. The last two are final.
const (
	// Prepared: reserved here; what happened there is not settled.
	Prepared State = "prepared"
	// Committed: it took place there, and is confirmed here.
	Committed State = "committed"
	// RolledBack: it was refused there, and what was reserved here is undone.
	RolledBack State = "rolled_back"
)

// tries is how often one step is committed anew before the rest is left to a redelivery.
const tries = 3

// Work is one kind of two-phase work. All fields are needed but Request.
//
// Prepare, Confirm and RollBack return at most store.MaxWrites-1 writes, which are committed with the phase
// document. Where their preconditions fail, they are called again with a higher Try. An error of theirs ends
// the attempt and means what its mark says.
type Work struct {
	Store store.GetCommitter
	Now   func() time.Time
	// RememberFor is how long settled work is remembered: no shorter than the queue remembers its events.
	RememberFor time.Duration
	// Prepare reserves here, before anything happens there. After a permanent error nothing is reserved.
	Prepare func(ctx context.Context, event handler.Event) ([]store.Write, error)
	// CommitThere does it on the other side, by the event's CalleeKey, and returns a short code. An error
	// marked retry.Permanent says that the other side refused: nothing happened and nothing will. After any
	// other the outcome is unknown.
	CommitThere func(ctx context.Context, event handler.Event) (result string, err error)
	// Find asks the other side, by the event's CalleeKey, whether CommitThere took place; result is then what
	// CommitThere would have returned. An error means that it is still not known.
	Find func(ctx context.Context, event handler.Event) (result string, done bool, err error)
	// Confirm finishes what Prepare reserved; result is what CommitThere returned.
	Confirm func(ctx context.Context, event handler.Event, result string) ([]store.Write, error)
	// RollBack undoes what Prepare reserved; reason is that of the refusal.
	RollBack func(ctx context.Context, event handler.Event, reason string) ([]store.Write, error)
	// Request is the request that CommitThere makes, for a plan of the work; nil: the work has no plan.
	Request func(event handler.Event) handler.Call
}

// Leased returns the work as a handler to register. It panics where a field is missing. Its Do and its
// Reconcile both start from the phase document: they return the result of work that is committed, and the
// refusal of work that is rolled back, as often as they are asked.
func (w Work) Leased() handler.Leased {
	if w.Store == nil || w.Now == nil || w.RememberFor <= 0 || w.Prepare == nil ||
		w.CommitThere == nil || w.Find == nil || w.Confirm == nil || w.RollBack == nil {
		panic("twophase: incomplete work")
	}
	h := handler.Outside(w.do, w.reconcile)
	if w.Request != nil {
		h.Plan = w.plan
	}
	return h
}

// plan is what do begins with: what is reserved, unless it is already, and the request to the other side.
func (w Work) plan(ctx context.Context, event handler.Event) (plan handler.Plan, err error) {
	at, err := w.read(ctx, event)
	switch {
	case err != nil:
		return handler.Plan{}, err
	case at.State == "":
		reserved, err := w.Prepare(ctx, event)
		if err != nil {
			return handler.Plan{}, err
		}
		_, phase := w.write(event, phase{version: at.version, State: Prepared})
		plan.Writes = append([]store.Write{phase}, reserved...)
	case at.State != Prepared:
		plan.Effect.Result, err = at.outcome()
		return plan, err
	}
	plan.Calls = []handler.Call{w.Request(event)}
	return plan, nil
}

// Key is the key of an event's phase document. Its id is that of the event's record.
func Key(queue, tenant, eventID string) store.Key {
	return store.Key{Collection: Collection, ID: dedupe.Key(queue, tenant, eventID).ID}
}

func (w Work) do(ctx context.Context, event handler.Event) (string, error) {
	at, created, err := w.prepare(ctx, event)
	switch {
	case err != nil:
		return "", err
	case at.State != Prepared:
		return at.outcome()
	}
	if !created {
		result, done, err := w.find(ctx, event, at)
		if err != nil || done {
			return result, err
		}
	}
	result, refusal := w.CommitThere(ctx, event)
	if refusal == nil {
		return w.settle(ctx, event, at, Committed, result)
	}
	verdict := retry.Decide(refusal)
	if verdict.Class != retry.Rejected {
		return "", refusal
	}
	// What was refused may be the repetition of a request that got through: this
	// worker's own, or that of another one.
	result, done, err := w.find(ctx, event, at)
	if err != nil || done {
		return result, err
	}
	result, err = w.settle(ctx, event, at, RolledBack, verdict.Reason)
	if err == nil || retry.Decide(err) != verdict {
		return result, err
	}
	return "", refusal // it says more than what is kept of it
}

func (w Work) reconcile(ctx context.Context, event handler.Event) (string, bool, error) {
	at, err := w.read(ctx, event)
	switch {
	case err != nil:
		return "", false, err
	case at.State == "":
		return "", false, nil
	case at.State == Prepared:
		return w.find(ctx, event, at)
	}
	result, err := at.outcome()
	return result, err == nil, err
}

// find asks the other side, and confirms here what it finds there.
func (w Work) find(ctx context.Context, event handler.Event, at phase) (string, bool, error) {
	result, done, err := w.Find(ctx, event)
	if err != nil || !done {
		return "", false, err
	}
	result, err = w.settle(ctx, event, at, Committed, result)
	return result, err == nil, err
}

// prepare reserves, or finds that it was done before. created: no earlier attempt can have asked the other
// side.
func (w Work) prepare(ctx context.Context, event handler.Event) (at phase, created bool, err error) {
	for range tries {
		at, err = w.read(ctx, event)
		if err != nil || at.State != "" {
			return at, false, err
		}
		writes, err := w.Prepare(ctx, event)
		if err != nil {
			return at, false, err
		}
		next, err := w.commit(ctx, event, phase{version: at.version, State: Prepared}, writes)
		if err == nil {
			return next, true, nil
		}
		if !refused(err) {
			return at, false, err
		}
		event.Try++ // in vain where the phase document alone was in the way: read says so
	}
	return at, false, retry.Busy("contention", nil)
}

// settle confirms or rolls back, with the result or the reason; what was done before stands.
func (w Work) settle(ctx context.Context, event handler.Event, at phase, to State, code string) (string, error) {
	for range tries {
		next := at
		next.State = to
		var writes []store.Write
		var err error
		if to == Committed {
			next.Result = code
			writes, err = w.Confirm(ctx, event, code)
		} else {
			next.Reason = code
			writes, err = w.RollBack(ctx, event, code)
		}
		if err != nil {
			return "", err
		}
		if _, err = w.commit(ctx, event, next, writes); err == nil {
			return next.outcome()
		}
		if !refused(err) {
			return "", err
		}
		found, err := w.read(ctx, event)
		switch {
		case err != nil:
			return "", err
		case to == Committed && found.State == RolledBack:
			return "", retry.Permanent("two_phase_disagreement", errors.New("twophase: done there after it was refused there and rolled back here"))
		case found.State == Committed, found.State == RolledBack:
			return found.outcome()
		case found.State == "":
			return "", retry.Transient("phase_lost", fmt.Errorf("twophase: %s is gone", Key(event.Queue, event.Tenant, event.ID)))
		}
		event.Try++ // still prepared: a precondition of the other writes has failed
	}
	return "", retry.Busy("contention", nil)
}

// write returns a phase as it is to be written now, and its write.
func (w Work) write(event handler.Event, to phase) (phase, store.Write) {
	now := w.Now()
	if to.Created.IsZero() {
		to.Created = now
	}
	if to.State != Prepared {
		to.Expires = now.Add(w.RememberFor)
	}
	to.Queue, to.Tenant, to.EventID, to.Updated = event.Queue, event.Tenant, event.ID, now
	return to, store.Replace(Key(event.Queue, event.Tenant, event.ID), to.version, store.Encode(&to))
}

// commit writes a phase with the writes that go with it, and returns it as the store holds it.
func (w Work) commit(ctx context.Context, event handler.Event, to phase, writes []store.Write) (phase, error) {
	to, write := w.write(event, to)
	versions, err := w.Store.Commit(ctx, append([]store.Write{write}, writes...))
	switch {
	case err == nil:
		to.version = versions[0]
		return to, nil
	case refused(err):
		return phase{}, err
	case errors.Is(err, store.ErrInvalid):
		// The writes themselves are wrong; they will be wrong again.
		return phase{}, retry.Permanent("effect_invalid", err)
	default:
		return phase{}, retry.Outage("store_unavailable", fmt.Errorf("twophase: commit %s: %w", to.State, err))
	}
}

// refused reports whether a precondition of a commit failed.
func refused(err error) bool {
	return errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrStale)
}

// phase is a phase document as last read or written. Without a state there is none that counts.
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
	// Expires is zero while prepared: a forgotten reservation would be lost.
	Expires time.Time `store:"expire_at,omitzero"`
}

// outcome is the result or the error of a final phase.
func (p phase) outcome() (result string, err error) {
	if p.State == RolledBack {
		return "", retry.Permanent(p.Reason, nil)
	}
	return p.Result, nil
}

// read returns the phase of an event. What cannot be read must not pass for absent: it would be done again.
// Removal of one that has expired is late, so the time decides.
func (w Work) read(ctx context.Context, event handler.Event) (phase, error) {
	doc, err := store.Find(ctx, w.Store, Key(event.Queue, event.Tenant, event.ID))
	switch {
	case err != nil:
		return phase{}, retry.Outage("store_unavailable", fmt.Errorf("twophase: read phase: %w", err))
	case doc.Version == 0:
		return phase{}, nil
	}
	p := phase{version: doc.Version}
	err = store.Decode(doc.Fields, &p)
	settled := p.State == Committed || p.State == RolledBack
	switch {
	case err != nil, !settled && p.State != Prepared, settled && p.Expires.IsZero():
		return phase{}, retry.Transient("phase_unreadable", fmt.Errorf("twophase: %s is not readable", doc.Key))
	case settled && !w.Now().Before(p.Expires):
		return phase{version: doc.Version}, nil
	}
	return p, nil
}
