// Package worker assembles the push worker from the store, the publisher and the clock that the mains
// provide. It decides nothing.
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

// What a process serves if it does not serve both.
const (
	ServesPushes = "pushes" // what Pub/Sub pushes, and tasks
	ServesPeople = "people" // pages and API
)

// Config configures a Worker.
type Config struct {
	Catalog *catalog.Catalog
	// Serves is ServesPushes, ServesPeople, or empty for both. ServesPeople has all queues, and never publishes.
	Serves string
	// Pool limits the worker to the queues of one pool; empty: all.
	Pool  string
	Store store.Store
	// Ingest copies to the webhook service's database; see Mirror. nil: that service reads the store itself.
	Ingest        *mirror.Mirror
	Publisher     contract.Publisher
	Targets       delivery.Targets
	Authenticator push.Authenticator
	Access        access.Access
	// Backlogs counts the messages in the broker; nil: they are not counted.
	Backlogs backlog.Counter
	// Broker counts its messages for pages; nil: people see the last count.
	Broker backlog.Counter
	// Instance names this process in logs and attempts; empty: a random name.
	Instance string
	// Subscriptions reads the state of paused queues' subscriptions, and Switch changes it; nil: not possible.
	Subscriptions pause.Viewer
	Switch        pause.Switch
	// Doctor compares what is deployed with the catalog; nil: nothing can be compared.
	Doctor system.Doctor
	// Settings are the program's, without secrets.
	Settings    []env.Setting
	Environment string
	Links       events.Links
	Log         *slog.Logger
	Metrics     *telemetry.Metrics
	Now         func() time.Time
	// SealLag is how long a commit may take after its time was read.
	SealLag time.Duration
	// Alarm releases delayed messages on time; nil: a timer made with AfterFunc does, or else the scheduler.
	Alarm     push.Alarm
	AfterFunc func(d time.Duration, f func()) (stop func())
	// PrivateEndpoints allows third parties' endpoints at any address, for development.
	PrivateEndpoints bool
	Handlers         func(*handler.Registry)
}

// Mirror copies the members that the webhook service reads to its own database. of names the store.
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

	// What operations, deliveries and handlers share.
	mappings *customers.Mappings
	watched  store.Store
	worth    *products.Reader
	poster   *delivery.Endpoints
	relay    *lane.Relay
	upkeep   *tasks.Service
}

// LookOnce calls every read: without a filter, with each, and with each and a queue. The embedded store makes
// an index at the first query that needs it, which is fast while the store is empty.
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
			in := console.Input{Path: path, Query: query, Now: time.Now()}
			_, _ = o.Call(ctx, audit.Author{}, in) // the ids are unknown
		}
	}
}

// Drain makes the worker refuse new pushes and report that it is not ready. It ends the worker's own alarm.
func (w *Worker) Drain() {
	w.push.Drain()
	if timer, own := w.Alarm.(*alarm.Timer); own {
		timer.Close()
	}
}

// byTheMinute leaves the release of delayed messages to the scheduler.
type byTheMinute struct{}

func (byTheMinute) At(context.Context, time.Time) error { return nil }

// Longest is how long an answer may take.
func (w *Worker) Longest() time.Duration { return max(w.push.Longest(), tasks.Longest) }

const lanesAtOnce = 16

func (c Config) register(registry *handler.Registry, w *Worker) {
	updates, _ := c.Catalog.EmitsTo("subscriptions.record")
	billing.Register(registry, billing.Points{
		Store: c.Store, PointsOf: w.worth.Points, Now: c.Now, Mappings: w.mappings,
		Orders: c.Catalog.EmitsOf("points.credit"),
	}, billing.Subscriptions{Store: c.Store, Updates: updates, Now: c.Now})
	endpoints.Register(registry, endpoints.Deliverer{
		Store: c.Store, Poster: w.poster, DisableAfter: c.Catalog.Endpoints.DisableAfter,
		Notices: c.Catalog.EmitsOf(endpoints.Handler), Now: c.Now,
	})
	notifications.Register(registry, c.Catalog)
	usage.Register(registry, c.Catalog, c.Store, c.Now)
	calendar := journal.NewCalendar(c.Store, c.Now)
	journal.Register(registry, journal.Deps{Catalog: c.Catalog, Store: c.Store, Calendar: calendar, Now: c.Now})
	orders.Register(registry, c.Catalog, c.Store, c.Now)
	c.registerPayments(registry)
	if c.Handlers != nil {
		c.Handlers(registry)
	}
	c.Targets.Register(registry, c.Catalog, c.Pool, after)
}

