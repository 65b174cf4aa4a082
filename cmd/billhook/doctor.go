package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/events"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/pubsub"
)

type diagnosis struct {
	Healthy  bool              `json:"healthy"`
	Findings []finding.Finding `json:"findings"`
	// Unread is what could not be looked at. An installation is not healthy as long as there is any.
	Unread []finding.Unread `json:"unread"`
	// LeftOut is what was not to be looked at, and why.
	LeftOut string `json:"left_out,omitempty"`
	// Paused are the queues that people have paused. PausesUnread is why the worker could not be asked.
	Paused       []pause.Pause `json:"paused"`
	PausesUnread string        `json:"pauses_unread,omitempty"`
	// Off are the queues that do not run: the catalog or QUEUES leaves them out.
	Off []string `json:"off"`
	// Kept are those of them whose subscription keeps what waits.
	Kept []keptQueue `json:"kept"`
	// TasksPool is the pool whose worker runs the tasks.
	TasksPool string `json:"tasks_pool"`
	// Steps are the steps of the canaries up to the first failure.
	Steps []canaryStep `json:"steps"`
}

type canaryStep struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Milliseconds is how long the step took.
	Milliseconds int64  `json:"ms"`
	Detail       string `json:"detail"`
}

type examined struct {
	// name stands before the names of the services, jobs and secrets; empty: it is INSTALLATION, or billhook. region
	// is where they are; empty: it is that of the workers' addresses.
	name, region string
	// known are others' subscriptions that are as they should be.
	known      []string
	pubsubOnly bool
}

func (p *program) doctorCommand() *cobra.Command {
	var sends, only bool
	var base string
	var patience time.Duration
	var pools poolFlags
	var of examined
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Compare the live installation with the catalog, and send canaries through it; fails if anything is wrong",
		Long: "Reads the topics, subscriptions and grants of GOOGLE_CLOUD_PROJECT, its services on Cloud Run and who may call them, the\n" +
			"jobs of its tasks, and which versions its secrets have, and says what differs from the catalog, what that does, and what\n" +
			"to do. It also finds what the catalog does not have. With PUBSUB_EMULATOR_HOST there are topics and subscriptions alone.\n" +
			"It needs PUSH_BASE_URL, PUSH_AUDIENCE and PUSH_SERVICE_ACCOUNT as provision does, changes nothing, and reads no\n" +
			"secret's value. TASKS_POOL names the pool that runs the tasks, where that is not the catalog's. What your account may not\n" +
			"look at is told, and is a failure, too. Who paused a queue it asks the worker.\n\n" +
			"With --canary a signed event that moves nothing goes through the webhook service, Pub/Sub and the worker to its record,\n" +
			"and an order of an unknown product goes into the dead letters and is discarded again. That takes WEBHOOK_SIGNING_SECRET\n" +
			"and OPS_TOKEN; the records of both stay as long as any other's, and a dead-letter alert may see the second one\n" +
			"for a moment. Its copy is taken off the hold subscription, too, but not with --canary-only.",
		Args: cobra.NoArgs,
	}
	p.asks(command)
	command.Flags().BoolVar(&sends, "canary", false, "send the canaries too")
	command.Flags().BoolVar(&only, "canary-only", false, "send the canaries and compare nothing, such as to billhook dev, which shortens waits")
	p.webhookFlag(command, &base)
	command.Flags().DurationVar(&patience, "patience", 2*time.Minute, "how long to wait for the canaries")
	command.Flags().StringVar(&of.name, "name", "", "Terraform's name, which stands before those of the services, jobs and secrets; by default INSTALLATION, or billhook")
	command.Flags().StringVar(&of.region, "region", "", "the region of the services and jobs; by default that of the workers' addresses")
	command.Flags().StringSliceVar(&of.known, "known", nil, "others' subscriptions on the installation's topics that are as they should be, comma-separated")
	command.Flags().BoolVar(&of.pubsubOnly, "pubsub-only", false, "look at topics, subscriptions and Pub/Sub's own grants alone")
	pools.add(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		c, err := p.catalog()
		if err != nil {
			return err
		}
		if len(pools.urls) > 0 { // without them one worker serves all pools
			if c, err = c.ForTasks(p.env.TasksPool); err != nil {
				return usageError(err.Error())
			}
		}
		found := diagnosis{Findings: []finding.Finding{}, Unread: []finding.Unread{}, Paused: []pause.Pause{}, Off: []string{}, Kept: []keptQueue{}, TasksPool: c.TasksPool, Steps: []canaryStep{}}
		for _, q := range c.Queues {
			if !q.Enabled {
				found.Off = append(found.Off, q.ID)
			}
		}
		if !only {
			target, err := p.target(pools)
			if err != nil {
				return err
			}
			recorded, unread := p.pauses(command.Context(), p.ask())
			if unread != nil {
				found.PausesUnread = unread.Error()
			}
			found.Paused = slices.AppendSeq(found.Paused, maps.Values(recorded))
			slices.SortFunc(found.Paused, func(a, b pause.Pause) int { return strings.Compare(a.Queue, b.Queue) })
			if err := p.examine(command.Context(), c, target, pubsub.Look{Paused: recorded, Known: of.known}, of, &found); err != nil {
				return err
			}
			p.countKept(command.Context(), p.ask(), found.Kept)
			p.printFindings(c, found)
		}
		if sends || only {
			ctx, cancel := context.WithTimeout(command.Context(), patience)
			defer cancel()
			if found.Steps, err = p.canaries(ctx, c, base, p.ask(), !only); err != nil {
				return err
			}
		}
		wrong := len(found.Findings) > 0 || slices.ContainsFunc(found.Steps, func(s canaryStep) bool { return !s.OK })
		found.Healthy = !wrong && len(found.Unread) == 0
		if err := p.printJSON(found); err != nil {
			return err
		}
		switch {
		case wrong:
			return errors.New("something is wrong")
		case !found.Healthy:
			return fmt.Errorf("nothing is wrong as far as can be seen; %d things could not be looked at", len(found.Unread))
		}
		return nil
	}
	return command
}

