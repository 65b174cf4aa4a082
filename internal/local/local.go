// Package local runs a whole Billhook in one process: the webhook service and the
// worker, on the embedded stand-ins or on Google's emulators. It owns their wiring
// for development and for the end-to-end tests. It refuses to be deployed: nothing
// in it listens beyond this machine.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"billhook/catalog"
	"billhook/emulator"
	"billhook/internal/alarm"
	"billhook/internal/delivery"
	"billhook/internal/embedded"
	"billhook/internal/gcp/auth"
	"billhook/internal/gcp/firestore"
	"billhook/internal/gcp/pubsub"
	"billhook/internal/ops"
	"billhook/internal/products"
	"billhook/internal/push"
	"billhook/internal/serve"
	"billhook/internal/tasks"
	"billhook/internal/telemetry"
	"billhook/internal/webhook"
	"billhook/internal/worker"
)

// What the push tokens of the embedded stack say.
const (
	audience       = "billhook-local"
	serviceAccount = "push@billhook-local.iam.gserviceaccount.com"
)

// standInTimeout is longer than whoever asks a stand-in waits, also for one that was told
// to hang.
const standInTimeout = time.Minute

// Config says what to run.
type Config struct {
	Catalog *catalog.Catalog
	// ProjectID names the project on the broker and the store.
	ProjectID string
	// Secrets of each source, by its name.
	Secrets map[string][]string
	// WebhookPort, WorkerPort and ServicePort on 127.0.0.1; 0 chooses one.
	WebhookPort, WorkerPort, ServicePort string
	// TaskEvery is how often the worker's tasks are called, as Cloud Scheduler would;
	// 0: never.
	TaskEvery time.Duration
	// Drain bounds what is in flight at Close, which says so where it has cut something
	// off. 0 is as long as a handler may need: the end of a busy process is then no error.
	Drain time.Duration
	// StorePath is the embedded store's file.
	StorePath string
	// BrokerPath, if set, is the file in which the embedded broker's messages are kept from
	// Close to the next Start.
	BrokerPath string
	// Emulators, if set, are used instead of the stand-ins.
	Emulators *emulator.SDK
	// Provision, if set, makes the queues on the emulator at broker, host:port, instead
	// of the Go that does so otherwise.
	Provision func(ctx context.Context, broker, workerURL string) error
	// Targets says where the targets are that are not to be the stand-in, and what signs, by
	// their names. What signs for the stand-in is the secret of the source with the same variable.
	Targets map[string]Place
	// OpsTokens are accepted beside open access from this machine.
	OpsTokens []string
	Log       *slog.Logger
	// WrapStore and WrapPublisher, if set, stand between the services and what they
	// use: for tests, and to show a failure. The publisher of each of the services,
	// "webhook" and "worker", is wrapped on its own.
	WrapStore     func(worker.Store) worker.Store
	WrapPublisher func(service string, p webhook.Publisher) webhook.Publisher
}

// Place is where a target is, and the secret that signs what is posted there. An empty URL is
// the stand-in's.
type Place struct{ URL, Secret string }

// Stack is a running Billhook.
type Stack struct {
	WebhookURL, WorkerURL string
	// WebhookMetricsURL and WorkerMetricsURL are where /metrics is, on ports that were chosen.
	WebhookMetricsURL, WorkerMetricsURL string
	// Service stands in for every target that has no place of its own, at ServiceURL.
	Service    *embedded.Receiver
	ServiceURL string
	// Store is what the services keep, without the wrapping.
	Store worker.Store
	// Publisher publishes on the broker, without the wrapping.
	Publisher webhook.Publisher
	// Broker is the embedded one; nil on the emulators.
	Broker *embedded.Broker
	// Loaded is what its file held.
	Loaded embedded.Loaded

	closers []func() error
	stop    context.CancelFunc
	// services are the two that drain; others end when they are closed.
	services, others sync.WaitGroup
	// token mints what the tasks are called with; nil: nothing.
	token  func() (string, error)
	mu     sync.Mutex
	failed []error
}

