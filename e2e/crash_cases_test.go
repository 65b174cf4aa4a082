package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	at "billhook/internal/platform/failpoint"
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

const (
	noUpdate = "COMPLETED -"
	claimed  = "COMPLETED PROCESSING"
	released = "COMPLETED FAILED"

	posted     = "POST 200"
	found      = "POST 200, GET 200"
	foundTwice = "POST 200, GET 200, GET 200"
	cut        = "POST 0, GET 200" // 0: without an answer
	repeated   = "POST 503, GET 404, POST 200"
	refusals   = "POST 422, GET 404, POST 422"
)

func points(all ...string) []string { return all }

var crashCases = []crashCase{
	{"a credit that is not committed is made later", points(at.TxCommit), credited, "- -", "", ""},
	{"a credit that is committed stays the only one", points(at.TxCommitted), credited, noUpdate, "", ""},
	{"a failure that is not counted costs nothing", points(at.TxFail), refunded, "- -", "", ""},
	{"a failure that is counted costs one attempt", points(at.TxFailed), refunded, "FAILED -", "", ""},

	{"an event has no dead letter yet", points(at.BuryPublish), unknown, "- -", "", ""},
	{"a dead letter is published, and not recorded", points(at.BuryPublished), unknown, "- -", "", ""},
	{"a dead letter is recorded, not acknowledged", points(at.BuryMarked), unknown, "DEAD_LETTERED -", "", ""},
	{"a conflict is published, and not recorded", points(at.BuryPublished), conflicted, noUpdate, "", ""},
	{"a conflict is recorded, and not acknowledged", points(at.BuryMarked), conflicted, noUpdate, "", ""},
	{"a dead letter is not stored", points(at.DeadLetterKeep), unknown, "", "", ""},
	{"a dead letter is stored, and not acknowledged", points(at.DeadLetterKept), unknown, "", "", ""},

	{"a payment event and its message are not committed", points(at.TxCommit), renewed, "- -", "", ""},
	{"a message is committed, and its worker dies", points(at.TxCommitted), renewed, noUpdate, "", ""},
	{"a message is about to be published", points(at.OutboxPublish), renewed, noUpdate, "", ""},
	{"a message is published, and still in the outbox", points(at.OutboxPublished), renewed, "", "", ""},
	{"a message is published and removed", points(at.OutboxRemoved), renewed, "", "", ""},
	{
		"the relay dies at each of its steps",
		points(at.TxCommitted, at.OutboxPublish, at.OutboxPublished, at.OutboxRemoved), renewed, noUpdate, "", "",
	},
	{
		"the relay dies between two messages of a key", points(at.OutboxPublish, at.OutboxPublish+":2"),
		renewedTwice, noUpdate, "", "",
	},
	{"a lane that cannot be published is not postponed", points(at.OutboxPutOff), unpublished, noUpdate, "", ""},
	{"a lane that cannot be published is postponed", points(at.OutboxLater), unpublished, noUpdate, "", ""},

	{"an update is not claimed", points(at.LeasedClaim), renewed, noUpdate, "", posted},
	{"an update is claimed, and not sent", points(at.LeasedClaimed), renewed, claimed, "", "GET 404, POST 200"},
	{"an update is applied, and not recorded", points(at.LeasedDone), renewed, claimed, "", found},
	{"the answer is lost, and not recorded", points(at.LeasedDone), renewed, claimed, standin.Forget, cut},
	{"the answer is lost, and recorded", points(at.LeasedReleased), renewed, released, standin.Forget, cut},
	{"an update is not acknowledged", points(at.LeasedCompleted), renewed, "COMPLETED COMPLETED", "", posted},
	{"the service fails, not recorded", points(at.LeasedDone), renewed, claimed, standin.Fail, repeated},
	{"the service fails before its record", points(at.LeasedRelease), renewed, claimed, standin.Fail, repeated},
	{"the service fails after its record", points(at.LeasedReleased), renewed, released, standin.Fail, repeated},
	{
		"a GET finds nothing, which is not recorded", points(at.LeasedReconciled), renewed, claimed, standin.Fail,
		"POST 503, GET 404, GET 404, POST 200",
	},
	{
		"a GET finds the update, which is not recorded", points(at.LeasedDone, at.LeasedReconciled), renewed,
		claimed, "", foundTwice,
	},
	{
		"each attempt kills its worker before the POST", points(at.LeasedClaimed, at.LeasedClaimed),
		canceledInVain, claimed, "", "GET 404",
	},
	{
		"each attempt kills its worker after the answer", points(at.LeasedDone, at.LeasedDone), canceled, claimed,
		"", foundTwice,
	},
	{"a refusal has no dead letter yet", points(at.BuryPublish), refused, claimed, standin.Refuse, refusals},
	{"a refusal is not recorded", points(at.BuryPublished), refused, claimed, standin.Refuse, refusals},
	{
		"a refusal is recorded, and not acknowledged", points(at.BuryMarked), refused, "COMPLETED DEAD_LETTERED",
		standin.Refuse, "POST 422",
	},

	{"an orphan is not republished", points(at.LeasedDone, at.SweepRepublish), orphaned, claimed, "", ""},
	{"a sweep has republished an orphan", points(at.LeasedDone, at.SweepRepublished), orphaned, claimed, "", ""},
	{"a sweep has marked an orphan", points(at.LeasedDone, at.SweepMarked), orphaned, claimed, "", ""},

	{"a customer is linked, and not copied", points(at.MirrorCopy), linked, noUpdate, "", ""},
	{"a customer is copied, and its to-do is there", points(at.MirrorCopied), linked, noUpdate, "", ""},

	{
		"a sealer dies before its commit, and the next one after it", points(at.SealCommit, at.SealCommitted),
		sealed, noUpdate, "", "",
	},
}

