package ops

import "net/http"

// Require lets tests stand behind the door.
func (a Access) Require(next http.Handler) http.Handler { return a.require(next) }

// Stands is the state of a queue and its cause.
func (q Queue) Stands() (QueueState, string) { return q.stands() }

// Sealed and KeyOf let tests forge a session.
var (
	Sealed = sealed
	KeyOf  = keyOf
)
