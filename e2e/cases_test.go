package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"billhook/internal/console"
	"billhook/internal/filetest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

type stackCase struct {
	name string
	run  func(*testing.T, *stack)
	// real cases are of what only Google's emulators show: the order of their pushes, their redelivery, their
	// transactions, the webhook service's own database, and processes that are killed. They alone run there with
	// -short.
	real bool
}

// The cases run on the stand-ins in this process, and on the binaries with Google's emulators. That Terraform
// makes the same queues there, emulator/emulatortest shows. What one event of each kind is answered, logs and
// stores, the recording of the surface has.
var cases = []stackCase{
	{"an order is credited", credit, true},
	{"an unknown product is one dead letter and later events flow", unknownProduct, true},
	{"a store that is down costs a retry and no event", storeFailure, true},
	{"a worker killed before its commit loses nothing", killedBeforeItsCommit, false},
	{
		"a worker killed after its commit doubles nothing, and what it told nobody is relayed",
		killedAfterItsCommit, true,
	},
	{"thirty events of one customer keep their order beside thirty others", order, true},
	{"a refund that comes before its order waits for it", refundFirst, true},
	{"a broker that is down answers 503 and leaves the key usable", brokerFailure, true},
	{"what names a customer alone travels behind the order that named the user", customerKeeps, true},
	{"an order that PayNow says is paid is confirmed and told", shopOrderPaid, false},
	{"an order whose payment does not come gives its pieces back", shopOrderTimesOut, false},
	{"each type of each queue that a service works for ends as it should", everyQueue, false},
	// the last case: it looks at the data of all others
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
	// The last one: a busy machine may have been too slow for the first.
	require.Equal(t, http.StatusOK, deliveries[len(deliveries)-1].Status)
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, "COMPLETED", s.status(t, o.EventID))

	guest := s.newOrder()
	guest.UID = ""
	s.accepted(t, guest.JSON())
	s.until(t, guest.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.CustomerPoints(guest.CustomerID)))
}

func unknownProduct(t *testing.T, s *stack) {
	o := s.newOrder()
	o.Lines = append(o.Lines, e2e.Line{Product: e2e.UnknownProduct, Quantity: 1, Price: 500})
	s.accepted(t, o.JSON())
	later := s.newOrder()
	later.UID, later.CustomerID = o.UID, o.CustomerID
	s.accepted(t, later.JSON())
	deliveries := s.until(t, o.EventID, "dead_lettered")
	i := slices.IndexFunc(deliveries, func(d e2e.Delivery) bool { return d.Outcome == "dead_lettered" })
	// 200 where the budget of nacks, which all cases share, is used up
	if deliveries[i].Status == http.StatusBadRequest {
		deliveries = s.until(t, o.EventID, "duplicate") // what was nacked comes again
		require.Equal(t, "dead_lettered_before", deliveries[len(deliveries)-1].Reason)
	} else {
		require.Equal(t, http.StatusOK, deliveries[i].Status)
	}
	s.until(t, later.EventID, "processed")
	deadLetters := s.deadLettersOf(t, o.EventID)
	require.Len(t, deadLetters, 1)
	require.Equal(t, []string{"unknown_product", e2e.UnknownProduct, e2e.Queue}, []string{
		deadLetters[0].Attributes["dead_letter_reason"], deadLetters[0].Attributes["dead_letter_detail"],
		deadLetters[0].Attributes["source_queue"],
	})
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)),
		"the known item beside it is not credited")
	require.Equal(t, "DEAD_LETTERED", s.status(t, o.EventID))
	q, _ := s.catalog.Queue(e2e.Queue)
	s.requireDeadLetters(t, q, o.EventID, 1) // in the store, too
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
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Empty(t, s.deadLettersOf(t, o.EventID))
}

func killedBeforeItsCommit(t *testing.T, s *stack) {
	// The worker then knows what the product is worth, so its next request to the store is the
	// commit.
	before := s.newOrder()
	s.accepted(t, before.JSON())
	s.until(t, before.EventID, "processed")
	o := s.newOrder()
	require.True(t, s.crash(t, false, o.EventID, func() { s.accepted(t, o.JSON()) }))
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, "COMPLETED", s.status(t, o.EventID))
	require.Empty(t, s.deadLettersOf(t, o.EventID))
}

