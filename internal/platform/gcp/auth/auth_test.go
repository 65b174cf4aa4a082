package auth_test

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/serve"
)

func TestConfigurationWithoutACheckIsRefused(t *testing.T) {
	t.Parallel()
	push := func(change func(*auth.Config)) error {
		config := auth.Config{Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account}
		change(&config)
		_, err := auth.New(config)
		return err
	}
	people := func(change func(*auth.Config)) error {
		config := auth.Config{Audience: audience, Allow: []string{operator}}
		change(&config)
		_, err := auth.NewIdentity(config)
		return err
	}
	allowed := func(email string) error {
		return people(func(c *auth.Config) { c.Allow = append(c.Allow, email) })
	}
	require.NoError(t, push(func(*auth.Config) {}))
	require.NoError(t, people(func(*auth.Config) {}))
	for name, err := range map[string]error{
		"no mode":                    push(func(c *auth.Config) { c.Mode = "" }),
		"a mode that does not exist": push(func(c *auth.Config) { c.Mode = "OIDC" }),
		"oidc without an audience":   push(func(c *auth.Config) { c.Audience = "" }),
		"oidc with a blank audience": push(func(c *auth.Config) { c.Audience = " " }),
		"oidc without an account":    push(func(c *auth.Config) { c.ServiceAccount = "" }),
		"iam without an audience":    push(func(c *auth.Config) { c.Mode, c.Audience = auth.ModeIAM, "" }),
		"iam without an account":     push(func(c *auth.Config) { c.Mode, c.ServiceAccount = auth.ModeIAM, "" }),
		"keys over plain http":       push(func(c *auth.Config) { c.KeysURL = "http://keys.example.test/" }),
		"keys from nowhere":          push(func(c *auth.Config) { c.KeysURL = "keys.json" }),
		"none without an emulator":   push(func(c *auth.Config) { c.Mode = auth.ModeNone }),
		"people of no audience":      people(func(c *auth.Config) { c.Audience = " " }),
		"nobody":                     people(func(c *auth.Config) { c.Allow = nil }),
		"nobody behind a load balancer": people(func(c *auth.Config) {
			c.Audience, c.Allow = "/projects/1/global/backendServices/2", nil
		}),
		"people's keys over http": people(func(c *auth.Config) { c.KeysURL = "http://keys.example.test/" }),
		"proxy's keys over http":  people(func(c *auth.Config) { c.ProxyKeysURL = "http://keys.example.test/" }),
		"an empty address":        allowed(""),
		"a domain":                allowed("example.test"),
		"a pattern":               allowed("*@example.test"),
		"an address not ASCII":    allowed("\u212aay@example.test"),
	} {
		require.Error(t, err, name)
	}
	verifier := filetest.Must(auth.New(auth.Config{Mode: auth.ModeNone, EmulatorHost: true}))(t)
	require.NoError(t, verifier.Verify(t.Context(), ""), "mode none accepts everything on an emulator")
}

// trial is a row of testdata/claims.yaml, which says what each member is.
type trial struct {
	What, Header, Before, More, Behind, Claims, Want string

	Set     jwt.MapClaims
	Without []string
}

func trials(t *testing.T) struct{ Tokens, Assertions []trial } {
	return filetest.YAML[struct{ Tokens, Assertions []trial }](t, "testdata", "claims.yaml")
}

func (r trial) signed(method jwt.SigningMethod, header string, good jwt.MapClaims) string {
	text := cmp.Or(r.Claims, r.Before+claimsText(changed(good, r.Set), r.More, r.Without...)+r.Behind)
	return signedText(method, cmp.Or(r.Header, header), text)
}

func (r trial) require(t *testing.T, reader string, err error) {
	t.Helper()
	want, known := map[string]error{
		"accepted": nil, "invalid": auth.ErrInvalid, "not allowed": serve.ErrNotAllowed,
	}[r.Want]
	require.True(t, known)
	require.ErrorIs(t, err, want, reader+": "+r.What)
	if err != nil {
		require.NotContains(t, err.Error(), "example.test", "an error repeats nothing of the token")
	}
}

// Each token is read as that of a push, of a push behind Cloud Run without its signature, and of a person.
func TestClaimsAndHeadersAreReadExactly(t *testing.T) {
	t.Parallel()
	push, behindIAM := newVerifier(t, auth.ModeOIDC, publishOld), newVerifier(t, auth.ModeIAM, down)
	people := newIdentity(t, publishOld, down)
	notText := trial{What: "a claim that is not UTF-8", More: `,"note":"` + "\xff" + `"`, Want: "invalid"}
	for _, r := range append(trials(t).Tokens, notText) {
		token := r.signed(jwt.SigningMethodRS256, header, claimsWith(nil))
		who, err := people.Identify(t.Context(), bearerHeader(token))
		r.require(t, "a person", err)
		require.Equal(t, r.Want == "accepted", who == account)
		r.require(t, "a push", push.Verify(t.Context(), "Bearer "+token))
		r.require(t, "a push behind Cloud Run", behindIAM.Verify(t.Context(),
			"Bearer "+replaceSignature(token, removed)))
	}
	_, err := people.Identify(t.Context(), proxyHeader(signedAssertion(nil)))
	require.ErrorIs(t, err, serve.ErrKeysUnavailable, "only assertions need the proxy's keys")
	require.ErrorContains(t, err, "status_502")
	identity := newIdentity(t, down, publishPoints(point("proxy", nil)))
	for _, r := range trials(t).Assertions {
		token := r.signed(jwt.SigningMethodES256, `{"alg":"ES256","kid":"proxy"}`, assertionClaims(nil))
		_, err := identity.Identify(t.Context(), proxyHeader(token))
		r.require(t, "an assertion", err)
	}
}

