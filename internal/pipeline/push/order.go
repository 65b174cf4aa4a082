package push

import (
	"context"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

// noneWaitFor is how long an instance assumes that no message of a queue waits in a lane, after it has read
// so.
const noneWaitFor = time.Second

// position is the place of a message in the lane of its key, as it was read.
type position struct {
	lane   lane.Lane
	read   bool
	behind bool      // another of its key
	due    time.Time // its time of delivery; zero: now
}

func (p position) waits() bool { return p.behind || !p.due.IsZero() }

// order finds whether the message has to wait, for its time of delivery or behind others of its key.
func (s *Service) order(ctx context.Context, d *delivery, run *dedupe.Run) (position, finding) {
	at, err := s.locate(ctx, d)
	switch {
	case err != nil && retry.Decide(err).Class.Terminal():
		return at, found(failed, err)
	case err != nil:
		return at, storeDown(err)
	case !at.waits():
		return at, finding{}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	seen, err := run.Look(ctx) // its event may have been handled before, or be kept already
	switch {
	case err != nil:
		return at, found(unanswered, err)
	case seen == dedupe.Early && !d.returned() && at.behind:
		// The broker repeats it, and has the copy whose attempt failed: to wait in that one's stead would cost its
		// rank.
	case seen != dedupe.Fresh:
		return at, records(seen)
	case !at.due.IsZero():
		return at, found(waiting, retry.Busy("deliver_at", nil)).dueAt(at.due)
	}
	return at, found(waiting, retry.Busy("behind_delayed", nil))
}

// locate reads the lane of the message's key, where there may be one.
func (s *Service) locate(ctx context.Context, d *delivery) (at position, err error) {
	now := s.config.Now()
	if d.due.After(now) && !d.returned() { // else it has waited for it
		at.due = d.due
	}
	switch {
	case d.lane.OrderingKey == "" && at.due.IsZero():
		return at, nil
	case !d.queue.waits && !d.returned() && at.due.IsZero():
		if none, err := s.noneWaits(ctx, d.queue); none || err != nil {
			return at, err
		}
	case at.due.Sub(now) > contract.MaxAhead:
		return at, retry.Permanent("deliver_at_too_far", nil)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	at.lane, err = lane.Open(ctx, s.config.Store, d.lane)
	if err == nil {
		at.read, at.behind = true, at.lane.Behind(d.message)
	}
	return at, err
}

// noneWaits reports, where messages do not wait as a rule, by one read for the whole queue that there is no
// lane.
func (s *Service) noneWaits(ctx context.Context, q *queue) (bool, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return q.noneWait.Get(ctx, "", func(ctx context.Context) (bool, time.Duration, error) {
		ctx, cancel := bounded(ctx)
		defer cancel()
		none, err := lane.NoneWaits(ctx, s.config.Store, q.ID)
		return none, noneWaitFor, err
	})
}
