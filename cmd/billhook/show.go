package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/compose/devstack"
	"billhook/internal/dedupe"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/events"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

type failOnce struct {
	store.Store
	eventID string
	failed  atomic.Bool
}

// Commit fails the first commit that records the event as completed.
func (f *failOnce) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	for _, w := range writes {
		if w.Fields["event_id"] == f.eventID && w.Fields["status"] == string(dedupe.Completed) && f.failed.CompareAndSwap(false, true) {
			return nil, errors.New("dev: a failure for show")
		}
	}
	return f.Store.Commit(ctx, writes)
}

type demo struct {
	*program
	stack   *devstack.Stack
	catalog *catalog.Catalog
	secrets map[string][]string
	ask     client
	// again: an earlier run has sent some samples, and the stand-ins have forgotten them.
	again bool
	err   error
}

type flow struct {
	what string
	// mark is the event that it sends last; empty: one without a record.
	mark string
	// needs reports whether a handler is that of its queue; nil: it is for no queue.
	needs func(catalog.Handler) bool
	show  func(ctx context.Context, what string, q catalog.Queue)
}

const paynow = "paynow"

func (s *demo) webhooks() []flow {
	return []flow{
		{"an order", buyer.EventID, nil, s.expected(samples.OrderCompleted, buyer, "credited")},
		{"the same order again", behindBuyer.EventID, nil, s.duplicate},
		{"an order with an unknown product", unknown.EventID, nil, s.unknownProduct},
		{"an order while the store fails", unlucky.EventID, nil, s.transient},
		{"a full refund", refunded.EventID, nil, s.expected(samples.Refund, refunded, "reversed")},
		{"a subscription that renews", renewed.EventID, nil, s.renewal(renewed, false)},
		{"a renewal whose answer is lost", forgotten.EventID, nil, s.renewal(forgotten, true)},
		{"a webhook with a bad signature", "", nil, s.refused("a-secret-that-paynow-does-not-have", 0)},
		{"a webhook signed an hour ago", "", nil, s.refused(s.secrets[paynow][0], time.Hour)},
	}
}

// The events of the samples.
var (
	buyer       = samples.Event{EventID: "900000000000000011", OrderID: "900000000000000012"}
	behindBuyer = samples.Event{EventID: "900000000000000021", OrderID: "900000000000000022"}
	unknown     = samples.Event{EventID: "900000000000000031", OrderID: "900000000000000032", CustomerID: "900000000000000033"}
	unlucky     = samples.Event{EventID: "900000000000000041", OrderID: "900000000000000042", CustomerID: "900000000000000043", UID: "dev-user-of-the-retry"}
	refunded    = samples.Event{EventID: "900000000000000051", OrderID: buyer.OrderID}
	renewed     = samples.Event{EventID: "900000000000000071", SubscriptionID: "900000000000000072", UID: "dev-user-of-the-renewal"}
	forgotten   = samples.Event{EventID: "900000000000000081", SubscriptionID: "900000000000000082", UID: "dev-user-of-the-forgetful"}
)

// run sends the samples. Each has a customer or a subscription of its own, so that none waits for
// another. Those that an earlier run has sent are passed by.
func (s *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, received := s.catalog.Sources[paynow]; received {
		s.section(ctx, "signed samples of PayNow's webhooks", "", s.webhooks())
	} else {
		s.printf("\nNo queue that takes PayNow's events runs here, so no samples of its webhooks are sent.\n")
	}
	s.register(ctx)
	s.section(ctx, "signed messages of producers", ", to /queues/<queue>/messages and /topics/<topic>/messages", s.messages())
	if s.err != nil {
		return fmt.Errorf("dev: %w", s.err)
	}
	return nil
}

func (s *demo) section(ctx context.Context, name, way string, flows []flow) {
	left := s.unsent(ctx, flows)
	switch {
	case s.err != nil:
		return
	case len(left) == 0:
		s.printf("\nThe %s were sent by an earlier run, and are not sent again.\n", name)
		return
	case len(left) < len(flows):
		s.printf("\nSending the %s that an earlier run has not sent:\n\n", name)
	default:
		s.printf("\nSending %s%s:\n\n", name, way)
	}
	for _, f := range left {
		if s.err != nil {
			return
		}
		if q, ok := s.queueOf(f); f.needs != nil && !ok {
			s.say(f.what, "left out: no queue of the catalog is for it")
		} else if f.needs != nil && !q.Enabled {
			s.say(f.what, "left out: %s does not run here", q.ID)
		} else {
			f.show(ctx, f.what, q)
		}
		if errors.Is(s.err, errRefused) {
			text := s.err.Error()
			s.err = nil
			s.say(f.what, "%s", text)
		}
	}
}

// unsent are the flows that no earlier run has sent. A flow without a record was sent where one
// behind it was, or every one with a record.
func (s *demo) unsent(ctx context.Context, flows []flow) (left []flow) {
	recorded, sent := false, false
	for _, f := range slices.Backward(flows) {
		switch {
		case f.mark == "" && sent:
		case f.mark != "" && s.known(ctx, f.mark):
			sent = true
		default:
			recorded = recorded || f.mark != ""
			left = append(left, f)
		}
	}
	if sent && !recorded {
		return nil
	}
	slices.Reverse(left)
	return left
}

func (s *demo) known(ctx context.Context, eventID string) bool {
	var event events.Event
	return s.again && s.ask.get(ctx, "/v1/ops/events/"+eventID, &event) == nil
}

func (s *demo) queueOf(f flow) (catalog.Queue, bool) {
	for _, q := range s.catalog.Queues {
		for _, h := range q.Handlers {
			if f.needs != nil && f.needs(h) {
				return q, true
			}
		}
	}
	return catalog.Queue{}, false
}

