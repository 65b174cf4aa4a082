// Package signature signs and verifies webhooks: PayNow's scheme, a generic one, and Standard
// Webhooks. It owns the comparison in constant time, several secrets at once, and the replay
// window to both sides. It sees no request, only the values of headers and the raw body.
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

// Scheme names a way to sign.
type Scheme string

// The schemes.
const (
	// PayNow: PayNow-Signature is base64 of HMAC-SHA256 over "timestamp.body", PayNow-Timestamp is Unix milliseconds.
	PayNow Scheme = "paynow"
	// Generic: X-Webhook-Signature is hex of the same, X-Webhook-Timestamp Unix seconds. Where
	// X-Webhook-Destination is set, it is over "timestamp.destination.body": the signature then
	// holds at that path alone. No body that is JSON can be taken for a destination and a body.
	Generic Scheme = "generic"
	// Standard is Standard Webhooks: webhook-signature lists "v1,<base64>" over
	// "id.timestamp.body", webhook-timestamp is Unix seconds.
	Standard Scheme = "standard"
)

// MinSecret is the shortest secret accepted, in bytes.
const MinSecret = 24

// Errors of Headers and Verify. Each is final: the same request will fail again.
var (
	// ErrMissing: a header that the scheme needs is absent or empty.
	ErrMissing = errors.New("signature: header missing")
	// ErrMalformed: a header occurs twice, or does not have the scheme's form.
	ErrMalformed = errors.New("signature: header malformed")
	// ErrSignature: no secret gives this signature.
	ErrSignature = errors.New("signature: does not match")
	// ErrTooOld and ErrTooNew: the signed time is outside the window.
	ErrTooOld = errors.New("signature: timestamp too old")
	ErrTooNew = errors.New("signature: timestamp too new")
)

// headers are the names of a scheme's headers in net/http's canonical spelling, which saves the conversion.
type headers struct {
	// destination is one that may be absent; empty: the scheme has none.
	signature, timestamp, id, destination string
	unit                                  time.Duration
	// version stands before each signature of a list; empty: there is one signature.
	version string
	encode  func(sum []byte) string
	decode  func(sum []byte, text string) bool
}

var schemes = map[Scheme]headers{
	PayNow: {
		signature: "Paynow-Signature", timestamp: "Paynow-Timestamp", unit: time.Millisecond,
		encode: base64.StdEncoding.EncodeToString, decode: decodeBase64,
	},
	Generic: {
		signature: "X-Webhook-Signature", timestamp: "X-Webhook-Timestamp", destination: "X-Webhook-Destination", unit: time.Second,
		encode: hex.EncodeToString, decode: decodeHex,
	},
	Standard: {
		signature: "Webhook-Signature", timestamp: "Webhook-Timestamp", id: "Webhook-Id", unit: time.Second,
		version: "v1,", encode: base64.StdEncoding.EncodeToString, decode: decodeBase64,
	},
}

// keys returns the HMAC keys of the secrets. Its errors name a secret by its number.
func keys(scheme Scheme, secrets []string) ([][]byte, error) {
	if _, ok := schemes[scheme]; !ok {
		return nil, errors.New("signature: unknown scheme")
	}
	if len(secrets) == 0 {
		return nil, errors.New("signature: no secret")
	}
	all := make([][]byte, 0, len(secrets))
	for i, secret := range secrets {
		key := []byte(secret)
		if encoded, ok := strings.CutPrefix(secret, "whsec_"); ok && scheme == Standard {
			decoded, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return nil, fmt.Errorf("signature: secret %d is not base64 behind whsec_", i+1)
			}
			key = decoded
		}
		if len(key) < MinSecret {
			return nil, fmt.Errorf("signature: secret %d has %d bytes, at least %d are needed", i+1, len(key), MinSecret)
		}
		all = append(all, key)
	}
	return all, nil
}

// Verifier verifies webhooks of one source. It is safe for concurrent use.
type Verifier struct {
	headers   headers
	tolerance time.Duration
	now       func() time.Time
	pools     []*sync.Pool // pools hold states, one pool per secret: making a state costs more than using it.
}

// NewVerifier returns a verifier that accepts any of the secrets, and signed times up to
// tolerance away from now. It refuses empty and short secrets, and a tolerance of 0 or less.
func NewVerifier(scheme Scheme, secrets []string, tolerance time.Duration, now func() time.Time) (*Verifier, error) {
	all, err := keys(scheme, secrets)
	if err != nil {
		return nil, err
	}
	if tolerance <= 0 {
		return nil, errors.New("signature: the tolerance must be above 0")
	}
	v := &Verifier{headers: schemes[scheme], tolerance: tolerance, now: now}
	for _, key := range all {
		v.pools = append(v.pools, &sync.Pool{New: func() any { return newState(key) }})
	}
	return v, nil
}

