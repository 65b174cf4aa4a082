package pages_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/compose/operations"
	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/pages"
	"billhook/internal/platform/serve"
)

type house struct {
	http.Handler
	routes chi.Routes
	api    *everything
}

func openHouse(t *testing.T, guarded access.Access) *house {
	t.Helper()
	c := catalogtest.Shipped()
	log, now := slog.New(slog.DiscardHandler), func() time.Time { return noon }
	sessions := access.NewSessions(guarded, []byte("by chance"), log, now)
	api := &everything{}
	router := routed(t, pages.Config{API: api, Declared: operations.All(operations.Apps{}), Sessions: sessions, Catalog: c, Log: log, Now: now})
	return &house{router, router, api}
}

// visited asks as a browser on this machine does.
func visited(t testing.TB, site http.Handler, method, path, form string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	site.ServeHTTP(w, r)
	return w
}

func (h *house) visits(t *testing.T, method, path string, form url.Values, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	return visited(t, h, method, path, form.Encode(), change)
}

func routed(t testing.TB, config pages.Config) chi.Router {
	t.Helper()
	site, err := pages.New(config)
	require.NoError(t, err)
	router := chi.NewRouter()
	site.Routes(router)
	return router
}

func from(peer string, cookies ...*http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = peer
		for _, c := range cookies {
			r.AddCookie(c)
		}
	}
}

// hostile is what somebody else may have written: markup, and characters that a screen acts on.
const hostile = "\"'><b id=hostile>&amp;\x1b[2J\u202eevil\u2066\x07"

// everything is an API that answers any question with a value in each field, every text of which is hostile.
type everything struct {
	refuses bool
	stalls  bool

	mu    sync.Mutex
	calls []string
}

func (e *everything) Call(ctx context.Context, o console.Operation, in console.Input) (any, error) {
	e.mu.Lock()
	e.calls = append(e.calls, o.Method+" "+o.URL(in))
	e.mu.Unlock()
	if e.stalls {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if e.refuses && o.Method != http.MethodGet {
		return nil, serve.Refuse(http.StatusConflict, "changed", hostile)
	}
	answer := reflect.ValueOf(o.Answer()).Elem()
	operationstest.Fill(answer, hostile)
	return answer.Interface(), nil
}

func walk(t *testing.T, routes chi.Routes, id string, visit func(method, route, path string)) {
	t.Helper()
	seen := 0
	require.NoError(t, chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if strings.HasSuffix(route, "*") {
			return nil
		}
		seen++
		visit(method, route, regexp.MustCompile(`\{[^}]+\}`).ReplaceAllLiteralString(route, url.PathEscape(id)))
		return nil
	}))
	require.Greater(t, seen, 20)
}

var local = access.Access{OpenOnLoopback: true}

func (h *house) signedIn(t *testing.T, name string) func(*http.Request) {
	t.Helper()
	w := h.visits(t, http.MethodPost, "/ops/sign-in", url.Values{"name": {name}}, nil)
	require.Equal(t, http.StatusSeeOther, w.Code)
	return from("127.0.0.1:4711", w.Result().Cookies()...)
}

var (
	inlined = regexp.MustCompile(`(?i)<style|<[a-z]+[^>]*\s(on[a-z]+|style)=|<script(\s[^>]*)?>[^<]|javascript:`)
	fields  = regexp.MustCompile(`<(?:input|textarea|select)[^>]*\sname="([a-z_]+)"`)
)

func requireHarmless(t *testing.T, path, body string) {
	t.Helper()
	require.NotContains(t, body, "<b id=hostile", path)
	require.NotRegexp(t, inlined, body, path)
	for _, r := range body {
		if (unicode.IsControl(r) && r != '\n') || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Bidi_Control, r) {
			require.Failf(t, "a character that is not seen", "%U on %s", r, path)
		}
	}
}
