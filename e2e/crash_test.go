package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	client "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator/emulatortest"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	at "billhook/internal/platform/failpoint"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// crashCase is a story and the points at which its workers are killed.
type crashCase struct {
	// points end one worker after the other. The worker after the last point lives. name:2 is
	// the second hit of the point.
	points []string
	story  func(*testing.T, *installation)
	// told is the mode of the subscription service for the first deliveries, and times their
	// number.
	told  standin.Mode
	times int
	// left is the state after the first kill: the status of the event's record, and of the
	// record of the emitted update. It proves that the point is where its name says.
	left string
	// calls lists the requests to the subscription service with their statuses; nil: not
	// checked. The service applies one POST. An attempt without a known outcome is asked for by
	// a GET.
	calls []string
}

// crashCases cover every fail point, and every step of the chain.
var crashCases = map[string]crashCase{
	"a credit that is not committed is made later":  {points: []string{at.TxCommit}, story: credited, left: "- -"},
	"a credit that is committed stays the only one": {points: []string{at.TxCommitted}, story: credited, left: "COMPLETED -"},
	"a failure that is not counted costs nothing":   {points: []string{at.TxFail}, story: refunded, left: "- -"},
	"a failure that is counted costs one attempt":   {points: []string{at.TxFailed}, story: refunded, left: "FAILED -"},

	"an event dies before its dead letter":             {points: []string{at.BuryPublish}, story: unknown, left: "- -"},
	"a dead letter is published and not recorded":      {points: []string{at.BuryPublished}, story: unknown, left: "- -"},
	"a dead letter is marked, and the broker not told": {points: []string{at.BuryMarked}, story: unknown, left: "DEAD_LETTERED -"},
	"a conflict is a dead letter and not recorded":     {points: []string{at.BuryPublished}, story: conflicted, left: "COMPLETED -"},
	"a conflict is marked, and the broker not told":    {points: []string{at.BuryMarked}, story: conflicted, left: "COMPLETED -"},
	"a dead letter is not stored":                      {points: []string{at.LetterKeep}, story: unknown},
	"a dead letter is stored, and the broker not told": {points: []string{at.LetterKept}, story: unknown},

	"a payment event and its message are not committed": {points: []string{at.TxCommit}, story: renewed, left: "- -"},
	"a message is committed and its worker gone":        {points: []string{at.TxCommitted}, story: renewed, left: "COMPLETED -"},
	"a message is about to be published":                {points: []string{at.OutboxPublish}, story: renewed, left: "COMPLETED -"},
	"a message is published and still in the outbox":    {points: []string{at.OutboxPublished}, story: renewed},
	"a message is published and removed":                {points: []string{at.OutboxRemoved}, story: renewed},
	"the relay dies at each of its steps": {
		points: []string{at.TxCommitted, at.OutboxPublish, at.OutboxPublished, at.OutboxRemoved}, story: renewed, left: "COMPLETED -",
	},
	"the relay dies between two messages of a key":   {points: []string{at.OutboxPublish, at.OutboxPublish + ":2"}, story: renewedTwice, left: "COMPLETED -"},
	"a lane that cannot be published is not put off": {points: []string{at.OutboxPutOff}, story: unpublished, left: "COMPLETED -"},
	"a lane that cannot be published is put off":     {points: []string{at.OutboxLater}, story: unpublished, left: "COMPLETED -"},

	"an update is not claimed": {
		points: []string{at.LeasedClaim}, story: renewed, left: "COMPLETED -", calls: []string{"POST 200"},
	},
	"an update is claimed, and the service was told nothing": {
		points: []string{at.LeasedClaimed}, story: renewed, left: "COMPLETED PROCESSING", calls: []string{"GET 404", "POST 200"},
	},
	"the service has applied it, and there is no record": {
		points: []string{at.LeasedDone}, story: renewed, left: "COMPLETED PROCESSING", calls: []string{"POST 200", "GET 200"},
	},
	"the service was told, forgot to answer, and the worker is gone": {
		points: []string{at.LeasedDone}, story: renewed, told: standin.Forget, times: 1, left: "COMPLETED PROCESSING",
		calls: []string{"POST cut", "GET 200"},
	},
	"the service was told, forgot to answer, and the worker is gone after giving the update back": {
		points: []string{at.LeasedReleased}, story: renewed, told: standin.Forget, times: 1, left: "COMPLETED FAILED",
		calls: []string{"POST cut", "GET 200"},
	},
	"an update is completed, and the broker not told": {
		points: []string{at.LeasedCompleted}, story: renewed, left: "COMPLETED COMPLETED", calls: []string{"POST 200"},
	},
	"the service fails, and there is no record": {
		points: []string{at.LeasedDone}, story: renewed, told: standin.Fail, times: 1, left: "COMPLETED PROCESSING",
		calls: []string{"POST 503", "GET 404", "POST 200"},
	},
	"the service fails, and the update is not given back": {
		points: []string{at.LeasedRelease}, story: renewed, told: standin.Fail, times: 1, left: "COMPLETED PROCESSING",
		calls: []string{"POST 503", "GET 404", "POST 200"},
	},
	"the service fails, and the update is given back": {
		points: []string{at.LeasedReleased}, story: renewed, told: standin.Fail, times: 1, left: "COMPLETED FAILED",
		calls: []string{"POST 503", "GET 404", "POST 200"},
	},
	"the service says that it knows nothing, and the worker dies on it": {
		points: []string{at.LeasedReconciled}, story: renewed, told: standin.Fail, times: 1, left: "COMPLETED PROCESSING",
		calls: []string{"POST 503", "GET 404", "GET 404", "POST 200"},
	},
	"the service says that it was told, and the worker dies on it": {
		points: []string{at.LeasedDone, at.LeasedReconciled}, story: renewed, left: "COMPLETED PROCESSING",
		calls: []string{"POST 200", "GET 200", "GET 200"},
	},
	"every attempt kills its worker before the service is told": {
		points: []string{at.LeasedClaimed, at.LeasedClaimed}, story: canceledInVain, left: "COMPLETED PROCESSING", calls: []string{"GET 404"},
	},
	"every attempt kills its worker after the service was told": {
		points: []string{at.LeasedDone, at.LeasedDone}, story: canceled, left: "COMPLETED PROCESSING",
		calls: []string{"POST 200", "GET 200", "GET 200"},
	},
	"the service refuses, and there is no dead letter yet": {
		points: []string{at.BuryPublish}, story: refused, told: standin.Refuse, times: 9, left: "COMPLETED PROCESSING",
		calls: []string{"POST 422", "GET 404", "POST 422"},
	},
	"the service refuses, and the dead letter is not recorded": {
		points: []string{at.BuryPublished}, story: refused, told: standin.Refuse, times: 9, left: "COMPLETED PROCESSING",
		calls: []string{"POST 422", "GET 404", "POST 422"},
	},
	"the service refuses, and the broker is not told": {
		points: []string{at.BuryMarked}, story: refused, told: standin.Refuse, times: 9, left: "COMPLETED DEAD_LETTERED",
		calls: []string{"POST 422"},
	},

	"a sweep dies before it puts an orphan back":   {points: []string{at.LeasedDone, at.SweepRepublish}, story: orphaned, left: "COMPLETED PROCESSING"},
	"a sweep dies after it has put an orphan back": {points: []string{at.LeasedDone, at.SweepRepublished}, story: orphaned, left: "COMPLETED PROCESSING"},
	"a sweep dies after it has marked an orphan":   {points: []string{at.LeasedDone, at.SweepMarked}, story: orphaned, left: "COMPLETED PROCESSING"},

	"a sealer dies before its commit, and the next one after it": {points: []string{at.SealCommit, at.SealCommitted}, story: sealed, left: "COMPLETED -"},
}

