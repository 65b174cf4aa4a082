package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	at "billhook/internal/platform/failpoint"
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

type crashCase struct {
	name string
	// points end one worker after the other, with a blank between them. The worker after the last point lives.
	// name:2 is the second hit of the point.
	points string
	story  func(*testing.T, *crashed)
	// left is the state after the first kill: the status of the event's record, and of the
	// record of the emitted update. It proves that the point is where its name says.
	left string
	// told is the mode of the subscription service for its first delivery, or for all that it refuses.
	told standin.Mode
	// calls lists the requests to the subscription service with their statuses; empty: not
	// checked. The service applies one POST. An attempt without a known outcome is asked for by
	// a GET.
	calls string
}

const (
	untold    = "COMPLETED -"
	claimed   = "COMPLETED PROCESSING"
	givenBack = "COMPLETED FAILED"
)

var crashCases = []crashCase{
	{"a credit that is not committed is made later", at.TxCommit, credited, "- -", "", ""},
	{"a credit that is committed stays the only one", at.TxCommitted, credited, untold, "", ""},
	{"a failure that is not counted costs nothing", at.TxFail, refunded, "- -", "", ""},
	{"a failure that is counted costs one attempt", at.TxFailed, refunded, "FAILED -", "", ""},

	{"an event dies before its dead letter", at.BuryPublish, unknown, "- -", "", ""},
	{"a dead letter is published and not recorded", at.BuryPublished, unknown, "- -", "", ""},
	{"a dead letter is marked, and the broker not told", at.BuryMarked, unknown, "DEAD_LETTERED -", "", ""},
	{"a conflict is a dead letter and not recorded", at.BuryPublished, conflicted, untold, "", ""},
	{"a conflict is marked, and the broker not told", at.BuryMarked, conflicted, untold, "", ""},
	{"a dead letter is not stored", at.DeadLetterKeep, unknown, "", "", ""},
	{"a dead letter is stored, and the broker not told", at.DeadLetterKept, unknown, "", "", ""},

	{"a payment event and its message are not committed", at.TxCommit, renewed, "- -", "", ""},
	{"a message is committed and its worker gone", at.TxCommitted, renewed, untold, "", ""},
	{"a message is about to be published", at.OutboxPublish, renewed, untold, "", ""},
	{"a message is published and still in the outbox", at.OutboxPublished, renewed, "", "", ""},
	{"a message is published and removed", at.OutboxRemoved, renewed, "", "", ""},
	{
		"the relay dies at each of its steps", points(at.TxCommitted, at.OutboxPublish, at.OutboxPublished,
			at.OutboxRemoved), renewed, untold, "", "",
	},
	{
		"the relay dies between two messages of a key", points(at.OutboxPublish, at.OutboxPublish+":2"),
		renewedTwice, untold, "", "",
	},
	{"a lane that cannot be published is not put off", at.OutboxPutOff, unpublished, untold, "", ""},
	{"a lane that cannot be published is put off", at.OutboxLater, unpublished, untold, "", ""},

	{"an update is not claimed", at.LeasedClaim, renewed, untold, "", "POST 200"},
	{
		"an update is claimed, and the service was told nothing", at.LeasedClaimed, renewed, claimed, "",
		"GET 404, POST 200",
	},
	{
		"the service has applied it, and there is no record", at.LeasedDone, renewed, claimed, "",
		"POST 200, GET 200",
	},
	{
		"the service forgot to answer, and the worker is gone", at.LeasedDone, renewed, claimed, standin.Forget,
		"POST cut, GET 200",
	},
	{
		"the service forgot to answer, and the update is given back", at.LeasedReleased, renewed, givenBack,
		standin.Forget, "POST cut, GET 200",
	},
	{
		"an update is completed, and the broker not told", at.LeasedCompleted, renewed, "COMPLETED COMPLETED",
		"", "POST 200",
	},
	{
		"the service fails, and there is no record", at.LeasedDone, renewed, claimed, standin.Fail,
		"POST 503, GET 404, POST 200",
	},
	{
		"the service fails, and the update is not given back", at.LeasedRelease, renewed, claimed, standin.Fail,
		"POST 503, GET 404, POST 200",
	},
	{
		"the service fails, and the update is given back", at.LeasedReleased, renewed, givenBack, standin.Fail,
		"POST 503, GET 404, POST 200",
	},
	{
		"the service knows nothing, and the worker dies on it", at.LeasedReconciled, renewed, claimed, standin.Fail,
		"POST 503, GET 404, GET 404, POST 200",
	},
	{
		"the service was told, and the worker dies on it", points(at.LeasedDone, at.LeasedReconciled), renewed,
		claimed, "", "POST 200, GET 200, GET 200",
	},
	{
		"every attempt kills its worker before the service is told", points(at.LeasedClaimed, at.LeasedClaimed),
		canceledInVain, claimed, "", "GET 404",
	},
	{
		"every attempt kills its worker after the service was told", points(at.LeasedDone, at.LeasedDone), canceled,
		claimed, "", "POST 200, GET 200, GET 200",
	},
	{
		"the service refuses, and there is no dead letter yet", at.BuryPublish, refused, claimed, standin.Refuse,
		"POST 422, GET 404, POST 422",
	},
	{
		"the service refuses, and the dead letter is not recorded", at.BuryPublished, refused, claimed,
		standin.Refuse, "POST 422, GET 404, POST 422",
	},
	{
		"the service refuses, and the broker is not told", at.BuryMarked, refused, "COMPLETED DEAD_LETTERED",
		standin.Refuse, "POST 422",
	},

	{
		"a sweep dies before it puts an orphan back", points(at.LeasedDone, at.SweepRepublish), orphaned,
		claimed, "", "",
	},
	{
		"a sweep dies after it has put an orphan back", points(at.LeasedDone, at.SweepRepublished), orphaned,
		claimed, "", "",
	},
	{
		"a sweep dies after it has marked an orphan", points(at.LeasedDone, at.SweepMarked), orphaned,
		claimed, "", "",
	},

	{"a customer is linked, and not copied", at.MirrorCopy, linked, untold, "", ""},
	{"a customer is copied, and its to-do is there", at.MirrorCopied, linked, untold, "", ""},

	{
		"a sealer dies before its commit, and the next one after it", points(at.SealCommit, at.SealCommitted),
		sealed, untold, "", "",
	},
}

