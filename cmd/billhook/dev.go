package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/emulator"
	"billhook/internal/compose/devstack"
	"billhook/internal/console"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/inspect/events"
	"billhook/internal/platform/boltstore"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/telemetry"
)

const (
	// taskEvery is how often dev calls the worker's tasks, as Cloud Scheduler would.
	taskEvery = 10 * time.Second
	// shortWait is the wait between attempts with --waits short: with the catalog's, the samples take minutes.
	shortWait = time.Second
	// devDrain is how long dev waits after Ctrl-C for requests in flight.
	devDrain = time.Second
)

type devFlags struct {
	Data        string `json:"-" query:"data" help:"the folder to keep the state in; empty is a temporary one"`
	Emulators   bool   `json:"-" query:"emulators" help:"use Google's own emulators, which keep nothing, instead of the stand-ins"`
	Waits       string `json:"-" query:"waits" default:"short" validate:"oneof=short catalog" help:"the waits between attempts: short is 1 s each, catalog those of the catalog"`
	NoSamples   bool   `json:"-" query:"no-samples" help:"send nothing, just serve"`
	Verbose     bool   `json:"-" query:"verbose" help:"print the services' own log lines"`
	WebhookPort string `json:"-" query:"webhook-port" default:"8080" help:"where the webhook service listens, 0 for a free port"`
	ServicePort string `json:"-" query:"service-port" default:"8082" help:"where the stand-ins for the services that are called listen, 0 for a free port"`
	WorkerPort  string `json:"-" query:"worker-port" default:"8081" help:"where the worker listens, 0 for a free port"`
}

type devRun struct {
	*program
	devFlags
	catalog *catalog.Catalog
	config  devstack.Config
	stack   *devstack.Stack
	// folder has the state: --data, or a temporary one. reused: an earlier run has left its state there.
	folder string
	reused bool
}

func (p *program) dev() {
	command := ofCatalog(p, console.Row{Name: "dev"},
		func(ctx context.Context, c *catalog.Catalog, in devFlags) (nothing struct{}, err error) {
			if p.output != asTable {
				return nothing, usageError("--output: dev prints for people")
			}
			if in.Waits == "short" {
				c.ShortenWaits(shortWait)
			}
			return nothing, (&devRun{program: p, devFlags: in, catalog: c}).run(ctx)
		})
	command.MarkFlagsMutuallyExclusive("data", "emulators")
}

