// Command worker is the push worker. Pub/Sub pushes billing events to it. It applies the effect
// of each event once, on Firestore, and answers with the outcome.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"billhook/catalog"
	"billhook/internal/compose/service"
	"billhook/internal/compose/worker"
	"billhook/internal/console/access"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/push"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/env"
	"billhook/internal/platform/gcp/auth"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	cloudtasks "billhook/internal/platform/gcp/tasks"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/telemetry"
)

func main() { service.Main("worker", help, run) }

type config struct {
	Port env.Port `env:"PORT" envDefault:"8081" about:"the port to listen on; 0 chooses one, which the line \"message\":\"listening\" names"`
	service.Config
	Serves             string            `env:"SERVES" about:"what this process serves: pushes, with the tasks; people, with pages and API of all queues; empty is both"`
	Pool               string            `env:"POOL" about:"the pool whose queues this worker serves; empty is all pools"`
	TasksPool          string            `env:"TASKS_POOL" about:"the pool whose worker runs the tasks; empty is the catalog's tasks_pool, or the pool that runs alone"`
	PushAuth           string            `env:"PUSH_AUTH" envDefault:"oidc" about:"how a push is authenticated: oidc, iam behind Cloud Run's own check, or none beside an emulator"`
	PushAudience       string            `env:"PUSH_AUDIENCE" about:"the audience of a push's token; required with oidc and iam"`
	PushServiceAccount string            `env:"PUSH_SERVICE_ACCOUNT" about:"the account of a push's token; required with oidc and iam"`
	PushBaseURL        string            `env:"PUSH_BASE_URL" about:"where Pub/Sub pushes to; set, people pause and resume queues here, which takes a grant on their subscriptions"`
	PushPoolURLs       map[string]string `env:"PUSH_POOL_URLS" envKeyValSeparator:"=" about:"the addresses of pools with workers of their own, as pool=https://host, comma-separated"`
	PushPoolAccounts   map[string]string `env:"PUSH_POOL_ACCOUNTS" envKeyValSeparator:"=" about:"the accounts of those pools' pushes, as pool=e-mail, comma-separated"`
	OpsToken           env.Secret        `env:"OPS_TOKEN" about:"the bearer tokens of people for /v1/ops, with which they sign in at /ops/ too, comma-separated; each needs at least 24 bytes"`
	OpsAudience        string            `env:"OPS_AUDIENCE" about:"the audience of Google's tokens for /v1/ops, set with OPS_ALLOW; or that of Identity-Aware Proxy alone: /projects/<number>/locations/<region>/services/<service>"`
	OpsAllow           []string          `env:"OPS_ALLOW" about:"the e-mail addresses that OPS_AUDIENCE lets in, comma-separated"`
	AlarmQueue         string            `env:"ALARM_QUEUE" about:"the Cloud Tasks queue that releases kept messages on time: projects/P/locations/L/queues/Q"`
	AlarmURL           string            `env:"ALARM_URL" about:"the worker that ALARM_QUEUE calls: https://host; set with ALARM_QUEUE"`
	AlarmAccount       string            `env:"ALARM_SERVICE_ACCOUNT" about:"the account that ALARM_QUEUE calls as; set with ALARM_QUEUE"`
}

func help(getenv func(string) string) env.Help {
	h := env.Help{
		About: "worker takes the pushes of Pub/Sub, and does the effect of each event once.",
		Own:   env.Variables[config](),
	}
	cfg, _ := env.Parse[config](getenv) // the start reports what cannot be read
	targets := cfg.Shown().TargetsOf(cfg.Pool)
	if cfg.Serves == worker.ServesPeople {
		targets = nil
	}
	add := func(v env.Variable) {
		known := slices.ContainsFunc(h.Catalog, func(other env.Variable) bool { return other.Name == v.Name })
		if v.Name != "" && !known {
			h.Catalog = append(h.Catalog, v)
		}
	}
	for _, t := range targets {
		add(env.Variable{Name: t.URLVariable, About: "the base URL of target " + t.Name, Required: true})
	}
	const about = "the secrets for requests to targets, comma-separated: the first, of 24 bytes or more, signs"
	for _, t := range targets {
		add(env.Variable{Name: t.SecretVariable, About: about, Required: true, Secret: true})
	}
	return h
}

const minToken = 24

type mistakes []error

