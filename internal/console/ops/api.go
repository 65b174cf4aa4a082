package ops

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/endpoints"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/env"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// API answers /v1/ops, and /api/v1/events for scripts that exist.
type API struct {
	Reads
	Access    Access
	Log       *slog.Logger
	Operator  *deadletter.Operator
	Customers *customers.Operator
	Products  *products.Keeper
	Endpoints *endpoints.Keeper
	Periods   *journal.Periods
	Reverter  *journal.Reverter
	Tries     *dryrun.Desk
	Stock     *orders.Keeper
	Pauses    *pause.Keeper
	// NewID returns a random id, of an entry in the audit.
	NewID func() string
	// Timer is what a tail waits by between two looks.
	Timer func(time.Duration) (tick <-chan time.Time, stop func() bool)
	// Example makes a body of a format, for an event type or a pattern of them; nil: contracts are
	// shown without one.
	Example func(format, eventType string) ([]byte, error)

	// Self is this worker, and Settings is what it runs with.
	Self     Self
	Settings []env.Setting
	// Doctor compares the live queues with the catalog; nil: there are none to look at from here.
	Doctor Doctor

	tails    tails
	examined examined
}

// Routes adds the API's routes.
func (a *API) Routes(r chi.Router) {
	a.routes(r.With(sameOrigin, a.Access.require))
	a.eventQueueRoutes(r)
}

// routes adds what people and pages ask for. Whoever asks has been let in.
func (a *API) routes(r chi.Router) {
	r.Route("/v1/ops", func(r chi.Router) {
		r.Use(bounded, saying)
		r.Get("/queues", answer(a, a.queues))
		r.Get("/waiting", answer(a, a.waitsOf))
		r.Get("/outbox", answer(a, a.outbox))
		r.Get("/events", answer(a, a.events))
		r.Get("/events/tail", a.tail)
		r.Get("/events/{event_id}", answer(a, a.event))
		a.searchRoutes(r)
		a.accountRoutes(r)
		a.subscriptionRoutes(r)
		a.deadLetterRoutes(r)
		a.payloadRoutes(r)
		a.customerRoutes(r)
		a.productRoutes(r)
		a.endpointRoutes(r)
		a.refundRoutes(r)
		a.usageRoutes(r)
		a.orderRoutes(r)
		a.journalRoutes(r)
		a.periodRoutes(r)
		a.pauseRoutes(r)
		a.rateRoutes(r)
		a.statusRoutes(r)
	})
	a.tryRoutes(r)
}

func answer[T any](a *API, does func(*http.Request) (T, error)) http.HandlerFunc {
	return serve.Answer(http.StatusOK, does, a.refuse)
}

