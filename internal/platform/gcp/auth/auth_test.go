package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
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
	audience = "https://worker.example.test/push"
	account  = "push@demo-project.iam.gserviceaccount.test"
)

var start = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

var oldKey, newKey, foreignKey = onceKey(), onceKey(), onceKey()

// onceKey returns a function that makes a key on its first call, which is slow.
func onceKey() func() *rsa.PrivateKey {
	return sync.OnceValue(func() *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return key
	})
}

// clock is a clock that a test moves.
type clock struct{ offset atomic.Int64 }

func (c *clock) Now() time.Time          { return start.Add(time.Duration(c.offset.Load())) }
func (c *clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }

// keyServer serves a key set that tests change.
type keyServer struct {
	*httptest.Server
	fetches atomic.Int64
	mu      sync.Mutex
	answer  http.HandlerFunc
}

func serveKeys(tb testing.TB, answer http.HandlerFunc) *keyServer {
	tb.Helper()
	s := &keyServer{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fetches.Add(1)
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	tb.Cleanup(s.Close)
	return s
}

func (s *keyServer) become(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func down(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

// publish returns a handler that serves the public keys, fresh for ten minutes.
func publish(keys map[string]*rsa.PrivateKey) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=600, must-revalidate")
		_, _ = w.Write(keySetJSON(keys))
	}
}

func keySetJSON(keys map[string]*rsa.PrivateKey) []byte {
	var list []map[string]string
	for kid, key := range keys {
		list = append(list, map[string]string{
			"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid,
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		})
	}
	body, err := json.Marshal(map[string]any{"keys": list})
	if err != nil {
		panic(err)
	}
	return body
}

// validClaims returns the claims of a valid push token. claimsWith returns them with changes; a nil value
// removes a claim.
func validClaims() jwt.MapClaims { return claimsWith(nil) }

func claimsWith(with jwt.MapClaims) jwt.MapClaims {
	return changed(jwt.MapClaims{
		"iss": "https://accounts.google.com", "aud": audience, "sub": "1234567890",
		"email": account, "email_verified": true,
		"iat": start.Unix(), "exp": start.Add(time.Hour).Unix(),
	}, with)
}

func changed(claims, with jwt.MapClaims) jwt.MapClaims {
	maps.Copy(claims, with)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

func sign(tb testing.TB, method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims) string {
	tb.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	signed, err := token.SignedString(key)
	require.NoError(tb, err)
	return signed
}

func signed(tb testing.TB, claims jwt.MapClaims) string {
	tb.Helper()
	return sign(tb, jwt.SigningMethodRS256, oldKey(), "old", claims)
}

// withHeader signs claims under a header of any form.
func withHeader(tb testing.TB, header string, claims jwt.MapClaims) string {
	tb.Helper()
	body, err := json.Marshal(claims)
	require.NoError(tb, err)
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(body)
	signature, err := jwt.SigningMethodRS256.Sign(text, oldKey())
	require.NoError(tb, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func replaceSignature(token, signature string) string {
	return token[:strings.LastIndex(token, ".")+1] + signature
}

func newVerifier(tb testing.TB, mode string, keys *keyServer, clock *clock) *auth.Verifier {
	tb.Helper()
	verifier, err := auth.New(auth.Config{
		Mode: mode, Audience: audience, ServiceAccount: account,
		KeysURL: keys.URL, Client: keys.Client(), Now: clock.Now,
	})
	require.NoError(tb, err)
	return verifier
}

func TestAConfigurationThatSkipsACheckIsRefused(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]auth.Config{
		"no mode":                             {Audience: audience, ServiceAccount: account},
		"a mode that does not exist":          {Mode: "OIDC", Audience: audience, ServiceAccount: account},
		"oidc without an audience":            {Mode: auth.ModeOIDC, ServiceAccount: account},
		"oidc with a blank audience":          {Mode: auth.ModeOIDC, Audience: " ", ServiceAccount: account},
		"oidc without an account":             {Mode: auth.ModeOIDC, Audience: audience},
		"iam without an audience":             {Mode: auth.ModeIAM, ServiceAccount: account},
		"iam without an account":              {Mode: auth.ModeIAM, Audience: audience},
		"an empty issuer":                     {Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account, Issuers: []string{""}},
		"keys over plain http":                {Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account, KeysURL: "http://keys.example.test/"},
		"keys from nowhere":                   {Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account, KeysURL: "keys.json"},
		"none where no emulator host is set":  {Mode: auth.ModeNone},
		"none on production with the rest on": {Mode: auth.ModeNone, Audience: audience, ServiceAccount: account},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := auth.New(config)
			require.Error(t, err)
		})
	}
}

func TestModeNoneAcceptsEverythingOnAnEmulator(t *testing.T) {
	t.Parallel()
	verifier, err := auth.New(auth.Config{Mode: auth.ModeNone, EmulatorHost: true})
	require.NoError(t, err)
	require.NoError(t, verifier.Verify(t.Context(), ""))
}

func TestGenuineTokensPass(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scheme string
		with   jwt.MapClaims
	}{
		"as Pub/Sub sends it":              {scheme: "Bearer "},
		"with the scheme in lower case":    {scheme: "bearer "},
		"with the other issuer spelling":   {scheme: "Bearer ", with: jwt.MapClaims{"iss": "accounts.google.com"}},
		"with a list of one audience":      {scheme: "Bearer ", with: jwt.MapClaims{"aud": []string{audience}}},
		"expired within the leeway":        {scheme: "Bearer ", with: jwt.MapClaims{"exp": start.Add(-29 * time.Second).Unix()}},
		"from a clock within the leeway":   {scheme: "Bearer ", with: jwt.MapClaims{"iat": start.Add(30 * time.Second).Unix()}},
		"valid since now":                  {scheme: "Bearer ", with: jwt.MapClaims{"nbf": start.Unix()}},
		"with an unknown claim":            {scheme: "Bearer ", with: jwt.MapClaims{"azp": "1234567890"}},
		"with two spaces after the scheme": {scheme: "Bearer  "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := serveKeys(t, publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
			verifier := newVerifier(t, auth.ModeOIDC, keys, &clock{})
			require.NoError(t, verifier.Verify(t.Context(), test.scheme+signed(t, claimsWith(test.with))))
		})
	}
}

