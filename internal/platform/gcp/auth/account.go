package auth

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"billhook/internal/platform/serve"
)

// AccountsConfig says how tokens of accounts are checked.
type AccountsConfig struct {
	// KeysURL is the URL of the JSON Web Key Set; empty: Google's.
	KeysURL string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Client fetches the keys; nil: one with the default transport.
	Client *http.Client
}

// Accounts identifies accounts by Google's ID tokens (RS256, in Authorization), each for the address
// that it calls. It is safe for concurrent use. Whom it identifies may do nothing yet.
type Accounts struct{ token issuer }

// NewAccounts returns Accounts, or the mistake in the configuration.
func NewAccounts(config AccountsConfig) (*Accounts, error) {
	config.KeysURL = cmp.Or(config.KeysURL, googleKeysURL)
	if err := checkKeysURL(config.KeysURL); err != nil {
		return nil, err
	}
	keys := &keySet{url: config.KeysURL, client: config.Client, now: config.Now}
	return &Accounts{newIssuer(jwt.SigningMethodRS256, "", keys, issuerURL, issuerHost)}, nil
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
