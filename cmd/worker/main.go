// Command worker is the push worker. Pub/Sub pushes billing events to it. It applies the effect
// of each event once, on Firestore, and answers with the outcome.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/alarm"
	"billhook/internal/delivery"
	"billhook/internal/env"
	"billhook/internal/gcp/auth"
	"billhook/internal/gcp/firestore"
	"billhook/internal/gcp/pubsub"
	cloudtasks "billhook/internal/gcp/tasks"
	"billhook/internal/ledger/seal"
	"billhook/internal/ops"
	"billhook/internal/serve"
	"billhook/internal/tasks"
	"billhook/internal/telemetry"
	"billhook/internal/worker"
)

func main() {
	serve.Main("worker", func(ctx context.Context) error { return run(ctx, os.Getenv, os.Stdout) })
}

type config struct {
	Host               string     `env:"HOST"`
	Port               string     `env:"PORT" envDefault:"8081"`
	MetricsPort        string     `env:"METRICS_PORT"`
	Project            string     `env:"GOOGLE_CLOUD_PROJECT,required"`
	PubSubEmulator     string     `env:"PUBSUB_EMULATOR_HOST"`
	FirestoreEmulator  string     `env:"FIRESTORE_EMULATOR_HOST"`
	Database           string     `env:"FIRESTORE_DATABASE" envDefault:"(default)"`
	CatalogDir         string     `env:"CATALOG_DIR"`
	Queues             []string   `env:"QUEUES"`
	LogLevel           slog.Level `env:"LOG_LEVEL" envDefault:"INFO"`
	Pool               string     `env:"POOL"`
	PushAuth           string     `env:"PUSH_AUTH" envDefault:"oidc"`
	PushAudience       string     `env:"PUSH_AUDIENCE"`
	PushServiceAccount string     `env:"PUSH_SERVICE_ACCOUNT"`
	OpsToken           env.Secret `env:"OPS_TOKEN"`
	OpsAudience        string     `env:"OPS_AUDIENCE"`
	OpsAllow           []string   `env:"OPS_ALLOW"`
	LedgerSigningKey   env.Secret `env:"LEDGER_SIGNING_KEY"`
	AlarmQueue         string     `env:"ALARM_QUEUE"`
	AlarmURL           string     `env:"ALARM_URL"`
	AlarmAccount       string     `env:"ALARM_SERVICE_ACCOUNT"`
}

const minToken = 24

type mistakes []error

func (m *mistakes) add(wrong bool, format string, args ...any) {
	if wrong {
		*m = append(*m, fmt.Errorf(format, args...))
	}
}

// Check reports every broken relation between variables.
func (c config) Check() error {
	var all mistakes
	for _, token := range c.OpsToken.List() {
		all.add(len(token) < minToken, "OPS_TOKEN: each token needs at least %d bytes", minToken)
	}
	all.add((strings.TrimSpace(c.OpsAudience) == "") != (len(c.OpsAllow) == 0), "OPS_AUDIENCE and OPS_ALLOW: set both, or neither")
	for i, email := range c.OpsAllow {
		all.add(!auth.IsAddress(email), "OPS_ALLOW: entry %d is no e-mail address", i+1)
	}
	switch c.PushAuth {
	case auth.ModeOIDC, auth.ModeIAM:
		all.add(c.PushAudience == "", "PUSH_AUDIENCE: required with PUSH_AUTH=%s", c.PushAuth)
		all.add(c.PushServiceAccount == "", "PUSH_SERVICE_ACCOUNT: required with PUSH_AUTH=%s", c.PushAuth)
	case auth.ModeNone:
		all.add(!c.emulated(), "PUSH_AUTH: none is accepted only where an emulator host is set")
	default:
		all.add(true, "PUSH_AUTH: must be oidc, iam or none")
	}
	return errors.Join(append(all, c.checkAlarm()...)...)
}

