// Package signature signs and verifies webhooks by declared schemes. It owns the comparison in constant time,
// the use of several secrets, and the replay window in both directions. It sees no request, only header
// values and the raw body.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MinSecret is the shortest secret accepted, in bytes.
const MinSecret = 24

// Errors of Headers and Verify. Each is final: the same request will fail again.
var (
	// ErrMissing: a header that the scheme needs is absent or empty.
	ErrMissing = errors.New("signature: header missing")
	// ErrMalformed: a header occurs twice, or does not have the scheme's form.
	ErrMalformed = errors.New("signature: header malformed")
	// ErrSignature: no secret produces one of the signatures.
	ErrSignature = errors.New("signature: does not match")
	// ErrTooOld and ErrTooNew: the signed time is outside the window.
	ErrTooOld = errors.New("signature: timestamp too old")
	ErrTooNew = errors.New("signature: timestamp too new")
)

// compileWith returns the compiled scheme, and states by secret: making a state costs more than using it.
// Errors name a secret by its number.
func compileWith(scheme Scheme, secrets []string) (parts *compiled, pools []*sync.Pool, err error) {
	if parts, err = scheme.compile(); err == nil && len(secrets) == 0 {
		err = errors.New("signature: no secret")
	}
	if err != nil {
		return nil, nil, err
	}
	for i, secret := range secrets {
		key := []byte(secret)
		if encoded, ok := strings.CutPrefix(secret, scheme.SecretPrefix); ok && scheme.SecretPrefix != "" {
			decoded, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return nil, nil, fmt.Errorf("signature: secret %d is not base64 behind %s", i+1, scheme.SecretPrefix)
			}
			key = decoded
		}
		if len(key) < MinSecret {
			return nil, nil, fmt.Errorf("signature: secret %d has %d bytes, at least %d are needed", i+1,
				len(key), MinSecret)
		}
		pools = append(pools, &sync.Pool{New: func() any { return newState(key, parts.parts) }})
	}
	return parts, pools, nil
}

// Verifier verifies webhooks of one source. It is safe for concurrent use.
type Verifier struct {
	scheme    *compiled
	tolerance time.Duration
	now       func() time.Time
	pools     []*sync.Pool
}

// NewVerifier returns a verifier that accepts any of the secrets, and signed times up to
// tolerance away from now. It refuses empty and short secrets, and a tolerance of 0 or less.
func NewVerifier(
	scheme Scheme, secrets []string, tolerance time.Duration, now func() time.Time,
) (*Verifier, error) {
	parts, pools, err := compileWith(scheme, secrets)
	if err != nil {
		return nil, err
	}
	if tolerance <= 0 {
		return nil, errors.New("signature: the tolerance must be above 0")
	}
	return &Verifier{scheme: parts, tolerance: tolerance, now: now, pools: pools}, nil
}

// Claim has the values from a webhook's headers, which are well-formed and within the window. It proves
// nothing until Verify has checked the body.
type Claim struct {
	verifier *Verifier
	stamp    string
	// ID is the message's id, if the scheme signs one.
	ID string
	// Destination is the path that the webhook is signed for; empty: any path. The receiver must compare it.
	Destination string
	// given has the n digests of the signature header.
	given [8][sha256.Size]byte
	n     int
}

// Headers checks the headers; after an error the body need not be read. header returns the raw values of a
// header. Base64 is accepted with or without padding, and in no other spelling.
func (v *Verifier) Headers(header func(name string) []string) (c Claim, err error) {
	s := v.scheme
	c.verifier = v
	given, err := one(header(s.Header))
	if err != nil {
		return Claim{}, err
	}
	for _, of := range [...]struct {
		name     string
		into     *string
		optional bool
	}{
		{s.TimestampHeader, &c.stamp, false},
		{s.IDHeader, &c.ID, false},
		{s.DestinationHeader, &c.Destination, true},
	} {
		if of.name == "" {
			continue
		}
		if values := header(of.name); len(values) > 0 || !of.optional {
			if *of.into, err = one(values); err != nil {
				return Claim{}, err
			}
		}
	}
	// If the id contained the joining text, the signed bytes could be split into parts in several ways.
	if c.ID != "" && strings.Contains(c.ID, s.idJoint) {
		return Claim{}, ErrMalformed
	}
	if !c.decode(given) {
		return Claim{}, ErrMalformed
	}
	if s.ReplayWindow == none {
		return c, nil
	}
	at, err := v.time(c.stamp)
	if err != nil {
		return Claim{}, err
	}
	switch age := v.now().Sub(at); {
	case age > v.tolerance:
		return Claim{}, ErrTooOld
	case age < -v.tolerance:
		return Claim{}, ErrTooNew
	}
	return c, nil
}

// Verify checks the headers, then the body.
func (v *Verifier) Verify(header func(name string) []string, body []byte) error {
	c, err := v.Headers(header)
	if err != nil {
		return err
	}
	return c.Verify(body)
}

func one(values []string) (string, error) {
	switch {
	case len(values) == 0 || (len(values) == 1 && values[0] == ""):
		return "", ErrMissing
	case len(values) > 1:
		return "", ErrMalformed
	}
	return values[0], nil
}