func TestBadTokensAreRefused(t *testing.T) {
	t.Parallel()
	keys := serveKeys(t, publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
	verifier := newVerifier(t, auth.ModeOIDC, keys, &clock{})

	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	publicDER, err := x509.MarshalPKIXPublicKey(oldKey().Public())
	require.NoError(t, err)
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	whole := signed(t, validClaims())

	for name, test := range map[string]struct {
		header string
		want   error
	}{
		"no header":                 {"", auth.ErrMissing},
		"a scheme and nothing else": {"Bearer", auth.ErrMissing},
		"a scheme and a space":      {"Bearer ", auth.ErrMissing},
		"another scheme":            {"Basic dXNlcjpwYXNz", auth.ErrMissing},
		"a token without a scheme":  {whole, auth.ErrMissing},

		"garbage":                    {"Bearer garbage", auth.ErrInvalid},
		"two dots and nothing":       {"Bearer ..", auth.ErrInvalid},
		"garbage with two dots":      {"Bearer a.b.c", auth.ErrInvalid},
		"four parts":                 {"Bearer " + whole + ".x", auth.ErrInvalid},
		"two parts":                  {"Bearer " + whole[:strings.LastIndex(whole, ".")], auth.ErrInvalid},
		"a line end inside":          {"Bearer " + whole[:10] + "\n" + whole[10:], auth.ErrInvalid},
		"padding":                    {"Bearer " + whole + "==", auth.ErrInvalid},
		"two tokens":                 {"Bearer " + whole + " " + whole, auth.ErrInvalid},
		"more than 16 KiB":           {"Bearer " + strings.Repeat("a", 16<<10+1), auth.ErrInvalid},
		"claims that are null":       {"Bearer " + replaceClaims(whole, "null"), auth.ErrInvalid},
		"claims that are no object":  {"Bearer " + replaceClaims(whole, `[1]`), auth.ErrInvalid},
		"exp that is no number":      {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"exp": "soon"})), auth.ErrInvalid},
		"email_verified as a string": {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"email_verified": "true"})), auth.ErrInvalid},

		"algorithm none":                  {"Bearer " + sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "old", validClaims()), auth.ErrInvalid},
		"HS256 keyed with the public key": {"Bearer " + sign(t, jwt.SigningMethodHS256, publicPEM, "old", validClaims()), auth.ErrInvalid},
		"HS256 keyed with the modulus":    {"Bearer " + sign(t, jwt.SigningMethodHS256, oldKey().N.Bytes(), "old", validClaims()), auth.ErrInvalid},
		"RS512 by the right key":          {"Bearer " + sign(t, jwt.SigningMethodRS512, oldKey(), "old", validClaims()), auth.ErrInvalid},
		"PS256 by the right key":          {"Bearer " + sign(t, jwt.SigningMethodPS256, oldKey(), "old", validClaims()), auth.ErrInvalid},
		"ES256 with a short signature":    {"Bearer " + replaceSignature(sign(t, jwt.SigningMethodES256, ecKey, "old", validClaims()), "AQ"), auth.ErrInvalid},
		"a lower-case algorithm":          {"Bearer " + withHeader(t, `{"alg":"rs256","kid":"old"}`, validClaims()), auth.ErrInvalid},
		"no algorithm":                    {"Bearer " + withHeader(t, `{"kid":"old"}`, validClaims()), auth.ErrInvalid},
		"a critical extension":            {"Bearer " + withHeader(t, `{"alg":"RS256","kid":"old","crit":["exp"]}`, validClaims()), auth.ErrInvalid},
		"a key id that is no string":      {"Bearer " + withHeader(t, `{"alg":"RS256","kid":["old"]}`, validClaims()), auth.ErrInvalid},
		"no key id":                       {"Bearer " + sign(t, jwt.SigningMethodRS256, oldKey(), "", validClaims()), auth.ErrInvalid},
		"an unknown key id":               {"Bearer " + sign(t, jwt.SigningMethodRS256, oldKey(), "other", validClaims()), auth.ErrInvalid},
		"another key under a known id":    {"Bearer " + sign(t, jwt.SigningMethodRS256, foreignKey(), "old", validClaims()), auth.ErrInvalid},
		"an empty signature":              {"Bearer " + replaceSignature(whole, ""), auth.ErrInvalid},
		"a short signature":               {"Bearer " + replaceSignature(whole, "AQ"), auth.ErrInvalid},
		"a signature with stray bits":     {"Bearer " + strayBits(whole), auth.ErrInvalid},
		"a signature that was removed":    {"Bearer " + replaceSignature(whole, "SIGNATURE_REMOVED_BY_GOOGLE"), auth.ErrInvalid},
		"claims changed after signing":    {"Bearer " + replaceClaims(whole, `{"email":"`+account+`"}`), auth.ErrInvalid},

		"another issuer":         {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"iss": "https://accounts.example.test"})), auth.ErrInvalid},
		"no issuer":              {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"iss": nil})), auth.ErrInvalid},
		"another audience":       {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"aud": "https://other.example.test"})), auth.ErrInvalid},
		"a longer audience":      {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"aud": audience + "/x"})), auth.ErrInvalid},
		"no audience":            {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"aud": nil})), auth.ErrInvalid},
		"an empty audience":      {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"aud": ""})), auth.ErrInvalid},
		"an empty audience list": {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"aud": []string{}})), auth.ErrInvalid},
		"expired":                {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"exp": start.Add(-31 * time.Second).Unix()})), auth.ErrInvalid},
		"no expiry":              {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"exp": nil})), auth.ErrInvalid},
		"issued in the future":   {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"iat": start.Add(31 * time.Second).Unix()})), auth.ErrInvalid},
		"no issue time":          {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"iat": nil})), auth.ErrInvalid},
		"not valid yet":          {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"nbf": start.Add(31 * time.Second).Unix()})), auth.ErrInvalid},

		"another account":           {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"email": "other@demo-project.iam.gserviceaccount.test"})), auth.ErrForbidden},
		"no account":                {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"email": nil})), auth.ErrForbidden},
		"an unverified account":     {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"email_verified": false})), auth.ErrForbidden},
		"nothing about verified":    {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"email_verified": nil})), auth.ErrForbidden},
		"another account, forged":   {"Bearer " + sign(t, jwt.SigningMethodRS256, foreignKey(), "old", claimsWith(jwt.MapClaims{"email": "x@example.test"})), auth.ErrInvalid},
		"another account, outdated": {"Bearer " + signed(t, claimsWith(jwt.MapClaims{"email": "x@example.test", "exp": start.Add(-time.Hour).Unix()})), auth.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := verifier.Verify(t.Context(), test.header)
			require.ErrorIs(t, err, test.want)
			require.NotContains(t, err.Error(), "example.test", "an error repeats nothing of the token")
		})
	}
}

