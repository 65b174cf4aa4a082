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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/api/option"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/inspect/pauses"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/finding"
	"billhook/internal/platform/gcp/installed"
	"billhook/internal/platform/gcp/pubsub"
)

// provisioned has the outcome for each resource.
type provisioned struct {
	Changes []pubsub.Change `json:"changes" show:"Resources"`
}

func (p *program) provision() {
	ofCatalog(p, console.Row{Name: "admin provision"},
		func(ctx context.Context, c *catalog.Catalog, in ownPools) (provisioned, error) {
			target, err := p.target(in)
			if err != nil {
				return provisioned{}, err
			}
			changes, err := pubsub.Provision(ctx, c, target, p.broker()...)
			return provisioned{changes}, err
		})
}

// ownPools has the URLs and service accounts of pools with workers of their own.
type ownPools struct {
	URLs     []string `json:"-" query:"pool-urls" help:"the workers of pools that have their own, as pool=https://host, comma-separated"`
	Accounts []string `json:"-" query:"pool-accounts" help:"who pushes to them, as pool=e-mail, comma-separated; else PUSH_SERVICE_ACCOUNT"`
}

// pairs parses the texts of a flag, each name=value.
func pairs(flag string, texts []string) (map[string]string, error) {
	values := map[string]string{}
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		if !found {
			return nil, usageError("--%s: %s must be formatted as name=value", flag, text)
		}
		values[name] = value
	}
	return values, nil
}

// target returns the project and the push endpoints, from the environment and the flags.
func (p *program) target(pools ownPools) (pubsub.Target, error) {
	urls, err := pairs("pool-urls", pools.URLs)
	accounts, wrong := pairs("pool-accounts", pools.Accounts)
	if err := errors.Join(err, wrong); err != nil {
		return pubsub.Target{}, err
	}
	if p.env.PushBaseURL == "" {
		return pubsub.Target{}, usageError("PUSH_BASE_URL must say where the worker is")
	}
	if p.env.PubSubEmulator == "" && (p.env.PushServiceAccount == "" || p.env.PushAudience == "") {
		return pubsub.Target{}, usageError(
			"PUSH_SERVICE_ACCOUNT and PUSH_AUDIENCE are required: the worker refuses pushes without a token")
	}
	of := map[string]pubsub.Pool{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(urls)), slices.Collect(maps.Keys(accounts))) {
		of[name] = pubsub.Pool{URL: urls[name], ServiceAccount: accounts[name]}
	}
	return pubsub.Target{
		Names: p.env.names(), PushBaseURL: p.env.PushBaseURL, Pools: of, PushAudience: p.env.PushAudience,
		PushServiceAccount: p.env.PushServiceAccount, Emulator: p.env.PubSubEmulator != "",
	}, nil
}

func (p *program) broker() []option.ClientOption {
	if p.env.PubSubEmulator == "" {
		return p.google.pubsub
	}
	return pubsub.EmulatorOptions(p.env.PubSubEmulator)
}

type switchFlags struct {
	Queue string `json:"-" query:"id" arg:"queue" validate:"required"`
	ownPools
}

func (p *program) switching() {
	ofCatalog(p, console.Row{Name: "admin switch"},
		func(ctx context.Context, c *catalog.Catalog, in switchFlags) (stands pauses.PauseState, err error) {
			if err := p.get(ctx, "/v1/ops/queues/"+url.PathEscape(in.Queue)+"/pause", &stands); err != nil {
				return stands, err
			}
			q, err := queue(c, stands.Queue)
			target := pubsub.Target{Names: p.env.names(), Emulator: p.env.PubSubEmulator != ""}
			if err == nil && stands.Pause == nil {
				target, err = p.target(in.ownPools)
			}
			if err != nil {
				return stands, err
			}
			subscriptions, err := pubsub.NewSwitch(ctx, target, p.broker()...)
			if err != nil {
				return stands, err
			}
			defer func() { _ = subscriptions.Close() }() // every call has been answered
			if stands.Pause != nil {
				err = subscriptions.Pause(ctx, q, stands.Pause.At)
			} else {
				err = subscriptions.Resume(ctx, q)
			}
			standing, unread := subscriptions.Standing(ctx, q)
			stands.Subscription = cmp.Or(standing, pause.Unknown)
			return stands, errors.Join(err, unread)
		})
}

type checkFlags struct {
	Folder string `json:"-" query:"folder" arg:"folder"`
}

