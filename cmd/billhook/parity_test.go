package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
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
	"POST /v1/ops/events/try":    "the preview of an operation has what would become of each",
	"GET /v1/ops/pauses":         "the list of queues says which are paused",
	"GET /v1/ops/customers/{id}": "pages ask for the preview, which is there for a customer of nobody too",
	"GET /v1/ops/events/tail":    "the list of events refreshes itself",
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
		examplesOf(t, server.URL, []string{"--json"}, func(t *testing.T, _, _ string, err error) { t.Helper(); require.NoError(t, err) })
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

// noWhy are the routes that are no look, and for which no command takes a reason, as in the API's own test.
var noWhy = []string{
	"POST /v1/ops/cleanup", "POST /v1/ops/operations/{id}/run",
	"POST /v1/ops/events/try", "POST /v1/ops/endpoints/{id}/test",
}

// TestEveryCommandThatChangesSomethingNeedsAReason runs each example with a blank reason: nothing is asked of the
// API then but looks. And it runs each as it is: what is asked takes a reason.
func TestEveryCommandThatChangesSomethingNeedsAReason(t *testing.T) {
	t.Parallel()
	api := chi.NewRouter()
	(&ops.API{}).Routes(api)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := chi.NewRouteContext()
		if strings.HasPrefix(r.URL.Path, "/v1/ops/") && api.Match(found, r.Method, r.URL.EscapedPath()) && r.Method != http.MethodGet {
			route := r.Method + " " + found.RoutePattern()
			var reason ops.Reason
			_ = json.NewDecoder(r.Body).Decode(&reason) // no body has no reason
			assert.NotEqual(t, slices.Contains(noWhy, route), strings.TrimSpace(reason.Why) != "", "%s: either it is given a reason, or noWhy has it", route)
		}
		fullWorker(w, r)
	}))
	t.Cleanup(server.Close)
	t.Run("as they are", func(t *testing.T) {
		t.Parallel()
		examplesOf(t, server.URL, nil, func(*testing.T, string, string, error) {})
	})
	reasons := 0
	for _, command := range leaves(t) {
		if command.Flag("why") != nil {
			reasons++
		}
	}
	require.Greater(t, reasons, 20)
	refused := func(t *testing.T, name, _ string, err error) {
		t.Helper()
		if name != "dlq show" { // its payload alone takes a reason
			require.Equal(t, misused, exitOf(err), "%s: %v", name, err)
		}
	}
	t.Run("without a reason", func(t *testing.T) {
		t.Parallel()
		examplesOf(t, server.URL, []string{"--why="}, refused)
	})
	t.Run("with a blank reason", func(t *testing.T) {
		t.Parallel()
		examplesOf(t, server.URL, []string{"--why=  "}, refused)
	})
}

// filed is a worker whose answers are those that pages got.
type filed struct {
	filledAPI
	answers map[string]string
}

func (f filed) Call(ctx context.Context, method, path string, question, answer any) error {
	err := f.filledAPI.Call(ctx, method, path, question, answer)
	at, _, _ := strings.Cut(path, "?")
	found := chi.NewRouteContext()
	if text, encoded := json.Marshal(answer); encoded == nil && f.calls.of.Match(found, method, at) {
		if route := method + " " + found.RoutePattern(); len(text) > len(f.answers[route]) {
			f.answers[route] = string(text)
		}
	}
	return err
}

// toFile are the commands whose output is for another program, byte by byte.
var toFile = map[string]string{
	"usage export": "CSV, whose cells are ids, times and numbers",
	"ledger prove": "a proof, whose bytes are hashed",
}

// TestNoCommandPrintsWhatATerminalActsOn runs every example against a worker whose answers have, as each text, one that
// clears the screen, turns the direction of the line and begins another.
func TestNoCommandPrintsWhatATerminalActsOn(t *testing.T) {
	t.Parallel()
	const hostile = "evil\x1b[2J\u202e\u009b1m\nid: forged"
	api := chi.NewRouter()
	(&ops.API{}).Routes(api)
	answers := filed{filledAPI{t, &asked{of: api, routes: map[string]bool{}}, false}, map[string]string{}}
	site := walker{t: t, site: siteOver(t, answers), links: true, visited: map[string]bool{}}
	site.all()
	for route, answer := range map[string]any{"POST /v1/ops/events/try": &dryrun.Trial{}, "GET /v1/ops/customers/{id}": &customers.State{}} {
		fill(reflect.ValueOf(answer).Elem(), 0)
		text, err := json.Marshal(answer)
		require.NoError(t, err)
		answers.answers[route] = strings.Replace(string(text), `"next":"sample"`, `"next":""`, 1)
	}
	text, err := json.Marshal(hostile)
	require.NoError(t, err)
	for route, answer := range answers.answers {
		// It is over, so that nobody waits for it.
		answer = strings.ReplaceAll(answer, `"progress":"sample"`, `"progress":"finished"`)
		answers.answers[route] = strings.ReplaceAll(answer, `"sample"`, string(text))
	}
	printed := atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found := chi.NewRouteContext()
		if strings.HasPrefix(r.URL.Path, "/v1/ops/") && api.Match(found, r.Method, r.URL.EscapedPath()) {
			if answer := answers.answers[r.Method+" "+found.RoutePattern()]; answer != "" {
				_, _ = io.WriteString(w, answer)
				return
			}
		}
		fullWorker(w, r)
	}))
	t.Cleanup(server.Close)
	harmless := func(t *testing.T, command, out string, err error) {
		t.Helper()
		if toFile[command] != "" {
			return
		}
		for line := range strings.SplitSeq(fmt.Sprint(out, err), "\n") {
			require.Equal(t, audit.Escape(line), line, command)
		}
		require.NotContains(t, out, "\nid: forged", command)
		if strings.Contains(out, `\u202e`) {
			printed.Add(1)
		}
	}
	t.Cleanup(func() { require.Greater(t, printed.Load(), int64(60), "others' texts are printed") })
	t.Run("as text", func(t *testing.T) {
		t.Parallel()
		examplesOf(t, server.URL, []string{"--wide"}, harmless)
	})
	t.Run("as JSON", func(t *testing.T) {
		t.Parallel()
		examplesOf(t, server.URL, []string{"--json"}, harmless)
	})
}