// TestAWorkerKilledAtAnyStepLosesAndDoublesNothing kills the real worker with SIGKILL at every
// step, on Google's emulators, and starts it again. The effect must take place once.
func TestAWorkerKilledAtAnyStepLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	g := crashSetup{
		broker: emulatortest.PubSub(t), database: emulatortest.Firestore(t),
		binaries: t.TempDir(), catalogDir: shortTimes(t),
	}
	all, err := catalog.Load(g.catalogDir)
	require.NoError(t, err)
	g.catalog, err = all.Only(crashQueues)
	require.NoError(t, err)
	require.NoError(t, e2e.BuildOnce(t.Context(), g.binaries, "failpoints"))
	g.admin, err = client.NewClient(context.WithoutCancel(t.Context()), "crash", pubsub.EmulatorOptions(g.broker)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.admin.Close() })
	// The first requests take seconds in a new emulator, and the worker has timeouts. After
	// this run a worker dies of its fail point only.
	quiet := crashCase{story: renewed, calls: []string{"POST 200"}}
	t.Run("no worker dies", func(t *testing.T) { g.run(t, quiet) })
	for name, test := range crashCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.run(t, test)
		})
	}
}

func (g crashSetup) run(t *testing.T, test crashCase) {
	t.Helper()
	s := g.open(t, test)
	test.story(t, s)
	if test.calls != nil {
		require.Equal(t, test.calls, s.calls())
	}
}

