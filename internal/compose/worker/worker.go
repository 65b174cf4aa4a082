// Package worker puts the push worker together, of the store, the publisher and the clock that the mains
// bring. It decides nothing itself.
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
	"billhook/internal/contract"
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
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// What a process may serve, where it does not serve both.
const (
	ServesPushes = "pushes" // what Pub/Sub pushes, and tasks
	ServesPeople = "people" // pages and API
)

// Config is what a Worker is made of.
type Config struct {
	Catalog *catalog.Catalog
	// Serves is ServesPushes, ServesPeople, or empty for both. ServesPeople knows all queues and publishes
	// nothing.
	Serves string
	// Pool limits the worker to the queues of one pool; empty: all.
	Pool  string
	Store store.Store
	// Ingest is the store, where the webhook service has a database of its own; see Mirror. nil: it has none.
	Ingest        *mirror.Mirror
	Publisher     contract.Publisher
	Targets       delivery.Targets
	Authenticator push.Authenticator
	Access        access.Access
	// Backlogs counts what waits in the broker; nil: it cannot be counted.
	Backlogs backlog.Counter
	// Broker can be asked at any time what it holds; nil: people see what was counted last.
	Broker backlog.Counter
	// Instance names this process in logs and in the log of each event's attempts; empty: by chance.
	Instance string
	// Subscriptions shows whether paused queues are; nil: it cannot be seen. Switch pauses and resumes them;
	// nil: it may not.
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
	// Alarm has kept messages released on time; nil: the worker releases them by AfterFunc, or else the
	// scheduler does.
	Alarm     push.Alarm
	AfterFunc func(d time.Duration, f func()) (stop func())
	// PrivateEndpoints lets endpoints of third parties be at any address: for development.
	PrivateEndpoints bool
	Handlers         func(*handler.Registry)
}

// Mirror has what the webhook service reads of the store, which of names, copied into a database of its own.
func (c *Config) Mirror(copies store.Store, of string) {
	members := map[string]map[string]any{
		customers.Collection: {"uid": ""}, orders.Collection: store.Encode(&orders.Standing{}),
		products.Collection: store.Encode(&products.Product{}),
	}
	c.Ingest = &mirror.Mirror{Store: c.Store, Copies: copies, Of: of, NewID: uuid.NewString, Members: members}
	c.Store = c.Ingest
}

// Worker is the worker's HTTP service.
type Worker struct {
	http.Handler
	Alarm push.Alarm

	log    *slog.Logger
	served []catalog.Queue
	push   *push.Service
	rates  *rates.Recorder
	looks  *console.Catalog

	// What its operations share with its deliveries, and its handlers with both.
	mappings *customers.Mappings
	watched  store.Store
	worth    *products.Reader
	poster   *delivery.Endpoints
	relay    *lane.Relay
	upkeep   *tasks.Service
}

// LookOnce asks each look for what is not there: as it is, with each filter, and with each beside a queue.
// The embedded store makes an index at the first query that needs it: while there is nothing to read, that
// costs nothing.
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
			// what is not there
			_, _ = o.Call(ctx, audit.Author{}, console.Input{Path: path, Query: query, Now: time.Now()})
		}
	}
}

// Drain makes the worker refuse new pushes and report that it is not ready. Its own alarm ends.
func (w *Worker) Drain() {
	w.push.Drain()
	if timer, own := w.Alarm.(*alarm.Timer); own {
		timer.Close()
	}
}

// byTheMinute leaves kept messages to the scheduler.
type byTheMinute struct{}

func (byTheMinute) At(context.Context, time.Time) error { return nil }

// Longest is the longest that the worker works at an answer.
func (w *Worker) Longest() time.Duration { return max(w.push.Longest(), tasks.Longest) }

const lanesAtOnce = 16

// Check reports what a worker of the pool, or of all, would refuse of the catalog, whatever its addresses and
// secrets.
func Check(c *catalog.Catalog, pool string) error {
	// never read
	config := Config{Catalog: c, Targets: uncalled(c), Store: struct{ store.Store }{}, Now: time.Now}
	registry := handler.NewRegistry()
	config.register(registry, &Worker{})
	return refuse(c, queuesOf(c, pool), registry)
}

// Mistakes are those with which a catalog was loaded, and what a worker would refuse of it, but on lines that
// have a mistake already: it would follow from that. A worker whose contracts cannot be read would refuse
// everything.
func Mistakes(c *catalog.Catalog, loading error) []*catalog.Mistake {
	known := catalog.Mistakes(loading)
	if c.Contracts == nil {
		return known
	}
	named := *c // an entry without an id has its mistake already
	named.Queues = slices.DeleteFunc(slices.Clone(c.Queues), func(q catalog.Queue) bool { return q.ID == "" })
	return append(known, slices.DeleteFunc(catalog.Mistakes(Check(&named, "")), func(m *catalog.Mistake) bool {
		return slices.ContainsFunc(known, func(k *catalog.Mistake) bool {
			return k.File == m.File && k.Line == m.Line && (m.Line > 0 || k.Error() == m.Error())
		})
	})...)
}

