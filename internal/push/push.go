// Package push is the worker's door: Pub/Sub posts a message, and the answer's
// status tells it what became of it. It owns authentication of the push, decoding,
// the run of the handler under its deadline, the decision, and the answer. It
// refuses to know what an event means and where documents are kept.
//
// Who calls: Pub/Sub, for a queue at /push/{queue} and for that queue's dead
// letters at /push/dead-letters/{queue}. What it does with the answer: 200 and 204
// acknowledge, anything else delivers the message again after a backoff.
package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/deadletter"
	"billhook/internal/dedupe"
	"billhook/internal/handler"
	"billhook/internal/retry"
	"billhook/internal/serve"
	"billhook/internal/telemetry"
)

// Named errors of an Authenticator.
var (
	// ErrForbidden: the token is genuine, and its bearer is not who may push.
	ErrForbidden = errors.New("push: not allowed to push")
	// ErrKeysUnavailable: the token could not be checked now; the push is tried again.
	ErrKeysUnavailable = errors.New("push: signing keys unavailable")
)

// Authenticator checks who pushes.
type Authenticator interface {
	// Verify takes the Authorization header's value. It returns nil for a push to
	// accept, an error wrapping ErrForbidden or ErrKeysUnavailable, or any other
	// error for a token that is missing or wrong.
	Verify(ctx context.Context, authorization string) error
}

// Store is what the worker keeps its records and dead letters in.
type Store interface {
	dedupe.Store
}

// Config is what a Service is made of. Every field is required.
type Config struct {
	// Queues are those this worker serves; disabled ones are passed over.
	Queues        []catalog.Queue
	Handlers      *handler.Registry
	Store         Store
	DeadLetters   deadletter.Publisher
	Authenticator Authenticator
	Log           *slog.Logger
	Metrics       *telemetry.Metrics
	Now           func() time.Time
	// NewToken names one attempt; random.
	NewToken func() string
}

// Service answers pushes.
type Service struct {
	config   Config
	once     *dedupe.Once
	queues   map[string]*queue
	draining atomic.Bool
}

// queue is one queue being served.
type queue struct {
	catalog.Queue
	// slots bounds how many of its messages are handled at once.
	slots chan struct{}
}

// maxPushBody is the largest push request: a message of Pub/Sub's largest size in
// base64, with its attributes and the wrapping.
const maxPushBody = contract.MaxDataBytes/3*4 + contract.MaxAttributes*(contract.MaxAttributeKey+contract.MaxAttributeValue)*2 + 64<<10

// bookkeeping bounds what follows a handler: counting a failure, or confirming a
// dead letter and marking the record. It is not the handler's time.
const bookkeeping = 5 * time.Second

// New returns a service for the enabled queues of the config.
func New(config Config) *Service {
	s := &Service{
		config: config,
		once:   &dedupe.Once{Store: config.Store, Now: config.Now, NewToken: config.NewToken},
		queues: map[string]*queue{},
	}
	for _, q := range config.Queues {
		if q.Enabled {
			s.queues[q.ID] = &queue{Queue: q, slots: make(chan struct{}, q.Concurrency)}
		}
	}
	return s
}

// Drain makes the service refuse every push from now on with 503. What is in
// flight goes on.
func (s *Service) Drain() { s.draining.Store(true) }

// Draining reports whether Drain was called.
func (s *Service) Draining() bool { return s.draining.Load() }

// Routes adds the service's routes.
func (s *Service) Routes(r chi.Router) {
	r.Post("/push/{queue}", s.push)
	r.Post("/push/dead-letters/{queue}", s.deadLetter)
}

