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
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/auth"
)

const (
	operator  = "ada@example.test"
	assertion = "X-Goog-Iap-Jwt-Assertion"
)

var proxyKey, foreignProxyKey = onceCurve(), onceCurve()

func onceCurve() func() *ecdsa.PrivateKey {
	return sync.OnceValue(func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		return key
	})
}

// point returns the web key of a curve's point. change replaces members of it.
func point(tb testing.TB, kid string, change map[string]string) map[string]string {
	tb.Helper()
	public, err := proxyKey().PublicKey.Bytes()
	require.NoError(tb, err)
	key := map[string]string{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": kid,
		"x": base64.RawURLEncoding.EncodeToString(public[1:33]), "y": base64.RawURLEncoding.EncodeToString(public[33:]),
	}
	maps.Copy(key, change)
	return key
}

func publishPoints(tb testing.TB, keys ...map[string]string) http.HandlerFunc {
	tb.Helper()
	body, err := json.Marshal(map[string]any{"keys": keys})
	require.NoError(tb, err)
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
}

func newIdentity(tb testing.TB, tokens, proxy *keyServer, now *clock) *auth.Identity {
	tb.Helper()
	identity, err := auth.NewIdentity(auth.IdentityConfig{
		Audience: audience, Allow: []string{operator, "Grace.Hopper@Example.test"},
		KeysURL: tokens.URL, ProxyKeysURL: proxy.URL, Client: tokens.Client(), Now: now.Now,
	})
	require.NoError(tb, err)
	return identity
}

// personClaims returns the claims of an operator's ID token.
func personClaims(with jwt.MapClaims) jwt.MapClaims {
	return changed(claimsWith(jwt.MapClaims{"email": operator}), with)
}

// assertionClaims returns the claims of the proxy's assertion about an operator.
func assertionClaims(with jwt.MapClaims) jwt.MapClaims {
	return changed(personClaims(jwt.MapClaims{"iss": "https://cloud.google.com/iap", "email_verified": nil, "exp": start.Add(10 * time.Minute).Unix()}), with)
}

func signedAssertion(tb testing.TB, with jwt.MapClaims) string {
	tb.Helper()
	return sign(tb, jwt.SigningMethodES256, proxyKey(), "proxy", assertionClaims(with))
}

