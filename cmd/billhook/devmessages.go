package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/notifications"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/payments"
	"billhook/internal/console/ops"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
)

// Handlers whose effect is documents, by their names in the catalog.
const (
	takeOrder  = "orders.create"
	trackUsage = "usage.track"
)

// Handlers that call the gateway, by their names in the catalog.
const (
	initiate       = "payments.initiate"
	initiateTrial  = "payments.initiate_trial"
	initiateRefund = "refunds.initiate"
)

// callsGateway reports whether a queue that runs takes payments or refunds to the gateway.
func callsGateway(c *catalog.Catalog) bool {
	return slices.ContainsFunc([]string{initiate, initiateTrial, initiateRefund}, func(name string) bool {
		_, runs := c.HandledBy(name)
		return runs
	})
}

// messages are the samples of producers, each with what the other services make of it.
func (s *demo) messages() []flow {
	named := func(name string) func(catalog.Handler) bool {
		return func(h catalog.Handler) bool { return h.Name == name }
	}
	posts := func(form catalog.Form) func(catalog.Handler) bool {
		return func(h catalog.Handler) bool { return h.Post.Form == form }
	}
	return []flow{
		{"a trial with its payment", "dev-trial", named(initiateTrial), s.trial},
		{"a renewal that is due", "dev-renewal", named(initiate), s.dueRenewal},
		{"a refund, asked for twice", "dev-refund-again", named(initiateRefund), s.refundTwice},
		{"an order and its payment", "dev-order-payment", named(takeOrder), s.ordered},
		{"usage beyond 80 % of a quota", "dev-usage", named(trackUsage), s.used},
		{"an invoice is paid", "dev-invoice", named(catalog.JournalPost), s.posted},
		{"an order is confirmed", "dev-order-confirmed", named(notifications.FanOut), s.notified},
		{"five events for analytics", "", posts(catalog.NDJSON), s.tracked},
		{"five products, one of them bad", "dev-product-5", posts(catalog.Bulk), s.indexed},
		{"an event for a third party", "dev-webhook", named(endpoints.Handler), s.toldPartner},
	}
}

// String says it in few words.
func (a answers) String() string {
	if !a.list {
		return fmt.Sprint(a.status)
	}
	taken := 0
	for _, r := range a.replies {
		if r.Status == http.StatusAccepted {
			taken++
		}
	}
	return fmt.Sprintf("%d: %d of %d accepted", a.status, taken, len(a.replies))
}

func (a answers) ids() (ids []string) {
	for _, r := range a.replies {
		ids = append(ids, r.EventID)
	}
	return ids
}

// errRefused is of a sample that the catalog of this deployment does not declare so.
var errRefused = errors.New("refused")

// produce sends a sample to its queue by name, or to the topic that its queue shares. The error of a
// message that was refused is errRefused.
func (s *demo) produce(ctx context.Context, sample string, to catalog.Queue) (a answers) {
	if s.err != nil {
		return a
	}
	path := "/queues/" + to.ID
	if to.SharedTopic != "" {
		path = "/topics/" + to.SharedTopic
	}
	door := signed{s.stack.WebhookURL + path + "/messages", s.catalog.Sources[catalog.Producers].Scheme, s.secrets[catalog.Producers][0]}
	if a, s.err = door.post(ctx, samples.Request(sample), time.Now()); s.err != nil {
		return a
	}
	for _, r := range a.replies {
		if r.Status != http.StatusAccepted {
			s.fail("%w with %d %s", errRefused, r.Status, r.Code)
		}
	}
	return a
}

// emitted waits for the events that an event has emitted, in their order.
func (s *demo) emitted(ctx context.Context, by ops.Event, count int) (stories []ops.Event) {
	if len(by.Emitted) != count {
		s.fail("event %s: emitted %d messages instead of %d", by.EventID, len(by.Emitted), count)
	}
	if s.err != nil {
		return make([]ops.Event, count)
	}
	for _, id := range by.Emitted {
		stories = append(stories, s.until(ctx, id, completed))
	}
	return stories
}