// killedAfterItsCommit kills the worker before it publishes what it emitted.
func killedAfterItsCommit(t *testing.T, s *stack) {
	var e samples.Event
	for killed := false; !killed; {
		n := fmt.Sprint(700000000000000000 + s.seq.Add(1)*100)
		e = samples.Event{EventID: n, SubscriptionID: n + "4", CustomerID: n + "3", UID: "uid-" + n}
		if killed = s.crash(t, true, n, func() {
			s.accepted(t, samples.Read(samples.SubscriptionRenewed, e))
		}); !killed {
			s.until(t, n, "processed")
			// no later answer of the store is of it
			published := func() bool { return len(s.waitingOf(t, lane.Outbox, n)) == 0 }
			require.Eventually(t, published, patience, pollInterval)
		}
	}
	record := s.ends(t, e2e.Queue, e.EventID)
	require.Len(t, record.Emitted, 1)
	told := record.Emitted[0].EventID
	waiting := s.waitingOf(t, lane.Outbox, e.EventID)
	require.Len(t, waiting, 1)
	requireNothingPersonal(t, text(waiting))
	relay := func() string {
		done := filetest.Must(s.task(t.Context(), "relay-outbox"))(t)
		return fmt.Sprint(done["published"])
	}
	require.Equal(t, "0", relay(), "for half a minute the lane belongs to its worker")
	s.bringForward(t, "due_at", s.laneOf(t, lane.Outbox, waiting[0]))
	require.Eventually(t, func() bool { return relay() == "1" || len(s.processed([]string{told})) > 0 },
		patience, pollInterval)
	s.until(t, told, "processed")
	s.until(t, e.EventID, "duplicate")
	require.Equal(t, 1, s.service.Applied(told))
	require.Equal(t, "0", relay())
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
	require.Equal(t, int64(n*2000), s.balance(t, ledger.UserPoints(one.UID)))
}

func refundFirst(t *testing.T, s *stack) {
	o := s.newOrder()
	// The refund names only the customer, who has no link to the uid: it has another ordering
	// key.
	refund := e2e.Refund{
		EventID: o.EventID + "9", RefundID: "1", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: o.Total(),
		Paid: o.Total(),
	}
	s.accepted(t, refund.JSON())
	deliveries := s.until(t, refund.EventID, "retry")
	require.Equal(t, "order_not_seen", deliveries[0].Reason)
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	for _, d := range s.until(t, refund.EventID, "processed") {
		require.Equal(t, http.StatusOK, d.Status, "no nack slows the subscription")
	}
	require.Zero(t, s.balance(t, ledger.UserPoints(o.UID)))
}

func brokerFailure(t *testing.T, s *stack) {
	o := s.newOrder()
	s.brokerDown(true)
	answer := s.send(t, o.JSON())
	require.Equal(t, http.StatusServiceUnavailable, answer.Status)
	require.Equal(t, "publish_unconfirmed", answer.Code)
	require.NotEmpty(t, answer.RetryAfter)
	s.brokerDown(false)
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	require.Equal(t, int64(2000), s.balance(t, ledger.UserPoints(o.UID)))
}

// customerKeeps: PayNow's refunds, chargebacks and subscriptions name the customer alone. After
// an order that named customer and uid, they follow it under its uid.
func customerKeeps(t *testing.T, s *stack) {
	o := s.newOrder()
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	chargeback := samples.Read(samples.Chargeback, samples.Event{EventID: o.EventID + "3", OrderID: o.OrderID})
	renewal := samples.Read(samples.SubscriptionRenewed,
		samples.Event{EventID: o.EventID + "2", SubscriptionID: o.EventID + "4", CustomerID: o.CustomerID})
	part := e2e.Refund{
		EventID: o.EventID + "1", RefundID: "1", OrderID: o.OrderID, CustomerID: o.CustomerID, Amount: 500,
		Paid: o.Total(),
	}
	for id, body := range map[string][]byte{
		o.EventID + "1": part.JSON(),
		o.EventID + "2": bytes.ReplaceAll(renewal, []byte(samples.UID), nil),
		o.EventID + "3": bytes.Replace(chargeback, []byte(`"customer": null`),
			fmt.Appendf(nil, `"customer": {"id": %q}`, o.CustomerID), 1),
	} {
		require.Equal(t, o.UID, s.accepted(t, body).OrderingKey, id)
		s.until(t, id, "processed")
		require.Eventually(t, func() bool { // a pull that takes too long is answered again at its ack deadline
			return slices.ContainsFunc(s.published(t), func(m contract.Message) bool {
				return m.Attributes[contract.AttrEventID] == id && m.OrderingKey == o.UID
			})
		}, patience, pollInterval, "%s travels under the order's key", id)
	}
	require.Zero(t, s.balance(t, ledger.UserPoints(o.UID)))
	var state customers.State
	s.ask(t, http.MethodGet, "/v1/ops/customers/"+o.CustomerID, nil, &state)
	require.Equal(t, []string{o.UID, o.EventID}, []string{state.UID, state.LinkedBy})

	o = s.newOrder() // of whom the webhook service remembers nothing
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "processed")
	s.ask(t, http.MethodDelete, "/v1/ops/customers/"+o.CustomerID, map[string]string{"why": "ticket 7"}, nil)
	part.EventID, part.OrderID, part.CustomerID = o.EventID+"1", o.OrderID, o.CustomerID
	require.Equal(t, o.CustomerID, s.accepted(t, part.JSON()).OrderingKey, "the link was removed")
	s.until(t, o.EventID+"1", "processed")
}

