package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/notifications"
	"billhook/internal/apps/orders"
	"billhook/internal/console"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/events"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
)

func callsGateway(c *catalog.Catalog) bool {
	return slices.ContainsFunc([]string{"payments.initiate", "payments.initiate_trial", "refunds.initiate"}, func(name string) bool {
		_, runs := c.HandledBy(name)
		return runs
	})
}

func (s *demo) messages() []flow {
	named := func(name string) func(catalog.Handler) bool {
		return func(h catalog.Handler) bool { return h.Name == name }
	}
	posts := func(form catalog.Form) func(catalog.Handler) bool {
		return func(h catalog.Handler) bool { return h.Post.Form == form }
	}
	return []flow{
		{"a trial with its payment", "dev-trial", named("payments.initiate_trial"), s.followed("events show dev-trial", samples.Trial, "dev-trial")},
		{"a renewal that is due", "dev-renewal", named("payments.initiate"), s.followed("events show dev-renewal", samples.Renewal, "dev-renewal")},
		{"a refund, asked for twice", "dev-refund-again", named("refunds.initiate"), s.followed("refunds show dev-payment", samples.Refunds, "dev-refund", "dev-refund-again")},
		{"an order and its payment", "dev-order-payment", named("orders.create"), s.ordered},
		{"usage beyond 80 % of a quota", "dev-usage", named("usage.track"), s.followed("usage show dev-subscription", samples.Usage, "dev-usage")},
		{"an invoice is paid", "dev-invoice", named(catalog.JournalPost), s.followed("journal show dev-invoice", samples.InvoicePaid, "dev-invoice")},
		{"an order is confirmed", "dev-order-confirmed", named(notifications.FanOut), s.followed("events show dev-order-confirmed", samples.OrderConfirmed, "dev-order-confirmed")},
		{"five events for analytics", "", posts(catalog.NDJSON), s.tracked},
		{"five products, one of them bad", "dev-product-5", posts(catalog.Bulk), s.indexed},
		{"an event for a third party", "dev-webhook", named(endpoints.Handler), s.followed("endpoints show "+samples.Partner, samples.WebhookDelivery, "dev-webhook")},
	}
}

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

// followed shows a sample whose events are followed to their end, with what they emit. look is a command that shows more.
func (s *demo) followed(look, sample string, events ...string) func(context.Context, string, catalog.Queue) {
	return func(ctx context.Context, what string, q catalog.Queue) {
		text := fmt.Sprint(s.produce(ctx, sample, q))
		for _, id := range events {
			story := s.until(ctx, id, completed)
			text += ", then " + story.Result + s.carriedOut(story)
			for _, e := range story.Emissions {
				if q, known := s.catalog.Queue(e.Queue); known && q.Enabled && q.Remembers() { // others have no record to wait for
					emitted := s.until(ctx, e.EventID, completed)
					text += "; " + emitted.EventType + ": " + emitted.Result + s.carriedOut(emitted)
				}
			}
		}
		s.say(what, "%s", text)
		s.look(look)
	}
}

// carriedOut says that a service was asked for an event's effect, and fails where it was done twice.
func (s *demo) carriedOut(e events.Event) string {
	if s.err != nil {
		return ""
	}
	times := max(s.stack.Service.Applied(e.EventID), s.stack.Service.Applied(handler.CalleeKey(e.Queue, e.Tenant, e.EventID)), s.stack.Gateway.CarriedOut(e.EventID))
	if times > 1 {
		s.fail("event %s: done %d times", e.EventID, times)
	}
	return map[int]string{1: " once"}[times]
}

func (s *demo) ordered(ctx context.Context, what string, q catalog.Queue) {
	if s.err == nil {
		pieces, set := int64(10), orders.Stock{}
		s.err = s.ask.do(ctx, http.MethodPut, "/v1/ops/stock/"+samples.Product, orders.SetStock{Available: &pieces, Edit: console.Edit{Change: console.Change{Why: "billhook dev shows it"}}}, &set)
	}
	answer := s.produce(ctx, samples.OrderCreated, q)
	reserved := s.until(ctx, "dev-order-created", completed)
	paid := s.produce(ctx, samples.OrderPayment, q)
	s.say(what, "%s, then %s; %s, then %s", answer, reserved.Result, paid, s.until(ctx, "dev-order-payment", completed).Result)
	s.look("orders show dev-shop-order", "stock ls")
}

func (s *demo) tracked(ctx context.Context, what string, q catalog.Queue) {
	answer := s.produce(ctx, samples.Analytics, q)
	if s.err != nil {
		return
	}
	batches := map[time.Time]bool{}
	s.err = poll(ctx, 20*time.Millisecond, 0, func() (bool, error) {
		written := 0
		for _, d := range s.stack.Service.Deliveries() {
			if d.Outcome == standin.Applied && slices.Contains(answer.ids(), d.EventID) {
				written, batches[d.At] = written+1, true
			}
		}
		return written >= len(answer.ids()), nil
	})
	s.say(what, "%s; written in batches (%d), without records", answer, len(batches))
	s.printf("%*s> curl -s %s/deliveries\n", indent, "", s.stack.ServiceURL)
}

func (s *demo) indexed(ctx context.Context, what string, q catalog.Queue) {
	const bad = "dev-product-bad"
	answer := s.produce(ctx, samples.Products, q)
	for _, id := range answer.ids() {
		if id != bad {
			s.until(ctx, id, completed)
		}
	}
	s.say(what, "%s; %d indexed; the bad one is dead-lettered: %s", answer, len(answer.replies)-1, s.deadLetter(ctx, bad).Reason)
	s.look("events show "+bad, "dlq ls "+q.ID)
}

// register registers the stand-in as a third party's endpoint, in place of an earlier run's: a
// secret is shown once, and the stand-in has forgotten it.
func (s *demo) register(ctx context.Context) {
	if _, runs := s.catalog.HandledBy(endpoints.Handler); !runs || s.err != nil {
		return
	}
	why := console.Change{Why: "billhook dev shows it"}
	path := "/v1/ops/endpoints/" + url.PathEscape(samples.Partner)
	var gone endpoints.Endpoint
	if s.again {
		_ = s.ask.do(ctx, http.MethodDelete, path, why, &gone) // it may not be there
	}
	var added endpoints.Secret
	s.err = s.ask.post(ctx, "/v1/ops/endpoints", endpoints.AddEndpoint{
		New: endpoints.New{ID: samples.Partner, URL: s.stack.ServiceURL + standin.PartnerPath, Events: []string{"invoice.#"}}, Change: why,
	}, &added)
	if s.err == nil {
		s.err = s.stack.Service.Trust(added.Secret)
	}
}
