package worker_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/compose/system"
	"billhook/internal/compose/worker"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/store"
)

func TestInvalidConfigurationOfAWorkerIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*worker.Config)
		want   []string
	}{
		"a pool without queues": {
			func(c *worker.Config) { c.Pool = "swimming" }, []string{"POOL names a pool that no queue is in"},
		},
		"a catalog with unregistered handlers": {func(c *worker.Config) {
			c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: []catalog.Queue{
				{
					ID: "orders", Enabled: true, Contract: contract.PaymentV1,
					Handlers: map[string]catalog.Handler{"order.paid": {Name: "points.lose"}},
				},
				{ID: "mails", Enabled: true, Contract: "message.v2"},
			}}
		}, []string{
			`queue orders: event type order.paid: no handler is registered as "points.lose"`,
			"queue mails: contract message.v2 is not a body format that is known",
		}},
		"a catalog that delivers to endpoints without a target for them": {
			func(c *worker.Config) { c.Catalog.Endpoints = catalog.Endpoints{} }, []string{
				"targets.yaml: endpoints: is missing, and a queue delivers to them",
			},
		},
	} {
		c := config(t, test.change)
		_, err := worker.New(c)
		for _, want := range test.want {
			require.ErrorContains(t, err, want, name)
			require.Equal(t, c.Pool == "", worker.Check(c.Catalog, "") != nil, name)
		}
	}
	c := config(t, nil).Catalog
	require.NoError(t, worker.Check(c, ""))
	c.Endpoints = catalog.Endpoints{}
	for i := range c.Queues {
		if _, delivers := c.Queues[i].Handlers["webhook_delivery"]; delivers {
			c.Queues[i].Enabled = false
		}
	}
	require.NoError(t, worker.Check(c, ""), "without deliveries to endpoints none is needed")
}

// crooked is a store that panics with an address when the endpoints are listed.
type crooked struct{ store.Store }

func (c crooked) Query(ctx context.Context, query store.Query) (store.Page, error) {
	if query.Collection == endpoints.Collection {
		panic("ilse@example.org")
	}
	return c.Store.Query(ctx, query)
}

// TestWorkerServesItsRoutes: also with a handler of its main, and with a panic, whose value is not logged.
func TestWorkerServesItsRoutes(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	w := open(t, func(c *worker.Config) {
		c.Store, c.Log = crooked{c.Store}, slog.New(slog.NewJSONHandler(&log, nil))
		ours(func(r *handler.Registry) {
			r.Tx("ours", func(context.Context, handler.Event) (handler.Effect, error) {
				return handler.Effect{}, nil
			})
		})(c)
	})
	require.NoError(t, w.Alarm.At(t.Context(), morning),
		"without an alarm the task of the next minute releases messages")
	w.Start()
	defer w.Close()
	require.Contains(t, log.String(),
		`"msg":"queue served","queue":"ours","pool":"p","handlers":["order.confirmed -> ours"]`)
	for _, drained := range []bool{false, true} {
		for request, want := range map[string][2]int{
			"GET /health/live": {200, 200}, "GET /health/ready": {200, 503}, "GET /metrics": {404, 404},
			"GET /v1/ops/events/e1": {404, 404},
			"POST /push/ours":       {400, 503}, "POST /push/nobody": {404, 503}, "GET /push/nobody": {405, 405},
			"GET /nothing":          {404, 404},
			"GET /v1/ops/endpoints": {500, 500},
		} {
			method, path, _ := strings.Cut(request, " ")
			require.Equal(t, want[map[bool]int{true: 1}[drained]], respond(w, method, path, "").Code, request)
		}
		w.Drain()
	}
	require.Contains(t, log.String(), `"msg":"panic"`)
	require.NotContains(t, log.String(), "ilse")
}

