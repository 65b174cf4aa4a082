package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"

	"billhook/internal/platform/cache"
	"billhook/internal/platform/serve"
)

// The JWT library accepts Email for email, and takes the last of two equal names, where another reader may
// take the first. Here names are exact, and a duplicate name at any depth refuses the token.

type protected struct {
	Algorithm string         `json:"alg"`
	KeyID     string         `json:"kid"`
	Critical  jsontext.Value `json:"crit"` // extensions that the signer requires (RFC 7515); none is supported
}

type claims struct {
	Issuer        string           `json:"iss"`
	Audience      jwt.ClaimStrings `json:"aud"`
	ExpiresAt     date             `json:"exp"`
	IssuedAt      date             `json:"iat"`
	NotBefore     date             `json:"nbf"`
	Email         string           `json:"email"`
	EmailVerified bool             `json:"email_verified"`
}

// lastDate is the end of the year 9999. A later date is refused.
const lastDate = 253402300799

// date is a NumericDate (RFC 7519 section 2); zero: the token has none.
type date struct{ time.Time }

// UnmarshalJSONFrom accepts a number, but no null and no string with a number.
func (d *date) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	value, err := from.ReadValue()
	if err != nil {
		return err
	}
	if value.Kind() != '0' {
		return errClaim
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || seconds < 0 || seconds > lastDate {
		return errClaim
	}
	d.Time = time.Unix(int64(seconds), 0)
	return nil
}

var errClaim = errors.New("auth: claim of a wrong form")

// issuer is one kind of token: its names, algorithm, keys and audience.
type issuer struct {
	names    []string
	method   jwt.SigningMethod
	audience string
	longest  time.Duration // the longest life of a token; 0: any, and the account's address must be verified
	keys     *keySet
	// proved has the tokens that were verified, by their hash, because Pub/Sub sends a token many times.
	proved *cache.Cache[opened]
}

const maxProved = 100

func (c Config) issuer(method jwt.SigningMethod, keysURL string, names ...string) (issuer, error) {
	now := c.Now
	if now == nil {
		now = time.Now
	}
	keys := &keySet{url: keysURL, alg: method.Alg(), client: cmp.Or(c.Client, &http.Client{}), now: now}
	keys.tried = cache.New[error](1, now)
	i := issuer{names: names, method: method, audience: c.Audience, keys: keys}
	i.proved = cache.New[opened](maxProved, now)
	return i, checkKeysURL(keysURL)
}

// opened is a token's content, and the key that has verified its signature, if one has.
type opened struct {
	header  protected
	content claims
	by      crypto.PublicKey
}

// read checks the signature, unless Cloud Run has verified and removed it, and issuer, audience and times.
// The error wraps ErrInvalid, serve.ErrNotAllowed or serve.ErrKeysUnavailable.
func (i issuer) read(ctx context.Context, token string, signatureRemoved bool) (claims, error) {
	sum := sha256.Sum256([]byte(token)) // a stored hash cannot be used to authenticate
	hash := string(sum[:])
	of, known := i.proved.Known(hash)
	var err error
	if !known {
		of, err = i.open(token)
	}
	if err == nil && !signatureRemoved {
		err = i.verify(ctx, token, hash, of)
	}
	if err == nil {
		err = i.validate(of.content)
	}
	return of.content, err
}

// verify checks the signature. It remembers a verified token for as long as the set has the same key.
func (i issuer) verify(ctx context.Context, token, hash string, of opened) error {
	end := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.Strict().DecodeString(token[end+1:])
	if err != nil {
		return invalid("malformed")
	}
	key, err := i.keys.key(ctx, of.header.KeyID)
	if err != nil || of.by == key {
		return err
	}
	if i.method.Verify(token[:end], signature, key) != nil {
		return invalid("signature")
	}
	of.by = key
	i.proved.Put(hash, of, cache.Forever)
	return nil
}

func (i issuer) open(token string) (of opened, err error) {
	parts := strings.Split(token, ".")
	switch {
	case len(parts) != 3 || decode(parts[0], &of.header) != nil || decode(parts[1], &of.content) != nil:
		return of, invalid("malformed")
	case of.header.Algorithm != i.method.Alg():
		return of, invalid("signature")
	case len(of.header.Critical) > 0:
		return of, invalid("unverifiable")
	}
	return of, nil
}

// validate does not use the library, which allows one issuer, treats iat as optional, and quotes the token.
func (i issuer) validate(content claims) error {
	now := i.keys.now()
	switch {
	case content.IssuedAt.IsZero(), content.ExpiresAt.IsZero(), strings.Join(content.Audience, "") == "":
		return invalid("claim_missing")
	case !now.Before(content.ExpiresAt.Add(leeway)):
		return invalid("expired")
	case now.Before(content.IssuedAt.Add(-leeway)):
		return invalid("issued_in_the_future")
	case now.Before(content.NotBefore.Add(-leeway)):
		return invalid("not_valid_yet")
	case !slices.Contains(content.Audience, i.audience):
		return invalid("audience")
	case !slices.Contains(i.names, content.Issuer):
		return invalid("issuer")
	case i.longest > 0 && content.ExpiresAt.Sub(content.IssuedAt.Time) > i.longest:
		return invalid("life")
	case i.longest == 0 && !content.EmailVerified:
		return fmt.Errorf("%w: email_not_verified", serve.ErrNotAllowed)
	}
	return nil
}

func decode(part string, into any) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
