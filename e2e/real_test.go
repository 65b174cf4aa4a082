package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	client "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/apps/customers"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// site is the configuration of real processes on Google's emulators.
type site struct {
	// Project is a new one on the emulators, and Installation one of those in it; it may have no name.
	Project, Installation string
	// CatalogDir has the catalog; empty: the shipped one.
	CatalogDir string
	// Queues are those that run; none: all that are enabled.
	Queues []string
	// FailPoint, if set, returns the fail point of the next worker.
	FailPoint func() string
	// Serves is what the worker serves; empty: all.
	Serves string
	// Around, if set, wraps the services that the worker calls.
	Around func(http.Handler) http.Handler
}

// real are the processes of a stack, with a gate in front of each dependency.
type real struct {
	site
	*stack
	broker string
	admin  *client.Client
	taps   []string
	worker *e2e.Process
	start  func(serves string) (*e2e.Process, error)
	// workerStore and workerBroker are between the worker and its dependencies. workerGate is in front of it,
	// since the subscriptions push to one address, and each of its processes has another port.
	workerStore, workerBroker, workerGate *e2e.Gate
}

// startReal provisions the project, and starts the services.
func startReal(t *testing.T, of site) (*stack, *real) {
	t.Helper()
	broker, database := emulatortest.PubSub(t), emulatortest.Firestore(t)
	life := context.WithoutCancel(t.Context())
	s := &stack{catalog: loaded(t, of.CatalogDir, of.Queues...), log: &e2e.Log{}}
	r := &real{
		site: of, stack: s, broker: broker, workerStore: e2e.NewGate(t, database),
		workerBroker: e2e.NewGate(t, broker), workerGate: e2e.NewGate(t, ""),
	}
	webhookBroker := e2e.NewGate(t, broker)
	binaries, workers := filetest.Must(services())(t), services
	if of.FailPoint != nil {
		workers = crashing
	}
	worker := filepath.Join(filetest.Must(workers())(t), "worker")
	targets := s.serveTargets(t, of.Around)

	// The store, the publisher and the taps connect to the emulators without a gate.
	documents := filetest.Must(firestore.NewEmulated(life, database, of.Project, of.Installation))(t)
	names := pubsub.Names{ProjectID: of.Project, Installation: of.Installation}
	options := pubsub.EmulatorOptions(broker)
	publisher := filetest.Must(pubsub.NewPublisher(life, names, options...))(t)
	r.admin = filetest.Must(client.NewClient(life, of.Project, options...))(t)
	t.Cleanup(func() { _, _, _ = documents.Close(), publisher.Close(), r.admin.Close() })

	common := append(e2e.Environment(of.Project, of.Installation, s.catalog, of.Queues, targets),
		"HOME="+binaries, "CATALOG_DIR="+of.CatalogDir)
	s.workerURL, s.store, s.publish = "http://"+r.workerGate.Addr(), documents, publisher.Publish
	s.opsURL = s.workerURL
	r.start = func(serves string) (*e2e.Process, error) {
		environment := append([]string{
			"SERVES=" + serves,
			"PUBSUB_EMULATOR_HOST=" + r.workerBroker.Addr(), "FIRESTORE_EMULATOR_HOST=" + r.workerStore.Addr(),
		}, common...)
		if of.FailPoint != nil {
			environment = append(environment, "FAILPOINT="+of.FailPoint())
		}
		return e2e.Start(t.Context(), worker, environment, s.log)
	}
	r.startWorker(t)
	t.Cleanup(func() { r.worker.Kill() })
	r.provision(t)
	r.tap(t)
	own := []string{"PUBSUB_EMULATOR_HOST=" + webhookBroker.Addr(), "FIRESTORE_EMULATOR_HOST=" + database}
	own = append(own, common...)
	webhook := filetest.Must(e2e.Start(t.Context(), filepath.Join(binaries, "webhook"), own, s.log))(t)
	t.Cleanup(webhook.Kill)

	s.webhookURL, s.storeDown, s.brokerDown = webhook.URL, r.workerStore.Shut, webhookBroker.Shut
	s.published = func(t *testing.T) (all []contract.Message) {
		t.Helper()
		for _, tap := range r.taps {
			for _, m := range r.pull(t, tap) {
				all = append(all, contract.Message{Data: m.Data, Attributes: m.Attributes, OrderingKey: m.OrderingKey})
			}
		}
		return all
	}
	s.task = func(ctx context.Context, name string) (map[string]any, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.workerURL+"/tasks/"+name, http.NoBody)
		if err != nil {
			return nil, err
		}
		return tasks.Call(http.DefaultClient, request)
	}
	return s, r
}

// serveTargets starts the services that workers call, and returns their address.
func (s *stack) serveTargets(t *testing.T, around func(http.Handler) http.Handler) (url string) {
	t.Helper()
	config := standin.ServiceConfig{Secrets: []string{e2e.DeliverySecret}, Tolerance: 5 * time.Minute}
	s.gateway = filetest.Must(standin.NewGateway(config))(t)
	config.Posts = s.catalog.Posts("")
	s.service = filetest.Must(standin.NewReceiver(config))(t)
	called := s.gateway.Before(s.service)
	if around != nil {
		called = around(called)
	}
	server := httptest.NewUnstartedServer(called)
	server.Config.WriteTimeout = time.Minute
	server.Start()
	t.Cleanup(func() { s.service.Close(); s.gateway.Close(); server.Close() })
	return server.URL
}

