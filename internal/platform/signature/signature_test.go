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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, verifier(t, test.scheme, secret).Verify(lookup(single(test.headers)), body))
			require.NoError(t, verifier(t, test.scheme, second, secret).Verify(lookup(single(test.headers)), body), "while rotating")
			require.ErrorIs(t, verifier(t, test.scheme, second).Verify(lookup(single(test.headers)), body), signature.ErrSignature)
			require.ErrorIs(t, verifier(t, test.scheme, secret).Verify(lookup(single(test.headers)), append(body, ' ')), signature.ErrSignature)
		})
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
	signer, err := signature.NewSigner(signature.PayNow, secret)
	require.NoError(t, err)
	good := single(signer.Sign("", body, now))
	at := func(when time.Time) func(map[string][]string) {
		return func(h map[string][]string) { maps.Copy(h, single(signer.Sign("", body, when))) }
	}
	for name, test := range map[string]struct {
		change func(map[string][]string)
		want   error
	}{
		"no signature":       {func(h map[string][]string) { delete(h, "Paynow-Signature") }, signature.ErrMissing},
		"an empty signature": {func(h map[string][]string) { h["Paynow-Signature"] = []string{""} }, signature.ErrMissing},
		"no timestamp":       {func(h map[string][]string) { delete(h, "Paynow-Timestamp") }, signature.ErrMissing},
		"two signatures":     {func(h map[string][]string) { h["Paynow-Signature"] = append(h["Paynow-Signature"], "x") }, signature.ErrMalformed},
		"two timestamps":     {func(h map[string][]string) { h["Paynow-Timestamp"] = append(h["Paynow-Timestamp"], "1") }, signature.ErrMalformed},
		"a short signature":  {func(h map[string][]string) { h["Paynow-Signature"] = []string{"QUJD"} }, signature.ErrMalformed},
		"a long signature":   {func(h map[string][]string) { h["Paynow-Signature"] = []string{h["Paynow-Signature"][0] + "AAAA"} }, signature.ErrMalformed},
		"a signature in hex": {func(h map[string][]string) { h["Paynow-Signature"] = []string{strings.Repeat("ab", 32)} }, signature.ErrMalformed},
		"two paddings":       {func(h map[string][]string) { h["Paynow-Signature"] = []string{h["Paynow-Signature"][0] + "="} }, signature.ErrMalformed},
		"a line break in it": {func(h map[string][]string) { h["Paynow-Signature"] = []string{"\n" + h["Paynow-Signature"][0]} }, signature.ErrMalformed},
		"another signature": {func(h map[string][]string) {
			h["Paynow-Signature"] = []string{base64.StdEncoding.EncodeToString(mac(second, "x"))}
		}, signature.ErrSignature},
		"a timestamp with a plus":  {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{"+1"} }, signature.ErrMalformed},
		"a timestamp of letters":   {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{"1e9"} }, signature.ErrMalformed},
		"a timestamp with a sign":  {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{"-1"} }, signature.ErrMalformed},
		"a timestamp of 19 digits": {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{"1" + strings.Repeat("0", 18)} }, signature.ErrMalformed},
		"base64 with bits that no byte has": {func(h map[string][]string) {
			last := []byte(h["Paynow-Signature"][0])
			last[42]++ // the last character has two unused bits, so four characters decode alike
			h["Paynow-Signature"] = []string{string(last)}
		}, signature.ErrMalformed},
		"a timestamp of 30 digits":     {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{strings.Repeat("9", 30)} }, signature.ErrMalformed},
		"a timestamp that was swapped": {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{fmt.Sprint(now.UnixMilli() + 1)} }, signature.ErrSignature},
		"a timestamp in seconds": {func(h map[string][]string) {
			stamp := fmt.Sprint(now.Unix())
			h["Paynow-Timestamp"] = []string{stamp}
			h["Paynow-Signature"] = []string{base64.StdEncoding.EncodeToString(mac(secret, stamp+"."+string(body)))}
		}, signature.ErrTooOld},
		"past the old edge": {at(now.Add(-5*time.Minute - time.Millisecond)), signature.ErrTooOld},
		"past the new edge": {at(now.Add(5*time.Minute + time.Millisecond)), signature.ErrTooNew},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers := maps.Clone(good)
			test.change(headers)
			v := verifier(t, signature.PayNow, secret)
			require.ErrorIs(t, v.Verify(lookup(headers), body), test.want)
			// Without the body everything is known except whether the signature matches.
			_, err := v.Headers(lookup(headers))
			if errors.Is(test.want, signature.ErrSignature) {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, test.want)
		})
	}
}