// shortTimes returns a folder with the catalog, with the shortest times that it allows.
func shortTimes(t *testing.T) string {
	t.Helper()
	return changedCatalog(t, "ack_deadline_seconds: 60", "ack_deadline_seconds: 10", `lease: "120s"`, `lease: "10s"`, `handler_timeout: "30s"`, `handler_timeout: "5s"`,
		`minimum_backoff: "60s"`, `minimum_backoff: "1s"`, `maximum_backoff: "3600s"`, `maximum_backoff: "1s"`, `jitter: "30s"`, `jitter: "0s"`,
		`minimum_backoff: "10s"`, `minimum_backoff: "1s"`, `minimum_backoff: "5s"`, `minimum_backoff: "1s"`, `minimum_backoff: "3s"`, `minimum_backoff: "1s"`,
		`minimum_backoff: "2s"`, `minimum_backoff: "1s"`, `maximum_backoff: "600s"`, `maximum_backoff: "1s"`,
		"      cancellation:\n", "      cancellation:\n        max_attempts: 2\n") // a test can use up two attempts
}

// crashQueues run, and no others.
var crashQueues = []string{e2e.Queue, "pay-subscription-update"}

// crashSetup is shared by all cases.
type crashSetup struct {
	broker, database, binaries, catalogDir string

	catalog *catalog.Catalog
	admin   *client.Client
}

// installation is the Billhook of one case: a project on the emulators, the services as
// processes, and the subscription service.
type installation struct {
	crashSetup
	project     string
	environment []string
	updates     catalog.Queue
	log         *e2e.Log
	store       *firestore.Store
	webhook     *e2e.Process
	worker      *e2e.Process
	workerURL   string
	// gate is between the worker and Pub/Sub, for publishing. door is in front of the worker, at
	// workerURL: each of its processes has a port of its own.
	gate    *e2e.Gate
	door    *e2e.Gate
	service *standin.Receiver
	points  []string
	// event is the id of the story's event, and update what the event is known by that it emits: the
	// queue knows it by its idempotency key.
	event, update string
	left          string
	// dropped are messages that the broker has dropped, as after their retention.
	dropped []string

	mu       sync.Mutex
	recorded []string
}

