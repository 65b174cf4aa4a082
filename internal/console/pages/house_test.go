package pages_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/docs/reference"
	"billhook/internal/compose/operations"
	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/pages"
	"billhook/internal/filetest"
	"billhook/internal/platform/serve"
)

type house struct {
	http.Handler
	routes chi.Routes
	api    *everything
}

func openHouse(t *testing.T, guarded access.Access) *house {
	t.Helper()
	api := &everything{}
	router := opened(t, api, operations.All(operations.Apps{}), guarded, 0)
	return &house{router, router, api}
}

// visited sends a request as a browser on this machine does.
func visited(
	t testing.TB, site http.Handler, method, path, form string, change func(*http.Request),
) *httptest.ResponseRecorder {
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

func (h *house) visits(
	t *testing.T, method, path string, form url.Values, change func(*http.Request),
) *httptest.ResponseRecorder {
	t.Helper()
	w := visited(t, h, method, path, form.Encode(), change)
	// each answer keeps its page to itself; /ops leads to /ops/
	if at, _, _ := strings.Cut(path, "?"); at != "/ops" && !strings.HasPrefix(at, "/ops/static/") {
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; " +
				"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin",
		} {
			require.Equal(t, want, w.Header().Get(name), path)
		}
	}
	return w
}

// opened are the pages over an API, at noon.
func opened(
	t testing.TB, api pages.Caller, declared *console.Catalog, guarded access.Access, longest time.Duration,
) chi.Router {
	t.Helper()
	log, now := slog.New(slog.NewTextHandler(t.Output(), nil)), func() time.Time { return noon }
	site := &pages.Pages{
		API: api, Declared: declared, Sessions: &access.Sessions{
			Access: guarded, Local: []byte("by chance"), Log: log, Now: now,
		}, Catalog: catalogtest.Shipped(),
		Log: log, Now: now, Longest: longest,
	}
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
	require.NoError(t,
		chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
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

var (
	badges = regexp.MustCompile(`<span class="status[^>]*>[^<]*`)
	values = regexp.MustCompile(`<(?:td data-label="([^"]+)"[^>]*|dd|strong|p)>\s*([A-Za-z][A-Za-z0-9_]*)\s*<`)
)

// requireExplained finds a code on a page that leads to no entry of the reference.
func requireExplained(t *testing.T, path, page string) {
	t.Helper()
	require.NotRegexp(t, badges, page, "%s shows a state without a link", path)
	for _, value := range values.FindAllStringSubmatch(page, -1) {
		label, text := value[1], value[2]
		stated := slices.Contains([]string{"State", "Status", "Reason", "Result"}, label)
		// The state of a subscription is a word of its provider's.
		if strings.Contains(text, "_") || text != strings.ToLower(text) || stated && text != "active" {
			require.Nil(t, reference.Entries(text), "%s shows %s without a link", path, text)
		}
	}
}

const opsToken = "0123456789abcdef01234567"

func TestALookChangesNothingAndShowsWhatOthersHaveWrittenAsText(t *testing.T) {
	t.Parallel()
	h := openHouse(t, local)
	person, shown, looks := h.signedIn(t, "ada"), 0, 0
	walk(t, h.routes, hostile, func(method, _, path string) {
		h.api.refuses = method == http.MethodPost
		if method == http.MethodGet {
			before := len(h.api.called())
			w := h.visits(t, method, path+"?"+url.Values{
				"q": {hostile}, "id": {hostile}, "type": {hostile}, "reason": {hostile}, "page": {hostile},
			}.Encode(), nil, person)
			for _, call := range h.api.called()[before:] {
				require.True(t, strings.HasPrefix(call, http.MethodGet+" "), call)
				looks++
			}
			if strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") { // a file is no page
				return
			}
			requireHarmless(t, path, w.Body.String())
			if strings.Contains(w.Body.String(), "b id=hostile") {
				shown++
			}
			return
		}
		form := url.Values{}
		for _, field := range fields.FindAllStringSubmatch(h.visits(t, http.MethodGet, path, nil, person).
			Body.String(), -1) {
			form.Set(field[1], hostile)
		}
		requireHarmless(t, path, h.visits(t, method, path, form, person).Body.String())
	})
	require.Greater(t, shown, 20, "it is shown")
	require.Greater(t, looks, 20)
}

func TestNoPageWaitsForAStoreThatHasStalled(t *testing.T) {
	t.Parallel()
	h := openHouse(t, local)
	person, stalled := h.signedIn(t, "ada"), 0
	h.api.stalls = true
	filetest.Bubble(t, func(t *testing.T) {
		walk(t, h.routes, "x", func(method, _, path string) {
			begun := time.Now()
			w := h.visits(t, method, path, url.Values{"why": {"w"}}, person)
			require.LessOrEqual(t, time.Since(begun), 4*time.Second, path)
			if w.Code == http.StatusServiceUnavailable {
				require.Contains(t, w.Body.String(), "within 4 seconds.", path)
				require.Contains(t, w.Header().Get("Content-Type"), "text/html")
				require.Equal(t, method == http.MethodPost, strings.Contains(w.Body.String(),
					"Whether it was done is not known"), "%s %s", method, path)
				stalled++
			}
		})
	})
	require.Greater(t, stalled, 20)
}

func TestAChangeThatAnotherSiteSendsIsNotMade(t *testing.T) {
	t.Parallel()
	h := openHouse(t, local)
	person := h.signedIn(t, "ada")
	for name, header := range map[string]http.Header{ // the package access has all
		"another site":           {"Sec-Fetch-Site": {"cross-site"}},
		"nobody says where from": {},
		"a name that leads here": {"Host": {"rebound.example"}, "Origin": {"http://rebound.example"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			walk(t, h.routes, "x", func(method, _, path string) {
				// that removes the cookie of another name
				if method != http.MethodPost || (path == "/ops/sign-out" && header.Get("Host") != "") {
					return
				}
				w := h.visits(t, method, path, url.Values{"why": {"w"}, "name": {"eve"}}, func(r *http.Request) {
					person(r)
					r.Header.Del("Sec-Fetch-Site")
					maps.Copy(r.Header, header)
					if host := header.Get("Host"); host != "" {
						r.Host = host
					}
				})
				require.Equal(t, http.StatusForbidden, w.Code, path)
				require.Empty(t, w.Result().Cookies(), path)
			})
			require.Empty(t, h.api.called(), "the API is not called")
		})
	}
}

func (e *everything) called() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

func TestALinkOfAnotherSiteLeadsToThePageByItself(t *testing.T) {
	t.Parallel()
	h := openHouse(t, access.Access{Tokens: []string{opsToken}})
	elsewhere := func(mode, dest string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", mode)
			r.Header.Set("Sec-Fetch-Dest", dest)
		}
	}
	w := h.visits(t, http.MethodGet, "/ops/dead-letters?queue=x", nil, elsewhere("navigate", "document"))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "0; url=/ops/dead-letters?queue=x", w.Header().Get("Refresh"), "with its cookie then")
	require.Contains(t, w.Body.String(), `href="/ops/dead-letters?queue=x"`)
	for _, other := range [][2]string{{"no-cors", "image"}, {"navigate", "iframe"}, {"cors", "empty"}} {
		require.Equal(t, http.StatusForbidden, h.visits(t, http.MethodGet, "/ops/", nil,
			elsewhere(other[0], other[1])).Code)
	}
	require.Empty(t, h.api.called())
}

