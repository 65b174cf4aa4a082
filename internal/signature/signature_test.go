package signature_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/signature"
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

// mac is computed here by hand, not by the code under test.
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
		"Standard Webhooks, one of several": {signature.Standard, map[string]string{
			"Webhook-Id": "m1", "Webhook-Timestamp": seconds,
			"Webhook-Signature": "v1,AAAA v1," + base64.StdEncoding.EncodeToString(mac(secret, "m1."+seconds+"."+string(body))) + " v1a,xyz",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, verifier(t, test.scheme, secret).Verify(lookup(single(test.headers)), body))
			require.NoError(t, verifier(t, test.scheme, second, secret).Verify(lookup(single(test.headers)), body), "while rotating")
			require.ErrorIs(t, verifier(t, test.scheme, second).Verify(lookup(single(test.headers)), body), signature.ErrMismatch)
			require.ErrorIs(t, verifier(t, test.scheme, secret).Verify(lookup(single(test.headers)), append(body, ' ')), signature.ErrMismatch)
		})
	}
}

func TestWhatIsSignedHereIsVerifiedHere(t *testing.T) {
	t.Parallel()
	for _, scheme := range []signature.Scheme{signature.PayNow, signature.Generic, signature.Standard} {
		signer, err := signature.NewSigner(scheme, secret)
		require.NoError(t, err)
		require.NoError(t, verifier(t, scheme, secret).Verify(lookup(single(signer.Sign("m1", body, now))), body), scheme)
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
		}, signature.ErrMismatch},
		"a timestamp with a sign":      {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{"-1"} }, signature.ErrMalformed},
		"a timestamp of 30 digits":     {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{strings.Repeat("9", 30)} }, signature.ErrMalformed},
		"a timestamp that was swapped": {func(h map[string][]string) { h["Paynow-Timestamp"] = []string{fmt.Sprint(now.UnixMilli() + 1)} }, signature.ErrMismatch},
		"a timestamp in seconds": {func(h map[string][]string) {
			stamp := fmt.Sprint(now.Unix())
			h["Paynow-Timestamp"] = []string{stamp}
			h["Paynow-Signature"] = []string{base64.StdEncoding.EncodeToString(mac(secret, stamp+"."+string(body)))}
		}, signature.ErrTooOld},
		"at the old edge of the window": {at(now.Add(-5 * time.Minute)), nil},
		"past the old edge":             {at(now.Add(-5*time.Minute - time.Millisecond)), signature.ErrTooOld},
		"at the new edge of the window": {at(now.Add(5 * time.Minute)), nil},
		"past the new edge":             {at(now.Add(5*time.Minute + time.Millisecond)), signature.ErrTooNew},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			headers := maps.Clone(good)
			test.change(headers)
			err := verifier(t, signature.PayNow, secret).Verify(lookup(headers), body)
			if test.want == nil {
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

func FuzzVerify(f *testing.F) {
	f.Add("PayNow", "1", "AAAA", []byte("{}"))
	f.Add("", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, id, stamp, given string, payload []byte) {
		for _, scheme := range []signature.Scheme{signature.PayNow, signature.Generic, signature.Standard} {
			v, err := signature.NewVerifier(scheme, []string{secret}, time.Minute, func() time.Time { return now })
			require.NoError(t, err)
			require.Error(t, v.Verify(func(name string) []string {
				switch {
				case strings.HasSuffix(strings.ToLower(name), "signature"):
					return []string{given}
				case strings.HasSuffix(strings.ToLower(name), "timestamp"):
					return []string{stamp}
				}
				return []string{id}
			}, payload))
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
