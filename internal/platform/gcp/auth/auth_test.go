package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/serve"
)

func TestAConfigurationThatSkipsACheckIsRefused(t *testing.T) {
	t.Parallel()
	push := func(change func(*auth.Config)) error {
		config := auth.Config{Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account}
		change(&config)
		_, err := auth.New(config)
		return err
	}
	people := func(change func(*auth.IdentityConfig)) error {
		config := auth.IdentityConfig{Audience: audience, Allow: []string{operator}}
		change(&config)
		_, err := auth.NewIdentity(config)
		return err
	}
	allowed := func(email string) error {
		return people(func(c *auth.IdentityConfig) { c.Allow = append(c.Allow, email) })
	}
	require.NoError(t, push(func(*auth.Config) {}))
	require.NoError(t, people(func(*auth.IdentityConfig) {}))
	for name, err := range map[string]error{
		"no mode":                            push(func(c *auth.Config) { c.Mode = "" }),
		"a mode that does not exist":         push(func(c *auth.Config) { c.Mode = "OIDC" }),
		"oidc without an audience":           push(func(c *auth.Config) { c.Audience = "" }),
		"oidc with a blank audience":         push(func(c *auth.Config) { c.Audience = " " }),
		"oidc without an account":            push(func(c *auth.Config) { c.ServiceAccount = "" }),
		"iam without an audience":            push(func(c *auth.Config) { c.Mode, c.Audience = auth.ModeIAM, "" }),
		"iam without an account":             push(func(c *auth.Config) { c.Mode, c.ServiceAccount = auth.ModeIAM, "" }),
		"keys over plain http":               push(func(c *auth.Config) { c.KeysURL = "http://keys.example.test/" }),
		"keys from nowhere":                  push(func(c *auth.Config) { c.KeysURL = "keys.json" }),
		"none where no emulator host is set": push(func(c *auth.Config) { c.Mode = auth.ModeNone }),
		"people of no audience":              people(func(c *auth.IdentityConfig) { c.Audience = " " }),
		"nobody":                             people(func(c *auth.IdentityConfig) { c.Allow = nil }),
		"people's keys over plain http":      people(func(c *auth.IdentityConfig) { c.KeysURL = "http://keys.example.test/" }),
		"the proxy's keys over plain http":   people(func(c *auth.IdentityConfig) { c.ProxyKeysURL = "http://keys.example.test/" }),
		"an empty address":                   allowed(""),
		"a domain":                           allowed("example.test"),
		"a pattern":                          allowed("*@example.test"),
		"an address not ASCII":               allowed("\u212aay@example.test"),
	} {
		require.Error(t, err, name)
	}
}

func TestModeNoneAcceptsEverythingOnAnEmulator(t *testing.T) {
	t.Parallel()
	verifier, err := auth.New(auth.Config{Mode: auth.ModeNone, EmulatorHost: true})
	require.NoError(t, err)
	require.NoError(t, verifier.Verify(t.Context(), ""))
}

