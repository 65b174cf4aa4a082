package push

import (
	"context"
	"errors"
	"log/slog"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/delayed"
	"billhook/internal/failpoint"
	"billhook/internal/handler"
	"billhook/internal/retry"
	"billhook/internal/store"
)

// leased runs a handler whose effect is outside, under a lease on the event's record,
// and decides what follows. A caller that leaves does not end it: the time is the
// handler's own, and half a call is worse than a whole one that nobody waits for.
func (s *Service) leased(ctx context.Context, q *queue, d delivery, event handler.Event, run *dedupe.Run, name delayed.Name, h handler.Leased) answer {
	ctx = context.WithoutCancel(ctx)
	spec := q.Handlers[event.Type]
	failpoint.Hit(failpoint.LeasedClaim)
	claim, cancel := context.WithTimeout(ctx, bookkeeping)
	seen, err := run.Claim(claim, q.Lease, keep(q, d), d.redelivered())
	cancel()
	switch {
	case err != nil && retry.Decide(err).Class.Terminal():
		return s.bury(ctx, q, d, run, err)
	case err != nil:
		return again(retry.Decide(err), err, 0) // nothing was tried
	case seen != dedupe.Claimed:
		return s.met(ctx, q, d, run, seen)
	}
	failpoint.Hit(failpoint.LeasedClaimed)
	event.Attempt = run.Attempt()
	limited, cancel := context.WithTimeout(ctx, spec.Timeout)
	result, err := s.effect(limited, event, h, run.Repeated(), allowed(spec, event))
	timedOut := limited.Err() != nil
	cancel()
	failpoint.Hit(failpoint.LeasedDone)

	ctx, cancel = context.WithTimeout(ctx, bookkeeping)
	defer cancel()
	if err == nil {
		if seen, err = run.Complete(ctx, result); err != nil {
			return again(retry.Decide(err), err, event.Attempt) // the lease stands, and then Reconcile is asked
		}
		failpoint.Hit(failpoint.LeasedCompleted)
		return s.met(ctx, q, d, run, seen)
	}
	verdict := retry.Decide(err)
	if timedOut && !verdict.Class.Terminal() {
		verdict = retry.Decide(context.DeadlineExceeded)
	}
	if abandoned := (abandonedError{}); errors.As(err, &abandoned) {
		// It still runs, and nobody can stop it: no other attempt while the lease stands.
		s.config.Log.LogAttrs(ctx, slog.LevelError, "handler does not return", slog.String("queue", q.ID),
			slog.String("event_id", event.ID), slog.String("event_type", event.Type))
		return again(verdict, err, event.Attempt)
	}
	switch {
	case verdict.Class.Terminal():
		return s.bury(ctx, q, d, run, err)
	case verdict.Counts && event.Attempt >= allowed(spec, event):
		return s.bury(ctx, q, d, run, retry.Permanent("attempts_exhausted", &retry.Error{Verdict: verdict}))
	}
	counted := event.Attempt
	if !verdict.Counts {
		counted = 0
	}
	for range counting {
		next, kept := s.next(ctx, q, d, event, run, name, event.Attempt, err)
		failpoint.Hit(failpoint.LeasedRelease)
		seen, released := run.Release(ctx, verdict.Reason, next, verdict.Counts)
		failpoint.Hit(failpoint.LeasedReleased)
		switch {
		case released != nil:
			s.config.Log.LogAttrs(ctx, slog.LevelWarn, "lease not released", slog.String("queue", q.ID),
				slog.String("event_id", event.ID), slog.String("message_id", d.messageID), slog.String("reason", verdict.Reason))
			return again(verdict, err, counted)
		case seen == dedupe.Counted:
			a := again(verdict, err, counted)
			a.Delayed = kept
			return a
		case seen != dedupe.Claimed:
			return s.met(ctx, q, d, run, seen)
		}
	}
	return again(verdict, err, counted) // the lease stands
}

// effect finds out what became of an earlier attempt, if there was one, and performs
// the effect if it is not known to have taken place. An event whose workers died in
// every attempt gets no other one, but the question.
func (s *Service) effect(ctx context.Context, event handler.Event, h handler.Leased, repeated bool, allowed int) (string, error) {
	type reconciled struct {
		result string
		done   bool
	}
	if repeated && h.Reconcile != nil {
		found, err := guarded(ctx, s.config.Log, event, parting, func(ctx context.Context) (r reconciled, err error) {
			r.result, r.done, err = h.Reconcile(ctx, event)
			return r, err
		})
		failpoint.Hit(failpoint.LeasedReconciled)
		if err != nil || found.done {
			return found.result, err
		}
	}
	if event.Attempt > allowed {
		return "", retry.Permanent("attempts_exhausted", retry.Transient("worker_died", nil))
	}
	return guarded(ctx, s.config.Log, event, parting, func(ctx context.Context) (string, error) { return h.Do(ctx, event) })
}

// maxKept is the largest message that a record keeps: half of what a document holds.
const maxKept = 512 << 10

// keep is the message that a claim stores, for a sweep to publish it again; nil where
// nobody would, or where no document can hold it: then an orphan is reported.
func keep(q *queue, d delivery) *contract.Message {
	if q.OnOrphan != catalog.Republish || len(d.message.Data) > maxKept {
		return nil
	}
	// Pub/Sub takes names of attributes, and bytes, that no document may have.
	as := store.Set(store.Key{Collection: dedupe.Collection, ID: d.messageID}, d.message.Fields())
	if store.CheckWrites([]store.Write{as}) != nil {
		return nil
	}
	return &d.message
}
