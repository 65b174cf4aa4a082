package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/console"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/deadletters"
	"billhook/internal/inspect/queues"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/standin"
	"billhook/internal/retry"
)

// How much there is in a full shop: more than a page of dead letters, and of orders.
const (
	soldOrders = 110
	badOrders  = 105
	buyers     = 9
	paused     = 12
	refusals   = 8
	// failures are more than a breaker allows in a row.
	failures = 16
)

const (
	// event is an event with a story: credited, found again by everything that names it.
	event = "810000000000000000"
	// eventOfDeadLetter is the dead letter that a walk mends, of unknownProduct.
	eventOfDeadLetter = "820000000000000000"
	unknownProduct    = "700000000000000991"
	buyer             = "uid-of-buyer-0"
	buyersCustomer    = "830000000000000000"
	payNowOrder       = "840000000000000000"
	period            = "2026-03"
	journalEvent      = "dev-invoice"
	shopOrder         = "dev-shop-order"
	payment           = "dev-payment"
	usageOf           = "dev-subscription"
)

// notification is an event type whose service is not asked what it knows, so that its failures follow each
// other.
const notification = "notification.email.order_confirmed"

// longID is an id as long as an id may be.
var longID = "x" + strings.Repeat("-an-id-without-end", 7) + "y"

// longWhy is a reason without a place to break it.
var longWhy = "because " + strings.Repeat("itgoesonandonwithoutaplacetobreakit", 8)

// markup is text that a page must show and not obey.
const markup = `<b onmouseover="alert(1)">&amp;</b><script>alert(1)</script>`

func (s *shop) fill(t *testing.T) {
	t.Helper()
	for _, step := range []func(*testing.T){
		s.remember, s.manage, s.sample, s.sell, s.fail, s.keepWaiting,
		s.operate,
	} {
		step(t)
	}
	// The worker's tasks count and seal what there is, but for those that would end what is to be seen.
	for _, name := range slices.DeleteFunc(slices.Clone(tasks.Names), func(name string) bool {
		return name == "run-operations"
	}) {
		_, err := s.Task(t.Context(), name)
		require.NoError(t, err, name)
	}
	until(t, s, "/v1/ops/queues", func(all queues.Queues) bool { // the worker tells of its breaker
		return slices.ContainsFunc(all.Items, func(q queues.Queue) bool { return len(q.Breakers) > 0 })
	})
}

// remember has a worker of the past count what it did in each hour of a day, and in one of each day of a
// month.
func (s *shop) remember(t *testing.T) {
	t.Helper()
	now := time.Now().UTC()
	var at time.Time
	counted := rates.NewRecorder(rates.Config{
		Store: s.Store, Self: rates.Service{
			Instance: "worker-of-the-past", Name: "worker", Version: "v0.9.0", StartedAt: now.AddDate(0, 0, -30),
		}, Now: func() time.Time { return at },
	})
	for i := range 29 + 24 {
		times := 1
		if at = now.Add(time.Duration(i-29-24) * time.Hour); i < 29 {
			at, times = now.AddDate(0, 0, i-30), 24 // for the whole of its day
		}
		for place, q := range s.catalog.Queues {
			for n := range times * (5 + (i*7+place*3)%40) {
				counted.Arrived(q.ID)
				end := retry.Processed
				if place%4 == 0 && n%9 == 0 {
					end = retry.DeadLettered
				}
				counted.Ended(q.ID, end, 1)
			}
		}
		require.NoError(t, counted.Flush(t.Context()))
	}
}