func (s *crashed) requireCounts(t *testing.T, records, entries, payments, deadLetters int) {
	t.Helper()
	of := []string{dedupe.Collection, ledger.Entries, subscriptions.Collection, deadletter.Collection}
	got := filetest.Map(of, func(collection string) int { return len(storetest.All(t, s.store, collection)) })
	require.Equal(t, []int{records, entries, payments, deadLetters}, got)
}

func (s *crashed) order() e2e.Order { return orderOf(s.event) }

func (s *crashed) requirePoints(t *testing.T, orders int64) {
	t.Helper()
	require.Equal(t, 2000*orders, s.balance(t, s.order().UID))
}

func credited(t *testing.T, s *crashed) {
	s.sends(t, s.order().JSON())
	s.settles(t, noUpdate)
	s.requirePoints(t, 1)
	s.requireCounts(t, 1, 1, 0, 0)
}

// linked: the webhook service reads in its own database which user a customer is.
func linked(t *testing.T, s *crashed) {
	s.sends(t, s.order().JSON())
	s.settles(t, noUpdate)
	done := func() bool { return len(storetest.All(t, s.store, mirror.Collection)) == 0 }
	require.Eventually(t, done, patience, pollInterval, "the task does it")
	o := s.order()
	require.Equal(t, o.UID, s.accepted(t, o.Refund(s.event+"1", o.Total())).OrderingKey)
	s.settles(t, noUpdate)
	s.requireCounts(t, 2, 2, 0, 0)
}

func refunded(t *testing.T, s *crashed) {
	o := s.order()
	o.EventID += "1"
	s.sends(t, o.Refund(s.event, o.Total()))
	s.accepted(t, o.JSON())
	s.settles(t, noUpdate)
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
	s.settles(t, noUpdate)
	o.Lines = []e2e.Line{{Product: e2e.Product, Quantity: 9, Price: 1000}}
	s.sends(t, o.JSON())
	s.settles(t, noUpdate)
	s.requirePoints(t, 1)
	s.requireCounts(t, 2, 1, 0, 1)
}

func (s *crashed) sample(name, eventID string) []byte {
	return samples.Read(name, samples.Event{
		EventID: eventID, UID: "uid-" + s.event, CustomerID: s.event + "3", SubscriptionID: s.event + "4",
	})
}

var renewed, canceled = notified(samples.SubscriptionRenewed), notified(samples.SubscriptionCanceled)

