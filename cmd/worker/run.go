package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"regexp"
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
	"billhook/internal/ops"
	"billhook/internal/serve"
	"billhook/internal/tasks"
	"billhook/internal/telemetry"
	"billhook/internal/worker"
)

// config is the worker's environment.
type config struct {
	Host               string     `env:"HOST"`
	Port               string     `env:"PORT" envDefault:"8081"`
	MetricsPort        string     `env:"METRICS_PORT"`
	Project            string     `env:"GOOGLE_CLOUD_PROJECT,required"`
	PubSubEmulator     string     `env:"PUBSUB_EMULATOR_HOST"`
	FirestoreEmulator  string     `env:"FIRESTORE_EMULATOR_HOST"`
	Database           string     `env:"FIRESTORE_DATABASE" envDefault:"(default)"`
	CatalogDir         string     `env:"CATALOG_DIR"`
	LogLevel           slog.Level `env:"LOG_LEVEL" envDefault:"INFO"`
	Pool               string     `env:"POOL"`
	PushAuth           string     `env:"PUSH_AUTH" envDefault:"oidc"`
	PushAudience       string     `env:"PUSH_AUDIENCE"`
	PushServiceAccount string     `env:"PUSH_SERVICE_ACCOUNT"`
	OpsToken           env.Secret `env:"OPS_TOKEN"`
	OpsAudience        string     `env:"OPS_AUDIENCE"`
	OpsAllow           []string   `env:"OPS_ALLOW"`
	SubscriptionURL    env.Secret `env:"SUBSCRIPTION_SERVICE_URL"`
	SigningSecret      env.Secret `env:"WEBHOOK_SIGNING_SECRET"`
	AlarmQueue         string     `env:"ALARM_QUEUE"`
	AlarmURL           string     `env:"ALARM_URL"`
	AlarmAccount       string     `env:"ALARM_SERVICE_ACCOUNT"`
}

// minToken is the shortest OPS_TOKEN, in bytes.
const minToken = 24

// Check reports every broken relation between variables.
func (c config) Check() error {
	var mistakes []error
	for _, token := range c.OpsToken.List() {
		if len(token) < minToken {
			mistakes = append(mistakes, fmt.Errorf("OPS_TOKEN: each token needs at least %d bytes", minToken))
		}
	}
	if (strings.TrimSpace(c.OpsAudience) == "") != (len(c.OpsAllow) == 0) {
		mistakes = append(mistakes, errors.New("OPS_AUDIENCE and OPS_ALLOW: set both, or neither"))
	}
	for i, email := range c.OpsAllow {
		if !auth.IsAddress(email) {
			mistakes = append(mistakes, fmt.Errorf("OPS_ALLOW: entry %d is no e-mail address", i+1))
		}
	}
	switch c.PushAuth {
	case "oidc", "iam":
		if c.PushAudience == "" {
			mistakes = append(mistakes, fmt.Errorf("PUSH_AUDIENCE: required with PUSH_AUTH=%s", c.PushAuth))
		}
		if c.PushServiceAccount == "" {
			mistakes = append(mistakes, fmt.Errorf("PUSH_SERVICE_ACCOUNT: required with PUSH_AUTH=%s", c.PushAuth))
		}
	case "none":
		if !c.emulated() {
			mistakes = append(mistakes, errors.New("PUSH_AUTH: none is accepted only where an emulator host is set"))
		}
	default:
		mistakes = append(mistakes, errors.New("PUSH_AUTH: must be oidc, iam or none"))
	}
	mistakes = append(mistakes, c.checkAlarm()...)
	return errors.Join(mistakes...)
}

// queueName is the form of a Cloud Tasks queue's full name.
var queueName = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/queues/[^/]+$`)

// checkAlarm reports what is wrong with the alarm's variables.
func (c config) checkAlarm() (mistakes []error) {
	set := 0
	for _, value := range []string{c.AlarmQueue, c.AlarmURL, c.AlarmAccount} {
		if value != "" {
			set++
		}
	}
	if set != 0 && set != 3 {
		mistakes = append(mistakes, errors.New("ALARM_QUEUE, ALARM_URL and ALARM_SERVICE_ACCOUNT: set all of them, or none"))
	}
	if c.AlarmQueue != "" && !queueName.MatchString(c.AlarmQueue) {
		mistakes = append(mistakes, errors.New("ALARM_QUEUE: must be projects/P/locations/L/queues/Q"))
	}
	if base, err := url.Parse(c.AlarmURL); c.AlarmURL != "" && (err != nil || base.Host == "" || c.AlarmURL != "https://"+base.Host) {
		mistakes = append(mistakes, errors.New("ALARM_URL: must be https://host, without a path"))
	}
	if c.AlarmAccount != "" && !auth.IsAddress(c.AlarmAccount) {
		mistakes = append(mistakes, errors.New("ALARM_SERVICE_ACCOUNT: is no e-mail address"))
	}
	return mistakes
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

// subscriptions is the client of the subscription service. It is nil where no queue of this
// worker sends to it.
func (c config) subscriptions(cat *catalog.Catalog) (*delivery.PaymentWebhook, error) {
	q, needed := cat.HandledBy(worker.Notify)
	if !needed || (c.Pool != "" && c.Pool != q.Pool) {
		return nil, nil
	}
	secrets := c.SigningSecret.List()
	if c.SubscriptionURL.Reveal() == "" || len(secrets) == 0 {
		return nil, fmt.Errorf("SUBSCRIPTION_SERVICE_URL and WEBHOOK_SIGNING_SECRET: required to serve queue %s", q.ID)
	}
	webhook, err := delivery.New(delivery.Config{BaseURL: c.SubscriptionURL.Reveal(), Secret: secrets[0], Now: time.Now})
	if err != nil {
		return nil, fmt.Errorf("SUBSCRIPTION_SERVICE_URL, WEBHOOK_SIGNING_SECRET: %w", err)
	}
	return webhook, nil
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
	subscriptions, err := cfg.subscriptions(cat)
	if err := errors.Join(envErr, err); err != nil {
		return err
	}
	log := telemetry.NewLogger(stdout, cfg.LogLevel)
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
		Catalog: cat, Subscriptions: subscriptions, Pool: cfg.Pool, Store: documents, Publisher: publisher,
		Authenticator: worker.Authenticate(verifier),
		Access:        access, Log: log, Metrics: metrics, Now: time.Now,
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