func (s *shop) manage(t *testing.T) {
	t.Helper()
	pieces := int64(40)
	var partner endpoints.Secret
	for _, change := range []struct {
		who, method, path string
		question, answer  any
	}{
		{
			"ada", http.MethodPut, "/v1/ops/stock/" + samples.Product, orders.SetStock{
				Available: &pieces, Edit: console.Edit{Change: console.Change{Why: "they have come in"}},
			}, nil,
		},
		{"ada", http.MethodPost, "/v1/ops/endpoints", endpoints.AddEndpoint{
			ID: samples.Partner, URL: s.ServiceURL + standin.PartnerPath, Events: []string{"invoice.#"},
			Change: console.Change{Why: "the contract is signed"},
		}, &partner},
		{
			"ada", http.MethodPut, "/v1/ops/products/700000000000000995", products.SetProduct{
				Points: 500, Edit: console.Edit{Change: console.Change{Why: "sold since today"}},
			}, nil,
		},
		{
			"grace", http.MethodPut, "/v1/ops/products/700000000000000995",
			products.SetProduct{Points: 750, Edit: console.Edit{Change: console.Change{Why: longWhy}}},
			nil,
		},
		{
			"ada", http.MethodPut, "/v1/ops/products/700000000000000996",
			products.SetProduct{Points: 1, Edit: console.Edit{Change: console.Change{Why: markup}}},
			nil,
		},
		{"ada", http.MethodDelete, "/v1/ops/products/700000000000000996", console.Change{Why: "sold out"}, nil},
		{
			"ada", http.MethodPut, "/v1/ops/customers/890000000000000001",
			map[string]string{"uid": "uid-of-buyer-1", "why": "they have written to us"},
			nil,
		},
		{"grace", http.MethodPost, "/v1/ops/endpoints", endpoints.AddEndpoint{
			ID: longID[:100], URL: s.ServiceURL + "/" + strings.Repeat("a-long-way/", 12),
			Events: []string{"order.#", "invoice.#", "a.pattern.of.many.words.*"},
			Change: console.Change{Why: markup},
		}, nil},
		{
			"grace", http.MethodPost, "/v1/ops/endpoints/" + longID[:100] + "/disable",
			console.Change{Why: longWhy},
			nil,
		},
		{
			"ada", http.MethodPost, "/v1/ops/journal/periods/2026-02/close",
			console.Change{Why: "the books are done"},
			nil,
		},
		{
			"ada", http.MethodPost, "/v1/ops/queues/" + s.queueOf("usage_sync").ID + "/pause",
			console.Change{Why: "the platform is being mended"},
			nil,
		},
	} {
		s.as(t, change.who, change.method, change.path, change.question, change.answer)
	}
	require.NoError(t, s.Service.Trust(partner.Secret))
}

func (s *shop) sample(t *testing.T) {
	t.Helper()
	for _, one := range []struct{ sample, eventType, event string }{
		{samples.Trial, "trial", "dev-trial"},
		{samples.Renewal, "renewal", "dev-renewal"},
		{samples.Refunds, "refund", "dev-refund-again"},
		{samples.OrderCreated, "order.created", "dev-order-created"},
		{samples.OrderPayment, "order.payment_confirmed", "dev-order-payment"},
		{samples.Usage, "usage_tracking", "dev-usage"},
		{samples.InvoicePaid, "billing.invoice.paid", journalEvent},
		{samples.OrderConfirmed, "order.confirmed", "dev-order-confirmed"},
		{samples.Products, "product.updated", "dev-product-bad"},
		{samples.WebhookDelivery, "webhook_delivery", "dev-webhook"},
	} {
		s.post(t, s.queueOf(one.eventType), samples.Request(one.sample))
		s.ended(t, one.event)
	}
	for _, name := range []string{samples.SubscriptionActivated, samples.SubscriptionRenewed, samples.TrialActivated} {
		s.send(t, samples.Read(name, samples.Event{}))
	}
}

// order is the n-th of some orders, whose ids begin with a number of two digits.
func order(ids string, n int, product string) e2e.Order {
	last := fmt.Sprintf("%016d", n)
	return e2e.Order{
		EventID: ids + last, OrderID: "84" + last, CustomerID: fmt.Sprintf("83%016d", n%buyers),
		UID:   fmt.Sprint("uid-of-buyer-", n%buyers),
		Lines: []e2e.Line{{Product: product, Quantity: int64(1 + n%3), Price: 1000}},
	}
}

