package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/notifications"
	"billhook/internal/apps/orders"
	"billhook/internal/compose/devstack"
	"billhook/internal/console"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/events"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/standin"
)

type demo struct {
	*program
	stack   *devstack.Stack
	catalog *catalog.Catalog
	secrets map[string][]string
	// again: an earlier run has sent some samples, and the stand-ins have forgotten them.
	again bool
}

const paynow = "paynow"

// flow is a sample and what becomes of it.
type flow struct {
	what string
	// handler is that of its queue, with its form where it posts; empty: it is PayNow's.
	handler string
	// before is done first; nil: nothing is.
	before func(context.Context) error
	// name is the sample's, event has the ids of PayNow's, and secret is another than the source's.
	name   string
	event  samples.Event
	secret string
	// follow are the events that are waited for. What an earlier run has followed is not sent again.
	follow []string
	// alone: what they emit is not waited for, such as the end of the wait for a payment.
	alone bool
	// note is what nobody can read off the answers, and look a command that shows more.
	note, look string
}

// The events of the samples. Each has a customer or a subscription of its own, so that none waits for another.
var (
	buyer     = samples.Event{EventID: "900000000000000011", OrderID: "900000000000000012"}
	unknown   = samples.Event{EventID: "900000000000000031", OrderID: "900000000000000032", CustomerID: "900000000000000033"}
	refunded  = samples.Event{EventID: "900000000000000051", OrderID: buyer.OrderID}
	forged    = samples.Event{EventID: "900000000000000061"}
	renewed   = samples.Event{EventID: "900000000000000071", SubscriptionID: "900000000000000072", UID: "dev-user-of-the-renewal"}
	forgotten = samples.Event{EventID: "900000000000000081", SubscriptionID: "900000000000000082", UID: "dev-user-of-the-forgetful"}
)

func (s *demo) webhooks() []flow {
	one := func(what, name string, event samples.Event) flow {
		return flow{what: what, name: name, event: event, follow: []string{event.EventID}}
	}
	order, unpriced := one("an order", samples.OrderCompleted, buyer), one("an order with an unknown product", samples.UnknownProduct, unknown)
	again, lost := one("the same order again", samples.OrderCompleted, buyer), one("a renewal whose answer is lost", samples.SubscriptionRenewed, forgotten)
	order.look, unpriced.note, again.note = "accounts ls", "nothing is credited", "skipped as a duplicate"
	lost.before = func(context.Context) error { return s.stack.Service.Behave("", standin.Forget, 1) }
	return []flow{
		order, again, unpriced, one("a full refund", samples.Refund, refunded), one("a subscription that renews", samples.SubscriptionRenewed, renewed), lost,
		{what: "a webhook with a bad signature", name: samples.OrderCompleted, event: forged, secret: "a-secret-that-paynow-does-not-have"},
	}
}

func (s *demo) messages() []flow {
	one := func(what, handler, name, look string, follow ...string) flow {
		return flow{what: what, handler: handler, name: name, follow: follow, look: look}
	}
	created := one("an order of the shop", "orders.create", samples.OrderCreated, "stock ls", "dev-order-created")
	paid := one("its payment", "orders.create", samples.OrderPayment, "orders show dev-shop-order", "dev-order-payment")
	created.before, created.alone, paid.alone = s.stocked, true, true
	partner := one("an event for a third party", endpoints.Handler, samples.WebhookDelivery, "endpoints show "+samples.Partner, "dev-webhook")
	partner.before = s.register
	return []flow{
		one("a trial with its payment", "payments.initiate_trial", samples.Trial, "events show dev-trial", "dev-trial"),
		one("a renewal that is due", "payments.initiate", samples.Renewal, "events show dev-renewal", "dev-renewal"),
		one("a refund, asked for twice", "refunds.initiate", samples.Refunds, "refunds show dev-payment", "dev-refund", "dev-refund-again"),
		created,
		paid,
		one("usage beyond 80 % of a quota", "usage.track", samples.Usage, "usage show dev-subscription", "dev-usage"),
		one("an invoice is paid", catalog.JournalPost, samples.InvoicePaid, "journal show dev-invoice", "dev-invoice"),
		one("an order is confirmed", notifications.FanOut, samples.OrderConfirmed, "events show dev-order-confirmed", "dev-order-confirmed"),
		{what: "five events for analytics", handler: string(catalog.NDJSON), name: samples.Analytics, note: "written in batches, without records"},
		{what: "five products, one of them bad", handler: string(catalog.Bulk), name: samples.Products, follow: []string{"dev-product-5", "dev-product-bad"}, look: "events show dev-product-bad"},
		partner,
	}
}

// run sends the samples.
func (s *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	flows := s.messages()
	if _, received := s.catalog.Sources[paynow]; received {
		flows = slices.Concat(s.webhooks(), flows)
		s.printf("\nSending signed samples of PayNow's webhooks:\n\n")
	} else {
		s.printf("\nNo queue that takes PayNow's events runs here, so no samples of its webhooks are sent.\n")
	}
	of := ""
	for _, f := range flows {
		if of == "" && f.handler != "" {
			s.printf("\nSending signed messages of producers, to /queues/<queue>/messages and /topics/<topic>/messages:\n\n")
		}
		of = f.handler
		q, known := s.queueOf(f)
		switch {
		case of != "" && !known:
			s.say(f.what, "left out: no queue of the catalog is for it")
		case of != "" && !q.Enabled:
			s.say(f.what, "left out: "+q.ID+" does not run here")
		case s.again && len(f.follow) > 0 && s.get(ctx, "/v1/ops/events/"+f.follow[len(f.follow)-1], &events.Event{}) == nil:
			s.say(f.what, "sent by an earlier run")
		default:
			text, err := s.sent(ctx, f, q)
			if err != nil {
				return fmt.Errorf("dev: %s: %w", f.what, err)
			}
			if s.say(f.what, text); f.look != "" {
				s.printf("%*s> bin/billhook %s\n", indent, "", f.look)
			}
		}
	}
	return nil
}

