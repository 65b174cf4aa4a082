// Package auth answers two questions: did Pub/Sub send this push request, and which
// person sends this request? It owns the check of the OpenID Connect token that a push
// or a person's client carries, and of the assertion of Identity-Aware Proxy
// (signature, issuer, audience, account, times), and the cache of the keys that sign
// them.
//
// It refuses every algorithm but RS256, and ES256 of an assertion alone, every token
// whose audience or account is not exactly a configured one, and any configuration
// that would leave one of the two open. It knows nothing of routes or status codes beyond the comment on
// each error, and no error of it repeats anything that the token said.
package auth

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The modes of a Verifier.
const (
	// ModeOIDC verifies the token whole.
	ModeOIDC = "oidc"
	// ModeIAM is for a service behind Cloud Run's own IAM check, which has
	// verified the signature and replaced it before the request arrives. Only the
	// claims are left to check. It is as safe as that IAM check: with a service
	// that allows unauthenticated callers it protects nothing.
	ModeIAM = "iam"
	// ModeNone accepts everything; for Google's emulators, which send no token.
	ModeNone = "none"
)

// What Google signs with: the issuers of its tokens, in both of their documented
// spellings, and its public keys.
const (
	issuerURL     = "https://accounts.google.com"
	issuerHost    = "accounts.google.com"
	googleKeysURL = "https://www.googleapis.com/oauth2/v3/certs"
)

// The algorithms that are verified.
const (
	algRS256 = "RS256"
	algES256 = "ES256"
)

const (
	// maxTokenBytes bounds what is decoded before anything is verified. Tokens of
	// Pub/Sub are around 1 KiB.
	maxTokenBytes = 16 << 10
	// leeway is how far the two clocks may be apart, in exp, iat and nbf alike.
	leeway = 30 * time.Second
	// strippedSignature stands where Cloud Run has removed a signature it verified.
	strippedSignature = "SIGNATURE_REMOVED_BY_GOOGLE"
)

// The errors of Verify and of Identify. Every error of theirs is exactly one of them.
var (
	// ErrMissing: there is no bearer token. 401.
	ErrMissing = errors.New("auth: no bearer token")
	// ErrInvalid: the token is not what it claims to be, or not for us, or not for
	// now. 401.
	ErrInvalid = errors.New("auth: invalid token")
	// ErrForbidden: a genuine token of somebody else. 403.
	ErrForbidden = errors.New("auth: not an accepted account")
	// ErrKeysUnavailable: the signature cannot be checked now, since the signing
	// keys could not be fetched. Nothing is known of the token: 503, never 401.
	ErrKeysUnavailable = errors.New("auth: signing keys unavailable")
)

// Config says what a good token is.
type Config struct {
	// Mode is oidc, iam or none.
	Mode string
	// Audience is what the token must be made out to. Required but for none.
	Audience string
	// ServiceAccount is the e-mail address of the push account. Required but for none.
	ServiceAccount string
	// Issuers that count; empty: Google's.
	Issuers []string
	// KeysURL is where the JSON Web Key Set is; empty: Google's. Plain http is
	// refused but for loopback, since who answers it can sign anything.
	KeysURL string
	// EmulatorHost reports whether an emulator host is set, without which the
	// mode none is refused.
	EmulatorHost bool
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Client fetches the keys; nil: one with the default transport.
	Client *http.Client
}

// Verifier verifies push tokens. It is safe for concurrent use.
type Verifier struct {
	mode           string
	serviceAccount string
	issuers        []string
	reader         reader
	keys           *keySet
}

