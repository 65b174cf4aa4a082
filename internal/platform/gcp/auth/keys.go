package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"

	"billhook/internal/platform/cache"
	"billhook/internal/platform/serve"
)

const (
	// Bounds of a set's max-age, and the default if an answer has none.
	minFresh     = time.Minute
	maxFresh     = 6 * time.Hour
	defaultFresh = time.Hour
	// keepFor bounds the use of a set while the key server does not answer. Google announces a key days before
	// it signs with it; a longer time could accept a withdrawn key.
	keepFor      = 24 * time.Hour
	refetchAfter = 10 * time.Second // between the starts of two fetches, also after failures and for unknown ids
	fetchTimeout = 3 * time.Second  // well below every ack deadline
	maxKeysBytes = 256 << 10
	// Bounds of an RSA modulus: a smaller one is breakable, a larger one only costs time.
	minKeyBits = 2048
	maxKeyBits = 8192
)

// errUnknownKey: the current set has no key with this id.
var errUnknownKey = invalid("unknown_key")

// keySet has the signing keys of one algorithm at a URL, fetched once for all callers. A set that is no
// longer fresh is used at once and fetched in the background.
type keySet struct {
	url    string
	alg    string
	client *http.Client
	now    func() time.Time
	last   atomic.Pointer[fetched]
	tried  *cache.Cache[error] // the result of the last fetch, for refetchAfter
}

// fetched has the keys of the last successful fetch, by key id.
type fetched struct {
	keys          map[string]crypto.PublicKey
	at, freshTill time.Time
}

// key waits for a fetch only if it has no such key. Its error is errUnknownKey or serve.ErrKeysUnavailable.
func (s *keySet) key(ctx context.Context, kid string) (crypto.PublicKey, error) {
	key, fresh := s.known(kid)
	if key != nil {
		if !fresh {
			go func() { _, _ = s.tried.Get(context.WithoutCancel(ctx), "", s.refresh) }()
		}
		return key, nil
	}
	failed, err := s.tried.Get(ctx, "", s.refresh)
	if err = cmp.Or(err, failed); err != nil {
		err = fmt.Errorf("%w: %w", serve.ErrKeysUnavailable, err)
	}
	if key, _ = s.known(kid); key != nil {
		return key, nil
	}
	return nil, cmp.Or(err, errUnknownKey)
}

func (s *keySet) known(kid string) (key crypto.PublicKey, fresh bool) {
	last, now := s.last.Load(), s.now()
	if last == nil || !now.Before(last.at.Add(keepFor)) {
		return nil, false
	}
	return last.keys[kid], now.Before(last.freshTill)
}

// refresh fetches the set, and returns its failure as a value that is cached.
func (s *keySet) refresh(ctx context.Context) (failed error, good time.Duration, _ error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	last, failed := s.fetch(ctx)
	if failed == nil {
		s.last.Store(last)
	}
	return failed, refetchAfter, nil
}

func (s *keySet) fetch(ctx context.Context) (*fetched, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, errors.New("request_not_made")
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, errors.New("no_answer")
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status_%d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxKeysBytes+1))
	if err != nil {
		return nil, errors.New("answer_cut")
	}
	if len(body) > maxKeysBytes {
		return nil, errors.New("answer_too_long")
	}
	keys, err := parseKeys(body, s.alg)
	if err != nil {
		return nil, err
	}
	now := s.now()
	return &fetched{keys, now, now.Add(freshFor(response.Header.Get("Cache-Control")))}, nil
}

// parseKeys reads a JSON Web Key Set (RFC 7517) and returns the keys of the algorithm.
func parseKeys(body []byte, alg string) (map[string]crypto.PublicKey, error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("not_a_key_set")
	}
	keys := map[string]crypto.PublicKey{}
	for _, text := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(text) == nil && k.KeyID != "" && (k.Use == "" || k.Use == "sig") &&
			(k.Algorithm == "" || k.Algorithm == alg) && signs(k.Key, alg) {
			keys[k.KeyID] = k.Key
		}
	}
	if len(keys) == 0 {
		// An empty set would refuse every sender, so the previous set is kept.
		return nil, errors.New("no_usable_key")
	}
	return keys, nil
}

// signs reports whether a key fits the algorithm; the size of an RSA key must be within the bounds.
func signs(key crypto.PublicKey, alg string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		bits := key.N.BitLen()
		return alg == jwt.SigningMethodRS256.Alg() && bits >= minKeyBits && bits <= maxKeyBits &&
			key.E >= 3 && key.E <= 1<<31-1 && key.E%2 == 1
	case *ecdsa.PublicKey:
		return alg == jwt.SigningMethodES256.Alg() && key.Curve == elliptic.P256()
	default:
		return false
	}
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
