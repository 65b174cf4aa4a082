// Package devstack runs a whole Billhook in one process: the webhook service and the worker, on the embedded
// stand-ins or on Google's emulators. It owns their wiring for development and for the end-to-end tests. It
// cannot be deployed, because it listens only on loopback.
package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/emulator"
	"billhook/internal/apps/products"
	"billhook/internal/compose/service"
	"billhook/internal/compose/system"
	"billhook/internal/compose/worker"
	"billhook/internal/console/access"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

const (
	audience       = "billhook-local"
	serviceAccount = "push@billhook-local.iam.gserviceaccount.com"
	// standInTimeout is longer than any client of a stand-in waits, so that a stand-in can hang.
	standInTimeout = time.Minute
	// standInSecret signs the requests to the stand-in of a target without an address. No source has it.
	standInSecret = "billhook-stand-ins-secret-of-this-process"
)

// Config configures a Stack.
type Config struct {
	Catalog   *catalog.Catalog
	ProjectID string
	// Installation is the prefix of ids on Google's emulators; see pubsub.Names. The stand-ins use none.
	Installation string
	// Secrets has the secrets of each source by its name; APIKeys the key of its provider's API, if any.
	Secrets map[string][]string
	APIKeys map[string]string
	// WebhookPort, WorkerPort and ServicePort are ports on 127.0.0.1; 0 chooses a free one.
	WebhookPort, WorkerPort, ServicePort string
	// TaskEvery is the interval of the worker's tasks, which Cloud Scheduler calls in production; 0: never.
	TaskEvery time.Duration
	// Drain bounds Close's wait for requests in flight; 0: five seconds.
	Drain     time.Duration
	StorePath string
	// BrokerPath is the file that keeps the embedded broker's messages; empty: they are lost when it ends.
	BrokerPath string
	// Emulators, if set, replace the stand-ins.
	Emulators *emulator.SDK
	// Targets are the addresses of targets by name. A target without one is the stand-in.
	Targets map[string]Address
	// OpsTokens are accepted in addition to open access from this machine.
	OpsTokens []string
	Log       *slog.Logger
	// WrapStore and WrapPublisher, if set, wrap the dependencies of the services, "webhook" and "worker".
	WrapStore     func(store.Store) store.Store
	WrapPublisher func(service string, p contract.Publisher) contract.Publisher
	Handlers      func(*handler.Registry)
}

// Address is the URL of a target, empty for the stand-in, and the secret that signs its posts.
type Address struct{ URL, Secret string }

// Stack is a running Billhook.
type Stack struct {
	WebhookURL, WorkerURL string
	WorkerMetricsURL      string
	// Service is the stand-in of every target without an address, at ServiceURL.
	Service    *standin.Receiver
	ServiceURL string
	// Gateway is the stand-in of the payment gateway, at ServiceURL too; nil: nothing calls it.
	Gateway *standin.Gateway
	// Store is the services' store without WrapStore.
	Store store.Store
	// Publisher publishes on the broker without WrapPublisher.
	Publisher contract.Publisher
	// Broker is the embedded broker; nil on the emulators.
	Broker        *standin.Broker
	subscriptions interface {
		pause.Viewer
		pause.Switch
	}
	// doctor compares the queues on the emulator with the catalog; nil on the stand-in.
	doctor system.Doctor
	Loaded standin.Loaded

	closers []func() error
	stop    context.CancelFunc
	// services drain at the end. others end when they are closed.
	services errgroup.Group
	others   sync.WaitGroup
	// token makes the token of the task calls; Google's emulators need none.
	token func() (string, error)
}

