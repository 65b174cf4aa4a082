package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	client "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/contract"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/standin"
)

// site is where a Billhook of real processes runs, on Google's emulators.
type site struct {
	// Project is a new one on the emulators.
	Project string
	// Installation is one of several in the project; empty: the one without a name.
	Installation string
	// Provision creates the project's queues on the emulator at broker (host:port), with pushes to workerURL.
	Provision func(ctx context.Context, broker, workerURL string) error
	// Queues are those that run, and no other address than theirs is set; none: all that are enabled.
	Queues []string
	// Environment has additional variables as NAME=value.
	Environment []string
}

// real are the processes of a stack, with a gate in front of each dependency.
type real struct {
	site
	catalog *catalog.Catalog
	folder  string
	log     *e2e.Log
	admin   *client.Client
	taps    []string
	worker  *e2e.Process
	// workerStore is between the worker and Firestore. workerDoor is in front of the worker: each of its processes has a
	// port of its own, and the subscriptions push to one address.
	workerStore, workerDoor *e2e.Gate
	workerEnvironment       []string
}

// startReal builds the deployed binaries, provisions the project, and starts the services.
func startReal(t *testing.T, of site) *stack {
	t.Helper()
	r := &real{site: of, folder: t.TempDir(), log: &e2e.Log{}}
	broker, database, life := emulatortest.PubSub(t), emulatortest.Firestore(t), context.WithoutCancel(t.Context())
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	r.catalog, err = shipped.Only(of.Queues)
	require.NoError(t, err)
	require.NoError(t, e2e.BuildOnce(t.Context(), r.folder))
	r.workerStore, r.workerDoor = gate(t, database), gate(t, "")
	webhookBroker := gate(t, broker)

	service, err := standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{e2e.DeliverySecret}, Posts: shipped.Posts(""), Tolerance: 5 * time.Minute})
	require.NoError(t, err)
	gateway, err := standin.NewGateway(standin.GatewayConfig{Secrets: []string{e2e.DeliverySecret}, Tolerance: 5 * time.Minute})
	require.NoError(t, err)
	outside := httptest.NewUnstartedServer(gateway.Before(service))
	outside.Config.WriteTimeout = time.Minute
	outside.Start()
	t.Cleanup(func() { service.Close(); gateway.Close(); outside.Close() })

	// The store, the publisher and the taps connect to the emulators without a gate.
	documents, err := firestore.NewEmulated(life, database, of.Project, of.Installation)
	require.NoError(t, err)
	t.Cleanup(func() { _ = documents.Close() })
	publisher, err := pubsub.NewPublisher(life, pubsub.Names{ProjectID: of.Project, Installation: of.Installation}, pubsub.EmulatorOptions(broker)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	r.admin, err = client.NewClient(life, of.Project, pubsub.EmulatorOptions(broker)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.admin.Close() })

	common := append([]string{
		"HOST=127.0.0.1", "METRICS_PORT=0", "GOOGLE_CLOUD_PROJECT=" + of.Project, "INSTALLATION=" + of.Installation, "WEBHOOK_SECRET_PAYNOW=" + e2e.Secret,
		"WEBHOOK_SIGNING_SECRET=" + e2e.Secret, "PUSH_AUTH=none", "PATH=" + os.Getenv("PATH"), "HOME=" + r.folder, "QUEUES=" + strings.Join(of.Queues, ","),
	}, of.Environment...)
	r.workerEnvironment = slices.Concat([]string{"PUBSUB_EMULATOR_HOST=" + broker, "FIRESTORE_EMULATOR_HOST=" + r.workerStore.Addr()}, e2e.TargetsAt(r.catalog, outside.URL), common)
	r.startWorker(t)
	t.Cleanup(func() { r.worker.Kill() })
	require.NoError(t, of.Provision(t.Context(), broker, r.workerURL()))
	r.tap(t)
	webhook, err := e2e.Start(t.Context(), filepath.Join(r.folder, "webhook"),
		append([]string{"PORT=0", "PUBSUB_EMULATOR_HOST=" + webhookBroker.Addr(), "FIRESTORE_EMULATOR_HOST=" + database}, common...), r.log)
	require.NoError(t, err)
	t.Cleanup(webhook.Kill)

	var published, deadLetters []contract.Message
	return &stack{
		webhookURL: webhook.URL, workerURL: r.workerURL(), log: r.log, store: documents, publish: publisher.Publish, service: service, gateway: gateway,
		published: func(t *testing.T) []contract.Message {
			t.Helper()
			for _, tap := range r.taps {
				published = append(published, r.pull(t, tap)...)
			}
			return published
		},
		deadLetters: func(t *testing.T) []contract.Message {
			t.Helper()
			deadLetters = append(deadLetters, r.pull(t, r.id(e2e.Queue+"-dlq-hold"))...)
			return deadLetters
		},
		killWorker: r.restartWorker,
		storeDown:  shut(r.workerStore),
		brokerDown: shut(webhookBroker),
		task: func(ctx context.Context, name string) (map[string]any, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.workerURL()+"/tasks/"+name, nil)
			if err != nil {
				return nil, err
			}
			return tasks.Call(http.DefaultClient, request)
		},
		crash: func(t *testing.T, afterCommit bool, eventID string, send func()) bool {
			t.Helper()
			held := r.workerStore.HoldRequests
			if afterCommit {
				held = r.workerStore.HoldAnswers
			}
			caught := held()
			send()
			<-caught
			committed := time.Now().Add(5 * time.Second)
			for afterCommit && status(t, documents, eventID) != "COMPLETED" {
				if time.Now().After(committed) {
					r.workerStore.Open()
					return false
				}
				e2e.Wait(t.Context(), pollInterval)
			}
			r.worker.Kill()
			r.workerStore.Drop()
			r.startWorker(t)
			return true
		},
	}
}

