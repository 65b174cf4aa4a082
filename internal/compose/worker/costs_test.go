package worker_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/compose/worker"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// TestCreditCostsByTheCacheOfItsCustomer counts on the whole worker, with the shipped handlers: a credit of a
// known customer is one round trip, no read, three documents. An emission about an order of the shop costs
// the two documents of the outbox, and two reads and a commit that remove them after it is published, unless
// the queue of orders is disabled.
func TestCreditCostsByTheCacheOfItsCustomer(t *testing.T) {
	t.Parallel()
	const differs = "credited_mapping_differs"
	type row struct {
		// mapped is the customer's uid in the store, which this worker has not read; before is the uid of an order
		// that this worker has credited to the customer; a uid with an asterisk was looked up by the customer.
		mapped, before, uid string
		// shopOrder is the shop's order that was paid. everyQueue: all queues are enabled, also that of orders.
		shopOrder  string
		everyQueue bool
		reason     string
		// cost is reads, commits, and documents written.
		cost []int64
	}
	filetest.Each(t, map[string]row{
		"a guest's":                          {"", "-", "", "", false, "credited", []int64{0, 1, 3}},
		"a guest's, with every queue":        {"", "-", "", "", true, "credited", []int64{0, 1, 3}},
		"for the shop":                       {"", "-", "", "cart-7", true, "credited", []int64{2, 2, 7}},
		"for the shop, its queue disabled":   {"", "-", "", "cart-7", false, "credited", []int64{0, 1, 3}},
		"the first of a customer with a uid": {"", "-", "u1", "", false, "credited", []int64{0, 1, 4}},
		"the next one":                       {"", "u1", "u1", "", false, "credited", []int64{0, 1, 3}},
		"one after a guest's":                {"", "", "u1", "", false, "credited", []int64{0, 1, 4}},
		"with the uid in the store":          {"u1", "-", "u1", "", false, "credited", []int64{2, 2, 3}},
		"with the uid in both":               {"u1", "u1", "u1", "", false, "credited", []int64{0, 1, 3}},
		"with another uid in the store":      {"u2", "-", "u1", "", false, differs, []int64{2, 2, 3}},
		"with another uid in the cache":      {"", "u2", "u1", "", false, differs, []int64{1, 1, 3}},
		"one whose uid was looked up":        {"u1", "-", "u1*", "", false, "credited", []int64{0, 1, 3}},
		"a guest's, whose uid is known":      {"", "u1", "", "", false, "credited", []int64{0, 1, 3}},
	}, func(t *testing.T, test row) {
		broker := &shelves{}
		w, counter := counting(t, func(c *worker.Config) {
			if c.Publisher = broker; !test.everyQueue {
				c.Catalog = filetest.Must(c.Catalog.Only([]string{"paynow-events", "pay-subscription-update"}))(t)
			}
			if test.mapped != "" {
				storetest.Put(t, c.Store, store.Create(customers.Key("default", "c1"),
					map[string]any{"uid": test.mapped}))
			}
		})
		pay := func(event, customer, uid, shopOrder string) (int, string) {
			attributes := []string{"ordering_key", customer, "paynow_customer_id", customer}
			uid, lookedUp := strings.CutSuffix(uid, "*")
			if uid != "" {
				attributes = append(attributes, "uid", uid, "ordering_key", uid)
			}
			if lookedUp {
				attributes = append(attributes, "uid_source", "customer")
			}
			if shopOrder != "" {
				attributes = append(attributes, "shop_order_id", shopOrder)
			}
			return posted(t, w, "/push/paynow-events", paidOrder(event, customer, "411486491630370501"), attributes...)
		}
		pay("warm", "another", "", "") // then the product and the empty lanes are cached
		if test.before != "-" {
			pay("before", "c1", test.before, "")
		}
		broker.all()
		require.Equal(t, test.cost, spent(counter, func() {
			_, reason := pay("e1", "c1", test.uid, test.shopOrder)
			require.Equal(t, test.reason, reason)
		}))
		emitted := broker.take("orders")
		require.Equal(t, test.shopOrder != "" && test.everyQueue, len(emitted) == 1)
		code, _ := pay("e1", "c1", test.uid, test.shopOrder)
		require.Equal(t, http.StatusNoContent, code, "a duplicate")
		require.Empty(t, broker.all(), "a duplicate emits nothing")
		for _, m := range emitted {
			require.Equal(t, "cart-7", m.Attributes["order_id"])
			require.Contains(t, string(m.Data), `"data":{"order_id":"cart-7","payment_id":"order-e1"}`)
		}
	})
}