// width is the most that a line of dev has, and indent the place of what became of a sample.
const (
	width  = 100
	indent = 37
)

func (s *demo) say(what, became string, args ...any) {
	text := fmt.Sprintf(became, args...)
	if s.err == nil && !s.line(map[string]any{"message": "sample", "sample": what, "became": text}) {
		s.printf("  %-*s%s\n", indent-2, what, own(broken(audit.Escape(text), min(width, cmp.Or(s.screen.width, width)))))
	}
}

func broken(text string, width int) string {
	lines, at := "", indent
	for word := range strings.FieldsSeq(text) {
		switch {
		case lines == "":
		case at+1+len(word) > width:
			lines, at = lines+"\n"+strings.Repeat(" ", indent), indent
		default:
			lines, at = lines+" ", at+1
		}
		lines, at = lines+word, at+len(word)
	}
	return lines
}

func (s *demo) look(commands ...string) {
	for _, command := range commands {
		if s.err == nil && !s.line(map[string]any{"message": "look", "command": "bin/billhook " + command}) {
			s.printf("%*s> bin/billhook %s\n", indent, "", command)
		}
	}
}

func (s *demo) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *demo) send(ctx context.Context, sample string, event samples.Event) reply {
	return s.post(ctx, s.secrets[paynow][0], samples.Read(sample, event), time.Now())
}

func (s *demo) post(ctx context.Context, secret string, body []byte, at time.Time) (answer reply) {
	if s.err == nil {
		answer, s.err = post(ctx, s.stack.WebhookURL, s.catalog.Sources[paynow], secret, body, at)
	}
	return answer
}

func (s *demo) until(ctx context.Context, eventID string, done func(events.Event) bool) (event events.Event) {
	if s.err != nil {
		return event
	}
	err := poll(ctx, 20*time.Millisecond, http.StatusNotFound, func() (bool, error) {
		err := s.ask.get(ctx, "/v1/ops/events/"+eventID, &event)
		return done(event), err
	})
	if err != nil {
		s.fail("event %s: %w", eventID, err)
	}
	return event
}

func completed(e events.Event) bool { return e.Status == dedupe.Completed }

func (s *demo) balance(ctx context.Context, uid string) int64 {
	var account ledger.Holding
	if s.err == nil {
		s.err = s.ask.get(ctx, "/v1/ops/accounts/"+string(ledger.UserPoints(uid)), &account)
	}
	return account.Balance
}

func (s *demo) expected(sample string, event samples.Event, result string) func(context.Context, string, catalog.Queue) {
	return func(ctx context.Context, what string, _ catalog.Queue) {
		answer, story := s.send(ctx, sample, event), s.until(ctx, event.EventID, completed)
		if story.Result != result {
			s.fail("event %s: %s instead of %s", event.EventID, story.Result, result)
		}
		s.say(what, "%d, then %s; the balance is %d points", answer.Status, story.Result, s.balance(ctx, samples.UID))
	}
}

func (s *demo) duplicate(ctx context.Context, what string, _ catalog.Queue) {
	answer := s.send(ctx, samples.OrderCompleted, buyer)
	// Events of one customer are processed in order: once this one is completed, the duplicate is done too.
	s.send(ctx, samples.OrderCompleted, behindBuyer)
	s.until(ctx, behindBuyer.EventID, completed)
	s.say(what, "%d, then skipped as a duplicate; with another order behind it the balance is %d", answer.Status, s.balance(ctx, samples.UID))
}

func (s *demo) unknownProduct(ctx context.Context, what string, _ catalog.Queue) {
	answer, letter := s.send(ctx, samples.UnknownProduct, unknown), s.deadLetter(ctx, unknown.EventID)
	s.say(what, "%d, then dead-lettered: %s; nothing is credited", answer.Status, letter.Reason)
}

func (s *demo) deadLetter(ctx context.Context, eventID string) (letter deadletter.Item) {
	story := s.until(ctx, eventID, func(e events.Event) bool { return len(e.DeadLetters) > 0 })
	if s.err == nil {
		letter = story.DeadLetters[0]
	}
	return letter
}

func (s *demo) transient(ctx context.Context, what string, _ catalog.Queue) {
	answer, story := s.send(ctx, samples.OrderCompleted, unlucky), s.until(ctx, unlucky.EventID, completed)
	s.say(what, "%d, then delivered again and %s, with %d attempt counted; the balance is %d points",
		answer.Status, story.Result, story.Attempts, s.balance(ctx, unlucky.UID))
}

func (s *demo) renewal(event samples.Event, forgets bool) func(context.Context, string, catalog.Queue) {
	return func(ctx context.Context, what string, _ catalog.Queue) {
		if s.err == nil && forgets {
			s.err = s.stack.Service.Behave("", standin.Forget, 1)
		}
		answer, recorded := s.send(ctx, samples.SubscriptionRenewed, event), s.until(ctx, event.EventID, completed)
		for _, id := range recorded.Emitted {
			story := s.until(ctx, id, completed)
			s.say(what, "%d, then %s and told the subscription service%s: %s at attempt %d", answer.Status, recorded.Result, s.carriedOut(story), story.Result, story.Attempts)
		}
	}
}

func (s *demo) refused(secret string, age time.Duration) func(context.Context, string, catalog.Queue) {
	return func(ctx context.Context, what string, _ catalog.Queue) {
		body := samples.Read(samples.OrderCompleted, samples.Event{EventID: "900000000000000061"})
		answer := s.post(ctx, secret, body, time.Now().Add(-age))
		s.say(what, "%d %s", answer.Status, answer.Code)
	}
}
