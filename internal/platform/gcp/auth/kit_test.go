package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/internal/platform/gcp/auth"
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
	return sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
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

func serveKeys(tb testing.TB, answer http.HandlerFunc) *httptest.Server {
	tb.Helper()
	server := httptest.NewServer(answer)
	tb.Cleanup(server.Close)
	return server
}

func down(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

func publish(keys map[string]*rsa.PrivateKey) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=600, must-revalidate")
		_, _ = w.Write(keySetJSON(keys))
	}
}

func publishOld(w http.ResponseWriter, r *http.Request) {
	publish(map[string]*rsa.PrivateKey{"old": oldKey()})(w, r)
}

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
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": kid, "x": encoded(public[1:33]), "y": encoded(public[33:]),
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
		"iss": "https://accounts.google.com", "aud": audience, "sub": "1234567890", "email": account, "email_verified": true,
		"iat": start.Unix(), "exp": start.Add(time.Hour).Unix(),
	}, with)
}

func personClaims(with jwt.MapClaims) jwt.MapClaims {
	return changed(claimsWith(jwt.MapClaims{"email": operator}), with)
}

func assertionClaims(with jwt.MapClaims) jwt.MapClaims {
	return changed(personClaims(jwt.MapClaims{
		"iss": "https://cloud.google.com/iap", "email_verified": nil, "exp": start.Add(10 * time.Minute).Unix(),
	}), with)
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

func signedAssertion(with jwt.MapClaims) string {
	return sign(jwt.SigningMethodES256, proxyKey(), "proxy", assertionClaims(with))
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

func newVerifier(tb testing.TB, mode string, keys *httptest.Server) *auth.Verifier {
	tb.Helper()
	verifier, err := auth.New(auth.Config{
		Mode: mode, Audience: audience, ServiceAccount: account, KeysURL: keys.URL, Client: keys.Client(), Now: (&clock{}).Now,
	})
	require.NoError(tb, err)
	return verifier
}

// newIdentity also lets in the push account, so that one table tries both readers of tokens.
func newIdentity(tb testing.TB, tokens, proxy *httptest.Server) *auth.Identity {
	tb.Helper()
	identity, err := auth.NewIdentity(auth.Config{
		Audience: audience, Allow: []string{operator, "Grace.Hopper@Example.test", account},
		KeysURL: tokens.URL, ProxyKeysURL: proxy.URL, Client: tokens.Client(), Now: (&clock{}).Now,
	})
	require.NoError(tb, err)
	return identity
}

func bearerHeader(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
func proxyHeader(token string) http.Header  { return http.Header{assertion: {token}} }
