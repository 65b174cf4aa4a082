package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/serve"
)

// person is who is identified by a request's headers, or why nobody is.
type person struct {
	header http.Header
	who    string
	want   error
}

func (p person) require(t *testing.T, identity *auth.Identity) {
	t.Helper()
	who, err := identity.Identify(t.Context(), p.header)
	require.Equal(t, p.who, who)
	require.ErrorIs(t, err, p.want)
	if err != nil {
		require.NotContains(t, err.Error(), "example.test", "an error repeats nothing of the token")
	}
}

// auth_test.go tests how a token of Google's is read for people.
func TestIdentifyAcceptsOnlyTheListedPeople(t *testing.T) {
	t.Parallel()
	identity := newIdentity(t, publishOld, publishPoints(point("proxy", nil)))
	curvePEM := publicPEM(proxyKey())
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	ada, proven := signed(personClaims(nil)), signedAssertion(nil)
	token := func(email string) http.Header {
		return bearerHeader(signed(personClaims(jwt.MapClaims{"email": email})))
	}
	by := func(method jwt.SigningMethod, key any, kid string) http.Header {
		return proxyHeader(sign(method, key, kid, assertionClaims(nil)))
	}
	short := func(signature string) http.Header { return proxyHeader(replaceSignature(proven, signature)) }

	const grace = "grace.hopper@example.test"
	both := func(asserted, bearer string) http.Header {
		return http.Header{assertion: {asserted}, "Authorization": {"Bearer " + bearer}}
	}
	unsigned := http.Header{"X-Goog-Authenticated-User-Email": {"accounts.google.com:" + operator}}
	twice := http.Header{"Authorization": {"Bearer " + ada, "Bearer " + ada}}
	none := by(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "proxy")
	filetest.Each(t, map[string]person{
		"an ID token":                {bearerHeader(ada), operator, nil},
		"an address with capitals":   {token("ADA@Example.test"), operator, nil},
		"one allowed with capitals":  {token(grace), grace, nil},
		"an assertion":               {proxyHeader(proven), operator, nil},
		"an assertion with a bearer": {both(proven, "x"), operator, nil},

		"nothing":                     {http.Header{}, "", serve.ErrNoToken},
		"the proxy's unsigned header": {unsigned, "", serve.ErrNoToken},
		"a person who is not listed":  {token("eve@example.test"), "", serve.ErrNotAllowed},
		"an address that looks alike": {token("grace.hopper@example.te\u017ft"), "", serve.ErrNotAllowed},
		"two tokens":                  {twice, "", auth.ErrInvalid},
		"two assertions":              {http.Header{assertion: {proven, proven}}, "", auth.ErrInvalid},
		"an empty assertion":          {proxyHeader(""), "", auth.ErrInvalid},
		"an empty one with a token":   {both("", ada), "", auth.ErrInvalid},
		"a bad one with a token":      {both("x.y.z", ada), "", auth.ErrInvalid},
		"an assertion with a line end": {
			proxyHeader(proven[:10] + "\n" + proven[10:]), "", auth.ErrInvalid,
		},
		"an assertion of 17 KiB":    {proxyHeader(strings.Repeat("a", 17<<10)), "", auth.ErrInvalid},
		"the assertion as a bearer": {bearerHeader(proven), "", auth.ErrInvalid},
		"another key":               {by(jwt.SigningMethodES256, foreignProxyKey(), "proxy"), "", auth.ErrInvalid},
		"an unknown key id":         {by(jwt.SigningMethodES256, proxyKey(), "other"), "", auth.ErrInvalid},
		"algorithm none":            {none, "", auth.ErrInvalid},
		"HS256 by the public key":   {by(jwt.SigningMethodHS256, curvePEM, "proxy"), "", auth.ErrInvalid},
		"an assertion in RS256":     {by(jwt.SigningMethodRS256, oldKey(), "proxy"), "", auth.ErrInvalid},
		"an assertion in ES384":     {by(jwt.SigningMethodES384, p384, "proxy"), "", auth.ErrInvalid},
		"an ID token as an assertion": {
			proxyHeader(ada), "", auth.ErrInvalid,
		},
		"a short ES256 signature":     {short("AQ"), "", auth.ErrInvalid},
		"an empty ES256 signature":    {short(""), "", auth.ErrInvalid},
		"an ES256 signature of zeros": {short(encoded(make([]byte, 64))), "", auth.ErrInvalid},
		"a long ES256 signature":      {short(encoded(make([]byte, 65))), "", auth.ErrInvalid},
	}, func(t *testing.T, test person) { test.require(t, identity) })
}