// New returns a Verifier, or every reason why the configuration is refused.
func New(config Config) (*Verifier, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Client == nil {
		config.Client = &http.Client{}
	}
	if config.KeysURL == "" {
		config.KeysURL = googleKeysURL
	}
	if len(config.Issuers) == 0 {
		config.Issuers = []string{issuerURL, issuerHost}
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	return &Verifier{
		mode:           config.Mode,
		serviceAccount: config.ServiceAccount,
		issuers:        config.Issuers,
		reader:         newReader(jwt.SigningMethodRS256, config.Audience, config.Now),
		keys:           &keySet{url: config.KeysURL, alg: algRS256, client: config.Client, now: config.Now},
	}, nil
}

func (c Config) check() error {
	var errs []error
	switch c.Mode {
	case ModeNone:
		if !c.EmulatorHost {
			errs = append(errs, errors.New("auth: mode none is for emulators, and no emulator host is set"))
		}
		return errors.Join(errs...)
	case ModeOIDC, ModeIAM:
	default:
		return errors.New("auth: mode must be oidc, iam or none")
	}
	// An empty expectation would be no expectation: the library skips the check.
	if strings.TrimSpace(c.Audience) == "" {
		errs = append(errs, errors.New("auth: the audience is empty"))
	}
	if strings.TrimSpace(c.ServiceAccount) == "" {
		errs = append(errs, errors.New("auth: the push service account is empty"))
	}
	if slices.Contains(c.Issuers, "") {
		errs = append(errs, errors.New("auth: an issuer is empty"))
	}
	if err := checkKeysURL(c.KeysURL); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func checkKeysURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return errors.New("auth: the keys URL is no URL")
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
	if u.Scheme == "https" || (u.Scheme == "http" && loopback) {
		return nil
	}
	return errors.New("auth: the keys URL must be https")
}

// Verify checks the value of an Authorization header. It returns nil, or one of
// ErrMissing, ErrInvalid, ErrForbidden and ErrKeysUnavailable with a reason code
// behind it. ctx bounds the caller's wait for keys, not their fetching, which is
// shared with other callers.
func (v *Verifier) Verify(ctx context.Context, authorizationHeader string) error {
	if v.mode == ModeNone {
		return nil
	}
	token, err := bearer(authorizationHeader)
	if err != nil {
		return err
	}
	stripped := strings.HasSuffix(token, "."+strippedSignature)
	var said claims
	switch {
	case v.mode == ModeIAM && stripped:
		said, err = v.reader.readStripped(token)
	case v.mode == ModeIAM:
		// Cloud Run leaves a signature in place only if it did not check it.
		return invalid("signature_not_removed")
	case stripped:
		return invalid("signature_removed")
	default:
		said, err = v.reader.read(token, func(id string) (crypto.PublicKey, error) { return v.keys.key(ctx, id) })
	}
	switch {
	case errors.Is(err, ErrKeysUnavailable):
		return fmt.Errorf("%w: %s", ErrKeysUnavailable, v.keys.failure())
	case err != nil:
		return invalid(reason(err))
	case !slices.Contains(v.issuers, said.Issuer): // the library knows one issuer only
		return invalid("issuer")
	case said.Email != v.serviceAccount:
		return fmt.Errorf("%w: email", ErrForbidden)
	case !said.EmailVerified:
		return fmt.Errorf("%w: email_not_verified", ErrForbidden)
	}
	return nil
}

// bearer takes the token out of the header (RFC 6750 section 2.1).
func bearer(header string) (string, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", ErrMissing
	}
	token = strings.Trim(token, " ")
	if token == "" {
		return "", ErrMissing
	}
	return wellFormed(token)
}

// wellFormed refuses what is no token, before anything is decoded.
func wellFormed(token string) (string, error) {
	if len(token) > maxTokenBytes {
		return "", invalid("too_long")
	}
	for i := range len(token) {
		// Go's base64 skips line ends; nothing but base64url and dots may pass.
		switch c := token[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return "", invalid("malformed")
		}
	}
	return token, nil
}

func invalid(reason string) error { return fmt.Errorf("%w: %s", ErrInvalid, reason) }

// reason turns an error of the library into a code: its own texts may quote the token.
func reason(err error) string {
	for _, known := range []struct {
		err  error
		code string
	}{
		{errUnknownKey, "unknown_key"},
		{jwt.ErrTokenMalformed, "malformed"},
		{jwt.ErrTokenSignatureInvalid, "signature"},
		{jwt.ErrTokenUnverifiable, "unverifiable"},
		{jwt.ErrTokenExpired, "expired"},
		{jwt.ErrTokenUsedBeforeIssued, "issued_in_the_future"},
		{jwt.ErrTokenNotValidYet, "not_valid_yet"},
		{jwt.ErrTokenInvalidAudience, "audience"},
		{jwt.ErrTokenRequiredClaimMissing, "claim_missing"},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return "claims"
}
