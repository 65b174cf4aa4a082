package access_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/access"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

var at = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

const (
	token = "0123456789abcdef01234567"
	next  = "76543210fedcba9876543210"
	far   = "192.0.2.7:1"
	here  = "127.0.0.1:1"
)

func codeOf(body string) string {
	_, after, _ := strings.Cut(body, `"code":"`)
	code, _, _ := strings.Cut(after, `"`)
	return code
}

type identities struct{}

func (identities) Identify(_ context.Context, header http.Header) (string, error) {
	switch said := header.Get("X-Test-Identity"); said {
	case "":
		return "", fmt.Errorf("%w: none", serve.ErrNoToken)
	case "away":
		return "", fmt.Errorf("%w: keys", serve.ErrKeysUnavailable)
	case "eve":
		return "", fmt.Errorf("%w: email", serve.ErrNotAllowed)
	case "nobody":
		return "", nil
	case "ada", "token-desk":
		return said + "@example.org", nil
	default:
		return "", errors.New("forged")
	}
}

var statusOf = map[string]int{
	"unauthorized": 401, "identity_invalid": 401, "forbidden": 403, "identity_not_allowed": 403,
	"host_not_local": 403, "cross_origin": 403,
	"operator_invalid": 400, "identity_unavailable": 503,
}

func TestEachSenderIsLetInUnderTheirNameOrRefused(t *testing.T) {
	t.Parallel()
	closed := access.Access{Tokens: []string{token, next}}
	accesses := map[string]access.Access{
		"closed": closed, "none": {}, "empty": {Tokens: []string{""}},
		"both":  {Tokens: []string{token}, Identifier: identities{}},
		"local": {Tokens: []string{token}, Identifier: identities{}, OpenOnLoopback: true},
	}
	const bearer = "Bearer " + token
	type row struct {
		Access, Peer, Want string // Want is who, or the code of the refusal
		Headers            map[string]string
	}
	all := filetest.YAML[map[string]row](t, "testdata", "senders.yaml")
	named := func(name string) row {
		return row{
			"both", "far", "operator_invalid", map[string]string{"Authorization": bearer, "X-Operator": name},
		}
	}
	for want, hosts := range map[string][]string{
		"local": {
			"localhost", "LocalHost:8081", "127.0.0.1", "127.0.0.1:8081", "127.5.6.7:1", "[::1]", "[::1]:8081",
			"[::ffff:127.0.0.1]:8081",
		},
		"host_not_local": {
			"rebound.example", "rebound.example:8081", "localhost.rebound.example", "127.0.0.1.rebound.example",
			"rebound.example:127.0.0.1", "localhost.", "xlocalhost", "0.0.0.0:8081", "[::]:8081", "192.0.2.7:8081",
			"127.0.0.1@rebound.example", "128.0.0.1", "", ":8081",
		},
	} {
		for _, host := range hosts {
			all["open there, under "+host] = row{"local", "here", want, map[string]string{"Host": host}}
		}
	}
	all["the token, under another name"] = row{
		"local", "here", "token", map[string]string{"Authorization": bearer, "Host": "worker.example"},
	}
	all["the token, by a long name"] = named(strings.Repeat("a", 129))
	all["the token, by a long address"] = named(strings.Repeat("a", 120) + "@example.org")
	filetest.Each(t, all, func(t *testing.T, test row) {
		who := ""
		site := accesses[test.Access].Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			who = access.Who(r.Context())
		}))
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		request.Host = "localhost:8081"
		request.RemoteAddr = cmp.Or(map[string]string{"far": far, "here": here}[test.Peer], test.Peer)
		for name, value := range test.Headers {
			request.Header[http.CanonicalHeaderKey(name)] = []string{value}
			if name == "Host" {
				request.Host = value
			}
		}
		answer := httptest.NewRecorder()
		site.ServeHTTP(answer, request)
		status, refused := statusOf[test.Want]
		if !refused {
			require.Equal(t, test.Want, who, answer.Body)
			return
		}
		require.Empty(t, who)
		require.Equal(t, []any{status, test.Want}, []any{answer.Code, codeOf(answer.Body.String())})
		require.NotContains(t, answer.Body.String(), token)
		require.Equal(t, status == http.StatusUnauthorized, answer.Header().Get("WWW-Authenticate") != "")
		require.Equal(t, status == http.StatusServiceUnavailable, answer.Header().Get("Retry-After") != "")
	})
	two := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	two.Header = http.Header{"Authorization": {bearer}, "X-Operator": {"ada", "eve"}}
	answer := httptest.NewRecorder()
	closed.Guard(http.NotFoundHandler()).ServeHTTP(answer, two)
	require.Equal(t, "operator_invalid", codeOf(answer.Body.String()), "two names")
	require.Empty(t, access.Who(t.Context()))
}

var localKey = []byte("a key of this process, by chance")

type sessions struct {
	*access.Sessions
	now time.Time
	log bytes.Buffer
}

func sessionsOf(guarded access.Access) *sessions {
	d := &sessions{now: at}
	d.Sessions = &access.Sessions{
		Access: guarded, Local: localKey, Log: slog.New(slog.NewJSONHandler(&d.log, nil)), Now: func() time.Time {
			return d.now
		},
	}
	return d
}