// The proxy in front of a service on Cloud Run has its own list of people.
func TestOnlyTheProxyIdentifiesPeopleWithoutAList(t *testing.T) {
	t.Parallel()
	const resource = "/projects/123456789012/locations/europe-west3/services/billhook-ops"
	behind := config("", &clock{}, publishOld, publishPoints(point("proxy", nil)))
	behind.Audience, behind.Allow = resource, nil
	identity := filetest.Must(auth.NewIdentity(behind))(t)
	proven := func(audience, email string) http.Header {
		return proxyHeader(signedAssertion(jwt.MapClaims{"aud": audience, "email": email}))
	}
	unsigned := http.Header{"X-Goog-Authenticated-User-Email": {operator}}
	filetest.Each(t, map[string]person{
		"anybody":                 {proven(resource, "Eve@example.test"), "eve@example.test", nil},
		"a group":                 {proven(resource, "group:all"), "", serve.ErrNotAllowed},
		"one for another service": {proven(resource+"2", operator), "", auth.ErrInvalid},
		"an ID token": {
			bearerHeader(signed(personClaims(jwt.MapClaims{"aud": resource}))), "", serve.ErrNoToken,
		},
		"the unsigned header": {unsigned, "", serve.ErrNoToken},
	}, func(t *testing.T, test person) { test.require(t, identity) })
}

func TestAccountIsIdentifiedForTheAudienceOfItsToken(t *testing.T) {
	t.Parallel()
	const queue = "https://hooks.example/queues/a/messages"
	accountsBy := func(keys http.HandlerFunc) *auth.Accounts {
		return filetest.Must(auth.NewAccounts(config("", &clock{}, keys, nil)))(t)
	}
	accounts := accountsBy(publishOld)
	token := func(with jwt.MapClaims) string {
		return "Bearer " + signed(changed(personClaims(jwt.MapClaims{"aud": queue}), with))
	}
	for name, test := range map[string]struct{ audience, authorization, email, invalid string }{
		"for this address": {queue, token(nil), operator, ""},
		"for several addresses": {
			queue, token(jwt.MapClaims{"aud": []string{"https://hooks.example/queues/b/messages", queue}}),
			operator, "",
		},
		"for another address":    {"https://hooks.example/queues/b/messages", token(nil), "", "audience"},
		"for its beginning":      {"https://hooks.example", token(nil), "", "audience"},
		"for no address":         {"", token(nil), "", "the audience is empty"},
		"of an unproven address": {queue, token(jwt.MapClaims{"email_verified": false}), "", "email_not_verified"},
		"of no address":          {queue, token(jwt.MapClaims{"email": "nobody"}), "", "email"},
		"no token":               {queue, "", "", "no bearer token"},
	} {
		email, invalid, err := accounts.Account(t.Context(), test.audience, test.authorization)
		require.NoError(t, err, name)
		require.Equal(t, [2]string{test.email, test.invalid}, [2]string{email, invalid}, name)
	}
	_, _, err := accountsBy(down).Account(t.Context(), queue, token(nil))
	require.ErrorIs(t, err, serve.ErrKeysUnavailable)
	_, err = auth.NewAccounts(auth.Config{KeysURL: "http://keys.example"})
	require.Error(t, err)
}

func personClaims(with jwt.MapClaims) jwt.MapClaims {
	return changed(claimsWith(jwt.MapClaims{"email": operator}), with)
}

func assertionClaims(with jwt.MapClaims) jwt.MapClaims {
	return changed(personClaims(jwt.MapClaims{
		"iss": "https://cloud.google.com/iap", "email_verified": nil, "exp": start.Add(10 * time.Minute).Unix(),
	}), with)
}

func signedAssertion(with jwt.MapClaims) string {
	return sign(jwt.SigningMethodES256, proxyKey(), "proxy", assertionClaims(with))
}