func (g crashSetup) open(t *testing.T, test crashCase) *installation {
	t.Helper()
	id := fmt.Sprint(800_000_000_000_000_000 + rand.Int64N(100_000_000_000_000)*100)
	s := &installation{crashSetup: g, project: "crash-" + uuid.NewString(), log: &e2e.Log{}, points: test.points, left: test.left, event: id}
	var told bool
	s.updates, told = g.catalog.EmitsTo("subscriptions.record")
	require.True(t, told)
	s.update = handler.CalleeKey(e2e.Queue, dedupe.DefaultTenant, id)

	var err error
	s.service, err = standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{e2e.DeliverySecret}, Tolerance: 5 * time.Minute})
	require.NoError(t, err)
	if test.told != "" {
		require.NoError(t, s.service.Tell(test.told, test.times))
	}
	server := httptest.NewServer(s.recordCalls(s.service))
	t.Cleanup(func() { s.service.Close(); server.Close() })
	life := context.WithoutCancel(t.Context())
	s.store, err = firestore.NewEmulated(life, g.database, s.project, "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.store.Close() })
	s.gate, err = e2e.NewGate(t.Context(), g.broker)
	require.NoError(t, err)
	t.Cleanup(s.gate.Close)

	s.door, err = e2e.NewGate(t.Context(), "")
	require.NoError(t, err)
	t.Cleanup(s.door.Close)
	s.workerURL = "http://" + s.door.Addr()
	s.environment = []string{
		"HOST=127.0.0.1", "METRICS_PORT=0", "GOOGLE_CLOUD_PROJECT=" + s.project, "CATALOG_DIR=" + g.catalogDir, "QUEUES=" + strings.Join(crashQueues, ","), "PUSH_AUTH=none",
		"FIRESTORE_EMULATOR_HOST=" + g.database, "WEBHOOK_SECRET_PAYNOW=" + e2e.Secret, "WEBHOOK_SIGNING_SECRET=" + e2e.Secret,
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.binaries,
	}
	s.environment = append(s.environment, e2e.TargetsAt(g.catalog, server.URL)...)
	s.provision(t)
	for _, q := range s.served() {
		_, err := g.admin.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name: s.name("subscriptions", tap(q)), Topic: s.name("topics", q.Topic()),
		})
		require.NoError(t, err)
	}
	s.webhook, err = e2e.Start(t.Context(), filepath.Join(g.binaries, "webhook"),
		append([]string{"PORT=0", "PUBSUB_EMULATOR_HOST=" + g.broker}, s.environment...), s.log)
	require.NoError(t, err)
	t.Cleanup(s.webhook.Kill)
	s.environment = append(s.environment, "PORT=0", "PUBSUB_EMULATOR_HOST="+s.gate.Addr())
	s.startWorker(t)
	t.Cleanup(func() { s.worker.Kill() })
	s.schedule(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("state %s, said %v, log:\n%s", s.state(context.WithoutCancel(t.Context())), s.calls(), s.log.Text())
		}
	})
	return s
}

func (s *installation) provision(t *testing.T) {
	t.Helper()
	_, err := pubsub.Provision(t.Context(), s.catalog, pubsub.Target{ProjectID: s.project, PushBaseURL: s.workerURL, Emulator: true},
		pubsub.EmulatorOptions(s.broker)...)
	require.NoError(t, err)
}

func (s *installation) served() []catalog.Queue {
	q, _ := s.catalog.Queue(e2e.Queue)
	return []catalog.Queue{q, s.updates}
}

func (s *installation) name(kind, id string) string {
	return fmt.Sprintf("projects/%s/%s/%s", s.project, kind, id)
}

// tap is a subscription of the test on the topic of a queue.
func tap(q catalog.Queue) string { return q.ID + "-tap" }

// recordCalls records the requests to the subscription service with their statuses.
func (s *installation) recordCalls(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusWriter{ResponseWriter: w}
		defer func() {
			answer := "cut"
			if recorder.status != 0 {
				answer = strconv.Itoa(recorder.status)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.recorded = append(s.recorded, r.Method+" "+answer)
		}()
		service.ServeHTTP(recorder, r)
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (s *installation) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recorded)
}

// schedule calls the tasks, as Cloud Scheduler does, also while no worker runs.
func (s *installation) schedule(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	t.Cleanup(func() { stop(); calling.Wait() })
	calling.Go(func() {
		every := time.NewTicker(2 * time.Second)
		defer every.Stop()
		for {
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
			for _, task := range []string{"relay-outbox", "release-delayed", "sweep-leases"} {
				request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.workerURL+"/tasks/"+task, http.NoBody)
				if err == nil {
					_, _ = e2e.Do(request) // the next call tries again
				}
			}
		}
	})
}

