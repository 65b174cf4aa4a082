package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

const (
	// bookkeeping bounds each step that reads or writes around a handler, even after the caller has left. It is
	// longer than a store's pause of 10 s.
	bookkeeping = 12 * time.Second
	maxRounds   = 3           // how often a message is settled again, its record or lane not being as assumed
	maxResumes  = 5           // how many attempts may follow in one request, even if the clock stands still
	noneWaitFor = time.Second // how long an instance relies on having read that a queue has no lane
	// How many deliveries may leave no attempt in the record before attempts are counted ahead of running.
	unexplained = 3
	grace       = time.Second // how long a leased handler may take to return after its deadline
)

// bounded returns the context of a step around a handler. It does not end when the caller leaves.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
}

// attempt is one attempt at a delivery.
type attempt struct {
	*delivery
	run       *dedupe.Run
	delivered bool // the event was delivered before: its record is read first
	waited    bool // the request has just waited without an attempt, and does not wait again
	at        position
}

// position is where a message is in the lane of its key, as it was read.
type position struct {
	lane   lane.Lane // empty: it was not read
	behind bool      // another message of its key is before it
	due    time.Time // its time of delivery; zero: now
}

func (p position) waits() bool { return p.behind || !p.due.IsZero() }

// deliver makes attempts until the message has its answer. If the next attempt is due soon, the request waits
// for it, without a slot.
func (d *delivery) deliver(ctx context.Context) answer {
	delivered, waited := d.repeated(), false
	// An attempt that kills its worker leaves no other line.
	d.log.LogAttrs(ctx, slog.LevelInfo, "received",
		slog.Int("delivery_attempt", d.number), slog.String("instance", d.config.Instance))
	for resumed := 0; ; resumed++ {
		reply := d.attempt(ctx, delivered, waited)
		reply.EventID = d.record.EventID
		if reply.next.resume.IsZero() || resumed == maxResumes || !d.sleep(ctx, reply.next.resume) {
			return d.acknowledged(ctx, reply)
		}
		d.concluded(ctx, slog.LevelInfo, "attempt again", reply, slog.Int("status", reply.Status))
		delivered, waited = true, reply.Attempt == 0
	}
}

// sleep reports whether a time was reached before the service drains and before ctx ends.
func (s *Service) sleep(ctx context.Context, until time.Time) bool {
	left := until.Sub(s.config.Now())
	return left <= 0 || s.wait(ctx, left, nil)
}

// attempt takes the message through order, claim, perform and settle, until one of them has the answer.
func (d *delivery) attempt(ctx context.Context, delivered, waited bool) answer {
	// Keys take turns for the slots.
	key := cmp.Or(d.message.OrderingKey, d.message.Attributes[contract.AttrOrderingKey])
	if !d.queue.slots.acquire(ctx, key, len(d.message.Data), d.queue.SlotWait) {
		reason := "queue_full"
		if d.Draining() {
			reason = "shutting_down"
		}
		return found(unanswered, retry.Busy(reason, nil)).again()
	}
	defer d.queue.slots.release()
	a := &attempt{delivery: d, run: d.begin(), delivered: delivered, waited: waited}
	f := d.refused()
	for settled := 0; ; settled++ {
		f = a.decide(ctx, f)
		if f.state == answered || settled == maxRounds {
			return a.leave(ctx, f)
		}
		f = a.settle(ctx, a.dispose(f))
	}
}

// decide takes the remaining steps, and turns what is recorded into an answer or a failure.
func (a *attempt) decide(ctx context.Context, f finding) finding {
	if f.state == goesOn {
		f = a.order(ctx)
	}
	if f.state == goesOn {
		f = a.claim(ctx)
	}
	if f.state == goesOn {
		f = a.perform(ctx)
	}
	if f.state == recorded {
		f = a.read(f)
	}
	return f
}

