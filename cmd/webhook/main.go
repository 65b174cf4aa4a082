// Command webhook is the webhook service: it takes signed webhooks from payment providers, minimizes them
// and publishes them to Pub/Sub. It answers once the publish is confirmed.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/products"
	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/env"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/telemetry"
)

func main() {
	serve.Main("webhook", func(ctx context.Context) error { return command(ctx, os.Args[1:], os.Getenv, os.Stdout) })
}

func command(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer) error {
	if asked, err := help(getenv).Asked(args, stdout); asked {
		return err
	}
	return run(ctx, getenv, stdout)
}

type config struct {
	Host              string   `env:"HOST" about:"the address to listen on; empty is every address"`
	Port              env.Port `env:"PORT" envDefault:"8080" about:"the port to listen on; 0 chooses one, which the line \"message\":\"listening\" names"`
	MetricsPort       env.Port `env:"METRICS_PORT" about:"the port of GET /metrics; empty is 9090, or a free one where PORT is 0"`
	Project           string   `env:"GOOGLE_CLOUD_PROJECT,required" about:"the Google Cloud project"`
	Installation      string   `env:"INSTALLATION" about:"the installation's name, where the project has several: it stands before the ids of topics and subscriptions"`
	PubSubEmulator    string   `env:"PUBSUB_EMULATOR_HOST" about:"host:port of Google's Pub/Sub emulator, in place of Pub/Sub"`
	FirestoreEmulator string   `env:"FIRESTORE_EMULATOR_HOST" about:"host:port of Google's Firestore emulator, in place of Firestore"`
	Database          string   `env:"FIRESTORE_DATABASE" about:"the Firestore database; empty is INSTALLATION, or (default) where that is empty too"`
	// LimitsDatabase has the blocks that instances share to keep to a queue's rate; empty: FIRESTORE_DATABASE.
	LimitsDatabase   string     `env:"LIMITS_DATABASE" about:"the database in which the instances count together what they let in; empty is that of FIRESTORE_DATABASE"`
	CatalogDir       string     `env:"CATALOG_DIR" about:"a folder with the catalog's files; empty is the built-in catalog"`
	Queues           []string   `env:"QUEUES" about:"the queues that run, by id or alias, comma-separated; empty is all that are enabled"`
	LogLevel         slog.Level `env:"LOG_LEVEL" envDefault:"INFO" about:"DEBUG, INFO, WARN or ERROR"`
	ToleranceSeconds int        `env:"WEBHOOK_TOLERANCE_SECONDS" envDefault:"300" about:"how old or early a signed time may be: 1 to 3600"`
	// ProducerAccounts are the catalog's accounts that send by a token.
	ProducerAccounts map[string]string `env:"PRODUCER_ACCOUNTS" envKeyValSeparator:"=" about:"whose the catalog's accounts are, which send by a token: name=e-mail, comma-separated; set with PRODUCER_AUDIENCE"`
	ProducerAudience string            `env:"PRODUCER_AUDIENCE" about:"what the audience of such a token begins with, before the path that it is sent to; set with PRODUCER_ACCOUNTS"`
}

func (c config) Check() error {
	var window error
	if c.ToleranceSeconds < 1 || c.ToleranceSeconds > 3600 {
		window = errors.New("WEBHOOK_TOLERANCE_SECONDS: must be 1 to 3600")
	}
	mistakes := []error{c.ports().Check(), window, c.names().Check()}
	if (c.ProducerAudience == "") != (len(c.ProducerAccounts) == 0) {
		mistakes = append(mistakes, errors.New("PRODUCER_ACCOUNTS and PRODUCER_AUDIENCE: set both, or neither"))
	}
	for name, email := range c.ProducerAccounts {
		if !auth.IsAddress(email) {
			mistakes = append(mistakes, fmt.Errorf("PRODUCER_ACCOUNTS: that of %s is no e-mail address", name))
		}
	}
	return errors.Join(mistakes...)
}

func (c config) names() pubsub.Names {
	return pubsub.Names{ProjectID: c.Project, Installation: c.Installation}
}

// database is the installation's own, unless another is named: events of two installations in one would
// be taken for duplicates of each other.
func (c config) database() string { return cmp.Or(c.Database, c.Installation) }

