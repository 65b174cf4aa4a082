package ops

import "net/http"

// Require lets tests stand behind the door.
func (a Access) Require(next http.Handler) http.Handler { return a.require(next) }

// Sealed and KeyOf let tests forge a session.
var (
	Sealed = sealed
	KeyOf  = keyOf
)