// ladder is how the API answers errors. Last is for a store that did not answer, or has an
// unreadable document: never a 4xx.
var ladder = serve.Ladder{
	Rungs: slices.Concat(journalRungs, periodRungs, orderRungs, pauseRungs, accountRungs, payloadRungs, twoPeopleRungs, []serve.Rung{
		{Of: errSeveral, As: serve.Refuse(http.StatusConflict, "queue_needed", "Several queues or tenants know this event id; name one with ?queue= or ?tenant=.")},
		{Of: deadletter.ErrUnknown, As: serve.Refuse(http.StatusNotFound, "unknown", "There is nothing of that id.")},
		{Of: deadletter.ErrChanged, As: serve.Refuse(http.StatusConflict, "changed", "")},
		{Of: deadletter.ErrRefused, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
		{Of: deadletter.ErrBusy, As: serve.Refuse(http.StatusConflict, "busy", "The operation is being run; ask again.")},
		{Of: customers.ErrUnknown, As: serve.Refuse(http.StatusNotFound, "customer_not_linked", "This customer is linked to nobody.")},
		{Of: customers.ErrRefused, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
		{Of: customers.ErrChanged, As: serve.Refuse(http.StatusConflict, "customer_changed", "Somebody has changed the link; look at it again.")},
		{Of: products.ErrUnknown, As: serve.Refuse(http.StatusNotFound, "product_unknown", "Neither the catalog nor the store has a product of that id.")},
		{Of: products.ErrInvalid, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
		{Of: products.ErrChanged, As: serve.Refuse(http.StatusConflict, "changed", "The product is not worth what was expected any more; look at it again.")},
		{Of: endpoints.ErrUnknown, As: serve.Refuse(http.StatusNotFound, "endpoint_unknown", "There is no endpoint of that id.")},
		{Of: endpoints.ErrInvalid, As: serve.Refuse(http.StatusUnprocessableEntity, "refused", "")},
		{Of: endpoints.ErrExists, As: serve.Refuse(http.StatusConflict, "endpoint_exists", "There is an endpoint of that id.")},
		noRefund,
		{Of: dryrun.ErrCatalog, As: serve.Refuse(http.StatusUnprocessableEntity, "catalog_refused", "")},
		{Of: dryrun.ErrNoQueue, As: serve.Refuse(http.StatusNotFound, "queue_unknown", "The catalog runs no queue of that name or alias.")},
		{Of: dryrun.ErrNotKept, As: serve.Refuse(http.StatusNotFound, "payload_not_kept", "No payload of that event is kept: dead letters and what waits have theirs. Send the message in its place.")},
		{Of: dryrun.ErrSeveral, As: errSeveralKept},
		{Of: store.ErrBusy, As: serve.Refuse(http.StatusConflict, "busy", "Others have changed it at the same time; look at it again.")},
		{Of: store.ErrInvalid, As: serve.Refuse(http.StatusBadRequest, "page_invalid", "The page is the next of an earlier answer.")},
	}),
	Last: serve.Refuse(http.StatusServiceUnavailable, "store_unavailable", "The store did not answer; try again.").After(5),
}

func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	a.problem(r.Context(), err).Write(w)
}

// problem is the answer to an error. It logs one that the ladder does not know.
func (a *API) problem(ctx context.Context, err error) *serve.Problem {
	p := ladder.Problem(err)
	if p == ladder.Last {
		a.Log.LogAttrs(ctx, slog.LevelWarn, "ops request failed", slog.String("error", err.Error()))
	}
	return p
}

// maxRequest is the largest body of a request, in bytes.
const maxRequest = 64 << 10

func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		next.ServeHTTP(w, r)
	})
}

// readJSON reads the body of a request: one JSON value and nothing behind it. Names are exact,
// known, and there once: another reader may take the other one of two. The error is an answer
// with the advice.
func readJSON(r *http.Request, into any, advice string) error {
	_, err := readBody(r, into, advice)
	return err
}

// readChange reads the body of a request for a change as readJSON does, and requires that it gives a reason.
// Where the reason is refused the error wraps audit.ErrInvalid.
func readChange(r *http.Request, into any, advice string) error {
	body, err := readBody(r, into, advice)
	if err != nil {
		return err
	}
	var reason Reason
	if err := json.Unmarshal(body, &reason); err != nil || strings.TrimSpace(reason.Why) == "" {
		return fmt.Errorf("%w: a change needs a reason: say why", audit.ErrInvalid)
	}
	return audit.CheckWhy(reason.Why)
}

func readBody(r *http.Request, into any, advice string) (body []byte, err error) {
	body, err = io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, into, json.RejectUnknownMembers(true)) != nil {
		return nil, serve.Refuse(http.StatusBadRequest, "body_malformed", advice)
	}
	return body, nil
}

// param is a part of the path, unescaped: chi leaves it escaped where the client escaped more
// than necessary.
func param(r *http.Request, name string) string {
	value := chi.URLParam(r, name)
	if r.URL.RawPath != "" {
		if meant, err := url.PathUnescape(value); err == nil {
			return meant
		}
	}
	return value
}

