package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	client "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// Real is a Billhook of real processes on Google's emulators: the deployed binaries, with a
// gate in front of each dependency.
type Real struct {
	WebhookURL string
	// Log holds the output of both services.
	Log *Log
	// WorkerStore is between the worker and Firestore. WebhookBroker is between the webhook
	// service and Pub/Sub. WorkerDoor is in front of the worker: each of its processes has a port
	// of its own, and the subscriptions push to one address.
	WorkerStore, WebhookBroker, WorkerDoor *Gate
	// Service is the stand-in for the subscription service, in this process.
	Service *standin.Receiver
	// Gateway stands in for the payment gateway, in this process.
	Gateway *standin.Gateway
	// Store and Publisher connect to the emulators without a gate.
	Store     store.Store
	Publisher *pubsub.Publisher

	catalog           *catalog.Catalog
	names             pubsub.Names
	folder            string
	broker            string
	webhook, worker   *Process
	workerEnvironment []string
	admin             *client.Client
	taps              []string
	closers           []func()
}

// Site is where a Real runs.
type Site struct {
	// Folder has the binaries. Project is a new one on the emulators.
	Folder, Project string
	// Installation is one of several in the project; empty: the one without a name.
	Installation string
	// Broker and Database are the addresses of the emulators.
	Broker, Database string
	// Provision creates the project's queues on the emulator at broker (host:port), with pushes to workerURL.
	Provision func(ctx context.Context, broker, workerURL string) error
	// Queues are those that run, and no other address than theirs is set; none: all that are enabled.
	Queues []string
	// Environment has additional variables as NAME=value.
	Environment []string
}

// StartReal builds the binaries, provisions the project, and starts the services.
func StartReal(ctx context.Context, site Site) (*Real, error) {
	runs, err := shipped.Only(site.Queues)
	if err != nil {
		return nil, err
	}
	environment := site.Environment
	if len(site.Queues) > 0 {
		environment = append(slices.Clone(environment), "QUEUES="+strings.Join(site.Queues, ","))
	}
	r := &Real{Log: &Log{}, catalog: runs, names: pubsub.Names{ProjectID: site.Project, Installation: site.Installation}, folder: site.Folder, broker: site.Broker}
	if err := r.start(ctx, site.Database, site.Provision, environment); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Real) start(ctx context.Context, database string, provision func(ctx context.Context, broker, workerURL string) error, environment []string) error {
	if err := BuildOnce(ctx, r.folder); err != nil {
		return err
	}
	var err error
	if r.WorkerStore, err = NewGate(ctx, database); err != nil {
		return err
	}
	r.closers = append(r.closers, r.WorkerStore.Close)
	if r.WebhookBroker, err = NewGate(ctx, r.broker); err != nil {
		return err
	}
	r.closers = append(r.closers, r.WebhookBroker.Close)

	if r.Service, err = standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{DeliverySecret}, Posts: shipped.Posts(""), Tolerance: 5 * time.Minute}); err != nil {
		return err
	}
	if r.Gateway, err = standin.NewGateway(standin.GatewayConfig{Secrets: []string{DeliverySecret}, Tolerance: 5 * time.Minute}); err != nil {
		return err
	}
	service := httptest.NewUnstartedServer(r.Gateway.Before(r.Service))
	service.Config.WriteTimeout = time.Minute
	service.Start()
	r.closers = append(r.closers, func() {
		r.Service.Close()
		r.Gateway.Close()
		service.Close()
	})

	life := context.WithoutCancel(ctx)
	documents, err := firestore.NewEmulated(life, database, r.names.ProjectID, r.names.Installation)
	if err != nil {
		return err
	}
	r.Store = documents
	r.closers = append(r.closers, func() { _ = documents.Close() })
	options := pubsub.EmulatorOptions(r.broker)
	if r.Publisher, err = pubsub.NewPublisher(life, r.names, options...); err != nil {
		return err
	}
	r.closers = append(r.closers, func() { _ = r.Publisher.Close() })
	if r.admin, err = client.NewClient(life, r.names.ProjectID, options...); err != nil {
		return err
	}
	r.closers = append(r.closers, func() { _ = r.admin.Close() })

	common := append([]string{
		"HOST=127.0.0.1", "METRICS_PORT=0", "GOOGLE_CLOUD_PROJECT=" + r.names.ProjectID, "INSTALLATION=" + r.names.Installation, "WEBHOOK_SECRET_PAYNOW=" + Secret,
		"WEBHOOK_SIGNING_SECRET=" + Secret, "PUSH_AUTH=none", "PATH=" + os.Getenv("PATH"), "HOME=" + r.folder,
	}, environment...)
	r.workerEnvironment = slices.Concat([]string{"PUBSUB_EMULATOR_HOST=" + r.broker, "FIRESTORE_EMULATOR_HOST=" + r.WorkerStore.Addr()}, TargetsAt(r.catalog, service.URL), common)
	if r.WorkerDoor, err = NewGate(ctx, ""); err != nil {
		return err
	}
	r.closers = append(r.closers, r.WorkerDoor.Close)
	if err := r.RestartWorker(ctx); err != nil {
		return err
	}
	if err := provision(ctx, r.broker, r.WorkerURL()); err != nil {
		return err
	}
	if err := r.tap(ctx); err != nil {
		return err
	}
	r.webhook, err = Start(ctx, filepath.Join(r.folder, "webhook"), append([]string{
		"PORT=0", "PUBSUB_EMULATOR_HOST=" + r.WebhookBroker.Addr(), "FIRESTORE_EMULATOR_HOST=" + database,
	}, common...), r.Log)
	if err != nil {
		return err
	}
	r.WebhookURL = r.webhook.URL
	return nil
}

