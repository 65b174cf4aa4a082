// Package access decides who may use the console, by tokens, identities and sessions of pages, and refuses
// what other sites request. It does not know what an operation needs.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

// Identifier verifies the sender of a request by its headers.
type Identifier interface {
	// Identify returns the e-mail address of a person who may use the API. The error wraps serve.ErrNoToken,
	// serve.ErrNotAllowed or serve.ErrKeysUnavailable, else the identity is invalid. It repeats no header.
	Identify(ctx context.Context, header http.Header) (who string, err error)
}

// Access says who may use the API.
type Access struct {
	// Tokens are the accepted bearer tokens; several, for rotation.
	Tokens []string
	// Identifier accepts identities too; nil: none.
	Identifier Identifier
	// OpenOnLoopback accepts a peer on this machine without a token if the Host is localhost or a loopback
	// address. It is only for emulators and stand-ins.
	OpenOnLoopback bool
}

// operatorHeader has a person's name, because several people may share the token or the machine.
const operatorHeader = "X-Operator"

const maxOperator = 128

var address = regexp.MustCompile(`^[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`)

type admittedKey struct{}

// admitted is the sender of an accepted request, and the end of its session; zero: there is no session.
type admitted struct {
	who   audit.Author
	until time.Time
}

func (a admitted) with(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), admittedKey{}, a))
}

func admittedIn(ctx context.Context) admitted {
	a, _ := ctx.Value(admittedKey{}).(admitted)
	return a
}

// Author returns the sender of an accepted request.
func Author(ctx context.Context) audit.Author { return admittedIn(ctx).who }

// Who returns the sender of an accepted request, as the audit names them.
func Who(ctx context.Context) string { return Author(ctx).String() }

var (
	errNotAccepted = serve.Refuse(http.StatusForbidden, "forbidden", "This token is not accepted.")
	errOperator    = serve.Refuse(http.StatusBadRequest, "operator_invalid", "The header "+operatorHeader+
		" is sent once, with a name of letters, digits and . _ : - or an e-mail address, of at most 128 bytes.")
	errOtherHost = serve.Refuse(http.StatusForbidden, "host_not_local", "Without a token this answers to "+
		"localhost, 127.0.0.1 and [::1] alone: ask under one of them, or send a token.")
	errOtherSite = serve.Refuse(http.StatusForbidden, "cross_origin",
		"Another site may not ask for this; use the API's own pages or a client.")
	errNotAllowed = serve.Refuse(http.StatusForbidden, "identity_not_allowed",
		"This identity may not use the API; have its e-mail address added to OPS_ALLOW.")
	errNoKeys = serve.Refuse(http.StatusServiceUnavailable, "identity_unavailable",
		"The identity cannot be checked now; try again.").After(5)
)

var problems = func() serve.ErrorMapping {
	invalid := serve.Refuse(http.StatusUnauthorized, "identity_invalid",
		"This is neither the OPS_TOKEN nor a valid identity token for this service; get a new one.")
	invalid.Authenticate = `Bearer error="invalid_token"`
	none := serve.Refuse(http.StatusUnauthorized, "unauthorized", "Send the header Authorization: Bearer with "+
		"the OPS_TOKEN, or with an identity token where OPS_ALLOW names people.")
	none.Authenticate = "Bearer"
	return serve.ErrorMapping{Last: invalid, Known: []serve.KnownError{
		{Of: serve.ErrNotAllowed, As: errNotAllowed},
		{Of: serve.ErrKeysUnavailable, As: errNoKeys},
		{Of: serve.ErrNoToken, As: none},
	}}
}()

// Guard refuses requests that another site made a browser send, which adds cookies by itself, and senders who
// may not use the API.
func (a Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fromOtherSite(r) {
			errOtherSite.Below(console.Codes).Write(w)
			return
		}
		who, err := a.who(r)
		if err != nil {
			problems.Problem(err).Below(console.Codes).Write(w)
			return
		}
		next.ServeHTTP(w, admitted{who: who}.with(r))
	})
}

func (a Access) who(r *http.Request) (audit.Author, error) {
	authorization := r.Header.Get("Authorization")
	if a.accepts(authorization) {
		return named(audit.SharedToken, r)
	}
	if a.Identifier != nil {
		who, err := a.Identifier.Identify(r.Context(), r.Header)
		switch {
		case err == nil && who == "":
			return audit.Author{}, errNotAccepted
		case err == nil:
			return audit.Author{Proof: audit.Identity, Name: who}, nil
		case !errors.Is(err, serve.ErrNoToken):
			return audit.Author{}, err
		}
	}
	switch {
	case authorization != "":
		return audit.Author{}, errNotAccepted
	case !a.OpenOnLoopback || !fromLoopback(r):
		return audit.Author{}, serve.ErrNoToken
	case !namesThisMachine(r):
		return audit.Author{}, errOtherHost
	default:
		return named(audit.ThisMachine, r)
	}
}

// named returns the sender with the name in the request's header: a note for the audit, never a proof.
func named(by audit.Proof, r *http.Request) (audit.Author, error) {
	given := r.Header.Values(operatorHeader)
	switch {
	case len(given) == 0:
		return audit.Author{Proof: by}, nil
	case len(given) == 1 && isName(given[0]):
		return audit.Author{Proof: by, Name: given[0]}, nil
	default:
		return audit.Author{}, errOperator
	}
}

// accepts compares every token in constant time. The hashes hide their lengths.
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

// fromLoopback reports whether the connection is from this machine, and no header shows a proxy.
func fromLoopback(r *http.Request) bool {
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"} {
		if _, forwarded := r.Header[name]; forwarded {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback()
}

// namesThisMachine reports whether the Host is localhost or a loopback address. DNS rebinding has another.
func namesThisMachine(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil { // there is no port
		host = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// fromOtherSite reports whether a browser names another site as the origin.
func fromOtherSite(r *http.Request) bool {
	change := *r
	change.Method = http.MethodPost // else reads would pass
	var protection http.CrossOriginProtection
	return protection.Check(&change) != nil
}