// pausesTimeout bounds how long the doctor waits for the worker's word on who paused what.
const pausesTimeout = 10 * time.Second

// pauses asks the worker which queues are paused; nil: it cannot be asked, for the reason.
func (p *program) pauses(ctx context.Context, ask client) (recorded map[string]pause.Pause, unread error) {
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	var all console.List[pause.Pause]
	if err := ask.get(ctx, "/v1/ops/pauses", &all); err != nil {
		return nil, err
	}
	recorded = map[string]pause.Pause{}
	for _, one := range all.Items {
		recorded[one.Queue] = one
	}
	return recorded, nil
}

type canaries struct {
	*program
	base, secret string
	source       catalog.Source
	queue        catalog.Queue
	ask          client
	steps        []canaryStep
}

func (p *program) canaries(ctx context.Context, c *catalog.Catalog, base string, ask client, held bool) ([]canaryStep, error) {
	k := &canaries{program: p, base: base, ask: ask}
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		source := c.Sources[name]
		q, ok := c.Queue(source.Events[contract.OrderChargebackClosed])
		if source.Scheme == catalog.SchemeGeneric && ok && q.Enabled && source.Events[contract.OrderPaid] == q.ID {
			k.source, k.queue, k.secret = source, q, secretsOf(c, p.getenv)[name][0]
			break
		}
	}
	if k.queue.ID == "" {
		return nil, fmt.Errorf("canary: no source of the generic scheme sends %s and %s to one enabled queue", contract.OrderChargebackClosed, contract.OrderPaid)
	}
	harmless, poison := "canary-"+uuid.NewString(), "canary-"+uuid.NewString()
	if !k.send(ctx, "the canary is accepted", harmless, contract.OrderChargebackClosed, nil) || !k.recorded(ctx, harmless) {
		return k.steps, nil
	}
	if k.queue.FourEyes || k.queue.DeadLetter.Drop {
		k.step("the poison canary is left out", func() (string, error) {
			return "queue " + k.queue.ID + ": one person alone could not discard it, or the queue keeps no dead letters", nil
		})
		return k.steps, nil
	}
	items := []contract.Item{{ProductID: poison, Quantity: 1}}
	if k.send(ctx, "the poison canary is accepted", poison, contract.OrderPaid, items) && k.kept(ctx, poison) && k.discard(ctx, poison) && held {
		k.discardHeld(ctx, poison)
	}
	return k.steps, nil
}

