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
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/compose/operations"
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

func (e *everything) answer(ctx context.Context, method, path string, _, answer any) error {
	e.mu.Lock()
	e.calls = append(e.calls, method+" "+path)
	e.mu.Unlock()
	if e.stalls {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if e.refuses && method != http.MethodGet {
		return serve.Refuse(http.StatusConflict, "changed", hostile)
	}
	if answer != nil {
		fill(reflect.ValueOf(answer).Elem(), 6)
	}
	return nil
}

func (e *everything) Call(ctx context.Context, o console.Operation, in console.Input) (any, error) {
	return declared(ctx, e.answer, o, in)
}

func declared(ctx context.Context, call func(ctx context.Context, method, path string, question, answer any) error, o console.Operation, in console.Input) (any, error) {
	answer, question := o.Answer(), any(nil)
	if len(in.Body) > 0 {
		question = jsontext.Value(in.Body)
	}
	err := call(ctx, o.Method, o.URL(in), question, answer)
	if err != nil {
		return nil, err
	}
	return reflect.ValueOf(answer).Elem().Interface(), nil
}

func fill(v reflect.Value, depth int) {
	switch {
	case depth == 0 || !v.CanSet():
		return
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(noon))
		return
	case v.Type() == reflect.TypeFor[jsontext.Value]():
		text, _ := jsontext.AppendQuote(nil, hostile)
		v.Set(reflect.ValueOf(jsontext.Value(text)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(hostile))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), depth-1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth-1)
		fill(value, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Next" { // the last page
				fill(v.Field(i), depth-1)
			}
		}
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(hostile))
		}
	default:
	}
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
