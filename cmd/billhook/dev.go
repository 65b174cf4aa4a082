package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/emulator"
	"billhook/emulator/topology"
	"billhook/internal/dedupe"
	"billhook/internal/embedded"
	"billhook/internal/ledger"
	"billhook/internal/local"
	"billhook/internal/ops"
	"billhook/internal/retry"
	"billhook/internal/store"
	"billhook/internal/telemetry"
	"billhook/internal/webhook/samples"
	"billhook/internal/worker"
)

// taskEvery is how often dev calls the worker's tasks, as Cloud Scheduler would.
const taskEvery = 10 * time.Second

// devBackoff is how long a failed delivery waits in dev, whatever the catalog says,
// so that nobody waits for the show.
const devBackoff = time.Second

// devDrain is how long Ctrl-C waits for what is in flight.
const devDrain = time.Second

func (p *program) devCommand() *cobra.Command {
	var onEmulators, quiet, verbose bool
	var webhookPort, workerPort, servicePort, madeBy, folder string
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run webhook, worker and stand-ins in this process, send signed samples, then keep serving",
		Long: "With --data the documents of the store and the messages that wait for delivery are kept in a folder from one run to the\n" +
			"next. Without it they are in a temporary folder and gone with the process.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			ctx := command.Context()
			if madeBy != "" && (madeBy != "terraform" || !onEmulators) {
				return errors.New("--topology: can only be terraform, and with --emulators")
			}
			if folder != "" && onEmulators {
				return errors.New("--data: Google's emulators keep nothing; it goes without --emulators")
			}
			c, err := p.catalog()
			if err != nil {
				return err
			}
			hurry(c)
			state, err := openData(folder)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, state.leave()) }()
			flaky := &failOnce{eventID: "900000000000000041"}
			config := local.Config{
				Catalog: c, ProjectID: p.env.Project, Secrets: secretsOf(c, p.getenv), Targets: targetsOf(c, p.getenv),
				WebhookPort: webhookPort, WorkerPort: workerPort, ServicePort: servicePort, TaskEvery: taskEvery,
				Drain: devDrain, StorePath: state.store(), BrokerPath: state.broker(), OpsTokens: p.env.OpsToken.List(),
				Log:       telemetry.NewLogger(io.Discard, slog.LevelError),
				WrapStore: func(s worker.Store) worker.Store { flaky.Store = s; return flaky },
			}
			if verbose {
				config.Log = telemetry.NewLogger(p.stdout, slog.LevelInfo)
			}
			if onEmulators {
				sdk, err := emulator.Find(ctx)
				if err != nil {
					return err
				}
				config.Emulators = &sdk
				if madeBy == "terraform" {
					queues := topology.Terraform{
						Root: filepath.Join("terraform", "emulator"), Folder: state.folder, CatalogDir: p.env.CatalogDir, ProjectID: p.env.Project,
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
			stack, err := local.Start(ctx, config)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			defer func() {
				closing := stack.Close()
				if errors.Is(closing, context.DeadlineExceeded) {
					closing = nil // whose sender has stopped, or has more patience than who pressed Ctrl-C
				}
				err = errors.Join(err, closing)
			}()
			p.printf("Billhook is up: webhook %s, worker %s, a stand-in for the subscription service %s.\n", stack.WebhookURL, stack.WorkerURL, stack.ServiceURL)
			state.tell(p, stack.Loaded)
			if !quiet {
				show := &showing{program: p, stack: stack, secret: config.Secrets["paynow"][0],
					ask: client{base: stack.WorkerURL, http: &http.Client{Timeout: 30 * time.Second}}}
				if state.again && show.shown(ctx) {
					p.printf("The samples were sent by an earlier run, and are not sent again.\n")
				} else if err := show.run(ctx); err != nil {
					if ctx.Err() != nil {
						return nil
					}
					return err
				}
			}
			p.printHints(stack, c.Sources["paynow"].Events["ON_ORDER_COMPLETED"])
			<-ctx.Done()
			return nil
		},
	}
	command.Flags().StringVar(&folder, "data", "", "the folder to keep the state in; empty is a temporary one")
	command.Flags().BoolVar(&onEmulators, "emulators", false, "use Google's own emulators instead of the stand-ins")
	command.Flags().StringVar(&madeBy, "topology", "", "what makes the queues on the emulators: terraform, from the repository's root; empty is this program")
	command.Flags().BoolVar(&quiet, "no-samples", false, "send nothing, just serve")
	command.Flags().BoolVarP(&verbose, "verbose", "v", false, "print the services' own log lines")
	command.Flags().StringVar(&webhookPort, "webhook-port", "8080", "where the webhook service listens, 0 for a free port")
	command.Flags().StringVar(&servicePort, "service-port", "8082", "where the stand-in for the subscription service listens, 0 for a free port")
	command.Flags().StringVar(&workerPort, "worker-port", "8081", "where the worker listens, 0 for a free port")
	return command
}

// firstSample is the id of the event that the show begins with.
const firstSample = "900000000000000011"