// Both a push and a person are refused.
func TestInvalidTokensAreRefused(t *testing.T) {
	t.Parallel()
	push, behindIAM := newVerifier(t, auth.ModeOIDC, publishOld), newVerifier(t, auth.ModeIAM, down)
	people := newIdentity(t, publishOld, down)
	ecKey := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	whole := signed(claimsWith(nil))
	by := func(method jwt.SigningMethod, key any, kid string) string {
		return "Bearer " + sign(method, key, kid, claimsWith(nil))
	}
	unsigned := by(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "old")
	capital := signedText(jwt.SigningMethodRS256, `{"alg":"RS256","Kid":"old"}`, claimsText(claimsWith(nil), ""))
	forged := sign(jwt.SigningMethodRS256, foreignKey(), "old", claimsWith(jwt.MapClaims{"email": "x"}))
	hs256 := sign(jwt.SigningMethodHS256, []byte("x"), "old", claimsWith(nil))
	for want, headers := range map[error]map[string]string{
		nil: {
			"whole":                       "Bearer " + whole,
			"the scheme in lower case":    "bearer " + whole,
			"two spaces after the scheme": "Bearer  " + whole,
		},
		serve.ErrNoToken: {
			"a scheme without a token": "Bearer",
			"another scheme":           "Basic dXNlcjpwYXNz",
			"a token without a scheme": whole,
			"nothing":                  "",
		},
		auth.ErrInvalid: {
			"garbage":                     "Bearer garbage",
			"four parts":                  "Bearer " + whole + ".x",
			"two parts":                   "Bearer " + whole[:strings.LastIndex(whole, ".")],
			"a line end inside":           "Bearer " + whole[:10] + "\n" + whole[10:],
			"padding":                     "Bearer " + whole + "==",
			"more than 16 KiB":            "Bearer " + strings.Repeat("a", 16<<10+1),
			"algorithm none":              unsigned,
			"HS256 by the public key":     by(jwt.SigningMethodHS256, publicPEM(oldKey()), "old"),
			"RS512 by the right key":      by(jwt.SigningMethodRS512, oldKey(), "old"),
			"a short ES256 signature":     replaceSignature(by(jwt.SigningMethodES256, ecKey, "old"), "AQ"),
			"ES256 by the proxy's key":    by(jwt.SigningMethodES256, proxyKey(), "old"),
			"no key id":                   by(jwt.SigningMethodRS256, oldKey(), ""),
			"a key id named Kid":          "Bearer " + capital,
			"an unknown key id":           by(jwt.SigningMethodRS256, oldKey(), "other"),
			"another key of a known id":   by(jwt.SigningMethodRS256, foreignKey(), "old"),
			"an empty signature":          "Bearer " + replaceSignature(whole, ""),
			"a short signature":           "Bearer " + replaceSignature(whole, "AQ"),
			"a signature with stray bits": "Bearer " + strayBits(whole),
			"a removed signature":         "Bearer " + replaceSignature(whole, removed),
			"claims changed afterwards":   "Bearer " + replaceClaims(whole, `{"email":"`+account+`"}`),
			"forged, of another person":   "Bearer " + forged,
		},
	} {
		filetest.Each(t, headers, func(t *testing.T, header string) {
			require.ErrorIs(t, push.Verify(t.Context(), header), want)
			_, err := people.Identify(t.Context(), http.Header{"Authorization": {header}})
			require.ErrorIs(t, err, want)
		})
	}
	for name, token := range map[string]string{
		"an unchecked signature":              whole,
		"another algorithm":                   replaceSignature(hs256, removed),
		"garbage before the removed one":      "a.b." + removed,
		"nothing but the removed signature":   "." + removed,
		"the marker as a part of a signature": whole + removed,
	} {
		require.ErrorIs(t, behindIAM.Verify(t.Context(), "Bearer "+token), auth.ErrInvalid, name)
	}
}

func publicPEM(key crypto.Signer) []byte {
	return pem.EncodeToMemory(
		&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(key.Public()))})
}

// A lenient decoder ignores the unused bits of the last character of a signature.
func strayBits(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(token) - 1
	return token[:last] + alphabet[strings.IndexByte(alphabet, token[last])|1:][:1]
}

func FuzzVerify(f *testing.F) {
	verifier, behindIAM := newVerifier(f, auth.ModeOIDC, publishOld), newVerifier(f, auth.ModeIAM, publishOld)
	people := newIdentity(f, publishOld, publishPoints(point("proxy", nil)))
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

// For each accepted token, a plain JSON reader must find the same claims under the exact names, once each.
func FuzzClaims(f *testing.F) {
	verifier := newVerifier(f, auth.ModeIAM, down)
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
			require.True(t, errors.Is(err, auth.ErrInvalid) || errors.Is(err, serve.ErrNotAllowed),
				"every error has a name")
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

func members(t *testing.T, text string) (found map[string]jsontext.Value) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &found))
	return found
}