func bearerHeader(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
func proxyHeader(token string) http.Header  { return http.Header{assertion: {token}} }

func TestIdentifyAcceptsTheListedPeopleAlone(t *testing.T) {
	t.Parallel()
	tokens := serveKeys(t, publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
	proxy := serveKeys(t, publishPoints(t, point(t, "proxy", nil)))
	identity := newIdentity(t, tokens, proxy, &clock{})

	curveDER, err := x509.MarshalPKIXPublicKey(proxyKey().Public())
	require.NoError(t, err)
	curvePEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: curveDER})
	rsaDER, err := x509.MarshalPKIXPublicKey(oldKey().Public())
	require.NoError(t, err)
	rsaPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: rsaDER})
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	validClaims := signed(t, personClaims(nil))
	short := func(signature string) http.Header {
		return proxyHeader(replaceSignature(signedAssertion(t, nil), signature))
	}

	for name, test := range map[string]struct {
		header http.Header
		who    string
		want   error
	}{
		"an ID token":                               {bearerHeader(validClaims), operator, nil},
		"an ID token with the other issuer":         {bearerHeader(signed(t, personClaims(jwt.MapClaims{"iss": "accounts.google.com"}))), operator, nil},
		"an address with capitals":                  {bearerHeader(signed(t, personClaims(jwt.MapClaims{"email": "ADA@Example.test"}))), operator, nil},
		"an address that was allowed with capitals": {bearerHeader(signed(t, personClaims(jwt.MapClaims{"email": "grace.hopper@example.test"}))), "grace.hopper@example.test", nil},
		"an assertion":                              {proxyHeader(signedAssertion(t, nil)), operator, nil},
		"an assertion, and a bearer of the program": {http.Header{assertion: {signedAssertion(t, nil)}, "Authorization": {"Bearer x"}}, operator, nil},

		"nothing":                           {http.Header{}, "", auth.ErrMissing},
		"another scheme":                    {http.Header{"Authorization": {"Basic YTpi"}}, "", auth.ErrMissing},
		"the unsigned header of the proxy":  {http.Header{"X-Goog-Authenticated-User-Email": {"accounts.google.com:" + operator}}, "", auth.ErrMissing},
		"two tokens":                        {http.Header{"Authorization": {"Bearer " + validClaims, "Bearer " + validClaims}}, "", auth.ErrInvalid},
		"two assertions":                    {http.Header{assertion: {signedAssertion(t, nil), signedAssertion(t, nil)}}, "", auth.ErrInvalid},
		"an empty assertion":                {proxyHeader(""), "", auth.ErrInvalid},
		"an empty assertion before a token": {http.Header{assertion: {""}, "Authorization": {"Bearer " + validClaims}}, "", auth.ErrInvalid},
		"a bad assertion before a token":    {http.Header{assertion: {"x.y.z"}, "Authorization": {"Bearer " + validClaims}}, "", auth.ErrInvalid},
		"an assertion with a line end":      {proxyHeader(signedAssertion(t, nil)[:10] + "\n" + signedAssertion(t, nil)[10:]), "", auth.ErrInvalid},
		"an assertion of 17 KiB":            {proxyHeader(strings.Repeat("a", 17<<10)), "", auth.ErrInvalid},

		"another audience":               {bearerHeader(signed(t, personClaims(jwt.MapClaims{"aud": "other"}))), "", auth.ErrInvalid},
		"no audience":                    {bearerHeader(signed(t, personClaims(jwt.MapClaims{"aud": nil}))), "", auth.ErrInvalid},
		"expired":                        {bearerHeader(signed(t, personClaims(jwt.MapClaims{"exp": start.Add(-31 * time.Second).Unix()}))), "", auth.ErrInvalid},
		"no expiry":                      {bearerHeader(signed(t, personClaims(jwt.MapClaims{"exp": nil}))), "", auth.ErrInvalid},
		"issued in the future":           {bearerHeader(signed(t, personClaims(jwt.MapClaims{"iat": start.Add(31 * time.Second).Unix()}))), "", auth.ErrInvalid},
		"no issue time":                  {bearerHeader(signed(t, personClaims(jwt.MapClaims{"iat": nil}))), "", auth.ErrInvalid},
		"another issuer":                 {bearerHeader(signed(t, personClaims(jwt.MapClaims{"iss": "https://accounts.example.test"}))), "", auth.ErrInvalid},
		"the proxy's issuer":             {bearerHeader(signed(t, personClaims(jwt.MapClaims{"iss": "https://cloud.google.com/iap"}))), "", auth.ErrInvalid},
		"algorithm none":                 {bearerHeader(sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "old", personClaims(nil))), "", auth.ErrInvalid},
		"HS256 keyed with the RSA key":   {bearerHeader(sign(t, jwt.SigningMethodHS256, rsaPEM, "old", personClaims(nil))), "", auth.ErrInvalid},
		"ES256 as a bearer":              {bearerHeader(sign(t, jwt.SigningMethodES256, proxyKey(), "old", personClaims(nil))), "", auth.ErrInvalid},
		"the assertion as a bearer":      {bearerHeader(signedAssertion(t, nil)), "", auth.ErrInvalid},
		"a removed signature":            {bearerHeader(replaceSignature(validClaims, "SIGNATURE_REMOVED_BY_GOOGLE")), "", auth.ErrInvalid},
		"another key":                    {bearerHeader(sign(t, jwt.SigningMethodRS256, foreignKey(), "old", personClaims(nil))), "", auth.ErrInvalid},
		"a critical extension":           {bearerHeader(withHeader(t, `{"alg":"RS256","kid":"old","crit":["exp"]}`, personClaims(nil))), "", auth.ErrInvalid},
		"a person who is not listed":     {bearerHeader(signed(t, personClaims(jwt.MapClaims{"email": "eve@example.test"}))), "", auth.ErrForbidden},
		"an allowed address, and more":   {bearerHeader(signed(t, personClaims(jwt.MapClaims{"email": operator + ".evil.test"}))), "", auth.ErrForbidden},
		"an address that looks the same": {bearerHeader(signed(t, personClaims(jwt.MapClaims{"email": "grace.hopper@example.te\u017ft"}))), "", auth.ErrForbidden},
		"an address that is not proven":  {bearerHeader(signed(t, personClaims(jwt.MapClaims{"email_verified": false}))), "", auth.ErrForbidden},
		"nothing said of that":           {bearerHeader(signed(t, personClaims(jwt.MapClaims{"email_verified": nil}))), "", auth.ErrForbidden},
		"no address":                     {bearerHeader(signed(t, personClaims(jwt.MapClaims{"email": nil}))), "", auth.ErrForbidden},

		"an assertion for another":                {proxyHeader(signedAssertion(t, jwt.MapClaims{"aud": "/projects/1/other"})), "", auth.ErrInvalid},
		"an assertion that has expired":           {proxyHeader(signedAssertion(t, jwt.MapClaims{"exp": start.Add(-31 * time.Second).Unix()})), "", auth.ErrInvalid},
		"an assertion without an issue time":      {proxyHeader(signedAssertion(t, jwt.MapClaims{"iat": nil})), "", auth.ErrInvalid},
		"an assertion that lives too long":        {proxyHeader(signedAssertion(t, jwt.MapClaims{"exp": start.Add(12 * time.Minute).Unix()})), "", auth.ErrInvalid},
		"an assertion of another issuer":          {proxyHeader(signedAssertion(t, jwt.MapClaims{"iss": "https://accounts.google.com"})), "", auth.ErrInvalid},
		"an assertion by another key":             {proxyHeader(sign(t, jwt.SigningMethodES256, foreignProxyKey(), "proxy", assertionClaims(nil))), "", auth.ErrInvalid},
		"an assertion under an unknown key id":    {proxyHeader(sign(t, jwt.SigningMethodES256, proxyKey(), "other", assertionClaims(nil))), "", auth.ErrInvalid},
		"an assertion with algorithm none":        {proxyHeader(sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "proxy", assertionClaims(nil))), "", auth.ErrInvalid},
		"an assertion in HS256 by the public key": {proxyHeader(sign(t, jwt.SigningMethodHS256, curvePEM, "proxy", assertionClaims(nil))), "", auth.ErrInvalid},
		"an assertion in HS256 by its encoding":   {proxyHeader(sign(t, jwt.SigningMethodHS256, curveDER, "proxy", assertionClaims(nil))), "", auth.ErrInvalid},
		"an assertion in RS256":                   {proxyHeader(sign(t, jwt.SigningMethodRS256, oldKey(), "proxy", assertionClaims(nil))), "", auth.ErrInvalid},
		"an assertion in ES384":                   {proxyHeader(sign(t, jwt.SigningMethodES384, p384, "proxy", assertionClaims(nil))), "", auth.ErrInvalid},
		"an ID token as an assertion":             {proxyHeader(validClaims), "", auth.ErrInvalid},
		"a short ES256 signature":                 {short("AQ"), "", auth.ErrInvalid},
		"an empty ES256 signature":                {short(""), "", auth.ErrInvalid},
		"an ES256 signature of zeros":             {short(base64.RawURLEncoding.EncodeToString(make([]byte, 64))), "", auth.ErrInvalid},
		"a long ES256 signature":                  {short(base64.RawURLEncoding.EncodeToString(make([]byte, 65))), "", auth.ErrInvalid},
		"an assertion about an unlisted person":   {proxyHeader(signedAssertion(t, jwt.MapClaims{"email": "eve@example.test"})), "", auth.ErrForbidden},
		"an assertion without an address":         {proxyHeader(signedAssertion(t, jwt.MapClaims{"email": nil})), "", auth.ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			who, err := identity.Identify(t.Context(), test.header)
			require.Equal(t, test.who, who)
			require.ErrorIs(t, err, test.want)
			if err != nil {
				require.NotContains(t, err.Error(), "example.test", "an error repeats nothing of the token")
			}
		})
	}
}