// TestCreditReadsAProductOnceAndAfterItsChange counts what a credit costs in the whole worker: one round trip
// and three documents, and a read of a product that is not cached. A change of the product clears it.
func TestCreditReadsAProductOnceAndAfterItsChange(t *testing.T) {
	t.Parallel()
	w, counter := counting(t, nil)
	const points, unknown = "411486491630370501", "999999999999999999"
	n := 0
	deliver := func(products ...string) func() int {
		return func() int {
			n++
			code, _ := posted(t, w, "/push/paynow-events", paidOrder(fmt.Sprint("e", n), fmt.Sprint("customer-", n),
				products...))
			return code
		}
	}
	change := func(method, body string) func() int {
		return func() int { return respond(w, method, "/v1/ops/products/"+unknown, body).Code }
	}
	for _, step := range []struct {
		does string
		do   func() int
		code int
		cost []int64
	}{
		{
			"the first order reads its product and the lanes", deliver(points), 200,
			[]int64{2, 1, 3},
		},
		{"the next does not", deliver(points, points), 200, []int64{0, 1, 3}},
		{
			"an unknown product is read each time, beside the record", deliver(points, unknown), 400,
			[]int64{2, 1, 1},
		},
		{
			"setting it is a read and a commit with its audit", change(http.MethodPut, `{"points":500,"why":"w"}`),
			200,
			[]int64{1, 1, 2},
		},
		{"then it is read once", deliver(points, unknown), 200, []int64{1, 1, 3}},
		{"and cached", deliver(points, unknown), 200, []int64{0, 1, 3}},
		{"retiring it is the same", change(http.MethodDelete, `{"why":"w"}`), 200, []int64{1, 1, 2}},
		{"and it is unknown at once", deliver(points, unknown), 200, []int64{2, 1, 1}},
	} {
		require.Equal(t, step.cost, spent(counter, func() {
			require.Equal(t, step.code, step.do(), step.does)
		}), step.does)
	}
	account := storetest.Get(t, counter, ledger.CustomerPoints("customer-4").Key("default"))
	require.EqualValues(t, 1500, account.Fields["balance"])
}

// callee is a target without a network.
type callee struct {
	// takes is how long it takes for each request; 0: it is down.
	takes time.Duration
	mu    sync.Mutex
	// at is when an event was applied.
	at map[string]time.Time
}