// hurry shortens every wait of the catalog to devBackoff.
func hurry(c *catalog.Catalog) {
	soon := retry.Policy{Base: devBackoff, Max: devBackoff}
	for i := range c.Queues {
		for eventType, h := range c.Queues[i].Handlers {
			h.Backoff = soon
			c.Queues[i].Handlers[eventType] = h
		}
		c.Queues[i].Backoff = soon
	}
}

// printHints says what to try while the stack serves; orders is the queue of the samples'.
func (p *program) printHints(stack *local.Stack, orders string) {
	hooks, work, service := stack.WebhookURL, stack.WorkerURL, stack.ServiceURL
	p.printf("\nServing until Ctrl-C. Send one by hand:\n\n")
	p.printf("  bin/billhook send paynow --webhook %s\n", hooks)
	p.printf("  bin/billhook events show <event id> --server %s\n", work)
	p.printf("  bin/billhook events ls --server %s\n", work)
	p.printf("  bin/billhook queues --server %s\n", work)
	p.printf("  curl -s %s/v1/ops/accounts/%s\n", work, ledger.UserPoints(samples.UID))
	p.printf("  curl -s %s/metrics\n", stack.WorkerMetricsURL)
	p.printf("\nOr look after the order with an unknown product:\n\n")
	p.printf("  bin/billhook dlq ls %s --server %s\n", orders, work)
	p.printf("  bin/billhook products set <product id> --points 500 --why \"sold since today\" --server %s\n", work)
	p.printf("  bin/billhook dlq replay %s --why \"product added\" --server %s\n", orders, work)
	p.printf("\nHave the subscription service fail, refuse, hang or forget, and see what it was told:\n\n")
	p.printf("  curl -s %s/tell -d '{\"mode\":\"forget\",\"times\":1}'\n", service)
	p.printf("  bin/billhook send paynow --sample subscription_renewed --webhook %s\n", hooks)
	p.printf("  curl -s %s/deliveries\n", service)
}

// failOnce is a store that fails the first effect of one event, for the show.
type failOnce struct {
	worker.Store
	eventID string
	failed  atomic.Bool
}

// Commit fails once where it would record the event as completed.
func (f *failOnce) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	for _, w := range writes {
		if w.Fields["event_id"] == f.eventID && w.Fields["status"] == string(dedupe.Completed) && f.failed.CompareAndSwap(false, true) {
			return nil, errors.New("dev: a failure for show")
		}
	}
	return f.Store.Commit(ctx, writes)
}

// showing sends the samples and prints what became of each.
type showing struct {
	*program
	stack  *local.Stack
	secret string
	ask    client
}

// run is the show. Each sample has a customer of its own, so that none waits for another.
func (s *showing) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s.printf("\nSending signed samples of PayNow's webhooks:\n\n")
	buyer := samples.Event{EventID: firstSample, OrderID: "900000000000000012"}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error {
			return s.credited(ctx, "an order", samples.OrderCompleted, buyer, samples.UID)
		},
		func(ctx context.Context) error { return s.duplicate(ctx, buyer) },
		s.unknownProduct,
		s.transient,
		func(ctx context.Context) error {
			return s.expect(ctx, "a full refund", samples.Refund, samples.Event{EventID: "900000000000000051", OrderID: buyer.OrderID}, "reversed", samples.UID)
		},
		s.renewal,
		s.forgotten,
		s.refused,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("dev: %w", err)
		}
	}
	return nil
}

func (s *showing) say(what, became string, args ...any) {
	s.printf("  %-34s %s\n", what, fmt.Sprintf(became, args...))
}

func (s *showing) send(ctx context.Context, sample string, event samples.Event) (reply, error) {
	c, err := s.catalog()
	if err != nil {
		return reply{}, err
	}
	return post(ctx, s.stack.WebhookURL, c.Sources["paynow"], s.secret, samples.Read(sample, event), time.Now())
}

// until polls the worker until the event's story satisfies done.
func (s *showing) until(ctx context.Context, eventID string, done func(ops.Event) bool) (ops.Event, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var event ops.Event
		err := s.ask.get(ctx, "/v1/ops/events/"+eventID, &event)
		var problem *problemError
		if err != nil && (!errors.As(err, &problem) || problem.status != http.StatusNotFound) {
			return event, err
		}
		if err == nil && done(event) {
			return event, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return event, fmt.Errorf("event %s: %w", eventID, ctx.Err())
		}
	}
}

func completed(e ops.Event) bool { return e.Status == string(dedupe.Completed) }

func (s *showing) balance(ctx context.Context, uid string) (int64, error) {
	var account ops.Account
	err := s.ask.get(ctx, "/v1/ops/accounts/"+string(ledger.UserPoints(uid)), &account)
	return account.Balance, err
}

func (s *showing) credited(ctx context.Context, what, sample string, event samples.Event, uid string) error {
	return s.expect(ctx, what, sample, event, "credited", uid)
}

func (s *showing) expect(ctx context.Context, what, sample string, event samples.Event, result, uid string) error {
	answer, err := s.send(ctx, sample, event)
	if err != nil {
		return err
	}
	story, err := s.until(ctx, event.EventID, completed)
	if err != nil {
		return err
	}
	if story.Result != result {
		return fmt.Errorf("event %s: %s instead of %s", event.EventID, story.Result, result)
	}
	balance, err := s.balance(ctx, uid)
	if err != nil {
		return err
	}
	s.say(what, "%d, then %s; the balance is %d points", answer.Status, story.Result, balance)
	return nil
}