// Start runs the stack until Close. ctx bounds the start alone.
func Start(ctx context.Context, config Config) (*Stack, error) {
	s := &Stack{}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	if err := s.start(ctx, life, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) start(ctx, life context.Context, config Config) error {
	hooks, err := serve.Listen(ctx, "127.0.0.1", config.WebhookPort)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, ignoreClosed(hooks))
	pushes, err := serve.Listen(ctx, "127.0.0.1", config.WorkerPort)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, ignoreClosed(pushes))
	s.WebhookURL, s.WorkerURL = "http://"+hooks.Addr().String(), "http://"+pushes.Addr().String()

	var authenticator push.Authenticator
	if config.Emulators != nil {
		authenticator, err = s.onEmulators(ctx, life, config)
	} else {
		authenticator, err = s.embedded(ctx, life, config)
	}
	if err != nil {
		return err
	}
	store, ofWebhook, ofWorker := s.Store, s.Publisher, s.Publisher
	if config.WrapStore != nil {
		store = config.WrapStore(store)
	}
	if config.WrapPublisher != nil {
		ofWebhook, ofWorker = config.WrapPublisher("webhook", s.Publisher), config.WrapPublisher("worker", s.Publisher)
	}
	targets, err := s.targets(ctx, config)
	if err != nil {
		return err
	}
	ofDoor, ofWork := telemetry.NewMetrics(), telemetry.NewMetrics()
	work, err := worker.New(worker.Config{
		Catalog: config.Catalog, Targets: targets, Store: store, Publisher: ofWorker, Authenticator: authenticator,
		Access: ops.Access{Tokens: config.OpsTokens, OpenOnLoopback: true},
		Log:    config.Log, Metrics: ofWork, Now: time.Now, AfterFunc: alarm.AfterFunc,
	})
	if err != nil {
		return err
	}
	door, err := webhook.New(webhook.Config{
		Catalog: config.Catalog, Secrets: config.Secrets, Tolerance: 5 * time.Minute, Publisher: ofWebhook,
		Customers: webhook.NewCustomers(s.Store, time.Now), Products: products.NewReader(s.Store, config.Catalog.Products, time.Now), Log: config.Log, Metrics: ofDoor,
		Now: time.Now, PublishTimeout: 5 * time.Second,
	})
	if err != nil {
		return err
	}
	drain := cmp.Or(config.Drain, 5*time.Second)
	if s.WebhookMetricsURL, err = s.run(ctx, life, &serve.Server{
		Name: "webhook", Handler: door, Log: config.Log, Drain: drain, ReadTimeout: 20 * time.Second, Longest: door.Longest(), Draining: door.Drain,
	}, hooks, ofDoor); err != nil {
		return err
	}
	if s.WorkerMetricsURL, err = s.run(ctx, life, &serve.Server{
		Name: "worker", Handler: work, Log: config.Log, Drain: drain, ReadTimeout: time.Minute, Longest: work.Longest(), Draining: work.Drain,
	}, pushes, ofWork); err != nil {
		return err
	}
	if s.Broker != nil {
		s.Broker.PushTo(s.WorkerURL)
	}
	if config.TaskEvery > 0 {
		s.others.Go(func() { s.schedule(life, config) })
	}
	return nil
}

// targets starts the stand-in, and returns the way to every target.
func (s *Stack) targets(ctx context.Context, config Config) (delivery.Targets, error) {
	listener, err := serve.Listen(ctx, "127.0.0.1", config.ServicePort)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, ignoreClosed(listener))
	s.ServiceURL = "http://" + listener.Addr().String()
	known := embedded.ReceiverConfig{Tolerance: 5 * time.Minute, Posts: config.Catalog.Posts("")}
	targets, err := delivery.Open(config.Catalog, "", func(t catalog.Target) (string, []string) {
		at := config.Targets[t.Name]
		for name, source := range config.Catalog.Sources {
			if secrets := config.Secrets[name]; at.Secret == "" && source.SecretVariable == t.SecretVariable && len(secrets) > 0 {
				at.Secret = secrets[0]
			}
		}
		switch {
		case at.Secret == "":
			return "", nil
		case at.URL != "":
		case t.Scheme == catalog.SchemeStandard:
			known.Standard = append(known.Standard, at.Secret)
		default:
			known.Secrets = append(known.Secrets, at.Secret)
		}
		return cmp.Or(at.URL, s.ServiceURL), []string{at.Secret}
	}, time.Now)
	s.closers = append(s.closers, func() error { targets.Close(); return nil })
	if err != nil || len(known.Secrets)+len(known.Standard) == 0 {
		return targets, err
	}
	if s.Service, err = embedded.NewReceiver(known); err != nil {
		return nil, err
	}
	server := &http.Server{Handler: s.Service, ReadHeaderTimeout: time.Second, WriteTimeout: standInTimeout}
	s.others.Go(func() { _ = server.Serve(listener) }) // ends when it is closed
	s.closers = append(s.closers, server.Close)
	return targets, nil
}

// schedule calls the worker's tasks, as Cloud Scheduler does.
func (s *Stack) schedule(life context.Context, config Config) {
	every := time.NewTicker(config.TaskEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-life.Done():
			return
		}
		for _, task := range tasks.Names {
			if _, err := s.Task(life, task); err != nil && life.Err() == nil {
				config.Log.LogAttrs(life, slog.LevelWarn, "task not called", slog.String("task", task), slog.String("cause", err.Error()))
			}
		}
	}
}

// Task has the worker do one of its tasks and returns what it says it did.
func (s *Stack) Task(ctx context.Context, name string) (map[string]any, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.WorkerURL+"/tasks/"+name, nil)
	if err != nil {
		return nil, err
	}
	if s.token != nil {
		token, err := s.token()
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return tasks.Call(http.DefaultClient, request)
}