// sell sells what is known, a part of which is refunded, and what nobody knows: dead letters.
func (s *shop) sell(t *testing.T) {
	t.Helper()
	var all []string
	for n := range soldOrders {
		o := order("81", n, e2e.Product)
		all = append(all, o.EventID)
		s.send(t, o.JSON())
	}
	for n := range badOrders {
		o := order("82", n, unknownProduct)
		o.OrderID = "86" + o.OrderID[2:]
		if n > 0 {
			o.Lines[0].Product = fmt.Sprint("70000000000000092", n%4)
		}
		all = append(all, o.EventID)
		s.send(t, o.JSON())
	}
	s.ended(t, all...)
	refund := e2e.Refund{
		EventID: "850000000000000000", RefundID: "1", OrderID: payNowOrder, CustomerID: buyersCustomer,
		Amount: 500, Paid: 1000,
	}
	s.send(t, refund.JSON())
	s.ended(t, refund.EventID)
}

// fail has the services that are called refuse, also what is as long as it may be, and one of them fail until
// its breaker is open.
func (s *shop) fail(t *testing.T) {
	t.Helper()
	all := []string{longID[:128]}
	for n := range refusals {
		all = append(all, fmt.Sprint("refused-", n))
	}
	for _, refused := range all {
		require.NoError(t, s.Service.Behave(refused, standin.Refuse, 10))
		s.put(t, refused, "cancellation", map[string]any{"subscription_id": refused},
			map[string]any{"correlation_id": refused})
	}
	for n := range failures {
		failing := fmt.Sprint("failing-", n)
		require.NoError(t, s.Service.Behave(failing, standin.Fail, 1000))
		s.put(t, failing, notification, map[string]any{"user_id": "dev-user", "order_id": shopOrder}, nil)
	}
	for n := range 3 {
		refund := fmt.Sprint("refund-that-fails-", n)
		require.NoError(t, s.Gateway.Behave("payment-"+refund, standin.Fail, 4))
		s.put(t, refund, "refund", map[string]any{"payment_id": "payment-" + refund},
			map[string]any{"max_attempts": 2})
		all = append(all, refund)
	}
	s.ended(t, all...)
}

// keepWaiting leaves refunds to wait for their orders, and messages in a queue that is paused.
func (s *shop) keepWaiting(t *testing.T) {
	t.Helper()
	for n := range paused {
		s.put(t, fmt.Sprint("usage-", n), "usage_sync", map[string]any{"subscription_id": fmt.Sprint("s-", n)}, nil)
		refund := e2e.Refund{
			EventID: fmt.Sprintf("87%016d", n), RefundID: "1", OrderID: fmt.Sprintf("88%016d", n),
			CustomerID: buyersCustomer, Amount: 100, Paid: 1000,
		}
		s.send(t, refund.JSON())
	}
}

func (s *shop) operate(t *testing.T) {
	t.Helper()
	orders, money, updates := s.queueOf("order.paid").ID, s.queueOf("refund").ID, s.queueOf("cancellation").ID
	for _, one := range []struct {
		kind              deadletter.Kind
		queue, event, why string
		who, then         string
	}{
		{deadletter.Replay, orders, "820000000000000104", markup, "ada", "run"},
		{deadletter.Discard, updates, "refused-0", longWhy, "ada", "run"},
		{deadletter.Replay, updates, "refused-1", "tried too early", "ada", "cancel"},
		{deadletter.Replay, money, "refund-that-fails-0", "the gateway is back", "", ""},
		{deadletter.Discard, money, "refund-that-fails-1", "it was paid by hand", "grace", "reject"},
		{deadletter.Discard, updates, "refused-2", "nobody waits for it", "", ""},
	} {
		deadLetters := "/v1/ops/dead-letters/preview?queue=" + one.queue + "&event_id=" + one.event
		until(t, s, deadLetters, func(p deadletters.Preview) bool { return p.Total == 1 })
		var op bulk.Operation
		s.as(t, "ada", http.MethodPost, "/v1/ops/dead-letters/"+string(one.kind), bulk.Begin{
			Filter: bulk.Filter{Queue: one.queue, EventID: one.event}, Change: console.Change{Why: one.why}, Expect: 1,
		}, &op)
		if one.then != "" {
			why := map[string]string{"why": "somebody has looked at it"}
			if one.then == "run" {
				clear(why)
			}
			s.as(t, one.who, http.MethodPost, "/v1/ops/operations/"+op.ID+"/"+one.then, why, nil)
		}
	}
}
