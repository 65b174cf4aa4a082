package browser

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/endpoints"
	"billhook/internal/filetest"
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

// The size of a full shop: more than a page of dead letters, and of orders.
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
	// event is credited, and found by every id in it.
	event = "810000000000000000"
	// eventOfDeadLetter is an order of unknownProduct.
	eventOfDeadLetter = "820000000000000000"
	unknownProduct    = "700000000000000991"
	buyer             = "uid-of-buyer-0"
	buyersCustomer    = "830000000000000000"
	period            = "2026-03"
	shopOrder         = "dev-shop-order"
	payment           = "dev-payment"
	usageOf           = "dev-subscription"
)

// notification is an event type that is not reconciled, so that each attempt fails.
const notification = "notification.email.order_confirmed"

// longID is an id of the greatest length.
var longID = "x" + strings.Repeat("-an-id-without-end", 7) + "y"

// longWhy is a reason without a place to break it.
var longWhy = "because " + strings.Repeat("itgoesonandonwithoutaplacetobreakit", 8)

// markup is text that a page must show and not obey.
const markup = `<b onmouseover="alert(1)">&amp;</b><script>alert(1)</script>`

func (s *shop) fill(t *testing.T) {
	t.Helper()
	steps := []func(*testing.T){s.remember, s.manage, s.sample, s.sell, s.fail, s.keepWaiting, s.operate}
	for _, step := range steps {
		step(t)
	}
	for _, name := range tasks.Names {
		if name != "run-operations" { // some operations have to stay open
			require.NoError(t, filetest.ErrorOf(s.Task(t.Context(), name)), name)
		}
	}
	until(t, s, "/v1/ops/queues", func(all queues.Queues) bool { // the worker has reported its breaker
		return slices.ContainsFunc(all.Items, func(q queues.Queue) bool { return len(q.Breakers) > 0 })
	})
}

// remember records the rates of an earlier worker, of each hour of a day, and of each day of a month.
func (s *shop) remember(t *testing.T) {
	t.Helper()
	now, at := time.Now().UTC(), time.Time{}
	earlier := rates.Service{
		Instance: "earlier-worker", Name: "worker", Version: "v0.9.0", StartedAt: now.AddDate(0, 0, -30),
	}
	counted := rates.NewRecorder(
		rates.Config{Store: s.Store, Self: earlier, Now: func() time.Time { return at }})
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
	var partner endpoints.Secret
	for _, change := range []struct {
		who, method, path, why string
		question               members // besides the reason
		answer                 any
	}{
		{"ada", http.MethodPut, "stock/" + samples.Product, "they have come in", members{"available": 40}, nil},
		{"ada", http.MethodPost, "endpoints", "the contract is signed", members{
			"id": samples.Partner, "url": s.ServiceURL + standin.PartnerPath, "events": []string{"invoice.#"},
		}, &partner},
		{"ada", http.MethodPut, "products/700000000000000995", "sold since today", members{"points": 500}, nil},
		{"grace", http.MethodPut, "products/700000000000000995", longWhy, members{"points": 750}, nil},
		{"ada", http.MethodPut, "products/700000000000000996", markup, members{"points": 1}, nil},
		{"ada", http.MethodDelete, "products/700000000000000996", "sold out", nil, nil},
		{
			"ada", http.MethodPut, "customers/890000000000000001", "they have written to us",
			members{"uid": "uid-of-buyer-1"},
			nil,
		},
		{"grace", http.MethodPost, "endpoints", markup, members{
			"id": longID[:100], "url": s.ServiceURL + "/" + strings.Repeat("a-long-path/", 11),
			"events": []string{"order.#", "invoice.#", "a.pattern.of.many.words.*"},
		}, nil},
		{"grace", http.MethodPost, "endpoints/" + longID[:100] + "/disable", longWhy, nil, nil},
		{"ada", http.MethodPost, "journal/periods/2026-02/close", "the books are done", nil, nil},
		{"ada", http.MethodPost, "queues/" + s.queueOf("usage_sync").ID + "/pause", "maintenance", nil, nil},
	} {
		question := members{"why": change.why}
		maps.Copy(question, change.question)
		s.as(t, change.who, change.method, "/v1/ops/"+change.path, question, change.answer)
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
		{samples.InvoicePaid, "billing.invoice.paid", "dev-invoice"},
		{samples.OrderConfirmed, "order.confirmed", "dev-order-confirmed"},
		{samples.Products, "product.updated", "dev-product-bad"},
		{samples.WebhookDelivery, "webhook_delivery", "dev-webhook"},
	} {
		s.post(t, s.queueOf(one.eventType), samples.Request(one.sample))
		s.ended(t, one.event)
	}
	subscribed := []string{samples.SubscriptionActivated, samples.SubscriptionRenewed, samples.TrialActivated}
	for _, name := range subscribed {
		s.send(t, samples.Read(name, samples.Event{}))
	}
}