// paid says what the gateway has carried out of an event, and what the subscription service was
// told.
func (s *demo) paid(order, update ops.Event) string {
	text := order.Result + " at the gateway"
	s.once(order.EventID, s.stack.Gateway.CarriedOut(order.EventID))
	for _, o := range s.stack.Gateway.Orders() {
		if o.EventID == order.EventID {
			text += fmt.Sprintf(" (%s %s)", o.Amount, o.Currency)
		}
	}
	s.once(update.EventID, s.stack.Service.Applied(update.EventID))
	text += "; the subscription service is told once: " + update.EventType
	for _, d := range s.delivered(update.EventID) {
		text += " " + d.Status
	}
	return text
}

// delivered are the deliveries of events that the stand-in has applied.
func (s *demo) delivered(ids ...string) (all []standin.Delivery) {
	for _, d := range s.stack.Service.Deliveries() {
		if d.Outcome == standin.Applied && slices.Contains(ids, d.EventID) {
			all = append(all, d)
		}
	}
	return all
}

// inBatches says how many requests some deliveries came in. Those of one have one time.
func inBatches(of []standin.Delivery) string {
	times := map[time.Time]bool{}
	for _, d := range of {
		times[d.At] = true
	}
	if len(times) == 1 {
		return "one batch"
	}
	return fmt.Sprintf("%d batches", len(times))
}

func (s *demo) trial(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.Trial, q)
	order := s.until(ctx, "dev-trial", completed)
	stories := s.emitted(ctx, order, 2)
	if s.err != nil {
		return
	}
	update, refund := stories[0], stories[1]
	s.once(refund.EventID, s.stack.Gateway.CarriedOut(refund.EventID))
	s.say(what, "%s, then %s; the payment is %s", answer, s.paid(order, update), refund.Result)
	s.look("events ls --correlation " + refund.CorrelationID)
}

func (s *demo) dueRenewal(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.Renewal, q)
	order := s.until(ctx, "dev-renewal", completed)
	stories := s.emitted(ctx, order, 1)
	if s.err != nil {
		return
	}
	s.say(what, "%s, then %s", answer, s.paid(order, stories[0]))
	s.look("events show " + order.EventID)
}

func (s *demo) refundTwice(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.Refunds, q)
	first, second := s.until(ctx, "dev-refund", completed), s.until(ctx, "dev-refund-again", completed)
	var refund payments.Refund
	if s.err == nil {
		s.err = s.ask.get(ctx, "/v1/ops/refunds/dev-payment", &refund)
	}
	if s.err != nil {
		return
	}
	s.once(first.EventID, s.stack.Gateway.Refunded(refund.PaymentID))
	s.say(what, "%s; %s, once; the second message: %s", answer, refund.State, second.Result)
	s.look("refunds show " + refund.PaymentID)
}

// ordered has an order reserve its piece, and its payment confirm it.
func (s *demo) ordered(ctx context.Context, what string, q catalog.Queue) {
	if s.err == nil {
		pieces, set := int64(10), orders.Stock{}
		s.err = s.ask.do(ctx, http.MethodPut, strings.Replace(stockPath, "{}", samples.Product, 1), ops.SetStock{Available: &pieces, Change: orders.Change{Why: "billhook dev shows it"}}, &set)
	}
	answer := s.produce(ctx, samples.OrderCreated, q)
	reserved := s.until(ctx, "dev-order-created", completed)
	paid := s.produce(ctx, samples.OrderPayment, q)
	story := s.until(ctx, "dev-order-payment", completed)
	s.say(what, "%s, then %s; %s, then %s", answer, reserved.Result, paid, story.Result)
	s.look("orders show dev-shop-order", "stock ls")
}

func (s *demo) used(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.Usage, q)
	story := s.until(ctx, "dev-usage", completed)
	text := "warned of by nobody"
	for _, warning := range s.emitted(ctx, story, len(story.Emitted)) {
		s.once(warning.EventID, s.stack.Service.Applied(warning.EventID))
		text = "the platform is told once: " + warning.EventType
	}
	s.say(what, "%s, then %s; %s", answer, story.Result, text)
	s.look("usage show dev-subscription")
}