func (s *showing) duplicate(ctx context.Context, buyer samples.Event) error {
	answer, err := s.send(ctx, samples.OrderCompleted, buyer)
	if err != nil {
		return err
	}
	// The next event of the same customer comes after it: once that is done, so is it.
	next := samples.Event{EventID: "900000000000000021", OrderID: "900000000000000022"}
	if _, err := s.send(ctx, samples.OrderCompleted, next); err != nil {
		return err
	}
	if _, err := s.until(ctx, next.EventID, completed); err != nil {
		return err
	}
	balance, err := s.balance(ctx, samples.UID)
	if err != nil {
		return err
	}
	s.say("the same order again", "%d, then skipped as a duplicate; with another order behind it the balance is %d", answer.Status, balance)
	return nil
}

func (s *showing) unknownProduct(ctx context.Context) error {
	event := samples.Event{EventID: "900000000000000031", OrderID: "900000000000000032", CustomerID: "900000000000000033"}
	answer, err := s.send(ctx, samples.UnknownProduct, event)
	if err != nil {
		return err
	}
	story, err := s.until(ctx, event.EventID, func(e ops.Event) bool { return len(e.DeadLetters) > 0 })
	if err != nil {
		return err
	}
	s.say("an order with an unknown product", "%d, then dead-lettered: %s; nothing of it is credited", answer.Status, story.DeadLetters[0].Reason)
	return nil
}

func (s *showing) transient(ctx context.Context) error {
	event := samples.Event{EventID: "900000000000000041", OrderID: "900000000000000042", CustomerID: "900000000000000043", UID: "dev-user-of-the-retry"}
	answer, err := s.send(ctx, samples.OrderCompleted, event)
	if err != nil {
		return err
	}
	story, err := s.until(ctx, event.EventID, completed)
	if err != nil {
		return err
	}
	balance, err := s.balance(ctx, event.UID)
	if err != nil {
		return err
	}
	s.say("an order while the store fails", "%d, then delivered again and %s, with %d attempt counted; the balance is %d points", answer.Status, story.Result, story.Attempts, balance)
	return nil
}

// renewal takes a subscription's event to the subscription service.
func (s *showing) renewal(ctx context.Context) error {
	event := samples.Event{EventID: "900000000000000071", SubscriptionID: "900000000000000072", UID: "dev-user-of-the-renewal"}
	return s.told(ctx, "a subscription that renews", event, func(story ops.Event) string {
		return fmt.Sprintf("told the subscription service once: %s at attempt %d", story.Result, story.Attempts)
	})
}

// forgotten has the service do what it is told and end the connection.
func (s *showing) forgotten(ctx context.Context) error {
	if err := s.stack.Service.Tell(embedded.Forget, 1); err != nil {
		return err
	}
	event := samples.Event{EventID: "900000000000000081", SubscriptionID: "900000000000000082", UID: "dev-user-of-the-forgetful"}
	return s.told(ctx, "a renewal whose answer is lost", event, func(story ops.Event) string {
		return fmt.Sprintf("asked at attempt %d whether it is done: %s; applied %d time", story.Attempts, story.Result, s.stack.Service.Applied(story.EventID))
	})
}

// told sends a renewal and follows what it emits to its end.
func (s *showing) told(ctx context.Context, what string, event samples.Event, became func(ops.Event) string) error {
	answer, err := s.send(ctx, samples.SubscriptionRenewed, event)
	if err != nil {
		return err
	}
	recorded, err := s.until(ctx, event.EventID, completed)
	if err != nil {
		return err
	}
	if len(recorded.Emitted) != 1 {
		return fmt.Errorf("event %s: emitted %d messages", event.EventID, len(recorded.Emitted))
	}
	story, err := s.until(ctx, recorded.Emitted[0], completed)
	if err != nil {
		return err
	}
	if applied := s.stack.Service.Applied(story.EventID); applied != 1 {
		return fmt.Errorf("event %s: the service applied it %d times", story.EventID, applied)
	}
	s.say(what, "%d, then %s and %s", answer.Status, recorded.Result, became(story))
	return nil
}

func (s *showing) refused(ctx context.Context) error {
	c, err := s.catalog()
	if err != nil {
		return err
	}
	body := samples.Read(samples.OrderCompleted, samples.Event{EventID: "900000000000000061"})
	forged, err := post(ctx, s.stack.WebhookURL, c.Sources["paynow"], "a-secret-that-paynow-does-not-have", body, time.Now())
	if err != nil {
		return err
	}
	s.say("a webhook with a bad signature", "%d %s", forged.Status, forged.Code)
	stale, err := post(ctx, s.stack.WebhookURL, c.Sources["paynow"], s.secret, body, time.Now().Add(-time.Hour))
	if err != nil {
		return err
	}
	s.say("a webhook signed an hour ago", "%d %s", stale.Status, stale.Code)
	return nil
}