func (d *devRun) run(ctx context.Context) (err error) {
	if err := d.configure(); err != nil {
		return err
	}
	if d.Data == "" {
		defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }()
	}
	d.stack, err = devstack.Start(ctx, d.config)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return d.byFlag(err)
	}
	stack := d.stack
	// A sender that stopped during its request, or takes longer than the drain, is no failure.
	defer func() {
		if closing := stack.Close(); !errors.Is(closing, context.DeadlineExceeded) {
			err = errors.Join(err, closing)
		}
	}()
	d.env.Server, d.env.Webhook = stack.WorkerURL, stack.WebhookURL
	d.printf("Look at it in a browser: %s/ops/\n\n", stack.WorkerURL)
	d.printf("Billhook is up: webhook %s, worker %s,\nstand-ins for the services that it calls %s.\n",
		stack.WebhookURL, stack.WorkerURL, stack.ServiceURL)
	waits := map[string]string{"short": "1 s each", "catalog": "those of the catalog"}[d.Waits]
	d.printf("The waits between attempts are %s (--waits short or catalog).\n", waits)
	for _, target := range d.catalog.TargetsOf("") {
		if at := d.getenv(target.URLVariable); at != "" {
			d.printf("%s: %s, not a stand-in. No samples are sent, for they would reach it.\n", target.URLVariable, at)
			d.NoSamples = true
		}
	}
	if d.reused {
		d.printf("It goes on with the state in %s; messages that wait for delivery: %d; dropped, as their queues "+
			"are gone: %d.\n", d.folder, stack.Loaded.Waiting, stack.Loaded.Gone)
	} else if d.Data != "" {
		d.printf("Its state is kept in %s: documents, and messages that wait for delivery.\n", d.folder)
	}
	if !d.NoSamples {
		if err := d.demonstrate(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	if ctx.Err() == nil {
		d.printHints()
	}
	<-ctx.Done()
	return nil
}

// configure sets the configuration of the stack. A target without an address gets the stand-in's.
func (d *devRun) configure() (err error) {
	c := &d.config
	if d.Emulators {
		sdk, err := emulator.Find()
		if err != nil {
			return err
		}
		c.Emulators = &sdk
		d.printf("Starting Google's Pub/Sub and Firestore emulators ...\n")
	}
	c.WebhookPort, c.ServicePort, c.WorkerPort = d.WebhookPort, d.ServicePort, d.WorkerPort
	c.Catalog, c.ProjectID, c.Installation = d.catalog, d.env.Project, d.env.Installation
	c.OpsTokens, c.Targets = d.env.OpsToken.List(), map[string]devstack.Address{}
	c.Secrets, c.APIKeys = map[string][]string{}, map[string]string{}
	for name, source := range d.catalog.Sources {
		c.Secrets[name] = d.secrets(source.SecretVariable)
		c.APIKeys[name] = d.getenv(source.APIKeyVariable) // without a key nothing is read from the provider
	}
	for name, t := range d.catalog.Targets {
		c.Targets[name] = devstack.Address{URL: d.getenv(t.URLVariable), Secret: d.secrets(t.SecretVariable)[0]}
	}
	c.TaskEvery, c.Drain = taskEvery, devDrain
	if c.Log = telemetry.NewLogger(io.Discard, slog.LevelError); d.Verbose {
		c.Log = telemetry.NewLogger(d.stdout, slog.LevelInfo)
	}
	if d.folder = d.Data; d.Data == "" {
		d.folder, err = os.MkdirTemp("", "billhook-dev-")
	} else if err = os.MkdirAll(d.Data, 0o700); err != nil {
		err = fmt.Errorf("--data: %w", err)
	} else {
		c.BrokerPath = filepath.Join(d.folder, "broker.json")
	}
	c.StorePath = filepath.Join(d.folder, "store.db")
	_, absent := os.Stat(c.StorePath)
	d.reused = absent == nil
	return err
}

// byFlag returns an error of the start with the flag that avoids it.
func (d *devRun) byFlag(err error) error {
	if errors.Is(err, boltstore.ErrInUse) {
		return fmt.Errorf("--data: another billhook dev is using %s: end it, or name another folder", d.Data)
	}
	port, ok := errors.AsType[*devstack.PortError](err)
	if !ok {
		return err
	}
	flag := "--" + port.Of + "-port"
	return fmt.Errorf("%s: %w; %s 0 chooses a free one (make run ARGS=\"%s 0\")", flag, port.Err, flag, flag)
}

// printHints says what to type next.
func (d *devRun) printHints() {
	stack := d.stack
	d.printf("\nLook further in another terminal:\n\n")
	d.printf("  export BILLHOOK_SERVER=%s BILLHOOK_WEBHOOK=%s\n", stack.WorkerURL, stack.WebhookURL)
	d.printf("  bin/billhook queues ls\n  bin/billhook events ls\n  bin/billhook send %s\n", samples.Provider)
	d.printf("  curl -s %s/metrics\n", stack.WorkerMetricsURL)
	d.printf("\nHave a service that it calls forget its answer, and see the deliveries to it:\n\n")
	d.printf("  curl -s %s/behave -d '{\"mode\":\"forget\",\"times\":1}'\n", stack.ServiceURL)
	d.printf("  curl -s %s/deliveries\n\nServing until Ctrl-C.\n", stack.ServiceURL)
}

// demoFlows are the samples that dev sends, each with its own customer or subscription, so that none of them
// waits for another.
//
//go:embed demo.json
var demoFlows []byte

// flow is a sample, and the events to wait for.
type flow struct {
	What string
	// Handler is the handler of its queue, or the form of its post; empty: it is PayNow's.
	Handler string
	// Before names a preparation.
	Before string
	// Name is the sample's name, Event has the ids of PayNow's, and Secret replaces the source's secret.
	Name   string
	Event  samples.Event
	Secret string
	// Follow lists the events to wait for. A sample that an earlier run has followed is not sent again.
	Follow []string
	// Note explains the outcome, and Look is a command that shows more.
	Note, Look string
}

// demonstrate sends the samples.
func (d *devRun) demonstrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var flows []flow
	if err := json.Unmarshal(demoFlows, &flows); err != nil {
		return fmt.Errorf("dev: %w", err)
	}
	d.printf("\nSending signed samples of PayNow's webhooks and of producers' messages:\n\n")
	for _, f := range flows {
		text, err := d.sent(ctx, f)
		if err != nil {
			return fmt.Errorf("dev: %s: %w", f.What, err)
		}
		if d.printf("  %-35s%s\n", f.What, text); f.Look != "" {
			d.printf("  %-35s> bin/billhook %s\n", "", f.Look)
		}
	}
	return nil
}

