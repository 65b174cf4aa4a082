package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/console/api"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
)

// routes are those of the API, such as "GET /v1/ops/orders/{id}".
func routes(t *testing.T) (all []string) {
	t.Helper()
	require.NoError(t,
		chi.Walk(served(), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			if strings.HasPrefix(route, "/v1/ops/") {
				all = append(all, method+" "+strings.TrimSuffix(route, "/"))
			}
			return nil
		}))
	return all
}

func served() chi.Router {
	router := chi.NewRouter()
	(&api.Server{Catalog: known()}).Routes(router)
	return router
}

// watched is a fullWorker that shows each request to the API with its route, of which there has to be one.
func watched(t *testing.T, see func(route string, r *http.Request)) (address string) {
	t.Helper()
	api := served()
	return listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if found := chi.NewRouteContext(); strings.HasPrefix(r.URL.Path, "/v1/ops/") {
			assert.True(t, api.Match(found, r.Method, r.URL.EscapedPath()), "there is no %s %s", r.Method, r.URL)
			see(r.Method+" "+found.RoutePattern(), r)
		}
		fullWorker(w, r)
	}))
}

// noWhy are the routes that change something without a reason, as in the API's own test.
var noWhy = []string{
	"POST /v1/ops/operations/{id}/run", "POST /v1/ops/events/try", "POST /v1/ops/endpoints/{id}/test",
}

// notCalled are the routes that no command calls, each with the reason.
var notCalled = map[string]string{
	"POST /v1/ops/cleanup":     "a task does it",
	"GET /v1/ops/openapi.json": "it is for programs",
}

// TestEveryRouteIsCalledByACommand runs every command. Each prints one JSON document, calls routes
// that exist, and gives a reason where it changes something.
func TestEveryRouteIsCalledByACommand(t *testing.T) {
	t.Parallel()
	all := routes(t)
	var called sync.Map
	worker := watched(t, func(route string, r *http.Request) {
		called.Store(route, true)
		if r.Method != http.MethodGet {
			var reason struct{ Why string }
			_ = json.NewDecoder(r.Body).Decode(&reason) // no body has no reason
			assert.NotEqual(t, slices.Contains(noWhy, route), strings.TrimSpace(reason.Why) != "",
				"%s: it needs a reason, or an entry in noWhy", route)
		}
	})
	t.Run("commands", func(t *testing.T) {
		useAll(t, worker, []string{"--json"}, func(*program) {}, func(t *testing.T, _, out string, err error) {
			require.NoError(t, err)
			decoder := json.NewDecoder(strings.NewReader(out))
			var document any
			require.NoError(t, decoder.Decode(&document), out)
			require.ErrorIs(t, decoder.Decode(&document), io.EOF, "one document: %s", out)
		})
	})
	for _, route := range all {
		_, is := called.Load(route)
		require.NotEqual(t, is, notCalled[route] != "",
			"%s: it needs a command that calls it, or an entry in notCalled", route)
	}
}

func TestNoCommandChangesAnythingWithoutAReason(t *testing.T) {
	t.Parallel()
	worker := watched(t, func(route string, r *http.Request) {
		if r.Method != http.MethodGet {
			assert.Contains(t, noWhy, route, "without a reason a command only reads")
		}
	})
	reasons := 0
	for _, command := range leaves(t) {
		if command.Flag("why") != nil {
			reasons++
		}
	}
	require.Greater(t, reasons, 20)
	useAll(t, worker, []string{"--why="}, func(*program) {}, func(t *testing.T, name, _ string, err error) {
		require.Equal(t, misused, serve.ExitCode(err), "%s: %v", name, err)
	})
	_, err := say(t, nil, "stock", "set", "mug", "--available", "1", "--why", "  ")
	require.ErrorContains(t, err, "--why: say why, for the audit", "a blank is no reason")
}

// TestNoCommandPrintsTerminalControls runs every command against a worker whose answers have, as each
// text, one that clears the screen, reverses the direction of the line and begins another.
func TestNoCommandPrintsTerminalControls(t *testing.T) {
	t.Parallel()
	worker := listen(t, http.HandlerFunc(fullWorker))
	evil := func(p *program) {
		p.decode = func(_ []byte, into any) error {
			operationstest.Fill(reflect.ValueOf(into).Elem(), "evil\x1b[2J\u202e\u009b1m\nid: forged")
			return nil
		}
	}
	printed := atomic.Int64{}
	t.Cleanup(func() { require.Greater(t, printed.Load(), int64(60), "others' texts are printed") })
	for _, form := range []string{"--wide", "--json"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			useAll(t, worker, []string{form}, evil, func(t *testing.T, command, out string, err error) {
				for line := range strings.SplitSeq(fmt.Sprint(out, err), "\n") {
					require.Equal(t, audit.Escape(line), line, command)
				}
				require.NotContains(t, out, "\nid: forged", command)
				if strings.Contains(out, `\u202e`) {
					printed.Add(1)
				}
			})
		})
	}
}