// time parses a timestamp: only digits, and few enough for an int64 of nanoseconds.
func (v *Verifier) time(stamp string) (time.Time, error) {
	n, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || len(stamp) > 18 || stamp[0] < '0' { // a sign
		return time.Time{}, ErrMalformed
	}
	if v.scheme.Unit == seconds {
		return time.Unix(n, 0), nil // no number overflows into the window
	}
	return time.UnixMilli(n), nil
}

// decode reads the signature header, and reports whether it has a signature and at most one timestamp.
func (c *Claim) decode(given string) bool {
	s := c.verifier.scheme
	if s.Separator == "" {
		text, ok := strings.CutPrefix(given, s.Prefix)
		if ok && s.decode(c.given[0][:], text) {
			c.n = 1
		}
		return c.n > 0
	}
	for part := range strings.SplitSeq(given, s.Separator) {
		if stamp, ok := strings.CutPrefix(part, s.TimestampPrefix); ok && s.TimestampPrefix != "" {
			if c.stamp != "" {
				return false
			}
			c.stamp = stamp
		} else if text, ok := strings.CutPrefix(part, s.Prefix); ok && c.n < len(c.given) &&
			s.decode(c.given[c.n][:], text) {
			c.n++
		}
	}
	return c.n > 0
}

// Verify returns nil if any secret produces any of the signatures. It compares in constant time, and tries
// every secret even after a match.
func (c *Claim) Verify(body []byte) error {
	found := 0
	for _, pool := range c.verifier.pools {
		with := pool.Get().(*state)
		sum := with.digest(c.ID, c.stamp, c.Destination, body)
		for i := range c.n {
			if hmac.Equal(sum, c.given[i][:]) {
				found++
			}
		}
		pool.Put(with)
	}
	if found == 0 {
		return ErrSignature
	}
	return nil
}

type state struct {
	mac    hash.Hash
	parts  []part
	prefix []byte
	sum    []byte
}

func newState(key []byte, parts []part) *state {
	return &state{mac: hmac.New(sha256.New, key), parts: parts}
}

// digest returns the HMAC over the non-empty parts and the body. The next call overwrites it.
func (s *state) digest(id, stamp, destination string, body []byte) []byte {
	s.mac.Reset()
	s.prefix = s.prefix[:0]
	for _, p := range s.parts {
		value := id
		switch p.of {
		case "timestamp":
			value = stamp
		case "destination":
			value = destination
		}
		if value != "" {
			s.prefix = append(append(s.prefix, value...), p.joint...)
		}
	}
	s.mac.Write(s.prefix)
	s.mac.Write(body)
	s.sum = s.mac.Sum(s.sum[:0])
	return s.sum
}

func decodeBase64(dst []byte, src string) bool {
	src, padded := strings.CutSuffix(src, "=")
	if len(src) != base64.RawStdEncoding.EncodedLen(sha256.Size) || (padded && strings.HasSuffix(src, "=")) {
		return false
	}
	var text [64]byte
	n, err := strictBase64.Decode(dst, text[:copy(text[:], src)])
	return err == nil && n == sha256.Size
}

var strictBase64 = base64.RawStdEncoding.Strict()

func decodeHex(dst []byte, src string) bool {
	if len(src) != hex.EncodedLen(sha256.Size) {
		return false
	}
	_, err := hex.Decode(dst, []byte(src))
	return err == nil
}

// Signer signs webhooks like a source.
type Signer struct {
	scheme *compiled
	pools  []*sync.Pool
}

// NewSigner returns a signer with secrets of at least MinSecret bytes each. If the scheme has a list of
// signatures, all secrets sign, so that a receiver can rotate at any time; other schemes take one secret.
func NewSigner(scheme Scheme, secret string, also ...string) (*Signer, error) {
	parts, pools, err := compileWith(scheme, append([]string{secret}, also...))
	if err != nil {
		return nil, err
	}
	if len(pools) > 1 && scheme.Separator == "" {
		return nil, errors.New("signature: this scheme takes one secret")
	}
	return &Signer{scheme: parts, pools: pools}, nil
}

// Sign returns the headers for the body, signed at the given time.
func (s *Signer) Sign(id string, body []byte, at time.Time) map[string]string {
	return s.SignFor("", id, body, at)
}

// SignFor is Sign for a body that is sent to a destination: the path of its URL, with the query if there is
// one. Values that the scheme does not sign are ignored.
func (s *Signer) SignFor(destination, id string, body []byte, at time.Time) map[string]string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	if s.scheme.Unit != seconds {
		stamp = strconv.FormatInt(at.UnixMilli(), 10)
	}
	out, signatures := map[string]string{}, []string(nil)
	if s.scheme.TimestampPrefix != "" {
		signatures = append(signatures, s.scheme.TimestampPrefix+stamp)
	}
	for _, pool := range s.pools {
		with := pool.Get().(*state)
		sum := with.digest(id, stamp, destination, body)
		signatures = append(signatures, s.scheme.Prefix+s.scheme.encode(sum))
		pool.Put(with)
	}
	for header, value := range map[string]string{
		s.scheme.TimestampHeader: stamp, s.scheme.IDHeader: id, s.scheme.DestinationHeader: destination,
		s.scheme.Header: strings.Join(signatures, s.scheme.Separator),
	} {
		if header != "" && value != "" {
			out[header] = value
		}
	}
	return out
}
