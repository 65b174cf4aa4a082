package signature_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// lookup returns the values of headers as net/http holds them.
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

func verifier(t *testing.T, scheme signature.Scheme, secrets ...string) *signature.Verifier {
	t.Helper()
	v, err := signature.NewVerifier(scheme, secrets, 5*time.Minute, func() time.Time { return now })
	require.NoError(t, err)
	return v
}

// mac computes an HMAC without the code under test.
func mac(key, message string) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(message))
	return h.Sum(nil)
}

func TestAGenuineSignatureIsAcceptedInEveryScheme(t *testing.T) {
	t.Parallel()
	millis, seconds := fmt.Sprint(now.UnixMilli()), fmt.Sprint(now.Unix())
	for name, test := range map[string]struct {
		scheme  signature.Scheme
		headers map[string]string
	}{
		"PayNow": {signature.PayNow, map[string]string{
			"PayNow-Timestamp": millis, "PayNow-Signature": base64.StdEncoding.EncodeToString(mac(secret, millis+"."+string(body))),
		}},
		"PayNow without padding": {signature.PayNow, map[string]string{
			"PayNow-Timestamp": millis, "PayNow-Signature": base64.RawStdEncoding.EncodeToString(mac(secret, millis+"."+string(body))),
		}},
		"generic": {signature.Generic, map[string]string{
			"X-Webhook-Timestamp": seconds, "X-Webhook-Signature": hex.EncodeToString(mac(secret, seconds+"."+string(body))),
		}},
		"generic in capitals": {signature.Generic, map[string]string{
			"X-Webhook-Timestamp": seconds, "X-Webhook-Signature": strings.ToUpper(hex.EncodeToString(mac(secret, seconds+"."+string(body)))),
		}},
		"generic, for one path": {signature.Generic, map[string]string{
			"X-Webhook-Timestamp": seconds, "X-Webhook-Destination": "/queues/q/messages",
			"X-Webhook-Signature": hex.EncodeToString(mac(secret, seconds+"./queues/q/messages."+string(body))),
		}},
		"Standard Webhooks, one of several": {signature.Standard, map[string]string{
			"Webhook-Id": "m1", "Webhook-Timestamp": seconds,
			"Webhook-Signature": "v1,AAAA v1," + base64.StdEncoding.EncodeToString(mac(secret, "m1."+seconds+"."+string(body))) + " v1a,xyz",
		}},
	} {
		headers := lookup(single(test.headers))
		require.NoError(t, verifier(t, test.scheme, secret).Verify(headers, body), name)
		require.NoError(t, verifier(t, test.scheme, second, secret).Verify(headers, body), "while rotating: "+name)
		require.ErrorIs(t, verifier(t, test.scheme, second).Verify(headers, body), signature.ErrSignature, name)
		require.ErrorIs(t, verifier(t, test.scheme, secret).Verify(headers, append(body, ' ')), signature.ErrSignature, name)
	}
}

func TestASignatureForAPathHoldsWithThatPathAlone(t *testing.T) {
	t.Parallel()
	signer, err := signature.NewSigner(signature.Generic, secret)
	require.NoError(t, err)
	const destination = "X-Webhook-Destination"
	v, bound, plain := verifier(t, signature.Generic, secret), single(signer.SignFor("/queues/a/messages", "", body, now)), single(signer.Sign("", body, now))
	require.NoError(t, v.Verify(lookup(bound), body))
	claim, err := v.Headers(lookup(bound))
	require.NoError(t, err)
	require.Equal(t, "/queues/a/messages", claim.Destination())
	for name, test := range map[string]struct {
		signed map[string][]string
		said   []string
		body   []byte
		want   error
	}{
		"another path":                    {bound, []string{"/queues/b/messages"}, body, signature.ErrSignature},
		"the path left away":              {bound, nil, body, signature.ErrSignature},
		"a path that was added":           {plain, []string{"/queues/a/messages"}, body, signature.ErrSignature},
		"an empty path":                   {bound, []string{""}, body, signature.ErrMissing},
		"two paths":                       {bound, []string{"/queues/a/messages", "/queues/b/messages"}, body, signature.ErrMalformed},
		"the path in the body, no JSON":   {bound, nil, []byte("/queues/a/messages." + string(body)), nil},
		"a part of the path, no JSON too": {bound, []string{"/queues"}, []byte("a/messages." + string(body)), signature.ErrSignature},
	} {
		headers := maps.Clone(test.signed)
		delete(headers, destination)
		if test.said != nil {
			headers[destination] = test.said
		}
		require.ErrorIs(t, v.Verify(lookup(headers), test.body), test.want, name)
	}
}

func TestABadHeaderIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	const given, stamp = "Paynow-Signature", "Paynow-Timestamp"
	signer, err := signature.NewSigner(signature.PayNow, secret)
	require.NoError(t, err)
	good := single(signer.Sign("", body, now))
	sum, millis := good[given][0], good[stamp][0]
	stray := []byte(sum)
	stray[42]++ // the last character has two unused bits, so four characters decode alike
	signed := func(stamp string) []string {
		return []string{base64.StdEncoding.EncodeToString(mac(secret, stamp+"."+string(body)))}
	}
	seconds, first, last := fmt.Sprint(now.Unix()), strings.Repeat("0", 17)+"1", strings.Repeat("9", 18)
	old, early := fmt.Sprint(now.Add(-5*time.Minute-time.Millisecond).UnixMilli()), fmt.Sprint(now.Add(5*time.Minute+time.Millisecond).UnixMilli())
	for name, test := range map[string]struct {
		signatures, stamps []string
		want               error
	}{
		"no signature":                      {nil, []string{millis}, signature.ErrMissing},
		"an empty signature":                {[]string{""}, []string{millis}, signature.ErrMissing},
		"no timestamp":                      {[]string{sum}, nil, signature.ErrMissing},
		"two signatures":                    {[]string{sum, "x"}, []string{millis}, signature.ErrMalformed},
		"two timestamps":                    {[]string{sum}, []string{millis, "1"}, signature.ErrMalformed},
		"a short signature":                 {[]string{"QUJD"}, []string{millis}, signature.ErrMalformed},
		"a long signature":                  {[]string{sum + "AAAA"}, []string{millis}, signature.ErrMalformed},
		"a signature in hex":                {[]string{strings.Repeat("ab", 32)}, []string{millis}, signature.ErrMalformed},
		"two paddings":                      {[]string{sum + "="}, []string{millis}, signature.ErrMalformed},
		"a line break in it":                {[]string{"\n" + sum}, []string{millis}, signature.ErrMalformed},
		"base64 with bits that no byte has": {[]string{string(stray)}, []string{millis}, signature.ErrMalformed},
		"another signature":                 {signed("x"), []string{millis}, signature.ErrSignature},
		"a timestamp with a plus":           {[]string{sum}, []string{"+1"}, signature.ErrMalformed},
		"a timestamp of letters":            {[]string{sum}, []string{"1e9"}, signature.ErrMalformed},
		"a timestamp with a sign":           {[]string{sum}, []string{"-1"}, signature.ErrMalformed},
		"a timestamp of 19 digits":          {[]string{sum}, []string{"1" + strings.Repeat("0", 18)}, signature.ErrMalformed},
		"a timestamp that was swapped":      {[]string{sum}, []string{fmt.Sprint(now.UnixMilli() + 1)}, signature.ErrSignature},
		"a timestamp in seconds":            {signed(seconds), []string{seconds}, signature.ErrTooOld},
		"the smallest timestamp":            {signed(first), []string{first}, signature.ErrTooOld},
		"the largest timestamp":             {signed(last), []string{last}, signature.ErrTooNew},
		"past the old edge":                 {signed(old), []string{old}, signature.ErrTooOld},
		"past the new edge":                 {signed(early), []string{early}, signature.ErrTooNew},
	} {
		headers := lookup(map[string][]string{given: test.signatures, stamp: test.stamps})
		v := verifier(t, signature.PayNow, secret)
		require.ErrorIs(t, v.Verify(headers, body), test.want, name)
		// Without the body everything is known except whether the signature matches.
		_, err := v.Headers(headers)
		if errors.Is(test.want, signature.ErrSignature) {
			test.want = nil
		}
		require.ErrorIs(t, err, test.want, name)
	}
}

func TestTheWindowHasTheSameEdgesInEveryScheme(t *testing.T) {
	t.Parallel()
	for _, scheme := range []signature.Scheme{signature.PayNow, signature.Generic, signature.Standard} {
		signer, err := signature.NewSigner(scheme, secret)
		require.NoError(t, err)
		for away, want := range map[time.Duration]error{
			-5 * time.Minute: nil, -5*time.Minute - time.Second: signature.ErrTooOld, -50 * 365 * 24 * time.Hour: signature.ErrTooOld,
			5 * time.Minute: nil, 5*time.Minute + time.Second: signature.ErrTooNew, 5000 * 24 * time.Hour: signature.ErrTooNew,
		} {
			err := verifier(t, scheme, secret).Verify(lookup(single(signer.Sign("m1", body, now.Add(away)))), body)
			require.ErrorIs(t, err, want, "%s %s", scheme, away)
			// The headers are enough: the body of a request outside the window is never read.
			_, err = verifier(t, scheme, second).Headers(lookup(single(signer.Sign("m1", body, now.Add(away)))))
			require.ErrorIs(t, err, want, "%s %s", scheme, away)
		}
	}
}