func (p *program) catalogs() {
	own(p, console.Row{Name: "admin catalog check"}, func(_ context.Context, in checkFlags) (checked, error) {
		folder := cmp.Or(in.Folder, p.env.CatalogDir)
		if info, err := os.Stat(folder); folder != "" && (err != nil || !info.IsDir()) {
			return checked{}, usageError("%s is no folder; name one with the catalog's files", folder)
		}
		c, err := catalog.Load(folder)
		mistakes := worker.Mistakes(c, err)
		if err == nil {
			_, err = c.Only(p.env.Queues)
			mistakes = append(mistakes, catalog.Mistakes(err)...)
		}
		slices.SortStableFunc(mistakes, catalog.ByLine)
		for _, m := range mistakes {
			if folder != "" && m.File != "" {
				m.File = filepath.Join(folder, m.File)
			}
		}
		if err = nil; len(mistakes) > 0 {
			err = fmt.Errorf("catalog check: mistakes: %d", len(mistakes))
		}
		return checked{len(c.Queues), mistakes, folder}, err
	})
	ofCatalog(p, console.Row{Name: "admin catalog print"},
		func(_ context.Context, c *catalog.Catalog, _ struct{}) (nothing struct{}, err error) {
			expanded, err := c.JSON()
			if err == nil {
				_, err = fmt.Fprintln(p.stdout, string(expanded))
			}
			return nothing, err
		})
}

// checked has the mistakes of a catalog.
type checked struct {
	Queues   int                `json:"queues"`
	Mistakes []*catalog.Mistake `json:"mistakes"`
	folder   string
}

// Notes returns the mistakes, or that there are none.
func (c checked) Notes() (notes []string) {
	for _, m := range c.Mistakes {
		notes = append(notes, m.Error())
	}
	if notes == nil {
		from := cmp.Or(c.folder, "built in")
		notes = append(notes, fmt.Sprintf("The catalog is sound: %d queues, %s.", c.Queues, from))
	}
	return notes
}

type diagnosis struct {
	Healthy  bool              `json:"healthy" show:"Healthy"`
	Findings []finding.Finding `json:"findings"`
	// Unread lists what could not be read. If there is any, the installation does not count as healthy.
	Unread []finding.Unread `json:"unread" show:"Not looked at"`
	// LeftOut says what the doctor did not have to read, and why.
	LeftOut string `json:"left_out,omitempty" show:"Left out"`
	// Paused lists the queues that people have paused. PausesUnread says why the service for people could not be
	// reached.
	Paused       []pause.Pause `json:"paused" show:"Paused"`
	PausesUnread string        `json:"pauses_unread,omitempty" show:"Pauses are not known"`
	// Off lists the queues that do not run: the catalog or QUEUES leaves them out.
	Off []string `json:"off" show:"Not running here"`
	// Canary says what became of the canary; empty: none was sent, or a finding says so.
	Canary string `json:"canary,omitempty" show:"Canary"`
}

func (d diagnosis) Notes() (notes []string) {
	for _, f := range d.Findings {
		notes = append(notes, fmt.Sprintf("%s: %s %s: %s", cmp.Or(f.Queue, "of no single queue"), f.Kind,
			f.ID, f.Code))
		if f.Have != "" || f.Want != "" {
			notes = append(notes, "    is: "+cmp.Or(f.Have, "-"), "    should be: "+cmp.Or(f.Want, "-"))
		}
		notes = append(notes, "    "+f.Effect, "    To do: "+f.Do)
	}
	return notes
}

type doctorFlags struct {
	Canary bool `json:"-" query:"canary" help:"send a canary too"`
	// Name is the prefix of the names of the services, jobs and secrets.
	Name       string   `json:"-" query:"name" help:"Terraform's name, which stands before those of the services, jobs and secrets; by default INSTALLATION, or billhook"`
	Region     string   `json:"-" query:"region" help:"the region of the services and jobs; by default that of the workers' addresses"`
	Known      []string `json:"-" query:"known" help:"others' subscriptions on the installation's topics that are as they should be, comma-separated"`
	PubSubOnly bool     `json:"-" query:"pubsub-only" help:"look at topics, subscriptions and Pub/Sub's own grants alone"`
	ownPools
}