// WorkerURL is the address at which every process of the worker is reached.
func (r *Real) WorkerURL() string { return "http://" + r.WorkerDoor.Addr() }

// KillWorker ends the worker with SIGKILL.
func (r *Real) KillWorker() { r.worker.Kill() }

// RestartWorker starts the worker, which is not running, behind its door.
func (r *Real) RestartWorker(ctx context.Context) (err error) {
	if r.worker, err = Start(ctx, filepath.Join(r.folder, "worker"), append([]string{"PORT=0"}, r.workerEnvironment...), r.Log); err == nil {
		r.WorkerDoor.Aim(strings.TrimPrefix(r.worker.URL, "http://"))
	}
	return err
}

// tap adds a subscription to the topics of every enabled queue, dead letters included, to see
// their messages.
func (r *Real) tap(ctx context.Context) error {
	for _, q := range r.catalog.Queues {
		for _, topic := range []string{q.Topic(), q.DeadLetter.Topic} {
			tap := "e2e-tap-" + r.id(topic)
			if !q.Enabled || topic == "" || slices.Contains(r.taps, tap) { // several queues share a topic
				continue
			}
			if _, err := r.admin.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{
				Name: r.subscription(tap), Topic: fmt.Sprintf("projects/%s/topics/%s", r.names.ProjectID, r.id(topic)),
			}); err != nil {
				return fmt.Errorf("tap %s: %w", topic, err)
			}
			r.taps = append(r.taps, tap)
		}
	}
	return nil
}

// id is what a topic or subscription is called at the broker. It repeats the rule of internal/platform/gcp/pubsub,
// so that the two can differ.
func (r *Real) id(ofCatalog string) string {
	if r.names.Installation == "" {
		return ofCatalog
	}
	return r.names.Installation + "-" + ofCatalog
}

func (r *Real) subscription(id string) string {
	return fmt.Sprintf("projects/%s/subscriptions/%s", r.names.ProjectID, id)
}