// Each row is tried as a push, as a push behind Cloud Run, which has removed the signature, and as a person's token.
func TestClaimsAndHeadersAreReadExactly(t *testing.T) {
	t.Parallel()
	keys, away := serveKeys(t, publishOld), serveKeys(t, down)
	push, behindIAM, people := newVerifier(t, auth.ModeOIDC, keys), newVerifier(t, auth.ModeIAM, away), newIdentity(t, keys, away)
	later, past := start.Add(time.Hour).Unix(), start.Add(-time.Hour).Unix()
	with := func(more string, without ...string) string { return claimsText(claimsWith(nil), more, without...) }
	having := func(name string, value any) string { return claimsText(claimsWith(jwt.MapClaims{name: value}), "") }
	at := func(name string, from time.Duration) string { return having(name, start.Add(from).Unix()) }

	for name, test := range map[string]struct {
		header, claims string
		want           error
	}{
		"as Google signs it":                 {header, with(""), nil},
		"with the other issuer spelling":     {header, having("iss", "accounts.google.com"), nil},
		"a list of audiences, one is it":     {header, having("aud", []string{"x", audience}), nil},
		"expired within the leeway":          {header, at("exp", -29*time.Second), nil},
		"from a clock within the leeway":     {header, at("iat", 30*time.Second), nil},
		"valid since now":                    {header, at("nbf", 0), nil},
		"with an unknown claim":              {header, having("azp", "1234567890"), nil},
		"an expiry with a fraction":          {header, with(fmt.Sprintf(`,"exp":%d.75`, later), "exp"), nil},
		"an expiry with an exponent":         {header, with(fmt.Sprintf(`,"exp":%de1`, later/10), "exp"), nil},
		"the address before one in capitals": {header, with(`,"Email":"x@example.test"`), nil},
		"another algorithm in capitals":      {`{"alg":"RS256","ALG":"none","kid":"old"}`, with(""), nil},

		"another issuer":         {header, having("iss", "https://accounts.example.test"), auth.ErrInvalid},
		"the proxy's issuer":     {header, having("iss", "https://cloud.google.com/iap"), auth.ErrInvalid},
		"no issuer":              {header, having("iss", nil), auth.ErrInvalid},
		"another audience":       {header, having("aud", "https://other.example.test"), auth.ErrInvalid},
		"a longer audience":      {header, having("aud", audience+"/x"), auth.ErrInvalid},
		"no audience":            {header, having("aud", nil), auth.ErrInvalid},
		"an empty audience":      {header, having("aud", ""), auth.ErrInvalid},
		"expired":                {header, at("exp", -31*time.Second), auth.ErrInvalid},
		"no expiry":              {header, having("exp", nil), auth.ErrInvalid},
		"issued in the future":   {header, at("iat", 31*time.Second), auth.ErrInvalid},
		"no issue time":          {header, having("iat", nil), auth.ErrInvalid},
		"not valid yet":          {header, at("nbf", 31*time.Second), auth.ErrInvalid},
		"another account":        {header, having("email", "other@demo-project.iam.gserviceaccount.test"), serve.ErrNotAllowed},
		"no account":             {header, having("email", nil), serve.ErrNotAllowed},
		"an unverified account":  {header, having("email_verified", false), serve.ErrNotAllowed},
		"nothing about verified": {header, having("email_verified", nil), serve.ErrNotAllowed},
		"verified as a string":   {header, having("email_verified", "true"), auth.ErrInvalid},
		"another, outdated": {
			header, claimsText(claimsWith(jwt.MapClaims{"email": "x@example.test", "exp": past}), ""), auth.ErrInvalid,
		},

		"another's address after its name in capitals":  {header, with(`,"Email":"`+account+`","email":"x@example.test"`, "email"), serve.ErrNotAllowed},
		"another's address before its name in capitals": {header, with(`,"email":"x@example.test","Email":"`+account+`"`, "email"), serve.ErrNotAllowed},
		"the address under a capital alone":             {header, with(`,"EMAIL":"`+account+`"`, "email"), serve.ErrNotAllowed},
		"not verified, but in capitals":                 {header, with(`,"email_verified":false,"EMAIL_VERIFIED":true`, "email_verified"), serve.ErrNotAllowed},
		"the audience under a capital alone":            {header, with(`,"Aud":"`+audience+`"`, "aud"), auth.ErrInvalid},
		"expired, but not in capitals":                  {header, with(fmt.Sprintf(`,"exp":%d,"EXP":%d`, past, later), "exp"), auth.ErrInvalid},
		"a name with a long s for its s":                {header, with(`,"iſs":"https://accounts.google.com"`, "iss"), auth.ErrInvalid},

		"the address twice":              {header, with(`,"email":"` + account + `"`), auth.ErrInvalid},
		"the address twice, one escaped": {header, with(`,"\u0065mail":"` + account + `"`), auth.ErrInvalid},
		"a name inside a claim twice":    {header, with(`,"google":{"a":1,"a":2}`), auth.ErrInvalid},
		"the algorithm twice":            {`{"alg":"none","alg":"RS256","kid":"old"}`, with(""), auth.ErrInvalid},
		"the algorithm under a capital":  {`{"Alg":"RS256","kid":"old"}`, with(""), auth.ErrInvalid},
		"an algorithm in lower case":     {`{"alg":"rs256","kid":"old"}`, with(""), auth.ErrInvalid},
		"no algorithm":                   {`{"kid":"old"}`, with(""), auth.ErrInvalid},
		"a key id that is no string":     {`{"alg":"RS256","kid":["old"]}`, with(""), auth.ErrInvalid},
		"a critical extension":           {`{"alg":"RS256","kid":"old","crit":["exp"]}`, with(""), auth.ErrInvalid},
		"a critical list that is null":   {`{"alg":"RS256","kid":"old","crit":null}`, with(""), auth.ErrInvalid},

		"an expiry as a string":      {header, with(fmt.Sprintf(`,"exp":"%d"`, later), "exp"), auth.ErrInvalid},
		"an issue time that is null": {header, with(`,"iat":null`, "iat"), auth.ErrInvalid},
		"an expiry that is true":     {header, with(`,"exp":true`, "exp"), auth.ErrInvalid},
		"an expiry beyond all time":  {header, with(`,"exp":1e300`, "exp"), auth.ErrInvalid},
		"an expiry beyond a float":   {header, with(`,"exp":1e999`, "exp"), auth.ErrInvalid},
		"an issue time before 1970":  {header, with(`,"iat":-1`, "iat"), auth.ErrInvalid},

		"an audience that is null":       {header, with(`,"aud":null`, "aud"), auth.ErrInvalid},
		"an audience in a list of lists": {header, with(`,"aud":[["`+audience+`"]]`, "aud"), auth.ErrInvalid},
		"a claim that is not UTF-8":      {header, with(`,"note":"` + "\xff" + `"`), auth.ErrInvalid},
		"something behind the claims":    {header, with("") + `{}`, auth.ErrInvalid},
		"something behind the header":    {header + `{}`, with(""), auth.ErrInvalid},
		"a byte order mark before them":  {header, "\ufeff" + with(""), auth.ErrInvalid},
		"claims that are null":           {header, "null", auth.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := signedText(jwt.SigningMethodRS256, test.header, test.claims)
			who, identified := people.Identify(t.Context(), bearerHeader(token))
			for reader, err := range map[string]error{
				"a push": push.Verify(t.Context(), "Bearer "+token), "a person": identified,
				"a push behind Cloud Run": behindIAM.Verify(t.Context(), "Bearer "+replaceSignature(token, removed)),
			} {
				require.ErrorIs(t, err, test.want, reader)
				if err != nil {
					require.NotContains(t, err.Error(), "example.test", "an error repeats nothing of the token")
				}
			}
			require.Equal(t, test.want == nil, who == account)
		})
	}
}