// provision creates the queues that are missing.
func (r *real) provision(t *testing.T) {
	t.Helper()
	names := pubsub.Names{ProjectID: r.Project, Installation: r.Installation}
	require.NoError(t, e2e.Provision(t.Context(), names, r.catalog, r.broker, r.workerURL))
}

// requireCopies requires that the webhook service's database has copies of what it reads, and nothing else.
func (r *real) requireCopies(t *testing.T) {
	t.Helper()
	// it does the to-dos of killed workers
	require.NoError(t, filetest.ErrorOf(r.task(t.Context(), "relay-outbox")))
	require.Empty(t, storetest.All(t, r.store, mirror.Collection))
	collections := func(database string) []string {
		url := fmt.Sprintf("http://%s/v1/projects/%s/databases/%s/documents:listCollectionIds",
			emulatortest.Firestore(t), r.Project, database)
		owner := map[string]string{"Authorization": "Bearer owner"}
		answer := filetest.Must(e2e.Do(e2e.Request(t.Context(), http.MethodPost, url, []byte("{}"), owner)))(t)
		return filetest.JSON[struct{ CollectionIDs []string }](t, answer.Body).CollectionIDs
	}
	ingest := r.id("ingest")
	require.Subset(t, collections("(default)"), []string{dedupe.Collection, deadletter.Collection, "customers"})
	read := []string{"customers", "orders", "products", mirror.Collection, webhook.BlocksCollection}
	require.Subset(t, read, collections(ingest))
	copies := filetest.Must(firestore.NewEmulated(t.Context(), emulatortest.Firestore(t), r.Project, ingest))(t)
	defer func() { require.NoError(t, copies.Close()) }()
	linked := storetest.All(t, copies, customers.Collection)
	for _, doc := range linked {
		of := filetest.Must(store.Find(t.Context(), r.store, doc.Key))(t)
		delete(doc.Fields, "token")
		want := map[string]any{"uid": of.Fields["uid"]}
		if of.Version == 0 {
			want = map[string]any{"gone": true}
		}
		require.Equal(t, want, doc.Fields)
	}
	require.GreaterOrEqual(t, len(linked), len(storetest.All(t, r.store, customers.Collection)))
}

// startWorker starts the worker, which is not running, behind its address.
func (r *real) startWorker(t *testing.T) {
	t.Helper()
	r.worker = filetest.Must(r.start(r.Serves))(t)
	r.workerGate.Aim(strings.TrimPrefix(r.worker.URL, "http://"))
}

// tap subscribes to the topics of every enabled queue, and of its dead letters, to read their messages.
func (r *real) tap(t *testing.T) {
	t.Helper()
	for _, q := range r.catalog.Queues {
		for _, topic := range []string{q.Topic(), q.DeadLetter.Topic} {
			if !q.Enabled || topic == "" || slices.Contains(r.taps, r.tapOf(topic)) { // several queues share a topic
				continue
			}
			tap := &pubsubpb.Subscription{
				Name: r.name("subscriptions", r.tapOf(topic)), Topic: r.name("topics", r.id(topic)),
			}
			_, err := r.admin.SubscriptionAdminClient.CreateSubscription(t.Context(), tap)
			require.NoError(t, err, "tap %s", topic)
			r.taps = append(r.taps, r.tapOf(topic))
		}
	}
}

func (r *real) tapOf(topic string) string { return "e2e-tap-" + r.id(topic) }

// id is the broker's id of a topic or subscription, by a rule of its own, to test that of the program.
func (r *real) id(ofCatalog string) string {
	return strings.TrimPrefix(r.Installation+"-"+ofCatalog, "-")
}

func (r *real) name(kind, id string) string {
	return fmt.Sprintf("projects/%s/%s/%s", r.Project, kind, id)
}

// pull pulls the new messages of a subscription.
func (r *real) pull(t *testing.T, id string) (all []*pubsubpb.PubsubMessage) {
	t.Helper()
	request := &pubsubpb.PullRequest{Subscription: r.name("subscriptions", id), MaxMessages: 1000}
	for {
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		answer, err := r.admin.SubscriptionAdminClient.Pull(short, request)
		timedOut := short.Err() != nil || status.Code(err) == codes.DeadlineExceeded // of whoever ends it
		cancel()
		if err != nil && timedOut || err == nil && len(answer.ReceivedMessages) == 0 {
			require.NoError(t, t.Context().Err())
			return all
		}
		require.NoError(t, err, "pull %s", id)
		ack := &pubsubpb.AcknowledgeRequest{Subscription: request.Subscription}
		for _, m := range answer.ReceivedMessages {
			all, ack.AckIds = append(all, m.Message), append(ack.AckIds, m.AckId)
		}
		require.NoError(t, r.admin.SubscriptionAdminClient.Acknowledge(t.Context(), ack))
	}
}