// TestOnlyPubSubAndTheSchedulerPushAndCallTasks: both need a token. Beside an emulator, which has none, the
// headers that browsers add keep out the open pages of a developer.
func TestOnlyPubSubAndTheSchedulerPushAndCallTasks(t *testing.T) {
	t.Parallel()
	paths := []string{"/push/paynow-events", "/push/dead-letters/paynow-events", tasks.Path}
	for _, name := range tasks.Names {
		paths = append(paths, "/tasks/"+name)
	}
	browsed, closed := open(t, nil), open(t, func(c *worker.Config) {
		c.Authenticator = workertest.Anyone{Err: auth.ErrInvalid}
	})
	for _, path := range paths {
		require.Equal(t, http.StatusUnauthorized, respond(closed, http.MethodPost, path, "").Code, path)
		answer := respond(browsed, http.MethodPost, path, `{}`, func(r *http.Request) {
			r.Host = "rebound.example:8081" // a page whose own name resolves to this server
			r.Header.Set("Origin", "http://rebound.example:8081")
		})
		require.Equal(t, http.StatusForbidden, answer.Code)
		require.Contains(t, answer.Body.String(), `"code":"cross_origin"`)
	}
}

func TestWorkerServesTheQueuesOfItsPoolAlone(t *testing.T) {
	t.Parallel()
	queues := config(t, nil).Catalog.Queues
	workers := map[string]http.Handler{}
	for _, q := range queues {
		if workers[q.Pool] == nil {
			workers[q.Pool] = open(t, func(c *worker.Config) { c.Pool = q.Pool })
		}
	}
	for pool, w := range workers {
		for _, q := range queues {
			want := http.StatusNotFound
			if q.Enabled && q.Pool == pool {
				want = http.StatusBadRequest // served: an empty body is no push
			}
			require.Equal(t, want, respond(w, http.MethodPost, q.PushPath(), "").Code, "%s in pool %s", q.ID, pool)
		}
	}
}

func TestEachContractIsShownWithAValidExample(t *testing.T) {
	t.Parallel()
	c := config(t, nil)
	w := filetest.Must(worker.New(c))(t)
	var all system.Declared
	answered(t, w, "/v1/ops/catalog", &all)
	require.Len(t, all.Queues, len(c.Catalog.Queues))
	require.NotEmpty(t, all.Contracts)
	taken := map[string]bool{}
	for _, q := range all.Queues {
		var declared system.QueueDeclaration
		answered(t, w, "/v1/ops/catalog/queues/"+q.ID, &declared)
		require.Equal(t, q, declared.DeclaredQueue)
		require.Equal(t, q.Enabled, len(declared.ProducedBy) > 0, q.ID)
		for _, one := range declared.Takes {
			require.NotEmpty(t, one.Contracts, "%s %s", q.ID, one.Type)
			for _, id := range one.Contracts {
				taken[id] = true
			}
		}
	}
	for _, of := range all.Contracts {
		var declared system.ContractDeclaration
		answered(t, w, "/v1/ops/catalog/contracts/"+url.PathEscape(of.ID), &declared)
		require.Equal(t, of, declared.DeclaredContract)
		require.Equal(t, taken[of.ID], len(declared.ConsumedBy) > 0, of.ID)
		body, err := c.Catalog.Contracts.Decode(of.Format, declared.Example)
		require.NoError(t, err, "%s: %s", of.ID, declared.Example)
		require.NoError(t, body.Validate(), "%s: %s", of.ID, declared.Example)
		require.Equal(t, of.ID, body.Contract().ID())
	}
}

