// Package auth decides whether Pub/Sub sends a push, and which person sends a request: by OpenID Connect
// tokens (RS256), and by Identity-Aware Proxy's assertions (ES256). It owns the checks of signature, issuer,
// audience, account and times, and the cache of the signing keys. No error repeats a part of a token.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"billhook/internal/platform/serve"
)

// The modes of a Verifier. ModeIAM is for a service behind Cloud Run's own IAM check, which verifies
// signatures and removes them: it does not protect a service that allows unauthenticated callers.
const (
	ModeOIDC = "oidc" // verifies the whole token
	ModeIAM  = "iam"
	ModeNone = "none" // accepts everything, for Google's emulators, which send no token
)

// Google's issuers in both documented spellings, and the URL of its public keys.
const (
	issuerURL     = "https://accounts.google.com"
	issuerHost    = "accounts.google.com"
	googleKeysURL = "https://www.googleapis.com/oauth2/v3/certs"
)

const (
	maxTokenBytes = 16 << 10         // before it is decoded; Pub/Sub's tokens have around 1 KiB
	leeway        = 30 * time.Second // the accepted clock difference for exp, iat and nbf
	// strippedSignature is Cloud Run's replacement for a signature that it has verified.
	strippedSignature = "SIGNATURE_REMOVED_BY_GOOGLE"
)

// ErrInvalid: the token is forged, expired, not valid yet, or for another audience. The other errors of
// Verify and Identify wrap serve.ErrNoToken, serve.ErrNotAllowed or serve.ErrKeysUnavailable.
var ErrInvalid = errors.New("auth: invalid token")

// Config describes the accepted tokens and their keys. A Verifier needs Mode, Audience and ServiceAccount, an
// Identity needs Audience and Allow, and Accounts need nothing.
type Config struct {
	Mode string // oidc, iam, or none, which needs no audience and no account
	// Audience is the expected audience. In an ID token it is the one that the client requested; in a proxy's
	// assertion it is the proxied resource: /projects/<number>/locations/<region>/services/<service>.
	Audience       string
	ServiceAccount string
	EmulatorHost   bool // whether an emulator host is set, which the mode none requires
	// Allow lists the e-mail addresses of the accepted people, in any case. It may be empty if IsProxied: the
	// proxy's own list then decides, and no ID token is accepted.
	Allow []string
	// KeysURL and ProxyKeysURL are the JSON Web Key Sets of tokens and of the proxy's assertions; empty:
	// Google's. Plain http is accepted only for loopback, because their server decides which tokens are genuine.
	KeysURL, ProxyKeysURL string
	Now                   func() time.Time // nil: time.Now
	Client                *http.Client     // fetches the keys; nil: one with the default transport
}

// Verifier verifies push tokens. It is safe for concurrent use.
type Verifier struct {
	mode           string
	serviceAccount string
	issuer         issuer
}

// New returns a Verifier, or all mistakes of the configuration.
func New(config Config) (*Verifier, error) {
	tokens, err := config.tokens()
	switch config.Mode {
	case ModeNone:
		err = refuse(!config.EmulatorHost, "mode none is for emulators, and no emulator host is set")
	case ModeOIDC, ModeIAM:
		err = errors.Join(err, checkAudience(config.Audience),
			refuse(strings.TrimSpace(config.ServiceAccount) == "", "the push service account is empty"))
	default:
		err = refuse(true, "mode must be oidc, iam or none")
	}
	if err != nil {
		return nil, err
	}
	return &Verifier{mode: config.Mode, serviceAccount: config.ServiceAccount, issuer: tokens}, nil
}

func (c Config) tokens() (issuer, error) {
	return c.issuer(jwt.SigningMethodRS256, cmp.Or(c.KeysURL, googleKeysURL), issuerURL, issuerHost)
}

func refuse(wrong bool, text string) error {
	if wrong {
		return errors.New("auth: " + text)
	}
	return nil
}

// checkAudience refuses an empty audience, which a token may contain among others.
func checkAudience(audience string) error {
	return refuse(strings.TrimSpace(audience) == "", "the audience is empty")
}

func checkKeysURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return refuse(true, "the keys URL is no URL")
	}
	loopback := u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
	return refuse(u.Scheme != "https" && (u.Scheme != "http" || !loopback), "the keys URL must be https")
}

// Verify checks the value of an Authorization header. Its error ends in a reason code. ctx bounds the wait
// for keys, but does not end the fetch, which other callers share.
func (v *Verifier) Verify(ctx context.Context, authorizationHeader string) error {
	if v.mode == ModeNone {
		return nil
	}
	token, err := bearer(authorizationHeader)
	if err != nil {
		return err
	}
	removed := strings.HasSuffix(token, "."+strippedSignature)
	switch {
	case v.mode == ModeIAM && !removed:
		// Cloud Run removes each signature that it has checked.
		return invalid("signature_not_removed")
	case v.mode != ModeIAM && removed:
		return invalid("signature_removed")
	}
	content, err := v.issuer.read(ctx, token, removed)
	if err == nil && content.Email != v.serviceAccount {
		err = fmt.Errorf("%w: email", serve.ErrNotAllowed)
	}
	return err
}