func asks(t *testing.T, method, peer string, cookies ...*http.Cookie) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/ops/", nil)
	r.RemoteAddr, r.Host = peer, "localhost:8081"
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return r
}

func (d *sessions) enters(r *http.Request) (who string) {
	w := httptest.NewRecorder()
	refuse := func(w http.ResponseWriter, _ *http.Request, problem *serve.Problem) { problem.Write(w) }
	d.Guard(refuse)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		who = access.Who(r.Context())
	})).ServeHTTP(w, r)
	if who == "" {
		who = codeOf(w.Body.String())
	}
	return who
}

func (d *sessions) signsIn(t *testing.T, peer, shown, name string) *http.Cookie {
	t.Helper()
	return filetest.Must(d.SignIn(asks(t, http.MethodPost, peer), shown, name))(t)
}

func (d *sessions) refuses(t *testing.T, r *http.Request, shown, name string) string {
	t.Helper()
	_, err := d.SignIn(r, shown, name)
	var problem *serve.Problem
	require.ErrorAs(t, err, &problem)
	return problem.Code
}

func TestWhoeverShowsTheTokenIsLetInForTwelveHours(t *testing.T) {
	t.Parallel()
	d := sessionsOf(access.Access{Tokens: []string{next, token}})
	cookie := d.signsIn(t, far, token, "ada@example.org")
	require.True(t, cookie.HttpOnly && cookie.Secure && cookie.SameSite == http.SameSiteStrictMode)
	require.Equal(t, "__Host-billhook-ops", cookie.Name, "of this host alone")
	require.Equal(t, []any{"/", "", 12 * 60 * 60}, []any{cookie.Path, cookie.Domain, cookie.MaxAge})
	require.NotContains(t, cookie.Value+d.log.String(), token)
	require.Equal(t, "token:ada@example.org", d.enters(asks(t, http.MethodPost, far, cookie)))

	another := sessionsOf(access.Access{Tokens: []string{token}})
	require.Equal(t, "token:ada@example.org", another.enters(asks(t, http.MethodGet, far, cookie)),
		"another instance knows it")
	rotated := sessionsOf(access.Access{Tokens: []string{next}})
	require.Equal(t, "sign_in_needed", rotated.enters(asks(t, http.MethodGet, far, cookie)),
		"it ends with the token")
	d.now = at.Add(access.SessionLife - time.Second)
	require.Equal(t, "token:ada@example.org", d.enters(asks(t, http.MethodGet, far, cookie)))
	d.now = at.Add(access.SessionLife)
	require.Equal(t, "sign_in_needed", d.enters(asks(t, http.MethodGet, far, cookie)),
		"use does not make it longer")

	gone := d.SignOut(asks(t, http.MethodPost, far))
	require.Equal(t, []any{cookie.Name, cookie.Path, "", true},
		[]any{gone.Name, gone.Path, gone.Value, gone.MaxAge < 0})
}

