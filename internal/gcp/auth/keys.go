package auth

import (
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
	"golang.org/x/sync/singleflight"
)

const (
	// A fetched set counts as fresh for the max-age of its answer, within these
	// bounds, or for defaultFresh where the answer names none.
	minFresh     = time.Minute
	maxFresh     = 6 * time.Hour
	defaultFresh = time.Hour
	// keepFor is how long after its fetch a set is used while the key server does
	// not answer. Google announces a key days before it signs with it, and keeps
	// it published for as long as its tokens live, so a day-old set still holds
	// the keys in use; beyond that, a withdrawn key could be honoured.
	keepFor = 24 * time.Hour
	// refetchAfter is the shortest time between two fetches, whatever made them
	// fail and however many unknown key ids are asked for.
	refetchAfter = 10 * time.Second
	// fetchTimeout bounds one fetch. It is well below every ack deadline.
	fetchTimeout = 3 * time.Second
	// maxKeysBytes bounds the answer. Google's is about 2 KiB.
	maxKeysBytes = 256 << 10
	// The bounds of an RSA modulus: smaller is breakable, larger only burns time.
	minKeyBits = 2048
	maxKeyBits = 8192
)

// errUnknownKey: the current set holds no key of that id.
var errUnknownKey = errors.New("auth: unknown key id")

// keySet is the signing keys of one algorithm at a URL, fetched when needed, once for
// all callers. Nobody waits for a fetch whose key is here: a set that is no longer fresh
// is answered from, and fetched anew behind the answer.
type keySet struct {
	url    string
	alg    string // RS256 or ES256
	client *http.Client
	now    func() time.Time
	flight singleflight.Group

	mu        sync.Mutex
	keys      map[string]crypto.PublicKey
	fetched   time.Time // when keys were fetched
	freshTill time.Time
	tried     time.Time // when the last fetch ended
	lastErr   error     // how the last fetch ended
}

// key returns the key of the id, errUnknownKey if a current set does not hold it,
// or ErrKeysUnavailable if that cannot be known. It waits for a fetch only where it has
// no such key, and no longer than one fetch takes.
func (s *keySet) key(ctx context.Context, kid string) (crypto.PublicKey, error) {
	key, settled, err := s.lookup(kid)
	if settled {
		return key, err
	}
	done := s.flight.DoChan("", func() (any, error) {
		// Who decided to fetch may come here after the fetch of another has ended.
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
		return nil, fmt.Errorf("%w: %w", ErrKeysUnavailable, ctx.Err())
	}
	key, _, err = s.lookup(kid)
	return key, err
}

// lookup answers from what is here. settled reports whether that answer stands;
// if not, a fetch may better it, and it is the answer only if the fetch did not.
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
		// No set at all, or an unknown id while the server that would know is away.
		return nil, justTried, ErrKeysUnavailable
	}
}

// failure is the code of how the last fetch ended.
func (s *keySet) failure() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastErr == nil {
		return "not_fetched"
	}
	return s.lastErr.Error()
}

// refresh fetches the set. The fetch serves every caller: no caller's context ends it.
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

// fetch gets the set. Its errors are codes: they reach answers and logs.
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

// parseKeys reads a JSON Web Key Set (RFC 7517) and keeps what can verify the algorithm.
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
		if alg == algES256 {
			read = webKey.ecdsa
		}
		if key, ok := read(k); ok {
			keys[k.Kid] = key
		}
	}
	if len(keys) == 0 {
		// An empty set would turn every sender away: better the one we had.
		return nil, errors.New("no_usable_key")
	}
	return keys, nil
}

// webKey is one key of a set.
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

// rsa is an RSA key of a sound size (RFC 7518 section 6.3).
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

// ecdsa is a point of P-256 (RFC 7518 section 6.2): one that is not on the curve is none.
func (k webKey) ecdsa() (crypto.PublicKey, bool) {
	const size = 32 // both coordinates are of full length
	x, errX := base64.RawURLEncoding.DecodeString(k.X)
	y, errY := base64.RawURLEncoding.DecodeString(k.Y)
	if k.Kty != "EC" || k.Crv != "P-256" || errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, false
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
	return key, err == nil
}

// freshFor is how long an answer with this Cache-Control counts as fresh.
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
			// Compared as seconds: a huge number must not overflow a Duration.
			seconds = min(max(seconds, int(minFresh/time.Second)), int(maxFresh/time.Second))
			return time.Duration(seconds) * time.Second
		}
	}
	return defaultFresh
}