// strayBits changes unused bits in the last character of the signature. A lenient decoder reads
// the same signature.
func strayBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(token) - 1
	return token[:last] + alphabet[strings.IndexByte(alphabet, token[last])|1:][:1]
}

func replaceClaims(token, claims string) string {
	parts := strings.Split(token, ".")
	return parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + parts[2]
}

func TestBehindCloudRunOnlyTheClaimsAreLeftToCheck(t *testing.T) {
	t.Parallel()
	const removed = "SIGNATURE_REMOVED_BY_GOOGLE"
	keys := serveKeys(t, down)
	verifier := newVerifier(t, auth.ModeIAM, keys, &clock{})
	for name, test := range map[string]struct {
		token string
		want  error
	}{
		"a good token":                        {replaceSignature(signed(t, validClaims()), removed), nil},
		"an unchecked signature":              {signed(t, validClaims()), auth.ErrInvalid},
		"another audience":                    {replaceSignature(signed(t, claimsWith(jwt.MapClaims{"aud": "other"})), removed), auth.ErrInvalid},
		"another issuer":                      {replaceSignature(signed(t, claimsWith(jwt.MapClaims{"iss": "other"})), removed), auth.ErrInvalid},
		"expired":                             {replaceSignature(signed(t, claimsWith(jwt.MapClaims{"exp": 1})), removed), auth.ErrInvalid},
		"no expiry":                           {replaceSignature(signed(t, claimsWith(jwt.MapClaims{"exp": nil})), removed), auth.ErrInvalid},
		"no issue time":                       {replaceSignature(signed(t, claimsWith(jwt.MapClaims{"iat": nil})), removed), auth.ErrInvalid},
		"issued in the future":                {replaceSignature(signed(t, claimsWith(jwt.MapClaims{"iat": start.Add(time.Hour).Unix()})), removed), auth.ErrInvalid},
		"another account":                     {replaceSignature(signed(t, claimsWith(jwt.MapClaims{"email": "other"})), removed), auth.ErrForbidden},
		"an unverified account":               {replaceSignature(signed(t, claimsWith(jwt.MapClaims{"email_verified": false})), removed), auth.ErrForbidden},
		"another algorithm":                   {replaceSignature(sign(t, jwt.SigningMethodHS256, []byte("x"), "old", validClaims()), removed), auth.ErrInvalid},
		"garbage before the removed one":      {"a.b." + removed, auth.ErrInvalid},
		"nothing but the removed signature":   {"." + removed, auth.ErrInvalid},
		"a critical extension in the header":  {replaceSignature(withHeader(t, `{"alg":"RS256","crit":["b64"]}`, validClaims()), removed), auth.ErrInvalid},
		"the marker as a part of a signature": {signed(t, validClaims()) + removed, auth.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, verifier.Verify(t.Context(), "Bearer "+test.token), test.want)
		})
	}
	t.Cleanup(func() { require.Zero(t, keys.fetches.Load(), "no key is needed") })
}

