package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"billhook/internal/dedupe"
	"billhook/internal/devstack"
	"billhook/internal/ledger"
	"billhook/internal/ops"
	"billhook/internal/standin"
	"billhook/internal/store"
	"billhook/internal/webhook/samples"
)

// firstSample is the id of the first event of the demo.
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

// demo sends the samples and prints the result of each.
type demo struct {
	*program
	stack  *devstack.Stack
	secret string
	ask    client
}

// run sends the samples. Each sample has a customer of its own, so that none waits for another.
func (s *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s.printf("\nSending signed samples of PayNow's webhooks:\n\n")
	buyer := samples.Event{EventID: firstSample, OrderID: "900000000000000012"}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error {
			return s.expect(ctx, "an order", samples.OrderCompleted, buyer, "credited", samples.UID)
		},
		func(ctx context.Context) error { return s.duplicate(ctx, buyer) },
		s.unknownProduct,
		s.transient,
		func(ctx context.Context) error {
			return s.expect(ctx, "a full refund", samples.Refund, samples.Event{EventID: "900000000000000051", OrderID: buyer.OrderID}, "reversed", samples.UID)
		},
		s.renewal,
		s.lostAnswer,
		s.refused,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("dev: %w", err)
		}
	}
	return nil
}

func (s *demo) say(what, became string, args ...any) {
	s.printf("  %-34s %s\n", what, fmt.Sprintf(became, args...))
}

func (s *demo) send(ctx context.Context, sample string, event samples.Event) (reply, error) {
	c, err := s.catalog()
	if err != nil {
		return reply{}, err
	}
	return post(ctx, s.stack.WebhookURL, c.Sources["paynow"], s.secret, samples.Read(sample, event), time.Now())
}

// until polls the worker until the event's story satisfies done.
func (s *demo) until(ctx context.Context, eventID string, done func(ops.Event) bool) (ops.Event, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var event ops.Event
		err := s.ask.get(ctx, "/v1/ops/events/"+eventID, &event)
		var problem *problemError
		if err != nil && (!errors.As(err, &problem) || problem.status != http.StatusNotFound) {
			return event, err
		}
		if err == nil && done(event) {
			return event, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return event, fmt.Errorf("event %s: %w", eventID, ctx.Err())
		}
	}
}

func completed(e ops.Event) bool { return e.Status == string(dedupe.Completed) }

func (s *demo) balance(ctx context.Context, uid string) (int64, error) {
	var account ops.Account
	err := s.ask.get(ctx, "/v1/ops/accounts/"+string(ledger.UserPoints(uid)), &account)
	return account.Balance, err
}

func (s *demo) expect(ctx context.Context, what, sample string, event samples.Event, result, uid string) error {
	answer, err := s.send(ctx, sample, event)
	if err != nil {
		return err
	}
	story, err := s.until(ctx, event.EventID, completed)
	if err != nil {
		return err
	}
	if story.Result != result {
		return fmt.Errorf("event %s: %s instead of %s", event.EventID, story.Result, result)
	}
	balance, err := s.balance(ctx, uid)
	if err != nil {
		return err
	}
	s.say(what, "%d, then %s; the balance is %d points", answer.Status, story.Result, balance)
	return nil
}

func (s *demo) duplicate(ctx context.Context, buyer samples.Event) error {
	answer, err := s.send(ctx, samples.OrderCompleted, buyer)
	if err != nil {
		return err
	}
	// Events of one customer are processed in order: once this one is completed, the duplicate
	// is done too.
	next := samples.Event{EventID: "900000000000000021", OrderID: "900000000000000022"}
	if _, err := s.send(ctx, samples.OrderCompleted, next); err != nil {
		return err
	}
	if _, err := s.until(ctx, next.EventID, completed); err != nil {
		return err
	}
	balance, err := s.balance(ctx, samples.UID)
	if err != nil {
		return err
	}
	s.say("the same order again", "%d, then skipped as a duplicate; with another order behind it the balance is %d", answer.Status, balance)
	return nil
}

