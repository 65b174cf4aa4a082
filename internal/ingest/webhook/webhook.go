// Package webhook is ingest: it verifies signed webhooks of providers and messages of producers, minimizes,
// validates and publishes them, and answers 202 once Pub/Sub has confirmed. After 4xx sending again does not
// help (429: later); after 503 keep it and send it again. It parses nothing unsigned, and does not guess.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/store"
	"billhook/internal/platform/telemetry"
)

// Config is what a Service is made of. Every field is required unless it says otherwise.
type Config struct {
	Catalog *catalog.Catalog
	// Secrets of each source, by its name; each source needs at least one.
	Secrets map[string][]string
	// Keys has the keys of the providers' APIs, by source; without a key nothing is read from the API.
	Keys map[string]string
	// Client calls those APIs.
	Client http.Client
	// Tolerance is how far a signed time may be before or after now.
	Tolerance time.Duration
	Publisher contract.Publisher
	// UID finds the uid of a tenant's customer; empty: there is none. With an error it is unknown.
	UID func(ctx context.Context, tenant, customerID string) (uid string, err error)
	// Points returns the points of one piece of a product, above 0; known: orders may name it; err: unknown.
	Points  func(ctx context.Context, tenant, productID string) (points int64, known bool, err error)
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Now     func() time.Time
	// PublishTimeout bounds the wait for the broker, and the earlier ones for the provider's API and the uid.
	PublishTimeout time.Duration
	// Store has the states of orders, and the backlogs that a task has counted.
	Store store.Getter
	// Blocks is how instances share the rate limits of queues and users; nil: nothing is limited.
	Blocks store.Store
	// Accounts may put messages on queues with a token; the zero value is none.
	Accounts Accounts
	// BodyBudget bounds the bytes of bodies in flight together; 0 is serve.DefaultBodyBudget.
	BodyBudget int64
	// Release is written into each published message; empty: it is left out.
	Release string
}

// Service answers webhooks.
type Service struct {
	http.Handler
	config  Config
	sources map[string]*source
	limits  *Limits // nil: nothing is limited
	buffers sync.Pool
	// bodies is the budget of the bodies in flight.
	bodies   *semaphore.Weighted
	draining atomic.Bool
}

type source struct {
	catalog.Source
	verifier *signature.Verifier
	// limiters bound the source's rate for each queue: a flood into one does not use up another's.
	limiters map[string]*rate.Limiter
	// routes are the destinations of its event types.
	routes map[string]*destination
	// provider is nil if the bodies are in the contract's formats.
	provider *provider
}

type event struct {
	raw jsontext.Value
	// The requested options; empty or 0: none.
	routingKey, deliverAt, priority, tenant string
	maxAttempts                             int64
	// given has the attributes that the sender gave.
	given contract.Given
	err   error
	body  contract.Body
	// mapping is the provider's mapping for the event's type.
	mapping *mapping
	// uid and shopOrder come from the provider's metadata.
	uid, shopOrder string
	// read is the URL of further members in the provider's API.
	read string
	// route is the destination of the provider's webhook.
	route *destination
	// points are the order's points; empty: unknown.
	points string
	// queues are the queues that the message reaches: its own, or its topic's.
	queues  []catalog.Queue
	topic   string
	message contract.Message
}

// New returns the service. The error joins all mistakes of its configuration.
func New(config Config) (*Service, error) {
	s := &Service{config: config, sources: map[string]*source{}}
	s.buffers.New = func() any { return new(buffers) }
	if config.Blocks != nil {
		s.limits = NewLimits(config)
	}
	room := cmp.Or(config.BodyBudget, serve.DefaultBodyBudget)
	s.bodies = semaphore.NewWeighted(room)
	var mistakes []error
	for name := range config.Accounts.Emails {
		if _, ok := config.Catalog.Accounts[name]; !ok {
			mistakes = append(mistakes, fmt.Errorf("webhook: the catalog has no account %q", name))
		}
	}
	for name, declared := range config.Catalog.Sources {
		verifier, err := signature.NewVerifier(config.Catalog.Signature(declared), config.Secrets[name],
			config.Tolerance, config.Now)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", declared.SecretVariable, err))
			continue
		}
		if need := 2*declared.MaxBodyBytes + mostKept; room < need { // as much may be used while a buffer grows
			mistakes = append(mistakes, fmt.Errorf(
				"webhook: source %s: a body budget of %d bytes is too small: at least %d", name, room, need))
		}
		at := &source{Source: declared, verifier: verifier}
		at.limiters, at.routes = map[string]*rate.Limiter{}, map[string]*destination{}
		for eventType, id := range declared.Events {
			to, _ := s.queueOf(id) // the catalog has checked it
			at.routes[eventType] = &to
		}
		for _, q := range config.Catalog.Queues {
			if declared.RatePerSecond > 0 {
				at.limiters[q.ID] = rate.NewLimiter(rate.Limit(declared.RatePerSecond), declared.Burst)
			}
		}
		if of, ok := config.Catalog.Providers[string(declared.Scheme)]; ok {
			at.provider = newProvider(of, config.Catalog.Contracts, config.Now)
			if key := config.Keys[name]; key != "" {
				at.provider.api = newAPI(of.API, key, config.Client, config.PublishTimeout)
			}
		}
		s.sources[name] = at
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler { return serve.Recover(config.Log, next) })
	serve.Health(router, s.draining.Load)
	router.Post("/queues/{name}/messages", s.produce(s.queueOf, errQueue))
	router.Post("/topics/{name}/messages", s.produce(s.topicOf, errTopic))
	router.Get("/orders/{id}", s.order)
	router.Post("/webhooks/{source}", func(w http.ResponseWriter, r *http.Request) {
		name := chi.URLParam(r, "source")
		from, ok := s.sources[name]
		if !ok {
			s.refuse(w, r, "unknown", errSource)
			return
		}
		s.receive(w, r, from, nil)
	})
	s.Handler = router
	return s, nil
}