func (a *API) event(r *http.Request) (Event, error) {
	of, err := a.asked(r)
	if err != nil {
		return Event{}, err
	}
	return a.Event(r.Context(), of.id, of.queue, of.tenant)
}

func (a *API) queues(r *http.Request) (Queues, error) {
	if err := read(r).err(); err != nil {
		return Queues{}, err
	}
	return a.Queues(r.Context())
}

func (a *API) outbox(r *http.Request) (Lanes, error) {
	params := read(r, "limit")
	limit := params.limit(lanes, maxLanes)
	if err := params.err(); err != nil {
		return Lanes{}, err
	}
	return a.Outbox(r.Context(), limit)
}

// events answers the job log, the newest first.
func (a *API) events(r *http.Request) (List[Line], error) {
	params := read(r, "queue", "status", "event_id", "correlation_id", "key", "type", "since", "until", "limit", "page")
	equal := params.filters(a.Catalog)
	now, limit := a.Now().UTC(), params.limit(lines, dedupe.MaxListed)
	first := Place{newest: true}
	first.since, first.until = params.at("since", now, first.since).Truncate(time.Microsecond), params.at("until", now, first.until).Truncate(time.Microsecond)
	if !first.until.IsZero() && !first.since.Before(first.until) {
		params.refuse("since_invalid", "The parameter since is before until.")
	}
	at := params.page("events", first)
	if err := params.err(); err != nil {
		return List[Line]{}, err
	}
	found, next, err := a.Events(r.Context(), equal, at, limit)
	return List[Line]{Items: found, Next: params.next("events", at, next)}, err
}

// changes answers the audit's entries of a kind about the subject in the path, the newest first.
func (a *API) changes(kind string, atMost int) http.HandlerFunc {
	return answer(a, func(r *http.Request) (List[audit.Entry], error) {
		return paged(r, read(r, "limit", "page"), "", atMost, func(tenant string, after store.Cursor, limit int) ([]audit.Entry, store.Cursor, error) {
			return audit.Subject{Kind: kind, Tenant: tenant, ID: param(r, "id")}.List(r.Context(), a.Store, after, limit)
		})
	})
}

// changesOf answers the audit's entries of a kind about a tenant's subject, as changes does.
func (a *API) changesOf(kind string, atMost int) http.HandlerFunc {
	return tenants(a, atMost, func(r *http.Request, tenant string, after store.Cursor, limit int) ([]audit.Entry, store.Cursor, error) {
		return audit.Subject{Kind: kind, Tenant: tenant, ID: param(r, "id")}.List(r.Context(), a.Store, after, limit)
	})
}

// tenants answers a list of a tenant by the page that begins behind an id and has a limit.
func tenants[T any](a *API, atMost int, page func(r *http.Request, tenant string, after store.Cursor, limit int) ([]T, store.Cursor, error)) http.HandlerFunc {
	return answer(a, func(r *http.Request) (List[T], error) {
		params := read(r, "tenant", "limit", "page")
		return paged(r, params, params.tenant(), atMost, func(tenant string, after store.Cursor, limit int) ([]T, store.Cursor, error) {
			return page(r, tenant, after, limit)
		})
	})
}

// paged is a list by the page that the parameters name. A page is of the tenant that it was begun for.
func paged[T any](r *http.Request, params *parameters, tenant string, atMost int, page func(tenant string, after store.Cursor, limit int) ([]T, store.Cursor, error)) (list List[T], err error) {
	name := r.URL.Path + "?" + tenant
	limit, at := params.limit(most, atMost), params.page(name, Place{})
	if err = params.err(); err != nil {
		return list, err
	}
	items, next, err := page(tenant, at.Cursor, limit)
	return listOf(items, params.next(name, at, next)), err
}

// tenantOf is the tenant that a request without other parameters names.
func tenantOf(r *http.Request) (string, error) {
	params := read(r, "tenant")
	tenant := params.tenant()
	return tenant, params.err()
}