// startWorker starts the next worker behind the door.
func (s *installation) startWorker(t *testing.T) {
	t.Helper()
	environment := s.environment
	if len(s.points) > 0 {
		environment = append(slices.Clone(environment), "FAILPOINT="+s.points[0])
	}
	var err error
	s.worker, err = e2e.Start(t.Context(), filepath.Join(s.binaries, "worker"), environment, s.log)
	require.NoError(t, err)
	s.door.Aim(strings.TrimPrefix(s.worker.URL, "http://"))
}

// awaitDeath waits until the worker has killed itself at its point.
func (s *installation) awaitDeath(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	signal, err := s.worker.Died(ctx)
	require.NoError(t, err, "at %s", s.points[0])
	require.Equal(t, syscall.SIGKILL, signal, "at %s", s.points[0])
	s.points = s.points[1:]
	if s.left != "" {
		require.Equal(t, s.left, s.state(t.Context()))
		s.left = ""
	}
}

// passPoints lets a worker die at each point. The last worker lives.
func (s *installation) passPoints(t *testing.T) {
	t.Helper()
	for len(s.points) > 0 {
		s.awaitDeath(t)
		s.startWorker(t)
	}
}

// state returns the statuses of the event's record and of its update's; "-" is no record.
func (s *installation) state(ctx context.Context) string {
	var states []string
	for _, of := range []struct{ queue, id string }{{e2e.Queue, s.event}, {s.updates.ID, s.update}} {
		doc, err := s.store.Get(ctx, dedupe.Key(of.queue, dedupe.DefaultTenant, of.id))
		status, _ := doc.Fields["status"].(string)
		switch {
		case errors.Is(err, store.ErrNotFound):
			status = "-"
		case err != nil:
			status = err.Error()
		}
		states = append(states, status)
	}
	return strings.Join(states, " ")
}

// sendAccepted posts a webhook until it is accepted, as PayNow does.
func (s *installation) sendAccepted(t *testing.T, body []byte) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := e2e.Send(t.Context(), s.webhook.URL, body)
		return err == nil && answer.Status == http.StatusAccepted
	}, patience, 100*time.Millisecond)
}

// settles waits until the records have the state and the broker has delivered everything.
// Nothing changes after that.
func (s *installation) settles(t *testing.T, state string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return s.state(t.Context()) == state && len(s.documents(t, lane.Outbox.Entries())) == 0 && len(s.documents(t, lane.Outbox.Lanes())) == 0
	}, patience, 2*pollInterval)
	open := map[string]bool{}
	require.Eventually(t, func() bool {
		for _, q := range s.served() {
			for _, m := range s.pull(t, tap(q)) {
				open[q.ID+" "+m.MessageId] = true
			}
			for _, m := range s.pull(t, q.DeadLetterHold()) {
				open[q.DeadLetter.Topic+" "+m.MessageId] = true
			}
		}
		acked := s.acked()
		maps.DeleteFunc(open, func(id string, _ bool) bool { return acked[id] || slices.Contains(s.dropped, id) })
		return len(open) == 0
	}, patience, pollInterval, "never acked: %v", open)
}

// acked returns the messages whose acknowledgement a worker has logged, by topic and id. No
// fail point is between that line and the answer.
func (s *installation) acked() map[string]bool {
	acked := map[string]bool{}
	for line := range bytes.Lines([]byte(s.log.Text())) {
		var said struct {
			Message, Queue string
			MessageID      string `json:"message_id"`
			Status         int
		}
		if json.Unmarshal(line, &said) != nil {
			continue
		}
		switch {
		case said.Message == "delivery" && (said.Status == http.StatusOK || said.Status == http.StatusNoContent):
			acked[said.Queue+" "+said.MessageID] = true
		case said.Message == "dead letter kept":
			q, _ := s.catalog.Queue(said.Queue)
			acked[q.DeadLetter.Topic+" "+said.MessageID] = true
		}
	}
	return acked
}

