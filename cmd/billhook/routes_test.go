package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/apps/products"
	"billhook/internal/apps/usage"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
)

// routeOf is the route of the API that a request asks for, such as "GET /v1/ops/orders/{id}"; empty: it is none.
func routeOf(api chi.Routes, r *http.Request) string {
	found := chi.NewRouteContext()
	if !strings.HasPrefix(r.URL.Path, "/v1/ops/") || !api.Match(found, r.Method, r.URL.EscapedPath()) {
		return ""
	}
	return r.Method + " " + found.RoutePattern()
}

// routes are those of the API for people.
func routes(t *testing.T) (api chi.Router, all []string) {
	t.Helper()
	api = chi.NewRouter()
	(&ops.API{}).Routes(api)
	require.NoError(t, chi.Walk(api, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if strings.HasPrefix(route, "/v1/ops/") {
			all = append(all, method+" "+strings.TrimSuffix(route, "/"))
		}
		return nil
	}))
	return api, all
}

// noWhy are the routes that are no look, and for which no command takes a reason, as in the API's own test.
var noWhy = []string{"POST /v1/ops/operations/{id}/run", "POST /v1/ops/events/try", "POST /v1/ops/endpoints/{id}/test"}

// noExample are the routes that no example asks for, each with the reason.
var noExample = map[string]string{
	"GET /v1/ops/pauses":   "billhook doctor asks for it; its example is not run, for it asks Pub/Sub",
	"POST /v1/ops/cleanup": "a task does it",
}

// TestEveryRouteHasACommandWhoseExampleAsksForIt runs every example. Each prints one JSON document, asks for routes
// that there are, and gives a reason where it changes something.
func TestEveryRouteHasACommandWhoseExampleAsksForIt(t *testing.T) {
	t.Parallel()
	api, all := routes(t)
	var asked sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := routeOf(api, r)
		if strings.HasPrefix(r.URL.Path, "/v1/ops/") {
			assert.NotEmpty(t, route, "the API has no route for %s %s", r.Method, r.URL)
			asked.Store(route, true)
			if r.Method != http.MethodGet {
				var reason ops.Reason
				_ = json.NewDecoder(r.Body).Decode(&reason) // no body has no reason
				assert.NotEqual(t, slices.Contains(noWhy, route), strings.TrimSpace(reason.Why) != "", "%s: either it is given a reason, or noWhy has it", route)
			}
		}
		fullWorker(w, r)
	}))
	t.Cleanup(server.Close)
	t.Run("examples", func(t *testing.T) {
		examplesOf(t, server.URL, []string{"--json"}, func(t *testing.T, name, out string, err error) {
			t.Helper()
			require.NoError(t, err)
			if name == "usage export" || name == "events tail" {
				return // lines, and there are none
			}
			decoder := json.NewDecoder(strings.NewReader(out))
			var document any
			require.NoError(t, decoder.Decode(&document), out)
			require.ErrorIs(t, decoder.Decode(&document), io.EOF, "one document: %s", out)
		})
	})
	for _, route := range all {
		_, is := asked.Load(route)
		require.NotEqual(t, is, noExample[route] != "", "%s: either the example of a command asks for it, or noExample says why none does", route)
	}
}

func TestNoCommandChangesAnythingWithoutAReason(t *testing.T) {
	t.Parallel()
	api, _ := routes(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route := routeOf(api, r); r.Method != http.MethodGet && route != "" {
			assert.Contains(t, noWhy, route, "nothing is asked of the API but looks")
		}
		fullWorker(w, r)
	}))
	t.Cleanup(server.Close)
	reasons := 0
	for _, command := range leaves(t) {
		if command.Flag("why") != nil {
			reasons++
		}
	}
	require.Greater(t, reasons, 20)
	for _, why := range []string{"", "  "} {
		t.Run("why="+why, func(t *testing.T) {
			t.Parallel()
			examplesOf(t, server.URL, []string{"--why=" + why}, func(t *testing.T, name, _ string, err error) {
				t.Helper()
				if name != "dlq show" { // its payload alone takes a reason
					require.Equal(t, misused, exitOf(err), "%s: %v", name, err)
				}
			})
		})
	}
}

// The answers that several routes have.
type (
	changes = ops.List[audit.Entry]
	letters = ops.List[deadletter.Item]
)