// Start runs the stack until Close. ctx bounds only the start.
func Start(ctx context.Context, config Config) (*Stack, error) {
	s := &Stack{token: func() (string, error) { return "", nil }}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if err := s.start(ctx, life, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) start(ctx, life context.Context, config Config) error {
	webhookListener, err := s.listen(ctx, "webhook", config.WebhookPort)
	if err != nil {
		return err
	}
	workerListener, err := s.listen(ctx, "worker", config.WorkerPort)
	if err != nil {
		return err
	}
	s.WebhookURL, s.WorkerURL = urlOf(webhookListener), urlOf(workerListener)
	connect := s.emulators
	if config.Emulators == nil { // the stand-ins have one installation
		connect, config.Installation = s.standIns, ""
	}
	broker, tokens, err := connect(ctx, life, config)
	if err != nil {
		return err
	}
	names := pubsub.Names{ProjectID: config.ProjectID, Installation: config.Installation}
	publisher, err := pubsub.NewPublisher(life, names, pubsub.EmulatorOptions(broker)...)
	if err != nil {
		return err
	}
	s.closers, s.Publisher = append(s.closers, publisher.Close), publisher
	verifier, err := auth.New(tokens)
	if err != nil {
		return err
	}
	store := s.Store
	if config.WrapStore != nil {
		store = config.WrapStore(store)
	}
	if config.WrapPublisher == nil {
		config.WrapPublisher = func(_ string, p contract.Publisher) contract.Publisher { return p }
	}
	targets, err := s.targets(ctx, config)
	if err != nil {
		return err
	}
	webhookMetrics, workerMetrics := telemetry.NewMetrics(), telemetry.NewMetrics()
	var backlogs backlog.Counter // Google's emulators have no counts
	if s.Broker != nil {
		backlogs = s.Broker
	}
	workerService, err := worker.New(worker.Config{
		Catalog: config.Catalog, Targets: targets, Store: store,
		Publisher:     config.WrapPublisher("worker", publisher),
		Authenticator: verifier, Access: access.Access{Tokens: config.OpsTokens, OpenOnLoopback: true},
		Backlogs: backlogs, Broker: backlogs, Subscriptions: s.subscriptions, Switch: s.subscriptions,
		Doctor: s.doctor, Log: config.Log, Metrics: workerMetrics, Now: time.Now, AfterFunc: alarm.AfterFunc,
		Handlers: config.Handlers, PrivateEndpoints: true, Environment: "dev",
	})
	if err != nil {
		return err
	}
	workerService.Start()
	s.closers = append(s.closers, func() error { workerService.Close(); return nil })
	webhookService, err := s.webhook(config, store, config.WrapPublisher("webhook", publisher), webhookMetrics)
	if err != nil {
		return err
	}
	server := serve.Server{Log: config.Log, Drain: cmp.Or(config.Drain, 5*time.Second)}
	server.Name, server.ReadTimeout = "webhook", 20*time.Second
	if _, err = s.run(ctx, life, server, webhookListener, webhookService, webhookMetrics); err != nil {
		return err
	}
	server.Name, server.ReadTimeout = "worker", time.Minute
	s.WorkerMetricsURL, err = s.run(ctx, life, server, workerListener, workerService, workerMetrics)
	if err != nil {
		return err
	}
	if s.Broker != nil {
		s.Broker.PushTo(s.WorkerURL)
	}
	if config.TaskEvery > 0 {
		s.others.Go(func() { s.schedule(life, config) })
		if s.Broker != nil { // Google's emulators have no indexes
			s.others.Go(func() { workerService.LookOnce(life) })
		}
	}
	return nil
}

func (s *Stack) webhook(
	config Config, store store.Store, publisher contract.Publisher, m *telemetry.Metrics,
) (*webhook.Service, error) {
	worth := products.NewReader(s.Store, config.Catalog.Products, time.Now)
	return webhook.New(webhook.Config{
		Catalog: config.Catalog, Secrets: config.Secrets, Keys: config.APIKeys, Tolerance: 5 * time.Minute,
		Publisher: publisher, PublishTimeout: 5 * time.Second, Store: store, Blocks: s.Store,
		UID: webhook.UIDs(s.Store, time.Now), Points: worth.Points, Log: config.Log, Metrics: m,
		Now: time.Now, Release: serve.BuildOf().Release(config.Catalog.Hash()),
	})
}

// PortError says which port of a Config could not be opened: "webhook", "worker" or "service".
type PortError struct {
	Of  string
	Err error
}

func (e *PortError) Error() string { return e.Of + ": " + e.Err.Error() }

// Unwrap returns the reason; see serve.Listen.
func (e *PortError) Unwrap() error { return e.Err }

// listen opens a port on loopback until Close. of names it in a PortError; empty: there is none.
func (s *Stack) listen(ctx context.Context, of, port string) (net.Listener, error) {
	listener, err := serve.Listen(ctx, "127.0.0.1", port)
	switch {
	case err == nil:
		s.closers = append(s.closers, func() error { _ = listener.Close(); return nil })
	case of != "":
		err = &PortError{Of: of, Err: err}
	}
	return listener, err
}

func urlOf(listener net.Listener) string { return "http://" + listener.Addr().String() }

func (s *Stack) serveStandIn(listener net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second, WriteTimeout: standInTimeout}
	s.others.Go(func() { _ = server.Serve(listener) }) // ends when it is closed
	s.closers = append(s.closers, server.Close)
}