func bearer(header string) (string, error) {
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.Trim(token, " "); token == "" || !strings.EqualFold(scheme, "Bearer") {
		return "", serve.ErrNoToken
	}
	return wellFormed(token)
}

func wellFormed(token string) (string, error) {
	switch {
	case len(token) > maxTokenBytes:
		return "", invalid("too_long")
	case strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") != "":
		return "", invalid("malformed") // Go's base64 decoder skips line breaks
	}
	return token, nil
}

func invalid(reason string) error { return fmt.Errorf("%w: %s", ErrInvalid, reason) }

// Identity-Aware Proxy by its documentation ("Securing your app with signed headers").
const (
	proxyHeader  = "X-Goog-Iap-Jwt-Assertion"
	proxyIssuer  = "https://cloud.google.com/iap"
	proxyKeysURL = "https://www.gstatic.com/iap/verify/public_key-jwk"
	proxyLife    = 10*time.Minute + 2*leeway
)

// Identity identifies people by Google's ID tokens (RS256, in Authorization) and by Identity-Aware Proxy's
// assertions (ES256, in a separate header). It is safe for concurrent use.
type Identity struct {
	allow        map[string]bool
	token, proxy issuer
}

// address is plain ASCII, because other letters have several spellings and may fold to an ASCII letter.
var address = regexp.MustCompile(`^[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$`)

// IsAddress reports whether an e-mail address may be in Allow.
func IsAddress(email string) bool { _, ok := fold(email); return ok }

func fold(email string) (string, bool) {
	return strings.ToLower(email), len(email) <= 254 && address.MatchString(email)
}

var behindProxy = regexp.MustCompile(`^/projects/[0-9]+/locations/[a-z0-9-]+/services/[a-z0-9-]+$`)

// IsProxied reports whether an audience belongs to the proxy in front of a service on Cloud Run.
func IsProxied(audience string) bool { return behindProxy.MatchString(audience) }

// NewIdentity returns an Identity, or all mistakes of the configuration.
func NewIdentity(config Config) (*Identity, error) {
	i := &Identity{allow: map[string]bool{}}
	nobody := len(config.Allow) == 0 && !IsProxied(config.Audience)
	errs := []error{checkAudience(config.Audience), refuse(nobody, "nobody is allowed")}
	for _, email := range config.Allow {
		small, ok := fold(email)
		errs = append(errs, refuse(!ok, "an allowed e-mail address is malformed"))
		i.allow[small] = true
	}
	var tokens, proxy error
	i.token, tokens = config.tokens()
	keysURL := cmp.Or(config.ProxyKeysURL, proxyKeysURL)
	i.proxy, proxy = config.issuer(jwt.SigningMethodES256, keysURL, proxyIssuer)
	i.proxy.longest = proxyLife // no verified address is needed, because the proxy has authenticated people
	if err := errors.Join(append(errs, tokens, proxy)...); err != nil {
		return nil, err
	}
	return i, nil
}

// Identify returns the lower-case e-mail address of the accepted person, by the proxy's header if present.
func (i *Identity) Identify(ctx context.Context, header http.Header) (string, error) {
	by, texts, read := i.token, header.Values("Authorization"), bearer
	asserted := header.Values(proxyHeader)
	if len(asserted) > 0 {
		by, texts, read = i.proxy, asserted, wellFormed
	}
	switch {
	case len(asserted) == 0 && len(i.allow) == 0:
		return "", serve.ErrNoToken
	case len(texts) > 1:
		return "", invalid("malformed")
	}
	token, err := read(strings.Join(texts, ""))
	if err != nil {
		return "", err
	}
	content, err := by.read(ctx, token, false)
	if err != nil {
		return "", err
	}
	email, ok := fold(content.Email)
	if !ok || (len(i.allow) > 0 && !i.allow[email]) {
		return "", fmt.Errorf("%w: email", serve.ErrNotAllowed)
	}
	return email, nil
}

// Accounts identifies accounts by Google's ID tokens (RS256, in Authorization), each for the address that it
// calls. It is safe for concurrent use. It does not decide what an account may do.
type Accounts struct{ token issuer }

// NewAccounts returns Accounts, or the mistake in the configuration.
func NewAccounts(config Config) (*Accounts, error) {
	tokens, err := config.tokens()
	return &Accounts{tokens}, err
}

// Account returns the e-mail address of the account of a token in an Authorization header, for the audience.
// Without a valid token, invalid is the reason. The error wraps serve.ErrKeysUnavailable.
func (a *Accounts) Account(
	ctx context.Context, audience, authorization string,
) (email, invalid string, err error) {
	token, err := bearer(authorization)
	var content claims
	if err == nil {
		err = checkAudience(audience)
	}
	if err == nil {
		tokens := a.token
		tokens.audience = audience
		content, err = tokens.read(ctx, token, false)
	}
	email, ok := fold(content.Email)
	switch {
	case errors.Is(err, serve.ErrKeysUnavailable):
		return "", "", err
	case err != nil:
		return "", err.Error()[strings.LastIndex(err.Error(), ": ")+2:], nil // the reason code at its end
	case !ok:
		return "", "email", nil
	}
	return email, "", nil
}