func (c Config) register(registry *handler.Registry, w *Worker) {
	updates, _ := c.Catalog.EmitsTo("subscriptions.record")
	billing.Register(registry,
		billing.Points{
			Store: c.Store, PointsOf: w.worth.Points, Now: c.Now, Mappings: w.mappings,
			Orders: c.Catalog.EmitsOf("points.credit"),
		},
		billing.Subscriptions{Store: c.Store, Updates: updates, Now: c.Now})
	endpoints.Register(registry, endpoints.Deliverer{
		Store: c.Store, Poster: w.poster, DisableAfter: c.Catalog.Endpoints.DisableAfter,
		Notices: c.Catalog.EmitsOf(endpoints.Handler), Now: c.Now,
	})
	notifications.Register(registry, c.Catalog)
	usage.Register(registry, c.Catalog, c.Store, c.Now)
	journal.Register(registry,
		journal.Deps{Catalog: c.Catalog, Store: c.Store, Calendar: journal.NewCalendar(c.Store, c.Now), Now: c.Now})
	orders.Register(registry, c.Catalog, c.Store, c.Now)
	registerPayments(registry, c.Catalog, c.Targets, c.Store, c.Now)
	if c.Handlers != nil {
		c.Handlers(registry)
	}
	c.Targets.Register(registry, c.Catalog, c.Pool, after)
}

func queuesOf(c *catalog.Catalog, pool string) []catalog.Queue {
	return slices.DeleteFunc(slices.Clone(c.Queues), func(q catalog.Queue) bool {
		return pool != "" && q.Pool != pool
	})
}

func refuse(c *catalog.Catalog, queues []catalog.Queue, registry *handler.Registry) error {
	own := *c
	own.Queues = queues
	var unsaid error
	if _, delivers := c.HandledBy(endpoints.Handler); delivers && c.Endpoints == (catalog.Endpoints{}) {
		unsaid = &catalog.Mistake{
			File: "targets.yaml", Key: "endpoints", What: "is missing, and a queue delivers to them",
		}
	}
	return errors.Join(unsaid, notifications.Check(c), registry.Check(&own))
}

// delivering puts together what delivers messages, and nothing that people do. It reports all mistakes of the
// catalog together.
func (c Config) delivering() (*Worker, error) {
	w := &Worker{
		log: c.Log, served: queuesOf(c.Catalog, c.Pool), mappings: customers.NewMappings(c.Store, c.Log, c.Now),
		rates: rates.NewRecorder(rates.Config{ // it adds nothing to the store until Start
			Store: c.Store, Now: c.Now, Log: c.Log, AfterFunc: alarm.AfterFunc, Breakers: c.Targets.Breakers,
			Self: rates.Service{
				Instance: c.Instance, Name: "worker", Pool: c.Pool, Version: serve.BuildOf().Version,
				Catalog: c.Catalog.Hash(), StartedAt: c.Now(),
			},
		}),
	}
	c.Targets.Watch(w.rates.Answered)
	registry := handler.NewRegistry()
	w.watched, w.worth = w.mappings.Watch(c.Store), products.NewReader(c.Store, c.Catalog.Products, c.Now)
	// Events' requests to the endpoints of third parties and people's are within the same limits.
	w.poster = delivery.NewEndpoints(c.Catalog.Endpoints, c.PrivateEndpoints, c.Now)
	w.poster.Watcher = w.rates.Answered
	c.register(registry, w)
	var mistakes []error
	for _, q := range c.Catalog.Queues {
		if q.Enabled && !c.Catalog.Contracts.Known(q.Contract) {
			mistakes = append(mistakes, fmt.Errorf("queue %s: contract %s is not a body format that is known", q.ID,
				q.Contract))
		}
	}
	mistakes = append(mistakes, refuse(c.Catalog, w.served, registry))
	if len(w.served) == 0 {
		mistakes = append(mistakes, errors.New("POOL names a pool that no queue is in"))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w.relay = &lane.Relay{
		Of: lane.Outbox, Store: c.Store, Publisher: c.Publisher, Now: c.Now, AtOnce: lanesAtOnce,
		Unreadable: c.unreadable,
	}
	release := *w.relay
	release.Of = lane.Delayed
	w.upkeep = &tasks.Service{
		Catalog: c.Catalog, Store: c.lists(c.Store), Outbox: w.relay, Delayed: &release, Backlogs: c.Backlogs,
		Subscriptions: c.Subscriptions,
		Ingest:        c.Ingest, Log: c.Log, Metrics: c.Metrics, Now: c.Now, SealLag: c.SealLag,
	}
	switch {
	case c.Alarm != nil:
		w.Alarm = c.Alarm
	case c.AfterFunc != nil:
		w.Alarm = alarm.NewTimer(alarm.Config{Call: w.upkeep.ReleaseDelayed, Now: c.Now, AfterFunc: c.AfterFunc})
	default:
		w.Alarm = byTheMinute{}
	}
	w.push = push.New(push.Config{
		Once:   dedupe.Once{Store: w.watched, Now: c.Now, NewToken: uuid.NewString, Instance: c.Instance},
		Queues: w.served, Catalog: c.Catalog, Handlers: registry, Outbox: w.relay, Alarm: w.Alarm, Timer: after,
		Dice:          rand.Float64,
		Authenticator: c.Authenticator, Log: c.Log, Metrics: c.Metrics, Rates: w.rates,
	})
	w.served = slices.DeleteFunc(slices.Clone(w.served), func(q catalog.Queue) bool { return !q.Enabled })
	return w, nil
}

// New puts the worker together. It reports all mistakes of the catalog together.
func New(config Config) (*Worker, error) {
	config.Instance = cmp.Or(config.Instance, uuid.NewString()[:8])
	if config.Serves == ServesPeople {
		config = config.apart()
	}
	w, err := config.delivering()
	if err != nil {
		return nil, err
	}
	apps := config.apps(w)
	server := &api.Server{
		Catalog: operations.All(apps), Log: config.Log, Author: access.Author, Now: config.Now, Store: apps.Store,
	}
	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler { return serve.Recover(config.Log, next) })
	serve.Health(router, w.push.Draining)
	w.Handler, w.looks = router, server.Catalog
	if config.Serves != ServesPeople {
		w.push.Routes(router)
		router.Group(func(r chi.Router) {
			r.Use(w.push.Authenticated)
			w.upkeep.Routes(r)
		})
	}
	if config.Serves == ServesPushes {
		return w, nil
	}
	router.Group(func(r chi.Router) {
		r.Use(config.Access.Guard)
		server.Routes(r)
		server.Scripts(r, operations.Scripts(apps))
	})
	site := &pages.Pages{
		API: server, Declared: server.Catalog, Catalog: config.Catalog,
		Sessions: &access.Sessions{
			Access: config.Access, Local: []byte(uuid.NewString()), Log: config.Log, Now: config.Now,
		},
		Environment: config.Environment, Live: !config.Access.OpenOnLoopback, Log: config.Log, Now: config.Now,
	}
	site.Routes(router)
	return w, nil
}