func (s *demo) queueOf(f flow) (catalog.Queue, bool) {
	for _, q := range s.catalog.Queues {
		for _, h := range q.Handlers {
			if f.handler != "" && (h.Name == f.handler || string(h.Post.Form) == f.handler) {
				return q, true
			}
		}
	}
	return catalog.Queue{}, false
}

// sent sends a flow's samples, and says what was answered and what became of them.
func (s *demo) sent(ctx context.Context, f flow, q catalog.Queue) (string, error) {
	if f.before != nil {
		if err := f.before(ctx); err != nil {
			return "", err
		}
	}
	from, path := s.catalog.Sources[catalog.Producers], "/queues/"+q.ID+"/messages"
	if q.SharedTopic != "" {
		path = "/topics/" + q.SharedTopic + "/messages"
	}
	var body []byte
	if f.handler == "" {
		from, path, body = s.catalog.Sources[paynow], "/webhooks/"+paynow, samples.Read(f.name, f.event)
	} else {
		body = samples.Request(f.name)
	}
	answer, err := post(ctx, s.stack.WebhookURL+path, from, cmp.Or(f.secret, s.secrets[from.Name][0]), body, time.Now())
	if err != nil {
		return "", err
	}
	for _, r := range answer.replies {
		if r.Code != "" {
			return fmt.Sprint(r.Status, " ", r.Code), nil
		}
	}
	texts := []string{fmt.Sprint(answer.status)}
	if answer.list {
		texts[0] += fmt.Sprintf(": %d accepted", len(answer.replies))
	}
	for _, id := range f.follow {
		became, err := s.became(ctx, id, f.alone)
		if err != nil {
			return "", err
		}
		texts = append(texts, "then "+became)
	}
	if f.note != "" {
		texts = append(texts, f.note)
	}
	return strings.Join(texts, ", "), nil
}

// became waits for the end of an event, and says what it and, unless it is alone, what it has emitted came to. It fails
// where a service did it twice.
func (s *demo) became(ctx context.Context, id string, alone bool) (text string, err error) {
	var e events.Event
	err = poll(ctx, 20*time.Millisecond, http.StatusNotFound, func() (bool, error) {
		err := s.get(ctx, "/v1/ops/events/"+id, &e)
		return e.Status == dedupe.Completed || len(e.DeadLetters) > 0, err
	})
	if err != nil {
		return "", err
	}
	if len(e.DeadLetters) > 0 {
		return "dead-lettered: " + e.DeadLetters[0].Reason, nil
	}
	times := max(s.stack.Service.Applied(id), s.stack.Service.Applied(handler.CalleeKey(e.Queue, e.Tenant, id)), s.stack.Gateway.CarriedOut(id))
	if times > 1 {
		return "", fmt.Errorf("event %s: done %d times", id, times)
	}
	text = e.Result + map[int]string{1: " once"}[times]
	if e.Attempts > 1 {
		text += fmt.Sprintf(" at attempt %d", e.Attempts)
	}
	for _, emitted := range e.Emissions {
		if q, known := s.catalog.Queue(emitted.Queue); !alone && known && q.Enabled && q.Remembers() { // others have no record to wait for
			done, err := s.became(ctx, emitted.EventID, true)
			if err != nil {
				return "", err
			}
			text += "; " + emitted.EventType + ": " + done
		}
	}
	return text, nil
}

// stocked sets how many pieces of the samples' product can be ordered.
func (s *demo) stocked(ctx context.Context) error {
	pieces, set := int64(10), orders.Stock{}
	return s.ask(ctx, http.MethodPut, "/v1/ops/stock/"+samples.Product, "", orders.SetStock{Available: &pieces, Edit: console.Edit{Change: console.Change{Why: "billhook dev shows it"}}}, &set)
}

// register registers the stand-in as a third party's endpoint, in place of an earlier run's: a secret is shown once, and the
// stand-in has forgotten it.
func (s *demo) register(ctx context.Context) error {
	why, path := console.Change{Why: "billhook dev shows it"}, "/v1/ops/endpoints"
	var added endpoints.Secret
	if s.again {
		_ = s.ask(ctx, http.MethodDelete, path+"/"+samples.Partner, "", why, &endpoints.Endpoint{}) // it may not be there
	}
	err := s.ask(ctx, http.MethodPost, path, "", endpoints.AddEndpoint{
		New: endpoints.New{ID: samples.Partner, URL: s.stack.ServiceURL + standin.PartnerPath, Events: []string{"invoice.#"}}, Change: why,
	}, &added)
	if err == nil {
		err = s.stack.Service.Trust(added.Secret)
	}
	return err
}

// indent is the place of what became of a sample.
const indent = 37

func (s *demo) say(what, became string) {
	next := "\n" + strings.Repeat(" ", indent)
	lines := strings.NewReplacer("; ", ";"+next, ", then dead", ","+next+"then dead").Replace(audit.Escape(became))
	s.printf("  %-*s%s\n", indent-2, what, own(lines))
}