// pull pulls the messages of a subscription of the test.
func (s *installation) pull(t *testing.T, subscription string) []*pubsubpb.PubsubMessage {
	t.Helper()
	var all []*pubsubpb.PubsubMessage
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		answer, err := s.admin.SubscriptionAdminClient.Pull(ctx, &pubsubpb.PullRequest{Subscription: s.name("subscriptions", subscription), MaxMessages: 100})
		over := ctx.Err() != nil
		cancel()
		if over || (err == nil && len(answer.ReceivedMessages) == 0) {
			return all
		}
		require.NoError(t, err)
		var ids []string
		for _, m := range answer.ReceivedMessages {
			all, ids = append(all, m.Message), append(ids, m.AckId)
		}
		require.NoError(t, s.admin.SubscriptionAdminClient.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{
			Subscription: s.name("subscriptions", subscription), AckIds: ids,
		}))
	}
}

// requireCounts compares the numbers of documents, dead letters included.
func (s *installation) requireCounts(t *testing.T, want map[string]int) {
	t.Helper()
	for _, collection := range []string{dedupe.Collection, ledger.Entries, subscriptions.Collection, deadletter.Collection} {
		require.Len(t, s.documents(t, collection), want[collection], collection)
	}
}

func (s *installation) order() e2e.Order {
	return e2e.Order{
		EventID: s.event, OrderID: s.event + "2", CustomerID: s.event + "3", UID: "uid-" + s.event,
		Lines: []e2e.Line{{Product: points, Quantity: 2, Price: 1000}},
	}
}

func (s *installation) balance(t *testing.T, account ledger.Account) int64 {
	t.Helper()
	return balanceIn(t, s.store, account)
}

func credited(t *testing.T, s *installation) {
	s.sendAccepted(t, s.order().JSON())
	s.passPoints(t)
	s.settles(t, "COMPLETED -")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(s.order().UID)))
	s.requireCounts(t, map[string]int{dedupe.Collection: 1, ledger.Entries: 1})
}

// refunded: a refund fails until its order has come.
func refunded(t *testing.T, s *installation) {
	o := s.order()
	o.EventID += "1"
	s.sendAccepted(t, e2e.Refund{EventID: s.event, RefundID: "1", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: o.Total(), Paid: o.Total()}.JSON())
	s.passPoints(t)
	s.sendAccepted(t, o.JSON())
	s.settles(t, "COMPLETED -")
	require.Zero(t, s.balance(t, ledger.UserPoints(o.UID)))
	s.requireCounts(t, map[string]int{dedupe.Collection: 2, ledger.Entries: 2})
}

func unknown(t *testing.T, s *installation) {
	o := s.order()
	o.Lines = append(o.Lines, e2e.Line{Product: "700000000000000999", Quantity: 1, Price: 500})
	s.sendAccepted(t, o.JSON())
	s.passPoints(t)
	s.settles(t, "DEAD_LETTERED -")
	s.requireCounts(t, map[string]int{dedupe.Collection: 1, deadletter.Collection: 1})
}

// conflicted: the id of a credit comes again with another payload.
func conflicted(t *testing.T, s *installation) {
	o := s.order()
	s.sendAccepted(t, o.JSON())
	s.settles(t, "COMPLETED -")
	o.Lines = []e2e.Line{{Product: points, Quantity: 9, Price: 1000}}
	s.sendAccepted(t, o.JSON())
	s.passPoints(t)
	s.settles(t, "COMPLETED -")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	s.requireCounts(t, map[string]int{dedupe.Collection: 2, ledger.Entries: 1, deadletter.Collection: 1})
}

// sample returns PayNow's webhook about a subscription.
func (s *installation) sample(name, eventID string) []byte {
	return samples.Read(name, samples.Event{EventID: eventID, UID: "uid-" + s.event, CustomerID: s.event + "3", SubscriptionID: s.event + "4"})
}

func renewed(t *testing.T, s *installation) { s.notified(t, samples.SubscriptionRenewed) }

func canceled(t *testing.T, s *installation) { s.notified(t, samples.SubscriptionCanceled) }