func (c config) ports() serve.Ports {
	return serve.Ports{Host: c.Host, Service: string(c.Port), Metrics: string(c.MetricsPort)}
}

func help(getenv func(string) string) env.Help {
	h := env.Help{About: "webhook takes signed webhooks and producers' messages, and publishes them to Pub/Sub.", Own: env.Variables[config]()}
	cat, err := catalog.Load(getenv("CATALOG_DIR"))
	if err != nil {
		cat, _ = catalog.Load("") // the tests of the catalog check it
	}
	cfg, _ := env.Parse[config](getenv) // what cannot be read is told at the start
	if narrowed, err := cat.Only(cfg.Queues); err == nil {
		cat = narrowed
	}
	for _, name := range slices.Sorted(maps.Keys(cat.Sources)) {
		h.Catalog = append(h.Catalog, env.Variable{
			Name: cat.Sources[name].SecretVariable, Required: true,
			About: "the secrets that source " + name + " signs with, comma-separated; each needs at least 24 bytes",
		})
		if key := cat.Sources[name].APIKeyVariable; key != "" {
			h.Catalog = append(h.Catalog, env.Variable{Name: key, Required: true, About: "the key of the API of source " + name})
		}
	}
	return h
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
	secrets, apiKeys := map[string][]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(cat.Sources)) {
		source := cat.Sources[name]
		secrets[name] = env.Secret(getenv(source.SecretVariable)).List()
		// webhook.New refuses weak secrets too, but only after the other mistakes are reported.
		if _, err := signature.NewVerifier(cat.Signature(source), secrets[name], time.Second, time.Now); err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", source.SecretVariable, err))
		}
		if source.APIKeyVariable != "" {
			if apiKeys[name] = strings.TrimSpace(getenv(source.APIKeyVariable)); apiKeys[name] == "" {
				mistakes = append(mistakes, fmt.Errorf("%s: is not set", source.APIKeyVariable))
			}
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return err
	}
	log := telemetry.NewLogger(stdout, cfg.LogLevel)
	// Clients outlive the signal: requests in flight still need them during the drain.
	clients := context.WithoutCancel(ctx)
	publisher, err := pubsub.NewPublisher(clients, cfg.names())
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }() // every publish has been answered
	documents, err := firestore.New(clients, cfg.Project, cfg.database())
	if err != nil {
		return err
	}
	defer func() { _ = documents.Close() }() // the process ends; nothing is lost

	blocks := documents
	if cfg.LimitsDatabase != "" {
		if blocks, err = firestore.New(clients, cfg.Project, cfg.LimitsDatabase); err != nil {
			return err
		}
		defer func() { _ = blocks.Close() }() // the process ends; nothing is lost
	}

	accounts := webhook.Accounts{Emails: cfg.ProducerAccounts, Audience: cfg.ProducerAudience}
	if len(cfg.ProducerAccounts) > 0 {
		if accounts.Tokens, err = auth.NewAccounts(auth.Config{}); err != nil {
			return err
		}
	}
	metrics := telemetry.NewMetrics()
	service, err := webhook.New(webhook.Config{
		Catalog: cat, Secrets: secrets, Keys: apiKeys, Tolerance: time.Duration(cfg.ToleranceSeconds) * time.Second,
		Publisher: publisher, Customers: webhook.NewCustomers(documents, time.Now), Products: products.NewReader(documents, cat.Products, time.Now),
		Log: log, Metrics: metrics, Now: time.Now, PublishTimeout: publishTimeout,
		Release: serve.BuildOf().Release(cat.Hash()), Accounts: accounts, Orders: documents,
		Admission: webhook.NewLimits(webhook.LimitsConfig{
			Blocks: blocks, Backlogs: documents, Log: log, Metrics: metrics, Now: time.Now, Dice: rand.IntN,
		}),
	})
	if err != nil {
		return err
	}
	server := &serve.Server{
		Name: "webhook", Handler: service, Log: log, Drain: drain, ReadTimeout: readTimeout, Longest: service.Longest(), Draining: service.Drain,
	}
	return server.RunOn(ctx, cfg.ports(), metrics.Handler())
}