func TestAForgedSessionIsNone(t *testing.T) {
	t.Parallel()
	d := sessionsOf(access.Access{Tokens: []string{token, ""}, OpenOnLoopback: true})
	good := d.signsIn(t, far, token, "ada")
	local := d.signsIn(t, here, "", "ada")
	at := strings.LastIndex(good.Value, ".")
	text, mac := good.Value[:at], good.Value[at+1:]
	head, claims, _ := strings.Cut(text, ".")
	ofNobody, err := access.Sealed(access.KeyOf(""), audit.Author{Proof: audit.SharedToken, Name: "eve"},
		d.now.Add(time.Hour))
	require.NoError(t, err)
	encoded := base64.RawURLEncoding.EncodeToString
	later := sessionsOf(access.Access{Tokens: []string{token}})
	later.now = d.now.Add(2 * time.Hour)
	ahead := later.signsIn(t, far, token, "ada")
	filetest.Each(t, map[string]string{
		"nothing":      "",
		"no MAC":       text,
		"an empty MAC": text + ".",
		"the MAC of another text": head + "." +
			encoded([]byte(`{"sub":"token:eve","exp":99999999999}`)) + "." + mac,
		"no algorithm":              encoded([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + claims + ".",
		"a MAC with a bit turned":   text + "." + encoded(append([]byte{1}, make([]byte, 31)...)),
		"the MAC of an empty token": ofNobody,
		"the MAC of another token": sessionsOf(access.Access{Tokens: []string{next}}).signsIn(t, far, next,
			"eve").Value,
		"a local one from elsewhere":     local.Value,
		"one that lasts longer":          ahead.Value,
		"a long one":                     strings.Repeat("a", 5000) + "." + mac,
		"text that is no base64":         "!!!." + mac,
		"base64 with bits that are lost": text + "." + mac[:len(mac)-1] + "~",
	}, func(t *testing.T, value string) {
		for _, cookie := range []string{good.Name, local.Name} {
			require.Equal(t, "sign_in_needed",
				d.enters(asks(t, http.MethodGet, far, &http.Cookie{Name: cookie, Value: value})))
		}
	})
	require.Equal(t, "token:ada", d.enters(asks(t, http.MethodGet, far, good)))
}

func TestANameAloneLetsInOnThisMachine(t *testing.T) {
	t.Parallel()
	d := sessionsOf(access.Access{OpenOnLoopback: true})
	require.Equal(t, "local", d.enters(asks(t, http.MethodGet, here)), "to look takes no name")
	cookie := d.signsIn(t, here, "", "ada")
	require.True(t, cookie.HttpOnly && !cookie.Secure && cookie.SameSite == http.SameSiteStrictMode)
	require.Equal(t, []string{"billhook-ops", "/ops"}, []string{cookie.Name, cookie.Path})
	require.Equal(t, "local:ada", d.enters(asks(t, http.MethodPost, here, cookie)))
	require.Equal(t, "sign_in_needed", d.enters(asks(t, http.MethodGet, far, cookie)))
	rebound := asks(t, http.MethodGet, here, cookie)
	rebound.Host = "rebound.example"
	require.Equal(t, "host_not_local", d.enters(rebound))
	require.Equal(t, "token_not_accepted", d.refuses(t, rebound, "", "eve"))
	require.Equal(t, "token_not_accepted", d.refuses(t, asks(t, http.MethodPost, far), "", "eve"),
		"elsewhere a name is nothing")
	closed := sessionsOf(access.Access{Tokens: []string{token}})
	require.Equal(t, "token_not_accepted", closed.refuses(t, asks(t, http.MethodPost, here), "", "eve"))
	restarted := &access.Sessions{
		Access: access.Access{OpenOnLoopback: true}, Local: []byte("another"), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return at },
	}
	again := &sessions{Sessions: restarted}
	require.Equal(t, "local", again.enters(asks(t, http.MethodGet, here, cookie)), "it ends with its process")
}

func TestAnIdentityNeedsNoSession(t *testing.T) {
	t.Parallel()
	d := sessionsOf(access.Access{Tokens: []string{token}, Identifier: identities{}})
	cookie := d.signsIn(t, far, token, "eve")
	for identity, want := range map[string]string{
		"ada": "ada@example.org", "eve": "identity_not_allowed", "away": "identity_unavailable",
		"forged": "identity_invalid", "nobody": "forbidden", "": "token:eve",
	} {
		r := asks(t, http.MethodGet, far, cookie)
		r.Header.Set("X-Test-Identity", identity)
		require.Equal(t, want, d.enters(r), "what is proven, or wrong, counts before a cookie")
	}
	bearer := asks(t, http.MethodGet, far)
	bearer.Header.Set("Authorization", "Bearer "+token)
	require.Equal(t, "token", d.enters(bearer))
}

func TestATokenOrANameThatIsWrongIsRefusedAndNotLogged(t *testing.T) {
	t.Parallel()
	d := sessionsOf(access.Access{Tokens: []string{token}, OpenOnLoopback: true})
	for range 50 {
		require.Equal(t, "token_not_accepted", d.refuses(t, asks(t, http.MethodPost, far), next, "eve"))
	}
	for _, name := range []string{
		"", "ada l", "ada\nwho=eve", "<b>", "ada|x", "a\u202eb", strings.Repeat("a", 129), token,
	} {
		for _, shown := range []string{token, ""} {
			require.Equal(t, "name_invalid", d.refuses(t, asks(t, http.MethodPost, here), shown, name), "%q", name)
		}
	}
	require.NotContains(t, d.log.String(), token)
	require.NotContains(t, d.log.String(), next)
	d.signsIn(t, far, token, "ada") // nobody is locked out by the wrong tokens of others
}

func TestAPageIsAskedForFromItsOwnSite(t *testing.T) {
	t.Parallel()
	d := sessionsOf(access.Access{Tokens: []string{token}, OpenOnLoopback: true})
	cookie := d.signsIn(t, far, token, "ada")
	for _, test := range []struct{ site, origin, look, send string }{
		{"same-origin", "", "token:ada", "token:ada"},
		{"none", "", "token:ada", "token:ada"},                   // an address that was typed
		{"", "https://localhost:8081", "token:ada", "token:ada"}, // an old browser's own page
		{"", "", "token:ada", "origin_unknown"},                  // a program
		{"cross-site", "", "cross_origin", "cross_origin"},
		{"same-site", "", "cross_origin", "cross_origin"},            // another port or subdomain
		{"", "https://evil.example", "cross_origin", "cross_origin"}, // an old browser's other page
		{"", "null", "cross_origin", "cross_origin"},
		{"cross-site", "https://localhost:8081", "cross_origin", "cross_origin"},
	} {
		for _, peer := range []string{far, here} {
			for method, want := range map[string]string{http.MethodGet: test.look, http.MethodPost: test.send} {
				r := asks(t, method, peer, cookie)
				for name, value := range map[string]string{"Sec-Fetch-Site": test.site, "Origin": test.origin} {
					if r.Header.Del(name); value != "" {
						r.Header.Set(name, value)
					}
				}
				require.Equal(t, want, d.enters(r), "%v: %s from %s", test, method, peer)
			}
		}
	}
}
