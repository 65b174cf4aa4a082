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
	// Canary is what became of the canary; empty: none was sent, or a finding says so.
	Canary string `json:"canary,omitempty"`
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
			found := diagnosis{Findings: []finding.Finding{}, Unread: []finding.Unread{}, Paused: []pause.Pause{}, Off: []string{}, Kept: []string{}}
			for _, q := range c.Queues {
				if !q.Enabled {
					found.Off = append(found.Off, q.ID)
				}
			}
			if only {
				found.LeftOut = "everything but the canary: with --canary-only"
			} else if err := p.examine(command.Context(), c, of, &found); err != nil {
				return err
			}
			if sends || only {
				ctx, cancel := context.WithTimeout(command.Context(), patience)
				defer cancel()
				if found.Canary, err = p.canary(ctx, c); err != nil {
					found.Findings = append(found.Findings, finding.Of("event", "canary", finding.New("canary_lost", err.Error(), "Look where it stopped: billhook search names what there is of its id.")))
				}
			}
			p.printFindings(found)
			wrong := len(found.Findings) > 0
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

func (p *program) printFindings(found diagnosis) {
	for _, f := range found.Findings {
		p.printf("%s: %s %s: %s\n", cmp.Or(f.Queue, "of no single queue"), f.Kind, f.ID, f.Code)
		if f.Have != "" || f.Want != "" {
			p.printf("    is: %s\n    should be: %s\n", cmp.Or(f.Have, "-"), cmp.Or(f.Want, "-"))
		}
		p.printf("    %s\n    To do: %s\n", f.Effect, f.Do)
	}
	p.printf("%d findings.\n", len(found.Findings))
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
		{"The canary", found.Canary}, {"Left out", found.LeftOut},
		{"Who has paused which queue is not known here", strings.TrimSuffix(found.PausesUnread, ".")},
		{"Not running here", strings.Join(found.Off, ", ")},
		{"Of these keep their subscription, and what waits there, which billhook queues ls counts", strings.Join(found.Kept, ", ")},
	} {
		if told.which != "" {
			p.printf("%s: %s.\n", told.what, told.which)
		}
	}
}

// canary sends an event that moves nothing through an installation, and says what became of it.
func (p *program) canary(ctx context.Context, c *catalog.Catalog) (became string, err error) {
	var source catalog.Source
	var queue catalog.Queue
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		one := c.Sources[name]
		if q, ok := c.Queue(one.Events[contract.OrderChargebackClosed]); queue.ID == "" && one.Scheme == catalog.SchemeGeneric && ok && q.Enabled {
			source, queue = one, q
		}
	}
	if queue.ID == "" {
		return "", fmt.Errorf("no source of the generic scheme sends %s to an enabled queue", contract.OrderChargebackClosed)
	}
	id, now := "canary-"+uuid.NewString(), time.Now()
	body, _ := json.Marshal(contract.PayNow{ // texts always marshal
		EventID: id, EventType: contract.OrderChargebackClosed, Timestamp: now.UTC().Format(time.RFC3339),
		Data: contract.PayNowData{Order: &contract.Order{ID: id, CustomerID: id}},
	})
	all, err := post(ctx, p.env.Webhook+"/webhooks/"+source.Name, source, secretsOf(c, p.getenv)[source.Name][0], body, now)
	if err == nil && all.status != http.StatusAccepted {
		err = fmt.Errorf("the webhook service answers %d %s", all.status, all.replies[0].Code)
	}
	if err != nil {
		return "", fmt.Errorf("event %s is not accepted: %w", id, err)
	}
	var event events.Event
	err = poll(ctx, 100*time.Millisecond, http.StatusNotFound, func() (bool, error) {
		err := p.get(ctx, "/v1/ops/events/"+id+"?"+url.Values{"queue": {queue.ID}}.Encode(), &event)
		return event.Status == dedupe.Completed || event.Status == dedupe.DeadLettered, err
	})
	if err == nil && event.Status != dedupe.Completed {
		err = fmt.Errorf("it is dead-lettered: %s", event.Reason)
	}
	if err != nil {
		return "", fmt.Errorf("event %s is accepted, and the worker has not handled it: %w", id, err)
	}
	return fmt.Sprintf("event %s is %s, at attempt %d", id, event.Result, event.Attempts), nil
}