func (s *demo) unknownProduct(ctx context.Context) error {
	event := samples.Event{EventID: "900000000000000031", OrderID: "900000000000000032", CustomerID: "900000000000000033"}
	answer, err := s.send(ctx, samples.UnknownProduct, event)
	if err != nil {
		return err
	}
	story, err := s.until(ctx, event.EventID, func(e ops.Event) bool { return len(e.DeadLetters) > 0 })
	if err != nil {
		return err
	}
	s.say("an order with an unknown product", "%d, then dead-lettered: %s; nothing of it is credited", answer.Status, story.DeadLetters[0].Reason)
	return nil
}

func (s *demo) transient(ctx context.Context) error {
	event := samples.Event{EventID: "900000000000000041", OrderID: "900000000000000042", CustomerID: "900000000000000043", UID: "dev-user-of-the-retry"}
	answer, err := s.send(ctx, samples.OrderCompleted, event)
	if err != nil {
		return err
	}
	story, err := s.until(ctx, event.EventID, completed)
	if err != nil {
		return err
	}
	balance, err := s.balance(ctx, event.UID)
	if err != nil {
		return err
	}
	s.say("an order while the store fails", "%d, then delivered again and %s, with %d attempt counted; the balance is %d points", answer.Status, story.Result, story.Attempts, balance)
	return nil
}

// renewal sends a subscription's event, which reaches the subscription service.
func (s *demo) renewal(ctx context.Context) error {
	event := samples.Event{EventID: "900000000000000071", SubscriptionID: "900000000000000072", UID: "dev-user-of-the-renewal"}
	return s.sendRenewal(ctx, "a subscription that renews", event, func(story ops.Event) string {
		return fmt.Sprintf("told the subscription service once: %s at attempt %d", story.Result, story.Attempts)
	})
}

// lostAnswer has the service apply the update and cut the connection without an answer.
func (s *demo) lostAnswer(ctx context.Context) error {
	if err := s.stack.Service.Tell(standin.Forget, 1); err != nil {
		return err
	}
	event := samples.Event{EventID: "900000000000000081", SubscriptionID: "900000000000000082", UID: "dev-user-of-the-forgetful"}
	return s.sendRenewal(ctx, "a renewal whose answer is lost", event, func(story ops.Event) string {
		return fmt.Sprintf("asked at attempt %d whether it is done: %s; applied %d time", story.Attempts, story.Result, s.stack.Service.Applied(story.EventID))
	})
}

// sendRenewal sends a renewal and follows the update that it emits to its end.
func (s *demo) sendRenewal(ctx context.Context, what string, event samples.Event, became func(ops.Event) string) error {
	answer, err := s.send(ctx, samples.SubscriptionRenewed, event)
	if err != nil {
		return err
	}
	recorded, err := s.until(ctx, event.EventID, completed)
	if err != nil {
		return err
	}
	if len(recorded.Emitted) != 1 {
		return fmt.Errorf("event %s: emitted %d messages", event.EventID, len(recorded.Emitted))
	}
	story, err := s.until(ctx, recorded.Emitted[0], completed)
	if err != nil {
		return err
	}
	if applied := s.stack.Service.Applied(story.EventID); applied != 1 {
		return fmt.Errorf("event %s: the service applied it %d times", story.EventID, applied)
	}
	s.say(what, "%d, then %s and %s", answer.Status, recorded.Result, became(story))
	return nil
}

func (s *demo) refused(ctx context.Context) error {
	c, err := s.catalog()
	if err != nil {
		return err
	}
	body := samples.Read(samples.OrderCompleted, samples.Event{EventID: "900000000000000061"})
	forged, err := post(ctx, s.stack.WebhookURL, c.Sources["paynow"], "a-secret-that-paynow-does-not-have", body, time.Now())
	if err != nil {
		return err
	}
	s.say("a webhook with a bad signature", "%d %s", forged.Status, forged.Code)
	stale, err := post(ctx, s.stack.WebhookURL, c.Sources["paynow"], s.secret, body, time.Now().Add(-time.Hour))
	if err != nil {
		return err
	}
	s.say("a webhook signed an hour ago", "%d %s", stale.Status, stale.Code)
	return nil
}
