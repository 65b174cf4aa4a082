package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

type stackCase struct {
	name string
	run  func(*testing.T, *stack)
	// real cases test what only Google's emulators have: ordered pushes, redelivery, transactions, and the
	// webhook service's own database. They alone run there with -short.
	real bool
}

// The cases run on the stand-ins in this process, and on the binaries with Google's emulators.
var cases = []stackCase{
	{"an order is credited", credit, true},
	{"an unknown product is one dead letter and later events flow", unknownProduct, true},
	{"a store that is down costs a retry and no event", storeFailure, true},
	{"thirty events of one customer keep their order beside thirty others", order, true},
	{"a refund that comes before its order waits for it", refundFirst, true},
	{"a broker that is down answers 503 and leaves the key usable", brokerFailure, true},
	{"an event that names a customer alone follows the order that named the user", customerKeeps, true},
	{"a shop order that PayNow reports as paid is confirmed, and its buyer notified", shopOrderPaid, false},
	{"a shop order without a payment returns its pieces", shopOrderTimesOut, false},
	{"each event type of a queue with a service has each outcome", everyQueue, false},
	// the last case: it checks the data of all others
	{"no personal value is anywhere behind the webhook service", noPersonalData, false},
}

func runCases(t *testing.T, s *stack, cases []stackCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

func TestOnTheEmbeddedStack(t *testing.T) {
	t.Parallel()
	runCases(t, startEmbedded(t, loaded(t, shortWaits(t))), cases)
}

func TestOnGooglesEmulators(t *testing.T) {
	t.Parallel()
	of := cases
	if testing.Short() {
		of = slices.DeleteFunc(slices.Clone(cases), func(c stackCase) bool { return !c.real })
	}
	s, r := startReal(t, site{Project: "e2e-" + uuid.NewString(), CatalogDir: shortWaits(t)})
	runCases(t, s, of)
	r.requireCopies(t)
}

func credit(t *testing.T, s *stack) {
	o := s.newOrder()
	answer := s.accepted(t, o.JSON())
	require.Equal(t, []string{o.EventID, o.UID}, []string{answer.EventID, answer.OrderingKey})
	deliveries := s.until(t, o.EventID, "processed")
	// On a busy machine the first may have timed out.
	require.Equal(t, http.StatusOK, deliveries[len(deliveries)-1].Status)
	require.Equal(t, int64(2000), s.balance(t, o.UID))
	require.Equal(t, "COMPLETED", s.status(t, o.EventID))
}

func unknownProduct(t *testing.T, s *stack) {
	o := s.newOrder()
	o.Lines = append(o.Lines, e2e.Line{Product: e2e.UnknownProduct, Quantity: 1, Price: 500})
	s.accepted(t, o.JSON())
	later := s.newOrder()
	later.UID, later.CustomerID = o.UID, o.CustomerID
	s.accepted(t, later.JSON())
	s.until(t, o.EventID, "dead_lettered")
	s.until(t, later.EventID, "processed")
	deadLetter := s.deadLetter(t, e2e.Queue, o.EventID)
	require.Equal(t, []string{"unknown_product", e2e.UnknownProduct},
		[]string{deadLetter.Reason, deadLetter.Detail})
	require.Equal(t, int64(2000), s.balance(t, o.UID), "the known item is not credited")
	require.Equal(t, "DEAD_LETTERED", s.status(t, o.EventID))
}

func storeFailure(t *testing.T, s *stack) {
	o := s.newOrder()
	s.storeDown(true)
	s.accepted(t, o.JSON())
	deliveries := s.until(t, o.EventID, "retry")
	require.Equal(t, http.StatusServiceUnavailable, deliveries[0].Status)
	require.Equal(t, "store_unavailable", deliveries[0].Reason)
	s.storeDown(false)
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, o.UID))
	q, _ := s.catalog.Queue(e2e.Queue)
	s.requireDeadLetters(t, q, o.EventID, 0)
}

func order(t *testing.T, s *stack) {
	const n = 30
	one := s.newOrder()
	var mine, others []string
	for range n {
		o, other := s.newOrder(), s.newOrder()
		o.UID, o.CustomerID = one.UID, one.CustomerID
		mine, others = append(mine, o.EventID), append(others, other.EventID)
		s.accepted(t, o.JSON())
		s.accepted(t, other.JSON())
	}
	for _, id := range slices.Concat(mine, others) {
		s.until(t, id, "processed")
	}
	require.Equal(t, mine, s.processed(mine))
	require.Equal(t, int64(n*2000), s.balance(t, one.UID))
}