func (d *devRun) queueOf(handler string) (catalog.Queue, bool) {
	for _, q := range d.catalog.Queues {
		for _, h := range q.Handlers {
			if h.Name == handler || string(h.Post.Form) == handler {
				return q, true
			}
		}
	}
	return catalog.Queue{}, false
}

// sent sends a flow's samples, and describes the answers and the outcomes.
func (d *devRun) sent(ctx context.Context, f flow) (string, error) {
	from, received := d.catalog.Sources[samples.Provider]
	path, body := "/webhooks/"+samples.Provider, []byte(nil)
	if f.Handler == "" {
		body = samples.Read(f.Name, f.Event)
	} else {
		q, known := d.queueOf(f.Handler)
		if known && !q.Enabled {
			return "left out: " + q.ID + " does not run here", nil
		}
		from, received, body = d.catalog.Sources[catalog.Producers], known, samples.Request(f.Name)
		if path = "/queues/" + q.ID + "/messages"; q.SharedTopic != "" {
			path = "/topics/" + q.SharedTopic + "/messages"
		}
	}
	if !received {
		return "left out: no queue that runs here is for it", nil
	}
	if last := len(f.Follow) - 1; d.reused && last >= 0 &&
		d.get(ctx, "/v1/ops/events/"+f.Follow[last], &events.Event{}) == nil {
		return "sent by an earlier run", nil
	}
	if err := d.prepare(ctx, f.Before); err != nil {
		return "", err
	}
	replies, err := d.post(ctx, d.catalog, path, from, f.Secret, body)
	if err != nil {
		return "", err
	}
	texts := []string{fmt.Sprint(replies[0].Status)}
	for _, r := range replies {
		if r.Code != "" {
			return fmt.Sprint(r.Status, " ", r.Code), nil
		}
	}
	for _, id := range f.Follow {
		switch e, err := d.ended(ctx, id); {
		case err != nil:
			return "", err
		case len(e.DeadLetters) > 0:
			texts = append(texts, "then dead-lettered: "+e.DeadLetters[0].Reason)
		case e.Attempts > 1:
			texts = append(texts, fmt.Sprintf("then %s at attempt %d", e.Result, e.Attempts))
		default:
			texts = append(texts, "then "+e.Result)
		}
	}
	if f.Note != "" {
		texts = append(texts, f.Note)
	}
	return strings.Join(texts, ", "), nil
}

// prepare makes a service forget an answer, adds pieces of the product, or registers the stand-in as a third
// party's endpoint, again after an earlier run: the secret is shown once, and the stand-in has lost it.
func (d *devRun) prepare(ctx context.Context, what string) error {
	const why = `"why":"billhook dev shows it"}`
	var answer struct{ Secret string }
	switch what {
	case "forget":
		return d.stack.Service.Behave("", standin.Forget, 1)
	case "stock":
		const path = "/v1/ops/stock/" + samples.Product
		return d.ask(ctx, http.MethodPut, path, "", []byte(`{"available":10,`+why), &answer)
	case "endpoint":
		const path = "/v1/ops/endpoints"
		if d.reused { // it may be missing
			_ = d.ask(ctx, http.MethodDelete, path+"/"+samples.Partner, "", []byte("{"+why), &answer)
		}
		partner := fmt.Appendf(nil, `{"id":%q,"url":%q,"events":["invoice.#"],%s`, samples.Partner,
			d.stack.ServiceURL+standin.PartnerPath, why)
		if err := d.ask(ctx, http.MethodPost, path, "", partner, &answer); err != nil {
			return err
		}
		return d.stack.Service.Trust(answer.Secret)
	}
	return nil
}