var queueName = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/queues/[^/]+$`)

func (c config) checkAlarm() (all mistakes) {
	isSet := c.AlarmQueue != ""
	all.add((c.AlarmURL != "") != isSet || (c.AlarmAccount != "") != isSet, "ALARM_QUEUE, ALARM_URL and ALARM_SERVICE_ACCOUNT: set all of them, or none")
	all.add(isSet && !queueName.MatchString(c.AlarmQueue), "ALARM_QUEUE: must be projects/P/locations/L/queues/Q")
	base, err := url.Parse(c.AlarmURL)
	all.add(c.AlarmURL != "" && (err != nil || base.Host == "" || c.AlarmURL != "https://"+base.Host), "ALARM_URL: must be https://host, without a path")
	all.add(c.AlarmAccount != "" && !auth.IsAddress(c.AlarmAccount), "ALARM_SERVICE_ACCOUNT: is no e-mail address")
	return all
}

func (c config) emulated() bool { return c.PubSubEmulator != "" || c.FirestoreEmulator != "" }

// access is the configuration of the ops API's authentication.
func (c config) access() (ops.Access, error) {
	access := ops.Access{Tokens: c.OpsToken.List(), OpenOnLoopback: c.emulated()}
	if len(c.OpsAllow) > 0 {
		identity, err := auth.NewIdentity(auth.IdentityConfig{Audience: c.OpsAudience, Allow: c.OpsAllow})
		if err != nil {
			return access, fmt.Errorf("OPS_AUDIENCE, OPS_ALLOW: %w", err)
		}
		access.Identifier = worker.Identify(identity)
	}
	return access, nil
}

// only narrows the catalog to the queues that this deployment runs. A pool that is left without
// one has no use.
func (c config) only(cat *catalog.Catalog) (*catalog.Catalog, error) {
	narrowed, err := cat.Only(c.Queues)
	if err != nil || len(c.Queues) == 0 || c.Pool == "" {
		return narrowed, err
	}
	if !slices.ContainsFunc(narrowed.Queues, func(q catalog.Queue) bool { return q.Enabled && q.Pool == c.Pool }) {
		return nil, errors.New("POOL names a pool of which QUEUES names no queue")
	}
	return narrowed, nil
}

// targets are the services that this worker's queues post to. Their variables are those that
// the catalog names.
func (c config) targets(cat *catalog.Catalog, getenv func(string) string) (delivery.Targets, error) {
	return delivery.Open(cat, c.Pool, func(t catalog.Target) (string, []string) {
		return getenv(t.URLVariable), t.Secrets(func(variable string) []string { return env.Secret(getenv(variable)).List() })
	}, time.Now)
}

// alarm sets how kept messages are released on time. With ALARM_QUEUE it is Cloud Tasks. On an
// emulator it is a timer in the worker itself.
func (c config) alarm(ctx context.Context, service *worker.Config) (closeIt func() error, err error) {
	switch {
	case c.AlarmQueue != "":
		asked, err := cloudtasks.New(ctx, cloudtasks.Config{
			Queue: c.AlarmQueue, URL: c.AlarmURL + tasks.ReleasePath,
			ServiceAccount: c.AlarmAccount, Audience: c.PushAudience, Now: time.Now,
		})
		if err != nil {
			return nil, err
		}
		service.Alarm = asked
		return asked.Close, nil
	case c.emulated():
		service.AfterFunc = alarm.AfterFunc
	default:
		service.Log.LogAttrs(ctx, slog.LevelWarn, "no alarm: without ALARM_QUEUE kept messages are released by the scheduler's minute")
	}
	return func() error { return nil }, nil
}

// drain bounds the requests in flight after the signal to stop. Cloud Run kills the process two
// seconds later.
const drain = 8 * time.Second

// run is the whole program without signals and exit code.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, envErr := env.Parse[config](getenv)
	cat, err := catalog.Load(cfg.CatalogDir)
	if err != nil {
		return errors.Join(envErr, fmt.Errorf("CATALOG_DIR: %w", err))
	}
	tasksPool := cat.TasksPool
	if cat, err = cfg.only(cat); err != nil {
		return errors.Join(envErr, err)
	}
	targets, err := cfg.targets(cat, getenv)
	if err := errors.Join(envErr, err); err != nil {
		return err
	}
	log := telemetry.NewLogger(stdout, cfg.LogLevel)
	if cat.TasksPool != tasksPool {
		log.LogAttrs(ctx, slog.LevelInfo, "tasks of another pool: QUEUES names no queue of the catalog's", slog.String("catalog", tasksPool), slog.String("pool", cat.TasksPool))
	}
	verifier, err := auth.New(auth.Config{
		Mode: cfg.PushAuth, Audience: cfg.PushAudience, ServiceAccount: cfg.PushServiceAccount, EmulatorHost: cfg.emulated(),
	})
	if err != nil {
		return err
	}
	access, err := cfg.access()
	if err != nil {
		return err
	}
	authority, err := seal.NewAuthority(cfg.Project, string(cfg.LedgerSigningKey))
	if err != nil {
		return fmt.Errorf("LEDGER_SIGNING_KEY: %w", err)
	}
	// Clients outlive the signal: requests in flight still need them during the drain.
	clients := context.WithoutCancel(ctx)
	publisher, err := pubsub.NewPublisher(clients, cfg.Project)
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }() // every publish has been answered
	documents, err := firestore.New(clients, cfg.Project, cfg.Database)
	if err != nil {
		return err
	}
	defer func() { _ = documents.Close() }() // the process ends; nothing is lost

	metrics := telemetry.NewMetrics()
	parts := worker.Config{
		Catalog: cat, Targets: targets, Pool: cfg.Pool, Store: documents, Publisher: publisher,
		Authenticator: worker.Authenticate(verifier),
		Access:        access, Authority: authority, Log: log, Metrics: metrics, Now: time.Now, PrivateEndpoints: cfg.emulated(),
	}
	if !cfg.emulated() { // an emulator counts nothing
		if parts.Backlogs, err = pubsub.NewBacklogs(clients, cfg.Project, time.Now); err != nil {
			return err
		}
	}
	closeAlarm, err := cfg.alarm(clients, &parts)
	if err != nil {
		return err
	}
	defer func() { _ = closeAlarm() }() // Cloud Tasks keeps the tasks that were created
	service, err := worker.New(parts)
	if err != nil {
		return err
	}
	server := &serve.Server{
		Name: "worker", Handler: service, Log: log, Drain: drain, ReadTimeout: time.Minute, Longest: service.Longest(), Draining: service.Drain,
	}
	return server.RunOn(ctx, serve.Ports{Host: cfg.Host, Service: cfg.Port, Metrics: cfg.MetricsPort}, metrics.Handler())
}
