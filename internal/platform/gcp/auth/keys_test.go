package auth_test

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
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
	"go.uber.org/goleak"

	"billhook/internal/filetest"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	audience  = "https://worker.example.test/push"
	account   = "push@demo-project.iam.gserviceaccount.test"
	operator  = "ada@example.test"
	assertion = "X-Goog-Iap-Jwt-Assertion"
	// removed is what Cloud Run puts in the place of a signature that it has checked.
	removed = "SIGNATURE_REMOVED_BY_GOOGLE"
	header  = `{"alg":"RS256","kid":"old"}`
)

var start = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// Each key is made when it is first needed, which is slow.
var (
	oldKey, newKey, foreignKey = onceRSA(), onceRSA(), onceRSA()
	proxyKey, foreignProxyKey  = onceCurve(), onceCurve()
)

func onceRSA() func() *rsa.PrivateKey {
	return sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
}

func onceCurve() func() *ecdsa.PrivateKey {
	return sync.OnceValue(func() *ecdsa.PrivateKey {
		return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func encoded(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

type clock struct{ offset atomic.Int64 }

func (c *clock) Now() time.Time          { return start.Add(time.Duration(c.offset.Load())) }
func (c *clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }

func down(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

const tenMinutes = "public, max-age=600, must-revalidate"

func publishOld(w http.ResponseWriter, r *http.Request) { serving("old", tenMinutes)(w, r) }

func keySetJSON(keys map[string]*rsa.PrivateKey) []byte {
	var list []map[string]string
	for kid, key := range keys {
		list = append(list, map[string]string{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid,
			"n": encoded(key.N.Bytes()), "e": encoded(big.NewInt(int64(key.E)).Bytes()),
		})
	}
	return must(json.Marshal(map[string]any{"keys": list}))
}

func point(kid string, change map[string]string) map[string]string {
	public := must(proxyKey().PublicKey.Bytes())
	key := map[string]string{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": kid, "x": encoded(public[1:33]),
		"y": encoded(public[33:]),
	}
	maps.Copy(key, change)
	return key
}

func publishPoints(keys ...map[string]string) http.HandlerFunc {
	body := must(json.Marshal(map[string]any{"keys": keys}))
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
}

// A nil value removes a claim.
func claimsWith(with jwt.MapClaims) jwt.MapClaims {
	return changed(jwt.MapClaims{
		"iss": "https://accounts.google.com", "aud": audience, "sub": "1234567890", "email": account,
		"email_verified": true,
		"iat":            start.Unix(), "exp": start.Add(time.Hour).Unix(),
	}, with)
}

func changed(claims, with jwt.MapClaims) jwt.MapClaims {
	maps.Copy(claims, with)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

func sign(method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims) string {
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	return must(token.SignedString(key))
}

func signed(claims jwt.MapClaims) string {
	return sign(jwt.SigningMethodRS256, oldKey(), "old", claims)
}

func signedText(method jwt.SigningMethod, header, claims string) string {
	var key crypto.Signer = oldKey()
	if method == jwt.SigningMethodES256 {
		key = proxyKey()
	}
	text := encoded([]byte(header)) + "." + encoded([]byte(claims))
	return text + "." + encoded(must(method.Sign(text, key)))
}

func claimsText(claims jwt.MapClaims, more string, without ...string) string {
	for _, name := range without {
		delete(claims, name)
	}
	return strings.TrimSuffix(string(must(json.Marshal(claims))), "}") + more + "}"
}

func replaceSignature(token, signature string) string {
	return token[:strings.LastIndex(token, ".")+1] + signature
}

func replaceClaims(token, claims string) string {
	parts := strings.Split(token, ".")
	return parts[0] + "." + encoded([]byte(claims)) + "." + parts[2]
}

// servers answers for the servers of keys, without a network, so that synctest knows when a fetch ends.
type servers struct{ tokens, proxy http.HandlerFunc }

func (s servers) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.URL.Host == "proxy.example.test" {
		s.proxy(w, r)
	} else {
		s.tokens(w, r)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// config also lets in the push account as a person, so that one table tries both readers of tokens.
func config(mode string, now *clock, tokens, proxy http.HandlerFunc) auth.Config {
	return auth.Config{
		Mode: mode, Audience: audience, ServiceAccount: account,
		Allow:   []string{operator, "Grace.Hopper@Example.test", account},
		KeysURL: "https://keys.example.test/", ProxyKeysURL: "https://proxy.example.test/",
		Client: &http.Client{Transport: servers{tokens, proxy}}, Now: now.Now,
	}
}

func newVerifier(tb testing.TB, mode string, keys http.HandlerFunc) *auth.Verifier {
	tb.Helper()
	return filetest.Must(auth.New(config(mode, &clock{}, keys, nil)))(tb)
}

func newIdentity(tb testing.TB, tokens, proxy http.HandlerFunc) *auth.Identity {
	tb.Helper()
	return filetest.Must(auth.NewIdentity(config("", &clock{}, tokens, proxy)))(tb)
}

func bearerHeader(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
func proxyHeader(token string) http.Header  { return http.Header{assertion: {token}} }

type fetcher struct {
	fetches atomic.Int64
	answer  atomic.Pointer[http.HandlerFunc]
}

func (f *fetcher) become(answer http.HandlerFunc) { f.answer.Store(&answer) }

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func newFetchingVerifier(tb testing.TB, answer http.HandlerFunc, now *clock) (*auth.Verifier, *fetcher) {
	tb.Helper()
	keys := &fetcher{}
	keys.become(answer)
	return filetest.Must(auth.New(config(auth.ModeOIDC, now, func(w http.ResponseWriter, r *http.Request) {
		keys.fetches.Add(1)
		(*keys.answer.Load())(w, r)
	}, nil)))(tb), keys
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

// scenario is a row of testdata/fetches.yaml, which says what each member is.
type scenario struct {
	What  string
	Steps []struct {
		After, Took       time.Duration
		Server, Token, Is string
		Fresh             *string
		Fetches           int64
		Callers           int // 20 if the row has none
	}
}

func serving(name, cacheControl string) http.HandlerFunc {
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
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", cacheControl)
		_, _ = w.Write(keySetJSON(some))
	}
}

func TestKeysAreFetchedOnceForAllCallers(t *testing.T) {
	t.Parallel()
	headers := tokens()
	for _, test := range filetest.YAML[[]scenario](t, "testdata", "fetches.yaml") {
		t.Run(test.What, func(t *testing.T) {
			t.Parallel()
			filetest.Bubble(t, func(t *testing.T) {
				now := &clock{}
				verifier, keys := newFetchingVerifier(t, nil, now)
				for i, step := range test.Steps {
					want, known := map[string]error{
						"accepted": nil, "invalid": auth.ErrInvalid, "unchecked": serve.ErrKeysUnavailable,
					}[step.Is]
					require.True(t, known)
					now.Advance(step.After)
					if step.Fresh != nil {
						keys.become(serving("old", *step.Fresh))
					} else if step.Server != "" {
						keys.become(serving(step.Server, tenMinutes))
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

// Neither the end of a caller that waits for the fetch ends it, nor that of one that has its answer.
func TestACancelledCallerDoesNotEndTheFetchOfTheOthers(t *testing.T) {
	t.Parallel()
	headers := tokens()
	type caller struct {
		token string
		want  error
	}
	filetest.Each(t, map[string]caller{
		"with its answer": {"old", nil}, "that waits": {"new", serve.ErrKeysUnavailable},
	}, func(t *testing.T, first caller) {
		filetest.Bubble(t, func(t *testing.T) {
			now := &clock{}
			verifier, keys := newFetchingVerifier(t, publishOld, now)
			require.NoError(t, verifier.Verify(t.Context(), headers["old"]))
			release := make(chan struct{})
			keys.become(func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-release:
					serving("new", tenMinutes)(w, r)
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
			require.ErrorIs(t, verifier.Verify(t.Context(), headers["old"]), auth.ErrInvalid,
				"a key that the set no longer has is refused")
			require.EqualValues(t, 2, keys.fetches.Load())
		})
	})
}

func TestAnswerWithoutAUsableKeyIsAFailedFetch(t *testing.T) {
	t.Parallel()
	rsaKey := func(more, modulus, exponent string) string {
		return `{"keys":[{"kty":"RSA","kid":"old",` + more + `"n":"` + modulus + `","e":"` + exponent + `"}]}`
	}
	filetest.Each(t, map[string]string{
		"nothing":               ``,
		"HTML":                  `<html>`,
		"an empty set":          `{"keys":[]}`,
		"an elliptic curve key": `{"keys":[{"kty":"EC","kid":"old","crv":"P-256","x":"AQ","y":"AQ"}]}`,
		"a short modulus":       rsaKey("", strings.Repeat("_", 171), "AQAB"),
		"a huge modulus":        rsaKey("", strings.Repeat("_", 2000), "AQAB"),
		"an even exponent":      rsaKey("", strings.Repeat("_", 342), "Ag"),
		"a key for encryption":  rsaKey(`"use":"enc",`, strings.Repeat("_", 342), "AQAB"),
		"more than the limit holds": string(keySetJSON(map[string]*rsa.PrivateKey{"old": oldKey()})) +
			strings.Repeat(" ", 256<<10),
	}, func(t *testing.T, body string) {
		verifier := newVerifier(t, auth.ModeOIDC, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, body)
		})
		require.ErrorIs(t, verifier.Verify(t.Context(), "Bearer "+signed(claimsWith(nil))),
			serve.ErrKeysUnavailable)
	})
	filetest.Each(t, map[string]map[string]string{
		"another curve":     point("proxy", map[string]string{"crv": "P-384"}),
		"another type":      point("proxy", map[string]string{"kty": "RSA"}),
		"another algorithm": point("proxy", map[string]string{"alg": "ES384"}),
		"another use":       point("proxy", map[string]string{"use": "enc"}),
		"no id":             point("", nil),
		"a point not on the curve": point("proxy", map[string]string{
			"y": point("", nil)["x"],
		}),
		"a short coordinate": point("proxy", map[string]string{"x": "AQ"}),
		"a padded coordinate": point("proxy", map[string]string{
			"x": point("", nil)["x"] + "=",
		}),
		"an RSA key": {"kty": "RSA", "kid": "proxy", "use": "sig", "n": encoded(oldKey().N.Bytes()), "e": "AQAB"},
	}, func(t *testing.T, key map[string]string) {
		identity := newIdentity(t, down, publishPoints(key))
		_, err := identity.Identify(t.Context(), proxyHeader(signedAssertion(nil)))
		require.ErrorIs(t, err, serve.ErrKeysUnavailable)
		require.ErrorContains(t, err, "no_usable_key")
	})
}
