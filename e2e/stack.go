// This file is over 400 lines: one installation, from its start to its end.

// Package e2e runs whole Billhooks: the embedded stack in one process, and the real binaries on
// Google's emulators, behind gates that can be shut, under kill -9. Its tests run the same
// cases against both. It refuses to use internals: it sends webhooks and reads what is stored,
// published and logged.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	client "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// Secret signs every webhook of this package.
const Secret = "e2e-secret-of-more-than-24-bytes"

// DeliverySecret signs what workers post. It is not Secret: who receives must not sign as a sender.
const DeliverySecret = "e2e-delivery-secret-of-more-than-24-bytes"

var shipped = func() *catalog.Catalog {
	c, err := catalog.Load("")
	if err != nil {
		panic(err) // the tests of the catalog check the built-in one
	}
	return c
}()

// Queue is the queue of PayNow's orders, which the cases use.
var Queue = shipped.Sources["paynow"].Events["ON_ORDER_COMPLETED"]

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

// Provision creates a project's queues on the emulator at broker (host:port), with pushes to
// workerURL.
type Provision func(ctx context.Context, broker, workerURL string) error

// Provisioned creates a project's queues by the program's own provisioning.
func Provisioned(project string, c *catalog.Catalog) Provision {
	return ProvisionedAs(pubsub.Names{ProjectID: project}, c)
}

// ProvisionedAs creates the queues of one of a project's installations in the same way.
func ProvisionedAs(names pubsub.Names, c *catalog.Catalog) Provision {
	return func(ctx context.Context, broker, workerURL string) error {
		to := pubsub.Target{ProjectID: names.ProjectID, Installation: names.Installation, PushBaseURL: workerURL, Emulator: true}
		_, err := pubsub.Provision(ctx, c, to, pubsub.EmulatorOptions(broker)...)
		return err
	}
}

// Site is where a Real runs.
type Site struct {
	// Folder has the binaries. Project is a new one on the emulators.
	Folder, Project string
	// Installation is one of several in the project; empty: the one without a name.
	Installation string
	// Broker and Database are the addresses of the emulators.
	Broker, Database string
	Provision        Provision
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

func (r *Real) start(ctx context.Context, database string, provision Provision, environment []string) error {
	if err := Build(ctx, r.folder); err != nil {
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
	r.workerEnvironment = slices.Concat([]string{"PUBSUB_EMULATOR_HOST=" + r.broker, "FIRESTORE_EMULATOR_HOST=" + r.WorkerStore.Addr()}, targetsAt(r.catalog, service.URL), common)
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

// TargetsAt returns the variables, as NAME=value, of every target that the shipped catalog's queues
// need, at one URL.
func TargetsAt(url string) []string { return targetsAt(shipped, url) }

// targetsAt returns the variables of those targets that the catalog's queues need.
func targetsAt(c *catalog.Catalog, url string) []string {
	var environment []string
	for _, target := range c.TargetsOf("") {
		environment = append(environment, target.URLVariable+"="+url, target.SecretVariable+"="+DeliverySecret)
	}
	return environment
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

// Answer is an answer of the webhook service.
type Answer struct {
	Status      int    `json:"-"`
	RetryAfter  string `json:"-"`
	EventID     string `json:"event_id"`
	MessageID   string `json:"message_id"`
	OrderingKey string `json:"ordering_key"`
	Code        string `json:"code"`
	// Body is the whole body.
	Body string `json:"-"`
}

// Products: Product is worth PointsPerPiece points, UnknownProduct is in no catalog.
const (
	Product        = "411486491630370501"
	UnknownProduct = "700000000000000999"
	PointsPerPiece = 1000
)

var payNow = func() *signature.Signer {
	signer, err := signature.NewSigner(signature.PayNow, Secret)
	if err != nil {
		panic(err) // the secret is a constant
	}
	return signer
}()

// Send signs a body as PayNow does and posts it.
func Send(ctx context.Context, base string, body []byte) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/webhooks/paynow", bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	Sign(request, body)
	return Do(request)
}

// Sign signs a request with a body as PayNow does.
func Sign(request *http.Request, body []byte) {
	for name, value := range payNow.Sign("", body, time.Now()) {
		request.Header.Set(name, value)
	}
}

// Accept sends a body until it is accepted, as PayNow does. It returns when the accepted request
// was sent, and how many requests were refused before.
func Accept(ctx context.Context, base string, body []byte) (sent time.Time, refused int, err error) {
	return UntilAccepted(ctx, func() (Answer, error) { return Send(ctx, base, body) })
}

// UntilAccepted is Accept for a request of any sender.
func UntilAccepted(ctx context.Context, send func() (Answer, error)) (sent time.Time, refused int, err error) {
	for {
		sent = time.Now()
		answer, err := send()
		switch {
		case err != nil:
			return sent, refused, err
		case answer.Status == http.StatusAccepted:
			return sent, refused, nil
		case answer.Status != http.StatusServiceUnavailable && answer.Status != http.StatusTooManyRequests:
			return sent, refused, fmt.Errorf("answered %d %s", answer.Status, answer.Code)
		}
		refused++
		if !Wait(ctx, 100*time.Millisecond) {
			return sent, refused, ctx.Err()
		}
	}
}

// Points returns the points of a user; 0 without an account.
func Points(ctx context.Context, s store.Getter, uid string) (int64, error) {
	doc, err := s.Get(ctx, ledger.UserPoints(uid).Key(dedupe.DefaultTenant))
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	balance, _ := doc.Fields["balance"].(int64)
	return balance, err
}

// sender keeps a connection for each of many senders.
var sender = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}

// Do sends a request and reads its whole answer.
func Do(request *http.Request) (Answer, error) {
	response, err := sender.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Status: response.StatusCode, RetryAfter: response.Header.Get("Retry-After"), Body: string(text)}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			return answer, errors.New("the answer is not JSON")
		}
	}
	return answer, nil
}