func (m *mistakes) add(wrong bool, format string, args ...any) {
	if wrong {
		*m = append(*m, fmt.Errorf(format, args...))
	}
}

func (c config) Check() error {
	all := mistakes{c.Config.Check(c.Port)}
	for _, token := range c.OpsToken.List() {
		all.add(len(token) < minToken, "OPS_TOKEN: each token needs at least %d bytes", minToken)
	}
	all.add(c.PushBaseURL == "" && len(c.PushPoolURLs)+len(c.PushPoolAccounts) > 0,
		"PUSH_POOL_URLS, PUSH_POOL_ACCOUNTS: only with PUSH_BASE_URL")
	for pool := range c.PushPoolAccounts {
		all.add(c.PushPoolURLs[pool] == "", "PUSH_POOL_ACCOUNTS: names a pool that PUSH_POOL_URLS does not")
	}
	audience, allowed := strings.TrimSpace(c.OpsAudience) != "", len(c.OpsAllow) > 0
	unpaired := audience != allowed && !auth.IsProxied(c.OpsAudience)
	all.add(unpaired, "OPS_AUDIENCE and OPS_ALLOW: set both, or neither")
	for i, email := range c.OpsAllow {
		all.add(!auth.IsAddress(email), "OPS_ALLOW: entry %d is no e-mail address", i+1)
	}
	people := audience || allowed || len(c.OpsToken.List()) > 0
	switch c.Serves {
	case "":
	case worker.ServesPushes:
		all.add(people, "OPS_TOKEN, OPS_AUDIENCE, OPS_ALLOW: not with SERVES=pushes, which serves no people")
		all.add(c.PushBaseURL != "", "PUSH_BASE_URL: not with SERVES=pushes, where nobody pauses queues")
	case worker.ServesPeople:
		all.add(!people && !c.Emulated(),
			"OPS_AUDIENCE or OPS_TOKEN: required with SERVES=people, else nobody has access")
		alarm := c.AlarmQueue+c.AlarmURL+c.AlarmAccount != ""
		all.add(alarm, "ALARM_QUEUE: not with SERVES=people, which keeps no message")
		all.add(c.PushBaseURL != "" && !c.Emulated() && (c.PushAudience == "" || c.PushServiceAccount == ""),
			"PUSH_AUDIENCE and PUSH_SERVICE_ACCOUNT: required with PUSH_BASE_URL, to resume a queue")
		return errors.Join(all...)
	default:
		all.add(true, "SERVES: must be pushes, people or empty")
	}
	return errors.Join(slices.Concat(all, c.checkPushes(), c.checkAlarm())...)
}

func (c config) checkPushes() (all mistakes) {
	switch c.PushAuth {
	case auth.ModeOIDC, auth.ModeIAM:
		all.add(c.PushAudience == "", "PUSH_AUDIENCE: required with PUSH_AUTH=%s", c.PushAuth)
		all.add(c.PushServiceAccount == "", "PUSH_SERVICE_ACCOUNT: required with PUSH_AUTH=%s", c.PushAuth)
	case auth.ModeNone:
		all.add(!c.Emulated(), "PUSH_AUTH: none is accepted only where an emulator host is set")
	default:
		all.add(true, "PUSH_AUTH: must be oidc, iam or none")
	}
	return all
}

var queueName = regexp.MustCompile(`^projects/[^/]+/locations/[^/]+/queues/[^/]+$`)

func (c config) checkAlarm() (all mistakes) {
	isSet := c.AlarmQueue != ""
	all.add((c.AlarmURL != "") != isSet || (c.AlarmAccount != "") != isSet,
		"ALARM_QUEUE, ALARM_URL and ALARM_SERVICE_ACCOUNT: set all of them, or none")
	named := queueName.MatchString(c.AlarmQueue)
	all.add(isSet && !named, "ALARM_QUEUE: must be projects/P/locations/L/queues/Q")
	base, err := url.Parse(c.AlarmURL)
	all.add(c.AlarmURL != "" && (err != nil || base.Host == "" || c.AlarmURL != "https://"+base.Host),
		"ALARM_URL: must be https://host, without a path")
	address := auth.IsAddress(c.AlarmAccount)
	all.add(c.AlarmAccount != "" && !address, "ALARM_SERVICE_ACCOUNT: is no e-mail address")
	return all
}

