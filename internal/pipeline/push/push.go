// Package push answers what Pub/Sub pushes. It owns authentication of a push, decoding, the run of the handler under its
// deadline, the decision, and the answer. It refuses to know what an event means and where documents are kept.
//
// Pub/Sub posts a queue's messages to /push/{queue} and its dead letters to /push/dead-letters/{queue}. The answers 200 and
// 204 acknowledge a message; after any other Pub/Sub delivers it again, after a backoff.
package push

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"golang.org/x/time/rate"

	"billhook/catalog"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
	"billhook/internal/retry"
)

// Authenticator checks the token of a push, which is the Authorization header's value. The error wraps
// serve.ErrNotAllowed or serve.ErrKeysUnavailable, or is any other for a token that is missing or wrong.
type Authenticator interface {
	Verify(ctx context.Context, authorization string) error
}

// Outbox publishes what a lane of emissions holds, and returns how many messages that were. After an error the rest is
// published later.
type Outbox interface {
	Lane(ctx context.Context, lane string) (published int, err error)
}

// Alarm releases kept messages at a time, or shortly after it. After an error the next run of release-delayed releases them.
type Alarm interface {
	At(ctx context.Context, at time.Time) error
}

// Timer returns a channel that is sent to when a time has passed, and a function that ends the wait.
type Timer func(d time.Duration) (c <-chan time.Time, stop func() bool)

// Config is what a Service is made of. Every field but Rates is required.
type Config struct {
	// Queues are those this worker serves; disabled ones are passed over.
	Queues []catalog.Queue
	// Catalog has the contracts of bodies, and the topics of emissions.
	Catalog       *catalog.Catalog
	Handlers      *handler.Registry
	Store         store.Store
	DeadLetters   deadletter.Publisher
	Outbox        Outbox
	Alarm         Alarm
	Authenticator Authenticator
	Log           *slog.Logger
	Metrics       *telemetry.Metrics
	// Rates counts what becomes of deliveries; nil: nobody does.
	Rates *rates.Recorder
	Now   func() time.Time
	Timer Timer
	// Instance names this process in logs and in the log of an event's attempts.
	Instance string
	// NewToken names one attempt; random.
	NewToken func() string
	// Dice returns a random number in [0,1), for the jitter of a backoff.
	Dice func() float64
}

// Service answers pushes.
type Service struct {
	config Config
	once   *dedupe.Once
	queues map[string]*queue
	// bodies is the budget of the bodies in flight.
	bodies   *serve.Budget
	draining atomic.Bool
	// ended is closed when the service begins to drain.
	ended chan struct{}
}

// queue is one queue being served.
type queue struct {
	catalog.Queue
	// slots bounds how many of its messages are handled at once.
	slots *slots
	// waits: it is ordered, and its messages wait as a rule, so each of its deliveries looks for one before it.
	waits bool
	// noneWait is whether no message of it waits in a lane. Where one does, every lane is read.
	noneWait *cache.Cache[bool]
	// oneTarget: its messages of all types go to one place outside.
	oneTarget bool
	// nacks is the budget of nacks for the sake of single messages.
	nacks *rate.Limiter
}

// New returns a service for the enabled queues of the config.
func New(config Config) *Service {
	s := &Service{
		config: config,
		once:   &dedupe.Once{Store: config.Store, Now: config.Now, NewToken: config.NewToken, Instance: config.Instance},
		queues: map[string]*queue{}, ended: make(chan struct{}),
		bodies: serve.NewBudget(serve.DefaultBodyBudget),
	}
	for _, q := range config.Queues {
		if !q.Enabled {
			continue
		}
		places, leased, many := map[string]bool{}, false, false
		for _, spec := range q.Handlers {
			h, _ := config.Handlers.Lookup(spec.Name)
			// Posts to one target are to one place, whatever their paths.
			places[cmp.Or(spec.Post.Target, spec.Name)], leased = true, leased || h.Leased != nil
			many = many || (h.Leased != nil && h.Leased.ManyPlaces)
		}
		s.queues[q.ID] = &queue{
			Queue: q, slots: newSlots(q.Concurrency, config.Timer, s.ended), noneWait: cache.New[bool](1, 0, config.Now), oneTarget: leased && !many && len(places) == 1,
			// Messages wait by a policy that is not the broker's, or where the service that a leased handler calls asks for it.
			waits: q.Ordered() && (leased || !q.BrokerKeepsTime()),
			nacks: rate.NewLimiter(rate.Every(q.NackBudget), 1),
		}
	}
	return s
}

