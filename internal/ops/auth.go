package ops

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"billhook/internal/pii"
	"billhook/internal/serve"
)

// The errors of an Identifier; any other means that what was presented is not valid.
var (
	// ErrNoIdentity: the request presents none.
	ErrNoIdentity = errors.New("ops: no identity")
	// ErrNotAllowed: a genuine identity, of somebody who may not.
	ErrNotAllowed = errors.New("ops: identity not allowed")
	// ErrCannotIdentify: it cannot be checked now; nothing is known of it.
	ErrCannotIdentify = errors.New("ops: identity cannot be checked now")
)

// Identifier verifies who sends a request, by its headers.
type Identifier interface {
	// Identify returns the e-mail address of somebody who may use the API, or an
	// error: see ErrNoIdentity. It must not repeat anything of the headers in it.
	Identify(ctx context.Context, header http.Header) (who string, err error)
}

// Access says who may use the API.
type Access struct {
	// Tokens are the bearer tokens that are accepted; several, for rotation.
	Tokens []string
	// Identifier accepts verified identities beside them; nil: none.
	Identifier Identifier
	// OpenOnLoopback lets a peer on this machine in without a token, where it also names
	// this machine as localhost or by a loopback address. Only a program that runs against
	// emulators or stand-ins sets it.
	OpenOnLoopback bool
}

// operatorHeader is where who shares the token, or the machine, may say who they are.
const operatorHeader = "X-Operator"

// maxOperator bounds that, in bytes.
const maxOperator = 128

var address = regexp.MustCompile(`^[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`)

type whoKey struct{}

// byToken begins the name of whoever came in by a bearer token.
const byToken = "token"

// Who says, in a request that was let in, by whom: the e-mail address of a verified
// identity, or "token" or "local", with ":" and the name that its bearer goes by behind
// it where one was given. Only the first is proven.
func Who(ctx context.Context) string {
	who, _ := ctx.Value(whoKey{}).(string)
	return who
}

// What is wrong with what a request presents.
var (
	errNotAccepted = serve.Refuse(http.StatusForbidden, "forbidden", "This token is not accepted.")
	errOperator    = serve.Refuse(http.StatusBadRequest, "operator_invalid", "The header "+operatorHeader+" is sent once, with a name of letters, digits and . _ : - or an e-mail address, of at most 128 bytes.")
	errOtherHost   = serve.Refuse(http.StatusForbidden, "host_not_local", "Without a token this answers to localhost, 127.0.0.1 and [::1] alone: ask under one of them, or send a token.")
	errOtherSite   = serve.Refuse(http.StatusForbidden, "cross_origin", "Another site may not ask for this; use the API's own pages or a client.")
)

// require passes on what may be answered, and answers what may not.
func (a Access) require(next http.Handler) http.Handler {
	invalid := serve.Refuse(http.StatusUnauthorized, "identity_invalid", "This is neither the OPS_TOKEN nor a valid identity token for this service; get a new one.")
	invalid.Authenticate = `Bearer error="invalid_token"`
	none := serve.Refuse(http.StatusUnauthorized, "unauthorized", "Send the header Authorization: Bearer with the OPS_TOKEN"+a.orIdentity()+".")
	none.Authenticate = "Bearer"
	identity := serve.Ladder{
		Rungs: []serve.Rung{
			{Of: ErrNotAllowed, As: serve.Refuse(http.StatusForbidden, "identity_not_allowed", "This identity may not use the API; have its e-mail address added to OPS_ALLOW.")},
			{Of: ErrCannotIdentify, As: serve.Refuse(http.StatusServiceUnavailable, "identity_unavailable", "The identity cannot be checked now; try again.").After(5)},
			{Of: ErrNoIdentity, As: none},
		},
		Last: invalid,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := a.who(r)
		if err != nil {
			identity.Problem(err).Write(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), whoKey{}, who)))
	})
}

func (a Access) orIdentity() string {
	if a.Identifier == nil {
		return ""
	}
	return " or an identity token for this service"
}

// who says who sends the request, or why that does not count.
func (a Access) who(r *http.Request) (string, error) {
	authorization := r.Header.Get("Authorization")
	if a.accepts(authorization) {
		return named(byToken, r)
	}
	if a.Identifier != nil {
		who, err := a.Identifier.Identify(r.Context(), r.Header)
		switch {
		case err == nil && who == "":
			return "", errNotAccepted
		case !errors.Is(err, ErrNoIdentity):
			return who, err
		}
	}
	switch {
	case authorization != "":
		return "", errNotAccepted
	case !a.OpenOnLoopback || !fromLoopback(r):
		return "", ErrNoIdentity
	case !askedHere(r):
		return "", errOtherHost
	case askedByOtherSite(r):
		return "", errOtherSite
	default:
		return named("local", r)
	}
}

// named adds the name that the operator goes by. It is a note for the audit, never a proof.
func named(who string, r *http.Request) (string, error) {
	given := r.Header.Values(operatorHeader)
	switch {
	case len(given) == 0:
		return who, nil
	case len(given) == 1 && len(given[0]) <= maxOperator && (pii.ID.Valid(given[0]) || address.MatchString(given[0])):
		return who + ":" + given[0], nil
	default:
		return "", errOperator
	}
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

// sameOrigin refuses what another site has a browser send: where a browser is let in by
// what it sends by itself, a cookie or its address, the person has not asked for it.
func sameOrigin(next http.Handler) http.Handler {
	var protection http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := protection.Check(r); err != nil {
			errOtherSite.Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}
