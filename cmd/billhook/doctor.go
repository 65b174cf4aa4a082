package main

import (
	"cmp"
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
	"billhook/internal/pipeline/events"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/installed"
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
	Kept []string `json:"kept"`
	// Steps are those of the canary up to the first failure.
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
	pools      poolFlags
}

func (p *program) doctorCommand() *cobra.Command {
	var sends, only bool
	var patience time.Duration
	var of examined
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Compare the live installation with the catalog, and send a canary through it; fails if anything is wrong",
		Long: "Reads the topics, subscriptions and grants of GOOGLE_CLOUD_PROJECT, its services on Cloud Run and who may call them, the\n" +
			"jobs of its tasks, and which versions its secrets have, and says what differs from the catalog, what that does, and what\n" +
			"to do. It also finds what the catalog does not have. With PUBSUB_EMULATOR_HOST there are topics and subscriptions alone.\n" +
			"It needs PUSH_BASE_URL, PUSH_AUDIENCE and PUSH_SERVICE_ACCOUNT as provision does, changes nothing, and reads no\n" +
			"secret's value. TASKS_POOL names the pool that runs the tasks, where that is not the catalog's. What your account may not\n" +
			"look at is told, and is a failure, too. Who paused a queue it asks the worker.\n\n" +
			"With --canary a signed event that moves nothing goes through the webhook service, Pub/Sub and the worker to its record,\n" +
			"which stays as long as any other's. That takes WEBHOOK_SIGNING_SECRET and OPS_TOKEN.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := p.catalog()
			if err != nil {
				return err
			}
			if len(of.pools.urls) > 0 { // without them one worker serves all pools
				if c, err = c.ForTasks(p.env.TasksPool); err != nil {
					return usageError(err.Error())
				}
			}
			found := diagnosis{Findings: []finding.Finding{}, Unread: []finding.Unread{}, Paused: []pause.Pause{}, Off: []string{}, Kept: []string{}, Steps: []canaryStep{}}
			for _, q := range c.Queues {
				if !q.Enabled {
					found.Off = append(found.Off, q.ID)
				}
			}
			if !only {
				if err := p.examine(command.Context(), c, of, &found); err != nil {
					return err
				}
				p.printFindings(c, found)
			}
			if sends || only {
				ctx, cancel := context.WithTimeout(command.Context(), patience)
				defer cancel()
				if found.Steps, err = p.sendCanary(ctx, c); err != nil {
					return err
				}
			}
			wrong := len(found.Findings) > 0 || slices.ContainsFunc(found.Steps, func(s canaryStep) bool { return !s.OK })
			found.Healthy = !wrong && len(found.Unread) == 0
			switch err = p.printJSON(found); {
			case err == nil && wrong:
				return errors.New("something is wrong")
			case err == nil && !found.Healthy:
				return fmt.Errorf("nothing is wrong as far as can be seen; %d things could not be looked at", len(found.Unread))
			}
			return err
		},
	}
	p.asks(command)
	command.Flags().BoolVar(&sends, "canary", false, "send a canary too")
	command.Flags().BoolVar(&only, "canary-only", false, "send a canary and compare nothing, such as to billhook dev, which shortens waits")
	p.webhookFlag(command)
	command.Flags().DurationVar(&patience, "patience", 2*time.Minute, "how long to wait for the canary")
	command.Flags().StringVar(&of.name, "name", "", "Terraform's name, which stands before those of the services, jobs and secrets; by default INSTALLATION, or billhook")
	command.Flags().StringVar(&of.region, "region", "", "the region of the services and jobs; by default that of the workers' addresses")
	command.Flags().StringSliceVar(&of.known, "known", nil, "others' subscriptions on the installation's topics that are as they should be, comma-separated")
	command.Flags().BoolVar(&of.pubsubOnly, "pubsub-only", false, "look at topics, subscriptions and Pub/Sub's own grants alone")
	of.pools.add(command)
	return command
}

// pausesTimeout bounds how long the doctor waits for the worker's word on who paused what.
const pausesTimeout = 10 * time.Second

// examine compares what there is with the catalog. A worker that cannot be asked leaves the pauses unknown.
func (p *program) examine(ctx context.Context, c *catalog.Catalog, of examined, found *diagnosis) error {
	target, err := p.target(of.pools)
	if err != nil {
		return err
	}
	look := pubsub.Look{Known: of.known, Label: cmp.Or(of.name, target.Installation, "billhook")}
	asking, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	var pauses console.List[pause.Pause]
	if err := p.get(asking, "/v1/ops/pauses", &pauses); err != nil {
		found.PausesUnread = err.Error()
	} else {
		found.Paused, look.Paused = append(found.Paused, pauses.Items...), map[string]pause.Pause{}
	}
	for _, one := range found.Paused {
		look.Paused[one.Queue] = one
	}
	var around installed.Found
	unread := func() []finding.Unread { return nil }
	switch {
	case target.Emulator:
		found.LeftOut = "services, jobs, secrets and grants: an emulator has none"
	case of.pubsubOnly:
		found.LeftOut = "services, jobs, secrets and the services' grants: with --pubsub-only"
	default:
		pools := map[string]installed.Pool{}
		for _, pool := range c.Pools() {
			own := target.Pools[pool]
			pools[pool] = installed.Pool{URL: cmp.Or(own.URL, target.PushBaseURL), Account: cmp.Or(own.ServiceAccount, target.PushServiceAccount)}
		}
		installation, err := installed.Open(ctx, installed.Config{
			Project: target.ProjectID, Region: of.region, Name: look.Label, Pools: pools, TasksPool: c.TasksPool, Tasks: tasks.Scheduled, Audience: target.PushAudience,
		}, p.google.rest...)
		if err != nil {
			return err
		}
		around = installation.Examine(ctx)
		look.Accounts, look.Inherits, unread = around.Accounts, installation.Inherits, installation.Unread
	}
	queues, err := pubsub.Examine(ctx, c, target, look, p.broker()...)
	found.Kept = append(found.Kept, queues.Kept...)
	found.Findings = append(found.Findings, slices.Concat(queues.Findings, around.Findings)...)
	found.Unread = append(found.Unread, slices.Concat(queues.Unread, around.Unread, unread())...)
	return err
}