func refundFirst(t *testing.T, s *stack) {
	o := s.newOrder()
	refund := o.EventID + "9" // under another key: the customer is not linked to the uid yet
	s.accepted(t, o.Refund(refund, o.Total()))
	deliveries := s.until(t, refund, "retry")
	require.Equal(t, "order_not_seen", deliveries[0].Reason)
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	for _, d := range s.until(t, refund, "processed") {
		require.Equal(t, http.StatusOK, d.Status, "no nack slows the subscription")
	}
	require.Zero(t, s.balance(t, o.UID))
}

func brokerFailure(t *testing.T, s *stack) {
	o := s.newOrder()
	s.brokerDown(true)
	answer := filetest.Must(e2e.Send(t.Context(), s.webhookURL, o.JSON()))(t)
	require.Equal(t, http.StatusServiceUnavailable, answer.Status)
	require.Equal(t, "publish_unconfirmed", answer.Code)
	require.NotEmpty(t, answer.RetryAfter)
	s.brokerDown(false)
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, o.UID))
}

// customerKeeps: PayNow's refunds, chargebacks and subscriptions name the customer alone. After an order with
// customer and uid, their ordering key is its uid.
func customerKeeps(t *testing.T, s *stack) {
	o := s.newOrder()
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	renewal := samples.Read(samples.SubscriptionRenewed,
		samples.Event{EventID: o.EventID + "2", SubscriptionID: o.EventID + "4", CustomerID: o.CustomerID})
	for id, body := range map[string][]byte{
		o.EventID + "1": o.Refund(o.EventID+"1", o.Total()),
		o.EventID + "2": bytes.ReplaceAll(renewal, []byte(samples.UID), nil),
	} {
		require.Equal(t, o.UID, s.accepted(t, body).OrderingKey, id)
		s.until(t, id, "processed")
	}
	require.Zero(t, s.balance(t, o.UID))
	var state customers.State
	s.ask(t, http.MethodGet, "/v1/ops/customers/"+o.CustomerID, nil, &state)
	require.Equal(t, []string{o.UID, o.EventID}, []string{state.UID, state.LinkedBy})

	o = s.newOrder() // its customer is not in the webhook service's cache
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	s.ask(t, http.MethodDelete, "/v1/ops/customers/"+o.CustomerID, map[string]string{"why": "ticket 7"}, nil)
	refund := o.Refund(o.EventID+"1", o.Total())
	require.Equal(t, o.CustomerID, s.accepted(t, refund).OrderingKey, "the link was removed")
	s.until(t, o.EventID+"1", "processed")
}

func noPersonalData(t *testing.T, s *stack) {
	for i, name := range samples.Names() {
		id := fmt.Sprintf("800000000000000%02d", i)
		s.accepted(t, samples.Read(name, samples.Event{EventID: id}))
		s.until(t, id, map[bool]string{false: "processed", true: "dead_lettered"}[name == samples.UnknownProduct])
	}
	used := s.signed(t, "/queues/events-high", string(samples.Request(samples.Usage)))
	require.Equal(t, http.StatusAccepted, used.Status)
	s.until(t, "dev-usage", "processed")
	const bad = `{"event_type":"ON_ORDER_COMPLETED","event_id":"ilse.brandvold@example.org","body":{}}`
	refused := filetest.Must(e2e.Send(t.Context(), s.webhookURL, []byte(bad)))(t)
	require.Equal(t, http.StatusUnprocessableEntity, refused.Status)

	contracts, deadLetters := map[string]bool{}, map[string]bool{}
	var behind strings.Builder
	for _, m := range s.published(t) {
		contracts[m.Attributes[contract.AttrContract]] = true
		deadLetters[m.Attributes[deadletter.AttrSourceQueue]] = true
		fmt.Fprintf(&behind, "%s %v %s\n", m.Data, m.Attributes, m.OrderingKey)
	}
	require.Subset(t, slices.Collect(maps.Keys(contracts)), []string{contract.PaymentV1, contract.EnvelopeV1})
	delete(deadLetters, "")
	require.Greater(t, len(deadLetters), 1, "the dead letters of more than one queue")
	for _, collection := range []string{
		dedupe.Collection, deadletter.Collection, ledger.Accounts, ledger.Entries, subscriptions.Collection,
		customers.Collection, audit.Collection, usage.Collection, usage.EntriesCollection, usage.PeriodsCollection,
	} {
		documents := storetest.All(t, s.store, collection)
		require.NotEmpty(t, documents, collection)
		require.Less(t, len(documents), store.MaxPage, "all of them were read")
		for _, doc := range documents {
			fmt.Fprintf(&behind, "%s %s\n", doc.Key, doc.Fields) // %v would print bytes as numbers
		}
	}
	all := behind.String() + s.log.Text() + refused.Body
	for _, value := range append(samples.Personal, "Gift for Ilse") {
		require.False(t, strings.Contains(all, value), "a personal value is behind the webhook service: %s", value)
	}
}
