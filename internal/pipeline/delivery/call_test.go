package delivery_test

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/delivery"
	"billhook/internal/platform/signature"
	"billhook/internal/retry"
)

// target is one without limits, whose answers a test gives.
func target(t testing.TB, answer http.HandlerFunc) *delivery.Target {
	t.Helper()
	return at(t, delivery.Config{BaseURL: callee(t, answer)})
}

func TestACallIsSignedAndCarriesItsKeyAndItsContentType(t *testing.T) {
	t.Parallel()
	for want, request := range map[string]delivery.Request{
		"POST /base/v1/payments [evt-1] application/json : {}": {Method: http.MethodPost, Path: "/v1/payments", Body: []byte("{}")},
		"PUT /base/_bulk [evt-1] application/x-ndjson : {}\n":  {Method: http.MethodPut, Path: "_bulk", ContentType: "application/x-ndjson", Body: []byte("{}\n")},
		"GET /base/v1/payments/evt-1 []  : ":                   {Method: http.MethodGet, Path: "/v1/payments/evt-1"},
		"POST /base [evt-1] application/json : ":               {Method: http.MethodPost},
	} {
		url, requests := recorded(t, signature.Generic, secret)
		request.ID = "evt-1"
		answer, err := at(t, delivery.Config{BaseURL: url + "/base"}).Call(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, delivery.Answer{Status: http.StatusOK}, answer)
		require.Equal(t, []string{want}, *requests)
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
