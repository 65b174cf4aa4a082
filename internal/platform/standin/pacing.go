package standin

import "time"

// Pacing of a push subscription. Google documents the bounds of the backoff, and that the window starts with
// a single digit, grows with success and shrinks with failure. The steps are chosen here.
const (
	minPushBackoff = 100 * time.Millisecond
	maxPushBackoff = 60 * time.Second
	startWindow    = 5
	maxWindow      = 1000
	// firstStep is the second wait if the retry policy starts at 0.
	firstStep = time.Second
)

func (s *Simulator) ack(sub *subscription, l *lane) {
	sub.window = min(sub.window+1, maxWindow)
	if sub.pushBackoff /= 2; sub.pushBackoff < minPushBackoff {
		sub.pushBackoff = 0
	}
	s.remove(sub, l)
}

// nack handles a failed push. pauses is the subscription's count when the push began.
func (s *Simulator) nack(sub *subscription, l *lane, pauses int) {
	sub.window = max(sub.window/2, 1)
	if pauses == sub.pauses {
		sub.pauses++
		sub.pushBackoff = min(max(sub.pushBackoff*2, minPushBackoff), maxPushBackoff)
		sub.pausedUntil = time.Now().Add(sub.pushBackoff)
		s.after(sub.pushBackoff, func() { s.dispatch(sub) })
	}
	d := l.queue[0]
	if d.Failures++; sub.DeadLetterTopic != "" && d.Failures >= sub.MaxDeliveryAttempts {
		s.forward(sub, l)
		return
	}
	s.after(sub.retryAfter(d.Failures), func() {
		sub.ready = append(sub.ready, l)
		s.dispatch(sub)
	})
}

func (sub *subscription) retryAfter(failures int) time.Duration {
	wait, longest := sub.MinimumBackoff, max(sub.MinimumBackoff, sub.MaximumBackoff)
	for range failures - 1 {
		wait = min(max(2*wait, firstStep), longest)
	}
	return wait
}

// after calls f, with the lock held, once d has passed, unless the simulator is closed by then.
func (s *Simulator) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			f()
		}
	})
}