func TestAWeakSecretIsRefusedAndNotPrinted(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string][]string{
		"none":             nil,
		"empty":            {""},
		"short":            {"short-but-secret"},
		"short beside one": {secret, "short-but-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := signature.NewVerifier(signature.PayNow, secrets, time.Minute, time.Now)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "short-but")
		})
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

func TestTheLargestTimestampIsTooNew(t *testing.T) {
	t.Parallel()
	for _, stamp := range []string{strings.Repeat("9", 18), strings.Repeat("0", 17) + "1"} {
		for scheme, names := range map[signature.Scheme][2]string{
			signature.PayNow:  {"PayNow-Timestamp", "PayNow-Signature"},
			signature.Generic: {"X-Webhook-Timestamp", "X-Webhook-Signature"},
		} {
			sum := mac(secret, stamp+"."+string(body))
			given := hex.EncodeToString(sum)
			if scheme == signature.PayNow {
				given = base64.StdEncoding.EncodeToString(sum)
			}
			err := verifier(t, scheme, secret).Verify(lookup(single(map[string]string{names[0]: stamp, names[1]: given})), body)
			if stamp[0] == '9' {
				require.ErrorIs(t, err, signature.ErrTooNew)
			} else {
				require.ErrorIs(t, err, signature.ErrTooOld)
			}
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := verifier(t, signature.Standard, whsec).Verify(lookup(single(map[string]string{
				"webhook-id": test.id, "webhook-timestamp": seconds, "webhook-signature": test.given,
			})), body)
			require.ErrorIs(t, err, test.want)
		})
	}
	for _, weak := range []string{"whsec_", "whsec_not base64 at all, never printed", "whsec_" + base64.StdEncoding.EncodeToString([]byte("short-but-secret"))} {
		_, err := signature.NewVerifier(signature.Standard, []string{secret, weak}, time.Minute, time.Now)
		require.ErrorContains(t, err, "secret 2")
		require.NotContains(t, err.Error(), "never printed")
		require.NotContains(t, err.Error(), "short-but")
	}
}

func TestAnUnknownSchemeAndAZeroToleranceAreRefused(t *testing.T) {
	t.Parallel()
	_, err := signature.NewVerifier("none", []string{secret}, time.Minute, time.Now)
	require.Error(t, err)
	_, err = signature.NewSigner("none", secret)
	require.Error(t, err)
	for _, tolerance := range []time.Duration{0, -time.Second} {
		_, err = signature.NewVerifier(signature.PayNow, []string{secret}, tolerance, time.Now)
		require.Error(t, err)
	}
}

func TestVerifyAllocatesLittle(t *testing.T) { //nolint:paralleltest // it counts allocations
	signer, err := signature.NewSigner(signature.PayNow, secret)
	require.NoError(t, err)
	headers := lookup(single(signer.Sign("", body, now)))
	v := verifier(t, signature.PayNow, secret)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		if err := v.Verify(headers, body); err != nil {
			t.Error(err)
		}
	}), 6.0+raceAllocations)
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

func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			payload := make([]byte, size)
			signer, err := signature.NewSigner(signature.PayNow, secret)
			require.NoError(b, err)
			headers := lookup(single(signer.Sign("", payload, now)))
			v, err := signature.NewVerifier(signature.PayNow, []string{secret}, time.Minute, func() time.Time { return now })
			require.NoError(b, err)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Verify(headers, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A receiver that knows one of two secrets takes what both have signed.
func TestEverySecretOfStandardWebhooksSigns(t *testing.T) {
	t.Parallel()
	const other = "another-secret-of-more-than-24-bytes"
	now := func() time.Time { return time.Unix(1_700_000_000, 0) }
	signer, err := signature.NewSigner(signature.Standard, secret, other)
	require.NoError(t, err)
	signed := signer.Sign("evt-1", []byte("body"), now())
	values := func(name string) []string { return []string{signed[name]} }
	for _, known := range []string{secret, other} {
		verifier, err := signature.NewVerifier(signature.Standard, []string{known}, time.Minute, now)
		require.NoError(t, err)
		require.NoError(t, verifier.Verify(values, []byte("body")))
	}
	stranger, err := signature.NewVerifier(signature.Standard, []string{"a-third-secret-of-more-than-24-bytes"}, time.Minute, now)
	require.NoError(t, err)
	require.ErrorIs(t, stranger.Verify(values, []byte("body")), signature.ErrSignature)
	for _, scheme := range []signature.Scheme{signature.Generic, signature.PayNow} {
		_, err := signature.NewSigner(scheme, secret, other)
		require.ErrorContains(t, err, "this scheme takes one secret")
	}
}