// gate opens one until the end of the test.
func gate(t *testing.T, target string) *e2e.Gate {
	t.Helper()
	g, err := e2e.NewGate(t.Context(), target)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func shut(g *e2e.Gate) func(bool) {
	return func(down bool) {
		if down {
			g.Shut()
			return
		}
		g.Open()
	}
}

// workerURL is the address at which every process of the worker is reached.
func (r *real) workerURL() string { return "http://" + r.workerDoor.Addr() }

// startWorker starts the worker, which is not running, behind its door.
func (r *real) startWorker(t *testing.T) {
	t.Helper()
	worker, err := e2e.Start(t.Context(), filepath.Join(r.folder, "worker"), append([]string{"PORT=0"}, r.workerEnvironment...), r.log)
	require.NoError(t, err)
	r.worker = worker
	r.workerDoor.Aim(strings.TrimPrefix(worker.URL, "http://"))
}

// restartWorker ends the worker with SIGKILL, and starts it again.
func (r *real) restartWorker(t *testing.T) {
	t.Helper()
	r.worker.Kill()
	r.startWorker(t)
}

// tap adds a subscription to the topics of every enabled queue, dead letters included, to see
// their messages.
func (r *real) tap(t *testing.T) {
	t.Helper()
	for _, q := range r.catalog.Queues {
		for _, topic := range []string{q.Topic(), q.DeadLetter.Topic} {
			tap := "e2e-tap-" + r.id(topic)
			if !q.Enabled || topic == "" || slices.Contains(r.taps, tap) { // several queues share a topic
				continue
			}
			_, err := r.admin.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
				Name: r.subscription(tap), Topic: fmt.Sprintf("projects/%s/topics/%s", r.Project, r.id(topic)),
			})
			require.NoError(t, err, "tap %s", topic)
			r.taps = append(r.taps, tap)
		}
	}
}

// id is what a topic or subscription is called at the broker. It repeats the rule of internal/platform/gcp/pubsub,
// so that the two can differ.
func (r *real) id(ofCatalog string) string {
	if r.Installation == "" {
		return ofCatalog
	}
	return r.Installation + "-" + ofCatalog
}

func (r *real) subscription(id string) string {
	return fmt.Sprintf("projects/%s/subscriptions/%s", r.Project, id)
}

// pull pulls the new messages of a subscription.
func (r *real) pull(t *testing.T, id string) (all []contract.Message) {
	t.Helper()
	for {
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		answer, err := r.admin.SubscriptionAdminClient.Pull(short, &pubsubpb.PullRequest{Subscription: r.subscription(id), MaxMessages: 1000})
		timedOut := short.Err() != nil
		cancel()
		if err != nil && timedOut {
			require.NoError(t, t.Context().Err())
			return all
		}
		require.NoError(t, err, "pull %s", id)
		if len(answer.ReceivedMessages) == 0 {
			return all
		}
		var ids []string
		for _, m := range answer.ReceivedMessages {
			all = append(all, contract.Message{Data: m.Message.Data, Attributes: m.Message.Attributes, OrderingKey: m.Message.OrderingKey})
			ids = append(ids, m.AckId)
		}
		require.NoError(t, r.admin.SubscriptionAdminClient.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: r.subscription(id), AckIds: ids}))
	}
}