// order is the n-th of the orders whose ids begin with two digits.
func order(ids string, n int, product string) e2e.Order {
	last := fmt.Sprintf("%016d", n)
	return e2e.Order{
		EventID: ids + last, OrderID: "84" + last, CustomerID: fmt.Sprintf("83%016d", n%buyers),
		UID:   fmt.Sprint("uid-of-buyer-", n%buyers),
		Lines: []e2e.Line{{Product: product, Quantity: int64(1 + n%3), Price: 1000}},
	}
}

// sell sends orders of known products, a part of one of which is refunded, and of unknown ones.
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
	s.send(t, order("81", 0, e2e.Product).Refund("850000000000000000", 500))
	s.ended(t, "850000000000000000")
}

// fail has services refuse events, one with the longest id, and one service fail until its breaker opens.
func (s *shop) fail(t *testing.T) {
	t.Helper()
	all := []string{longID[:128]}
	for n := range refusals {
		all = append(all, fmt.Sprint("refused-", n))
	}
	for _, refused := range all {
		require.NoError(t, s.Service.Behave(refused, standin.Refuse, 10))
		s.put(t, refused, "cancellation", members{"subscription_id": refused}, members{"correlation_id": refused})
	}
	for n := range failures {
		failing := fmt.Sprint("failing-", n)
		require.NoError(t, s.Service.Behave(failing, standin.Fail, 1000))
		s.put(t, failing, notification, members{"user_id": "dev-user", "order_id": shopOrder}, nil)
	}
	for n := range 3 {
		refund := fmt.Sprint("refund-that-fails-", n)
		require.NoError(t, s.Gateway.Behave("payment-"+refund, standin.Fail, 4))
		s.put(t, refund, "refund", members{"payment_id": "payment-" + refund}, members{"max_attempts": 2})
		all = append(all, refund)
	}
	s.ended(t, all...)
}

// keepWaiting leaves refunds that wait for their orders, and messages of a paused queue.
func (s *shop) keepWaiting(t *testing.T) {
	t.Helper()
	for n := range paused {
		s.put(t, fmt.Sprint("usage-", n), "usage_sync", members{"subscription_id": fmt.Sprint("s-", n)}, nil)
		o := order("87", 0, e2e.Product)
		o.OrderID = fmt.Sprintf("88%016d", n)
		s.send(t, o.Refund(fmt.Sprintf("87%016d", n), 100))
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
		begin := members{"queue": one.queue, "event_id": one.event, "why": one.why, "expect": 1}
		s.as(t, "ada", http.MethodPost, "/v1/ops/dead-letters/"+string(one.kind), begin, &op)
		if one.then != "" {
			question := members{"why": "somebody has looked at it"}
			if one.then == "run" {
				clear(question)
			}
			s.as(t, one.who, http.MethodPost, "/v1/ops/operations/"+op.ID+"/"+one.then, question, nil)
		}
	}
}
