package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/emulator"
	"billhook/emulator/topology"
	"billhook/internal/apps/ledger"
	"billhook/internal/compose/devstack"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// taskEvery is how often dev calls the worker's tasks, as Cloud Scheduler would.
const taskEvery = 10 * time.Second

// shortWait is the wait between two attempts with --waits short. The catalog's would make the samples
// last for minutes.
const shortWait = time.Second

// devDrain is how long dev waits after Ctrl-C for requests in flight.
const devDrain = time.Second

func (p *program) devCommand() *cobra.Command {
	var onEmulators, quiet, verbose bool
	var webhookPort, workerPort, servicePort, madeBy, folder, waits string
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run webhook, worker and stand-ins in this process, send signed samples, then keep serving",
		Long: "With --data the documents of the store and the messages that wait for delivery are kept in a folder from one run to the\n" +
			"next. Without it they are in a temporary folder and gone with the process.\n\n" +
			"A target whose address is in the environment (such as SUBSCRIPTION_SERVICE_URL) is called there, and not at the stand-in;\n" +
			"then no samples are sent.\n\n" +
			"With --json each line is an object with a message: up (with the addresses of pages, webhook, worker and services), sample\n" +
			"(with what was sent and what became of it), look (with a command that shows more), or the text of any other line.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			ctx := command.Context()
			p.writeLines()
			if err := oneOf([]string{"short", "catalog"}, &waits); err != nil {
				return usageError("--waits: " + err.Error())
			}
			if madeBy != "" && (madeBy != "terraform" || !onEmulators) {
				return usageError("--topology: can only be terraform, and with --emulators")
			}
			if folder != "" && onEmulators {
				return usageError("--data: Google's emulators keep nothing; it goes without --emulators")
			}
			c, err := p.catalog()
			if err != nil {
				return err
			}
			if waits == "short" {
				c.ShortenWaits(shortWait)
			}
			state, err := openData(folder)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, state.remove()) }()
			flaky := &failOnce{eventID: "900000000000000041"}
			config := devstack.Config{
				Catalog: c, ProjectID: p.env.Project, Installation: p.env.Installation, Secrets: secretsOf(c, p.getenv), Targets: targetsOf(c, p.getenv),
				WebhookPort: webhookPort, WorkerPort: workerPort, ServicePort: servicePort, TaskEvery: taskEvery,
				Drain: devDrain, StorePath: state.store(), BrokerPath: state.broker(), OpsTokens: p.env.OpsToken.List(),
				Log:       telemetry.NewLogger(io.Discard, slog.LevelError),
				WrapStore: func(s store.Store) store.Store { flaky.Store = s; return flaky },
			}
			if verbose {
				config.Log = telemetry.NewLogger(command.OutOrStdout(), slog.LevelInfo)
			}
			if onEmulators {
				sdk, err := emulator.Find(ctx)
				if err != nil {
					return err
				}
				config.Emulators = &sdk
				if madeBy == "terraform" {
					queues := topology.Terraform{
						Root: filepath.Join("terraform", "emulator"), Folder: state.folder, CatalogDir: p.env.CatalogDir,
						ProjectID: p.env.Project, Installation: p.env.Installation,
					}
					config.Provision = func(ctx context.Context, broker, workerURL string) error {
						if err := queues.Init(ctx); err != nil {
							return err
						}
						return queues.Apply(ctx, broker, workerURL)
					}
				}
				p.printf("Starting Google's Pub/Sub and Firestore emulators ...\n")
			}
			stack, err := devstack.Start(ctx, config)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return byFlag(err)
			}
			defer func() {
				closing := stack.Close()
				if errors.Is(closing, context.DeadlineExceeded) {
					closing = nil // a sender has stopped in the middle of its request, or takes longer than the drain
				}
				err = errors.Join(err, closing)
			}()
			if !p.line(map[string]any{
				"message": "up", "pages": stack.WorkerURL + "/ops/", "webhook": stack.WebhookURL, "worker": stack.WorkerURL, "services": stack.ServiceURL, "waits": waits,
			}) {
				p.printf("Look at it in a browser: %s/ops/\n\n", stack.WorkerURL)
				p.printf("Billhook is up: webhook %s, worker %s,\nstand-ins for the services that it calls %s.\n", stack.WebhookURL, stack.WorkerURL, stack.ServiceURL)
				if waits == "short" {
					p.printf("Each wait between two attempts is 1 s here; --waits catalog keeps those of the catalog.\n")
				} else {
					p.printf("The waits between attempts are those of the catalog; --waits short makes each 1 s.\n")
				}
			}
			real := realTargets(c, p.getenv)
			for _, variable := range slices.Sorted(maps.Keys(real)) {
				p.printf("%s: %s, not a stand-in. No samples are sent, for they would reach it.\n", variable, real[variable])
			}
			state.describe(p, stack.Loaded, longestLease(c))
			if !quiet && len(real) == 0 {
				show := &demo{program: p, stack: stack, catalog: c, secrets: config.Secrets, again: state.reused, ask: p.client(stack.WorkerURL)}
				if err := show.run(ctx); err != nil {
					if ctx.Err() != nil {
						return nil
					}
					return err
				}
			}
			p.printHints(stack, c)
			<-ctx.Done()
			return nil
		},
	}
	command.Flags().StringVar(&folder, "data", "", "the folder to keep the state in; empty is a temporary one")
	command.Flags().BoolVar(&onEmulators, "emulators", false, "use Google's own emulators instead of the stand-ins")
	command.Flags().StringVar(&madeBy, "topology", "", "what makes the queues on the emulators: terraform, from the repository's root; empty is this program")
	command.Flags().StringVar(&waits, "waits", "short", "the waits between attempts: short is 1 s each, catalog those of the catalog")
	command.Flags().BoolVar(&quiet, "no-samples", false, "send nothing, just serve")
	command.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the services' own log lines")
	command.Flags().StringVar(&webhookPort, "webhook-port", "8080", "where the webhook service listens, 0 for a free port")
	command.Flags().StringVar(&servicePort, "service-port", "8082", "where the stand-ins for the services that are called listen, 0 for a free port")
	command.Flags().StringVar(&workerPort, "worker-port", "8081", "where the worker listens, 0 for a free port")
	return command
}

