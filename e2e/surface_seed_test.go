package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/internal/apps/endpoints"
	"billhook/internal/console"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store/storetest"
)

// seed has the stack do a bit of everything, one after the other, and records every answer.
func (r *surface) seed() {
	parts := []func(){
		r.manage, r.webhooks, r.refusals, r.messages, r.failures, r.waiting, r.operations, r.tasks,
	}
	for _, part := range parts {
		part()
		r.settled()
	}
}

// later are the types of events that this stack does not handle, or not in the next minutes.
var later = regexp.MustCompile(`^fis\.journal\.|^order\.payment_timeout$`)

// settled waits until each event that has a record, and each that it has emitted, has ended.
func (r *surface) settled() {
	r.t.Helper()
	ended := func(id string) bool {
		return slices.ContainsFunc(r.log.Deliveries(id), func(d e2e.Delivery) bool {
			return slices.Contains([]string{"processed", "dead_lettered", "duplicate"}, d.Outcome)
		})
	}
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		for _, doc := range storetest.All(c, r.store, dedupe.Collection) {
			record := filetest.Must(dedupe.FromDocument(doc))(c)
			open := record.Status != dedupe.Completed && record.Status != dedupe.DeadLettered
			id := record.EventID
			for _, e := range record.Emitted {
				done := later.MatchString(e.EventType) || ended(e.EventID)
				require.True(c, done, "%s has emitted %s: %v", id, e.EventType, r.log.Deliveries(e.EventID))
			}
			waits := slices.Contains(r.waits, id)
			require.True(c, !open || waits, "%s is %s and has emitted %v", id, record.Status, record.Emitted)
		}
	}, patience, 20*time.Millisecond)
}

// answered records an answer.
func (r *surface) answered(file, what string, got e2e.Answer) {
	entry := map[string]any{"what": what, "status": got.Status, "answer": content([]byte(got.Body))}
	if got.RetryAfter != "" {
		entry["retry_after"] = got.RetryAfter
	}
	r.seen(file, entry)
}

// webhook sends a body as PayNow does.
func (r *surface) webhook(what string, body []byte, more ...func(*http.Request)) {
	r.t.Helper()
	request := filetest.Must(e2e.Webhook(r.t.Context(), r.webhookURL, body))(r.t)
	for _, change := range more {
		change(request)
	}
	r.answered("answers/webhooks", what, filetest.Must(e2e.Do(request, nil))(r.t))
}

// message sends a body to the addresses for producers.
func (r *surface) message(what, path, body string) {
	r.t.Helper()
	r.answered("answers/messages", what, r.signed(r.t, path, body))
}

// does calls the API as a person, records the answer, and puts it into answer.
func (r *surface) does(who, method, path string, question, answer any) {
	r.t.Helper()
	got := r.as(r.t, who, method, path, question, answer)
	r.answered("answers/people", who+" "+method+" "+path, got)
}

// manage changes what people may change.
func (r *surface) manage() {
	const why = "the recording shows it"
	type members = map[string]any
	put := func(who, path string, question members) {
		r.does(who, http.MethodPut, "/v1/ops/"+path, question, nil)
	}
	put("ada", "stock/"+samples.Product, members{"available": 40, "why": why})
	put("ada", "products/700000000000000995", members{"points": 500, "why": why})
	put("grace", "products/700000000000000995", members{"points": 750, "why": why})
	put("grace", "products/700000000000000996", members{"points": 1, "why": why})
	r.does("grace", http.MethodDelete, "/v1/ops/products/700000000000000996", console.Change{Why: why}, nil)
	var partner endpoints.Secret
	r.does("ada", http.MethodPost, "/v1/ops/endpoints", endpoints.AddEndpoint{
		ID: samples.Partner, URL: r.serviceURL + standin.PartnerPath, Events: []string{"invoice.#"},
		Change: console.Change{Why: why},
	}, &partner)
	require.NoError(r.t, r.service.Trust(partner.Secret))
	r.does("ada", http.MethodPost, "/v1/ops/endpoints", endpoints.AddEndpoint{
		ID: "other", URL: r.serviceURL + "/other", Events: []string{"order.#"}, Change: console.Change{Why: why},
	}, nil)
	r.does("ada", http.MethodPost, "/v1/ops/endpoints/other/disable", console.Change{Why: why}, nil)
	put("ada", "customers/890000000000000001", members{"uid": "uid-of-buyer-1", "why": why})
	r.does("ada", http.MethodPost, "/v1/ops/journal/periods/2026-02/close", console.Change{Why: why}, nil)
}