func FuzzVerify(f *testing.F) {
	keys := serveKeys(f, publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
	verifier := newVerifier(f, auth.ModeOIDC, keys, &clock{})
	behindIAM := newVerifier(f, auth.ModeIAM, keys, &clock{})
	genuine := signed(f, validClaims())
	f.Add("Bearer " + genuine)
	f.Add("Bearer " + replaceSignature(genuine, "SIGNATURE_REMOVED_BY_GOOGLE"))
	f.Add("Bearer " + sign(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "old", validClaims()))
	f.Add("Bearer " + sign(f, jwt.SigningMethodHS256, []byte("x"), "old", validClaims()))
	f.Add("Bearer ..")
	f.Add("Basic x")
	f.Add("")
	f.Fuzz(func(t *testing.T, header string) {
		named := func(err error) {
			require.True(t, errors.Is(err, auth.ErrMissing) || errors.Is(err, auth.ErrInvalid) ||
				errors.Is(err, auth.ErrForbidden) || errors.Is(err, auth.ErrKeysUnavailable), "every error has a name")
		}
		err := verifier.Verify(t.Context(), header)
		if err == nil {
			require.Equal(t, genuine, strings.Trim(header[len("Bearer"):], " "), "only the one signed token passes")
		} else {
			named(err)
		}
		if err := behindIAM.Verify(t.Context(), header); err != nil {
			named(err)
		}
	})
}