// ignoreClosed closes a listener that its server may have closed already.
func ignoreClosed(c io.Closer) func() error {
	return func() error {
		_ = c.Close()
		return nil
	}
}

// run serves a service, and its metrics at the address that it returns.
func (s *Stack) run(ctx, life context.Context, server *serve.Server, on net.Listener, metrics *telemetry.Metrics) (string, error) {
	beside, err := serve.Listen(ctx, "127.0.0.1", "0")
	if err != nil {
		return "", err
	}
	s.services.Go(func() {
		if err := server.RunWithMetrics(life, on, metrics.Handler(), beside); err != nil {
			s.mu.Lock()
			s.failed = append(s.failed, err)
			s.mu.Unlock()
		}
	})
	return "http://" + beside.Addr().String(), nil
}

func (s *Stack) embedded(ctx, life context.Context, config Config) (push.Authenticator, error) {
	issuer, err := embedded.NewIssuer(nil)
	if err != nil {
		return nil, err
	}
	keys, err := serve.Listen(ctx, "127.0.0.1", "0")
	if err != nil {
		return nil, err
	}
	keyServer := &http.Server{Handler: issuer, ReadHeaderTimeout: time.Second, WriteTimeout: standInTimeout}
	s.others.Go(func() { _ = keyServer.Serve(keys) }) // ends when it is closed
	s.closers = append(s.closers, keyServer.Close)

	enabled := make([]catalog.Queue, 0, len(config.Catalog.Queues))
	for _, q := range config.Catalog.Queues {
		if q.Enabled {
			enabled = append(enabled, q)
		}
	}
	s.token = func() (string, error) { return issuer.Token(audience, serviceAccount) }
	s.Broker, err = embedded.NewBroker(embedded.Config{
		ProjectID: config.ProjectID, Queues: enabled, Topics: config.Catalog.Beside(),
		Token: s.token,
	})
	if err != nil {
		return nil, err
	}
	if config.BrokerPath == "" {
		s.closers = append(s.closers, s.Broker.Close)
	} else {
		if s.Loaded, err = s.Broker.Load(config.BrokerPath); err != nil {
			return nil, errors.Join(err, s.Broker.Close())
		}
		s.closers = append(s.closers, func() error { return errors.Join(s.Broker.Close(), s.Broker.Save(config.BrokerPath)) })
	}
	publisher, err := pubsub.NewPublisher(life, config.ProjectID, s.Broker.ClientOptions()...)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, publisher.Close)
	s.Publisher = publisher
	store, err := embedded.OpenStore(config.StorePath)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, store.Close)
	s.Store = store
	verifier, err := auth.New(auth.Config{
		Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: serviceAccount, KeysURL: "http://" + keys.Addr().String(),
	})
	if err != nil {
		return nil, err
	}
	return worker.Authenticate(verifier), nil
}

func (s *Stack) onEmulators(ctx, life context.Context, config Config) (push.Authenticator, error) {
	var broker, database *emulator.Process
	var brokerErr, databaseErr error
	var starts sync.WaitGroup
	starts.Go(func() { broker, brokerErr = config.Emulators.StartPubSub(ctx, 0, nil) })
	starts.Go(func() { database, databaseErr = config.Emulators.StartFirestore(ctx, 0, nil) })
	starts.Wait()
	for _, p := range []*emulator.Process{broker, database} {
		if p != nil {
			s.closers = append(s.closers, p.Stop)
		}
	}
	if err := errors.Join(brokerErr, databaseErr); err != nil {
		return nil, err
	}
	options := pubsub.EmulatorOptions(broker.Addr())
	provision := config.Provision
	if provision == nil {
		provision = func(ctx context.Context, _, workerURL string) error {
			_, err := pubsub.Provision(ctx, config.Catalog, pubsub.Target{ProjectID: config.ProjectID, PushBaseURL: workerURL, Emulator: true}, options...)
			return err
		}
	}
	if err := provision(ctx, broker.Addr(), s.WorkerURL); err != nil {
		return nil, err
	}
	publisher, err := pubsub.NewPublisher(life, config.ProjectID, options...)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, publisher.Close)
	s.Publisher = publisher
	store, err := firestore.NewEmulated(life, database.Addr(), config.ProjectID, "")
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, store.Close)
	s.Store = store
	verifier, err := auth.New(auth.Config{Mode: auth.ModeNone, EmulatorHost: true})
	if err != nil {
		return nil, err
	}
	return worker.Authenticate(verifier), nil
}

// Close drains the services and ends everything, newest first. The error wraps
// context.DeadlineExceeded where something in flight was cut off.
func (s *Stack) Close() error {
	s.stop()
	if s.Service != nil {
		s.Service.Close() // nobody waits for an answer that was told to hang
	}
	s.services.Wait() // they drain while everything they need still runs
	errs := []error{}
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.others.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(append(errs, s.failed...)...); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	return nil
}
