package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"billhook/catalog"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/installed"
	"billhook/internal/platform/gcp/pubsub"
)

type diagnosis struct {
	Healthy  bool              `json:"healthy" show:"Healthy"`
	Findings []finding.Finding `json:"findings"`
	// Unread is what could not be looked at. An installation is not healthy as long as there is any.
	Unread []finding.Unread `json:"unread"`
	// LeftOut is what was not to be looked at, and why.
	LeftOut string `json:"left_out,omitempty" show:"Left out"`
	// Paused are the queues that people have paused. PausesUnread is why the worker could not be asked.
	Paused       []pause.Pause `json:"paused"`
	PausesUnread string        `json:"pauses_unread,omitempty" show:"Pauses are not known"`
	// Off are the queues that do not run: the catalog or QUEUES leaves them out.
	Off []string `json:"off" show:"Not running here"`
	// Canary is what became of the canary; empty: none was sent, or a finding says so.
	Canary string `json:"canary,omitempty" show:"Canary"`
}

func (d diagnosis) Notes() (notes []string) {
	for _, f := range d.Findings {
		notes = append(notes, fmt.Sprintf("%s: %s %s: %s", cmp.Or(f.Queue, "of no single queue"), f.Kind, f.ID, f.Code))
		if f.Have != "" || f.Want != "" {
			notes = append(notes, "    is: "+cmp.Or(f.Have, "-"), "    should be: "+cmp.Or(f.Want, "-"))
		}
		notes = append(notes, "    "+f.Effect, "    To do: "+f.Do)
	}
	for _, one := range d.Unread {
		note := fmt.Sprintf("Not looked at: %s: %s", one.What, one.Why)
		if one.Permission != "" {
			note += "; it takes the permission " + one.Permission
		}
		notes = append(notes, note+".")
	}
	for _, one := range d.Paused {
		notes = append(notes, fmt.Sprintf("%s is paused since %s by %s: %s", one.Queue, one.At.UTC().Format(time.RFC3339), one.Who, one.Why))
	}
	return notes
}

func (d diagnosis) Failure() string {
	switch {
	case len(d.Findings) > 0:
		return "something is wrong"
	case len(d.Unread) > 0:
		return fmt.Sprintf("nothing is wrong as far as can be seen; %d things could not be looked at", len(d.Unread))
	}
	return ""
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
	var sends bool
	var of examined
	command := p.asks(&cobra.Command{
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
		Example: "  billhook admin doctor --canary --webhook https://webhook.example.com",
		Args:    cobra.NoArgs,
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
			found, err := p.examine(command.Context(), c, of)
			if err != nil {
				return err
			}
			if sends {
				ctx, cancel := context.WithTimeout(command.Context(), canaryTimeout)
				defer cancel()
				if found.Canary, err = p.canary(ctx, c); err != nil {
					lost := finding.New("canary_lost", err.Error(), "Look where it stopped: billhook search names what there is of its id.")
					found.Findings = append(found.Findings, finding.Of("event", "canary", lost))
				}
			}
			found.Healthy = found.Failure() == ""
			return show(p, found)
		},
	})
	command.Flags().BoolVar(&sends, "canary", false, "send a canary too")
	p.webhookFlag(command)
	command.Flags().StringVar(&of.name, "name", "", "Terraform's name, which stands before those of the services, jobs and secrets; by default INSTALLATION, or billhook")
	command.Flags().StringVar(&of.region, "region", "", "the region of the services and jobs; by default that of the workers' addresses")
	command.Flags().StringSliceVar(&of.known, "known", nil, "others' subscriptions on the installation's topics that are as they should be, comma-separated")
	command.Flags().BoolVar(&of.pubsubOnly, "pubsub-only", false, "look at topics, subscriptions and Pub/Sub's own grants alone")
	of.pools.add(command)
	return command
}

const (
	// pausesTimeout bounds how long the doctor waits for the worker's word on who paused what.
	pausesTimeout = 10 * time.Second
	canaryTimeout = 2 * time.Minute
)

// examine compares what there is with the catalog. A worker that cannot be asked leaves the pauses unknown.
func (p *program) examine(ctx context.Context, c *catalog.Catalog, of examined) (found diagnosis, err error) {
	target, err := p.target(of.pools)
	if err != nil {
		return found, err
	}
	found = diagnosis{Findings: []finding.Finding{}, Unread: []finding.Unread{}, Paused: []pause.Pause{}, Off: []string{}}
	for _, q := range c.Queues {
		if !q.Enabled {
			found.Off = append(found.Off, q.ID)
		}
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
			return found, err
		}
		around = installation.Examine(ctx)
		look.Accounts, look.Inherits, unread = around.Accounts, installation.Inherits, installation.Unread
	}
	queues, err := pubsub.Examine(ctx, c, target, look, p.broker()...)
	found.Findings = append(found.Findings, slices.Concat(queues.Findings, around.Findings)...)
	found.Unread = append(found.Unread, slices.Concat(queues.Unread, around.Unread, unread())...)
	return found, err
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
	id := "canary-" + uuid.NewString()
	body, _ := json.Marshal(contract.Payment{ // texts always marshal
		EventID: id, EventType: contract.OrderChargebackClosed, Timestamp: time.Now().UTC().Format(time.RFC3339),
		Data: contract.PaymentData{Order: &contract.Order{ID: id, CustomerID: id}},
	})
	replies, err := post(ctx, c, p.env.Webhook+"/webhooks/"+source.Name, source, secretsOf(c, p.getenv)[source.Name][0], body)
	if err == nil && replies[0].Status != http.StatusAccepted {
		err = fmt.Errorf("the webhook service answers %d %s", replies[0].Status, replies[0].Code)
	}
	if err != nil {
		return "", fmt.Errorf("event %s is not accepted: %w", id, err)
	}
	var event events.Event
	err = p.poll(ctx, 100*time.Millisecond, http.StatusNotFound, func() (bool, error) {
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
