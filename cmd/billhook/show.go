package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/devstack"
	"billhook/internal/ledger"
	"billhook/internal/ops"
	"billhook/internal/standin"
	"billhook/internal/store"
	"billhook/internal/webhook/samples"
)

const firstSample = "900000000000000011"

// failOnce fails the first effect of one event, for the demo.
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

// demo sends the samples and prints the result of each. After an error its methods do nothing.
type demo struct {
	*program
	stack  *devstack.Stack
	source catalog.Source
	secret string
	ask    client
	err    error
}

// run sends the samples. Each sample has a customer of its own, so that none waits for another.
func (s *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s.printf("\nSending signed samples of PayNow's webhooks:\n\n")
	buyer := samples.Event{EventID: firstSample, OrderID: "900000000000000012"}
	s.expect(ctx, "an order", samples.OrderCompleted, buyer, "credited")
	s.duplicate(ctx, buyer)
	s.unknownProduct(ctx)
	s.transient(ctx)
	s.expect(ctx, "a full refund", samples.Refund, samples.Event{EventID: "900000000000000051", OrderID: buyer.OrderID}, "reversed")
	s.renewal(ctx)
	s.lostAnswer(ctx)
	s.refused(ctx)
	if s.err != nil {
		return fmt.Errorf("dev: %w", s.err)
	}
	return nil
}

func (s *demo) say(what, became string, args ...any) {
	if s.err == nil {
		s.printf("  %-34s %s\n", what, fmt.Sprintf(became, args...))
	}
}

func (s *demo) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *demo) send(ctx context.Context, sample string, event samples.Event) reply {
	return s.post(ctx, s.secret, samples.Read(sample, event), time.Now())
}

func (s *demo) post(ctx context.Context, secret string, body []byte, at time.Time) (answer reply) {
	if s.err == nil {
		answer, s.err = post(ctx, s.stack.WebhookURL, s.source, secret, body, at)
	}
	return answer
}

func (s *demo) until(ctx context.Context, eventID string, done func(ops.Event) bool) (event ops.Event) {
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

func completed(e ops.Event) bool { return e.Status == dedupe.Completed }

func (s *demo) balance(ctx context.Context, uid string) int64 {
	var account ops.Account
	if s.err == nil {
		s.err = s.ask.get(ctx, "/v1/ops/accounts/"+string(ledger.UserPoints(uid)), &account)
	}
	return account.Balance
}

func (s *demo) expect(ctx context.Context, what, sample string, event samples.Event, result string) {
	answer, story := s.send(ctx, sample, event), s.until(ctx, event.EventID, completed)
	if story.Result != result {
		s.fail("event %s: %s instead of %s", event.EventID, story.Result, result)
	}
	s.say(what, "%d, then %s; the balance is %d points", answer.Status, story.Result, s.balance(ctx, samples.UID))
}

func (s *demo) duplicate(ctx context.Context, buyer samples.Event) {
	answer := s.send(ctx, samples.OrderCompleted, buyer)
	// Events of one customer are processed in order: once this one is completed, the duplicate
	// is done too.
	next := samples.Event{EventID: "900000000000000021", OrderID: "900000000000000022"}
	s.send(ctx, samples.OrderCompleted, next)
	s.until(ctx, next.EventID, completed)
	s.say("the same order again", "%d, then skipped as a duplicate; with another order behind it the balance is %d",
		answer.Status, s.balance(ctx, samples.UID))
}

func (s *demo) unknownProduct(ctx context.Context) {
	event := samples.Event{EventID: "900000000000000031", OrderID: "900000000000000032", CustomerID: "900000000000000033"}
	answer := s.send(ctx, samples.UnknownProduct, event)
	reason := ""
	s.until(ctx, event.EventID, func(e ops.Event) bool {
		for _, letter := range e.DeadLetters {
			reason = letter.Reason
		}
		return reason != ""
	})
	s.say("an order with an unknown product", "%d, then dead-lettered: %s; nothing of it is credited", answer.Status, reason)
}

func (s *demo) transient(ctx context.Context) {
	event := samples.Event{EventID: "900000000000000041", OrderID: "900000000000000042", CustomerID: "900000000000000043", UID: "dev-user-of-the-retry"}
	answer, story := s.send(ctx, samples.OrderCompleted, event), s.until(ctx, event.EventID, completed)
	s.say("an order while the store fails", "%d, then delivered again and %s, with %d attempt counted; the balance is %d points",
		answer.Status, story.Result, story.Attempts, s.balance(ctx, event.UID))
}

// renewal sends a subscription's event, which reaches the subscription service.
func (s *demo) renewal(ctx context.Context) {
	event := samples.Event{EventID: "900000000000000071", SubscriptionID: "900000000000000072", UID: "dev-user-of-the-renewal"}
	s.sendRenewal(ctx, "a subscription that renews", event, func(story ops.Event) string {
		return fmt.Sprintf("told the subscription service once: %s at attempt %d", story.Result, story.Attempts)
	})
}

// lostAnswer has the service apply the update and cut the connection without an answer.
func (s *demo) lostAnswer(ctx context.Context) {
	if s.err == nil {
		s.err = s.stack.Service.Tell(standin.Forget, 1)
	}
	event := samples.Event{EventID: "900000000000000081", SubscriptionID: "900000000000000082", UID: "dev-user-of-the-forgetful"}
	s.sendRenewal(ctx, "a renewal whose answer is lost", event, func(story ops.Event) string {
		return fmt.Sprintf("asked at attempt %d whether it is done: %s; applied %d time", story.Attempts, story.Result, s.stack.Service.Applied(story.EventID))
	})
}

// sendRenewal sends a renewal and follows the update that it emits to its end.
func (s *demo) sendRenewal(ctx context.Context, what string, event samples.Event, became func(ops.Event) string) {
	answer, recorded := s.send(ctx, samples.SubscriptionRenewed, event), s.until(ctx, event.EventID, completed)
	if len(recorded.Emitted) != 1 {
		s.fail("event %s: emitted %d messages", event.EventID, len(recorded.Emitted))
		return
	}
	story := s.until(ctx, recorded.Emitted[0], completed)
	if applied := s.stack.Service.Applied(story.EventID); applied != 1 {
		s.fail("event %s: the service applied it %d times", story.EventID, applied)
	}
	s.say(what, "%d, then %s and %s", answer.Status, recorded.Result, became(story))
}

func (s *demo) refused(ctx context.Context) {
	body := samples.Read(samples.OrderCompleted, samples.Event{EventID: "900000000000000061"})
	forged := s.post(ctx, "a-secret-that-paynow-does-not-have", body, time.Now())
	s.say("a webhook with a bad signature", "%d %s", forged.Status, forged.Code)
	stale := s.post(ctx, s.secret, body, time.Now().Add(-time.Hour))
	s.say("a webhook signed an hour ago", "%d %s", stale.Status, stale.Code)
}
