package auth_test

import (
	"cmp"
	"context"
	"crypto/rsa"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/serve"
)

// fetcher is inside the test's bubble, so synctest.Wait returns after a fetch has ended.
type fetcher struct {
	fetches atomic.Int64
	answer  atomic.Pointer[http.HandlerFunc]
}

func (f *fetcher) become(answer http.HandlerFunc) { f.answer.Store(&answer) }

func (f *fetcher) RoundTrip(r *http.Request) (*http.Response, error) {
	f.fetches.Add(1)
	answer := httptest.NewRecorder()
	(*f.answer.Load())(answer, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func newFetchingVerifier(tb testing.TB, answer http.HandlerFunc, now *clock) (*auth.Verifier, *fetcher) {
	tb.Helper()
	keys := &fetcher{}
	keys.become(answer)
	verifier := filetest.Must(auth.New(auth.Config{
		Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account, Client: &http.Client{Transport: keys}, Now: now.Now,
	}))(tb)
	return verifier, keys
}

// tokens returns headers of valid tokens that live for two days, by the id of their key. One is forged.
func tokens() map[string]string {
	claims := claimsWith(jwt.MapClaims{"exp": start.Add(48 * time.Hour).Unix()})
	return map[string]string{
		"old":    "Bearer " + sign(jwt.SigningMethodRS256, oldKey(), "old", claims),
		"new":    "Bearer " + sign(jwt.SigningMethodRS256, newKey(), "new", claims),
		"forged": "Bearer " + sign(jwt.SigningMethodRS256, foreignKey(), "forged", claims),
	}
}

const callers = 20

// course is a row of testdata/fetches.yaml, which says what each member is.
type course struct {
	What  string
	Steps []struct {
		After, Took       time.Duration
		Server, Token, Is string
		Fresh             *string
		Fetches           int64
		Callers           int // 20 where it says nothing
	}
}

func serving(name string) http.HandlerFunc {
	if server, ok := map[string]http.HandlerFunc{"hang": hang, "down": down}[name]; ok {
		return server
	}
	some := map[string]*rsa.PrivateKey{}
	for id := range strings.FieldsSeq(name) {
		id, _, swapped := strings.Cut(id, "=new")
		if some[id] = oldKey(); swapped || id == "new" {
			some[id] = newKey()
		}
	}
	return publish(some)
}

func fresh(cacheControl string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", cacheControl)
		_, _ = w.Write(keySetJSON(map[string]*rsa.PrivateKey{"old": oldKey()}))
	}
}

func TestKeysAreFetchedOnceForAllWhenTheyAreNeeded(t *testing.T) {
	t.Parallel()
	headers := tokens()
	all := filetest.YAML[[]course](t, "testdata", "fetches.yaml")
	for _, test := range all {
		t.Run(test.What, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				now := &clock{}
				verifier, keys := newFetchingVerifier(t, nil, now)
				for i, step := range test.Steps {
					want, known := map[string]error{"accepted": nil, "invalid": auth.ErrInvalid, "unchecked": serve.ErrKeysUnavailable}[step.Is]
					require.True(t, known)
					now.Advance(step.After)
					if step.Server != "" {
						keys.become(serving(step.Server))
					} else if step.Fresh != nil {
						keys.become(fresh(*step.Fresh))
					}
					began, ask := time.Now(), cmp.Or(step.Callers, callers)
					answers := make(chan error, ask)
					for range ask {
						go func() { answers <- verifier.Verify(t.Context(), headers[step.Token]) }()
					}
					for range ask {
						require.ErrorIs(t, <-answers, want, "step %d", i)
					}
					require.Equal(t, step.Took, time.Since(began), "step %d", i)
					synctest.Wait()
					require.Equal(t, step.Fetches, keys.fetches.Load(), "step %d", i)
				}
				<-time.After(3 * time.Second) // the bubble's time: a fetch that hangs has ended by then
			})
		})
	}
}