// order finds whether the message has to wait: until its time of delivery, or for others of its key.
func (a *attempt) order(ctx context.Context) finding {
	now := a.config.Now()
	a.at = position{}
	if a.due.After(now) && !a.returned() { // else it has waited for it
		a.at.due = a.due
	}
	switch {
	case a.at.due.Sub(now) > contract.MaxAhead:
		return found(failed, retry.Permanent("deliver_at_too_far", nil))
	case a.lane.OrderingKey == "" && a.at.due.IsZero():
		return finding{}
	case !a.queue.waits && !a.returned() && a.at.due.IsZero():
		if none, err := a.noneWaits(ctx); err != nil {
			return storeDown(err)
		} else if none {
			return finding{}
		}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var err error
	if a.at.lane, err = lane.Open(ctx, a.config.Store, a.lane); err != nil {
		return storeDown(err)
	}
	a.at.behind = a.at.lane.Behind(a.message)
	if !a.at.waits() {
		return finding{}
	}
	seen, err := a.run.Look(ctx) // its event may have been handled before, or be kept already
	switch {
	case err != nil:
		return found(unanswered, err)
	case seen == dedupe.Early && !a.returned() && a.at.behind:
		// A copy: the broker has the one whose attempt failed, which would lose its rank if this one waited.
	case seen != dedupe.Fresh:
		return records(seen)
	case !a.at.due.IsZero():
		return found(waiting, retry.Busy("deliver_at", nil)).dueAt(a.at.due)
	}
	return found(waiting, retry.Busy("behind_delayed", nil))
}

// noneWaits reports whether the queue has no lane. One read serves all its messages.
func (d *delivery) noneWaits(ctx context.Context) (bool, error) {
	if none, known := d.queue.noneWait.Known(""); known { // without a timer
		return none, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return d.queue.noneWait.Get(ctx, "", func(ctx context.Context) (bool, time.Duration, error) {
		ctx, cancel := bounded(ctx)
		defer cancel()
		_, some, err := lane.Keys(ctx, d.config.Store, d.queue.ID, 0)
		return !some, noneWaitFor, err
	})
}

// claim claims the event for a leased handler. For a Tx handler it reads the record, if the event was
// delivered before.
func (a *attempt) claim(ctx context.Context) finding {
	switch {
	case a.handler.Tx == nil && !a.leased():
		return found(failed, retry.Permanent(typeUnknown, nil))
	case a.handler.Tx != nil && !a.delivered:
		return finding{}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if a.leased() {
		return a.lease(ctx)
	}
	return a.recall(ctx)
}

// recall reads the record of an event that was delivered before. If earlier attempts seem to have killed
// their workers, it counts this one before it runs.
func (a *attempt) recall(ctx context.Context) finding {
	seen, err := a.run.Look(ctx)
	for tries := 0; err != nil || seen != dedupe.Counted; tries++ {
		few := a.number-(a.run.Attempt()-1-int(a.record.Attempts)) <= unexplained
		switch {
		case tries == maxRounds:
			return found(held, retry.Busy("contention", nil))
		case err != nil:
			return found(unanswered, err)
		case seen != dedupe.Fresh:
			return records(seen)
		case few:
			return finding{}
		case a.run.Attempt() > a.policy.MaxAttempts:
			return found(failed, workerDied)
		}
		seen, err = a.run.Conclude(ctx, dedupe.Ending{Status: dedupe.Failed, Reason: dedupe.Begun})
	}
	return finding{}
}

func (a *attempt) lease(ctx context.Context) finding {
	var kept *contract.Message // so that a sweep can publish it again
	if len(a.message.Data) <= contract.MaxKept {
		kept = &a.message
	}
	failpoint.Hit(failpoint.LeasedClaim)
	seen, err := a.run.Claim(ctx, a.queue.Lease, kept, a.delivered)
	means := retry.Decide(err)
	switch {
	case err != nil && means.Class.Terminal():
		return found(failed, err)
	case err != nil && means.Scope == retry.OneMessage && !means.Counts: // else the record cannot be read
		return found(held, err)
	case err != nil:
		return found(unanswered, err)
	case seen != dedupe.Claimed:
		return records(seen)
	}
	failpoint.Hit(failpoint.LeasedClaimed)
	return finding{}
}

// perform calls the handler and commits the effect with the record. After a conflict it calls the handler
// again. A leased handler continues when the caller leaves: half a call is worse than a whole one.
func (a *attempt) perform(ctx context.Context) finding {
	if a.leased() {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, a.policy.Timeout)
	defer cancel()
	for {
		event := a.event
		event.Attempt, event.Try = a.run.Attempt(), a.run.Try
		effect, err := a.effect(ctx, event, a.run.Repeated || event.Try > 0)
		over, unknown, emitted, seen := ctx.Err(), false, lane.Emitted{}, dedupe.Fresh
		if err == nil {
			emitted, err = a.emit(event, &effect)
		}
		if a.leased() {
			failpoint.Hit(failpoint.LeasedDone)
		}
		if err == nil {
			end := dedupe.Ending{Status: dedupe.Completed, Effect: effect, Emitted: emitted.Messages}
			seen, err = a.commit(ctx, end)
			over, unknown = ctx.Err(), true
		}
		switch {
		case err != nil:
			return a.unperformed(ctx, err, over, unknown)
		case !seen.Undecided():
			return finding{state: recorded, seen: seen, emitted: emitted}
		}
	}
}

// effect calls the handler, and survives a panic and a deadline that the handler ignores. It abandons a call
// after its deadline, a leased one after grace: that one may still act outside, so its lease stays.
func (d *delivery) effect(ctx context.Context, event handler.Event, again bool) (handler.Effect, error) {
	type returned struct {
		effect handler.Effect
		err    error
	}
	end := make(chan returned, 1)
	go func() {
		var r returned
		defer func() {
			if value := recover(); value != nil {
				// The value may hold anything; its type and place are enough to find it.
				d.log.LogAttrs(ctx, slog.LevelError, "handler panic",
					slog.String("type", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))
				r = returned{err: retry.Transient("handler_panic", nil)}
			}
			end <- r
		}()
		r.effect, r.err = d.call(ctx, event, again)
	}()
	select {
	case r := <-end:
		return r.effect, r.err
	case <-ctx.Done():
	}
	patience := time.Duration(0)
	if d.leased() {
		patience = grace
	}
	select {
	case r := <-end:
		return r.effect, r.err
	case <-time.After(patience):
		return handler.Effect{}, errAbandoned
	}
}

var errAbandoned = errors.New("push: the handler does not return")

// call calls the handler. Before it calls a leased one again, it reconciles the earlier attempt.
func (d *delivery) call(ctx context.Context, event handler.Event, again bool) (handler.Effect, error) {
	h := d.handler.Leased
	if h == nil {
		return d.handler.Tx(ctx, event)
	}
	if again && h.Reconcile != nil {
		known, err := h.Reconcile(ctx, event)
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || known.Done {
			return known.Effect, err
		}
		if ctx.Err() != nil { // too late to begin
			return known.Effect, ctx.Err()
		}
	}
	if event.Attempt > d.policy.MaxAttempts {
		return handler.Effect{}, workerDied
	}
	return h.Do(ctx, event)
}

// emit adds the writes of an effect's emissions. It refuses a queue that the catalog does not list for the
// handler, because the worker has no permission for it. The release is at fault, so the attempt is repeated.
func (d *delivery) emit(event handler.Event, effect *handler.Effect) (lane.Emitted, error) {
	undeclared := func(emission handler.Emission) bool { return !slices.Contains(d.policy.Emits, emission.To) }
	if slices.ContainsFunc(effect.Emit, undeclared) {
		// Without the topic's name, which the handler may have taken from the message.
		return lane.Emitted{}, retry.Transient("emission_undeclared", nil)
	}
	return lane.Emit(d.config.Catalog, event, effect, d.config.Now())
}

// commit commits the effect with the record. For a leased handler it has its own time limit.
func (a *attempt) commit(ctx context.Context, end dedupe.Ending) (seen dedupe.Seen, err error) {
	if a.leased() {
		ctx, cancel := bounded(ctx)
		defer cancel()
		if seen, err = a.run.Conclude(ctx, end); seen == dedupe.Own {
			failpoint.Hit(failpoint.LeasedCompleted)
		}
		return seen, err
	}
	failpoint.Hit(failpoint.TxCommit)
	if seen, err = a.run.Conclude(ctx, end); seen == dedupe.Own {
		failpoint.Hit(failpoint.TxCommitted)
	}
	return seen, err
}
