package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/failpoint"
	"billhook/internal/retry"
)

// noneWaitFor is how long an instance assumes that no message of a queue waits in a lane, after it has read so.
const noneWaitFor = time.Second

// position is the place of a message in the lane of its key, as it was read.
type position struct {
	lane  lane.Lane
	read  bool
	waits bool      // behind another of its key, or until due where that is set
	due   time.Time // the time of delivery that its sender wants
}

// dropped answers a message that is not for the queue or is too old.
func (s *Service) dropped(d *delivery) finding {
	q, now := d.queue, s.config.Now()
	switch {
	case !q.Takes(d.message.Attributes): // the broker's filter, which an emulator does not apply
		return final(answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: "not_bound"})
	case q.MessageTTL > 0 && !d.replayed() && !d.record.PublishedAt.IsZero() && now.Sub(d.record.PublishedAt) > q.MessageTTL:
		return final(answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"})
	}
	return finding{}
}

// order finds whether the message has to wait, for its time of delivery or behind others of its key.
func (s *Service) order(ctx context.Context, d *delivery) (p position, f finding) {
	now := s.config.Now()
	if at := momentOf(d.message.Attributes[contract.AttrDeliverAt]); at.After(now) && !d.returned() { // else it has waited for it
		p.due = at
	}
	if d.laneKey == "" && p.due.IsZero() {
		return p, finding{}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	// Where messages do not wait as a rule, one read tells for the whole queue that there is no lane.
	if !d.queue.waits && !d.returned() && p.due.IsZero() {
		none, err := d.queue.noneWait.Get(ctx, "", func(ctx context.Context) (bool, time.Duration, error) {
			ctx, cancel := context.WithTimeout(ctx, bookkeeping)
			defer cancel()
			none, err := lane.NoneWaits(ctx, s.config.Store, d.queue.ID)
			return none, noneWaitFor, err
		})
		switch {
		case err != nil:
			return p, storeDown(err)
		case none:
			return p, finding{}
		}
	}
	if p.due.Sub(now) > contract.MaxAhead {
		return p, found(failed, retry.Permanent("deliver_at_too_far", nil))
	}
	var err error
	if p.lane, err = lane.Open(ctx, s.config.Store, d.lane(d.laneKey)); err != nil {
		return p, storeDown(err)
	}
	p.read, p.waits = true, !p.due.IsZero() || p.lane.Behind(d.message)
	return p, finding{}
}

// run is what is recorded of an attempt's event. That of a broken message hangs on the message alone, so that it cannot
// use up an event's id.
type run struct {
	*dedupe.Run
	claims     *dedupe.Run  // that of the event which a broken message names, where its id remembers the dead letter
	superseded bool         // its effect came too late
	emitted    lane.Emitted // what was committed
}

// putOff keeps a message that has to wait, unless its event was handled before or is kept already.
func (s *Service) putOff(ctx context.Context, a *attempt) finding {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	seen, err := a.run.Look(ctx)
	switch {
	case err != nil:
		return found(unanswered, err)
	case seen == dedupe.Early && !a.returned() && a.position.lane.Behind(a.message):
		// The broker repeats it, and has the copy whose attempt failed: to wait in that one's stead would cost its rank.
		return found(waiting, retry.Busy("behind_delayed", nil))
	case seen != dedupe.Fresh:
		return s.read(a, seen)
	case a.position.due.IsZero():
		return found(waiting, retry.Busy("behind_delayed", nil))
	}
	return found(waiting, retry.Busy("deliver_at", nil)).dueAt(a.position.due)
}

// claim claims the event of a leased handler. The record of a Tx handler's is read only where it was delivered before.
func (s *Service) claim(ctx context.Context, a *attempt) finding {
	if a.handler.Leased == nil && a.handler.Tx == nil {
		return found(failed, retry.Permanent(typeUnknown, nil))
	}
	if a.handler.Leased == nil && !a.known {
		return finding{}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if a.handler.Leased == nil {
		return s.recall(ctx, a)
	}
	return s.lease(ctx, a)
}

func (s *Service) lease(ctx context.Context, a *attempt) finding {
	var kept *contract.Message // for a sweep to publish it again
	if len(a.message.Data) <= contract.MaxKept {
		kept = &a.message
	}
	failpoint.Hit(failpoint.LeasedClaim)
	seen, err := a.run.Claim(ctx, a.queue.Lease, kept, a.known)
	means := retry.Decide(err)
	switch {
	case err != nil && means.Class.Terminal():
		return found(failed, err)
	case err != nil && means.Scope == retry.OneMessage && !means.Counts: // else the record cannot be read
		return found(held, err)
	case err != nil:
		return found(unanswered, err)
	case seen != dedupe.Claimed:
		return s.read(a, seen)
	}
	failpoint.Hit(failpoint.LeasedClaimed)
	return finding{}
}

// unexplained is how many deliveries may have left no trace before attempts are counted before they run.
const unexplained = 3

// recall reads the record of an event that was delivered before, and counts the attempt where its workers seem to die.
func (s *Service) recall(ctx context.Context, a *attempt) finding {
	seen, err := a.run.Look(ctx)
	for tries := 0; err != nil || seen != dedupe.Counted; tries++ {
		few := a.number-(a.run.Attempt()-1-int(a.record.Attempts)) <= unexplained
		switch {
		case tries == maxRounds:
			return found(held, retry.Busy("contention", nil))
		case err != nil:
			return found(unanswered, err)
		case seen != dedupe.Fresh:
			return s.read(a, seen)
		case few:
			return finding{}
		case a.run.Attempt() > a.allowed:
			return found(failed, workerDied)
		}
		seen, err = a.run.Count(ctx)
	}
	return finding{}
}

// perform calls the handler, again where its assumption no longer holds, and commits the effect with the record. A caller
// that leaves does not end a leased handler: half a call is worse than a whole one.
func (s *Service) perform(ctx context.Context, a *attempt) finding {
	leased := a.handler.Leased != nil
	if leased {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.policy.Timeout)
	defer cancel()
	for {
		event := a.event
		event.Attempt, event.Try = a.run.Attempt(), a.run.Try()
		effect, err := s.effect(ctx, a, event)
		over, emitted := ctx.Err(), lane.Emitted{}
		if err == nil {
			emitted, err = s.emit(a, event, &effect)
		}
		if leased {
			failpoint.Hit(failpoint.LeasedDone)
		}
		if err != nil {
			return s.unperformed(ctx, a, err, over, false)
		}
		a.run.superseded = effect.Superseded
		seen, err := s.commit(ctx, a, dedupe.Ending{Status: dedupe.Completed, Effect: effect, Emitted: emitted.Messages})
		if seen == dedupe.Own {
			a.run.emitted = emitted
		}
		switch {
		case err != nil:
			return s.unperformed(ctx, a, err, ctx.Err(), true)
		case !seen.Undecided():
			return s.read(a, seen)
		}
	}
}

// commit commits the effect with the record: that of a leased handler in a time of its own.
func (s *Service) commit(ctx context.Context, a *attempt, end dedupe.Ending) (dedupe.Seen, error) {
	if a.handler.Leased == nil {
		failpoint.Hit(failpoint.TxCommit)
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
		defer cancel()
	}
	seen, err := a.run.Conclude(ctx, end)
	switch { // a name of a fail point that is no constant would be left in a release
	case seen == dedupe.Own && a.handler.Leased == nil:
		failpoint.Hit(failpoint.TxCommitted)
	case seen == dedupe.Own:
		failpoint.Hit(failpoint.LeasedCompleted)
	}
	return seen, err
}

// unperformed is what a failure of the handler means or, where unknown, of the commit. over: time or caller are gone.
func (s *Service) unperformed(ctx context.Context, a *attempt, err, over error, unknown bool) finding {
	leased, f := a.handler.Leased != nil, found(failed, err)
	f.attempt = a.run.Attempt()
	if over != nil && !f.means.Class.Terminal() && (!leased || !unknown) {
		f.means = retry.Decide(over) // whatever error the handler or the store returned
	}
	one := f.means.Scope == retry.OneMessage
	switch {
	case leased && errors.Is(err, errAbandoned):
		// It still runs and cannot be stopped: no other attempt while the lease stands.
		s.config.Log.LogAttrs(ctx, slog.LevelError, "handler does not return", about(a.delivery)...)
		f.state = unanswered
	case leased && unknown && !f.means.Class.Terminal() && (f.means.Counts || !one):
		f.state = unanswered // the lease stands, and then Reconcile is asked
	case leased, f.means.Class.Terminal(), f.means.Counts, f.means.Scope == retry.OtherEvent:
	case over != nil, !one:
		f.state = uncertain
	default:
		f.state = held
	}
	return f
}

// call calls the handler. Before it calls a leased one again, it asks what became of the earlier attempt.
func (a *attempt) call(ctx context.Context, event handler.Event, again bool) (handler.Effect, error) {
	h := a.handler.Leased
	if h == nil {
		return a.handler.Tx(ctx, event)
	}
	if again && h.Reconcile != nil {
		effect, done, err := h.Reconcile(ctx, event)
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || done {
			return effect, err
		}
		if ctx.Err() != nil { // too late to begin
			return effect, ctx.Err()
		}
	}
	if event.Attempt > a.allowed {
		return handler.Effect{}, workerDied
	}
	return h.Do(ctx, event)
}

// emit adds the writes of an effect's emissions. It refuses one that the catalog does not list for the handler: nothing
// is granted for it. The release is at fault, so the event is tried again, and that counts.
func (s *Service) emit(a *attempt, event handler.Event, effect *handler.Effect) (lane.Emitted, error) {
	undeclared := func(emission handler.Emission) bool { return !slices.Contains(a.policy.Emits, emission.To) }
	if slices.ContainsFunc(effect.Emit, undeclared) { // without the topic's name, which the handler may have from the message
		return lane.Emitted{}, retry.Transient("emission_undeclared", nil)
	}
	return lane.Emit(s.config.Catalog, event, effect, s.config.Now())
}

// grace is how long a leased handler may take to return after its deadline.
const grace = time.Second

var errAbandoned = errors.New("push: the handler does not return")

// effect calls the handler so that neither a panic nor an ignored deadline ends the delivery. A call that has not returned
// when the grace has passed since its deadline is abandoned: a leased one goes on outside, and its lease must stand.
func (s *Service) effect(ctx context.Context, a *attempt, event handler.Event) (handler.Effect, error) {
	type returned struct {
		effect handler.Effect
		err    error
	}
	end, again := make(chan returned, 1), a.run.Repeated() || event.Try > 0
	go func() {
		var r returned
		defer func() {
			if value := recover(); value != nil {
				// The value may hold anything; its type and place are enough to find it.
				s.config.Log.LogAttrs(ctx, slog.LevelError, "handler panic",
					about(a.delivery, slog.String("type", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))...)
				r = returned{err: retry.Panicked()}
			}
			end <- r
		}()
		r.effect, r.err = a.call(ctx, event, again)
	}()
	patience := time.Duration(0)
	if a.handler.Leased != nil {
		patience = grace
	}
	var late <-chan time.Time
	for over := ctx.Done(); ; {
		select {
		case r := <-end:
			return r.effect, r.err
		case <-over:
			late, over = time.After(patience), nil
		case <-late:
			return handler.Effect{}, errAbandoned
		}
	}
}