// What is wrong with a header, or with the signature: a push and a person are refused alike.
func TestTokensThatProveNothingAreRefused(t *testing.T) {
	t.Parallel()
	keys, away := serveKeys(t, publishOld), serveKeys(t, down)
	push, behindIAM, people := newVerifier(t, auth.ModeOIDC, keys), newVerifier(t, auth.ModeIAM, away), newIdentity(t, keys, away)
	ecKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(oldKey().Public()))})
	whole := signed(claimsWith(nil))
	by := func(method jwt.SigningMethod, key any, kid string) string {
		return "Bearer " + sign(method, key, kid, claimsWith(nil))
	}
	for name, test := range map[string]struct {
		header string
		want   error
	}{
		"whole":                         {"Bearer " + whole, nil},
		"the scheme in lower case":      {"bearer " + whole, nil},
		"two spaces after the scheme":   {"Bearer  " + whole, nil},
		"a scheme and nothing else":     {"Bearer", serve.ErrNoToken},
		"another scheme":                {"Basic dXNlcjpwYXNz", serve.ErrNoToken},
		"a token without a scheme":      {whole, serve.ErrNoToken},
		"nothing":                       {"", serve.ErrNoToken},
		"garbage":                       {"Bearer garbage", auth.ErrInvalid},
		"four parts":                    {"Bearer " + whole + ".x", auth.ErrInvalid},
		"two parts":                     {"Bearer " + whole[:strings.LastIndex(whole, ".")], auth.ErrInvalid},
		"a line end inside":             {"Bearer " + whole[:10] + "\n" + whole[10:], auth.ErrInvalid},
		"padding":                       {"Bearer " + whole + "==", auth.ErrInvalid},
		"more than 16 KiB":              {"Bearer " + strings.Repeat("a", 16<<10+1), auth.ErrInvalid},
		"algorithm none":                {by(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "old"), auth.ErrInvalid},
		"HS256 by the public key":       {by(jwt.SigningMethodHS256, publicPEM, "old"), auth.ErrInvalid},
		"RS512 by the right key":        {by(jwt.SigningMethodRS512, oldKey(), "old"), auth.ErrInvalid},
		"ES256 with a short signature":  {replaceSignature(by(jwt.SigningMethodES256, ecKey, "old"), "AQ"), auth.ErrInvalid},
		"ES256 by the proxy's key":      {by(jwt.SigningMethodES256, proxyKey(), "old"), auth.ErrInvalid},
		"no key id":                     {by(jwt.SigningMethodRS256, oldKey(), ""), auth.ErrInvalid},
		"a key id under a capital":      {"Bearer " + signedText(jwt.SigningMethodRS256, `{"alg":"RS256","Kid":"old"}`, claimsText(claimsWith(nil), "")), auth.ErrInvalid},
		"an unknown key id":             {by(jwt.SigningMethodRS256, oldKey(), "other"), auth.ErrInvalid},
		"another key under a known id":  {by(jwt.SigningMethodRS256, foreignKey(), "old"), auth.ErrInvalid},
		"an empty signature":            {"Bearer " + replaceSignature(whole, ""), auth.ErrInvalid},
		"a short signature":             {"Bearer " + replaceSignature(whole, "AQ"), auth.ErrInvalid},
		"a signature with stray bits":   {"Bearer " + strayBits(whole), auth.ErrInvalid},
		"a signature that was removed":  {"Bearer " + replaceSignature(whole, removed), auth.ErrInvalid},
		"claims changed after signing":  {"Bearer " + replaceClaims(whole, `{"email":"`+account+`"}`), auth.ErrInvalid},
		"forged, and of another person": {"Bearer " + sign(jwt.SigningMethodRS256, foreignKey(), "old", claimsWith(jwt.MapClaims{"email": "x"})), auth.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, push.Verify(t.Context(), test.header), test.want)
			_, err := people.Identify(t.Context(), http.Header{"Authorization": {test.header}})
			require.ErrorIs(t, err, test.want)
		})
	}
	for name, token := range map[string]string{
		"an unchecked signature":              whole,
		"another algorithm":                   replaceSignature(sign(jwt.SigningMethodHS256, []byte("x"), "old", claimsWith(nil)), removed),
		"garbage before the removed one":      "a.b." + removed,
		"nothing but the removed signature":   "." + removed,
		"the marker as a part of a signature": whole + removed,
	} {
		require.ErrorIs(t, behindIAM.Verify(t.Context(), "Bearer "+token), auth.ErrInvalid, "behind Cloud Run: "+name)
	}
}