// webhooks sends each sample of PayNow, and the kinds of events that are not applied twice.
func (r *surface) webhooks() {
	for i, name := range samples.Names() {
		id := fmt.Sprint(910000000000000000 + i)
		r.webhook(name, samples.Read(name, samples.Event{EventID: id}))
		r.until(r.t, id, map[bool]string{false: "processed", true: "dead_lettered"}[name == samples.UnknownProduct])
		r.settled()
	}
	order := samples.Event{EventID: "910000000000000000"}
	r.webhook("the same once more", samples.Read(samples.OrderCompleted, order))
	r.until(r.t, order.EventID, "duplicate")
	order.OrderID = "502113004410990777"
	r.webhook("another order under its id", samples.Read(samples.OrderCompleted, order))
	r.until(r.t, order.EventID, "dead_lettered")
	guest := e2e.Order{
		EventID: "920000000000000001", OrderID: "920000000000000002", CustomerID: "920000000000000003",
		Lines: []e2e.Line{{Product: e2e.Product, Quantity: 1, Price: 1000}},
	}
	r.webhook("a guest's order", guest.JSON())
	r.until(r.t, guest.EventID, "processed")
	r.does("ada", http.MethodPut, "/v1/ops/customers/"+guest.CustomerID,
		map[string]string{"uid": "uid-of-guest", "why": "they have written to us"}, nil)
}

// refusals sends what the webhook service does not accept.
func (r *surface) refusals() {
	body := samples.Read(samples.OrderCompleted, samples.Event{EventID: "930000000000000001"})
	header := func(name, value string) func(*http.Request) {
		return func(request *http.Request) { request.Header.Set(name, value) }
	}
	unsigned := func(request *http.Request) {
		request.Header = http.Header{"Content-Type": request.Header["Content-Type"]}
	}
	r.webhook("without a signature", body, unsigned)
	r.webhook("by another secret", body, header("Paynow-Signature", "AAAA"))
	r.webhook("long ago", body, header("Paynow-Timestamp", "1"))
	r.webhook("not JSON", []byte(`{"event_type":`))
	r.webhook("an address for an id",
		[]byte(`{"event_type":"ON_ORDER_COMPLETED","event_id":"ilse@example.org","body":{}}`))
	r.webhook("of a type that no queue takes",
		[]byte(`{"event_type":"ON_PAYMENT_FAILED","event_id":"930000000000000002","body":{"id":"1"}}`))
	r.webhook("too large", append(body, bytes.Repeat([]byte(" "), 2<<20)...))
	r.webhook("from nobody", body, func(request *http.Request) { request.URL.Path = "/webhooks/nobody" })
	r.webhook("as text", body, header("Content-Type", "text/plain"))
	r.brokerDown(true)
	r.webhook("while the broker is down", body)
	r.brokerDown(false)
	r.message("for a queue that is not there", "/queues/nowhere", `{}`)
	r.message("for a topic that is not there", "/topics/nowhere", `{}`)
	r.message("not JSON", "/queues/pay-refund-initiation", `{`)
	r.message("without what it needs", "/queues/pay-refund-initiation", envelope("bad-1", "refund", "{}", ""))
	r.message("of a type that the queue does not have", "/queues/pay-refund-initiation",
		envelope("bad-2", "renewal", `{"subscription_id":"s"}`, ""))
	good := envelope("listed-1", "refund", `{"payment_id":"listed","amount":"9.99","currency":"EUR"}`, "")
	bad := envelope("listed-2", "refund", `{"note":"Ilse"}`, "")
	r.message("a list with a bad one", "/queues/pay-refund-initiation",
		`{"messages":[{"message":`+good+`},{"message":`+bad+`}]}`)
	for _, body := range []string{"{", `{"message":{"data":"e30=","attributes":{}},"subscription":"s"}`} {
		url := r.workerURL + "/push/" + e2e.Queue
		got := filetest.Must(e2e.Do(e2e.Request(r.t.Context(), http.MethodPost, url, []byte(body), nil)))(r.t)
		r.answered("answers/pushes", "a push without a token", got)
	}
}