// Published pulls the new messages on the topics of all queues, dead letters included.
func (r *Real) Published(ctx context.Context) ([]contract.Message, error) {
	var all []contract.Message
	for _, tap := range r.taps {
		some, err := r.pull(ctx, tap)
		all = append(all, some...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// DeadLetters pulls the new messages of the hold subscription.
func (r *Real) DeadLetters(ctx context.Context) ([]contract.Message, error) {
	return r.pull(ctx, r.id(Queue+"-dlq-hold"))
}

func (r *Real) pull(ctx context.Context, id string) ([]contract.Message, error) {
	var all []contract.Message
	for {
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		answer, err := r.admin.SubscriptionAdminClient.Pull(short, &pubsubpb.PullRequest{Subscription: r.subscription(id), MaxMessages: 1000})
		timedOut := short.Err() != nil
		cancel()
		if err != nil && timedOut && ctx.Err() == nil {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("pull %s: %w", id, err)
		}
		if len(answer.ReceivedMessages) == 0 {
			return all, nil
		}
		var ids []string
		for _, m := range answer.ReceivedMessages {
			all = append(all, contract.Message{Data: m.Message.Data, Attributes: m.Message.Attributes, OrderingKey: m.Message.OrderingKey})
			ids = append(ids, m.AckId)
		}
		if err := r.admin.SubscriptionAdminClient.Acknowledge(ctx, &pubsubpb.AcknowledgeRequest{Subscription: r.subscription(id), AckIds: ids}); err != nil {
			return all, fmt.Errorf("acknowledge %s: %w", id, err)
		}
	}
}

// Task calls one task of the worker and returns its result.
func (r *Real) Task(ctx context.Context, name string) (map[string]any, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.WorkerURL()+"/tasks/"+name, nil)
	if err != nil {
		return nil, err
	}
	return tasks.Call(http.DefaultClient, request)
}

// Close ends the services and everything else.
func (r *Real) Close() {
	for _, p := range []*Process{r.webhook, r.worker} {
		if p != nil {
			p.Kill()
		}
	}
	for i := len(r.closers) - 1; i >= 0; i-- {
		r.closers[i]()
	}
}

// Only tests shut a gate, aim it, and wait for a process to die.

// Aim leads new connections to another target.
func (g *Gate) Aim(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = target
}

// Shut cuts every connection, and every new one.
func (g *Gate) Shut() {
	g.set(gateShut)
	g.cut()
}

// Died waits until the process ends by itself, and returns the signal that ended it; 0: none.
func (p *Process) Died(ctx context.Context) (syscall.Signal, error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		return 0, fmt.Errorf("%s lives: %w", filepath.Base(p.command.Path), ctx.Err())
	}
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, nil
	}
	return status.Signal(), nil
}

// BuildOnce is Build. After KeepBuilds it compiles each set of tags once; later builds are links to the first.
func BuildOnce(ctx context.Context, folder string, tags ...string) error {
	built.Lock()
	defer built.Unlock()
	if built.folder == "" {
		return Build(ctx, folder, tags...)
	}
	kept := filepath.Join(built.folder, "tags "+strings.Join(tags, " "))
	if !built.with[kept] {
		if err := Build(ctx, kept, tags...); err != nil {
			return err
		}
		built.with[kept] = true
	}
	for _, service := range services {
		if err := os.Link(filepath.Join(kept, service), filepath.Join(folder, service)); err != nil {
			return fmt.Errorf("build the services: %w", err)
		}
	}
	return nil
}

// built holds the builds of this process after KeepBuilds.
var built struct {
	sync.Mutex
	folder string
	with   map[string]bool
}

// KeepBuilds keeps what BuildOnce compiles until remove is called.
func KeepBuilds() (remove func() error, err error) {
	built.Lock()
	defer built.Unlock()
	if built.folder != "" {
		return nil, errors.New("e2e: builds are kept already")
	}
	if built.folder, err = os.MkdirTemp("", "billhook-e2e-"); err != nil {
		return nil, err
	}
	built.with = map[string]bool{}
	return func() error { return os.RemoveAll(built.folder) }, nil
}
