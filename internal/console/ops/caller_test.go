package ops_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
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

// The time of a page may end between a change and its answer.
func TestAChangeThatWasMadeIsNotSaidToHaveFailed(t *testing.T) {
	t.Parallel()
	r := open(t)
	now := func() time.Time { return at }
	api := &ops.API{
		Access: r.access, Log: slog.New(slog.DiscardHandler), Reads: ops.Reads{Store: r.store, Catalog: queues, Now: now},
		Products: &products.Keeper{Store: r.store, Start: queues.Products, Now: now, NewID: uuid.NewString},
	}
	var err error
	guard := ops.NewSessions(api.Access, nil, slog.New(slog.DiscardHandler), now).Guard
	site := guard(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithCancel(request.Context())
		r.store.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
			defer cancel()
			return do()
		}
		err = api.Caller().Call(ctx, http.MethodPut, "/v1/ops/products/hat", map[string]any{"points": 300, "why": "dearer"}, nil)
	}))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/", nil)
	request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	site.ServeHTTP(httptest.NewRecorder(), request)
	require.NoError(t, err)
}
