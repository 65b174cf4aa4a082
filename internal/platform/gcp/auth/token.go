package auth

import (
	"cmp"
	"context"
	"crypto"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"

	"billhook/internal/platform/cache"
)

// The JWT library accepts Email for email, and the last of two equal names, where another reader of the same token may
// take the first. Here names are exact, and a duplicate name at any depth refuses the token.

type protected struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	// Critical lists extensions that the signer requires (RFC 7515 section 4.1.11). None is supported.
	Critical jsontext.Value `json:"crit"`
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

// date is a NumericDate (RFC 7519 section 2), nil where the token has none.
type date struct{ *jwt.NumericDate }

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
	d.NumericDate = jwt.NewNumericDate(time.Unix(int64(seconds), 0))
	return nil
}

var errClaim = errors.New("auth: claim of a wrong form")

// issuer is one kind of token: its names, algorithm, keys, and checks of audience and times.
type issuer struct {
	names     []string
	method    jwt.SigningMethod
	validator *jwt.Validator
	keys      *keySet
	// proved are the keys that have verified tokens: Pub/Sub sends a token for as long as it is valid.
	proved *cache.Cache[crypto.PublicKey]
}

// maxProved bounds the tokens, of at most maxTokenBytes.
const maxProved = 100

func (c Config) issuer(method jwt.SigningMethod, keysURL string, names ...string) (issuer, error) {
	keys := &keySet{url: keysURL, alg: method.Alg(), now: c.Now, client: cmp.Or(c.Client, &http.Client{})}
	if keys.now == nil {
		keys.now = time.Now
	}
	proved := cache.New[crypto.PublicKey](maxProved, keys.now)
	return issuer{names: names, method: method, keys: keys, proved: proved}.expecting(c.Audience), checkKeysURL(keysURL)
}

func (i issuer) expecting(audience string) issuer {
	i.validator = jwt.NewValidator(
		jwt.WithAudience(audience), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(i.keys.now),
	)
	return i
}

// read checks signature, issuer, audience and times; where Cloud Run has verified and removed the signature, all but
// that. The error wraps ErrInvalid or serve.ErrKeysUnavailable.
func (i issuer) read(ctx context.Context, token string, signatureRemoved bool) (claims, error) {
	header, content, err := i.open(token)
	if err == nil && !signatureRemoved {
		err = i.verify(ctx, token, header.KeyID)
	}
	if err == nil {
		err = i.validate(content)
	}
	return content, err
}

// verify checks the signature, once for as long as the set has the key that has verified it.
func (i issuer) verify(ctx context.Context, token, keyID string) error {
	end := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.Strict().DecodeString(token[end+1:])
	if err != nil {
		return invalid("malformed")
	}
	key, err := i.keys.key(ctx, keyID)
	if err != nil {
		return err
	}
	if by, ok := i.proved.Known(token); ok && by == key {
		return nil
	}
	if i.method.Verify(token[:end], signature, key) != nil {
		return invalid("signature")
	}
	i.proved.Put(token, key, cache.Forever)
	return nil
}

func (i issuer) open(token string) (header protected, content claims, err error) {
	parts := strings.Split(token, ".")
	switch {
	case len(parts) != 3 || decode(parts[0], &header) != nil || decode(parts[1], &content) != nil:
		return header, content, invalid("malformed")
	case header.Algorithm != i.method.Alg():
		return header, content, invalid("signature")
	case len(header.Critical) > 0:
		return header, content, invalid("unverifiable")
	}
	return header, content, nil
}

// codes are those of the library's errors, whose texts may quote the token.
var codes = []struct {
	of   error
	code string
}{
	{jwt.ErrTokenExpired, "expired"}, {jwt.ErrTokenUsedBeforeIssued, "issued_in_the_future"}, {jwt.ErrTokenNotValidYet, "not_valid_yet"},
	{jwt.ErrTokenInvalidAudience, "audience"}, {jwt.ErrTokenRequiredClaimMissing, "claim_missing"},
}

func (i issuer) validate(content claims) error {
	if content.IssuedAt.NumericDate == nil { // the library treats iat as optional
		return invalid("claim_missing")
	}
	err := i.validator.Validate(jwt.RegisteredClaims{
		Audience: content.Audience, ExpiresAt: content.ExpiresAt.NumericDate,
		IssuedAt: content.IssuedAt.NumericDate, NotBefore: content.NotBefore.NumericDate,
	})
	for _, known := range codes {
		if errors.Is(err, known.of) {
			return invalid(known.code)
		}
	}
	switch {
	case err != nil:
		return invalid("claims")
	case !slices.Contains(i.names, content.Issuer): // the library compares with one issuer only
		return invalid("issuer")
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
