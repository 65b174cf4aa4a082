// Package worker puts the push worker together, of the store, the publisher and the clock that the mains bring. It decides
// nothing itself.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"billhook/catalog"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/notifications"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/apps/usage"
	"billhook/internal/compose/operations"
	"billhook/internal/compose/system"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/console/pages"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/pauses"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/push"
	"billhook/internal/pipeline/rates"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/env"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// Config is what a Worker is made of.
type Config struct {
	Catalog *catalog.Catalog
	// Pool limits the worker to the queues of one pool; empty: all.
	Pool          string
	Store         store.Store
	Publisher     lane.Publisher
	Targets       delivery.Targets
	Authenticator push.Authenticator
	Access        access.Access
	// Backlogs counts what waits in the broker; nil: it cannot be counted.
	Backlogs backlog.Counter
	// Broker can be asked at any time what it holds; nil: people see what was counted last.
	Broker backlog.Counter
	// Instance names this process in logs and in the log of each event's attempts; empty: by chance.
	Instance string
	// Subscriptions shows whether paused queues are; nil: it cannot be seen. Switch pauses and resumes them; nil: it may not.
	Subscriptions pause.Viewer
	Switch        pause.Switch
	// Doctor compares what is deployed with the catalog, for people who ask; nil: nothing can be compared.
	Doctor system.Doctor
	// Settings are what the program runs with, for people who ask, without secrets.
	Settings    []env.Setting
	Environment string
	Links       events.Links
	Log         *slog.Logger
	Metrics     *telemetry.Metrics
	Now         func() time.Time
	// SealLag is how long the store may take for a commit after it has taken its time.
	SealLag time.Duration
	// Alarm has kept messages released on time; nil: the worker releases them by AfterFunc, or else the scheduler does.
	Alarm     push.Alarm
	AfterFunc func(d time.Duration, f func()) (stop func())
	// PrivateEndpoints lets endpoints of third parties be at any address: for development.
	PrivateEndpoints bool
	Handlers         func(*handler.Registry)
}

// Worker is the worker's HTTP service.
type Worker struct {
	http.Handler
	Alarm push.Alarm

	log    *slog.Logger
	served []catalog.Queue
	push   *push.Service
	rates  *rates.Recorder
	timer  *alarm.Timer
	looks  *console.Catalog
}

// LookOnce asks each look for what is not there: as it is, with each filter, and with each beside a queue. The embedded
// store makes an index at the first query that needs it: while there is nothing to read, that costs nothing.
func (w *Worker) LookOnce(ctx context.Context) {
	queue := "none"
	if len(w.served) > 0 {
		queue = w.served[0].ID
	}
	for _, o := range w.looks.Operations {
		if o.Needs != console.Look {
			continue
		}
		path, all := map[string]string{}, url.Values{}
		for _, f := range o.Fields {
			value := slices.Concat(f.OneOf, []string{"none"})[0]
			if f.Name == "queue" || o.Noun() == "queues" {
				value = queue
			}
			if path[f.Name] = value; f.In == console.InQuery {
				all.Set(f.Name, value)
			}
		}
		filters := []url.Values{{}}
		for name := range all {
			filters = append(filters, url.Values{name: all[name]}, url.Values{name: all[name], "queue": all["queue"]})
		}
		if !o.List {
			filters = append(filters, all)
		}
		for _, query := range filters {
			_, _ = o.Call(ctx, audit.Author{}, console.Input{Path: path, Query: query, Now: time.Now()}) // what is not there
		}
	}
}

// Drain makes the worker refuse new pushes and report that it is not ready. Its own alarm ends.
func (w *Worker) Drain() {
	w.push.Drain()
	if w.timer != nil {
		w.timer.Close()
	}
}

// byTheMinute leaves kept messages to the scheduler.
type byTheMinute struct{}

func (byTheMinute) At(context.Context, time.Time) error { return nil }

// alarm is the worker's alarm, twice where it is a timer of its own.
func (c Config) alarm(release func(context.Context)) (push.Alarm, *alarm.Timer) {
	switch {
	case c.Alarm != nil:
		return c.Alarm, nil
	case c.AfterFunc != nil:
		own := alarm.NewTimer(alarm.Config{Call: release, Now: c.Now, AfterFunc: c.AfterFunc})
		return own, own
	default:
		return byTheMinute{}, nil
	}
}

// Longest is the longest that the worker works at an answer.
func (w *Worker) Longest() time.Duration { return max(w.push.Longest(), tasks.Longest) }