// instanceOf names this process in logs and in the attempts of events: the revision, which Cloud Run sets in
// K_REVISION and which is empty elsewhere, and a random part for each instance.
func instanceOf(revision, chance string) string { return strings.TrimPrefix(revision+"-"+chance, "-") }

// links returns Google's pages about an event: the log lines of this installation's services, which the
// prefix of their revisions selects, and its traces. An emulator has none.
func (c config) links(revision string) events.Links {
	if c.Emulated() {
		return events.Links{}
	}
	ours, mark := "", "-worker-"
	if c.Serves == worker.ServesPeople {
		mark = "-ops-"
	}
	if at := strings.LastIndex(revision, mark); at > 0 {
		ours = "\nresource.labels.service_name=~\"^" + revision[:at] + "-\""
	}
	query := url.QueryEscape("resource.type=\"cloud_run_revision\"" + ours +
		"\njsonPayload.event_id=\"{event_id}\"\ntimestamp>=\"{since}\"")
	query = strings.NewReplacer("+", "%20", "%7B", "{", "%7D", "}").Replace(query)
	project := url.QueryEscape(c.Project)
	return events.Links{
		Log:   "https://console.cloud.google.com/logs/query;query=" + query + "?project=" + project,
		Trace: "https://console.cloud.google.com/traces/list?project=" + project + "&tid={trace}",
	}
}

func (c config) access() (access.Access, error) {
	access := access.Access{Tokens: c.OpsToken.List(), OpenOnLoopback: c.Emulated()}
	if c.OpsAudience != "" {
		identity, err := auth.NewIdentity(auth.Config{Audience: c.OpsAudience, Allow: c.OpsAllow})
		if err != nil {
			return access, fmt.Errorf("OPS_AUDIENCE, OPS_ALLOW: %w", err)
		}
		access.Identifier = identity
	}
	return access, nil
}

// only narrows the catalog to the queues that this deployment runs. It refuses a pool without a queue.
func (c config) only(cat *catalog.Catalog) (*catalog.Catalog, error) {
	narrowed, err := cat.Only(c.Queues)
	among := cat
	if err == nil {
		among = narrowed
	}
	runs := among.Pools()
	if c.Pool != "" && !slices.Contains(runs, c.Pool) {
		wrong := "no enabled queue is in a pool of that name; the pools are "
		if slices.Contains(cat.Pools(), c.Pool) {
			wrong = "names a pool of which QUEUES names no queue; those that have one: "
		}
		return nil, errors.Join(err, errors.New("POOL: "+wrong+strings.Join(runs, ", ")))
	}
	if err != nil || (c.Pool == "" && c.TasksPool == "") {
		return narrowed, err // a worker of all pools runs the tasks, whatever pool is named
	}
	return narrowed.ForTasks(c.TasksPool)
}

func (c config) subscriptions(ctx context.Context, parts *worker.Config) (closeIt func() error, err error) {
	pools := map[string]pubsub.Pool{}
	for pool, address := range c.PushPoolURLs {
		pools[pool] = pubsub.Pool{URL: address, ServiceAccount: c.PushPoolAccounts[pool]}
	}
	target := pubsub.Target{Names: c.Names(), PushBaseURL: c.PushBaseURL, Pools: pools, Emulator: c.Emulated()}
	target.PushAudience, target.PushServiceAccount = c.PushAudience, c.PushServiceAccount
	opened, err := pubsub.NewSwitch(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("PUSH_BASE_URL, PUSH_POOL_URLS: %w", err)
	}
	parts.Subscriptions, parts.Doctor = opened, worker.Examiner(opened, parts.Catalog)
	if c.PushBaseURL != "" {
		parts.Switch = opened
	}
	return opened.Close, nil
}

func (c config) alarm(ctx context.Context, parts *worker.Config) (closeIt func() error, err error) {
	switch {
	case c.Serves == worker.ServesPeople:
	case c.AlarmQueue != "":
		calls, err := cloudtasks.New(ctx, cloudtasks.Config{
			Queue: c.AlarmQueue, URL: c.AlarmURL + tasks.ReleasePath,
			ServiceAccount: c.AlarmAccount, Audience: c.PushAudience, Now: time.Now,
		})
		if err != nil {
			return nil, err
		}
		parts.Alarm = calls
		return calls.Close, nil
	case c.Emulated():
		parts.AfterFunc = alarm.AfterFunc
	default:
		parts.Log.LogAttrs(ctx, slog.LevelWarn,
			"no alarm: without ALARM_QUEUE the scheduler releases kept messages, once a minute")
	}
	return func() error { return nil }, nil
}

