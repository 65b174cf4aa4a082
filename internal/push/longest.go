package push

import "time"

// phases is how often bookkeeping of its own can come beside one handler: the place in
// line, the claim, what became of it, the dead letter, the outbox, the end of the lane, and
// the alarm with the second that an acknowledgement is held back.
const phases = 7

// Longest is the longest that a push takes from its body to its answer: what waits for
// its turn and is handled ends within the ack deadline, and a handler that is given up
// and the bookkeeping do not count against it.
func (s *Service) Longest() time.Duration {
	longest := bookkeeping // a dead letter is kept
	for _, q := range s.queues {
		longest = max(longest, q.AckDeadline+parting+phases*bookkeeping)
	}
	return longest
}
