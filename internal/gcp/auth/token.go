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

// The JSON of a token is read here and not by the JWT library. Its decoder takes Email
// for email, and the last of two: what reads the same token elsewhere may take the first.
// Here names are exact, and a name that comes twice, at any depth, refuses the token.

// protected is what the header of a token says, as far as it is looked at.
type protected struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	// Critical are extensions that the signer demands to be understood (RFC 7515
	// section 4.1.11). None is.
	Critical jsontext.Value `json:"crit"`
}

// claims is what a token says, as far as it is looked at.
type claims struct {
	Issuer        string    `json:"iss"`
	Audience      audiences `json:"aud"`
	ExpiresAt     date      `json:"exp"`
	IssuedAt      date      `json:"iat"`
	NotBefore     date      `json:"nbf"`
	Email         string    `json:"email"`
	EmailVerified bool      `json:"email_verified"`
}

// audiences is one string, or a list of them (RFC 7519 section 4.1.3).
type audiences []string

// UnmarshalJSONFrom reads the two forms and no other.
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

// lastDate is the end of the year 9999: a date beyond it is none.
const lastDate = 253402300799

// date is a NumericDate (RFC 7519 section 2): seconds since 1970, with or without a
// fraction, as a JSON number. It is nil where the token has none.
type date struct{ *jwt.NumericDate }

// UnmarshalJSONFrom takes a number, and neither a string that holds one nor null.
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

// errClaim: a claim is not of the form that it must have.
var errClaim = errors.New("auth: claim of a wrong form")

// reader reads the tokens of one algorithm that are made out to one audience.
type reader struct {
	method    jwt.SigningMethod
	validator *jwt.Validator
}

func newReader(method jwt.SigningMethod, audience string, now func() time.Time) reader {
	return reader{method: method, validator: jwt.NewValidator(
		jwt.WithAudience(audience), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(now),
	)}
}

// read returns what a token says whose signature is of the key that its header names, and
// whose audience and times are right.
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

// readStripped returns what a token says whose signature was verified and removed before
// it got here. All else is checked as by read.
func (r reader) readStripped(token string) (claims, error) {
	_, said, err := r.open(token)
	if err != nil {
		return claims{}, err
	}
	return said, r.validate(said)
}

// open reads header and claims, of which nothing is believed yet.
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
	if said.IssuedAt.NumericDate == nil { // which the library takes for optional
		return jwt.ErrTokenRequiredClaimMissing
	}
	return r.validator.Validate(jwt.RegisteredClaims{
		Audience: jwt.ClaimStrings(said.Audience), ExpiresAt: said.ExpiresAt.NumericDate,
		IssuedAt: said.IssuedAt.NumericDate, NotBefore: said.NotBefore.NumericDate,
	})
}

// decode reads a part of a token.
func decode(part string, into any) error {
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