// messages sends a producer's message to each queue, and those of longer stories.
func (r *surface) messages() {
	all := filetest.Must(catalog.Load(r.catalogFolder))(r.t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, q := range all.Queues {
		if q.Enabled {
			body := filetest.Must(samples.Message(all, q, samples.TypeFor(all, q), q.ID, at))(r.t)
			r.message(q.ID, "/queues/"+q.ID, string(body))
			r.until(r.t, samples.IDPrefix+q.ID, "processed")
			r.settled()
		}
	}
	for _, one := range []struct{ sample, path, last string }{
		{samples.Trial, "/queues/sub-trial-payment", "dev-trial"},
		{samples.Renewal, "/queues/sub-payment-initiation", "dev-renewal"},
		{samples.Refunds, "/queues/pay-refund-initiation", "dev-refund-again"},
		{samples.OrderCreated, "/topics/orders", "dev-order-created"},
		{samples.OrderPayment, "/topics/orders", "dev-order-payment"},
		{samples.Usage, "/queues/events-high", "dev-usage"},
		{samples.InvoicePaid, "/topics/fis-events", "dev-invoice"},
		{samples.OrderConfirmed, "/topics/notifications", "dev-order-confirmed"},
		{samples.WebhookDelivery, "/queues/events-low", "dev-webhook"},
	} {
		r.message(one.sample, one.path, string(samples.Request(one.sample)))
		r.until(r.t, one.last, "processed")
		r.settled()
	}
	happens := func(what, topic, id, eventType, data, outcome string) {
		r.message(what, "/topics/"+topic, `{"message":`+platformEvent(id, eventType, data)+`}`)
		r.until(r.t, id, outcome)
	}
	happens("a shipment", "orders", "shipped-1", "order.shipped", `{"order_id":"dev-shop-order"}`, "processed")
	happens("an invoice that is not right", "fis-events", "invoice-2", "billing.invoice.paid",
		`{"invoice_id":"invoice-2","amount":"1.00","currency":"EUR","tax_amount":"19.00"}`, "dead_lettered")
	happens("the invoice, corrected", "fis-events", "invoice-2", "billing.invoice.paid",
		`{"invoice_id":"invoice-2","amount":"20.00","currency":"EUR","tax_amount":"1.00"}`, "processed")
	happens("an invoice is undone", "fis-events", "undone-2", "billing.invoice.reverted",
		`{"reverts":"invoice-2"}`, "processed")
}

// failures has services refuse, fail, forget and decline, and the store fail.
func (r *surface) failures() {
	const update, refund = "/queues/pay-subscription-update", "/queues/pay-refund-initiation"
	for n := range 4 {
		id := fmt.Sprint("refused-", n)
		require.NoError(r.t, r.service.Behave(id, standin.Refuse, 10))
		r.message("that its service refuses", update,
			envelope(id, "cancellation", fmt.Sprintf(`{"subscription_id":"s-%d"}`, n), ""))
		r.until(r.t, id, "dead_lettered")
	}
	for n := range 4 {
		id := fmt.Sprint("fails-", n)
		require.NoError(r.t, r.gateway.Behave("payment-"+id, standin.Fail, 2))
		r.message("whose attempts are used up", refund,
			envelope(id, "refund", fmt.Sprintf(`{"payment_id":"payment-%s"}`, id), `"max_attempts":2,`))
		r.until(r.t, id, "dead_lettered")
	}
	require.NoError(r.t, r.service.Behave("forgotten", standin.Forget, 1))
	r.message("whose answer is lost", update, envelope("forgotten", "renewal", `{"subscription_id":"s-9"}`, ""))
	r.until(r.t, "forgotten", "processed")
	require.NoError(r.t, r.gateway.Behave("s-declined", standin.Decline, 1))
	r.message("whose payment is declined", "/queues/sub-payment-initiation",
		envelope("declined", "upgrade", `{"subscription_id":"s-declined"}`, ""))
	r.until(r.t, "declined", "processed")
	r.settled() // no event before it is in progress
	r.storeDown(true)
	r.message("while the store is down", refund, envelope("unstored", "refund", `{"payment_id":"unstored"}`, ""))
	r.until(r.t, "unstored", "retry")
	r.storeDown(false)
	r.until(r.t, "unstored", "processed")
	attributes := map[string]string{"event_id": "unreadable", "event_type": "refund"}
	m := contract.Message{Data: []byte(`{"id":`), Attributes: attributes}
	require.NoError(r.t, filetest.ErrorOf(r.publish(r.t.Context(), "pay-refund-initiation", m)))
	r.until(r.t, "unreadable", "dead_lettered")
}

// waiting leaves events that wait: a refund for its order, with another order that it does not delay, a
// message that failed, with one behind it, and messages of a paused queue.
func (r *surface) waiting() {
	beside := e2e.Order{
		EventID: "940000000000000004", OrderID: "940000000000000005", CustomerID: "940000000000000003",
		Lines: []e2e.Line{{Product: e2e.Product, Quantity: 1, Price: 1000}},
	}
	refunded := beside
	refunded.OrderID = "940000000000000009"
	const early = "940000000000000001"
	r.waits = append(r.waits, early)
	r.webhook("a refund before its order", refunded.Refund(early, 100))
	r.until(r.t, early, "retry")
	r.webhook("an order of its customer", beside.JSON())
	r.until(r.t, beside.EventID, "processed")
	r.waits = append(r.waits, "first", "behind")
	require.NoError(r.t, r.service.Behave("first", standin.Fail, 1))
	for _, id := range []string{"first", "behind"} {
		r.message("whose gateway fails, or behind it", "/queues/events-high",
			platformEvent(id, "payment_processing", `{"payment_id":"in-turn"}`))
		r.until(r.t, id, "retry")
	}
	r.does("ada", http.MethodPost, "/v1/ops/queues/sub-usage-sync/pause",
		console.Change{Why: "the platform is being mended"}, nil)
	for n := range 2 {
		r.message("for a queue that is paused", "/queues/sub-usage-sync",
			envelope(fmt.Sprint("paused-", n), "usage_sync", `{"subscription_id":"s-1"}`, ""))
	}
	const plans = "/v1/ops/queues/sub-plan-change/"
	r.does("ada", http.MethodPost, plans+"pause", console.Change{Why: "for a moment"}, nil)
	r.does("grace", http.MethodPost, plans+"resume", console.Change{Why: "it is over"}, nil)
}

// operations leaves an operation on dead letters in each state, and names them.
func (r *surface) operations() {
	const updates, money = "pay-subscription-update", "pay-refund-initiation"
	for _, one := range []struct {
		name  string
		kind  deadletter.Kind
		queue string
		event string
		then  []string
	}{
		{"replayed", deadletter.Replay, money, "fails-0", []string{"approve", "run"}},
		{"discarded", deadletter.Discard, updates, "refused-0", []string{"run"}},
		{"completed", deadletter.Complete, updates, "refused-3", []string{"run"}},
		{"cancelled", deadletter.Replay, updates, "refused-1", []string{"cancel"}},
		{"unapproved", deadletter.Replay, money, "fails-1", nil},
		{"rejected", deadletter.Discard, money, "fails-2", []string{"reject"}},
		{"unwanted", deadletter.Discard, money, "fails-3", nil},
		{"open", deadletter.Discard, updates, "refused-2", nil},
	} {
		deadLetter := r.deadLetter(r.t, one.queue, one.event)
		r.names["dead-letter-of-"+one.name] = url.PathEscape(deadLetter.ID)
		var op bulk.Operation
		begin := map[string]any{
			"queue": one.queue, "event_id": one.event, "why": "the recording shows it", "expect": 1,
		}
		r.does("ada", http.MethodPost, "/v1/ops/dead-letters/"+string(one.kind), begin, &op)
		r.names[one.name] = op.ID
		for _, step := range one.then {
			who, question := "ada", map[string]any{"why": "somebody has looked at it"}
			switch step {
			case "approve":
				who, question["expect"] = "grace", 1
			case "reject":
				who = "grace"
			case "run":
				clear(question)
			}
			r.does(who, http.MethodPost, "/v1/ops/operations/"+op.ID+"/"+step, question, nil)
		}
	}
	r.until(r.t, "fails-0", "processed")
}

// tasks calls the tasks of the worker, but for the one that would end the operations.
func (r *surface) tasks() {
	for _, name := range tasks.Names {
		if name != "run-operations" {
			done, err := r.task(r.t.Context(), name)
			require.NoError(r.t, err, name)
			r.seen("answers/tasks", map[string]any{"task": name, "answer": maps.Clone(done)})
		}
	}
}