// answer is what a delivery is answered with.
type answer struct {
	Outcome retry.Outcome `json:"outcome"`
	// Status is the class of the outcome's table, also where the HTTP status acks.
	Status  int    `json:"status"`
	Reason  string `json:"reason,omitempty"`
	EventID string `json:"event_id,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
}

// httpStatus is the one place where an outcome becomes an HTTP status. Only 200
// and 204 acknowledge: Google's emulator nacks 202, production nacks 203.
func (a answer) httpStatus(terminal catalog.OnTerminal) int {
	switch a.Outcome {
	case retry.Processed:
		return http.StatusOK
	case retry.Duplicate, retry.Expired, retry.Dropped, retry.Superseded:
		return http.StatusNoContent
	case retry.DeadLettered:
		if terminal == catalog.Reject {
			return a.Status
		}
		return http.StatusOK
	case retry.Retry:
		return a.Status
	}
	return http.StatusInternalServerError
}

func retryAnswer(v retry.Verdict) answer {
	return answer{Outcome: retry.Retry, Status: int(v.Class), Reason: v.Reason}
}

// admit does what comes before a message is looked at: it refuses while draining,
// authenticates, finds the queue, and reads and decodes the body. It has answered
// where ok is false.
func (s *Service) admit(w http.ResponseWriter, r *http.Request) (q *queue, d delivery, ok bool) {
	if s.draining.Load() {
		serve.WriteProblem(w, http.StatusServiceUnavailable, "shutting_down", "This instance is shutting down; deliver again.")
		return nil, delivery{}, false
	}
	if err := s.config.Authenticator.Verify(r.Context(), r.Header.Get("Authorization")); err != nil {
		status, code, detail := http.StatusUnauthorized, "unauthorized", "The push needs a valid OIDC token of the push service account."
		switch {
		case errors.Is(err, ErrForbidden):
			status, code, detail = http.StatusForbidden, "forbidden", "The token's account may not push here."
		case errors.Is(err, ErrKeysUnavailable):
			status, code, detail = http.StatusServiceUnavailable, "keys_unavailable", "The token cannot be checked now; deliver again."
		}
		s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "push refused", slog.String("reason", code), slog.Int("status", status))
		serve.WriteProblem(w, status, code, detail)
		return nil, delivery{}, false
	}
	q, ok = s.queues[chi.URLParam(r, "queue")]
	if !ok {
		serve.WriteProblem(w, http.StatusNotFound, "queue_unknown", "This worker serves no queue of that name. See the catalog: is the queue enabled, and in this worker's pool?")
		return nil, delivery{}, false
	}
	body, err := readBody(w, r)
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			serve.WriteProblem(w, http.StatusRequestEntityTooLarge, "too_large", "The body is larger than any Pub/Sub message.")
			return nil, delivery{}, false
		}
		serve.WriteProblem(w, http.StatusServiceUnavailable, "body_unread", "The body did not arrive whole; deliver again.")
		return nil, delivery{}, false
	}
	d, err = decodeEnvelope(body)
	if err != nil {
		// This did not come from Pub/Sub: there is no message that could be lost.
		s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "push refused",
			slog.String("queue", q.ID), slog.String("reason", "envelope_malformed"), slog.Int("status", http.StatusBadRequest))
		serve.WriteProblem(w, http.StatusBadRequest, "envelope_malformed", "The body is not Pub/Sub's wrapped push format.")
		return nil, delivery{}, false
	}
	return q, d, true
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limited := http.MaxBytesReader(w, r.Body, maxPushBody)
	if r.ContentLength > 0 && r.ContentLength <= maxPushBody {
		body := make([]byte, r.ContentLength)
		_, err := io.ReadFull(limited, body)
		return body, err
	}
	return io.ReadAll(limited)
}

func (s *Service) push(w http.ResponseWriter, r *http.Request) {
	started := s.config.Now()
	q, d, ok := s.admit(w, r)
	if !ok {
		return
	}
	a := s.deliver(r.Context(), q, d)
	status := a.httpStatus(q.OnTerminal)
	took := s.config.Now().Sub(started)
	s.config.Metrics.Delivery(q.ID, string(a.Outcome), a.Reason, took)
	level := slog.LevelInfo
	switch a.Outcome {
	case retry.Retry:
		level = slog.LevelWarn
	case retry.DeadLettered:
		level = slog.LevelError
	default:
	}
	s.config.Log.LogAttrs(r.Context(), level, "delivery",
		slog.String("queue", q.ID), slog.String("event_id", a.EventID), slog.String("event_type", a.eventType(d)),
		slog.String("message_id", d.messageID), slog.Int("attempt", a.Attempt), slog.String("outcome", string(a.Outcome)),
		slog.String("reason", a.Reason), slog.Int("status", status), slog.Float64("duration_ms", took.Seconds()*1000))
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	serve.WriteJSON(w, status, a)
}

// eventType is the message's type where its event was valid, else nothing: what a
// broken message calls itself may be anything.
func (a answer) eventType(d delivery) string {
	if a.EventID == "" {
		return ""
	}
	return d.message.Attributes[contract.AttrEventType]
}

// deliver runs one message to its outcome.
func (s *Service) deliver(ctx context.Context, q *queue, d delivery) answer {
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
	default:
		return retryAnswer(retry.Decide(retry.Busy("queue_full", nil)))
	}
	if q.MessageTTL > 0 && !d.publishedAt.IsZero() && s.config.Now().Sub(d.publishedAt) > q.MessageTTL {
		return answer{Outcome: retry.Expired, Status: http.StatusNoContent, Reason: "message_ttl"}
	}
	event, record, err := decodeEvent(q, d)
	if err != nil {
		// The record of a message without a valid event hangs on the message alone, so
		// that a broken message cannot use up an event's id.
		record.PayloadHash = "" // the key holds it
		run := s.once.Begin(dedupe.MessageKey(q.ID, d.messageID, d.message.Data), record, q.RememberFor)
		return s.bury(ctx, q, d, run, retry.Decide(err), err)
	}
	a := s.handle(ctx, q, d, event, record)
	a.EventID = event.ID
	return a
}

// handle runs a valid event's handler once and decides what follows.
func (s *Service) handle(ctx context.Context, q *queue, d delivery, event handler.Event, record dedupe.Record) answer {
	spec := q.Handlers[event.Type]
	run := s.once.Begin(dedupe.Key(q.ID, event.Tenant, event.ID), record, q.RememberFor)
	tx, ok := s.config.Handlers.Lookup(spec.Name)
	if !ok {
		err := retry.Permanent("event_type_unknown", nil)
		return s.bury(ctx, q, d, run, retry.Decide(err), err)
	}
	limited, cancel := context.WithTimeout(ctx, spec.Timeout)
	seen, result, err := run.Effect(limited, event, d.attempt > 1, guarded(s.config.Log, tx))
	cancel()
	attempt := run.Attempts() + 1
	if err != nil {
		verdict := retry.Decide(err)
		switch {
		case verdict.Class.Terminal():
			return s.bury(ctx, q, d, run, verdict, err)
		case !verdict.Counts:
			a := retryAnswer(verdict)
			a.Attempt = attempt
			return a
		case attempt >= allowed(spec, event):
			exhausted := retry.Permanent("attempts_exhausted", fmt.Errorf("last failure: %s", verdict.Reason))
			return s.bury(ctx, q, d, run, retry.Decide(exhausted), exhausted)
		}
		wait := spec.Backoff.Wait(attempt, rand.Float64()) //nolint:gosec // jitter needs no secrecy
		s.count(ctx, q, event, run, verdict.Reason, s.config.Now().Add(wait))
		a := retryAnswer(verdict)
		a.Attempt = attempt
		return a
	}
	switch seen {
	case dedupe.Own:
		return answer{Outcome: retry.Processed, Status: http.StatusOK, Reason: result, Attempt: attempt}
	case dedupe.Differs:
		return s.conflict(ctx, q, d, run)
	default:
		return known(seen, run)
	}
}

// known answers a delivery whose record already says what became of the event.
func known(seen dedupe.Seen, run *dedupe.Run) answer {
	a := answer{Outcome: retry.Duplicate, Status: http.StatusNoContent, Attempt: run.Attempts()}
	switch seen {
	case dedupe.Done, dedupe.Own:
		a.Reason = "processed_before"
	case dedupe.Gone:
		a.Reason = "dead_lettered_before"
	case dedupe.Held:
		return retryAnswer(retry.Decide(retry.Busy("lease_held", nil)))
	case dedupe.Fresh, dedupe.Differs:
		return retryAnswer(retry.Decide(retry.Transient("undecided", nil)))
	}
	return a
}

// conflict buries a message whose id was used before with another payload, under a
// record of its own, so that its redelivery is known and acked.
func (s *Service) conflict(ctx context.Context, q *queue, d delivery, run *dedupe.Run) answer {
	err := retry.Conflicting("payload_conflict", nil)
	return s.bury(ctx, q, d, run.Conflict(), retry.Decide(err), err)
}

// allowed is how many attempts the event has: the message's own wish, bounded by
// the handler's.
func allowed(spec catalog.Handler, event handler.Event) int {
	var wished int
	if _, err := fmt.Sscanf(event.Attributes[contract.AttrMaxAttempts], "%d", &wished); err == nil && wished >= 1 {
		return min(wished, spec.MaxAttempts)
	}
	return spec.MaxAttempts
}

// count writes the failed attempt down. Where that fails too, the attempt is not
// counted and the answer stays what it is: the message comes back either way.
func (s *Service) count(ctx context.Context, q *queue, event handler.Event, run *dedupe.Run, reason string, next time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	if _, err := run.Fail(ctx, reason, next); err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "attempt not counted",
			slog.String("queue", q.ID), slog.String("event_id", event.ID), slog.String("reason", reason))
	}
}

// bury makes the dead letter, confirmed first, then marks the record, then answers.
func (s *Service) bury(ctx context.Context, q *queue, d delivery, run *dedupe.Run, verdict retry.Verdict, cause error) answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookkeeping)
	defer cancel()
	seen, err := run.Look(ctx)
	if err != nil {
		return retryAnswer(retry.Decide(err))
	}
	switch seen {
	case dedupe.Fresh:
	case dedupe.Differs:
		return s.conflict(ctx, q, d, run)
	default:
		return known(seen, run)
	}
	attempt := run.Attempts() + 1
	outcome := retry.DeadLettered
	if q.DeadLetter.Drop {
		outcome = retry.Dropped
	} else if err := deadletter.Publish(ctx, s.config.DeadLetters, q.Queue, deadletter.Letter{
		Message: d.message, Reason: verdict.Reason, Status: int(verdict.Class), Detail: detail(cause),
		SourceQueue: q.ID, SourceSubscription: d.subscription, SourceMessageID: d.messageID,
		Attempts: attempt, FirstPublishedAt: d.publishedAt, DeadLetteredAt: s.config.Now(),
	}); err != nil {
		a := retryAnswer(retry.Decide(retry.Down("dead_letter_unconfirmed", nil)))
		a.Attempt = attempt
		return a
	}
	if _, err := run.Bury(ctx, verdict.Reason, attempt); err != nil {
		a := retryAnswer(retry.Decide(retry.Down("store_unavailable", nil)))
		a.Attempt = attempt
		return a
	}
	return answer{Outcome: outcome, Status: int(verdict.Class), Reason: verdict.Reason, Attempt: attempt}
}

// detail is what a dead letter says beside its reason: the texts of our own errors,
// which hold codes and field paths; never a foreign error's text.
func detail(err error) string {
	var invalid *contract.Invalid
	if errors.As(err, &invalid) {
		return invalid.Error()
	}
	var marked *retry.Error
	if errors.As(err, &marked) {
		return strings.TrimPrefix(marked.Error(), marked.Verdict.Reason+": ")
	}
	return ""
}

// guarded runs a handler so that neither a panic nor a handler that ignores its
// deadline takes the delivery with it. A handler that comes back too late has
// changed nothing: its writes are committed by the caller, which is gone.
func guarded(log *slog.Logger, h handler.Tx) handler.Tx {
	return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		type returned struct {
			effect handler.Effect
			err    error
		}
		done := make(chan returned, 1)
		go func() {
			defer func() {
				if value := recover(); value != nil {
					// The value may hold anything; its type and place are enough to find it.
					log.LogAttrs(ctx, slog.LevelError, "handler panic", slog.String("queue", event.Queue),
						slog.String("event_id", event.ID), slog.String("type", fmt.Sprintf("%T", value)), slog.String("stack", string(debug.Stack())))
					done <- returned{err: retry.Transient("handler_panic", nil)}
				}
			}()
			effect, err := h(ctx, event)
			done <- returned{effect, err}
		}()
		select {
		case r := <-done:
			return r.effect, r.err
		case <-ctx.Done():
			return handler.Effect{}, context.Cause(ctx)
		}
	}
}

// deadLetter keeps one dead letter in the store. A store that is down is answered
// 503; the letter stays on its topic.
func (s *Service) deadLetter(w http.ResponseWriter, r *http.Request) {
	q, d, ok := s.admit(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), bookkeeping)
	defer cancel()
	fresh, err := deadletter.Keep(ctx, s.config.Store, q.Queue, d.message, d.messageID, s.config.Now())
	if err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "dead letter not kept", slog.String("queue", q.ID), slog.String("message_id", d.messageID))
		serve.WriteProblem(w, http.StatusServiceUnavailable, "store_unavailable", "The dead letter could not be stored; deliver again.")
		return
	}
	s.config.Log.LogAttrs(ctx, slog.LevelInfo, "dead letter kept", slog.String("queue", q.ID),
		slog.String("message_id", d.messageID), slog.Bool("new", fresh))
	w.WriteHeader(http.StatusNoContent)
}