// Neither a caller that waits for the fetch ends it, nor one that was answered before it.
func TestACallerThatLeavesDoesNotEndTheFetchOfTheOthers(t *testing.T) {
	t.Parallel()
	headers := tokens()
	for name, first := range map[string]struct {
		token string
		want  error
	}{"that was answered": {"old", nil}, "that waits": {"new", serve.ErrKeysUnavailable}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				now := &clock{}
				verifier, keys := newFetchingVerifier(t, publishOld, now)
				require.NoError(t, verifier.Verify(t.Context(), headers["old"]))
				release := make(chan struct{})
				keys.become(func(w http.ResponseWriter, r *http.Request) {
					select {
					case <-release:
						publish(map[string]*rsa.PrivateKey{"new": newKey()})(w, r)
					case <-r.Context().Done():
					}
				})
				now.Advance(10 * time.Minute)
				ctx, leave := context.WithCancel(t.Context())
				var group sync.WaitGroup
				group.Go(func() {
					if err := verifier.Verify(ctx, headers[first.token]); !errors.Is(err, first.want) {
						t.Error(err)
					}
				})
				synctest.Wait()
				leave()
				group.Wait()
				close(release)
				require.NoError(t, verifier.Verify(t.Context(), headers["new"]))
				synctest.Wait()
				require.ErrorIs(t, verifier.Verify(t.Context(), headers["old"]), auth.ErrInvalid, "what the set no longer holds is forgotten")
				require.EqualValues(t, 2, keys.fetches.Load())
			})
		})
	}
}

func TestAnAnswerWithoutAUsableKeyIsAFailedFetch(t *testing.T) {
	t.Parallel()
	rsaKey := func(more, modulus, exponent string) string {
		return `{"keys":[{"kty":"RSA","kid":"old",` + more + `"n":"` + modulus + `","e":"` + exponent + `"}]}`
	}
	filetest.Each(t, map[string]string{
		"nothing":                   ``,
		"HTML":                      `<html>`,
		"an empty set":              `{"keys":[]}`,
		"an elliptic curve key":     `{"keys":[{"kty":"EC","kid":"old","crv":"P-256","x":"AQ","y":"AQ"}]}`,
		"a short modulus":           rsaKey("", strings.Repeat("_", 171), "AQAB"),
		"a huge modulus":            rsaKey("", strings.Repeat("_", 2000), "AQAB"),
		"an even exponent":          rsaKey("", strings.Repeat("_", 342), "Ag"),
		"a key for encryption":      rsaKey(`"use":"enc",`, strings.Repeat("_", 342), "AQAB"),
		"more than the limit holds": string(keySetJSON(map[string]*rsa.PrivateKey{"old": oldKey()})) + strings.Repeat(" ", 256<<10),
	}, func(t *testing.T, body string) {
		verifier := newVerifier(t, auth.ModeOIDC, serveKeys(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		require.ErrorIs(t, verifier.Verify(t.Context(), "Bearer "+signed(claimsWith(nil))), serve.ErrKeysUnavailable)
	})
	for name, key := range map[string]map[string]string{
		"another curve":            point("proxy", map[string]string{"crv": "P-384"}),
		"another type":             point("proxy", map[string]string{"kty": "RSA"}),
		"another algorithm":        point("proxy", map[string]string{"alg": "ES384"}),
		"another use":              point("proxy", map[string]string{"use": "enc"}),
		"no id":                    point("", nil),
		"a point not on the curve": point("proxy", map[string]string{"y": point("", nil)["x"]}),
		"a short coordinate":       point("proxy", map[string]string{"x": "AQ"}),
		"a padded coordinate":      point("proxy", map[string]string{"x": point("", nil)["x"] + "="}),
		"an RSA key":               {"kty": "RSA", "kid": "proxy", "use": "sig", "n": encoded(oldKey().N.Bytes()), "e": "AQAB"},
	} {
		t.Run("for assertions: "+name, func(t *testing.T) {
			t.Parallel()
			identity := newIdentity(t, serveKeys(t, down), serveKeys(t, publishPoints(key)))
			_, err := identity.Identify(t.Context(), proxyHeader(signedAssertion(nil)))
			require.ErrorIs(t, err, serve.ErrKeysUnavailable)
			require.ErrorContains(t, err, "no_usable_key")
		})
	}
}
