package payments

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

// PhasesCollection holds the phase documents: how far the refund that a message asks for has come.
const PhasesCollection = "twoPhase"

// The states of a phase. The last two are final.
const (
	prepared   = "prepared"    // reserved here; what happened at the gateway is not settled
	committed  = "committed"   // it took place there, and is confirmed here
	rolledBack = "rolled_back" // it was refused there, and what was reserved here is undone
)

// tries is how often one step is committed anew before the rest is left to a redelivery.
const tries = 3

// phase is a phase document as last read or written. Without a state there is none that counts.
type phase struct {
	version store.Version
	Queue   string    `store:"queue"`
	Tenant  string    `store:"tenant"`
	EventID string    `store:"event_id"`
	State   string    `store:"state,required"`
	Result  string    `store:"result,required"` // once committed
	Reason  string    `store:"reason,required"` // the refusal's, once rolled back
	Created time.Time `store:"created_at,required"`
	Updated time.Time `store:"updated_at"`
	// Expires is zero while prepared: a forgotten reservation would be lost.
	Expires time.Time `store:"expire_at,omitzero"`
}

func (p phase) outcome() (result string, err error) {
	if p.State == rolledBack {
		return "", retry.Permanent(p.Reason, nil)
	}
	return p.Result, nil
}

// phaseKey is the key of an event's phase. Its id is that of the event's record.
func phaseKey(event handler.Event) store.Key {
	return store.Key{Collection: PhasesCollection, ID: dedupe.Key(event.Queue, event.Tenant, event.ID).ID}
}

// plan is what do begins with: what is reserved, unless it is already, and the request to the gateway.
func (a attempt) plan(ctx context.Context) (plan handler.Plan, err error) {
	at, err := a.phase(ctx)
	switch {
	case err != nil:
		return handler.Plan{}, err
	case at.State == "":
		_, plan.Writes, err = a.reserved(ctx, at)
		if err != nil {
			return handler.Plan{}, err
		}
	case at.State != prepared:
		plan.Effect.Result, err = at.outcome()
		return plan, err
	}
	plan.Calls = []handler.Call{a.Gateway.Request(a.asked.EventID, a.asked.text())}
	return plan, nil
}

// do reserves the refund, has the gateway make it, and settles it. A crash between any two steps is mended by
// doing it again: nothing is rolled back but on a refusal, and then the gateway is asked once more.
func (a attempt) do(ctx context.Context) (string, error) {
	at, created, err := a.reserve(ctx)
	switch {
	case err != nil:
		return "", err
	case at.State != prepared:
		return at.outcome()
	}
	if !created {
		if result, done, err := a.find(ctx, at); err != nil || done {
			return result, err
		}
	}
	refusal := a.request(ctx)
	if refusal == nil {
		return a.settle(ctx, at, committed, string(Refunded))
	}
	verdict := retry.Decide(refusal)
	if verdict.Class != retry.Rejected {
		return "", refusal
	}
	// What was refused may be the repetition of a request that got through: this
	// worker's own, or that of another one.
	if result, done, err := a.find(ctx, at); err != nil || done {
		return result, err
	}
	result, err := a.settle(ctx, at, rolledBack, verdict.Reason)
	if err == nil || retry.Decide(err) != verdict {
		return result, err
	}
	return "", refusal // it says more than what is kept of it
}

func (a attempt) reconcile(ctx context.Context) (string, bool, error) {
	at, err := a.phase(ctx)
	switch {
	case err != nil || at.State == "":
		return "", false, err
	case at.State == prepared:
		return a.find(ctx, at)
	}
	result, err := at.outcome()
	return result, err == nil, err
}

// request asks the gateway for the refund. After an error marked retry.Permanent nothing happened there and
// nothing will; after any other the outcome is unknown.
func (a attempt) request(ctx context.Context) error {
	answer, err := a.Gateway.Do(ctx, a.asked.EventID, a.asked.text())
	if err != nil {
		return err
	}
	s, err := a.asked.read(answer)
	if err == nil && s.Status == statusDeclined {
		err = retry.Permanent("refund_declined", nil)
	}
	return err
}

// find asks the gateway what became of the request, and confirms here what it finds there.
func (a attempt) find(ctx context.Context, at phase) (string, bool, error) {
	answer, known, err := a.Gateway.Reconcile(ctx, a.asked.EventID)
	if err != nil || !known {
		return "", false, err
	}
	s, err := a.asked.read(answer)
	if err != nil || s.Status != statusSucceeded {
		return "", false, err
	}
	result, err := a.settle(ctx, at, committed, string(Refunded))
	return result, err == nil, err
}

// reserve reserves the refund, or finds that it was done before. created: no earlier attempt can have asked
// the gateway.
func (a attempt) reserve(ctx context.Context) (at phase, created bool, err error) {
	for range tries {
		at, err = a.phase(ctx)
		if err != nil || at.State != "" {
			return at, false, err
		}
		next, writes, err := a.reserved(ctx, at)
		if err != nil {
			return at, false, err
		}
		if next, err = a.commit(ctx, next, writes); err == nil {
			return next, true, nil
		}
		if !refused(err) {
			return at, false, err
		}
	}
	return at, false, retry.Busy("contention", nil)
}