func (k *canaries) step(name string, do func() (detail string, err error)) bool {
	started := time.Now()
	detail, err := do()
	s := canaryStep{Name: name, OK: err == nil, Milliseconds: time.Since(started).Milliseconds(), Detail: detail}
	mark := "ok"
	if err != nil {
		s.Detail, mark = err.Error(), "FAILED"
	}
	k.printf("%-6s  %6d ms  %s: %s\n", mark, s.Milliseconds, s.Name, s.Detail)
	k.steps = append(k.steps, s)
	return s.OK
}

func (k *canaries) send(ctx context.Context, name, id, eventType string, items []contract.Item) bool {
	return k.step(name, func() (string, error) {
		now := time.Now()
		order := &contract.Order{ID: id, CustomerID: id, Items: items}
		if items != nil {
			order.Currency, order.Total = "EUR", "1.00"
		}
		body, err := json.Marshal(contract.PayNow{
			EventID: id, EventType: eventType, Timestamp: now.UTC().Format(time.RFC3339), Data: contract.PayNowData{Order: order},
		})
		if err != nil {
			return "", err
		}
		answer, err := post(ctx, k.base, k.source, k.secret, body, now)
		if err != nil {
			return "", err
		}
		if answer.Status != http.StatusAccepted {
			return "", fmt.Errorf("the webhook service answers %d %s", answer.Status, answer.Code)
		}
		return fmt.Sprintf("event %s is message %s of %s", answer.EventID, answer.MessageID, answer.Queue), nil
	})
}

func (k *canaries) recorded(ctx context.Context, id string) bool {
	return k.step("the worker has handled it", func() (string, error) {
		var event events.Event
		err := k.until(ctx, "/v1/ops/events/"+url.PathEscape(id)+"?queue="+url.QueryEscape(k.queue.ID), &event, func() bool {
			return event.Status == dedupe.Completed || event.Status == dedupe.DeadLettered
		})
		if err != nil {
			return "", err
		}
		if event.Status != dedupe.Completed {
			return "", fmt.Errorf("it was dead-lettered: %s", event.Reason)
		}
		return fmt.Sprintf("%s, at attempt %d", event.Result, event.Attempts), nil
	})
}

func (k *canaries) kept(ctx context.Context, id string) bool {
	return k.step("it is among the dead letters", func() (string, error) {
		var page console.List[deadletter.Item]
		err := k.until(ctx, "/v1/ops/dead-letters?"+url.Values{"queue": {k.queue.ID}, "event_id": {id}}.Encode(), &page, func() bool {
			return len(page.Items) > 0
		})
		if err != nil {
			return "", fmt.Errorf("%w; once it is there: bin/billhook dlq discard %s --event-id %s --why canary", err, k.queue.ID, id)
		}
		return page.Items[0].Reason, nil
	})
}

func (k *canaries) discard(ctx context.Context, id string) bool {
	return k.step("it is discarded", func() (string, error) {
		var op deadletter.Operation
		err := k.ask.post(ctx, "/v1/ops/dead-letters/discard", deadletter.Begin{
			Filter: deadletter.Filter{Queue: k.queue.ID, EventID: id}, Change: console.Change{Why: "the doctor's canary"}, Expect: 1,
		}, &op)
		if err == nil {
			err = poll(ctx, 100*time.Millisecond, http.StatusConflict, func() (bool, error) {
				err := k.ask.post(ctx, "/v1/ops/operations/"+op.ID+"/run", struct{}{}, &op)
				return op.Progress.Over(), err
			})
		}
		if err != nil {
			return "", err
		}
		if op.Done != 1 {
			return "", fmt.Errorf("operation %s has discarded %d", op.ID, op.Done)
		}
		return "operation " + op.ID, nil
	})
}

// discardHeld acknowledges the copy on the hold subscription. A person who looks there for lost
// messages does not find it.
func (k *canaries) discardHeld(ctx context.Context, id string) {
	k.step("its copy is off hold", func() (string, error) {
		found, err := pubsub.Unhold(ctx, k.queue, k.env.names(), id, k.broker()...)
		if err == nil && !found {
			err = fmt.Errorf("it was not found on %s, which keeps every dead letter", k.queue.DeadLetterHold())
		}
		return "acknowledged on " + k.queue.DeadLetterHold(), err
	})
}

func (k *canaries) until(ctx context.Context, path string, answer any, done func() bool) error {
	return poll(ctx, 100*time.Millisecond, http.StatusNotFound, func() (bool, error) {
		err := k.ask.get(ctx, path, answer)
		return done(), err
	})
}