func points(all ...string) string { return strings.Join(all, " ") }

func TestAWorkerKilledAtAnyStepLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	onlyInFull(t)
	folder := shortTimes(t)
	// The first requests take seconds in a new emulator, and the worker has timeouts. After
	// this run a worker dies of its fail point only.
	t.Run("no worker dies", func(t *testing.T) { crashCase{story: renewed, calls: "POST 200"}.run(t, folder) })
	for _, test := range crashCases {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, folder)
		})
	}
}

func shortTimes(t *testing.T) string {
	t.Helper()
	return changedCatalog(t, `slot_wait: "15s"`, `slot_wait: "2s"`, "ack_deadline_seconds: 60",
		"ack_deadline_seconds: 10", `lease: "120s"`, `lease: "10s"`, `handler_timeout: "30s"`,
		`handler_timeout: "5s"`,
		`minimum_backoff: "60s"`, `minimum_backoff: "1s"`, `maximum_backoff: "3600s"`, `maximum_backoff: "1s"`,
		`jitter: "30s"`, `jitter: "0s"`,
		`minimum_backoff: "10s"`, `minimum_backoff: "1s"`, `minimum_backoff: "5s"`, `minimum_backoff: "1s"`,
		`minimum_backoff: "3s"`, `minimum_backoff: "1s"`,
		`minimum_backoff: "2s"`, `minimum_backoff: "1s"`, `maximum_backoff: "600s"`, `maximum_backoff: "1s"`,
		"      cancellation:\n", "      cancellation:\n        max_attempts: 2\n") // a test can use up two attempts
}

type crashed struct {
	*real
	updates catalog.Queue
	points  []string
	left    string
	// event is the id of the story's event, and update what the event is known by that it emits: the
	// queue knows it by its idempotency key.
	event, update string
	// dropped are messages that the broker has dropped, as after their retention.
	dropped []string

	mu       sync.Mutex
	recorded []string
}

