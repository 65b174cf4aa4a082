// Package push answers what Pub/Sub pushes. It owns the push's authentication, decoding, the handler's run
// under its deadline, the decision, and the answer. It does not know what events mean.
//
// A message becomes a delivery, which does not change. An attempt takes it through order, claim, perform and
// settle. Each step returns a finding; the table in disposition.go decides what follows from it.
//
// Pub/Sub posts a queue's messages to /push/{queue} and its dead letters to /push/dead-letters/{queue}. The
// answers 200 and 204 acknowledge a message; after any other Pub/Sub delivers it again, after a backoff.
package push

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/telemetry"
	"billhook/internal/retry"
)

// Authenticator checks the token of a push: the value of its Authorization header. The error wraps
// serve.ErrNotAllowed or serve.ErrKeysUnavailable; any other means that the token is missing or wrong.
type Authenticator interface {
	Verify(ctx context.Context, authorization string) error
}

// Alarm releases kept messages at a time, or shortly after it. After an error the next run of release-delayed
// releases them.
type Alarm interface {
	At(ctx context.Context, at time.Time) error
}

// Config is what a Service is made of. Every field but Rates is required.
type Config struct {
	dedupe.Once                   // of the event's records
	Queues        []catalog.Queue // disabled ones are skipped
	Catalog       *catalog.Catalog
	Handlers      *handler.Registry
	Outbox        *lane.Relay // publishes emissions, and its publisher dead letters
	Alarm         Alarm
	Authenticator Authenticator
	Log           *slog.Logger
	Metrics       *telemetry.Metrics
	Rates         *rates.Recorder // nil: deliveries are not counted
	Timer         handler.Timer
	Dice          func() float64 // random in [0,1), for the jitter of a backoff
}

// Service answers pushes.
type Service struct {
	config Config
	queues map[string]*queue
	bodies *semaphore.Weighted
	waits
}

type queue struct {
	catalog.Queue
	slots *slots
	// waits: the queue is ordered and its messages usually wait in lanes, so each delivery reads its lane.
	waits bool
	// noneWait remembers that the queue has no lane. Without that, each delivery reads its lane.
	noneWait *cache.Cache[bool]
	// oneTarget: its messages of all types go to one service outside.
	oneTarget bool
	// nacks is the budget of nacks for failures of single messages.
	nacks *rate.Limiter
}

// New returns a service for the enabled queues of the config.
func New(config Config) *Service {
	s := &Service{
		config: config, queues: map[string]*queue{}, bodies: semaphore.NewWeighted(serve.DefaultBodyBudget),
	}
	s.timer = config.Timer
	s.ended, s.drain = context.WithCancel(context.Background())
	for _, q := range config.Queues {
		if q.Enabled {
			s.queues[q.ID] = s.newQueue(q)
		}
	}
	return s
}

func (s *Service) newQueue(q catalog.Queue) *queue {
	places, leased, many := map[string]bool{}, false, false
	for _, spec := range q.Handlers {
		// Posts to different paths of one target count as one.
		places[cmp.Or(spec.Post.Target, spec.Name)] = true
		if h, _ := s.config.Handlers.Lookup(spec.Name); h.Leased != nil {
			leased, many = true, many || h.Leased.ManyPlaces
		}
	}
	return &queue{
		Queue: q, slots: &slots{waits: &s.waits, free: q.Concurrency},
		nacks:    rate.NewLimiter(rate.Every(q.NackBudget), 1),
		noneWait: cache.New[bool](1, s.config.Now), oneTarget: leased && !many && len(places) == 1,
		// Messages wait in lanes if the policy is not the broker's, or if the called service requests a wait.
		waits: q.Ordered() && (leased || !q.BrokerKeepsTime()),
	}
}

// phases counts the steps around a handler: lane, claim, result, dead letter, outbox, lane, alarm.
const phases = 7

