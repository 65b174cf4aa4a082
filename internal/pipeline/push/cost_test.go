package push_test

import (
	"billhook/catalog"
)

// forgetful makes a queue of the kind of analytics-track: losing some messages is accepted.
func forgetful(q *catalog.Queue) {
	q.RememberFor, q.DeadLetter, q.OnTerminal, q.MaxAttempts = 0, catalog.DeadLetter{Drop: true}, catalog.Ack, 1
	for eventType, h := range q.Handlers {
		h.MaxAttempts = 1
		q.Handlers[eventType] = h
	}
}