func TestWithoutTheProxysKeysItsAssertionsFailAndIDTokensPass(t *testing.T) {
	t.Parallel()
	tokens, proxy := serveKeys(t, publish(map[string]*rsa.PrivateKey{"old": oldKey()})), serveKeys(t, down)
	identity := newIdentity(t, tokens, proxy, &clock{})
	_, err := identity.Identify(t.Context(), proxyHeader(signedAssertion(t, nil)))
	require.ErrorIs(t, err, auth.ErrKeysUnavailable)
	require.ErrorContains(t, err, "status_502")
	_, err = identity.Identify(t.Context(), bearerHeader(signed(t, personClaims(nil))))
	require.NoError(t, err, "the one does not wait for the other's keys")
}

func TestKeysThatCannotVerifyAnAssertionAreLeftOut(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]map[string]string{
		"another curve":            point(t, "proxy", map[string]string{"crv": "P-384"}),
		"another type":             point(t, "proxy", map[string]string{"kty": "RSA"}),
		"another algorithm":        point(t, "proxy", map[string]string{"alg": "ES384"}),
		"another use":              point(t, "proxy", map[string]string{"use": "enc"}),
		"no id":                    point(t, "", nil),
		"a point not on the curve": point(t, "proxy", map[string]string{"y": point(t, "", nil)["x"]}),
		"a short coordinate":       point(t, "proxy", map[string]string{"x": "AQ"}),
		"a padded coordinate":      point(t, "proxy", map[string]string{"x": point(t, "", nil)["x"] + "="}),
		"an RSA key":               {"kty": "RSA", "kid": "proxy", "use": "sig", "n": base64.RawURLEncoding.EncodeToString(oldKey().N.Bytes()), "e": "AQAB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens, proxy := serveKeys(t, down), serveKeys(t, publishPoints(t, key))
			_, err := newIdentity(t, tokens, proxy, &clock{}).Identify(t.Context(), proxyHeader(signedAssertion(t, nil)))
			require.ErrorIs(t, err, auth.ErrKeysUnavailable)
			require.ErrorContains(t, err, "no_usable_key")
		})
	}
}

