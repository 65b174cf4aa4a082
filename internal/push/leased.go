package push

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/failpoint"
	"billhook/internal/handler"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// leased runs a handler whose effect is outside, under a lease on the event's record,
// and decides what follows. A caller that leaves does not end it: the time is the
// handler's own, and half a call is worse than a whole one that nobody waits for.
func (s *Service) leased(ctx context.Context, w *attempt, h handler.Leased) answer {
	ctx = context.WithoutCancel(ctx)
	run := w.run
	failpoint.Hit(failpoint.LeasedClaim)
	claim, cancel := context.WithTimeout(ctx, bookkeeping)
	seen, err := run.Claim(claim, w.queue.Lease, keepable(w.queue, w.delivery), w.known)
	cancel()
	verdict := retry.Decide(err)
	switch {
	case err != nil && verdict.Class.Terminal():
		return s.bury(ctx, w, err)
	case err != nil && verdict.Scope == retry.OneMessage && !verdict.Counts: // else nobody can read the record
		return s.busy(ctx, w, err, time.Time{})
	case err != nil:
		return again(verdict, err, 0) // nothing was tried
	case seen != dedupe.Claimed:
		return s.settle(ctx, w, seen)
	}
	failpoint.Hit(failpoint.LeasedClaimed)
	w.event.Attempt = run.Attempt()
	limited, cancel := context.WithTimeout(ctx, w.spec().Timeout)
	result, err := s.effect(limited, w, h)
	timedOut := limited.Err() != nil
	cancel()
	failpoint.Hit(failpoint.LeasedDone)

	ctx, cancel = context.WithTimeout(ctx, bookkeeping)
	defer cancel()
	if err == nil {
		if seen, err = run.Complete(ctx, result); err != nil {
			return again(retry.Decide(err), err, w.event.Attempt) // the lease stands, and then Reconcile is asked
		}
		failpoint.Hit(failpoint.LeasedCompleted)
		return s.settle(ctx, w, seen)
	}
	verdict = retry.Decide(err)
	if timedOut && !verdict.Class.Terminal() {
		verdict = retry.Decide(context.DeadlineExceeded)
	}
	if abandoned := (abandonedError{}); errors.As(err, &abandoned) {
		// It still runs, and nobody can stop it: no other attempt while the lease stands.
		s.config.Log.LogAttrs(ctx, slog.LevelError, "handler does not return", slog.String("queue", w.queue.ID),
			slog.String("event_id", w.event.ID), slog.String("event_type", w.event.Type))
		return again(verdict, err, w.event.Attempt)
	}
	switch {
	case verdict.Class.Terminal():
		return s.bury(ctx, w, err)
	case verdict.Counts && w.event.Attempt >= w.allowed():
		return s.bury(ctx, w, retry.Permanent("attempts_exhausted", &retry.Error{Verdict: verdict}))
	}
	return s.letGo(ctx, w, verdict, err)
}

// letGo ends the lease of an attempt that has failed.
func (s *Service) letGo(ctx context.Context, w *attempt, verdict retry.Verdict, failure error) answer {
	counted := w.event.Attempt
	if !verdict.Counts {
		counted = 0
	}
	for range counting {
		due, how := s.next(ctx, w, w.event.Attempt, verdict, failure)
		failpoint.Hit(failpoint.LeasedRelease)
		seen, err := w.run.Release(ctx, verdict.Reason, due, verdict.Counts)
		failpoint.Hit(failpoint.LeasedReleased)
		switch {
		case err != nil:
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "lease not released", slog.String("queue", w.queue.ID),
				slog.String("event_id", w.event.ID), slog.String("message_id", w.delivery.messageID), slog.String("reason", verdict.Reason))
			return again(verdict, failure, counted)
		case seen == dedupe.Counted:
			return s.follow(w, verdict, failure, counted, due, how)
		case seen != dedupe.Claimed:
			return s.settle(ctx, w, seen)
		}
	}
	return again(verdict, failure, counted) // the lease stands
}

// effect finds out what became of an earlier attempt, if there was one, and performs
// the effect if it is not known to have taken place. An event whose workers died in
// every attempt gets no other one, but the question.
func (s *Service) effect(ctx context.Context, w *attempt, h handler.Leased) (string, error) {
	event := w.event
	type reconciled struct {
		result string
		done   bool
	}
	if w.run.Repeated() && h.Reconcile != nil {
		found, err := guarded(ctx, s.config.Log, event, parting, func(ctx context.Context) (r reconciled, err error) {
			r.result, r.done, err = h.Reconcile(ctx, event)
			return r, err
		})
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || found.done {
			return found.result, err
		}
	}
	if event.Attempt > w.allowed() {
		return "", retry.Permanent("attempts_exhausted", retry.Transient("worker_died", nil))
	}
	return guarded(ctx, s.config.Log, event, parting, func(ctx context.Context) (string, error) { return h.Do(ctx, event) })
}

// maxKept is the largest message that a record keeps: half of what a document holds.
const maxKept = 512 << 10

// keepable is the message that a claim stores, for a sweep to publish it again; nil where
// nobody would, or where no document can hold it: then an orphan is reported.
func keepable(q *queue, d delivery) *contract.Message {
	if q.OnOrphan != catalog.Republish || len(d.message.Data) > maxKept {
		return nil
	}
	// Pub/Sub takes names of attributes, and bytes, that no document may have.
	as := store.Set(store.Key{Collection: dedupe.Collection, ID: d.messageID}, store.Encode(&d.message))
	if store.CheckWrites([]store.Write{as}) != nil {
		return nil
	}
	return &d.message
}
