package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"billhook/internal/platform/serve"
)

// Identity-Aware Proxy by its documentation ("Securing your app with signed headers"): the
// header of its assertion, the issuer, the public keys, and the longest life of an assertion.
const (
	proxyHeader  = "X-Goog-Iap-Jwt-Assertion"
	proxyIssuer  = "https://cloud.google.com/iap"
	proxyKeysURL = "https://www.gstatic.com/iap/verify/public_key-jwk"
	proxyLife    = 10*time.Minute + 2*leeway
)

// Identity identifies people by Google's ID tokens (RS256, in Authorization) and by
// Identity-Aware Proxy's assertions (ES256, in a header of their own). It is safe for
// concurrent use.
type Identity struct {
	allow        map[string]bool
	token, proxy issuer
}

// address is the form of an allowed address: plain ASCII, since other addresses have more than
// one spelling.
var address = regexp.MustCompile(`^[a-z0-9._%+-]+@[a-z0-9-]+(\.[a-z0-9-]+)+$`)

// IsAddress reports whether an e-mail address may be in Allow.
func IsAddress(email string) bool { _, ok := fold(email); return ok }

func fold(email string) (string, bool) {
	small := []byte(email)
	for i, c := range small {
		if 'A' <= c && c <= 'Z' { // ASCII alone: some other capitals have an ASCII letter as their lower case
			small[i] = c + 'a' - 'A'
		}
	}
	return string(small), len(email) <= 254 && address.Match(small)
}

// NewIdentity returns an Identity, or all mistakes of the configuration.
func NewIdentity(config Config) (*Identity, error) {
	i := &Identity{allow: map[string]bool{}}
	errs := []error{checkAudience(config.Audience), refuse(len(config.Allow) == 0, "nobody is allowed")}
	for _, email := range config.Allow {
		small, ok := fold(email)
		errs = append(errs, refuse(!ok, "an allowed e-mail address is malformed"))
		i.allow[small] = true
	}
	var tokens, proxy error
	i.token, tokens = config.tokens()
	i.proxy, proxy = config.issuer(jwt.SigningMethodES256, cmp.Or(config.ProxyKeysURL, proxyKeysURL), proxyIssuer)
	if err := errors.Join(append(errs, tokens, proxy)...); err != nil {
		return nil, err
	}
	return i, nil
}

func checkVerified(content claims) error {
	if !content.EmailVerified {
		return fmt.Errorf("%w: email_not_verified", serve.ErrNotAllowed)
	}
	return nil
}

// checkLife requires that an assertion lives no longer than the proxy's do. An assertion needs
// no verified address: the proxy has authenticated the person.
func checkLife(content claims) error {
	if content.ExpiresAt.Sub(content.IssuedAt.Time) > proxyLife {
		return invalid("life")
	}
	return nil
}

// Identify returns the lower-case e-mail address of the accepted person that the headers
// identify. Its error wraps serve.ErrNoToken, ErrInvalid, serve.ErrNotAllowed or serve.ErrKeysUnavailable, as
// Verify's does. Where the proxy's header is present, nothing else is read.
func (i *Identity) Identify(ctx context.Context, header http.Header) (string, error) {
	if asserted := header.Values(proxyHeader); len(asserted) > 0 {
		if len(asserted) > 1 || asserted[0] == "" {
			return "", invalid("malformed")
		}
		token, err := wellFormed(asserted[0])
		if err != nil {
			return "", err
		}
		return i.identify(ctx, i.proxy, checkLife, token)
	}
	given := header.Values("Authorization")
	switch {
	case len(given) == 0:
		return "", serve.ErrNoToken
	case len(given) > 1:
		return "", invalid("malformed")
	}
	token, err := bearer(given[0])
	if err != nil {
		return "", err
	}
	return i.identify(ctx, i.token, checkVerified, token)
}

// identify checks a token, and with check the claims that only its kind has.
func (i *Identity) identify(ctx context.Context, by issuer, check func(claims) error, token string) (string, error) {
	content, err := by.read(ctx, token, false)
	if err == nil {
		err = check(content)
	}
	if err != nil {
		return "", err
	}
	email, ok := fold(content.Email)
	if !ok || !i.allow[email] {
		return "", fmt.Errorf("%w: email", serve.ErrNotAllowed)
	}
	return email, nil
}

// Accounts identifies accounts by Google's ID tokens (RS256, in Authorization), each for the address
// that it calls. It is safe for concurrent use. Whom it identifies may do nothing yet.
type Accounts struct{ token issuer }

// NewAccounts returns Accounts, or the mistake in the configuration.
func NewAccounts(config Config) (*Accounts, error) {
	tokens, err := config.tokens()
	return &Accounts{tokens}, err
}

// Account returns the e-mail address of the account whose token an Authorization header has, for the
// audience. Without one, invalid is the reason. The error wraps serve.ErrKeysUnavailable.
func (a *Accounts) Account(ctx context.Context, audience, authorization string) (email, invalid string, err error) {
	token, err := bearer(authorization)
	var content claims
	if err == nil {
		err = checkAudience(audience)
	}
	if err == nil {
		content, err = a.token.expecting(audience).read(ctx, token, false)
	}
	if err == nil {
		err = checkVerified(content)
	}
	switch {
	case errors.Is(err, serve.ErrKeysUnavailable):
		return "", "", err
	case err != nil:
		return "", err.Error()[strings.LastIndex(err.Error(), ": ")+2:], nil // the code at its end
	}
	email, ok := fold(content.Email)
	if !ok {
		return "", "email", nil
	}
	return email, "", nil
}