func (test crashCase) run(t *testing.T, folder string) {
	t.Helper()
	id := fmt.Sprint(800_000_000_000_000_000 + rand.Int64N(100_000_000_000_000)*100)
	s := &crashed{
		points: strings.Fields(test.points), left: test.left, event: id,
		update: handler.CalleeKey(e2e.Queue, dedupe.DefaultTenant, id),
	}
	_, s.real = startReal(t, site{
		Project: "crash-" + uuid.NewString(), CatalogDir: folder, Queues: paynowQueues, Around: s.recordCalls,
		FailPoint: func() string { return append(slices.Clone(s.points), "")[0] },
	})
	s.updates, _ = s.catalog.EmitsTo("subscriptions.record")
	if test.told != "" {
		times := 1
		if test.told == standin.Refuse {
			times = 9
		}
		require.NoError(t, s.service.Behave("", test.told, times))
	}
	s.schedule(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("said %v, log:\n%s", s.calls(), s.log.Text())
		}
	})
	test.story(t, s)
	if test.calls != "" {
		require.Equal(t, test.calls, s.calls())
	}
	require.Empty(t, s.points)
}

func (s *crashed) recordCalls(service http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusWriter{w, "cut"}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.recorded = append(s.recorded, r.Method+" "+recorder.status)
		}()
		service.ServeHTTP(recorder, r)
	})
}

type statusWriter struct {
	http.ResponseWriter
	status string
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = strconv.Itoa(status)
	w.ResponseWriter.WriteHeader(status)
}

func (s *crashed) calls() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.recorded, ", ")
}

// schedule calls the tasks, as Cloud Scheduler does, also while no worker runs.
func (s *crashed) schedule(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	t.Cleanup(func() { stop(); calling.Wait() })
	calling.Go(func() {
		for e2e.Wait(ctx, 2*time.Second) {
			for _, task := range []string{"relay-outbox", "release-delayed", "sweep-leases"} {
				_, _ = s.task(ctx, task) // the next call tries again
			}
		}
	})
}

func (s *crashed) awaitDeath(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	signal, err := s.worker.Died(ctx)
	require.NoError(t, err, "at %s", s.points[0])
	require.Equal(t, syscall.SIGKILL, signal, "at %s", s.points[0])
	s.points = s.points[1:]
	if s.left != "" {
		require.Equal(t, s.left, s.state(t))
		s.left = ""
	}
}

func (s *crashed) passPoints(t *testing.T) {
	t.Helper()
	for len(s.points) > 0 {
		s.awaitDeath(t)
		s.startWorker(t)
	}
}

func (s *crashed) sends(t *testing.T, body []byte) {
	t.Helper()
	s.accepted(t, body)
	s.passPoints(t)
}

func (s *crashed) state(t *testing.T) string {
	t.Helper()
	update := s.recordOf(t, s.updates.ID, s.update)
	return cmp.Or(s.status(t, s.event), "-") + " " + cmp.Or(string(update.Status), "-")
}