func notified(sample string) func(*testing.T, *crashed) {
	return func(t *testing.T, s *crashed) {
		s.sends(t, s.sample(sample, s.event))
		s.appliedOnce(t)
	}
}

func (s *crashed) appliedOnce(t *testing.T) {
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
	next := handler.CalleeKey(e2e.Queue, dedupe.DefaultTenant, second)
	require.Equal(t, []string{s.update, next}, slices.Compact(came))
	for _, id := range came {
		require.Equal(t, 1, s.service.Applied(id))
	}
	s.requireCounts(t, 4, 0, 2, 0)
}

func unpublished(t *testing.T, s *crashed) {
	s.workerBroker.Shut(true)
	s.accepted(t, s.sample(samples.SubscriptionRenewed, s.event))
	s.awaitDeath(t)
	s.workerBroker.Shut(false)
	s.startWorker(t)
	s.appliedOnce(t)
}

var (
	refused        = undelivered(samples.SubscriptionRenewed)
	canceledInVain = undelivered(samples.SubscriptionCanceled)
)

func undelivered(sample string) func(*testing.T, *crashed) {
	return func(t *testing.T, s *crashed) {
		s.sends(t, s.sample(sample, s.event))
		s.settles(t, "COMPLETED DEAD_LETTERED")
		require.Zero(t, s.service.Applied(s.update))
		s.requireCounts(t, 2, 0, 1, 1)
	}
}

// orphaned: the worker of an update dies, the broker drops its message, and a sweep republishes it.
func orphaned(t *testing.T, s *crashed) {
	s.accepted(t, s.sample(samples.SubscriptionRenewed, s.event))
	s.awaitDeath(t)
	push := &pubsubpb.DeleteSubscriptionRequest{
		Subscription: s.name("subscriptions", s.updates.PushSubscription()),
	}
	require.NoError(t, s.admin.SubscriptionAdminClient.DeleteSubscription(t.Context(), push))
	for _, m := range s.pull(t, s.tapOf(s.updates.Topic())) {
		s.dropped = append(s.dropped, s.updates.ID+" "+m.MessageId)
	}
	require.Len(t, s.dropped, 1)
	s.provision(t)
	record := dedupe.Key(s.updates.ID, dedupe.DefaultTenant, s.update)
	storetest.Edit(t, s.store, record, func(fields map[string]any) {
		fields["lease_until"] = fields["lease_until"].(time.Time).Add(-time.Hour)
	})
	s.startWorker(t)
	s.passPoints(t)
	s.appliedOnce(t)
	// After a sweep that dies the update may be delivered twice, each time with a GET.
	require.Equal(t, found, strings.Join(slices.Compact(strings.Split(s.calls(), ", ")), ", "))
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
		require.Error(t, err, "the worker dies without an answer")
		s.awaitDeath(t)
		s.startWorker(t)
		require.Len(t, s.leaves(t), want, "the whole seal is stored, or nothing of it")
	}
	post()
	for range 2 { // the second time there is nothing left to seal
		require.NoError(t, filetest.ErrorOf(s.task(t.Context(), "seal-journal")))
	}
	id := func(doc store.Document) string { return doc.Key.ID }
	entries := filetest.Map(storetest.All(t, s.store, ledger.Entries), id)
	require.ElementsMatch(t, entries, s.leaves(t), "an entry has one position, under one seal")
	verified, err := billhook(t, "ledger", "verify", "--server", s.opsURL)
	require.NoError(t, err, verified)
	require.Regexp(t, `SEALS +2\nSEALED ENTRIES +5\nENTRIES WITHOUT A SEAL +0\n(.*\n)*The books verify: `+
		`nothing was found\.`, verified)
	s.requirePoints(t, posted)
}

func (s *crashed) leaves(t *testing.T) (ids []string) {
	t.Helper()
	for _, doc := range storetest.All(t, s.store, seal.Leaves) {
		for _, leaf := range doc.Fields["leaves"].([]any) {
			ids = append(ids, leaf.(string)[strings.Index(leaf.(string), " ")+1:])
		}
	}
	return ids
}