// TestWorkerPublishesWithTheGrantsOfTerraform runs the queues as two pools, each worker with the grants of
// Terraform: sales may publish its emissions and dead letters; renewals, which runs the tasks, to every
// queue, and its own dead letters.
func TestWorkerPublishesWithTheGrantsOfTerraform(t *testing.T) {
	t.Parallel()
	now := morning
	base := config(t, func(c *worker.Config) { c.Now = func() time.Time { return now } })
	events, _ := base.Catalog.HandledBy("points.credit")
	updates, _ := base.Catalog.EmitsTo("subscriptions.record")
	for i, q := range base.Catalog.Queues {
		base.Catalog.Queues[i].Pool = map[string]string{events.ID: "sales", updates.ID: "renewals"}[q.ID]
	}
	start := func(pool string, topics ...string) (http.Handler, *shelves) {
		c, broker := base, &shelves{granted: topics}
		c.Pool, c.Publisher = pool, broker
		w := filetest.Must(worker.New(c))(t)
		return w, broker
	}
	sales, salesBroker := start("sales", updates.Topic(), events.DeadLetter.Topic)
	renewals, renewalsBroker := start("renewals", events.Topic(), updates.Topic(), updates.DeadLetter.Topic)
	did := func(b *shelves, taken, refused []string) {
		t.Helper()
		got := filetest.Map(b.all(), func(p published) string { return p.topic })
		require.Equal(t, [][]string{taken, refused}, [][]string{got, b.refused})
		b.refused = nil
	}
	push := func(want int, w http.Handler, path string, body contract.Body) {
		t.Helper()
		code, reason := posted(t, w, path, body)
		require.Equal(t, want, code, reason)
	}

	// An emission, and a dead letter of each pool.
	push(200, sales, events.PushPath(), contract.Of(&contract.Payment{
		EventID: "renewed", EventType: contract.SubscriptionRenewed, Timestamp: "2026-03-02T10:15:00Z",
		Data: contract.PaymentData{
			Subscription: &contract.Subscription{ID: "subscription", CustomerID: "customer"},
		},
	}))
	did(salesBroker, []string{updates.Topic()}, nil)
	order := paidOrder("paid", "customer", "999999999999999999")
	push(400, sales, events.PushPath(), order)
	did(salesBroker, []string{events.DeadLetter.Topic}, nil)
	push(200, renewals, updates.PushPath(), ordered("update", "no such action",
		contract.Payload{SubscriptionID: "subscription"}))
	did(renewalsBroker, []string{updates.DeadLetter.Topic}, nil)

	// A replay through the worker that runs the tasks publishes at once. Through another the task publishes it.
	replay := func(through http.Handler, id string, becomes bulk.Progress) (op bulk.Operation) {
		t.Helper()
		data := filetest.Must(order.Append(nil))(t)
		attributes := map[string]string{"event_id": "paid", deadletter.AttrSourceMessageID: id}
		require.NoError(t, filetest.ErrorOf(deadletter.Keep(t.Context(), base.Store, events,
			contract.Message{Data: data, Attributes: attributes}, id, now)))
		now = now.Add(time.Second)
		post(t, through, 201, "/v1/ops/dead-letters/replay",
			`{"queue":"`+events.ID+`","expect":1,"why":"mended"}`, &op)
		post(t, through, 200, "/v1/ops/operations/"+op.ID+"/run", "", &op)
		require.Equal(t, becomes, op.Progress)
		return op
	}
	replay(renewals, "m-1", bulk.Finished)
	did(renewalsBroker, []string{events.Topic()}, nil)
	replay(sales, "m-2", bulk.Finished)
	did(salesBroker, nil, []string{events.Topic()})
	now = now.Add(time.Minute)
	task(t, renewals, "relay-outbox")
	did(renewalsBroker, []string{events.Topic()}, nil)

	// A process for people publishes nothing: the worker that runs the tasks performs the replay, at its rate.
	base.Serves = worker.ServesPeople
	people, nobodysBroker := start("")
	pending := replay(people, "m-3", bulk.Running)
	task(t, renewals, "run-operations")
	did(renewalsBroker, []string{events.Topic()}, nil)
	did(nobodysBroker, nil, nil)
	var op bulk.Operation
	answered(t, people, "/v1/ops/operations/"+pending.ID, &op)
	require.Equal(t, []any{bulk.Finished, int64(1)}, []any{op.Progress, op.Done})
}