func TestStandardWebhooks(t *testing.T) {
	t.Parallel()
	seconds := fmt.Sprint(now.Unix())
	key := strings.Repeat("k", 24)
	whsec := "whsec_" + base64.StdEncoding.EncodeToString([]byte(key))
	sign := func(id string) string {
		return "v1," + base64.StdEncoding.EncodeToString(mac(key, id+"."+seconds+"."+string(body)))
	}
	for name, test := range map[string]struct {
		id, given string
		want      error
	}{
		"a secret behind whsec_":                {"m1", sign("m1"), nil},
		"another message's id":                  {"m2", sign("m1"), signature.ErrSignature},
		"no id":                                 {"", sign("m1"), signature.ErrMissing},
		"an id that could be cut elsewhere":     {"m.1", sign("m.1"), signature.ErrMalformed},
		"another version only":                  {"m1", "v2," + strings.TrimPrefix(sign("m1"), "v1,"), signature.ErrMalformed},
		"a good one behind eight that are not":  {"m1", strings.Repeat(sign("x")+" ", 8) + sign("m1"), signature.ErrSignature},
		"a good one behind seven that are not":  {"m1", strings.Repeat(sign("x")+" ", 7) + sign("m1"), nil},
		"two spaces, and none behind the comma": {"m1", "v1,  " + sign("m1"), nil},
	} {
		err := verifier(t, signature.Standard, whsec).Verify(lookup(single(map[string]string{
			"webhook-id": test.id, "webhook-timestamp": seconds, "webhook-signature": test.given,
		})), body)
		require.ErrorIs(t, err, test.want, name)
	}
}

func TestAConfigurationThatProvesNothingIsRefusedAndNoSecretPrinted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scheme    signature.Scheme
		secrets   []string
		tolerance time.Duration
		says      string
	}{
		"no secret":                    {signature.PayNow, nil, time.Minute, ""},
		"an empty secret":              {signature.PayNow, []string{""}, time.Minute, ""},
		"a short secret":               {signature.PayNow, []string{"short-but-secret"}, time.Minute, ""},
		"a short secret beside one":    {signature.PayNow, []string{secret, "short-but-secret"}, time.Minute, "secret 2"},
		"nothing behind whsec_":        {signature.Standard, []string{secret, "whsec_"}, time.Minute, "secret 2"},
		"no base64 behind whsec_":      {signature.Standard, []string{secret, "whsec_not base64 at all, short-but-secret"}, time.Minute, "secret 2"},
		"a short secret behind whsec_": {signature.Standard, []string{secret, "whsec_" + base64.StdEncoding.EncodeToString([]byte("short-but-secret"))}, time.Minute, "secret 2"},
		"an unknown scheme":            {"none", []string{secret}, time.Minute, ""},
		"no window":                    {signature.PayNow, []string{secret}, 0, ""},
		"a window that is negative":    {signature.PayNow, []string{secret}, -time.Second, ""},
	} {
		_, err := signature.NewVerifier(test.scheme, test.secrets, test.tolerance, time.Now)
		require.Error(t, err, name)
		require.ErrorContains(t, err, test.says, name)
		require.NotContains(t, err.Error(), "short-but", name)
	}
	for _, scheme := range []signature.Scheme{signature.Generic, signature.PayNow} {
		_, err := signature.NewSigner(scheme, secret, second)
		require.ErrorContains(t, err, "this scheme takes one secret")
	}
	_, err := signature.NewSigner("none", secret)
	require.Error(t, err)
}

func FuzzVerify(f *testing.F) {
	f.Add("m1", "1772445600", "AAAA", []byte("{}"))
	f.Add("", "", "", []byte(nil))
	f.Add("a.b", "999999999999999999", "v1,AAAA v1,=", []byte("1.2"))
	f.Fuzz(func(t *testing.T, id, stamp, given string, payload []byte) {
		for _, scheme := range []signature.Scheme{signature.PayNow, signature.Generic, signature.Standard} {
			v := verifier(t, scheme, secret)
			// A random signature never matches. Verify refuses whatever Headers refuses.
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
			// A signed webhook is accepted. Any change to it is refused.
			signer, err := signature.NewSigner(scheme, secret)
			require.NoError(t, err)
			headers := single(signer.Sign("m1", payload, now))
			require.NoError(t, v.Verify(lookup(headers), payload))
			require.ErrorIs(t, v.Verify(lookup(headers), append(payload[:len(payload):len(payload)], '.')), signature.ErrSignature)
			for name, values := range headers {
				changed := maps.Clone(headers)
				changed[name] = []string{values[0] + given}
				if err := v.Verify(lookup(changed), payload); given != "" && err == nil {
					// Only a list of signatures may grow and stay valid.
					require.Equal(t, "Webhook-Signature", name)
				}
			}
		}
	})
}

// A receiver that knows one of two secrets takes what both have signed.
func TestEverySecretOfStandardWebhooksSigns(t *testing.T) {
	t.Parallel()
	signer, err := signature.NewSigner(signature.Standard, secret, second)
	require.NoError(t, err)
	signed := lookup(single(signer.Sign("evt-1", body, now)))
	for known, want := range map[string]error{secret: nil, second: nil, "a-third-secret-of-more-than-24-bytes": signature.ErrSignature} {
		require.ErrorIs(t, verifier(t, signature.Standard, known).Verify(signed, body), want)
	}
}