func (s *Stack) targets(ctx context.Context, config Config) (delivery.Targets, error) {
	listener, err := s.listen(ctx, "service", config.ServicePort)
	if err != nil {
		return nil, err
	}
	s.ServiceURL = urlOf(listener)
	known := standin.ServiceConfig{Tolerance: 5 * time.Minute, Posts: config.Catalog.Posts("")}
	targets, err := delivery.Open(config.Catalog, "", func(t catalog.Target) (string, []string) {
		at := config.Targets[t.Name]
		at.Secret = cmp.Or(at.Secret, standInSecret)
		switch {
		case at.URL != "":
		case t.Scheme == catalog.SchemeStandard:
			known.Standard = append(known.Standard, at.Secret)
		default:
			known.Secrets = append(known.Secrets, at.Secret)
		}
		return cmp.Or(at.URL, s.ServiceURL), []string{at.Secret}
	}, time.Now)
	s.closers = append(s.closers, func() error { targets.Close(); return nil })
	if len(known.Secrets)+len(known.Standard) == 0 { // for the third party alone
		known.Secrets = config.Secrets[catalog.Producers]
	}
	if err != nil || len(known.Secrets)+len(known.Standard) == 0 {
		return targets, err
	}
	if s.Service, err = standin.NewReceiver(known); err != nil {
		return nil, err
	}
	var standIn http.Handler = s.Service
	if len(known.Secrets) > 0 {
		gateway := standin.ServiceConfig{Secrets: known.Secrets, Tolerance: known.Tolerance}
		if s.Gateway, err = standin.NewGateway(gateway); err != nil {
			return nil, err
		}
		standIn = s.Gateway.Before(s.Service)
	}
	s.serveStandIn(listener, standIn)
	return targets, nil
}

func (s *Stack) schedule(life context.Context, config Config) {
	every := time.NewTicker(config.TaskEvery)
	defer every.Stop()
	for { // at once: the first queries make indexes, which is fast while the store is empty
		for _, task := range tasks.Names {
			if _, err := s.Task(life, task); err != nil && life.Err() == nil {
				config.Log.LogAttrs(life, slog.LevelWarn, "task not called", slog.String("task", task),
					slog.String("cause", err.Error()))
			}
		}
		select {
		case <-every.C:
		case <-life.Done():
			return
		}
	}
}

// Task calls one task of the worker and returns its result.
func (s *Stack) Task(ctx context.Context, name string) (map[string]any, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.WorkerURL+"/tasks/"+name, nil)
	if err != nil {
		return nil, err
	}
	token, err := s.token()
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return tasks.Call(http.DefaultClient, request)
}

func (s *Stack) run(
	ctx, life context.Context, server serve.Server, on net.Listener, h service.Handler, m *telemetry.Metrics,
) (metricsURL string, err error) {
	metricsListener, err := s.listen(ctx, "", "0")
	if err != nil {
		return "", err
	}
	server.Handler, server.Longest, server.Draining = h, h.Longest(), h.Drain
	s.services.Go(func() error { return server.Run(life, on, m.Handler(), metricsListener) })
	return urlOf(metricsListener), nil
}

// Close drains the services and ends everything, newest first. The error wraps context.DeadlineExceeded if a
// request in flight was cut off.
func (s *Stack) Close() error {
	s.stop()
	if s.Service != nil {
		s.Service.Close() // ends the answers that hang
	}
	if s.Gateway != nil {
		s.Gateway.Close()
	}
	errs := []error{s.services.Wait()} // the services drain while their dependencies still run
	for _, closes := range slices.Backward(s.closers) {
		errs = append(errs, closes())
	}
	s.others.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("devstack: %w", err)
	}
	return nil
}