// Drain makes the service report that it is not ready. It still answers.
func (s *Service) Drain() { s.draining.Store(true) }

// Longest is the longest time that an answer takes.
func (s *Service) Longest() time.Duration { return 3 * s.config.PublishTimeout }

// outcome is the answer to a webhook and its log line.
type outcome struct {
	// result has members of the message whose shape was checked. A Problem has its own status and reason.
	result
	eventType string

	source  string
	account string // the account that sent it with a token; empty: it was signed
	started time.Time
	bytes   int
	// item is its position in a list, from 1 on; 0: it came alone.
	item int
	// dropped are the paths and rules of the values that were left out.
	dropped pii.Dropped
	// cause is why the broker did not confirm, for the log only.
	cause string
}

// result is the answer about a message.
type result struct {
	Status      int    `json:"status,omitzero"` // in a list
	EventID     string `json:"event_id,omitempty"`
	Queue       string `json:"queue,omitempty"`
	Topic       string `json:"topic,omitempty"`
	MessageID   string `json:"message_id,omitempty"`
	OrderingKey string `json:"ordering_key,omitempty"`
	// Ignored: no queue takes it, and Reason says why.
	Ignored bool   `json:"ignored,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// RetryAfter is in seconds.
	RetryAfter int `json:"retry_after,omitempty"`
	*serve.Problem
}

// refuse ends the outcome with the problem of an error.
func (o *outcome) refuse(err error) {
	p := refusal(err)
	o.Problem, o.Status, o.Reason = p, p.Status, p.Code
}

// ignore ends a webhook that no queue takes.
func (o *outcome) ignore(reason string) { o.Status, o.Ignored, o.Reason = http.StatusOK, true, reason }

// prepare makes the message of a verified body; none if no queue takes it. to is the destination of a
// producer's message, and nil for a provider's webhook.
func (s *Service) prepare(
	ctx context.Context, from *source, to *destination, e *event, b *buffers, o *outcome,
) (err error) {
	switch {
	case e.err != nil:
		return e.err
	case from.provider != nil:
		err = from.provider.read(ctx, b, from, e, o)
	default:
		err = s.readGeneric(b.minimized[:0], from, to, e, o)
	}
	if !e.body.None() {
		o.EventID, o.eventType = e.body.Identity() // they are minimized, so they have their shapes
	}
	if err != nil || o.Ignored {
		return err
	}
	if err = e.validate(o, to == nil); err != nil {
		return err
	}
	if e.points, err = s.points(ctx, e.tenantID(), e.body); err != nil {
		return e.explain(err)
	}
	to = cmp.Or(to, e.route)
	if e.queues, err = s.routed(e, to); err != nil {
		return err
	}
	if e.message, err = s.compose(ctx, e, b, o); err != nil {
		return err
	}
	q := &e.queues[0]
	o.EventID = q.EventID(o.EventID, e.body.IdempotencyKey())
	if e.topic = q.Topic(); to.topic != "" {
		o.Topic = to.topic
		return nil
	}
	o.Queue = q.ID
	e.message.Attributes = q.Addressed(e.message.Attributes)
	return nil
}

// validate holds the body to its contract. From a provider's body bad optional members are dropped.
func (e *event) validate(o *outcome, provided bool) error {
	err := e.body.Validate()
	// other members may need one that was dropped
	if provided && (err != nil || e.mapping == nil && len(o.dropped) > 0) {
		before := len(o.dropped)
		o.dropped = e.body.Relax(o.dropped)
		e.mapping.sent(o.dropped[before:])
		err = e.body.Validate()
	}
	return e.explain(err)
}

// explain returns an error with the paths of the sender's own body.
func (e *event) explain(err error) error {
	if invalid, ok := errors.AsType[*contract.Invalid](err); ok {
		e.mapping.sent(invalid.Violations)
	}
	return err
}

// readGeneric reads a body of one of the contract's own formats. Unknown fields and bad optional ones are
// dropped from a provider's body; both refuse a producer's.
func (s *Service) readGeneric(scratch []byte, from *source, to *destination, e *event, o *outcome) error {
	contracts, body := s.config.Catalog.Contracts, []byte(e.raw)
	found := contracts.Detect(nil, body)
	format := cmp.Or(found, contract.PaymentV1) // Validate names what is missing
	if to != nil {
		if format = to.formatFor(found); found != "" && found != format {
			return errUnsupported
		}
		// A body that cannot be completed is read as it is, for its violations.
		given := e.given
		if given.Type = e.routingKey; given.At.IsZero() {
			given.At = s.config.Now()
		}
		if whole, err := contracts.Complete(format, body, given); err == nil {
			body = whole
		}
	}
	document, err := pii.Parse(body)
	if err != nil {
		return err
	}
	of, err := contracts.Find(format, body)
	undeclared, isUndeclared := errors.AsType[*contract.Invalid](err)
	if isUndeclared && to != nil {
		return err
	}
	var minimized []byte
	if to == nil {
		minimized, o.dropped, err = of.Projection().Minimize(scratch, nil, document)
	} else {
		minimized, err = of.Projection().Exact(scratch, document)
	}
	if err != nil {
		return err
	}
	if e.body, err = of.Decode(minimized); err != nil {
		return &pii.Error{Malformed: true}
	}
	id, eventType := e.body.Identity()
	e.route = from.routes[eventType]
	switch {
	case id != "" && eventType != "" && to == nil && e.route == nil:
		o.ignore("no_queue")
	case isUndeclared:
		return undeclared
	}
	return nil
}