const orderQueue = "orders-process"

// ordered has two pieces of a new product ordered, of which there are five, and waits until the order rests.
func (s *stack) ordered(t *testing.T) (order, product string, record dedupe.Record) {
	t.Helper()
	available := int64(5)
	order, product = "order-"+uuid.NewString(), "product-"+uuid.NewString()
	s.ask(t, http.MethodPut, "/v1/ops/stock/"+product,
		orders.SetStock{Available: &available, Edit: console.Edit{Change: console.Change{Why: "counted"}}}, nil)
	record = s.happens(t, order, "created", fmt.Sprintf(`,"user_id":"user-%s","seller_id":"s","total":5497,`+
		`"items_count":1,"items":[{"product_id":%q,"quantity":2}]`, order, product))
	require.Equal(t, "payment_initiated", record.Result)
	require.Equal(t, [3]int64{3, 2, 0}, s.pieces(t, product))
	return order, product, record
}

// happens sends an event of an order through the webhook service, and waits for its end.
func (s *stack) happens(t *testing.T, order, what, more string) dedupe.Record {
	t.Helper()
	id := "evt-" + uuid.NewString()
	answer := s.signed(t, "/topics/orders", `{"message":`+platformEvent(id, "order."+what,
		fmt.Sprintf(`{"order_id":%q%s}`, order, more))+`}`)
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	return s.ends(t, orderQueue, id)
}

func (s *stack) pieces(t *testing.T, product string) [3]int64 {
	t.Helper()
	var stock orders.Stock
	s.ask(t, http.MethodGet, "/v1/ops/stock/"+product, nil, &stock)
	return [3]int64{stock.Available, stock.Reserved, stock.Sold}
}

func (s *stack) notifiedBy(t *testing.T, record dedupe.Record) int {
	t.Helper()
	user := slices.IndexFunc(record.Emitted, func(e handler.Emitted) bool {
		return e.To == "notifications" && e.EventType != "seller.order_created"
	})
	require.GreaterOrEqual(t, user, 0)
	fanned := s.ends(t, "notifications-fanout", record.Emitted[user].EventID)
	require.Equal(t, "fanned_out", fanned.Result)
	for _, id := range handler.EmittedIDs(fanned.Emitted) {
		require.Equal(t, "delivered", s.ends(t, "notifications-send", id).Result)
		require.Equal(t, 1, s.service.Applied(id))
	}
	return len(fanned.Emitted)
}

// waitingOf returns the messages of an event that wait in lanes of the kind.
func (s *stack) waitingOf(t *testing.T, kind lane.Kind, eventID string) []store.Document {
	t.Helper()
	page := filetest.Must(s.store.Query(t.Context(), store.Query{
		Collection: kind.Entries(), Equal: map[string]any{"event_id": eventID}, Limit: 2,
	}))(t)
	return page.Documents
}

func (s *stack) laneOf(t *testing.T, kind lane.Kind, waiting store.Document) store.Document {
	t.Helper()
	doc, err := s.store.Get(t.Context(), store.Key{Collection: kind.Lanes(), ID: waiting.Key.ID[:24]})
	require.NoError(t, err)
	return doc
}

// bringForward writes that what is due later was due a second ago.
func (s *stack) bringForward(t *testing.T, field string, documents ...store.Document) {
	t.Helper()
	var writes []store.Write
	for _, doc := range documents {
		doc.Fields[field] = time.Now().Add(-time.Second).UTC().Truncate(time.Microsecond)
		writes = append(writes, store.Set(doc.Key, doc.Fields))
	}
	require.NoError(t, filetest.ErrorOf(s.store.Commit(t.Context(), writes)))
}

