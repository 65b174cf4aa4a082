package push

import (
	"time"

	"billhook/internal/lane"
	"billhook/internal/retry"
)

const (
	// maxResume is how long a request waits for the next attempt of its message.
	maxResume = 2 * time.Second
	// nextLook is when a message that somebody else has to let go is looked at once more.
	nextLook = time.Second
)

// plan is what is done about a verdict.
type plan struct {
	// way is how the message comes to its next attempt, and due when that is.
	way way
	due time.Time
	// name is that of the lane that keeps it meanwhile.
	name lane.Name
}

// way is how a message comes to its next attempt.
type way int

const (
	redelivered way = iota // by the broker
	resumed                // in this request
	kept                   // from a lane, when it is due
	never                  // it is dead-lettered
)

// plan decides how the message comes to its next attempt, and when that is due.
//
// What all messages share and is down is nacked: the subscription's slowing down is the
// right brake then, and the backlog stays with the broker. Else a nack would slow every
// other message, so there is one only where the broker's own wait is the policy's, and as
// the queue's budget has it.
func (s *Service) plan(w *attempt, v verdict) plan {
	now, q, received := s.config.Now(), w.queue, w.delivery.received
	// An attempt may be made in this request soon, and early enough to be answered by the ack
	// deadline.
	latest := received.Add(min(maxResume, q.AckDeadline-q.SlotWait-w.policy.Timeout-bookkeeping-1))
	if s.Draining() {
		latest = time.Time{}
	}
	frees := w.parks && (w.replayed || w.run.Corrects())
	p := plan{way: redelivered, due: v.due, name: w.name}
	switch v.course {
	case aside:
		p.way = kept
	case early:
		switch {
		case !w.looked && !p.due.After(latest):
			p.way = resumed
		case !frees: // else it is what its key waits for
			p.way = kept
		}
	case busy:
		soon := received.Add(nextLook)
		// Not much later than the broker would come: it may be over before its time.
		if late := now.Add(max(w.policy.Backoff.Wait(1, 0), nextLook)); p.due.IsZero() || p.due.After(late) {
			p.due = late
		}
		switch {
		case !w.looked && soon.After(now) && !soon.After(latest):
			p.way, p.due = resumed, soon
		case !frees && !q.nacks.AllowN(now, 1):
			p.way = kept
		}
	case failed:
		wait, asked := w.policy.Backoff.Wait(v.attempt, s.config.Dice()), retry.Asked(v.failure)
		p.way, p.due = kept, now.Add(max(wait, asked))
		switch {
		case v.means.Class.Terminal():
			p.way = never
		case v.means.Scope == retry.OtherEvent:
			p.name.OrderingKey = "" // what it waits for may be behind it
		case v.means.Scope != retry.EveryMessage && !p.due.After(latest):
			p.way = resumed
		case frees:
			p.way = redelivered
		case asked > wait:
		case v.means.Scope == retry.EveryMessage, v.means.Class == retry.Unavailable && q.oneTarget,
			q.brokerKeepsTime && (w.delivery.attempt == 0 || w.delivery.attempt == v.attempt) && q.nacks.AllowN(now, 1):
			p.way = redelivered
		}
	default:
	}
	return p
}
