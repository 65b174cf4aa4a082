package delivery_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/delivery"
	"billhook/internal/platform/signature"
	"billhook/internal/retry"
)

// target is one without limits, whose answers a test gives.
func target(t testing.TB, answer http.HandlerFunc) *delivery.Target {
	t.Helper()
	target, err := delivery.New(delivery.Config{Target: service, BaseURL: callee(t, answer) + "/base", Secret: secret, Now: clock})
	require.NoError(t, err)
	t.Cleanup(target.Close)
	return target
}

func TestACallIsSignedAndCarriesItsKeyAndItsContentType(t *testing.T) {
	t.Parallel()
	verifier, err := signature.NewVerifier(signature.Generic, []string{secret}, time.Second, clock)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		request delivery.Request
		want    string
	}{
		"a body of JSON": {delivery.Request{Method: http.MethodPost, Path: "/v1/payments", ID: "evt-1", Body: []byte("{}")},
			"POST /base/v1/payments evt-1 application/json {}"},
		"a body of another kind": {delivery.Request{Method: http.MethodPut, Path: "_bulk", ID: "evt-1", ContentType: "application/x-ndjson", Body: []byte("{}\n")},
			"PUT /base/_bulk evt-1 application/x-ndjson {}\n"},
		"a question":            {delivery.Request{Method: http.MethodGet, Path: "/v1/payments/evt-1", ID: "evt-1"}, "GET /base/v1/payments/evt-1   "},
		"the base URL as it is": {delivery.Request{Method: http.MethodPost, ID: "evt-1"}, "POST /base evt-1 application/json "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got string
			answer, err := target(t, func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || verifier.Verify(r.Header.Values, body) != nil {
					t.Error("the signature is not over what arrived")
				}
				got = strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Type"), string(body)}, " ")
			}).Call(t.Context(), test.request)
			require.NoError(t, err)
			require.Equal(t, delivery.Answer{Status: http.StatusOK}, answer)
			require.Equal(t, test.want, got)
		})
	}
}

func TestACallReturnsNoMoreThanWasAskedFor(t *testing.T) {
	t.Parallel()
	say := func(status int, body string, chunked bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !chunked {
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			}
			w.WriteHeader(status)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		most   int64
		want   delivery.Answer
		reason string
	}{
		"a body within the bound":             {say(200, "12345", false), 5, delivery.Answer{Status: 200, Body: []byte("12345")}, ""},
		"a body beyond it":                    {say(200, "123456", false), 5, delivery.Answer{Status: 200}, "callee_answer_too_long"},
		"a body beyond it, of unknown length": {say(200, "123456", true), 5, delivery.Answer{Status: 200}, "callee_answer_too_long"},
		"a body that nobody wants":            {say(200, "123456", false), 0, delivery.Answer{Status: 200}, ""},
		"no body":                             {say(200, "", false), 5, delivery.Answer{Status: 200, Body: []byte{}}, ""},
		"a refusal with its reasons":          {say(402, "12345", true), 5, delivery.Answer{Status: 402, Body: []byte("12345")}, "callee_refused_402"},
		"a refusal with too many of them":     {say(402, "123456", true), 5, delivery.Answer{Status: 402}, "callee_refused_402"},
		"a body that breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "123")
		}, 5, delivery.Answer{}, "callee_unreachable"},
		"a refusal that breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "123")
		}, 5, delivery.Answer{Status: 502}, "callee_failed_502"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := target(t, test.answer).Call(t.Context(), delivery.Request{Method: http.MethodPost, ID: "evt-1", MaxAnswer: test.most})
			require.Equal(t, test.want, answer)
			if test.reason == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, test.reason, retry.Decide(err).Reason)
			require.NotContains(t, err.Error(), "123", "nothing of a body is repeated")
		})
	}
}

func TestACallWithoutAnIdSendsNothing(t *testing.T) {
	t.Parallel()
	_, err := target(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") }).Call(t.Context(), delivery.Request{Method: http.MethodPost, ID: "a\r\nb"})
	require.EqualError(t, err, "key_invalid")
}