// strayBits changes unused bits in the last character of the signature. A lenient decoder reads
// the same signature.
func strayBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(token) - 1
	return token[:last] + alphabet[strings.IndexByte(alphabet, token[last])|1:][:1]
}

func FuzzVerify(f *testing.F) {
	keys := serveKeys(f, publishOld)
	verifier, behindIAM := newVerifier(f, auth.ModeOIDC, keys), newVerifier(f, auth.ModeIAM, keys)
	people := newIdentity(f, keys, serveKeys(f, publishPoints(point("proxy", nil))))
	genuine, asserted := signed(claimsWith(nil)), signedAssertion(nil)
	f.Add(asserted)
	f.Add(replaceSignature(asserted, "AQ"))
	f.Add("Bearer " + genuine)
	f.Add("Bearer " + replaceSignature(genuine, removed))
	f.Add("Bearer " + sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "old", claimsWith(nil)))
	f.Add("Bearer " + sign(jwt.SigningMethodHS256, []byte("x"), "old", claimsWith(nil)))
	f.Add("Bearer ..")
	f.Add("Basic x")
	f.Fuzz(func(t *testing.T, header string) {
		named := func(err error) {
			require.True(t, errors.Is(err, serve.ErrNoToken) || errors.Is(err, auth.ErrInvalid) ||
				errors.Is(err, serve.ErrNotAllowed) || errors.Is(err, serve.ErrKeysUnavailable), "every error has a name")
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
		if _, err := people.Identify(t.Context(), proxyHeader(header)); err == nil {
			require.Equal(t, asserted, header)
		} else {
			named(err)
		}
	})
}