func (p *program) doctor() {
	command := ofCatalog(p, console.Row{
		Name: "admin doctor", Summary: "Compare the live installation with the catalog, and send a canary " +
			"through it; fails if anything is wrong",
		Help: `Reads the topics, subscriptions and grants of GOOGLE_CLOUD_PROJECT, its services on Cloud Run and
who may call them, the job of its tasks, and which versions its secrets have, and says what differs from the
catalog, what that does, and what to do. It also finds what the catalog does not have. With
PUBSUB_EMULATOR_HOST there are topics and subscriptions alone.
It needs PUSH_BASE_URL, PUSH_AUDIENCE and PUSH_SERVICE_ACCOUNT as provision does, changes nothing, and reads
no secret's value. TASKS_POOL names the pool that runs the tasks, where that is not the catalog's. What your
account may not look at is listed, and is a failure, too. Who paused a queue is read from ops.

With --canary a signed event that moves nothing goes through the webhook service, Pub/Sub and the worker to
its record, which stays as long as any other's and which ops shows. That takes WEBHOOK_SIGNING_SECRET, and
IAP_TOKEN or OPS_TOKEN.`,
	}, func(ctx context.Context, c *catalog.Catalog, in doctorFlags) (found diagnosis, err error) {
		if len(in.URLs) > 0 { // without them one worker serves all pools
			if c, err = c.ForTasks(p.env.TasksPool); err != nil {
				return found, usageError("%s", err)
			}
		}
		if found, err = p.examine(ctx, c, in); err != nil {
			return diagnosis{}, err
		}
		if in.Canary {
			ctx, cancel := context.WithTimeout(ctx, canaryTimeout)
			defer cancel()
			if found.Canary, err = p.canary(ctx, c); err != nil {
				lost := finding.New("canary_lost", err.Error(),
					"Look where it stopped: billhook search names what there is of its id.")
				found.Findings = append(found.Findings, lost.Of("event", "canary", "", ""))
			}
		}
		switch {
		case len(found.Findings) > 0:
			err = errors.New("something is wrong")
		case len(found.Unread) > 0:
			err = fmt.Errorf("nothing is wrong as far as can be seen; %d things could not be looked at",
				len(found.Unread))
		}
		found.Healthy = err == nil
		return found, err
	})
	command.Example = "  billhook admin doctor --canary --webhook https://webhook.example.com"
}

const (
	// pausesTimeout bounds the doctor's wait for the service for people to answer which queues are paused.
	pausesTimeout = 10 * time.Second
	canaryTimeout = 2 * time.Minute
)

// examine compares the installation with the catalog. If the service for people cannot be reached, the pauses
// are unknown.
func (p *program) examine(
	ctx context.Context, c *catalog.Catalog, of doctorFlags,
) (found diagnosis, err error) {
	target, err := p.target(of.ownPools)
	if err != nil {
		return found, err
	}
	found = diagnosis{
		Findings: []finding.Finding{}, Unread: []finding.Unread{}, Paused: []pause.Pause{}, Off: []string{},
	}
	for _, q := range c.Queues {
		if !q.Enabled {
			found.Off = append(found.Off, q.ID)
		}
	}
	look := pubsub.Look{Known: of.Known, Label: cmp.Or(of.Name, target.Installation, "billhook")}
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
	case of.PubSubOnly:
		found.LeftOut = "services, jobs, secrets and the services' grants: with --pubsub-only"
	default:
		installation, err := installed.Open(ctx, installed.Config{
			Target: target, Catalog: c, Region: of.Region, Name: look.Label, TasksPath: tasks.Path,
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
	names := slices.Sorted(maps.Keys(c.Sources))
	i := slices.IndexFunc(names, func(name string) bool {
		q, ok := c.Queue(c.Sources[name].Events[contract.OrderChargebackClosed])
		return ok && q.Enabled && c.Sources[name].Scheme == catalog.SchemeGeneric
	})
	if i < 0 {
		return "", fmt.Errorf("no source of the generic scheme sends %s to an enabled queue",
			contract.OrderChargebackClosed)
	}
	source, id := c.Sources[names[i]], "canary-"+uuid.NewString()
	body, _ := json.Marshal(contract.Payment{ // texts always marshal
		EventID: id, EventType: contract.OrderChargebackClosed, Timestamp: time.Now().UTC().Format(time.RFC3339),
		Data: contract.PaymentData{Order: &contract.Order{ID: id, CustomerID: id}},
	})
	replies, err := p.post(ctx, c, "/webhooks/"+source.Name, source, "", body)
	if err == nil && replies[0].Status != http.StatusAccepted {
		err = fmt.Errorf("the webhook service answers %d %s", replies[0].Status, replies[0].Code)
	}
	if err != nil {
		return "", fmt.Errorf("event %s is not accepted: %w", id, err)
	}
	event, err := p.ended(ctx, id)
	if err == nil && event.Status != dedupe.Completed {
		err = fmt.Errorf("it is dead-lettered: %s", event.Reason)
	}
	if err != nil {
		return "", fmt.Errorf("event %s is accepted, and the worker has not handled it: %w", id, err)
	}
	return fmt.Sprintf("event %s is %s, at attempt %d", id, event.Result, event.Attempts), nil
}