// notified is the whole chain: the payment event is recorded, and the subscription service is
// called once.
func (s *installation) notified(t *testing.T, sample string) {
	t.Helper()
	s.sendAccepted(t, s.sample(sample, s.event))
	s.passPoints(t)
	s.settles(t, "COMPLETED COMPLETED")
	s.toldOnce(t)
}

func (s *installation) toldOnce(t *testing.T) {
	t.Helper()
	require.Equal(t, 1, s.service.Applied(s.update))
	s.requireCounts(t, map[string]int{dedupe.Collection: 2, subscriptions.Collection: 1})
}

// renewedTwice: the outbox has two messages of one subscription, which keep their order.
func renewedTwice(t *testing.T, s *installation) {
	s.sendAccepted(t, s.sample(samples.SubscriptionActivated, s.event))
	s.awaitDeath(t)
	s.startWorker(t)
	second := s.event + "1"
	s.sendAccepted(t, s.sample(samples.SubscriptionRenewed, second))
	s.passPoints(t)
	s.settles(t, "COMPLETED COMPLETED")
	var came []string
	for _, d := range s.service.Deliveries() {
		came = append(came, d.EventID)
	}
	require.Equal(t, []string{s.update, handler.CalleeKey(e2e.Queue, dedupe.DefaultTenant, second)}, slices.Compact(came))
	for _, id := range came {
		require.Equal(t, 1, s.service.Applied(id))
	}
	s.requireCounts(t, map[string]int{dedupe.Collection: 4, subscriptions.Collection: 2})
}

// unpublished: the worker cannot publish right after the commit.
func unpublished(t *testing.T, s *installation) {
	s.gate.Shut()
	s.sendAccepted(t, s.sample(samples.SubscriptionRenewed, s.event))
	s.awaitDeath(t)
	s.gate.Open()
	s.startWorker(t)
	s.settles(t, "COMPLETED COMPLETED")
	s.toldOnce(t)
}

func refused(t *testing.T, s *installation) { s.undelivered(t, samples.SubscriptionRenewed) }

func canceledInVain(t *testing.T, s *installation) { s.undelivered(t, samples.SubscriptionCanceled) }

// undelivered is the chain up to an update that becomes a dead letter.
func (s *installation) undelivered(t *testing.T, sample string) {
	t.Helper()
	s.sendAccepted(t, s.sample(sample, s.event))
	s.passPoints(t)
	s.settles(t, "COMPLETED DEAD_LETTERED")
	require.Zero(t, s.service.Applied(s.update))
	s.requireCounts(t, map[string]int{dedupe.Collection: 2, subscriptions.Collection: 1, deadletter.Collection: 1})
}

// orphaned: the worker of an update has died, and the broker has dropped its message. After an
// hour a sweep republishes it.
func orphaned(t *testing.T, s *installation) {
	s.sendAccepted(t, s.sample(samples.SubscriptionRenewed, s.event))
	s.awaitDeath(t)
	require.NoError(t, s.admin.SubscriptionAdminClient.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{
		Subscription: s.name("subscriptions", s.updates.PushSubscription()),
	}))
	for _, m := range s.pull(t, tap(s.updates)) {
		s.dropped = append(s.dropped, s.updates.ID+" "+m.MessageId)
	}
	require.Len(t, s.dropped, 1)
	s.provision(t)
	doc, err := s.store.Get(t.Context(), dedupe.Key(s.updates.ID, dedupe.DefaultTenant, s.update))
	require.NoError(t, err)
	doc.Fields["lease_until"] = doc.Fields["lease_until"].(time.Time).Add(-time.Hour)
	_, err = s.store.Commit(t.Context(), []store.Write{store.Replace(doc.Key, doc.Version, doc.Fields)})
	require.NoError(t, err)
	s.startWorker(t)
	s.passPoints(t)
	s.settles(t, "COMPLETED COMPLETED")
	s.toldOnce(t)
	// A sweep that dies may leave the update half republished: the service is asked again.
	require.Equal(t, []string{"POST 200", "GET 200"}, slices.Compact(s.calls()))
}
