// Command webhook is the door: it takes signed webhooks from payment providers, minimizes them
// and publishes them to Pub/Sub. It answers once the publish is confirmed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"billhook/catalog"
	"billhook/internal/env"
	"billhook/internal/gcp/firestore"
	"billhook/internal/gcp/pubsub"
	"billhook/internal/products"
	"billhook/internal/serve"
	"billhook/internal/signature"
	"billhook/internal/telemetry"
	"billhook/internal/webhook"
)

func main() {
	serve.Main("webhook", func(ctx context.Context) error { return run(ctx, os.Getenv, os.Stdout) })
}

// config is the webhook service's environment. The variables of the secrets are not in it: the
// catalog names them.
type config struct {
	Host        string `env:"HOST"`
	Port        string `env:"PORT" envDefault:"8080"`
	MetricsPort string `env:"METRICS_PORT"`
	Project     string `env:"GOOGLE_CLOUD_PROJECT,required"`
	Database    string `env:"FIRESTORE_DATABASE" envDefault:"(default)"`
	// DoorDatabase has the blocks that instances share to keep to a queue's rate; empty: FIRESTORE_DATABASE.
	DoorDatabase     string     `env:"DOOR_DATABASE"`
	CatalogDir       string     `env:"CATALOG_DIR"`
	Queues           []string   `env:"QUEUES"`
	LogLevel         slog.Level `env:"LOG_LEVEL" envDefault:"INFO"`
	ToleranceSeconds int        `env:"WEBHOOK_TOLERANCE_SECONDS" envDefault:"300"`
}

// Check reports every broken relation between variables.
func (c config) Check() error {
	if c.ToleranceSeconds < 1 || c.ToleranceSeconds > 3600 {
		return errors.New("WEBHOOK_TOLERANCE_SECONDS: must be 1 to 3600")
	}
	return nil
}

const (
	// drain bounds the requests in flight after the signal to stop. Cloud Run kills the process
	// two seconds later.
	drain = 8 * time.Second
	// readTimeout bounds how long a sender may take for its request.
	readTimeout = 20 * time.Second
	// publishTimeout is shorter than any sender's patience.
	publishTimeout = 5 * time.Second
)

// run is the whole program without signals and exit code.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, envErr := env.Parse[config](getenv)
	cat, err := catalog.Load(cfg.CatalogDir)
	if err != nil {
		return errors.Join(envErr, fmt.Errorf("CATALOG_DIR: %w", err))
	}
	if cat, err = cat.Only(cfg.Queues); err != nil {
		return errors.Join(envErr, err)
	}
	mistakes := []error{envErr}
	secrets := map[string][]string{}
	for name, source := range cat.Sources {
		secrets[name] = env.Secret(getenv(source.SecretVariable)).List()
		// webhook.New refuses weak secrets too, but only after the other mistakes are reported.
		if _, err := signature.NewVerifier(signature.Scheme(source.Scheme), secrets[name], time.Second, time.Now); err != nil {
			mistakes = append(mistakes, fmt.Errorf("environment: %s: %w", source.SecretVariable, err))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return err
	}
	log := telemetry.NewLogger(stdout, cfg.LogLevel)
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

	blocks := documents
	if cfg.DoorDatabase != "" {
		if blocks, err = firestore.New(clients, cfg.Project, cfg.DoorDatabase); err != nil {
			return err
		}
		defer func() { _ = blocks.Close() }() // the process ends; nothing is lost
	}

	metrics := telemetry.NewMetrics()
	service, err := webhook.New(webhook.Config{
		Catalog: cat, Secrets: secrets, Tolerance: time.Duration(cfg.ToleranceSeconds) * time.Second,
		Publisher: publisher, Customers: webhook.NewCustomers(documents, time.Now), Products: products.NewReader(documents, cat.Products, time.Now),
		Log: log, Metrics: metrics, Now: time.Now, PublishTimeout: publishTimeout,
		Admission: webhook.NewLimits(webhook.LimitsConfig{
			Blocks: blocks, Backlogs: documents, Log: log, Metrics: metrics, Now: time.Now, Dice: rand.IntN,
		}),
	})
	if err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	server := &serve.Server{
		Name: "webhook", Handler: service, Log: log, Drain: drain, ReadTimeout: readTimeout, Longest: service.Longest(), Draining: service.Drain,
	}
	return server.RunOn(ctx, serve.Ports{Host: cfg.Host, Service: cfg.Port, Metrics: cfg.MetricsPort}, metrics.Handler())
}