// phases is the number of bookkeeping steps around one handler: the place in line, the claim, the result, the dead letter,
// the outbox, the end of the lane, and the alarm with the second that an acknowledgement is held back.
const phases = 7

// Longest is the longest time from a push's body to its answer. The wait for a slot and the handler end within the ack
// deadline. The grace of a handler and the bookkeeping are added.
func (s *Service) Longest() time.Duration {
	longest := bookkeeping // a dead letter is kept
	for _, q := range s.queues {
		longest = max(longest, q.AckDeadline+grace+phases*bookkeeping)
	}
	return longest
}

// Drain makes the service answer 503 to every push that comes or waits. Handlers that run go on.
func (s *Service) Drain() {
	if s.draining.CompareAndSwap(false, true) {
		close(s.ended)
	}
}

// Draining reports whether Drain was called.
func (s *Service) Draining() bool { return s.draining.Load() }

// Routes adds the service's routes.
func (s *Service) Routes(r chi.Router) {
	r.Post("/push/{queue}", s.push)
	r.Post("/push/dead-letters/{queue}", s.deadLetter)
}

func (s *Service) push(w http.ResponseWriter, r *http.Request) {
	received := s.config.Now()
	q, e, ok := s.admit(w, r)
	if !ok {
		return
	}
	defer e.release()
	e.received = received
	reply, delivered := s.deliver(r.Context(), q, e)
	status, took := reply.httpStatus(q, s.config.Now()), s.config.Now().Sub(e.received)
	s.config.Metrics.Delivery(q.ID, string(reply.Outcome), reply.Reason, took)
	s.config.Rates.Ended(q.ID, reply.Outcome, reply.Attempt)
	level := slog.LevelInfo
	switch {
	case reply.Outcome == retry.DeadLettered:
		level = slog.LevelError
	case reply.Outcome == retry.Retry && reply.Status != http.StatusOK: // else it only waits
		level = slog.LevelWarn
	}
	record := delivered.record
	var made []slog.Attr
	if reply.Ref != "" {
		made = []slog.Attr{slog.String("ref", reply.Ref)}
	}
	s.config.Log.LogAttrs(r.Context(), level, "delivery", append(made,
		slog.String("queue", q.ID), slog.String("event_id", record.EventID), slog.String("event_type", record.EventType),
		slog.String("message_id", e.messageID), slog.String("instance", s.config.Instance), slog.String("ordering_key", record.OrderingKey),
		slog.String("correlation_id", record.CorrelationID), slog.Int("attempt", reply.Attempt), slog.Int("delivery_attempt", e.number),
		slog.String("outcome", string(reply.Outcome)), slog.String("reason", reply.Reason), slog.String("result", reply.result),
		slog.String("cause", reply.cause), slog.Bool("delayed", reply.Delayed), slog.Int("status", status), slog.Float64("duration_ms", took.Seconds()*1000))...)
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	serve.WriteJSON(w, status, reply)
}

// deadLetter keeps one dead letter in the store. Where the store is down, it stays on its topic.
func (s *Service) deadLetter(w http.ResponseWriter, r *http.Request) {
	q, e, ok := s.admit(w, r)
	if !ok {
		return
	}
	defer e.release()
	ctx, cancel := context.WithTimeout(r.Context(), bookkeeping)
	defer cancel()
	failpoint.Hit(failpoint.LetterKeep)
	fresh, err := deadletter.Keep(ctx, s.config.Store, q.Queue, e.message, e.messageID, s.config.Now())
	if err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "dead letter not kept", slog.String("queue", q.ID),
			slog.String("message_id", e.messageID), slog.String("cause", cause(err)))
		errUnkept.Write(w)
		return
	}
	failpoint.Hit(failpoint.LetterKept)
	s.config.Log.LogAttrs(ctx, slog.LevelInfo, "dead letter kept", slog.String("queue", q.ID),
		slog.String("message_id", e.messageID), slog.Bool("new", fresh))
	w.WriteHeader(http.StatusNoContent)
}
