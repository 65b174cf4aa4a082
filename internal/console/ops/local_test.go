package ops_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
)

func TestOpenAccessNeedsTheMachinesOwnHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8081": 200, "LocalHost:8081": 200, "127.0.0.1": 200, "127.0.0.1:8081": 200, "127.5.6.7:1": 200,
		"[::1]": 200, "[::1]:8081": 200, "[::ffff:127.0.0.1]:8081": 200,

		"rebound.example": 403, "rebound.example:8081": 403, "localhost.rebound.example": 403, "127.0.0.1.rebound.example": 403,
		"rebound.example:127.0.0.1": 403, "localhost.": 403, "xlocalhost": 403, "0.0.0.0:8081": 403, "[::]:8081": 403, "192.0.2.7:8081": 403,
		"127.0.0.1@rebound.example": 403, "128.0.0.1": 403, "": 403, ":8081": 403,
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			for _, ask := range []func(*http.Request){
				func(*http.Request) {},
				func(request *http.Request) { request.Header.Set("X-Operator", "ada") },
				func(request *http.Request) { request.Header.Set("Sec-Fetch-Site", "same-origin") },
			} {
				got := r.ask(t, "/v1/ops/events", func(request *http.Request) {
					ask(request)
					request.Host = host
				}, nil)
				require.Equal(t, want, got.Code)
				if want == http.StatusForbidden {
					require.Contains(t, got.Body.String(), `"code":"host_not_local"`)
				}
			}
			got := r.ask(t, "/v1/ops/stock/hat", func(request *http.Request) {
				stocks(request)
				request.Host = host
				request.Header.Set("Origin", "http://"+host)
			}, nil)
			require.Equal(t, want, got.Code, "a page that was led here by its own name changes nothing")
		})
	}
}

func TestATokenIsTakenUnderAnyName(t *testing.T) {
	t.Parallel()
	r := newRig(t, ops.Access{Tokens: []string{token}, OpenOnLoopback: true})
	got := r.ask(t, "/v1/ops/events", func(request *http.Request) {
		request.Host = "worker.example"
		request.Header.Set("Authorization", "Bearer "+token)
	}, nil)
	require.Equal(t, http.StatusOK, got.Code)
	closed := newRig(t, ops.Access{Tokens: []string{token}})
	got = closed.ask(t, "/v1/ops/events", func(request *http.Request) { request.Host = "worker.example" }, nil)
	require.Equal(t, http.StatusUnauthorized, got.Code, "where a token is asked for, the name says nothing")
}

func TestOpenAccessRefusesOtherSites(t *testing.T) {
	t.Parallel()
	r := open(t)
	for name, test := range map[string]struct {
		header, value string
		want          int
	}{
		"a program":                   {"Accept", "*/*", 200},
		"a page of the API's own":     {"Sec-Fetch-Site", "same-origin", 200},
		"an address that was typed":   {"Sec-Fetch-Site", "none", 200},
		"its own origin":              {"Origin", "http://127.0.0.1:8081", 200},
		"another site":                {"Sec-Fetch-Site", "cross-site", 403},
		"another port":                {"Sec-Fetch-Site", "same-site", 403},
		"another origin":              {"Origin", "https://rebound.example", 403},
		"another port's origin":       {"Origin", "http://127.0.0.1:3000", 403},
		"an origin that is not named": {"Origin", "null", 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, ask := range []func() *httptest.ResponseRecorder{
				func() *httptest.ResponseRecorder {
					return r.ask(t, "/v1/ops/events", func(request *http.Request) { request.Header.Set(test.header, test.value) }, nil)
				},
				func() *httptest.ResponseRecorder {
					return r.ask(t, "/v1/ops/stock/hat", func(request *http.Request) {
						stocks(request)
						request.Header.Set(test.header, test.value)
					}, nil)
				},
			} {
				got := ask()
				require.Equal(t, test.want, got.Code)
				if test.want == http.StatusForbidden {
					require.Contains(t, got.Body.String(), `"code":"cross_origin"`)
				}
			}
		})
	}
}

func TestAChangeThatNamesSomethingTwiceIsRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.bury(t, 1, "unknown_product", []byte(`{}`))
	for name, body := range map[string]string{
		"the queue twice":             `{"queue":"refunds","queue":"orders","expect":1,"why":"mended"}`,
		"the queue twice, alike":      `{"queue":"orders","queue":"orders","expect":1,"why":"mended"}`,
		"the number twice":            `{"queue":"orders","expect":1,"expect":1,"why":"mended"}`,
		"force twice":                 `{"queue":"orders","expect":1,"why":"mended","force":false,"force":true}`,
		"a name twice, once escaped":  `{"queue":"orders","expect":1,"why":"mended","\u0077hy":"else"}`,
		"a name with a capital":       `{"Queue":"orders","expect":1,"why":"mended"}`,
		"a name beside its capital":   `{"queue":"orders","expect":1,"why":"mended","Force":true}`,
		"a name that nobody knows":    `{"queue":"orders","expect":1,"why":"mended","more":1}`,
		"something behind it":         `{"queue":"orders","expect":1,"why":"mended"}{"force":true}`,
		"text that is not UTF-8":      `{"queue":"orders","expect":1,"why":"` + "\xff" + `"}`,
		"nothing":                     ``,
		"a number that is a fraction": `{"queue":"orders","expect":1.5,"why":"mended"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{"replay", "discard"} {
				got := r.post(t, "/v1/ops/dead-letters/"+kind, body, "ada")
				require.Equal(t, http.StatusBadRequest, got.Code, got.Body.String())
				require.Contains(t, got.Body.String(), `"code":"body_malformed"`)
			}
		})
	}
}
