package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/emulator"
	"billhook/internal/compose/devstack"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/env"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/telemetry"
)

const (
	// taskEvery is how often dev calls the worker's tasks, as Cloud Scheduler would.
	taskEvery = 10 * time.Second
	// shortWait is the wait between two attempts with --waits short. The catalog's would make the samples
	// last for minutes.
	shortWait = time.Second
	// devDrain is how long dev waits after Ctrl-C for requests in flight.
	devDrain = time.Second
)

type devRun struct {
	*program
	catalog *catalog.Catalog
	config  devstack.Config
	// folder has the state: that of --data, or a temporary one.
	folder, data              string
	onEmulators, verbose, mum bool
}

func (p *program) devCommand() *cobra.Command {
	d, waits := &devRun{program: p}, ""
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run webhook, worker and stand-ins in this process, send signed samples, then keep serving",
		Long: "With --data the documents of the store and the messages that wait for delivery are kept in a folder from one run to the\n" +
			"next. Without it they are in a temporary folder and gone with the process.\n\n" +
			"A target whose address is in the environment (such as SUBSCRIPTION_SERVICE_URL) is called there, and not at the stand-in;\n" +
			"then no samples are sent.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if d.output != asTable {
				return usageError("--output: dev prints for people")
			}
			if err := oneOf([]string{"short", "catalog"}, &waits); err != nil {
				return err
			}
			if d.catalog, err = p.catalog(); err != nil {
				return err
			}
			if waits == "short" {
				d.catalog.ShortenWaits(shortWait)
			}
			return d.run(command.Context(), waits)
		},
	}
	flags := command.Flags()
	flags.StringVar(&d.data, "data", "", "the folder to keep the state in; empty is a temporary one")
	flags.BoolVar(&d.onEmulators, "emulators", false, "use Google's own emulators, which keep nothing, instead of the stand-ins")
	flags.StringVar(&waits, "waits", "short", "the waits between attempts: short is 1 s each, catalog those of the catalog")
	flags.BoolVar(&d.mum, "no-samples", false, "send nothing, just serve")
	flags.BoolVarP(&d.verbose, "verbose", "v", false, "print the services' own log lines")
	flags.StringVar(&d.config.WebhookPort, "webhook-port", "8080", "where the webhook service listens, 0 for a free port")
	flags.StringVar(&d.config.ServicePort, "service-port", "8082", "where the stand-ins for the services that are called listen, 0 for a free port")
	flags.StringVar(&d.config.WorkerPort, "worker-port", "8081", "where the worker listens, 0 for a free port")
	command.MarkFlagsMutuallyExclusive("data", "emulators")
	return command
}

func (d *devRun) run(ctx context.Context, waits string) (err error) {
	reused, err := d.open()
	if err != nil {
		return err
	}
	if d.data == "" {
		defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }()
	}
	if err := d.configure(ctx); err != nil {
		return err
	}
	stack, err := devstack.Start(ctx, d.config)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return d.byFlag(err)
	}
	defer func() {
		closing := stack.Close()
		if errors.Is(closing, context.DeadlineExceeded) {
			closing = nil // a sender has stopped in the middle of its request, or takes longer than the drain
		}
		err = errors.Join(err, closing)
	}()
	d.env.Server = stack.WorkerURL
	d.printf("Look at it in a browser: %s/ops/\n\n", stack.WorkerURL)
	d.printf("Billhook is up: webhook %s, worker %s,\nstand-ins for the services that it calls %s.\n", stack.WebhookURL, stack.WorkerURL, stack.ServiceURL)
	d.printf("The waits between attempts are %s (--waits short or catalog).\n", map[string]string{"short": "1 s each", "catalog": "those of the catalog"}[waits])
	real := false
	for _, target := range d.catalog.TargetsOf("") {
		if at := d.getenv(target.URLVariable); at != "" {
			d.printf("%s: %s, not a stand-in. No samples are sent, for they would reach it.\n", target.URLVariable, at)
			real = true
		}
	}
	if reused {
		d.printf("It goes on with the state in %s; messages that wait for delivery: %d; dropped, as their queues are gone: %d.\n", d.folder, stack.Loaded.Waiting, stack.Loaded.Gone)
	} else if d.data != "" {
		d.printf("Its state is kept in %s: documents, and messages that wait for delivery.\n", d.folder)
	}
	if !d.mum && !real {
		show := &demo{program: d.program, stack: stack, catalog: d.catalog, secrets: d.config.Secrets, again: reused}
		if err := show.run(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	if ctx.Err() == nil {
		d.printHints(stack)
	}
	<-ctx.Done()
	return nil
}

// open makes the folder, and reports whether an earlier run has left its state there.
func (d *devRun) open() (reused bool, err error) {
	if d.folder = d.data; d.data == "" {
		d.folder, err = os.MkdirTemp("", "billhook-dev-")
		return false, err
	}
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return false, fmt.Errorf("--data: %w", err)
	}
	_, err = os.Stat(d.documents())
	return err == nil, nil
}

