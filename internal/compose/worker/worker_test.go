package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

type nowhere struct{}

func (nowhere) Publish(context.Context, string, contract.Message) (string, error) {
	return "", errors.New("no answer")
}

type anyone struct{}

func (anyone) Verify(context.Context, string) error { return nil }

// postedTo are the targets of a catalog, all of them at one place.
func postedTo(t *testing.T, c *catalog.Catalog, url string) delivery.Targets {
	t.Helper()
	targets, err := delivery.Open(c, "", func(catalog.Target) (string, []string) {
		return url, []string{"a-secret-of-more-than-24-bytes"}
	}, time.Now)
	require.NoError(t, err)
	return targets
}

func config(t *testing.T, change func(*worker.Config)) worker.Config {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	targets := postedTo(t, shipped, "http://127.0.0.1:1")
	c := worker.Config{
		Catalog: shipped, Targets: targets, Store: db, Publisher: nowhere{}, Authenticator: anyone{}, Access: ops.Access{OpenOnLoopback: true},
		Log: slog.New(slog.DiscardHandler), Metrics: telemetry.NewMetrics(), Now: time.Now,
	}
	if change != nil {
		change(&c)
	}
	return c
}

func TestAWorkerThatCouldNotWorkIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*worker.Config)
		want   []string
	}{
		"a pool that no queue is in": {func(c *worker.Config) { c.Pool = "swimming" }, []string{"POOL names a pool that no queue is in"}},
		"a catalog whose handlers nobody registered": {func(c *worker.Config) {
			c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: []catalog.Queue{
				{ID: "orders", Enabled: true, Contract: contract.PayNowV1, Handlers: map[string]catalog.Handler{"order.paid": {Name: "points.lose"}}},
				{ID: "mails", Enabled: true, Contract: "message.v2"},
			}}
		}, []string{
			`queue orders: event type order.paid: no handler is registered as "points.lose"`,
			"queue mails: contract message.v2 is not a body format that is known",
		}},
		"a catalog that does not list whom a handler tells": {func(c *worker.Config) {
			q, ok := c.Catalog.HandledBy("subscriptions.record")
			require.True(t, ok)
			q.Handlers["trial.canceled"] = catalog.Handler{Name: "subscriptions.record"}
			q.Handlers["order.refunded"] = catalog.Handler{Name: "points.reverse", Emits: []string{"fis-domain-events"}}
		}, []string{
			`event type trial.canceled: subscriptions.record emits to ["pay-subscription-update"], and the catalog lists []`,
			`event type order.refunded: points.reverse emits to [], and the catalog lists ["fis-domain-events"]`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := worker.New(config(t, test.change))
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestAMainMayRegisterHandlersOfItsOwn(t *testing.T) {
	t.Parallel()
	_, err := worker.New(config(t, func(c *worker.Config) {
		c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: []catalog.Queue{
			{ID: "orders", Enabled: true, Contract: contract.PayNowV1, Handlers: map[string]catalog.Handler{"order.paid": {Name: "points.lose"}}},
		}}
		c.Handlers = func(r *handler.Registry) {
			r.Tx("points.lose", func(context.Context, handler.Event) (handler.Effect, error) { return handler.Effect{}, nil })
		}
	}))
	require.NoError(t, err)
}

func TestAWorkerServesAllItsDoors(t *testing.T) {
	t.Parallel()
	w, err := worker.New(config(t, nil))
	require.NoError(t, err)
	for request, want := range map[string]int{
		"GET /health/live": 200, "GET /health/ready": 200, "GET /metrics": 404, "GET /v1/ops/events/e1": 404,
		"POST /push/nobody": 404, "GET /push/nobody": 405, "GET /nothing": 404,
	} {
		require.Equal(t, want, ask(t, w, request), request)
	}
}

type nobody struct{}

func (nobody) Verify(context.Context, string) error { return auth.ErrInvalid }

// A sender that may not push may not call tasks either.
func TestAWorkerOpensNoDoorWithoutAToken(t *testing.T) {
	t.Parallel()
	w, err := worker.New(config(t, func(c *worker.Config) { c.Authenticator = nobody{} }))
	require.NoError(t, err)
	paths := []string{"/push/nobody", "/push/dead-letters/nobody"}
	for _, name := range tasks.Names {
		paths = append(paths, "/tasks/"+name)
	}
	for _, path := range paths {
		require.Equal(t, http.StatusUnauthorized, ask(t, w, "POST "+path), path)
	}
}

// crooked is a store that panics with somebody's address.
type crooked struct{ store.Store }

func (crooked) Query(context.Context, store.Query) (store.Page, error) { panic("ilse@example.org") }

func TestAPanicIsAnsweredAndItsValueIsNotLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	w, err := worker.New(config(t, func(c *worker.Config) {
		c.Store, c.Log = crooked{c.Store}, slog.New(slog.NewJSONHandler(&log, nil))
	}))
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, ask(t, w, "GET /v1/ops/endpoints"))
	require.Contains(t, log.String(), `"msg":"panic"`)
	require.NotContains(t, log.String(), "ilse")
}

func TestAWorkerServesTheQueuesOfItsPoolAlone(t *testing.T) {
	t.Parallel()
	c := config(t, nil)
	enabled := 0
	for _, q := range c.Catalog.Queues {
		if !q.Enabled {
			continue
		}
		enabled++
		w, err := worker.New(config(t, func(c *worker.Config) { c.Pool = q.Pool }))
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, ask(t, w, "POST "+q.PushPath()), "served: an empty body is no push")
		for _, other := range c.Catalog.Queues {
			if other.Pool == q.Pool {
				continue
			}
			w, err := worker.New(config(t, func(c *worker.Config) { c.Pool = other.Pool }))
			require.NoError(t, err)
			require.Equal(t, http.StatusNotFound, ask(t, w, "POST "+q.PushPath()))
			break
		}
	}
	require.Positive(t, enabled)
}

func TestADrainingWorkerIsNotReadyAndRefusesPushes(t *testing.T) {
	t.Parallel()
	w, err := worker.New(config(t, nil))
	require.NoError(t, err)
	w.Drain()
	require.Equal(t, http.StatusServiceUnavailable, ask(t, w, "GET /health/ready"))
	require.Equal(t, http.StatusServiceUnavailable, ask(t, w, "POST /push/nobody"))
	require.Equal(t, http.StatusOK, ask(t, w, "GET /health/live"))
}

func ask(t *testing.T, h http.Handler, request string) int {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	return asked(h, method, path, "").Code
}
