package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"billhook/internal/pii"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

// SessionLife is how long a session lasts. Use does not prolong it.
const SessionLife = 12 * time.Hour

const (
	// maxClockSkew is how far the clocks of two instances may be apart.
	maxClockSkew = time.Minute
	// maxSession bounds a cookie, in bytes.
	maxSession = 512
)

// The names of the cookie. A browser accepts a __Host- cookie only from the host itself, over TLS.
const (
	sessionCookie      = "__Host-billhook-ops"
	sessionCookieLocal = "billhook-ops"
)

// Sessions admit people to pages: those whom Access accepts, and those who have signed in. A browser sends no
// bearer token, so a person enters it once and gets a cookie for twelve hours.
//
// The cookie holds a name and the time when it ends, under a MAC whose key is derived from the token. So each
// instance verifies it without a store, and it ends when the token does. It cannot be revoked before: signing
// out removes it from the browser. The API accepts no cookie.
type Sessions struct {
	Access Access
	// Local is a random key of this process for sessions on this machine, which prove nothing; nil: a name is
	// not enough to sign in.
	Local []byte
	Log   *slog.Logger
	Now   func() time.Time
}

var (
	errNoOrigin = serve.Refuse(http.StatusForbidden, "origin_unknown", "A change is made from a page of this "+
		"site. This request does not say where it is from; use a current browser, or the API.")
	errSignIn = serve.Refuse(http.StatusUnauthorized, "sign_in_needed", "You are not signed in, or no "+
		"longer: a session lasts 12 hours. Nothing was changed. Sign in, go back, and send it again.")
	errToken = serve.Refuse(http.StatusForbidden, "token_not_accepted", "This token is not accepted.")
	errName  = serve.Refuse(http.StatusUnprocessableEntity, "name_invalid", "A name has letters, digits "+
		"and . _ : - only, or is an e-mail address, with 128 characters at most. It is not the token.")
)

// SessionEnd returns the end of the session of an accepted request; zero: there is no session.
func SessionEnd(ctx context.Context) time.Time { return admittedIn(ctx).until }

// Guard admits people to pages. refuse answers all others, and the requests that OwnPage refuses.
func (s *Sessions) Guard(
	refuse func(http.ResponseWriter, *http.Request, *serve.Problem),
) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			problem := OwnPage(r)
			who, until, err := s.who(r)
			switch {
			case problem != nil:
				refuse(w, r, problem)
			case errors.Is(err, serve.ErrNoToken):
				refuse(w, r, errSignIn)
			case err != nil:
				refuse(w, r, problems.Problem(err))
			default:
				next.ServeHTTP(w, admitted{who, until}.with(r))
			}
		})
	}
}

// OwnPage refuses a request, even a read, that another site made a browser send, and a change without an
// origin. It returns nil for all others.
func OwnPage(r *http.Request) *serve.Problem {
	looks := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case fromOtherSite(r):
		return errOtherSite
	case !looks && r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "":
		return errNoOrigin
	}
	return nil
}

func (s *Sessions) who(r *http.Request) (who audit.Author, end time.Time, err error) {
	who, err = s.Access.who(r)
	nameless := err == nil && who == audit.Author{Proof: audit.ThisMachine}
	if !nameless && !errors.Is(err, serve.ErrNoToken) && !errors.Is(err, errOtherHost) {
		return who, end, err
	}
	for _, name := range []string{sessionCookie, sessionCookieLocal} {
		cookie, missing := r.Cookie(name)
		if missing != nil {
			continue
		}
		signed, until := s.read(cookie.Value)
		if signed.Proof == audit.SharedToken || (signed.Proof == audit.ThisMachine && nameless) {
			return signed, until, nil
		}
	}
	return who, end, err
}

// Form reports what a person signs in with: token and name, a name, or nothing if a proxy identifies people.
func (s *Sessions) Form(r *http.Request) (token, name bool) {
	return len(s.Access.Tokens) > 0, len(s.Access.Tokens) > 0 || s.atHome(r)
}