func TestAnIdentityConfigurationThatSkipsACheckIsRefused(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]auth.IdentityConfig{
		"no audience":              {Allow: []string{operator}},
		"a blank audience":         {Audience: " ", Allow: []string{operator}},
		"nobody":                   {Audience: audience},
		"an empty address":         {Audience: audience, Allow: []string{operator, ""}},
		"a domain":                 {Audience: audience, Allow: []string{"example.test"}},
		"a pattern":                {Audience: audience, Allow: []string{"*@example.test"}},
		"an address not ASCII":     {Audience: audience, Allow: []string{"\u212aay@example.test"}},
		"keys over plain http":     {Audience: audience, Allow: []string{operator}, KeysURL: "http://keys.example.test/"},
		"a proxy's, over the same": {Audience: audience, Allow: []string{operator}, ProxyKeysURL: "http://keys.example.test/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := auth.NewIdentity(config)
			require.Error(t, err)
		})
	}
}

func FuzzAssertions(f *testing.F) {
	proxy := serveKeys(f, publishPoints(f, point(f, "proxy", nil)))
	identity := newIdentity(f, proxy, proxy, &clock{})
	validClaims := signedAssertion(f, nil)
	f.Add(replaceSignature(validClaims, "AQ"))
	f.Add(strings.ToUpper(validClaims))
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if who, err := identity.Identify(t.Context(), proxyHeader(token)); err == nil && token != validClaims {
			t.Fatalf("%s was let in by another token", who)
		}
	})
}
