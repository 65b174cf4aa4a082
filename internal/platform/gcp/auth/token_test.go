package auth_test

import (
	"crypto"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/platform/gcp/auth"
)

// signedText returns a token of exactly these texts with a valid signature, by the proxy's key for
// ES256.
func signedText(tb testing.TB, method jwt.SigningMethod, header, claims string) string {
	tb.Helper()
	var key crypto.Signer = oldKey()
	if method == jwt.SigningMethodES256 {
		key = proxyKey()
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	signature, err := method.Sign(text, key)
	require.NoError(tb, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// claimsText returns the claims as text, without some of them, and with more before the end.
func claimsText(tb testing.TB, claims jwt.MapClaims, more string, without ...string) string {
	tb.Helper()
	for _, name := range without {
		delete(claims, name)
	}
	text, err := json.Marshal(claims)
	require.NoError(tb, err)
	return strings.TrimSuffix(string(text), "}") + more + "}"
}

func TestClaimsAndHeadersAreReadExactly(t *testing.T) {
	t.Parallel()
	const header, stripped = `{"alg":"RS256","kid":"old"}`, "SIGNATURE_REMOVED_BY_GOOGLE"
	keys := serveKeys(t, publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
	whole, behindIAM := newVerifier(t, auth.ModeOIDC, keys, &clock{}), newVerifier(t, auth.ModeIAM, keys, &clock{})
	later, past := start.Add(time.Hour).Unix(), start.Add(-time.Hour).Unix()
	with := func(more string, without ...string) string { return claimsText(t, validClaims(), more, without...) }

	for name, test := range map[string]struct {
		header, claims string
		want           error
	}{
		"as they should be": {header, with(""), nil},

		"another's address after its name in capitals":  {header, with(`,"Email":"`+account+`","email":"x@example.test"`, "email"), auth.ErrForbidden},
		"another's address before its name in capitals": {header, with(`,"email":"x@example.test","Email":"`+account+`"`, "email"), auth.ErrForbidden},
		"the address before another's under a capital":  {header, with(`,"Email":"x@example.test"`), nil},
		"the address under a capital alone":             {header, with(`,"EMAIL":"`+account+`"`, "email"), auth.ErrForbidden},
		"verified in capitals alone":                    {header, with(`,"Email_Verified":true`, "email_verified"), auth.ErrForbidden},
		"not verified, but in capitals":                 {header, with(`,"email_verified":false,"EMAIL_VERIFIED":true`, "email_verified"), auth.ErrForbidden},
		"the audience under a capital alone":            {header, with(`,"Aud":"`+audience+`"`, "aud"), auth.ErrInvalid},
		"the issuer under a capital alone":              {header, with(`,"ISS":"https://accounts.google.com"`, "iss"), auth.ErrInvalid},
		"the expiry under a capital alone":              {header, with(fmt.Sprintf(`,"Exp":%d`, later), "exp"), auth.ErrInvalid},
		"expired, but not in capitals":                  {header, with(fmt.Sprintf(`,"exp":%d,"EXP":%d`, past, later), "exp"), auth.ErrInvalid},
		"a name with a long s for its s":                {header, with(`,"iſs":"https://accounts.google.com"`, "iss"), auth.ErrInvalid},

		"the address twice":              {header, with(`,"email":"` + account + `"`), auth.ErrInvalid},
		"the address after another's":    {header, with(`,"email":"x@example.test","email":"`+account+`"`, "email"), auth.ErrInvalid},
		"the address before another's":   {header, with(`,"email":"x@example.test"`), auth.ErrInvalid},
		"the address twice, one escaped": {header, with(`,"\u0065mail":"` + account + `"`), auth.ErrInvalid},
		"the audience twice":             {header, with(`,"aud":"` + audience + `"`), auth.ErrInvalid},
		"the expiry twice":               {header, with(fmt.Sprintf(`,"exp":%d`, later)), auth.ErrInvalid},
		"an unknown claim twice":         {header, with(`,"azp":"1","azp":"1"`), auth.ErrInvalid},
		"a name inside a claim twice":    {header, with(`,"google":{"a":1,"a":2}`), auth.ErrInvalid},
		"the algorithm twice":            {`{"alg":"none","alg":"RS256","kid":"old"}`, with(""), auth.ErrInvalid},
		"the key id twice":               {`{"alg":"RS256","kid":"other","kid":"old"}`, with(""), auth.ErrInvalid},
		"the type twice":                 {`{"alg":"RS256","kid":"old","typ":"JWT","typ":"JWT"}`, with(""), auth.ErrInvalid},
		"the algorithm under a capital":  {`{"Alg":"RS256","kid":"old"}`, with(""), auth.ErrInvalid},
		"another algorithm in capitals":  {`{"alg":"RS256","ALG":"none","kid":"old"}`, with(""), nil},
		"an algorithm that is null":      {`{"alg":null,"kid":"old"}`, with(""), auth.ErrInvalid},
		"a critical list that is null":   {`{"alg":"RS256","kid":"old","crit":null}`, with(""), auth.ErrInvalid},

		"an expiry as a string":      {header, with(fmt.Sprintf(`,"exp":"%d"`, later), "exp"), auth.ErrInvalid},
		"an issue time as a string":  {header, with(fmt.Sprintf(`,"iat":"%d"`, past), "iat"), auth.ErrInvalid},
		"a not-before as a string":   {header, with(fmt.Sprintf(`,"nbf":"%d"`, past)), auth.ErrInvalid},
		"an expiry that is null":     {header, with(`,"exp":null`, "exp"), auth.ErrInvalid},
		"an issue time that is null": {header, with(`,"iat":null`, "iat"), auth.ErrInvalid},
		"a not-before that is null":  {header, with(`,"nbf":null`), auth.ErrInvalid},
		"an expiry that is true":     {header, with(`,"exp":true`, "exp"), auth.ErrInvalid},
		"an expiry in a list":        {header, with(fmt.Sprintf(`,"exp":[%d]`, later), "exp"), auth.ErrInvalid},
		"an expiry beyond all time":  {header, with(`,"exp":1e300`, "exp"), auth.ErrInvalid},
		"an expiry beyond a float":   {header, with(`,"exp":1e999`, "exp"), auth.ErrInvalid},
		"an issue time before 1970":  {header, with(`,"iat":-1`, "iat"), auth.ErrInvalid},
		"an expiry with a fraction":  {header, with(fmt.Sprintf(`,"exp":%d.75`, later), "exp"), nil},
		"an expiry with an exponent": {header, with(fmt.Sprintf(`,"exp":%de1`, later/10), "exp"), nil},

		"an audience that is a number":    {header, with(`,"aud":1`, "aud"), auth.ErrInvalid},
		"an audience that is null":        {header, with(`,"aud":null`, "aud"), auth.ErrInvalid},
		"an audience in a list of lists":  {header, with(`,"aud":[["`+audience+`"]]`, "aud"), auth.ErrInvalid},
		"an audience that is an object":   {header, with(`,"aud":{"aud":"`+audience+`"}`, "aud"), auth.ErrInvalid},
		"a list of audiences, one is it":  {header, with(`,"aud":["x","`+audience+`"]`, "aud"), nil},
		"a claim that is not UTF-8":       {header, with(`,"note":"` + "\xff" + `"`), auth.ErrInvalid},
		"something behind the claims":     {header, with("") + `{}`, auth.ErrInvalid},
		"something behind the header":     {header + `{}`, with(""), auth.ErrInvalid},
		"a comma before the end":          {header, with(`,`), auth.ErrInvalid},
		"a byte order mark before claims": {header, "\ufeff" + with(""), auth.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := signedText(t, jwt.SigningMethodRS256, test.header, test.claims)
			require.ErrorIs(t, whole.Verify(t.Context(), "Bearer "+token), test.want)
			if !strings.Contains(name, "key id") { // a stripped token needs no key id
				require.ErrorIs(t, behindIAM.Verify(t.Context(), "Bearer "+replaceSignature(token, stripped)), test.want)
			}
		})
	}
	require.ErrorIs(t, whole.Verify(t.Context(), "Bearer "+signedText(t, jwt.SigningMethodRS256, `{"alg":"RS256","Kid":"old"}`, with(""))),
		auth.ErrInvalid, "a key id under a capital is none")
}

func TestAnOperatorsTokenIsReadExactly(t *testing.T) {
	t.Parallel()
	tokens := serveKeys(t, publish(map[string]*rsa.PrivateKey{"old": oldKey()}))
	proxy := serveKeys(t, publishPoints(t, point(t, "proxy", nil)))
	identity := newIdentity(t, tokens, proxy, &clock{})
	const eve = "eve@example.test"
	later, soon := start.Add(time.Hour).Unix(), start.Add(time.Minute).Unix()
	ofPerson := func(more string, without ...string) http.Header {
		return bearerHeader(signedText(t, jwt.SigningMethodRS256, `{"alg":"RS256","kid":"old"}`, claimsText(t, personClaims(nil), more, without...)))
	}
	ofProxy := func(more string, without ...string) http.Header {
		return proxyHeader(signedText(t, jwt.SigningMethodES256, `{"alg":"ES256","kid":"proxy"}`, claimsText(t, assertionClaims(nil), more, without...)))
	}
	for name, test := range map[string]struct {
		header http.Header
		want   error
	}{
		"an ID token":                           {ofPerson(""), nil},
		"an assertion":                          {ofProxy(""), nil},
		"an ID token, the address in capitals":  {ofPerson(`,"email":"`+eve+`","Email":"`+operator+`"`, "email"), auth.ErrForbidden},
		"an assertion, the address in capitals": {ofProxy(`,"email":"`+eve+`","EMAIL":"`+operator+`"`, "email"), auth.ErrForbidden},
		"an ID token, the address twice":        {ofPerson(`,"email":"`+eve+`","email":"`+operator+`"`, "email"), auth.ErrInvalid},
		"an assertion, the address twice":       {ofProxy(`,"email":"`+eve+`","email":"`+operator+`"`, "email"), auth.ErrInvalid},
		"an ID token, verified in capitals":     {ofPerson(`,"email_verified":false,"Email_Verified":true`, "email_verified"), auth.ErrForbidden},
		"an ID token, a string for its expiry":  {ofPerson(fmt.Sprintf(`,"exp":"%d"`, later), "exp"), auth.ErrInvalid},
		"an assertion, a string for its expiry": {ofProxy(fmt.Sprintf(`,"exp":"%d"`, soon), "exp"), auth.ErrInvalid},
		"an assertion, its issuer twice":        {ofProxy(`,"iss":"https://cloud.google.com/iap"`), auth.ErrInvalid},
		"an assertion, its algorithm twice": {proxyHeader(signedText(t, jwt.SigningMethodES256,
			`{"alg":"none","alg":"ES256","kid":"proxy"}`, claimsText(t, assertionClaims(nil), ""))), auth.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			who, err := identity.Identify(t.Context(), test.header)
			require.ErrorIs(t, err, test.want)
			if err == nil {
				require.Equal(t, operator, who)
			}
		})
	}
}

// FuzzClaims writes header and claims of a token with a valid signature. For each accepted
// token, a plain JSON reader must find the same claims under the exact names, once each.
func FuzzClaims(f *testing.F) {
	keys := serveKeys(f, down)
	verifier := newVerifier(f, auth.ModeIAM, keys, &clock{})
	const header = `{"alg":"RS256","kid":"old"}`
	f.Add(header, claimsText(f, validClaims(), ""))
	f.Add(header, claimsText(f, validClaims(), `,"email":"x@example.test"`))
	f.Add(header, claimsText(f, validClaims(), `,"Email":"x@example.test"`))
	f.Add(header, claimsText(f, validClaims(), `,"EMAIL":"`+account+`"`, "email"))
	f.Add(header, claimsText(f, validClaims(), `,"exp":"1800000000"`, "exp"))
	f.Add(`{"alg":"none","alg":"RS256"}`, claimsText(f, validClaims(), `,"google":{"a":[{"b":1,"b":1}]}`))
	f.Fuzz(func(t *testing.T, header, claims string) {
		token := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".SIGNATURE_REMOVED_BY_GOOGLE"
		err := verifier.Verify(t.Context(), "Bearer "+token)
		if err != nil {
			require.True(t, errors.Is(err, auth.ErrInvalid) || errors.Is(err, auth.ErrForbidden), "every error has a name")
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