// Longest is the longest time from a push's body to its answer.
func (s *Service) Longest() time.Duration {
	longest := bookkeeping // to keep a dead letter
	for _, q := range s.queues {
		longest = max(longest, q.AckDeadline+grace+phases*bookkeeping)
	}
	return longest
}

// Drain makes the service answer 503 to each push that arrives or waits. Handlers that run go on.
func (s *Service) Drain() { s.drain() }

// Routes adds the service's routes.
func (s *Service) Routes(r chi.Router) {
	r = r.With(s.Authenticated)
	r.Post("/push/{queue}", s.admitted(s.push))
	r.Post("/push/dead-letters/{queue}", s.admitted(s.deadLetter))
}

func (s *Service) push(w http.ResponseWriter, r *http.Request, q *queue, e envelope) {
	d := s.decode(q, e)
	if !d.repeated() {
		s.config.Rates.Arrived(q.ID)
	}
	reply := d.deliver(r.Context())
	now, level := s.config.Now(), slog.LevelInfo
	status, took := reply.httpStatus(q, now), now.Sub(e.received)
	switch {
	case reply.Outcome == retry.DeadLettered:
		level = slog.LevelError
	case reply.Outcome == retry.Retry && reply.Status != http.StatusOK: // else it only waits
		level = slog.LevelWarn
	}
	s.config.Metrics.Delivery(q.ID, string(reply.Outcome), reply.Reason, took)
	d.concluded(r.Context(), level, "delivery", reply,
		slog.Int("status", status), slog.Float64("duration_ms", took.Seconds()*1000))
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return
	}
	serve.WriteJSON(w, status, reply)
}

// deadLetter stores a dead letter, or leaves it on its topic.
func (s *Service) deadLetter(w http.ResponseWriter, r *http.Request, q *queue, e envelope) {
	ctx, cancel := context.WithTimeout(r.Context(), bookkeeping)
	defer cancel()
	failpoint.Hit(failpoint.DeadLetterKeep)
	fresh, err := deadletter.Keep(ctx, s.config.Store, q.Queue, e.message, e.messageID, s.config.Now())
	if err != nil {
		s.config.Log.LogAttrs(ctx, slog.LevelWarn, "dead letter not kept", slog.String("queue", q.ID),
			slog.String("message_id", e.messageID), slog.String("cause", cause(err)))
		errUnkept.Write(w)
		return
	}
	failpoint.Hit(failpoint.DeadLetterKept)
	s.config.Log.LogAttrs(ctx, slog.LevelInfo, "dead letter kept", slog.String("queue", q.ID),
		slog.String("message_id", e.messageID), slog.Bool("new", fresh))
	w.WriteHeader(http.StatusNoContent)
}

// maxPushBody is the size of Pub/Sub's largest message in base64, of its attributes, which JSON may escape to
// six times their size, and of the wrapping.
const maxPushBody = (contract.MaxMessageBytes/3+1)*4 +
	contract.MaxAttributes*(contract.MaxAttributeKey+contract.MaxAttributeValue)*6 + 64<<10

// admitted finds the queue of an authenticated push, and reads and decodes the body.
func (s *Service) admitted(next func(http.ResponseWriter, *http.Request, *queue, envelope)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		received := s.config.Now()
		q, known := s.queues[chi.URLParam(r, "queue")]
		if !known {
			s.refuse(w, r, errQueue)
			return
		}
		var body serve.Body
		defer func() { body.Release(s.bodies, 0) }() // the message is as large, and in memory until it is answered
		if err := body.Read(w, r, maxPushBody, s.bodies); err != nil {
			s.refuse(w, r, unread.Problem(err))
			return
		}
		e, err := decodeEnvelope(body.Bytes())
		if err != nil { // it is not from Pub/Sub: no message can be lost
			s.refuse(w, r, errNotPush)
			return
		}
		e.received, e.trace = received, traceOf(r.Header.Get("Traceparent"),
			e.message.Attributes["googclient_traceparent"])
		next(w, r, q, e)
	}
}

