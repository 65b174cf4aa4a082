package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"

	"billhook/internal/platform/serve"
)

const (
	// Bounds of the max-age of a set, and what is taken where an answer has none.
	minFresh     = time.Minute
	maxFresh     = 6 * time.Hour
	defaultFresh = time.Hour
	// keepFor bounds the use of a set while the key server does not answer. Google announces a key days before it signs
	// with it; a longer time could accept a withdrawn key.
	keepFor = 24 * time.Hour
	// refetchAfter parts two fetches, also after failures and for unknown key ids.
	refetchAfter = 10 * time.Second
	// fetchTimeout bounds one fetch. It is well below every ack deadline.
	fetchTimeout = 3 * time.Second
	maxKeysBytes = 256 << 10
	// Bounds of an RSA modulus: a smaller one is breakable, a larger one only costs time.
	minKeyBits = 2048
	maxKeyBits = 8192
)

var (
	// errUnknownKey: the current set has no key with this id.
	errUnknownKey = invalid("unknown_key")
	errNotFetched = errors.New("not_fetched")
)

// keySet is the signing keys of one algorithm at a URL, fetched once for all callers. A set that is no longer fresh
// answers at once and is fetched in the background.
type keySet struct {
	url    string
	alg    string
	client *http.Client
	now    func() time.Time
	flight singleflight.Group

	mu        sync.Mutex
	keys      map[string]crypto.PublicKey
	fetched   time.Time // time of the last successful fetch
	freshTill time.Time
	tried     time.Time // end of the last fetch
	lastErr   error     // error of the last fetch
}

// key waits for a fetch only where it has no such key. Its error is errUnknownKey, or serve.ErrKeysUnavailable where
// that cannot be known.
func (s *keySet) key(ctx context.Context, kid string) (crypto.PublicKey, error) {
	key, settled, err := s.lookup(kid)
	if settled {
		return key, err
	}
	done := s.flight.DoChan("", func() (any, error) {
		// Another caller's fetch may have ended since the lookup above.
		if _, settled, _ := s.lookup(kid); !settled {
			s.refresh()
		}
		return nil, nil
	})
	if key != nil {
		return key, nil
	}
	select {
	case <-done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", serve.ErrKeysUnavailable, ctx.Err())
	}
	key, _, err = s.lookup(kid)
	return key, err
}

// lookup answers from the present set; unless settled, a fetch may give a better answer.
func (s *keySet) lookup(kid string) (key crypto.PublicKey, settled bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	usable := s.keys != nil && now.Before(s.fetched.Add(keepFor))
	justTried := !s.tried.IsZero() && now.Before(s.tried.Add(refetchAfter))
	if usable {
		key = s.keys[kid]
	}
	switch {
	case key != nil:
		return key, justTried || now.Before(s.freshTill), nil
	case usable && s.lastErr == nil:
		return nil, justTried, errUnknownKey
	default:
		// There is no set, or the id is unknown and the last fetch has failed.
		return nil, justTried, fmt.Errorf("%w: %w", serve.ErrKeysUnavailable, cmp.Or(s.lastErr, errNotFetched))
	}
}

// refresh fetches the set for every caller, so no caller's context ends it.
func (s *keySet) refresh() {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	keys, fresh, err := s.fetch(ctx)

	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.tried, s.lastErr = now, err
	if err == nil {
		s.keys, s.fetched, s.freshTill = keys, now, now.Add(fresh)
	}
}

func (s *keySet) fetch(ctx context.Context) (map[string]crypto.PublicKey, time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, 0, errors.New("request_not_made")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, 0, errors.New("no_answer")
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, 0, fmt.Errorf("status_%d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxKeysBytes+1))
	if err != nil {
		return nil, 0, errors.New("answer_cut")
	}
	if len(body) > maxKeysBytes {
		return nil, 0, errors.New("answer_too_long")
	}
	keys, err := parseKeys(body, s.alg)
	if err != nil {
		return nil, 0, err
	}
	return keys, freshFor(response.Header.Get("Cache-Control")), nil
}

// parseKeys reads a JSON Web Key Set (RFC 7517) and returns the keys of the algorithm.
func parseKeys(body []byte, alg string) (map[string]crypto.PublicKey, error) {
	var set struct {
		Keys []webKey `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("not_a_key_set")
	}
	keys := map[string]crypto.PublicKey{}
	for _, k := range set.Keys {
		if k.Kid == "" || (k.Use != "" && k.Use != "sig") || (k.Alg != "" && k.Alg != alg) {
			continue
		}
		read := webKey.rsa
		if alg == jwt.SigningMethodES256.Alg() {
			read = webKey.ecdsa
		}
		if key, ok := read(k); ok {
			keys[k.Kid] = key
		}
	}
	if len(keys) == 0 {
		// An empty set would refuse every sender. The set from before is kept.
		return nil, errors.New("no_usable_key")
	}
	return keys, nil
}

type webKey struct {
	Kty string `json:"kty"`
	Kid string `json:"kid"`
	Use string `json:"use"`
	Alg string `json:"alg"`
	N   string `json:"n"`
	E   string `json:"e"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
}

// rsa returns an RSA key within the bounds of its size (RFC 7518 section 6.3).
func (k webKey) rsa() (crypto.PublicKey, bool) {
	modulus, errN := base64.RawURLEncoding.DecodeString(k.N)
	exponent, errE := base64.RawURLEncoding.DecodeString(k.E)
	if k.Kty != "RSA" || errN != nil || errE != nil || len(exponent) > 4 {
		return nil, false
	}
	n, e := new(big.Int).SetBytes(modulus), new(big.Int).SetBytes(exponent).Int64()
	if n.BitLen() < minKeyBits || n.BitLen() > maxKeyBits || e < 3 || e > 1<<31-1 || e%2 == 0 {
		return nil, false
	}
	return &rsa.PublicKey{N: n, E: int(e)}, true
}

// ecdsa returns a point of P-256 that is on the curve (RFC 7518 section 6.2).
func (k webKey) ecdsa() (crypto.PublicKey, bool) {
	const size = 32 // bytes of each coordinate
	x, errX := base64.RawURLEncoding.DecodeString(k.X)
	y, errY := base64.RawURLEncoding.DecodeString(k.Y)
	if k.Kty != "EC" || k.Crv != "P-256" || errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, false
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
	return key, err == nil
}

// freshFor returns how long an answer with this Cache-Control is fresh.
func freshFor(cacheControl string) time.Duration {
	for directive := range strings.SplitSeq(cacheControl, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(name) {
		case "no-store", "no-cache":
			return minFresh
		case "max-age":
			seconds, err := strconv.Atoi(strings.Trim(value, `"`))
			if err != nil {
				return defaultFresh
			}
			// The bounds are compared in seconds: a huge number would overflow a Duration.
			seconds = min(max(seconds, int(minFresh/time.Second)), int(maxFresh/time.Second))
			return time.Duration(seconds) * time.Second
		}
	}
	return defaultFresh
}