func (s *demo) posted(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.InvoicePaid, q)
	story := s.until(ctx, "dev-invoice", completed)
	s.say(what, "%s, then %s in the journal", answer, story.Result)
	s.look("ledger show dev-invoice", "ledger balances --period 2026-03")
}

func (s *demo) notified(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.OrderConfirmed, q)
	order := s.until(ctx, "dev-order-confirmed", completed)
	var channels []string
	for _, told := range s.emitted(ctx, order, len(order.Emitted)) {
		s.once(told.EventID, s.stack.Service.Applied(told.EventID))
		_, channel, _ := strings.Cut(told.EventType, ".")
		channel, _, _ = strings.Cut(channel, ".")
		channels = append(channels, channel)
	}
	s.say(what, "%s, then its user is told by %s, once each", answer, strings.Join(channels, ", "))
	s.look("events show " + order.EventID)
}

// tracked has no records to ask: it waits for what the stand-in gets.
func (s *demo) tracked(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.Analytics, q)
	if s.err != nil {
		return
	}
	ids := answer.ids()
	var got []standin.Delivery
	if s.err = poll(ctx, 20*time.Millisecond, 0, func() (bool, error) {
		got = s.delivered(ids...)
		return len(got) >= len(ids), nil
	}); s.err != nil {
		return
	}
	s.say(what, "%s; written in %s, without records", answer, inBatches(got))
	s.printf("%*s> curl -s %s/deliveries\n", indent, "", s.stack.ServiceURL)
}

func (s *demo) indexed(ctx context.Context, what string, q catalog.Queue) {
	const bad = "dev-product-bad"
	answer := s.produce(ctx, samples.Products, q)
	good := slices.DeleteFunc(answer.ids(), func(id string) bool { return id == bad })
	for _, id := range good {
		s.until(ctx, id, completed)
	}
	letter := s.deadLetter(ctx, bad)
	if s.err != nil {
		return
	}
	var indexed []standin.Delivery
	for _, d := range s.stack.Service.Deliveries() {
		if d.Path == q.Handlers[slices.Sorted(maps.Keys(q.Handlers))[0]].Post.Path && d.Outcome == standin.Applied {
			indexed = append(indexed, d)
		}
	}
	s.say(what, "%s; %d indexed in %s; the bad one is dead-lettered: %s", answer, len(good), inBatches(indexed), letter.Reason)
	s.look("events show "+bad, "dlq ls "+q.ID)
}

// register registers the stand-in as a third party's endpoint, in place of an earlier run's: a
// secret is shown once, and the stand-in has forgotten it.
func (s *demo) register(ctx context.Context) {
	if _, runs := s.catalog.HandledBy(endpoints.Handler); !runs || s.err != nil {
		return
	}
	why := endpoints.Change{Why: "billhook dev shows it"}
	path := "/v1/ops/endpoints/" + url.PathEscape(samples.Partner)
	var gone endpoints.Endpoint
	if s.again {
		_ = s.ask.do(ctx, http.MethodDelete, path, why, &gone) // it may not be there
	}
	var added endpoints.Secret
	s.err = s.ask.post(ctx, "/v1/ops/endpoints", ops.AddEndpoint{
		New: endpoints.New{ID: samples.Partner, URL: s.stack.ServiceURL + standin.PartnerPath, Events: []string{"invoice.#"}}, Change: why,
	}, &added)
	if s.err == nil {
		s.err = s.stack.Service.Trust(added.Secret)
	}
}

func (s *demo) toldPartner(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.WebhookDelivery, q)
	story := s.until(ctx, "dev-webhook", completed)
	if s.err != nil {
		return
	}
	key := handler.CalleeKey(story.Queue, story.Tenant, story.EventID)
	s.once(story.EventID, s.stack.Service.Applied(key))
	text := ""
	for _, d := range s.delivered(key) {
		text = ": " + d.Action + ", signed by Standard Webhooks, checked and accepted"
	}
	s.say(what, "%s, then %s%s", answer, story.Result, text)
	s.look("endpoints show " + samples.Partner)
}
