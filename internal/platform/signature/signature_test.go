package signature_test

import (
	"encoding/base64"
	"errors"
	"maps"
	"net/textproto"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
	"billhook/internal/platform/signature"
)

const (
	secret = "a-secret-of-more-than-24-bytes"
	second = "another-secret-of-enough-bytes"
)

var (
	now  = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	body = []byte(`{"a":1}`)
)

func lookup(headers map[string][]string) func(string) []string {
	return func(name string) []string { return headers[textproto.CanonicalMIMEHeaderKey(name)] }
}

func single(headers map[string]string) map[string][]string {
	out := map[string][]string{}
	for name, value := range headers {
		out[textproto.CanonicalMIMEHeaderKey(name)] = []string{value}
	}
	return out
}

// schemes are Billhook's own, and those that are declared.
var schemes = func() map[string]signature.Scheme {
	all := maps.Clone(signature.Own)
	for name, provider := range catalogtest.Shipped().Providers {
		all[name] = provider.Signature
	}
	return all
}()

func verifier(t *testing.T, scheme signature.Scheme, secrets ...string) *signature.Verifier {
	t.Helper()
	return verifierAt(t, now, scheme, secrets...)
}

func verifierAt(t *testing.T, at time.Time, scheme signature.Scheme, secrets ...string) *signature.Verifier {
	t.Helper()
	return filetest.Must(signature.NewVerifier(scheme, secrets, 5*time.Minute, func() time.Time {
		return at
	}))(t)
}

// vector is a row of testdata/vectors.yaml, which says what each member is.
type vector struct {
	What, Scheme, Secret, Body, Want string

	// At is when it is verified, in Unix seconds; 0: now.
	At      int64
	Headers map[string][]string
}

func TestAGenuineSignatureAloneIsAcceptedInEveryScheme(t *testing.T) {
	t.Parallel()
	for _, test := range filetest.YAML[[]vector](t, "testdata", "vectors.yaml") {
		want, known := map[string]error{
			"": nil, "missing": signature.ErrMissing, "malformed": signature.ErrMalformed,
			"mismatch": signature.ErrSignature,
			"old":      signature.ErrTooOld, "new": signature.ErrTooNew,
		}[test.Want]
		require.True(t, known, test.What)
		headers, signed := lookup(test.Headers), []byte(test.Body)
		scheme, at := schemes[test.Scheme], now
		if test.At > 0 {
			at = time.Unix(test.At, 0)
		}
		v := verifierAt(t, at, scheme, test.Secret)
		require.ErrorIs(t, v.Verify(headers, signed), want, test.What)
		claim, err := v.Headers(headers)
		if errors.Is(want, signature.ErrSignature) { // which needs the body
			require.NoError(t, err, test.What)
		} else {
			require.ErrorIs(t, err, want, test.What)
		}
		if want != nil {
			continue
		}
		require.Equal(t, append(test.Headers["X-Webhook-Destination"], "")[0], claim.Destination, test.What)
		signer := filetest.Must(signature.NewSigner(scheme, test.Secret))(t)
		own := single(signer.SignFor(claim.Destination, "m1", signed, at))
		require.NoError(t, v.Verify(lookup(own), signed), "signed by its own signer: "+test.What)
		require.Equal(t, test.Headers["X-Webhook-Destination"], own["X-Webhook-Destination"])
		require.NoError(t, verifierAt(t, at, scheme, second, test.Secret).Verify(headers, signed),
			"while rotating: "+test.What)
		require.ErrorIs(t, verifierAt(t, at, scheme, second).Verify(headers, signed),
			signature.ErrSignature, test.What)
		require.ErrorIs(t, v.Verify(headers, append(signed, ' ')), signature.ErrSignature, test.What)
	}
}

func TestTheHeaderAndTheWindowHaveTheSameBoundsInEveryScheme(t *testing.T) {
	t.Parallel()
	for name, scheme := range schemes {
		signer := filetest.Must(signature.NewSigner(scheme, secret))(t)
		headers := single(signer.Sign("m1", body, now))
		header := textproto.CanonicalMIMEHeaderKey(scheme.Header)
		good := headers[header][0]
		for _, values := range [][]string{nil, {""}, {good, good}, {good[:40]}, {scheme.Prefix + "%%%"}} {
			headers[header] = values
			want := signature.ErrMalformed
			if len(values) == 0 || values[0] == "" {
				want = signature.ErrMissing
			}
			require.ErrorIs(t, verifier(t, scheme, secret).Verify(lookup(headers), body), want, "%s %s", name, values)
		}
		other := scheme
		other.Encoding = map[string]string{"hex": "base64", "base64": "hex"}[scheme.Encoding]
		signed := filetest.Must(signature.NewSigner(other, secret))(t).Sign("m1", body, now)
		require.ErrorIs(t, verifier(t, scheme, secret).Verify(lookup(single(signed)), body), signature.ErrMalformed,
			"%s in %s", name, other.Encoding)
		if scheme.ReplayWindow != "" {
			continue
		}
		for away, want := range map[time.Duration]error{
			-5 * time.Minute: nil, -5*time.Minute - time.Second: signature.ErrTooOld,
			-50 * 365 * 24 * time.Hour: signature.ErrTooOld,
			5 * time.Minute:            nil, 5*time.Minute + time.Second: signature.ErrTooNew,
			5000 * 24 * time.Hour: signature.ErrTooNew,
		} {
			err := verifier(t, scheme, secret).Verify(lookup(single(signer.Sign("m1", body, now.Add(away)))), body)
			require.ErrorIs(t, err, want, "%s %s", name, away)
			// The headers are enough: the body of a request outside the window is never read.
			_, err = verifier(t, scheme, second).Headers(lookup(single(signer.Sign("m1", body, now.Add(away)))))
			require.ErrorIs(t, err, want, "%s %s", name, away)
		}
	}
}