func shopOrderPaid(t *testing.T, s *stack) {
	order, product, record := s.ordered(t)
	paid := s.newOrder()
	paid.ShopOrder = order
	s.accepted(t, paid.JSON())
	emitted := s.ends(t, e2e.Queue, paid.EventID).Emitted
	require.Len(t, emitted, 1)
	confirmed := s.ends(t, orderQueue, emitted[0].EventID)
	require.Equal(t, "confirmed", confirmed.Result)
	require.Equal(t, [3]int64{3, 0, 2}, s.pieces(t, product))
	require.Equal(t, 3, s.notifiedBy(t, confirmed), "by mail, by text, and on the telephone")
	require.Len(t, confirmed.Emitted, 4, "analytics, the seller and the search are told, too")
	require.Equal(t, "delivered", s.ends(t, "search-index", confirmed.Emitted[3].EventID).Result)
	require.Empty(t, s.waitingOf(t, lane.Delayed, record.EventID), "the timeout is withdrawn")
	require.Equal(t, "shipped", s.happens(t, order, "shipped", "").Result)
	var shown orders.Order
	s.ask(t, http.MethodGet, "/v1/ops/orders/"+order, nil, &shown)
	require.Equal(t, []any{orders.OrderShipped, paid.OrderID}, []any{shown.State, shown.PaymentID})

	guest := s.newOrder() // a bad id is left out, and its buyer is credited
	guest.ShopOrder = "write to ilse.brandvold@example.org"
	s.accepted(t, guest.JSON())
	s.until(t, guest.EventID, "processed")
}

// shopOrderTimesOut brings the moment forward: in the order, and where the timeout waits.
func shopOrderTimesOut(t *testing.T, s *stack) {
	order, product, record := s.ordered(t)
	waiting := s.waitingOf(t, lane.Delayed, record.EventID)
	require.Len(t, waiting, 1)
	kept, err := s.store.Query(t.Context(),
		store.Query{Collection: orders.Collection, Equal: map[string]any{"order_id": order}, Limit: 1})
	require.NoError(t, err)
	s.bringForward(t, "payment_due", kept.Documents...)
	s.bringForward(t, "due_at", waiting[0], s.laneOf(t, lane.Delayed, waiting[0]))
	require.NoError(t, filetest.ErrorOf(s.task(t.Context(), "release-delayed")))
	late := s.ends(t, orderQueue, record.Emitted[0].EventID)
	require.Equal(t, "cancelled_payment_timeout", late.Result)
	require.Equal(t, [3]int64{5, 0, 0}, s.pieces(t, product))
	require.Equal(t, 2, s.notifiedBy(t, late))
	require.Equal(t, "paid_after_cancelled", s.happens(t, order, "payment_confirmed", "").LastError)
}

func noPersonalData(t *testing.T, s *stack) {
	for i, name := range samples.Names() {
		id := fmt.Sprintf("800000000000000%02d", i)
		s.accepted(t, samples.Read(name, samples.Event{EventID: id}))
		s.until(t, id, map[bool]string{false: "processed", true: "dead_lettered"}[name == samples.UnknownProduct])
	}
	require.Equal(t, http.StatusAccepted, s.signed(t, "/queues/events-high",
		string(samples.Request(samples.Usage))).Status)
	s.until(t, "dev-usage", "processed")
	refused := s.send(t,
		[]byte(`{"event_type":"ON_ORDER_COMPLETED","event_id":"ilse.brandvold@example.org","body":{}}`))
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
		customers.Collection,
		audit.Collection, usage.Collection, usage.EntriesCollection, usage.PeriodsCollection,
	} {
		documents := s.documents(t, collection)
		require.NotEmpty(t, documents, collection)
		behind.WriteString(text(documents))
	}
	requireNothingPersonal(t, behind.String()+s.log.Text()+refused.Body)
}

func text(documents []store.Document) string {
	var all strings.Builder
	for _, doc := range documents {
		fmt.Fprintf(&all, "%s %s\n", doc.Key, doc.Fields) // %v would print bytes as numbers
	}
	return all.String()
}

func requireNothingPersonal(t *testing.T, text string) {
	t.Helper()
	for _, value := range append(samples.Personal, "Gift for Ilse") {
		require.False(t, strings.Contains(text, value), "a personal value is behind the webhook service: %s", value)
	}
}