func TestAFileIsKeptForAsLongAsItIsThatFile(t *testing.T) {
	t.Parallel()
	h := openHouse(t, access.Access{Tokens: []string{opsToken}})
	address := regexp.MustCompile(`/ops/static/[0-9a-f]+/ops\.css`).FindString(h.visits(t, http.MethodGet,
		"/ops/sign-in", nil, nil).Body.String())
	zipped := h.visits(t, http.MethodGet, address, nil, func(r *http.Request) {
		r.Header.Set("Accept-Encoding", "gzip")
	})
	require.Equal(t, "gzip", zipped.Header().Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", zipped.Header().Get("Vary"))
	require.Contains(t, zipped.Header().Get("Cache-Control"), "immutable")
	reader := filetest.Must(gzip.NewReader(bytes.NewReader(zipped.Body.Bytes())))(t)
	body := filetest.Must(io.ReadAll(reader))(t)
	plain := h.visits(t, http.MethodGet, address, nil, nil)
	require.Equal(t, plain.Body.String(), string(body))
	require.Contains(t, plain.Header().Get("Content-Type"), "text/css")
	older := h.visits(t, http.MethodGet, "/ops/static/000000000000/ops.css", nil, nil)
	require.Equal(t, http.StatusOK, older.Code, "a page of another release is not left bare")
	require.Equal(t, "no-store", older.Header().Get("Cache-Control"))
	require.Equal(t, http.StatusNotFound, h.visits(t, http.MethodGet, "/ops/static/000000000000/pages.go",
		nil, nil).Code)
	require.Equal(t, http.StatusBadRequest, h.visits(t, http.MethodGet, "/ops/static/..%2Ftemplates/layout.html",
		nil, nil).Code)
}
