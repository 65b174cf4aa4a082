package main

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/internal/ops"
)

// asked are the routes of the API that were asked, by method and pattern.
type asked struct {
	of chi.Routes

	mu     sync.Mutex
	routes map[string]bool
}

func (a *asked) add(t *testing.T, method, path string) {
	t.Helper()
	if !strings.HasPrefix(path, "/v1/ops/") {
		return
	}
	found := chi.NewRouteContext()
	if !assert.True(t, a.of.Match(found, method, path), "the API has no route for %s %s", method, path) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.routes[method+" "+found.RoutePattern()] = true
}

// routesOf lists the routes of the API for people by method and pattern.
func routesOf(t *testing.T, api chi.Routes) []string {
	t.Helper()
	all := map[string]bool{}
	require.NoError(t, chi.Walk(api, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if strings.HasPrefix(route, "/v1/ops/") {
			all[method+" "+strings.TrimSuffix(route, "/")] = true
		}
		return nil
	}))
	return slices.Sorted(maps.Keys(all))
}

// fullWorker answers what has one of everything, so that a command asks all that it may ask.
func fullWorker(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/dead-letters/preview"):
		_, _ = w.Write([]byte(`{"total":1}`))
	case strings.HasPrefix(r.URL.Path, "/v1/ops/operations/"), strings.HasPrefix(r.URL.Path, "/v1/ops/dead-letters/"):
		_, _ = w.Write([]byte(`{"id":"operation","progress":"finished","outcomes":{}}`))
	case r.URL.Path == "/v1/ops/journal/tenants":
		_, _ = w.Write([]byte(`{"items":["default"]}`))
	case strings.HasPrefix(r.URL.Path, "/v1/ops/usage/"):
		_, _ = w.Write([]byte(`{"period":"2026-11","meters":{"calls":{}}}`))
	default:
		emptyWorker(w, r)
	}
}

// noCommand are the routes that no example of a command asks for, and noPage those that no page does.
var noCommand = map[string]string{
	"GET /v1/ops/pauses": "billhook doctor asks for it; its example is not run, for it asks Pub/Sub",
}

var noPage = map[string]string{
	"POST /v1/ops/events/compare": "it takes the files of another catalog",
	"GET /v1/ops/pauses":          "the list of queues says which are paused",
	"GET /v1/ops/customers/{id}":  "pages ask for the preview, which is there for a customer of nobody too",
	"GET /v1/ops/events/tail":     "the page's script asks for it, and the page without a script for GET /v1/ops/events",
}

// TestWhateverAPageDoesACommandDoesByTheSameCall compares what was asked for while every example of the
// command line ran with what was asked for while every page was looked at and every form sent.
func TestWhateverAPageDoesACommandDoesByTheSameCall(t *testing.T) {
	t.Parallel()
	api := chi.NewRouter()
	(&ops.API{}).Routes(api)
	commands, site := asked{of: api, routes: map[string]bool{}}, asked{of: api, routes: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		commands.add(t, r.Method, r.URL.EscapedPath())
		fullWorker(w, r)
	}))
	t.Cleanup(server.Close)
	t.Run("examples", func(t *testing.T) {
		examplesOf(t, server.URL, func(*testing.T, string, string) {})
	})
	for _, empty := range []bool{false, true} {
		w := walker{t: t, site: siteOver(t, filledAPI{t, &site, empty}), links: !empty, visited: map[string]bool{}}
		w.all()
	}
	routes := routesOf(t, api)
	for _, route := range routes {
		if site.routes[route] && !commands.routes[route] {
			assert.Contains(t, noCommand, route, "a page asks for it, and no example of a command does")
		}
		assert.NotEqual(t, commands.routes[route], noCommand[route] != "", "%s: either the example of a command asks for it, or noCommand says why none does", route)
		assert.NotEqual(t, site.routes[route], noPage[route] != "", "%s: either a page asks for it, or noPage says why none does", route)
	}
	for _, reasons := range []map[string]string{noCommand, noPage} {
		for route := range reasons {
			assert.Contains(t, routes, route, "there is no such route")
		}
	}
}
