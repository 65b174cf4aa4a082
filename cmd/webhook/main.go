// Command webhook is the webhook service: it takes signed webhooks from payment providers, minimizes them
// and publishes them to Pub/Sub. It answers once the publish is confirmed.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/products"
	"billhook/internal/compose/service"
	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/env"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/telemetry"
)

func main() { service.Main("webhook", help, run) }

type config struct {
	Port env.Port `env:"PORT" envDefault:"8080" about:"the port to listen on; 0 chooses one, which the line \"message\":\"listening\" names"`
	service.Config
	ToleranceSeconds int `env:"WEBHOOK_TOLERANCE_SECONDS" envDefault:"300" about:"how old or early a signed time may be: 1 to 3600"`
	// ProducerAccounts are the catalog's accounts that send by a token.
	ProducerAccounts map[string]string `env:"PRODUCER_ACCOUNTS" envKeyValSeparator:"=" about:"whose the catalog's accounts are, which send by a token: name=e-mail, comma-separated; set with PRODUCER_AUDIENCE"`
	ProducerAudience string            `env:"PRODUCER_AUDIENCE" about:"what the audience of such a token begins with, before the path that it is sent to; set with PRODUCER_ACCOUNTS"`
}

func (c config) Check() error {
	mistakes := []error{c.Config.Check(c.Port)}
	if c.ToleranceSeconds < 1 || c.ToleranceSeconds > 3600 {
		mistakes = append(mistakes, errors.New("WEBHOOK_TOLERANCE_SECONDS: must be 1 to 3600"))
	}
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

func help(getenv func(string) string) env.Help {
	h := env.Help{
		About: "webhook takes signed webhooks and producers' messages, and publishes them to Pub/Sub.",
		Own:   env.Variables[config](),
	}
	cfg, _ := env.Parse[config](getenv) // what cannot be read is an error at the start
	cat := cfg.Shown()
	for _, name := range slices.Sorted(maps.Keys(cat.Sources)) {
		h.Catalog = append(h.Catalog, env.Variable{
			Name: cat.Sources[name].SecretVariable, Required: true,
			About: "the secrets that source " + name + " signs with, comma-separated; each needs at least 24 bytes",
		})
		if key := cat.Sources[name].APIKeyVariable; key != "" {
			h.Catalog = append(h.Catalog,
				env.Variable{Name: key, Required: true, About: "the key of the API of source " + name})
		}
	}
	return h
}

const (
	// readTimeout bounds how long a sender may take for its request.
	readTimeout = 20 * time.Second
	// publishTimeout is shorter than the timeout of any sender.
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
		if _, err := signature.NewVerifier(cat.Signature(source), secrets[name], time.Second,
			time.Now); err != nil {
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
	publisher, documents, err := cfg.Open(clients, cmp.Or(cfg.IngestDatabase, cfg.MainDatabase()))
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close(); _ = documents.Close() }() // every publish has been answered
	read := mirror.Copies{Store: documents}
	accounts := webhook.Accounts{Emails: cfg.ProducerAccounts, Audience: cfg.ProducerAudience}
	if len(cfg.ProducerAccounts) > 0 {
		if accounts.Tokens, err = auth.NewAccounts(auth.Config{}); err != nil {
			return err
		}
	}
	metrics := telemetry.NewMetrics()
	hooks, err := webhook.New(webhook.Config{
		Catalog: cat, Secrets: secrets, Keys: apiKeys, Tolerance: time.Duration(cfg.ToleranceSeconds) * time.Second,
		Publisher: publisher, UID: webhook.UIDs(read, time.Now), Points: products.NewReader(read, cat.Products,
			time.Now).Points,
		Log: log, Metrics: metrics, Now: time.Now, PublishTimeout: publishTimeout,
		Release: serve.BuildOf().Release(cat.Hash()), Accounts: accounts, Store: read, Blocks: read,
	})
	if err != nil {
		return err
	}
	return cfg.Serve(ctx, serve.Server{Name: "webhook", Log: log, ReadTimeout: readTimeout}, cfg.Port,
		hooks, metrics)
}
