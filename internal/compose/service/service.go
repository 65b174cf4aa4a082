// Package service has what the deployed services share: their variables, the catalog for their help, their
// clients for Google's services, and their server. It does not know what a service does.
package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"billhook/catalog"
	"billhook/internal/platform/env"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/telemetry"
)

// Config has the variables of every service, except its port, whose default differs.
type Config struct {
	Host              string     `env:"HOST" about:"the address to listen on; empty is every address"`
	MetricsPort       env.Port   `env:"METRICS_PORT" about:"the port of GET /metrics; empty is 9090, or a free one where PORT is 0"`
	Project           string     `env:"GOOGLE_CLOUD_PROJECT,required" about:"the Google Cloud project"`
	Installation      string     `env:"INSTALLATION" about:"the installation's name, where the project has several: it stands before the ids of topics and subscriptions"`
	PubSubEmulator    string     `env:"PUBSUB_EMULATOR_HOST" about:"host:port of Google's Pub/Sub emulator, in place of Pub/Sub"`
	FirestoreEmulator string     `env:"FIRESTORE_EMULATOR_HOST" about:"host:port of Google's Firestore emulator, in place of Firestore"`
	Database          string     `env:"FIRESTORE_DATABASE" about:"the Firestore database; empty is INSTALLATION, or (default) where that is empty too"`
	IngestDatabase    string     `env:"INGEST_DATABASE" about:"the webhook service's database, with copies that the workers make of what it reads; empty is FIRESTORE_DATABASE"`
	CatalogDir        string     `env:"CATALOG_DIR" about:"a folder with the catalog's files; empty is the built-in catalog"`
	Queues            []string   `env:"QUEUES" about:"the queues that run, by id or alias, comma-separated; empty is all that are enabled"`
	LogLevel          slog.Level `env:"LOG_LEVEL" envDefault:"INFO" about:"DEBUG, INFO, WARN or ERROR"`
}

// Check refuses one port for two servers, invalid names, and copies that would overwrite documents.
func (c Config) Check(port env.Port) error {
	var same error
	if c.IngestDatabase == c.MainDatabase() {
		same = errors.New("INGEST_DATABASE: is FIRESTORE_DATABASE; leave it empty, or name another")
	}
	return errors.Join(c.ports(port).Check(), c.Names().Check(), same)
}

// MainDatabase returns the id of the database with all documents, the installation's own unless another is
// configured: events of two installations in one database would be taken for duplicates.
func (c Config) MainDatabase() string { return cmp.Or(c.Database, c.Installation, "(default)") }

func (c Config) ports(port env.Port) serve.Ports {
	return serve.Ports{Host: c.Host, Service: string(port), Metrics: string(c.MetricsPort)}
}

// Names returns the installation's names in Pub/Sub.
func (c Config) Names() pubsub.Names {
	return pubsub.Names{ProjectID: c.Project, Installation: c.Installation}
}

// Emulated reports whether an emulator replaces one of Google's services.
func (c Config) Emulated() bool { return c.PubSubEmulator != "" || c.FirestoreEmulator != "" }

// Shown returns the catalog for the help. A mistake in the configured one is reported at the start.
func (c Config) Shown() *catalog.Catalog {
	cat, err := catalog.Load(c.CatalogDir)
	if err != nil {
		cat, _ = catalog.Load("") // the tests of the catalog check it
	}
	if narrowed, err := cat.Only(c.Queues); err == nil {
		return narrowed
	}
	return cat
}

// Open connects to Pub/Sub, and to a Firestore database.
func (c Config) Open(ctx context.Context, database string) (*pubsub.Publisher, *firestore.Store, error) {
	publisher, err := pubsub.NewPublisher(ctx, c.Names())
	if err != nil {
		return nil, nil, err
	}
	documents, err := firestore.New(ctx, c.Project, database)
	if err != nil {
		return nil, nil, errors.Join(err, publisher.Close())
	}
	return publisher, documents, nil
}

// drain bounds the requests in flight after the signal to stop. Cloud Run kills the process 2 s later.
const drain = 8 * time.Second

// Handler answers the requests of a service, each within Longest.
type Handler interface {
	http.Handler
	Longest() time.Duration
	Drain()
}

// Serve runs a server with the handler on the service's ports until ctx ends, then drains it.
func (c Config) Serve(
	ctx context.Context, s serve.Server, port env.Port, h Handler, m *telemetry.Metrics,
) error {
	s.Handler, s.Longest, s.Draining, s.Drain = h, h.Longest(), h.Drain, drain
	listener, beside, err := c.ports(port).Listen(ctx)
	if err != nil {
		return err
	}
	return s.Run(ctx, listener, m.Handler(), beside)
}

// Run runs a service until ctx ends.
type Run func(ctx context.Context, getenv func(string) string, stdout io.Writer) error

// Main is the main function of a service. It prints the help if an argument requests it, else runs it.
func Main(name string, help func(getenv func(string) string) env.Help, run Run) {
	serve.Main(name, func(ctx context.Context) error {
		if shown, err := help(os.Getenv).Asked(os.Args[1:], os.Stdout); shown {
			return err
		}
		return run(ctx, os.Getenv, os.Stdout)
	})
}