// load returns this deployment's catalog, its targets, and the pool that the files name for the tasks.
func (c config) load(getenv func(string) string) (*catalog.Catalog, delivery.Targets, string, error) {
	whole, err := catalog.Load(c.CatalogDir)
	if err != nil {
		return nil, nil, "", fmt.Errorf("CATALOG_DIR: %w", err)
	}
	if c.Serves == worker.ServesPeople {
		c.Pool = "" // people see all queues
	}
	cat, err := c.only(whole)
	if err != nil {
		return nil, nil, "", err
	}
	if c.Serves == worker.ServesPeople {
		return cat, nil, whole.TasksPool, worker.Check(cat, "")
	}
	targets, err := delivery.Open(cat, c.Pool, func(t catalog.Target) (string, []string) {
		return getenv(t.URLVariable), env.Secret(getenv(t.SecretVariable)).List()
	}, time.Now)
	return cat, targets, whole.TasksPool, errors.Join(err, worker.Check(cat, c.Pool))
}

func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	cfg, envErr := env.Parse[config](getenv)
	cat, targets, tasksPool, catalogErr := cfg.load(getenv)
	if err := errors.Join(envErr, catalogErr); err != nil {
		return err
	}
	log := telemetry.NewLogger(stdout, cfg.LogLevel)
	if cat.TasksPool != tasksPool {
		log.LogAttrs(ctx, slog.LevelInfo, "tasks of another pool than the catalog's",
			slog.String("catalog", tasksPool), slog.String("pool", cat.TasksPool))
	}
	var verifier push.Authenticator
	var err error
	people := cfg.Serves == worker.ServesPeople
	if !people {
		verifier, err = auth.New(auth.Config{
			Mode: cfg.PushAuth, Audience: cfg.PushAudience, ServiceAccount: cfg.PushServiceAccount,
			EmulatorHost: cfg.Emulated(),
		})
		if err != nil {
			return err
		}
	}
	access, err := cfg.access()
	if err != nil {
		return err
	}
	// Clients outlive the signal: requests in flight still need them during the drain.
	clients := context.WithoutCancel(ctx)
	publisher, documents, err := cfg.Open(clients, cfg.MainDatabase())
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close(); _ = documents.Close() }() // every publish has been answered
	metrics := telemetry.NewMetrics()
	parts := worker.Config{
		Catalog: cat, Serves: cfg.Serves, Targets: targets, Pool: cfg.Pool, Store: documents,
		SealLag: documents.Lag(), Publisher: publisher, Authenticator: verifier, Access: access, Log: log,
		Metrics: metrics, Now: time.Now, PrivateEndpoints: cfg.Emulated(),
		Instance: instanceOf(getenv("K_REVISION"), uuid.NewString()[:8]),
		Settings: env.Settings(cfg, help(getenv).Catalog, getenv), Links: cfg.links(getenv("K_REVISION")),
		Environment: strings.TrimSuffix(cfg.Project+"/"+cfg.Installation, "/"),
	}
	if cfg.IngestDatabase != "" {
		copies, err := firestore.New(clients, cfg.Project, cfg.IngestDatabase)
		if err != nil {
			return err
		}
		defer func() { _ = copies.Close() }() // a task makes the copies that are missing
		parts.Mirror(copies, cfg.MainDatabase())
	}
	if !people && !cfg.Emulated() { // an emulator has no counts
		if parts.Backlogs, err = pubsub.NewBacklogs(clients, cfg.Names(), time.Now); err != nil {
			return err
		}
	}
	closeSubscriptions, err := cfg.subscriptions(clients, &parts)
	if err != nil {
		return err
	}
	defer func() { _ = closeSubscriptions() }() // the process ends; nothing is lost
	closeAlarm, err := cfg.alarm(clients, &parts)
	if err != nil {
		return err
	}
	defer func() { _ = closeAlarm() }() // Cloud Tasks keeps the tasks that were created
	served, err := worker.New(parts)
	if err != nil {
		return err
	}
	if !people {
		served.Start()
		defer served.Close() // after the drain, with its counts
	}
	server := serve.Server{Name: "worker", Log: log, ReadTimeout: time.Minute}
	return cfg.Serve(ctx, server, cfg.Port, served, metrics)
}