// reserved is the phase of an event whose refund is reserved now, and the writes that reserve it: of two
// messages that ask for a payment's refund, one is let through.
func (a attempt) reserved(ctx context.Context, at phase) (phase, []store.Write, error) {
	there, err := a.look(ctx)
	next, write := a.write(phase{version: at.version, State: prepared})
	switch {
	case err != nil:
		return phase{}, nil, err
	case there.State == UnderWay && there.of(a.event):
		return next, []store.Write{write}, nil // by another worker, with the phase that this one is about to find
	case there.State == UnderWay:
		// Its outcome may be unknown for long, and after that it may be refused: no answer yet.
		return phase{}, nil, retry.Missing("refund_under_way", nil)
	case there.State == Refunded:
		return phase{}, nil, retry.Busy("contention", nil) // settled since begin looked
	}
	return next, []store.Write{write, Refund{
		PaymentID: a.asked.PaymentID, Tenant: a.event.Tenant, SubscriptionID: a.asked.SubscriptionID,
		Amount: a.asked.Amount, Currency: a.asked.Currency, State: UnderWay,
		Queue: a.event.Queue, EventID: a.event.ID, ReservedAt: clock(a.Now), version: there.version,
	}.write()}, nil
}

// settle confirms with a result or rolls back with a reason; what was done before stands.
func (a attempt) settle(ctx context.Context, at phase, to, code string) (string, error) {
	for range tries {
		there, err := a.look(ctx)
		if err != nil {
			return "", err
		}
		own := there.State == UnderWay && there.of(a.event) // else settled with the phase: the commit fails
		there.SettledAt = clock(a.Now)
		next := at
		if next.State = to; to == committed {
			next.Result, there.State = code, Refunded
		} else {
			next.Reason, there.State, there.Reason = code, Refused, code
		}
		next, write := a.write(next)
		writes := []store.Write{write}
		if own {
			writes = append(writes, there.write())
		}
		if _, err = a.commit(ctx, next, writes); err == nil {
			return next.outcome()
		}
		if !refused(err) {
			return "", err
		}
		found, err := a.phase(ctx)
		switch {
		case err != nil:
			return "", err
		case to == committed && found.State == rolledBack:
			return "", retry.Permanent("two_phase_disagreement",
				errors.New("payments: refunded there after it was refused there and rolled back here"))
		case found.State == committed, found.State == rolledBack:
			return found.outcome()
		case found.State == "":
			return "", retry.Transient("phase_lost", fmt.Errorf("payments: %s is gone", phaseKey(a.event)))
		}
	}
	return "", retry.Busy("contention", nil)
}

// write returns a phase as it is to be written now, and its write.
func (a attempt) write(to phase) (phase, store.Write) {
	now := a.Now()
	if to.Created.IsZero() {
		to.Created = now
	}
	if to.State != prepared {
		to.Expires = now.Add(a.RememberFor)
	}
	to.Queue, to.Tenant, to.EventID, to.Updated = a.event.Queue, a.event.Tenant, a.event.ID, now
	return to, store.Replace(phaseKey(a.event), to.version, store.Encode(&to))
}

// commit commits the writes, of which the first is the phase's, and returns it as the store holds it.
func (a attempt) commit(ctx context.Context, to phase, writes []store.Write) (phase, error) {
	versions, err := a.Store.Commit(ctx, writes)
	switch {
	case err == nil:
		to.version = versions[0]
		return to, nil
	case refused(err):
		return phase{}, err
	case errors.Is(err, store.ErrInvalid):
		return phase{}, retry.Permanent("effect_invalid", err)
	default:
		return phase{}, retry.Outage("store_unavailable", fmt.Errorf("payments: commit %s: %w", to.State, err))
	}
}

func refused(err error) bool {
	return errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrStale)
}

// phase returns the phase of the event. What cannot be read must not pass for absent: it would be done again.
// Removal of one that has expired is late, so the time decides.
func (a attempt) phase(ctx context.Context) (phase, error) {
	doc, err := store.Find(ctx, a.Store, phaseKey(a.event))
	switch {
	case err != nil:
		return phase{}, retry.Outage("store_unavailable", fmt.Errorf("payments: read phase: %w", err))
	case doc.Version == 0:
		return phase{}, nil
	}
	p := phase{version: doc.Version}
	err = store.Decode(doc.Fields, &p)
	settled := p.State == committed || p.State == rolledBack
	switch {
	case err != nil, !settled && p.State != prepared, settled && p.Expires.IsZero():
		return phase{}, retry.Transient("phase_unreadable", fmt.Errorf("payments: %s is not readable", doc.Key))
	case settled && !a.Now().Before(p.Expires):
		return phase{version: doc.Version}, nil
	}
	return p, nil
}