func byFlag(err error) error {
	port, ok := errors.AsType[*devstack.PortError](err)
	if !ok {
		return err
	}
	flag := "--" + port.Of + "-port"
	return fmt.Errorf("%s: %w; %s 0 chooses a free one (make run ARGS=\"%s 0\")", flag, port.Err, flag, flag)
}

func longestLease(c *catalog.Catalog) (longest time.Duration) {
	for _, q := range c.Queues {
		longest = max(longest, q.Lease)
	}
	return longest
}

// The usual addresses, which commands take where none is given.
const (
	usualWebhook = "http://127.0.0.1:8080"
	usualWorker  = "http://127.0.0.1:8081"
)

func (p *program) printHints(stack *devstack.Stack, c *catalog.Catalog) {
	orders := c.Sources[paynow].Events["ON_ORDER_COMPLETED"]
	p.printf("\nLook further in another terminal:\n\n")
	if stack.WorkerURL != usualWorker || stack.WebhookURL != usualWebhook {
		p.printf("  export BILLHOOK_SERVER=%s BILLHOOK_WEBHOOK=%s\n", stack.WorkerURL, stack.WebhookURL)
	}
	p.printf("  bin/billhook queues ls\n  bin/billhook events ls\n")
	if orders != "" {
		p.printf("  bin/billhook send paynow\n")
		p.printf("  curl -s %s/v1/ops/accounts/%s\n", stack.WorkerURL, ledger.UserPoints(samples.UID))
	}
	p.printf("  curl -s %s/metrics\n", stack.WorkerMetricsURL)
	if orders != "" {
		p.printf("\nLook after the order with an unknown product:\n\n")
		p.printf("  bin/billhook dlq ls %s\n", orders)
		p.printf("  bin/billhook products set %s --points 500 --why \"sold since today\"\n", samples.UnknownProductID)
		p.printf("  bin/billhook dlq replay %s --why \"product added\"\n", orders)
	}
	service := stack.ServiceURL
	if callsGateway(c) {
		p.printf("\nHave the payment gateway decline, fail, hang, lose or forget, and see what it carried out:\n\n")
		p.printf("  curl -s %s/gateway/tell -d '{\"mode\":\"lose\",\"times\":1}'\n", service)
		p.printf("  curl -s %s/gateway/orders\n", service)
	}
	if stack.Service != nil {
		p.printf("\nHave the other services fail, refuse, hang or forget, and see what they were told:\n\n")
		p.printf("  curl -s %s/tell -d '{\"mode\":\"forget\",\"times\":1}'\n", service)
		if orders != "" {
			p.printf("  bin/billhook send paynow --sample subscription_renewed\n")
		}
		p.printf("  curl -s %s/deliveries\n", service)
	}
	p.printf("\nServing until Ctrl-C.\n")
}