const lanesAtOnce = 16

// Check reports what a worker of the pool, or of all, would refuse of the catalog, whatever its addresses and secrets.
func Check(c *catalog.Catalog, pool string) error {
	config := Config{Catalog: c, Targets: uncalled(c), Store: struct{ store.Store }{}, Now: time.Now} // never read
	registry := handler.NewRegistry()
	config.register(registry, dependencies{})
	return refuse(c, queuesOf(c, pool), registry)
}

// dependencies are what handlers share with the rest of the worker. Check leaves them empty.
type dependencies struct {
	products *products.Reader
	mappings *customers.Mappings
	poster   *delivery.Endpoints
}

func (c Config) register(registry *handler.Registry, with dependencies) {
	updates, _ := c.Catalog.EmitsTo("subscriptions.record")
	billing.Register(registry,
		billing.Points{Store: c.Store, Products: with.products, Now: c.Now, Mappings: with.mappings, Orders: c.Catalog.EmitsOf("points.credit")},
		billing.Subscriptions{Store: c.Store, Updates: updates, Now: c.Now})
	endpoints.Register(registry, endpoints.Deliverer{
		Store: c.Store, Poster: with.poster, DisableAfter: c.Catalog.Endpoints.DisableAfter, Notices: c.Catalog.EmitsOf(endpoints.Handler), Now: c.Now,
	})
	notifications.Register(registry, c.Catalog)
	usage.Register(registry, c.Catalog, c.Store, c.Now)
	journal.Register(registry, journal.Deps{Catalog: c.Catalog, Store: c.Store, Calendar: journal.NewCalendar(c.Store, c.Now), Now: c.Now})
	orders.Register(registry, c.Catalog, c.Store, c.Now)
	registerPayments(registry, c.Catalog, c.Targets, c.Store, c.Now)
	if c.Handlers != nil {
		c.Handlers(registry)
	}
	c.Targets.Register(registry, c.Catalog, c.Pool, after)
}

func queuesOf(c *catalog.Catalog, pool string) []catalog.Queue {
	return slices.DeleteFunc(slices.Clone(c.Queues), func(q catalog.Queue) bool { return pool != "" && q.Pool != pool })
}

func refuse(c *catalog.Catalog, queues []catalog.Queue, registry *handler.Registry) error {
	own := *c
	own.Queues = queues
	var unsaid error
	if _, delivers := c.HandledBy(endpoints.Handler); delivers && c.Endpoints == (catalog.Endpoints{}) {
		unsaid = &catalog.Mistake{File: "targets.yaml", Key: "endpoints", What: "is missing, and a queue delivers to them"}
	}
	return errors.Join(unsaid, notifications.Check(c), registry.Check(&own))
}