func (d *devRun) documents() string { return filepath.Join(d.folder, "store.db") }

// configure says what the stack is made of. A target without an address is at the stand-in.
func (d *devRun) configure(ctx context.Context) error {
	c := &d.config
	c.Catalog, c.ProjectID, c.Installation = d.catalog, d.env.Project, d.env.Installation
	c.Secrets, c.Targets, c.OpsTokens = secretsOf(d.catalog, d.getenv), map[string]devstack.Address{}, d.env.OpsToken.List()
	for name, target := range d.catalog.Targets {
		secrets := append(env.Secret(d.getenv(target.SecretVariable)).List(), devSecret)
		c.Targets[name] = devstack.Address{URL: d.getenv(target.URLVariable), Secret: secrets[0]}
	}
	c.TaskEvery, c.Drain, c.StorePath = taskEvery, devDrain, d.documents()
	if d.data != "" {
		c.BrokerPath = filepath.Join(d.folder, "broker.json")
	}
	if c.Log = telemetry.NewLogger(io.Discard, slog.LevelError); d.verbose {
		c.Log = telemetry.NewLogger(d.stdout, slog.LevelInfo)
	}
	if !d.onEmulators {
		return nil
	}
	sdk, err := emulator.Find(ctx)
	if err != nil {
		return err
	}
	c.Emulators = &sdk
	d.printf("Starting Google's Pub/Sub and Firestore emulators ...\n")
	return nil
}

// byFlag says which flag changes what has kept the stack from starting.
func (d *devRun) byFlag(err error) error {
	if errors.Is(err, standin.ErrInUse) {
		return fmt.Errorf("--data: another billhook dev is using %s: end it, or name another folder", d.data)
	}
	port, ok := errors.AsType[*devstack.PortError](err)
	if !ok {
		return err
	}
	flag := "--" + port.Of + "-port"
	return fmt.Errorf("%s: %w; %s 0 chooses a free one (make run ARGS=\"%s 0\")", flag, port.Err, flag, flag)
}

// printHints says what to type next.
func (d *devRun) printHints(stack *devstack.Stack) {
	d.printf("\nLook further in another terminal:\n\n")
	d.printf("  export BILLHOOK_SERVER=%s BILLHOOK_WEBHOOK=%s\n", stack.WorkerURL, stack.WebhookURL)
	d.printf("  bin/billhook queues ls\n  bin/billhook events ls\n  bin/billhook send %s\n  curl -s %s/metrics\n", samples.Provider, stack.WorkerMetricsURL)
	d.printf("\nHave a service that it calls forget its answer, and see what it was told:\n\n")
	d.printf("  curl -s %s/tell -d '{\"mode\":\"forget\",\"times\":1}'\n  curl -s %s/deliveries\n\nServing until Ctrl-C.\n", stack.ServiceURL, stack.ServiceURL)
}
