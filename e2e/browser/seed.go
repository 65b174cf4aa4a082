package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"billhook/e2e"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/pause"
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

// What pages are shown about.
const (
	// event is an event with a story: credited, found again by everything that names it.
	event = "810000000000000000"
	// eventOfLetter is the dead letter that a walk mends, of unknownProduct.
	eventOfLetter  = "820000000000000000"
	unknownProduct = "700000000000000991"
	buyer          = "uid-of-buyer-0"
	buyersCustomer = "830000000000000000"
	payNowOrder    = "840000000000000000"
	period         = "2026-03"
	journalEvent   = "dev-invoice"
	shopOrder      = "dev-shop-order"
	payment        = "dev-payment"
	usageOf        = "dev-subscription"
)

// notification is an event type whose service is not asked what it knows, so that its failures follow each other.
const notification = "notification.email.order_confirmed"

// longID is an id as long as an id may be.
var longID = "x" + strings.Repeat("-an-id-without-end", 7) + "y"

// longWhy is a reason without a place to break it.
var longWhy = "because " + strings.Repeat("itgoesonandonwithoutaplacetobreakit", 8)

// markup is text that a page must show and not obey.
const markup = `<b onmouseover="alert(1)">&amp;</b><script>alert(1)</script>`

// fill has much happen in an empty shop, by its doors and its API alone.
func (s *shop) fill(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		s.remember, s.sample, s.sell, s.sellUnknown, s.fail, s.insist, s.keepWaiting, s.manage, s.operate, s.settle,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// remember has a worker of the past count what it did in each hour of a day, and in one of each day of a month.
func (s *shop) remember(ctx context.Context) error {
	now := time.Now().UTC()
	var at time.Time
	counted := rates.NewRecorder(rates.Config{Store: s.Store, Self: rates.Service{Instance: "worker-of-the-past", Service: "worker", Version: "v0.9.0", StartedAt: now.AddDate(0, 0, -30)}, Now: func() time.Time { return at }})
	const days = 29
	var hours []time.Time
	for day := range days {
		hours = append(hours, now.AddDate(0, 0, day-days-1))
	}
	for hour := range 24 {
		hours = append(hours, now.Add(time.Duration(hour-24)*time.Hour))
	}
	for i, hour := range hours {
		at = hour
		times := 1
		if i < days { // for the whole of its day
			times = 24
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
		if err := counted.Flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sample sends what `billhook dev` sends, each to the queue of its event type.
func (s *shop) sample(ctx context.Context) error {
	pieces := int64(40)
	if err := s.as(ctx, "ada", http.MethodPut, "/v1/ops/stock/"+samples.Product, ops.SetStock{Available: &pieces, Change: orders.Change{Why: "they have come in"}}, nil); err != nil {
		return err
	}
	var partner endpoints.Secret
	if err := s.as(ctx, "ada", http.MethodPost, "/v1/ops/endpoints", ops.AddEndpoint{
		New: endpoints.New{ID: samples.Partner, URL: s.ServiceURL + standin.PartnerPath, Events: []string{"invoice.#"}}, Change: endpoints.Change{Why: "the contract is signed"},
	}, &partner); err != nil {
		return err
	}
	if err := s.Service.Trust(partner.Secret); err != nil {
		return err
	}
	for _, one := range []struct{ sample, eventType, event string }{
		{samples.Trial, "trial", "dev-trial"}, {samples.Renewal, "renewal", "dev-renewal"}, {samples.Refunds, "refund", "dev-refund-again"},
		{samples.OrderCreated, "order.created", "dev-order-created"}, {samples.OrderPayment, "order.payment_confirmed", "dev-order-payment"},
		{samples.Usage, "usage_tracking", "dev-usage"}, {samples.InvoicePaid, "billing.invoice.paid", journalEvent},
		{samples.OrderConfirmed, "order.confirmed", "dev-order-confirmed"}, {samples.Products, "product.updated", "dev-product-bad"},
		{samples.WebhookDelivery, "webhook_delivery", "dev-webhook"},
	} {
		if err := s.post(ctx, s.queueOf(one.eventType), samples.Request(one.sample)); err != nil {
			return err
		}
		if err := s.ended(ctx, one.event); err != nil {
			return fmt.Errorf("sample %s: %w", one.sample, err)
		}
	}
	for _, name := range []string{samples.SubscriptionActivated, samples.SubscriptionRenewed, samples.TrialActivated} {
		if err := s.send(ctx, samples.Read(name, samples.Event{})); err != nil {
			return err
		}
	}
	return nil
}

// order is the n-th of some orders, whose ids begin with a number of two digits.
func order(ids string, n int, product string) e2e.Order {
	last := fmt.Sprintf("%016d", n)
	return e2e.Order{
		EventID: ids + last, OrderID: "84" + last, CustomerID: fmt.Sprintf("83%016d", n%buyers), UID: fmt.Sprint("uid-of-buyer-", n%buyers),
		Lines: []e2e.Line{{Product: product, Quantity: int64(1 + n%3), Price: 1000}},
	}
}

func (s *shop) sell(ctx context.Context) error {
	var sold []string
	for n := range soldOrders {
		o := order("81", n, e2e.Product)
		sold = append(sold, o.EventID)
		if err := s.send(ctx, o.JSON()); err != nil {
			return err
		}
	}
	refund := e2e.Refund{EventID: "850000000000000000", RefundID: "1", OrderID: payNowOrder, CustomerID: buyersCustomer, Amount: 500, Paid: 1000}
	if err := s.ended(ctx, sold...); err != nil {
		return err
	}
	if err := s.send(ctx, refund.JSON()); err != nil {
		return err
	}
	return s.ended(ctx, refund.EventID)
}

// sellUnknown sells what nobody knows: dead letters.
func (s *shop) sellUnknown(ctx context.Context) error {
	var refused []string
	for n := range badOrders {
		o := order("82", n, unknownProduct)
		o.OrderID = "86" + o.OrderID[2:]
		if n > 0 {
			o.Lines[0].Product = fmt.Sprint("70000000000000092", n%4)
		}
		refused = append(refused, o.EventID)
		if err := s.send(ctx, o.JSON()); err != nil {
			return err
		}
	}
	return s.ended(ctx, refused...)
}

// fail has the services that are called refuse, and one of them fail until its breaker is open.
func (s *shop) fail(ctx context.Context) error {
	var all []string
	for n := range refusals {
		refused := fmt.Sprint("refused-", n)
		all = append(all, refused)
		if err := s.Service.TellOf(refused, standin.Refuse, 10); err != nil {
			return err
		}
		if err := s.put(ctx, refused, "cancellation", map[string]any{"subscription_id": fmt.Sprint("s-", n)}, nil); err != nil {
			return err
		}
	}
	for n := range failures {
		failing := fmt.Sprint("failing-", n)
		if err := s.Service.TellOf(failing, standin.Fail, 1000); err != nil {
			return err
		}
		if err := s.put(ctx, failing, notification, map[string]any{"user_id": "dev-user", "order_id": shopOrder}, nil); err != nil {
			return err
		}
	}
	for n := range 3 {
		refund := fmt.Sprint("refund-that-fails-", n)
		if err := s.Gateway.Tell(standin.FailOrder, 4, "payment-"+refund); err != nil {
			return err
		}
		if err := s.put(ctx, refund, "refund", map[string]any{"payment_id": "payment-" + refund}, map[string]any{"max_attempts": 2}); err != nil {
			return err
		}
		all = append(all, refund)
	}
	return s.ended(ctx, all...)
}

// insist sends what is as long as it may be.
func (s *shop) insist(ctx context.Context) error {
	long := longID[:128]
	if err := s.Service.TellOf(long, standin.Refuse, 10); err != nil {
		return err
	}
	if err := s.put(ctx, long, "cancellation", map[string]any{"subscription_id": long}, map[string]any{"correlation_id": long}); err != nil {
		return err
	}
	return s.ended(ctx, long)
}

// keepWaiting leaves refunds to wait for their orders, and messages in a queue that is paused.
func (s *shop) keepWaiting(ctx context.Context) error {
	q := s.queueOf("usage_sync")
	if err := s.as(ctx, "ada", http.MethodPost, "/v1/ops/queues/"+q.ID+"/pause", pause.Change{Why: "the platform is being mended"}, nil); err != nil {
		return err
	}
	for n := range paused {
		if err := s.put(ctx, fmt.Sprint("usage-", n), "usage_sync", map[string]any{"subscription_id": fmt.Sprint("s-", n)}, nil); err != nil {
			return err
		}
		refund := e2e.Refund{EventID: fmt.Sprintf("87%016d", n), RefundID: "1", OrderID: fmt.Sprintf("88%016d", n), CustomerID: buyersCustomer, Amount: 100, Paid: 1000}
		if err := s.send(ctx, refund.JSON()); err != nil {
			return err
		}
	}
	return nil
}

// manage changes what people change, some of it with reasons that a page must show and not obey.
func (s *shop) manage(ctx context.Context) error {
	for _, change := range []struct {
		who, method, path string
		question          any
	}{
		{"ada", http.MethodPut, "/v1/ops/products/700000000000000995", ops.SetProduct{Points: 500, Change: products.Change{Why: "sold since today"}}},
		{"grace", http.MethodPut, "/v1/ops/products/700000000000000995", ops.SetProduct{Points: 750, Change: products.Change{Why: longWhy}}},
		{"ada", http.MethodPut, "/v1/ops/products/700000000000000996", ops.SetProduct{Points: 1, Change: products.Change{Why: markup}}},
		{"ada", http.MethodDelete, "/v1/ops/products/700000000000000996", products.Change{Why: "sold out"}},
		{"ada", http.MethodPut, "/v1/ops/customers/890000000000000001", customers.Change{UID: "uid-of-buyer-1", Why: "they have written to us"}},
		{"grace", http.MethodPost, "/v1/ops/endpoints", ops.AddEndpoint{New: endpoints.New{
			ID: longID[:100], URL: s.ServiceURL + "/" + strings.Repeat("a-long-way/", 12), Events: []string{"order.#", "invoice.#", "a.pattern.of.many.words.*"},
		}, Change: endpoints.Change{Why: markup}}},
		{"grace", http.MethodPost, "/v1/ops/endpoints/" + longID[:100] + "/disable", endpoints.Change{Why: longWhy}},
		{"ada", http.MethodPost, "/v1/ops/journal/periods/2026-02/close", journal.Change{Why: "the books are done"}},
	} {
		if err := s.as(ctx, change.who, change.method, change.path, change.question, nil); err != nil {
			return err
		}
	}
	return nil
}

// begin begins an operation on dead letters of an event.
func (s *shop) begin(ctx context.Context, kind deadletter.Kind, by ops.Request) (op deadletter.Operation, err error) {
	query := url.Values{"queue": {by.Queue}}
	for name, value := range map[string]string{"event_id": by.EventID, "reason": by.Reason} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var preview deadletter.Preview
	if err := s.until(ctx, "dead letters of "+by.EventID, func() (bool, error) {
		err := s.get(ctx, "/v1/ops/dead-letters/preview?"+query.Encode(), &preview)
		return err == nil && preview.Total > 0, err
	}); err != nil {
		return op, err
	}
	by.Expect = preview.Total
	return op, s.as(ctx, "ada", http.MethodPost, "/v1/ops/dead-letters/"+string(kind), by, &op)
}

// operate leaves one operation of each progress.
func (s *shop) operate(ctx context.Context) error {
	orders, money, updates := s.queueOf("order.paid").ID, s.queueOf("refund").ID, s.queueOf("cancellation").ID
	path := "/v1/ops/operations/"
	for _, one := range []struct {
		kind deadletter.Kind
		by   ops.Request
		then []string
	}{
		{deadletter.Replay, ops.Request{Filter: deadletter.Filter{Queue: orders, EventID: "820000000000000104"}, Why: markup}, []string{"run"}},
		{deadletter.Discard, ops.Request{Filter: deadletter.Filter{Queue: updates, EventID: "refused-0"}, Why: longWhy}, []string{"run"}},
		{deadletter.Replay, ops.Request{Filter: deadletter.Filter{Queue: updates, EventID: "refused-1"}, Why: "tried too early"}, []string{"cancel"}},
		{deadletter.Replay, ops.Request{Filter: deadletter.Filter{Queue: money, EventID: "refund-that-fails-0"}, Why: "the gateway is back"}, nil},
		{deadletter.Discard, ops.Request{Filter: deadletter.Filter{Queue: money, EventID: "refund-that-fails-1"}, Why: "it was paid by hand"}, []string{"reject"}},
		{deadletter.Discard, ops.Request{Filter: deadletter.Filter{Queue: updates, EventID: "refused-2"}, Why: "nobody waits for it"}, nil},
	} {
		op, err := s.begin(ctx, one.kind, one.by)
		if err != nil {
			return err
		}
		for _, step := range one.then {
			who, why := "ada", map[string]string{"why": "somebody has looked at it"}
			switch step {
			case "run":
				why = map[string]string{}
			case "reject":
				who = "grace"
			}
			if err := s.as(ctx, who, http.MethodPost, path+op.ID+"/"+step, why, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle lets the worker's tasks count and seal what there is, but for those that would end what is to be seen. Then it
// waits until the worker has told of its breaker.
func (s *shop) settle(ctx context.Context) error {
	for _, name := range tasks.Names {
		if name == "run-operations" {
			continue
		}
		if err := s.tasks(ctx, name); err != nil {
			return err
		}
	}
	return s.until(ctx, "an open breaker", func() (bool, error) {
		var queues ops.Queues
		err := s.get(ctx, "/v1/ops/queues", &queues)
		return slices.ContainsFunc(queues.Items, func(q ops.Queue) bool { return len(q.Breakers) > 0 }), err
	})
}
