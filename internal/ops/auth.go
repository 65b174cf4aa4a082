package ops

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"

	"billhook/internal/serve"
)

// Access says who may use the API.
type Access struct {
	// Tokens are the bearer tokens that are accepted; several, for rotation.
	Tokens []string
	// OpenOnLoopback lets a peer on this machine in without a token. Only a program
	// that runs against emulators or stand-ins sets it.
	OpenOnLoopback bool
}

// require passes on what may be answered, and answers 401 or 403 itself.
func (a Access) require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization := r.Header.Get("Authorization")
		switch {
		case authorization == "" && a.OpenOnLoopback && fromLoopback(r):
			next.ServeHTTP(w, r)
		case authorization == "":
			w.Header().Set("WWW-Authenticate", "Bearer")
			serve.WriteProblem(w, http.StatusUnauthorized, "unauthorized", "Send the header Authorization: Bearer with the OPS_TOKEN.")
		case a.accepts(authorization):
			next.ServeHTTP(w, r)
		default:
			serve.WriteProblem(w, http.StatusForbidden, "forbidden", "This token is not accepted.")
		}
	})
}

// accepts compares with every token in constant time; hashing first hides their lengths.
func (a Access) accepts(authorization string) bool {
	token, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok || token == "" {
		return false
	}
	given, accepted := sha256.Sum256([]byte(token)), 0
	for _, t := range a.Tokens {
		wanted := sha256.Sum256([]byte(t))
		accepted |= subtle.ConstantTimeCompare(given[:], wanted[:])
	}
	return accepted == 1
}

// fromLoopback reports whether the connection itself comes from this machine. What
// a proxy forwards for somebody else says so in its headers and is not let in.
func fromLoopback(r *http.Request) bool {
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"} {
		if _, forwarded := r.Header[name]; forwarded {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}