func (p *program) printFindings(c *catalog.Catalog, found diagnosis) {
	for _, f := range found.Findings {
		p.printf("%s: %s %s: %s\n", cmp.Or(f.Queue, "of no single queue"), f.Kind, f.ID, f.Code)
		if f.Have != "" || f.Want != "" {
			p.printf("    is: %s\n    should be: %s\n", cmp.Or(f.Have, "-"), cmp.Or(f.Want, "-"))
		}
		p.printf("    %s\n    To do: %s\n", f.Effect, f.Do)
	}
	p.printf("%d queues compared, %d findings.\n", len(c.Queues), len(found.Findings))
	for _, one := range found.Unread {
		p.printf("Not looked at: %s: %s", one.What, one.Why)
		if one.Permission != "" {
			p.printf("; it takes the permission %s", one.Permission)
		}
		p.printf(".\n")
	}
	for _, one := range found.Paused {
		p.printf("%s is paused since %s by %s: %s\n", one.Queue, one.At.UTC().Format(time.RFC3339), one.Who, one.Why)
	}
	for _, told := range []struct{ what, which string }{
		{"Left out", found.LeftOut}, {"Who has paused which queue is not known here", strings.TrimSuffix(found.PausesUnread, ".")},
		{"Not running here", strings.Join(found.Off, ", ")},
		{"Of these keep their subscription, and what waits there, which billhook queues ls counts", strings.Join(found.Kept, ", ")},
	} {
		if told.which != "" {
			p.printf("%s: %s.\n", told.what, told.which)
		}
	}
}

// sendCanary sends an event that moves nothing through an installation, as far as the first step that fails.
func (p *program) sendCanary(ctx context.Context, c *catalog.Catalog) (steps []canaryStep, err error) {
	var source catalog.Source
	var queue catalog.Queue
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		one := c.Sources[name]
		if q, ok := c.Queue(one.Events[contract.OrderChargebackClosed]); queue.ID == "" && one.Scheme == catalog.SchemeGeneric && ok && q.Enabled {
			source, queue = one, q
		}
	}
	if queue.ID == "" {
		return nil, fmt.Errorf("canary: no source of the generic scheme sends %s to an enabled queue", contract.OrderChargebackClosed)
	}
	id, now := "canary-"+uuid.NewString(), time.Now()
	for _, step := range []struct {
		name string
		do   func() (detail string, err error)
	}{
		{"the canary is accepted", func() (string, error) {
			body, _ := json.Marshal(contract.PayNow{ // texts always marshal
				EventID: id, EventType: contract.OrderChargebackClosed, Timestamp: now.UTC().Format(time.RFC3339),
				Data: contract.PayNowData{Order: &contract.Order{ID: id, CustomerID: id}},
			})
			all, err := post(ctx, p.env.Webhook+"/webhooks/"+source.Name, source, secretsOf(c, p.getenv)[source.Name][0], body, now)
			if err != nil {
				return "", err
			}
			if answer := all.replies[0]; answer.Status != http.StatusAccepted {
				return "", fmt.Errorf("the webhook service answers %d %s", answer.Status, answer.Code)
			}
			return fmt.Sprintf("event %s is message %s of %s", id, all.replies[0].MessageID, queue.ID), nil
		}},
		{"the worker has handled it", func() (string, error) {
			var event events.Event
			err := poll(ctx, 100*time.Millisecond, http.StatusNotFound, func() (bool, error) {
				err := p.get(ctx, "/v1/ops/events/"+id+"?"+url.Values{"queue": {queue.ID}}.Encode(), &event)
				return event.Status == dedupe.Completed || event.Status == dedupe.DeadLettered, err
			})
			if err == nil && event.Status != dedupe.Completed {
				err = fmt.Errorf("it was dead-lettered: %s", event.Reason)
			}
			return fmt.Sprintf("%s, at attempt %d", event.Result, event.Attempts), err
		}},
	} {
		started := time.Now()
		detail, err := step.do()
		done, mark := canaryStep{Name: step.name, OK: err == nil, Milliseconds: time.Since(started).Milliseconds(), Detail: detail}, "ok"
		if err != nil {
			done.Detail, mark = err.Error(), "FAILED"
		}
		p.printf("%-6s  %6d ms  %s: %s\n", mark, done.Milliseconds, done.Name, done.Detail)
		if steps = append(steps, done); err != nil {
			break
		}
	}
	return steps, nil
}
