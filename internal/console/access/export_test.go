package access

// Sealed and KeyOf let tests forge a session.
var (
	Sealed = sealed
	KeyOf  = keyOf
)
