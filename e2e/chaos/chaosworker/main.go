// Command chaosworker is the worker of the chaos experiment. It is assembled from the packages
// of cmd/worker, with its own catalog and handlers. It publishes to the harness. It refuses any
// other use.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"billhook/catalog"
	"billhook/e2e/chaos/arm"
	"billhook/internal/compose/worker"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/env"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/telemetry"
)

func main() {
	serve.Main("chaosworker", func(ctx context.Context) error { return run(ctx, os.Getenv, os.Stdout) })
}

type config struct {
	Project           string `env:"GOOGLE_CLOUD_PROJECT,required"`
	FirestoreEmulator string `env:"FIRESTORE_EMULATOR_HOST,required"`
	// Outside is the base URL of the harness, which is both the outside service and the broker.
	Outside string `env:"CHAOS_OUTSIDE,required"`
}

const drain = 8 * time.Second

func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, err := env.Parse[config](getenv)
	if err != nil {
		return err
	}
	verifier, err := auth.New(auth.Config{Mode: "none", EmulatorHost: true})
	if err != nil {
		return err
	}
	documents, err := firestore.NewEmulated(context.WithoutCancel(ctx), cfg.FirestoreEmulator, cfg.Project, "")
	if err != nil {
		return err
	}
	defer func() { _ = documents.Close() }() // the process ends; nothing is lost

	shipped, err := catalog.Load("")
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(stdout, slog.LevelInfo)
	outside := &outside{base: cfg.Outside, client: &http.Client{Timeout: 3 * time.Second}}
	declared := &catalog.Catalog{Queues: arm.Queues(), Contracts: shipped.Contracts, Journal: shipped.Journal}
	gateway, err := reached(shipped, cfg.Outside)
	if err != nil {
		return err
	}
	defer gateway.Close()
	handlers := &handlers{store: documents, outside: outside, queue: declared.Queue}
	service, err := worker.New(worker.Config{
		Catalog: declared, Store: documents, Publisher: outside, Targets: delivery.Targets{arm.Gateway: gateway},
		Authenticator: worker.Authenticate(verifier), Access: ops.Access{OpenOnLoopback: true},
		Log: log, Metrics: telemetry.NewMetrics(), Now: time.Now, AfterFunc: alarm.AfterFunc,
		Handlers: func(r *handler.Registry) { handlers.register(r) },
	})
	if err != nil {
		return err
	}
	listener, err := serve.Listen(ctx, "127.0.0.1", "0")
	if err != nil {
		return err
	}
	server := &serve.Server{Name: "worker", Handler: service, Log: log, Drain: drain, ReadTimeout: time.Minute, Longest: service.Longest(), Draining: service.Drain}
	return server.Run(ctx, listener)
}

// reached is the shipped catalog's gateway, at the harness. It is given up sooner.
func reached(shipped *catalog.Catalog, outside string) (*delivery.Target, error) {
	declared, ok := shipped.Targets[arm.Gateway]
	if !ok {
		return nil, errors.New("the catalog has no gateway")
	}
	declared.Timeouts.Total = arm.Patience
	return delivery.New(delivery.Config{Target: declared, BaseURL: outside, Secret: arm.Secret, Now: time.Now})
}