func (s *Sessions) atHome(r *http.Request) bool {
	return len(s.Local) > 0 && s.Access.OpenOnLoopback && fromLoopback(r) && namesThisMachine(r)
}

// SignIn returns the cookie of a new session for a person with a token, or on this machine. name is who they
// say they are. The error is a *serve.Problem.
func (s *Sessions) SignIn(r *http.Request, token, name string) (*http.Cookie, error) {
	now := s.Now()
	proof, key := audit.ThisMachine, s.Local
	switch {
	case token != "":
		if !s.Access.accepts("Bearer " + token) {
			// The input is not logged: it may be a token in the wrong field.
			s.Log.LogAttrs(r.Context(), slog.LevelWarn, "ops sign-in refused", slog.String("code", errToken.Code))
			return nil, errToken
		}
		proof, key = audit.SharedToken, keyOf(token)
	case !s.atHome(r):
		return nil, errToken
	}
	if !isName(name) || s.Access.accepts("Bearer "+name) {
		return nil, errName
	}
	who, end := audit.Author{Proof: proof, Name: name}, now.Add(SessionLife)
	s.Log.LogAttrs(r.Context(), slog.LevelInfo, "ops sign-in", slog.String("who", who.String()))
	value, err := sealed(key, who, end)
	return s.cookie(r, value, int(SessionLife.Seconds())), err
}

// SignOut returns the cookie that removes a session from its browser.
func (s *Sessions) SignOut(r *http.Request) *http.Cookie {
	s.Log.LogAttrs(r.Context(), slog.LevelInfo, "ops sign-out", slog.String("who", Who(r.Context())))
	return s.cookie(r, "", -1)
}

func (s *Sessions) cookie(r *http.Request, value string, age int) *http.Cookie {
	cookie := &http.Cookie{ //nolint:gosec // It is Secure, except on this machine, which has no HTTPS.
		Name: sessionCookie, Value: value, Path: "/", MaxAge: age, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	}
	if fromLoopback(r) {
		cookie.Name, cookie.Path, cookie.Secure = sessionCookieLocal, "/ops", false
	}
	return cookie
}

func keyOf(token string) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte("billhook ops session v1")) // a hash does not fail
	return mac.Sum(nil)
}

func sealed(key []byte, who audit.Author, end time.Time) (string, error) {
	claims := jwt.RegisteredClaims{Subject: who.String(), ExpiresAt: jwt.NewNumericDate(end)}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(key)
}

// read returns nobody for a cookie that is forged, expired, or of a token that is no longer accepted.
func (s *Sessions) read(value string) (who audit.Author, end time.Time) {
	claims := jwt.RegisteredClaims{}
	_, err := jwt.ParseWithClaims(value, &claims, func(*jwt.Token) (any, error) {
		proof, name, _ := strings.Cut(claims.Subject, ":")
		who = audit.Author{Proof: audit.Proof(proof), Name: name}
		keys := jwt.VerificationKeySet{}
		if who.Proof == audit.ThisMachine && len(s.Local) > 0 {
			keys.Keys = append(keys.Keys, s.Local)
		}
		for _, token := range s.Access.Tokens {
			if who.Proof == audit.SharedToken && token != "" {
				keys.Keys = append(keys.Keys, keyOf(token))
			}
		}
		return keys, nil
	}, jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Name}), jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(s.Now), jwt.WithStrictDecoding())
	latest := s.Now().Add(SessionLife + maxClockSkew)
	if err != nil || len(value) > maxSession || claims.ExpiresAt.After(latest) {
		return audit.Author{}, time.Time{}
	}
	return who, claims.ExpiresAt.UTC()
}

func isName(name string) bool {
	return len(name) <= maxOperator && (pii.ID.Valid(name) || address.MatchString(name))
}
