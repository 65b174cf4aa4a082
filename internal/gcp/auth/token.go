package auth

import (
	"crypto"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
)

// The JSON of a token is decoded here, not by the JWT library. The library's decoder accepts
// Email for email, and the last of two equal names, where another reader of the same token may
// take the first. Here names are exact, and a duplicate name at any depth refuses the token.

// protected holds the members of a token's header that are used.
type protected struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	// Critical lists extensions that the signer requires (RFC 7515 section 4.1.11). None is
	// supported.
	Critical jsontext.Value `json:"crit"`
}

// claims holds the claims of a token that are used.
type claims struct {
	Issuer        string    `json:"iss"`
	Audience      audiences `json:"aud"`
	ExpiresAt     date      `json:"exp"`
	IssuedAt      date      `json:"iat"`
	NotBefore     date      `json:"nbf"`
	Email         string    `json:"email"`
	EmailVerified bool      `json:"email_verified"`
}

// audiences is one string or a list of strings (RFC 7519 section 4.1.3).
type audiences []string

// UnmarshalJSONFrom accepts these two forms alone.
func (a *audiences) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	switch from.PeekKind() {
	case '"':
		*a = audiences{""}
		return json.UnmarshalDecode(from, &(*a)[0])
	case '[':
		return json.UnmarshalDecode(from, (*[]string)(a))
	default:
		return errClaim
	}
}

// lastDate is the end of the year 9999. A later date is refused.
const lastDate = 253402300799

// date is a NumericDate (RFC 7519 section 2): seconds since 1970 as a JSON number, with or
// without a fraction. It is nil where the token has none.
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

// errClaim: a claim has the wrong form.
var errClaim = errors.New("auth: claim of a wrong form")

// reader reads tokens of one algorithm and one audience.
type reader struct {
	method    jwt.SigningMethod
	validator *jwt.Validator
}

func newReader(method jwt.SigningMethod, audience string, now func() time.Time) reader {
	return reader{method: method, validator: jwt.NewValidator(
		jwt.WithAudience(audience), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(now),
	)}
}

// read returns the claims of a token. It checks the signature by the key that the header names,
// the audience and the times.
func (r reader) read(token string, key func(id string) (crypto.PublicKey, error)) (claims, error) {
	header, said, err := r.open(token)
	if err != nil {
		return claims{}, err
	}
	end := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.Strict().DecodeString(token[end+1:])
	if err != nil {
		return claims{}, jwt.ErrTokenMalformed
	}
	by, err := key(header.KeyID)
	if err != nil {
		return claims{}, err
	}
	if r.method.Verify(token[:end], signature, by) != nil {
		return claims{}, jwt.ErrTokenSignatureInvalid
	}
	return said, r.validate(said)
}

// readStripped returns the claims of a token whose signature Cloud Run has verified and
// removed. It makes every other check of read.
func (r reader) readStripped(token string) (claims, error) {
	_, said, err := r.open(token)
	if err != nil {
		return claims{}, err
	}
	return said, r.validate(said)
}

// open decodes header and claims. Nothing is verified yet.
func (r reader) open(token string) (header protected, said claims, err error) {
	parts := strings.Split(token, ".")
	switch {
	case len(parts) != 3 || decode(parts[0], &header) != nil || decode(parts[1], &said) != nil:
		return header, said, jwt.ErrTokenMalformed
	case header.Algorithm != r.method.Alg():
		return header, said, jwt.ErrTokenSignatureInvalid
	case len(header.Critical) > 0:
		return header, said, jwt.ErrTokenUnverifiable
	}
	return header, said, nil
}

// validate checks audience and times.
func (r reader) validate(said claims) error {
	if said.IssuedAt.NumericDate == nil { // the library treats iat as optional
		return jwt.ErrTokenRequiredClaimMissing
	}
	return r.validator.Validate(jwt.RegisteredClaims{
		Audience: jwt.ClaimStrings(said.Audience), ExpiresAt: said.ExpiresAt.NumericDate,
		IssuedAt: said.IssuedAt.NumericDate, NotBefore: said.NotBefore.NumericDate,
	})
}

// decode decodes one part of a token.
func decode(part string, into any) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