// New puts the worker together. It reports all mistakes of the catalog together.
func New(config Config) (*Worker, error) {
	config.Instance = cmp.Or(config.Instance, uuid.NewString()[:8])
	counted := config.recorder()
	config.Targets.Watch(counted)
	registry := handler.NewRegistry()
	mappings := customers.NewMappings(config.Store, config.Log, config.Now)
	watched := mappings.Watch(config.Store)
	worth := products.NewReader(config.Store, config.Catalog.Products, config.Now)
	// Events' requests to the endpoints of third parties and people's are within the same limits.
	poster := delivery.NewEndpoints(config.Catalog.Endpoints, config.PrivateEndpoints, config.Now)
	poster.Watcher = counted
	served := queuesOf(config.Catalog, config.Pool)
	config.register(registry, dependencies{products: worth, mappings: mappings, poster: poster})
	var mistakes []error
	for _, q := range config.Catalog.Queues {
		if q.Enabled && !config.Catalog.Contracts.Known(q.Contract) {
			mistakes = append(mistakes, fmt.Errorf("queue %s: contract %s is not a body format that is known", q.ID, q.Contract))
		}
	}
	mistakes = append(mistakes, refuse(config.Catalog, served, registry))
	if len(served) == 0 {
		mistakes = append(mistakes, errors.New("POOL names a pool that no queue is in"))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	relay := &lane.Relay{Of: lane.Outbox, Store: config.Store, Publisher: config.Publisher, Now: config.Now, AtOnce: lanesAtOnce, Unreadable: config.unreadable}
	release := *relay
	release.Of = lane.Delayed
	listed := config.lists(config.Store)
	upkeep := &tasks.Service{
		Catalog: config.Catalog, Store: listed, Outbox: relay, Delayed: &release, Backlogs: config.Backlogs, Subscriptions: config.Subscriptions,
		Log: config.Log, Metrics: config.Metrics, Now: config.Now, SealLag: config.SealLag,
	}
	alarms, timer := config.alarm(upkeep.ReleaseDelayed)
	service := push.New(push.Config{
		Once:   dedupe.Once{Store: watched, Now: config.Now, NewToken: uuid.NewString, Instance: config.Instance},
		Queues: served, Catalog: config.Catalog, Handlers: registry, Outbox: relay, Alarm: alarms, Timer: after, Dice: rand.Float64,
		Authenticator: config.Authenticator, Log: config.Log, Metrics: config.Metrics, Rates: counted,
	})
	operator := &bulk.Operator{
		Store: listed, Catalog: config.Catalog, Now: config.Now, NewID: uuid.NewString, Wait: wait,
		// Deployed, only the worker that runs the tasks may publish on every queue: it publishes a replay through another.
		Relay: func(ctx context.Context, lane string) error {
			_, err := relay.Lane(ctx, lane)
			return err
		},
	}
	upkeep.Operations = operator.RunAll
	reads := events.Reads{
		Store: listed, Catalog: config.Catalog, Now: config.Now, NewID: uuid.NewString, Viewer: config.Subscriptions,
		Broker: config.Broker, Links: config.Links, Worker: config.trial,
	}
	apps := operations.Apps{
		Store: listed, Reads: reads, Log: config.Log, DeadLetters: operator, Example: config.example,
		Deployment: &system.Deployment{
			Self:     system.Self{Build: serve.BuildOf(), Instance: config.Instance, Pool: config.Pool, StartedAt: config.Now().UTC()},
			Settings: config.Settings, Doctor: config.Doctor,
		},
		Pauses:  &pauses.Operator{Store: listed, Viewer: config.Subscriptions, Switch: config.Switch, Now: config.Now, NewID: uuid.NewString},
		Periods: &journal.Periods{Store: listed, Now: config.Now, NewID: uuid.NewString},
		Reverter: &journal.Reverter{Store: config.Store, Catalog: config.Catalog, Now: config.Now, NewID: uuid.NewString, Committed: func(ctx context.Context, lanes []string) {
			for _, id := range lanes {
				_ = operator.Relay(ctx, id) // what is left is published by the task
			}
		}},
		Customers: &customers.Operator{Store: config.lists(watched), Now: config.Now, NewID: uuid.NewString},
		Products:  &products.Editor{Store: listed, Start: config.Catalog.Products, Now: config.Now, NewID: uuid.NewString, Changed: worth.Forget},
		Stock:     &orders.StockEditor{Store: listed, Now: config.Now, NewID: uuid.NewString},
		Endpoints: &endpoints.Editor{
			Store: listed, Poster: poster, OldSecretFor: config.Catalog.Endpoints.OldSecretFor, Now: config.Now, NewID: uuid.NewString, NewSecret: endpoints.NewSecret,
		},
	}
	server := &api.Server{Catalog: operations.All(apps), Log: config.Log, Author: access.Author, Now: config.Now, Store: listed}

	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler { return serve.Recover(config.Log, next) })
	serve.Health(router, service.Draining)
	service.Routes(router)
	router.Group(func(r chi.Router) {
		r.Use(service.Authenticated)
		upkeep.Routes(r)
	})
	router.Group(func(r chi.Router) {
		r.Use(config.Access.Guard)
		server.Routes(r)
		server.Scripts(r, operations.Scripts(apps))
	})
	sessions := access.NewSessions(config.Access, []byte(uuid.NewString()), config.Log, config.Now)
	site, err := pages.New(pages.Config{API: server, Declared: server.Catalog, Sessions: sessions, Catalog: config.Catalog, Environment: config.Environment, Live: !config.Access.OpenOnLoopback, Log: config.Log, Now: config.Now})
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	site.Routes(router)
	return &Worker{log: config.Log, served: slices.DeleteFunc(slices.Clone(served), func(q catalog.Queue) bool { return !q.Enabled }), Handler: router, Alarm: alarms, push: service, rates: counted, timer: timer, looks: server.Catalog}, nil
}

func after(d time.Duration) (c <-chan time.Time, stop func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func wait(ctx context.Context, d time.Duration) error {
	over, stop := after(d)
	defer stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