// settles waits until the records have the state and the broker has delivered everything.
// Nothing changes after that.
func (s *crashed) settles(t *testing.T, state string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return s.state(t) == state && len(s.documents(t, lane.Outbox.Entries())) == 0 &&
			len(s.documents(t, lane.Outbox.Lanes())) == 0
	}, patience, 2*pollInterval)
	open := map[string]bool{}
	require.Eventually(t, func() bool {
		for _, id := range paynowQueues {
			q, _ := s.catalog.Queue(id)
			for _, m := range s.pull(t, s.tapOf(q.Topic())) {
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
func (s *crashed) acked() map[string]bool {
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

func (s *crashed) requireCounts(t *testing.T, records, entries, payments, deadLetters int) {
	t.Helper()
	of := []string{dedupe.Collection, ledger.Entries, subscriptions.Collection, deadletter.Collection}
	got := filetest.Map(of, func(collection string) int { return len(s.documents(t, collection)) })
	require.Equal(t, []int{records, entries, payments, deadLetters}, got)
}

func (s *crashed) order() e2e.Order {
	return e2e.Order{
		EventID: s.event, OrderID: s.event + "2", CustomerID: s.event + "3", UID: "uid-" + s.event,
		Lines: []e2e.Line{{Product: e2e.Product, Quantity: 2, Price: 1000}},
	}
}

func (s *crashed) requirePoints(t *testing.T, orders int64) {
	t.Helper()
	require.Equal(t, 2000*orders, s.balance(t, ledger.UserPoints(s.order().UID)))
}

func credited(t *testing.T, s *crashed) {
	s.sends(t, s.order().JSON())
	s.settles(t, untold)
	s.requirePoints(t, 1)
	s.requireCounts(t, 1, 1, 0, 0)
}

// linked: the webhook service reads in its own database which user a customer is.
func linked(t *testing.T, s *crashed) {
	s.sends(t, s.order().JSON())
	s.settles(t, untold)
	done := func() bool { return len(s.documents(t, mirror.Collection)) == 0 }
	require.Eventually(t, done, patience, pollInterval, "the task does it")
	o := s.order()
	refund := e2e.Refund{EventID: s.event + "1", RefundID: "1", OrderID: o.OrderID, CustomerID: o.CustomerID}
	refund.Amount, refund.Paid = o.Total(), o.Total()
	require.Equal(t, o.UID, s.accepted(t, refund.JSON()).OrderingKey)
	s.settles(t, untold)
	s.requireCounts(t, 2, 2, 0, 0)
}

func refunded(t *testing.T, s *crashed) {
	o := s.order()
	o.EventID += "1"
	s.sends(t, e2e.Refund{
		EventID: s.event, RefundID: "1", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: o.Total(),
		Paid: o.Total(),
	}.JSON())
	s.accepted(t, o.JSON())
	s.settles(t, untold)
	s.requirePoints(t, 0)
	s.requireCounts(t, 2, 2, 0, 0)
}

func unknown(t *testing.T, s *crashed) {
	o := s.order()
	o.Lines = append(o.Lines, e2e.Line{Product: e2e.UnknownProduct, Quantity: 1, Price: 500})
	s.sends(t, o.JSON())
	s.settles(t, "DEAD_LETTERED -")
	s.requireCounts(t, 1, 0, 0, 1)
}

func conflicted(t *testing.T, s *crashed) {
	o := s.order()
	s.accepted(t, o.JSON())
	s.settles(t, untold)
	o.Lines = []e2e.Line{{Product: e2e.Product, Quantity: 9, Price: 1000}}
	s.sends(t, o.JSON())
	s.settles(t, untold)
	s.requirePoints(t, 1)
	s.requireCounts(t, 2, 1, 0, 1)
}

func (s *crashed) sample(name, eventID string) []byte {
	return samples.Read(name, samples.Event{
		EventID: eventID, UID: "uid-" + s.event, CustomerID: s.event + "3", SubscriptionID: s.event + "4",
	})
}

func renewed(t *testing.T, s *crashed) { s.notified(t, samples.SubscriptionRenewed) }

func canceled(t *testing.T, s *crashed) { s.notified(t, samples.SubscriptionCanceled) }

func (s *crashed) notified(t *testing.T, sample string) {
	t.Helper()
	s.sends(t, s.sample(sample, s.event))
	s.toldOnce(t)
}

func (s *crashed) toldOnce(t *testing.T) {
	t.Helper()
	s.settles(t, "COMPLETED COMPLETED")
	require.Equal(t, 1, s.service.Applied(s.update))
	s.requireCounts(t, 2, 0, 1, 0)
}

func renewedTwice(t *testing.T, s *crashed) {
	s.accepted(t, s.sample(samples.SubscriptionActivated, s.event))
	s.awaitDeath(t)
	s.startWorker(t)
	second := s.event + "1"
	s.sends(t, s.sample(samples.SubscriptionRenewed, second))
	s.settles(t, "COMPLETED COMPLETED")
	came := filetest.Map(s.service.Deliveries(), func(d standin.Delivery) string { return d.EventID })
	require.Equal(t, []string{s.update, handler.CalleeKey(e2e.Queue, dedupe.DefaultTenant, second)},
		slices.Compact(came))
	for _, id := range came {
		require.Equal(t, 1, s.service.Applied(id))
	}
	s.requireCounts(t, 4, 0, 2, 0)
}

func unpublished(t *testing.T, s *crashed) {
	s.workerBroker.Shut()
	s.accepted(t, s.sample(samples.SubscriptionRenewed, s.event))
	s.awaitDeath(t)
	s.workerBroker.Open()
	s.startWorker(t)
	s.toldOnce(t)
}

func refused(t *testing.T, s *crashed) { s.undelivered(t, samples.SubscriptionRenewed) }

func canceledInVain(t *testing.T, s *crashed) { s.undelivered(t, samples.SubscriptionCanceled) }

func (s *crashed) undelivered(t *testing.T, sample string) {
	t.Helper()
	s.sends(t, s.sample(sample, s.event))
	s.settles(t, "COMPLETED DEAD_LETTERED")
	require.Zero(t, s.service.Applied(s.update))
	s.requireCounts(t, 2, 0, 1, 1)
}

// orphaned: the worker of an update has died, and the broker has dropped its message. After an
// hour a sweep republishes it.
func orphaned(t *testing.T, s *crashed) {
	s.accepted(t, s.sample(samples.SubscriptionRenewed, s.event))
	s.awaitDeath(t)
	require.NoError(t, s.admin.SubscriptionAdminClient.DeleteSubscription(t.Context(),
		&pubsubpb.DeleteSubscriptionRequest{
			Subscription: s.name("subscriptions", s.updates.PushSubscription()),
		}))
	for _, m := range s.pull(t, s.tapOf(s.updates.Topic())) {
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
	s.toldOnce(t)
	// A sweep that dies may leave the update half republished: the service is asked again.
	require.Equal(t, []string{"POST 200", "GET 200"}, slices.Compact(strings.Split(s.calls(), ", ")))
}

func sealed(t *testing.T, s *crashed) {
	posted := int64(0)
	post := func() {
		o := s.order()
		if posted > 0 { // the first has the story's own id
			more := fmt.Sprint(posted)
			o.EventID, o.OrderID, o.CustomerID = o.EventID+more, o.OrderID+more, o.CustomerID+more
		}
		posted++
		s.accepted(t, o.JSON())
		require.Equal(t, dedupe.Completed, s.ends(t, e2e.Queue, o.EventID).Status)
	}
	for _, want := range []int{0, 4} {
		post()
		post()
		_, err := s.task(t.Context(), "seal-journal")
		require.Error(t, err, "the worker is gone without an answer")
		s.awaitDeath(t)
		s.startWorker(t)
		require.Len(t, s.leaves(t), want, "the seal is there as a whole, or nothing of it")
	}
	post()
	for range 2 { // the second time there is nothing left to seal
		require.NoError(t, filetest.ErrorOf(s.task(t.Context(), "seal-journal")))
	}
	leaves := s.leaves(t)
	require.Len(t, leaves, int(posted))
	for _, doc := range s.documents(t, ledger.Entries) {
		require.Len(t, leaves[doc.Key.ID], 1, "one place under one seal")
	}
	require.Regexp(t, `SEALS +2\nSEALED ENTRIES +5\nENTRIES WITHOUT A SEAL +0\n(.*\n)*The books verify: `+
		`nothing was found\.`, s.terminal(t, "ledger", "verify"))
	s.requirePoints(t, posted)
}

func (s *crashed) leaves(t *testing.T) map[string][]string {
	t.Helper()
	places := map[string][]string{}
	for _, doc := range s.documents(t, seal.Leaves) {
		for i, leaf := range doc.Fields["leaves"].([]any) {
			_, id, ok := strings.Cut(leaf.(string), " ")
			require.True(t, ok)
			places[id] = append(places[id], fmt.Sprintf("%d/%d", doc.Fields["number"], i))
		}
	}
	return places
}