func (c *callee) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(c.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if c.takes == 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if r.Method != http.MethodPost {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	}
	var posted struct {
		ID string `json:"source_event_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&posted); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at[posted.ID] = time.Now()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// waits is the longest wait of the events of a queue beside another queue, which gets so many events for each
// of the first one's and posts them to a failing target.
func waits(t *testing.T, flood int, sick *callee) (worst time.Duration) {
	t.Helper()
	const events, every = 100, 20 * time.Millisecond
	well := &callee{takes: 50 * time.Millisecond, at: map[string]time.Time{}}
	var queues []catalog.Queue
	var simulator *standin.Simulator
	var w *worker.Worker
	w = open(t, func(c *worker.Config) {
		like, ok := c.Catalog.Queue("pay-subscription-update")
		require.True(t, ok)
		entry, _ := like.Handler("renewal")
		c.Targets = delivery.Targets{}
		for name, at := range map[string]*callee{"well": well, "sick": sick} {
			q := like
			if entry.Name, entry.Post = "post:"+name, (catalog.Post{Target: name, Path: "/"}); name == "sick" {
				q.ID, q.DeadLetter.Topic, q.Concurrency = "sick", "sick-dlq", 2
			}
			q.Handlers = map[string]catalog.Handler{"renewal": entry}
			queues = append(queues, q)
			c.Targets[name] = filetest.Must(delivery.New(delivery.Config{
				Target: catalog.Target{
					Name: name, Scheme: catalog.SchemeGeneric, Internal: true,
					Timeouts: catalog.Timeouts{Connect: time.Second, Total: 10 * time.Second},
					Breaker:  catalog.Breaker{Failures: 5, Rest: 5 * time.Minute},
				},
				BaseURL: "http://" + name + ".example", Secrets: []string{workertest.Secret}, Now: time.Now,
				Transport: at,
			}))(t)
		}
		c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: queues}
		c.AfterFunc = alarm.AfterFunc
		simulator = standin.NewSimulator(standin.SimulatorConfig{
			ProjectID: "p", Subscriptions: standin.Topology(queues),
			Transport: workertest.Transport(func(out http.ResponseWriter, r *http.Request) { w.ServeHTTP(out, r) }),
		})
		simulator.PushTo("http://worker")
		c.Publisher = simulator
	})
	t.Cleanup(func() { w.Drain(); require.NoError(t, simulator.Close()) })
	send := func(topic, id string) {
		data, err := ordered(id, "renewal", contract.Payload{SubscriptionID: "subscription-" + id}).Append(nil)
		require.NoError(t, err)
		require.NoError(t, filetest.ErrorOf(simulator.Publish(t.Context(), topic,
			contract.Message{Data: data, OrderingKey: "subscription-" + id, Attributes: map[string]string{
				"event_id": id, "event_type": "renewal", "contract": contract.EnvelopeV1,
				"ordering_key": "subscription-" + id,
			}})))
	}
	sent := map[string]time.Time{}
	for i := range events {
		for n := range flood {
			send("sick", fmt.Sprintf("flood-%d-%d", i, n))
		}
		id := fmt.Sprint("evt-", i)
		sent[id] = time.Now()
		send("pay-subscription-update", id)
		<-time.After(every)
	}
	<-time.After(10 * time.Second)
	synctest.Wait()
	require.Len(t, well.at, events)
	for id, at := range sent {
		worst = max(worst, well.at[id].Sub(at))
	}
	return worst
}

// TestQueueThatIsFloodedOrHangsCostsAnotherNothing runs both queues in the time of a bubble, in which work
// takes no time: a queue can only add to another's waits by what they share. The first has two slots.
func TestQueueThatIsFloodedOrHangsCostsAnotherNothing(t *testing.T) {
	t.Parallel()
	filetest.Each(t, map[string]time.Duration{
		"ten times what it can handle": 200 * time.Millisecond, "a target that hangs": time.Hour,
		"a target that is down": 0,
	}, func(t *testing.T, takes time.Duration) {
		filetest.Bubble(t, func(t *testing.T) {
			without := waits(t, 0, &callee{})
			require.Equal(t, without, waits(t, 2, &callee{takes: takes, at: map[string]time.Time{}}))
		})
	})
}

func TestWaitsRecoverAfterABurstOrAStallOfTheStore(t *testing.T) {
	t.Parallel()
	const soon = 100 * time.Millisecond
	type load = workertest.Load
	type row struct {
		load
		from int           // the second
		most time.Duration // the p99 of all events from then on
	}
	filetest.Each(t, map[string]row{
		"a burst":        {load{PerSecond: 490, Burst: 1000, Seconds: 4}, 2, 600 * time.Millisecond},
		"a stall of 5 s": {load{PerSecond: 490, Stall: 5 * time.Second, Seconds: 11}, 10, soon},
		"almost 10 s":    {load{PerSecond: 50, Stall: 9900 * time.Millisecond, Seconds: 14}, 13, soon},
	}, func(t *testing.T, test row) {
		filetest.Bubble(t, func(t *testing.T) {
			credit := lives["a credit"]
			test.Queue, test.EventType = credit.queue, credit.eventType
			found := workertest.Simulate(t, test.load)
			require.Zero(t, found.Refused)
			require.LessOrEqual(t, found.Within(test.from), test.most)
		})
	})
}
