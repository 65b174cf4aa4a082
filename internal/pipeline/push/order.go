package push

import (
	"context"
	"net/http"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/failpoint"
	"billhook/internal/retry"
)

// noneWaitFor is how long an instance assumes that no message of a queue waits in a lane, after it has read so.
const noneWaitFor = time.Second

// position is the place of a message in the lane of its key, as it was read.
type position struct {
	lane lane.Lane
	read bool
	// waits: it has to wait, behind another of its key or until due where that is set.
	waits bool
	due   time.Time
	// ends: the lane is removed after the last of its messages.
	ends bool
}

// dropped answers a message that is not for the queue or is too old.
func (s *Service) dropped(d *delivery) finding {
	q, now := d.queue, s.config.Now()
	switch {
	case !q.Takes(d.message.Attributes):
		// The broker's filter, which an emulator does not apply.
		return final(answer{Outcome: retry.Dropped, Status: http.StatusNoContent, Reason: "not_bound"})
	case q.MessageTTL > 0 && !d.replayed && !d.published.IsZero() && now.Sub(d.published) > q.MessageTTL:
		return final(answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"})
	}
	return finding{}
}

// order finds whether the message has to wait, for its time of delivery or behind others of its key.
func (s *Service) order(ctx context.Context, d *delivery) (p position, f finding) {
	now := s.config.Now()
	if wanted := d.message.Attributes[contract.AttrDeliverAt]; wanted != "" && !d.returned { // else it has waited for it
		if at, err := time.Parse(time.RFC3339Nano, wanted); err == nil && at.After(now) {
			p.due = at
		}
	}
	if d.lane.OrderingKey == "" && p.due.IsZero() {
		return p, finding{}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	// The lane is read where messages wait as a rule, and for a message that comes back from it. Elsewhere lanes are
	// rare, and one read tells for the whole queue that there is none.
	if !d.queue.waits && !d.returned && p.due.IsZero() {
		switch none, err := s.noneWait(ctx, d.queue); {
		case err != nil:
			return p, found(unanswered, retry.Outage("store_unavailable", err))
		case none:
			return p, finding{}
		}
	}
	if p.due.Sub(now) > contract.MaxAhead {
		return p, found(failed, retry.Permanent("deliver_at_too_far", nil))
	}
	var err error
	if p.lane, err = lane.Open(ctx, s.config.Store, d.lane); err != nil {
		return p, found(unanswered, retry.Outage("store_unavailable", err))
	}
	p.read, p.waits = true, !p.due.IsZero() || p.lane.Behind(d.message)
	p.ends = !p.waits
	return p, finding{}
}

// noneWait reports whether no message of a queue waits in a lane, as it was read less than noneWaitFor ago.
func (s *Service) noneWait(ctx context.Context, q *queue) (bool, error) {
	return q.noneWait.Get(ctx, "", func(ctx context.Context) (bool, time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, bookkeeping)
		defer cancel()
		none, err := lane.Calm(ctx, s.config.Store, q.ID)
		return none, noneWaitFor, err
	})
}

// run is what is recorded of an attempt's event. That of a broken message hangs on the message alone, so that it cannot
// use up an event's id.
type run struct {
	*dedupe.Run
	// claims is that of the event which a broken message names, where its id remembers the dead letter.
	claims *dedupe.Run
	// superseded: its effect came too late. emitted is what it has emitted, once it is committed.
	superseded bool
	emitted    lane.Emitted
}

// putOff keeps a message that has to wait, unless its event was handled before or is kept already.
func (s *Service) putOff(ctx context.Context, a *attempt) finding {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	seen, err := a.run.Look(ctx)
	switch {
	case err != nil:
		return found(unanswered, err)
	case seen != dedupe.Fresh:
		return s.read(a, seen)
	case a.position.due.IsZero():
		return found(waiting, retry.Busy("behind_delayed", nil))
	}
	f := found(waiting, retry.Busy("deliver_at", nil))
	f.due = a.position.due
	return f
}

// claim is the first step that reads the event's record. The event of a leased handler is claimed. That of a Tx handler is
// read only where it was delivered before.
func (s *Service) claim(ctx context.Context, a *attempt) finding {
	switch {
	case !a.found:
		return found(failed, retry.Permanent(typeUnknown, nil))
	case a.handler.Leased != nil:
		return s.lease(ctx, a)
	case a.known:
		return s.recall(ctx, a)
	}
	return finding{}
}

// lease claims the event for this attempt.
func (s *Service) lease(ctx context.Context, a *attempt) finding {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	failpoint.Hit(failpoint.LeasedClaim)
	seen, err := a.run.Claim(ctx, a.queue.Lease, a.republished, a.known)
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

// unexplained is how many deliveries of an event may have left no trace, by the broker's count, before its attempts are
// counted before they run: its workers seem to have died in them.
const unexplained = 3

// recall reads the record of an event that was delivered before, and counts the attempt where its workers seem to die.
func (s *Service) recall(ctx context.Context, a *attempt) finding {
	seen, err := a.run.Look(ctx)
	for tries := 0; err != nil || seen != dedupe.Counted; tries++ {
		few := a.number-(a.run.Attempt()-1-a.before) <= unexplained
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