// answersOf are the values that the API answers with, and the routes below /v1/ops/ that answer with each.
var answersOf = []struct {
	answer any
	routes []string
}{
	{&ops.Account{}, []string{"GET accounts/{account}"}},
	{&changes{}, []string{
		"GET audit", "GET customers/{id}/changes", "GET endpoints/{id}/changes", "GET products/{id}/changes",
		"GET queues/{id}/changes", "GET stock/{id}/changes",
	}},
	{&ops.Declared{}, []string{"GET catalog"}},
	{&ops.ContractDeclaration{}, []string{"GET catalog/contracts/{id}"}},
	{&ops.QueueDeclaration{}, []string{"GET catalog/queues/{id}"}},
	{&customers.State{}, []string{
		"GET customers/{id}", "GET customers/{id}/preview", "DELETE customers/{id}",
	}},
	{&ops.Activity{}, []string{"GET customers/{id}/activity"}},
	{&customers.Linked{}, []string{"PUT customers/{id}"}},
	{&letters{}, []string{"GET dead-letters", "GET operations/{id}/items"}},
	{&ops.Preview{}, []string{"GET dead-letters/preview", "GET operations/{id}/preview"}},
	{&ops.List[deadletter.Reason]{}, []string{"GET dead-letters/reasons"}},
	{&ops.Letter{}, []string{"GET dead-letters/{id}", "POST dead-letters/{id}/payload"}},
	{&deadletter.Operation{}, []string{
		"POST dead-letters/complete", "POST dead-letters/discard", "POST dead-letters/replay",
		"POST operations/{id}/approve", "POST operations/{id}/cancel", "POST operations/{id}/reject",
		"POST operations/{id}/run",
	}},
	{&ops.List[endpoints.Endpoint]{}, []string{"GET endpoints"}},
	{&endpoints.Secret{}, []string{"POST endpoints", "POST endpoints/{id}/rotate"}},
	{&endpoints.Endpoint{}, []string{
		"GET endpoints/{id}", "POST endpoints/{id}/enable", "POST endpoints/{id}/disable",
		"DELETE endpoints/{id}",
	}},
	{&endpoints.Tested{}, []string{"POST endpoints/{id}/test"}},
	{&ops.List[ops.Line]{}, []string{"GET events"}},
	{&ops.Event{}, []string{"GET events/{event_id}"}},
	{&ops.Payload{}, []string{"POST events/{event_id}/payload"}},
	{&dryrun.Trial{}, []string{"POST events/try"}},
	{&seal.TrialBalance{}, []string{"GET journal/balances"}},
	{&ops.List[ops.JournalEntry]{}, []string{"GET journal/entries"}},
	{&ops.JournalEntry{}, []string{"GET journal/entries/{entry}"}},
	{&ops.Proof{}, []string{"GET journal/entries/{entry}/proof"}},
	{&ops.List[journal.Period]{}, []string{"GET journal/periods"}},
	{&ops.Period{}, []string{"GET journal/periods/{period}"}},
	{&journal.Period{}, []string{
		"POST journal/periods/{period}/close", "POST journal/periods/{period}/reopen",
	}},
	{&ledger.Entry{}, []string{"POST journal/entries/{entry}/revert"}},
	{&ops.List[seal.Seal]{}, []string{"GET journal/seals"}},
	{&ops.List[string]{}, []string{"GET journal/tenants"}},
	{&seal.Verified{}, []string{"GET journal/verify", "GET journal/verify/rest"}},
	{&ops.List[deadletter.Operation]{}, []string{"GET operations"}},
	{&ops.Operation{}, []string{"GET operations/{id}"}},
	{&ops.List[orders.Order]{}, []string{"GET orders"}},
	{&orders.Order{}, []string{"GET orders/{id}"}},
	{&ops.Lanes{}, []string{"GET outbox"}},
	{&ops.List[products.Product]{}, []string{"GET products"}},
	{&products.Product{}, []string{"GET products/{id}", "PUT products/{id}", "DELETE products/{id}"}},
	{&ops.Queues{}, []string{"GET queues"}},
	{&ops.QueueDetail{}, []string{"GET queues/{id}"}},
	{&ops.QueuePause{}, []string{
		"GET queues/{id}/pause", "POST queues/{id}/pause", "POST queues/{id}/resume",
	}},
	{&ops.Rates{}, []string{"GET rates"}},
	{&ops.List[payments.Refund]{}, []string{"GET refunds"}},
	{&payments.Refund{}, []string{"GET refunds/{payment}"}},
	{&ops.Search{}, []string{"GET search"}},
	{&ops.Status{}, []string{"GET status"}},
	{&ops.List[orders.Stock]{}, []string{"GET stock"}},
	{&orders.Stock{}, []string{"GET stock/{id}", "PUT stock/{id}"}},
	{&ops.Subscription{}, []string{"GET subscriptions/{subscription}"}},
	{&ops.List[usage.Total]{}, []string{"GET usage"}},
	{&ops.Usage{}, []string{"GET usage/{subscription}"}},
	{&ops.List[usage.Entry]{}, []string{"GET usage/{subscription}/entries"}},
	{&ops.Elsewhere{}, []string{"GET waiting"}},
}

// fill sets what can be set: texts to "sample", numbers to 1, and lists to one of their items. A token of
// a further page stays empty: a list ends.
func fill(v reflect.Value, depth int) {
	if !v.CanSet() || depth > 6 {
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)))
		return
	case []byte:
		v.SetBytes([]byte(`{"sample":1}`)) // JSON is bytes too
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("sample")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`{"sample":1}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Next" || v.Type().Field(i).Type.Kind() != reflect.String {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf("sample"))
		}
	default:
	}
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
	hostile, err := json.Marshal("evil\x1b[2J\u202e\u009b1m\nid: forged")
	require.NoError(t, err)
	api, all := routes(t)
	// A list ends, and an operation is over, so that nobody waits for it.
	evil := strings.NewReplacer(
		`"next":"sample"`, `"next":""`, `"progress":"sample"`, `"progress":"finished"`, `"sample"`, string(hostile),
	)
	answers := map[string]string{}
	for _, of := range answersOf {
		fill(reflect.ValueOf(of.answer).Elem(), 0)
		text, err := json.Marshal(of.answer)
		require.NoError(t, err)
		for _, route := range of.routes {
			answers[strings.Replace(route, " ", " /v1/ops/", 1)] = evil.Replace(string(text))
		}
	}
	for _, route := range all {
		if noExample[route] == "" && route != "GET "+tailPath {
			require.NotEmpty(t, answers[route], "answersOf has nothing for %s", route)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := answers[routeOf(api, r)]; answer != "" {
			_, _ = io.WriteString(w, answer)
			return
		}
		fullWorker(w, r)
	}))
	t.Cleanup(server.Close)
	printed := atomic.Int64{}
	t.Cleanup(func() { require.Greater(t, printed.Load(), int64(60), "others' texts are printed") })
	for _, form := range []string{"--wide", "--json"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			examplesOf(t, server.URL, []string{form}, func(t *testing.T, command, out string, err error) {
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
			})
		})
	}
}