// Claim is what the headers of a webhook say. It is well-formed and within the window. Nothing
// is proven before Verify has checked the body.
type Claim struct {
	verifier  *Verifier
	id, stamp string
	// Destination is the path that the webhook is signed for; empty: for any. Who takes the webhook compares it.
	Destination string
	// given are the digests in the signature header, n of them.
	given [8][sha256.Size]byte
	n     int
}

// Headers checks the headers. The body need not be read where it fails. The function header returns the values of a
// header. The scheme signs these raw strings. Base64 may be padded or not, and has no other spelling.
func (v *Verifier) Headers(header func(name string) []string) (Claim, error) {
	c := Claim{verifier: v}
	given, err := one(header(v.headers.signature))
	if err != nil {
		return Claim{}, err
	}
	if c.stamp, err = one(header(v.headers.timestamp)); err != nil {
		return Claim{}, err
	}
	if v.headers.id != "" {
		if c.id, err = one(header(v.headers.id)); err != nil {
			return Claim{}, err
		}
		// Dots join the signed parts: with one in the id a signature would hold for several ways to cut the same bytes.
		if strings.Contains(c.id, ".") {
			return Claim{}, ErrMalformed
		}
	}
	if v.headers.destination != "" {
		if values := header(v.headers.destination); len(values) > 0 {
			if c.Destination, err = one(values); err != nil {
				return Claim{}, err
			}
		}
	}
	at, err := v.time(c.stamp)
	if err != nil {
		return Claim{}, err
	}
	if c.decode(given); c.n == 0 {
		return Claim{}, ErrMalformed
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

// time parses a timestamp: digits only, and few enough for an int64 of nanoseconds.
func (v *Verifier) time(stamp string) (time.Time, error) {
	n, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || len(stamp) > 18 || stamp[0] < '0' { // a sign
		return time.Time{}, ErrMalformed
	}
	if v.headers.unit == time.Second {
		return time.Unix(n, 0), nil // which no number overflows into the window
	}
	return time.UnixMilli(n), nil
}

func (c *Claim) decode(given string) {
	h := &c.verifier.headers
	if h.version == "" {
		if h.decode(c.given[0][:], given) {
			c.n = 1
		}
		return
	}
	for part := range strings.SplitSeq(given, " ") {
		text, ok := strings.CutPrefix(part, h.version)
		if ok && c.n < len(c.given) && h.decode(c.given[c.n][:], text) {
			c.n++
		}
	}
}

// Verify returns nil where any secret gives any of the signatures. It tries every secret,
// whether an earlier one has matched or not, in constant time.
func (c *Claim) Verify(body []byte) error {
	found := 0
	for _, pool := range c.verifier.pools {
		with := pool.Get().(*state)
		sum := with.digest(c.id, c.stamp, c.Destination, body)
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
	prefix []byte
	sum    []byte
}

func newState(key []byte) *state { return &state{mac: hmac.New(sha256.New, key)} }

// digest returns the HMAC over "id.stamp.destination.body" without the parts that are empty, until the next call.
func (s *state) digest(id, stamp, destination string, body []byte) []byte {
	s.mac.Reset()
	s.prefix = s.prefix[:0]
	for _, part := range [...]string{id, stamp, destination} {
		if part != "" {
			s.prefix = append(append(s.prefix, part...), '.')
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

// Signer signs webhooks as a source would.
type Signer struct {
	headers headers
	keys    [][]byte
}

// NewSigner returns a signer with secrets of at least MinSecret bytes each. By Standard Webhooks
// all of them sign, so that a receiver goes over from one to the next in its own time; the
// headers of the other schemes hold one signature, and take one secret.
func NewSigner(scheme Scheme, secret string, also ...string) (*Signer, error) {
	all, err := keys(scheme, append([]string{secret}, also...))
	if err != nil {
		return nil, err
	}
	if len(all) > 1 && scheme != Standard {
		return nil, errors.New("signature: this scheme takes one secret")
	}
	return &Signer{headers: schemes[scheme], keys: all}, nil
}

// Sign returns the headers for the body, signed at the given time. Only Standard Webhooks uses the id of the message.
func (s *Signer) Sign(id string, body []byte, at time.Time) map[string]string {
	return s.SignFor("", id, body, at)
}

// SignFor is Sign for a body that is sent to the destination: the path of its address, with the
// query where there is one. Only the generic scheme signs it.
func (s *Signer) SignFor(destination, id string, body []byte, at time.Time) map[string]string {
	stamp := strconv.FormatInt(at.UnixMilli()/s.headers.unit.Milliseconds(), 10)
	out := map[string]string{s.headers.timestamp: stamp}
	if s.headers.id == "" {
		id = ""
	} else {
		out[s.headers.id] = id
	}
	if s.headers.destination == "" {
		destination = ""
	} else if destination != "" {
		out[s.headers.destination] = destination
	}
	signatures := make([]string, len(s.keys))
	for i, key := range s.keys {
		signatures[i] = s.headers.version + s.headers.encode(newState(key).digest(id, stamp, destination, body))
	}
	out[s.headers.signature] = strings.Join(signatures, " ")
	return out
}