// traceparent is the header of the W3C's Trace Context, up to the id of the trace.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}`)

// traceOf returns the trace id of the first value that has one; empty if none has.
func traceOf(values ...string) string {
	for _, value := range values {
		if found := traceparent.FindStringSubmatch(value); found != nil && strings.Trim(found[1], "0") != "" {
			return found[1]
		}
	}
	return ""
}

// refusals is the table of the answers to pushes that are not admitted. docs/reference/answers.md prints it.
var refusals serve.Refusals

var (
	errDraining = refusals.Add(http.StatusServiceUnavailable, "shutting_down",
		"This instance is shutting down; deliver again.", 0)
	errTwoTokens = refusals.Add(http.StatusForbidden, "forbidden",
		"A push carries its token in one Authorization, and no other.", 0)
	errBrowser = refusals.Add(http.StatusForbidden, "cross_origin", "A browser does not push.", 0)
	errQueue   = refusals.Add(http.StatusNotFound, "queue_unknown", "This worker serves no queue of that "+
		"name. See the catalog: is the queue enabled, and in this worker's pool?", 0)
	errNotPush = refusals.Add(http.StatusBadRequest, "envelope_malformed",
		"The body is not Pub/Sub's wrapped push format.", 0)
	errUnkept = refusals.Add(http.StatusServiceUnavailable, "store_unavailable",
		"The dead letter could not be stored; deliver again.", 0)
	unauthorized = serve.ErrorMapping{
		Known: []serve.KnownError{
			{
				Of: serve.ErrNotAllowed, As: refusals.Add(http.StatusForbidden, "forbidden",
					"The token's account may not push here.", 0),
			},
			{
				Of: serve.ErrKeysUnavailable, As: refusals.Add(http.StatusServiceUnavailable, "keys_unavailable",
					"The token cannot be checked now; deliver again.", 0),
			},
		},
		Last: refusals.Add(http.StatusUnauthorized, "unauthorized",
			"The push needs a valid OIDC token of the push service account.", 0),
	}
	unread = serve.ErrorMapping{
		Known: []serve.KnownError{
			{
				Of: serve.ErrTooLarge, As: refusals.Add(http.StatusRequestEntityTooLarge, "too_large",
					"The body is larger than any Pub/Sub message.", 0),
			},
			{
				Of: serve.ErrNoRoom, As: refusals.Add(http.StatusServiceUnavailable, "bodies_in_flight",
					"Too much is being read at once; deliver again.", 0),
			},
		},
		Last: refusals.Add(http.StatusServiceUnavailable, "body_unread",
			"The body did not arrive whole; deliver again.", 0),
	}
)

// Authenticated passes on requests with the token of a push, such as Cloud Scheduler's, and refuses others.
func (s *Service) Authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch header := r.Header; {
		case s.Draining():
			s.refuse(w, r, errDraining)
		// Cloud Run checks X-Serverless-Authorization in place of Authorization, which it then passes on unchecked.
		case len(header.Values("X-Serverless-Authorization")) > 0 || len(header.Values("Authorization")) > 1:
			s.refuse(w, r, errTwoTokens)
		// Only browsers send these. With an emulator, which needs no token, any open page could post here.
		case len(header.Values("Origin")) > 0 || len(header.Values("Sec-Fetch-Site")) > 0:
			s.refuse(w, r, errBrowser)
		default:
			if err := s.config.Authenticator.Verify(r.Context(), header.Get("Authorization")); err != nil {
				s.refuse(w, r, unauthorized.Problem(err))
				return
			}
			next.ServeHTTP(w, r)
		}
	})
}

func (s *Service) refuse(w http.ResponseWriter, r *http.Request, p *serve.Problem) {
	s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "push refused", slog.String("reason", p.Code),
		slog.Int("status", p.Status))
	p.Write(w)
}