// delivering assembles the delivery of messages, without operations. It reports all mistakes of the catalog.
func (c Config) delivering() (*Worker, error) {
	self := rates.Service{
		Instance: c.Instance, Name: "worker", Pool: c.Pool, Version: serve.BuildOf().Version,
		Catalog: c.Catalog.Hash(), StartedAt: c.Now(),
	}
	w := &Worker{
		log: c.Log, served: queuesOf(c.Catalog, c.Pool), mappings: customers.NewMappings(c.Store, c.Log, c.Now),
		rates: rates.NewRecorder(rates.Config{ // it adds nothing to the store until Start
			Store: c.Store, Now: c.Now, Log: c.Log, AfterFunc: alarm.AfterFunc,
			Breakers: c.Targets.Breakers, Self: self,
		}),
	}
	c.Targets.Watch(w.rates.Answered)
	registry := handler.NewRegistry()
	w.watched, w.worth = w.mappings.Watch(c.Store), products.NewReader(c.Store, c.Catalog.Products, c.Now)
	// Events and people share the limits of requests to third parties' endpoints.
	w.poster = delivery.NewEndpoints(c.Catalog.Endpoints, c.PrivateEndpoints, c.Now)
	w.poster.Watcher = w.rates.Answered
	c.register(registry, w)
	var mistakes []error
	for _, q := range c.Catalog.Queues {
		if q.Enabled && !c.Catalog.Contracts.Known(q.Contract) {
			unknown := fmt.Errorf("queue %s: contract %s is not a body format that is known", q.ID, q.Contract)
			mistakes = append(mistakes, unknown)
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
		Subscriptions: c.Subscriptions, Ingest: c.Ingest, Log: c.Log, Metrics: c.Metrics, Now: c.Now,
		SealLag: c.SealLag,
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
		Dice: rand.Float64, Authenticator: c.Authenticator, Log: c.Log, Metrics: c.Metrics, Rates: w.rates,
	})
	w.served = slices.DeleteFunc(slices.Clone(w.served), func(q catalog.Queue) bool { return !q.Enabled })
	return w, nil
}

// New assembles a worker. It reports all mistakes of the catalog together.
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

// apps returns what the operations work on.
func (c Config) apps(w *Worker) operations.Apps {
	listed, now, newID := w.upkeep.Store, c.Now, uuid.NewString
	operator := &bulk.Operator{Store: listed, Catalog: c.Catalog, Now: now, NewID: newID, Wait: wait}
	reverter := &journal.Reverter{Store: c.Store, Catalog: c.Catalog, Now: now, NewID: newID}
	if c.Serves != ServesPeople { // it may publish, and does so for people
		operator.Relay = func(ctx context.Context, lane string) error {
			_, err := w.relay.Lane(ctx, lane)
			return err
		}
		reverter.Committed = func(ctx context.Context, lanes []string) {
			for _, id := range lanes {
				_ = operator.Relay(ctx, id) // the task publishes the rest
			}
		}
	}
	w.upkeep.Operations = operator.RunAll
	self := system.Self{Build: serve.BuildOf(), Instance: c.Instance, Pool: c.Pool, StartedAt: now().UTC()}
	_, delivers := c.Catalog.HandledBy(endpoints.Handler)
	return operations.Apps{
		Store: listed, Log: c.Log, DeadLetters: operator, Example: c.example,
		Reads: events.Reads{
			Store: listed, Catalog: c.Catalog, Now: now, NewID: newID, Viewer: c.Subscriptions, Broker: c.Broker,
			Links: c.Links, Worker: c.trial,
		},
		Deployment: &system.Deployment{Self: self, Settings: c.Settings, Doctor: c.Doctor},
		Pauses: &pauses.Operator{
			Store: listed, Viewer: c.Subscriptions, Switch: c.Switch, Now: now, NewID: newID,
		},
		Periods: &journal.Periods{Store: listed, Now: now, NewID: newID}, Reverter: reverter,
		Customers: &customers.Operator{Store: c.lists(w.watched), Now: now, NewID: newID},
		Products: &products.Editor{
			Store: listed, Start: c.Catalog.Products, Now: now, NewID: newID, Changed: w.worth.Forget,
		},
		Stock: &orders.StockEditor{Store: listed, Now: now, NewID: newID},
		Endpoints: &endpoints.Editor{
			Store: listed, Poster: w.poster, Off: !delivers, OldSecretFor: c.Catalog.Endpoints.OldSecretFor,
			Now: now, NewID: newID, NewSecret: endpoints.NewSecret,
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