// FuzzClaims writes header and claims of a token with a valid signature. For each accepted
// token, a plain JSON reader must find the same claims under the exact names, once each.
func FuzzClaims(f *testing.F) {
	verifier := newVerifier(f, auth.ModeIAM, serveKeys(f, down))
	f.Add(header, claimsText(claimsWith(nil), ""))
	f.Add(header, claimsText(claimsWith(nil), `,"email":"x@example.test"`))
	f.Add(header, claimsText(claimsWith(nil), `,"Email":"x@example.test"`))
	f.Add(header, claimsText(claimsWith(nil), `,"EMAIL":"`+account+`"`, "email"))
	f.Add(header, claimsText(claimsWith(nil), `,"exp":"1800000000"`, "exp"))
	f.Add(`{"alg":"none","alg":"RS256"}`, claimsText(claimsWith(nil), `,"google":{"a":[{"b":1,"b":1}]}`))
	f.Fuzz(func(t *testing.T, header, claims string) {
		token := encoded([]byte(header)) + "." + encoded([]byte(claims)) + "." + removed
		err := verifier.Verify(t.Context(), "Bearer "+token)
		if err != nil {
			require.True(t, errors.Is(err, auth.ErrInvalid) || errors.Is(err, serve.ErrNotAllowed), "every error has a name")
			return
		}
		head, said := members(t, header), members(t, claims)
		require.JSONEq(t, `"RS256"`, string(head["alg"]))
		require.NotContains(t, head, "crit")
		require.JSONEq(t, `"`+account+`"`, string(said["email"]))
		require.JSONEq(t, `true`, string(said["email_verified"]))
		for _, name := range []string{"exp", "iat"} {
			require.Regexp(t, `^[0-9-][0-9.eE+-]*$`, string(said[name]))
		}
	})
}

// members returns the members of an object and fails on duplicates.
func members(t *testing.T, text string) map[string]json.RawMessage {
	t.Helper()
	found := map[string]json.RawMessage{}
	from := json.NewDecoder(strings.NewReader(text))
	open, err := from.Token()
	require.NoError(t, err)
	require.Equal(t, json.Delim('{'), open)
	for from.More() {
		name, err := from.Token()
		require.NoError(t, err)
		var value json.RawMessage
		require.NoError(t, from.Decode(&value))
		require.NotContains(t, found, name.(string))
		found[name.(string)] = value
	}
	return found
}