func TestAnUnsafeConfigurationIsRefusedAndNoSecretPrinted(t *testing.T) {
	t.Parallel()
	long := "whsec_" + base64.StdEncoding.EncodeToString([]byte("short-but-secret"))
	for name, test := range map[string]struct {
		scheme  signature.Scheme
		secrets []string
		says    string
	}{
		"no secret":                    {signature.Generic, nil, "no secret"},
		"an empty secret":              {signature.Generic, []string{""}, "secret 1"},
		"a short secret beside one":    {signature.Generic, []string{secret, "short-but-secret"}, "secret 2"},
		"nothing behind whsec_":        {signature.Standard, []string{secret, "whsec_"}, "secret 2"},
		"no base64 behind whsec_":      {signature.Standard, []string{secret, "whsec_short-but"}, "secret 2"},
		"a short secret behind whsec_": {signature.Standard, []string{secret, long}, "secret 2"},
		"an unknown scheme":            {signature.Scheme{}, []string{secret}, ""},
	} {
		_, err := signature.NewVerifier(test.scheme, test.secrets, time.Minute, time.Now)
		require.Error(t, err, name)
		require.ErrorContains(t, err, test.says, name)
		require.NotContains(t, err.Error(), "short-but", name)
	}
	for _, window := range []time.Duration{0, -time.Second} {
		_, err := signature.NewVerifier(signature.Generic, []string{secret}, window, time.Now)
		require.ErrorContains(t, err, "tolerance")
	}
	for _, scheme := range []signature.Scheme{signature.Generic, schemes["paynow"]} {
		_, err := signature.NewSigner(scheme, secret, second)
		require.ErrorContains(t, err, "this scheme takes one secret")
	}
	cut := signature.Generic
	cut.Signs = "{timestamp.{destination}.{body}"
	for _, scheme := range []signature.Scheme{{}, cut} {
		require.Error(t, filetest.ErrorOf(signature.NewSigner(scheme, secret)))
	}
	require.Error(t, filetest.ErrorOf(signature.NewSigner(signature.Generic, "short-but-secret")))
}

func FuzzVerify(f *testing.F) {
	f.Add("m1", "1772445600", "AAAA", []byte("{}"))
	f.Add("", "", "", []byte(nil))
	f.Add("a.b", "999999999999999999", "v1,AAAA v1,=", []byte("1.2"))
	f.Fuzz(func(t *testing.T, id, stamp, given string, payload []byte) {
		for _, scheme := range schemes {
			v := verifier(t, scheme, secret)
			// A random signature never matches. Verify refuses all that Headers refuses.
			made := func(name string) []string {
				switch {
				case strings.HasSuffix(strings.ToLower(name), "signature"):
					return []string{given}
				case strings.HasSuffix(strings.ToLower(name), "timestamp"):
					return []string{stamp}
				}
				return []string{id}
			}
			claim, refused := v.Headers(made)
			whole := v.Verify(made, payload)
			require.Error(t, whole)
			if refused != nil {
				require.Equal(t, refused, whole)
			} else {
				require.ErrorIs(t, claim.Verify(payload), signature.ErrSignature)
			}
			signer := filetest.Must(signature.NewSigner(scheme, secret))(t)
			headers := single(signer.Sign("m1", payload, now))
			require.NoError(t, v.Verify(lookup(headers), payload))
			require.ErrorIs(t, v.Verify(lookup(headers), append(payload[:len(payload):len(payload)], '.')),
				signature.ErrSignature)
			for name, values := range headers {
				changed := maps.Clone(headers)
				changed[name] = []string{values[0] + given}
				if err := v.Verify(lookup(changed), payload); given != "" && err == nil {
					// Only a list of signatures may grow and stay valid.
					require.NotEmpty(t, scheme.Separator, name)
				}
			}
		}
	})
}

// A receiver that knows one of two secrets takes what both have signed.
func TestEverySecretOfStandardWebhooksSigns(t *testing.T) {
	t.Parallel()
	signer := filetest.Must(signature.NewSigner(signature.Standard, secret, second))(t)
	signed := lookup(single(signer.Sign("evt-1", body, now)))
	for known, want := range map[string]error{
		secret: nil, second: nil, "a-third-secret-of-more-than-24-bytes": signature.ErrSignature,
	} {
		require.ErrorIs(t, verifier(t, signature.Standard, known).Verify(signed, body), want)
	}
}

// The page about endpoints shows a delivery, which a receiver verifies as a first test.
func TestTheDeliveryOnThePageOfEndpointsIsSignedWithItsSecret(t *testing.T) {
	t.Parallel()
	page := filetest.Read(t, "../../../docs/guides/receive.md")
	find := func(pattern string) string {
		found := regexp.MustCompile(pattern).FindStringSubmatch(page)
		require.Len(t, found, 2, pattern)
		return found[1]
	}
	headers := map[string]string{
		"Webhook-Id": find(`webhook-id: (\S+)`), "Webhook-Timestamp": find(`webhook-timestamp: (\S+)`),
		"Webhook-Signature": find(`webhook-signature: (\S+)`),
	}
	known, err := signature.NewVerifier(signature.Standard, []string{find("`(whsec_[^`]+)`")}, time.Minute,
		func() time.Time { return time.Unix(1772452800, 0) })
	require.NoError(t, err)
	claim := filetest.Must(known.Headers(func(name string) []string { return []string{headers[name]} }))(t)
	payload := find("\n(\\{\"type\":\"invoice.paid\".*\\})\n")
	require.NoError(t, claim.Verify([]byte(payload)))
	require.Error(t, claim.Verify([]byte(payload+" ")))
}