// apps are what people's operations work on.
func (c Config) apps(w *Worker) operations.Apps {
	listed := w.upkeep.Store
	operator := &bulk.Operator{
		Store: listed, Catalog: c.Catalog, Now: c.Now, NewID: uuid.NewString, Wait: wait,
	}
	reverter := &journal.Reverter{Store: c.Store, Catalog: c.Catalog, Now: c.Now, NewID: uuid.NewString}
	// the worker that runs the tasks may publish on every queue, and does it for people
	if c.Serves != ServesPeople {
		operator.Relay = func(ctx context.Context, lane string) error {
			_, err := w.relay.Lane(ctx, lane)
			return err
		}
		reverter.Committed = func(ctx context.Context, lanes []string) {
			for _, id := range lanes {
				_ = operator.Relay(ctx, id) // what is left is published by the task
			}
		}
	}
	w.upkeep.Operations = operator.RunAll
	_, delivers := c.Catalog.HandledBy(endpoints.Handler)
	return operations.Apps{
		Store: listed, Log: c.Log, DeadLetters: operator, Example: c.example,
		Reads: events.Reads{
			Store: listed, Catalog: c.Catalog, Now: c.Now, NewID: uuid.NewString, Viewer: c.Subscriptions,
			Broker: c.Broker,
			Links:  c.Links, Worker: c.trial,
		},
		Deployment: &system.Deployment{
			Self:     system.Self{Build: serve.BuildOf(), Instance: c.Instance, Pool: c.Pool, StartedAt: c.Now().UTC()},
			Settings: c.Settings, Doctor: c.Doctor,
		},
		Pauses: &pauses.Operator{
			Store: listed, Viewer: c.Subscriptions, Switch: c.Switch, Now: c.Now, NewID: uuid.NewString,
		},
		Periods: &journal.Periods{Store: listed, Now: c.Now, NewID: uuid.NewString}, Reverter: reverter,
		Customers: &customers.Operator{Store: c.lists(w.watched), Now: c.Now, NewID: uuid.NewString},
		Products: &products.Editor{
			Store: listed, Start: c.Catalog.Products, Now: c.Now, NewID: uuid.NewString, Changed: w.worth.Forget,
		},
		Stock: &orders.StockEditor{Store: listed, Now: c.Now, NewID: uuid.NewString},
		Endpoints: &endpoints.Editor{
			Store: listed, Poster: w.poster, Off: !delivers, OldSecretFor: c.Catalog.Endpoints.OldSecretFor,
			Now: c.Now, NewID: uuid.NewString, NewSecret: endpoints.NewSecret,
		},
	}
}

func after(d time.Duration) (c <-chan time.Time, stop func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func wait(ctx context.Context, d time.Duration) error {
	over, stop := context.WithTimeout(ctx, d)
	defer stop()
	<-over.Done()
	return ctx.Err()
}
