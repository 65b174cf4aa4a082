package ops_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/internal/ops"
	"billhook/internal/serve"
)

// A page of the same router asks the API, whose routes are not the page's.
func TestAPageCallsTheAPIAsThePersonWhoWasLetIn(t *testing.T) {
	t.Parallel()
	r := open(t)
	api := &ops.API{
		Operator: operatorOf(r.store), Access: r.access, Log: slog.New(slog.DiscardHandler),
		Reads: ops.Reads{Store: r.store, Catalog: queues, Now: func() time.Time { return at }},
	}
	caller := api.Caller()
	require.Error(t, caller.Call(t.Context(), http.MethodGet, "/v1/ops/queues", nil, nil), "nobody asks")

	var found ops.Queues
	var refused error
	router := chi.NewRouter()
	router.Route("/ops/", func(r chi.Router) {
		r.Use(ops.NewSessions(api.Access, nil, slog.New(slog.DiscardHandler), func() time.Time { return at }).Guard)
		r.Get("/page/{id}", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Person", ops.Who(r.Context()))
			if err := caller.Call(r.Context(), http.MethodGet, "/v1/ops/queues", nil, &found); err != nil {
				w.WriteHeader(http.StatusTeapot)
			}
			refused = caller.Call(r.Context(), http.MethodPost, "/v1/ops/dead-letters/replay", ops.Request{Why: "tried"}, nil)
		})
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/page/7", nil)
	request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	request.Header.Set("X-Operator", "ann")
	w := httptest.NewRecorder()
	router.ServeHTTP(w, request)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "local:ann", w.Header().Get("Person"))
	require.Len(t, found.Items, len(queues.Queues))
	var problem *serve.Problem
	require.ErrorAs(t, refused, &problem)
	require.Equal(t, "queue_unknown", problem.Code)
}
