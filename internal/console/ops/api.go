package ops

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-json-experiment/json"

	"billhook/internal/console"
	"billhook/internal/console/api"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// API answers /v1/ops, and /api/v1/events for scripts that exist.
type API struct {
	Reads
	Access   Access
	Log      *slog.Logger
	Operator *deadletter.Operator
	Tries    *dryrun.Trials
	// Operations are what is declared; nil: nothing.
	Operations *console.Catalog
	// Timer is what a tail waits by between two looks.
	Timer func(time.Duration) (tick <-chan time.Time, stop func() bool)

	tails tails
}

// Routes adds the API's routes.
func (a *API) Routes(r chi.Router) {
	a.routes(r.With(sameOrigin, a.Access.require))
	a.eventQueueRoutes(r)
}

func (a *API) routes(r chi.Router) {
	r.Group(func(r chi.Router) {
		r.Use(saying)
		a.Console().Routes(r)
		r.Get("/v1/ops/events/tail", a.tail)
	})
	r.With(middleware.RequestSize(maxTried)).Post("/v1/ops/events/try", answer(a, a.try))
}

// Console serves what is declared as operations.
func (a *API) Console() *api.Server {
	return &api.Server{Catalog: cmp.Or(a.Operations, &console.Catalog{}), Log: a.Log, Author: Author, Now: a.Now, Store: a.Store}
}

func answer[T any](a *API, does func(*http.Request) (T, error)) http.HandlerFunc {
	return serve.Answer(http.StatusOK, does, a.refuse)
}

var (
	errPage    = serve.Refuse(http.StatusBadRequest, "page_invalid", "The page is the next of an earlier answer.")
	errRefused = serve.Refuse(http.StatusUnprocessableEntity, "refused", "")
)

// ladder is how the API answers errors. Last is for a store that did not answer, or has an
// unreadable document: never a 4xx.
var ladder = serve.Ladder{
	Rungs: []serve.Rung{
		{Of: audit.ErrInvalid, As: errRefused},
		{Of: dryrun.ErrCatalog, As: serve.Refuse(http.StatusUnprocessableEntity, "catalog_refused", "")},
		{Of: dryrun.ErrNoQueue, As: serve.Refuse(http.StatusNotFound, "queue_unknown", "The catalog runs no queue of that name or alias.")},
		{Of: dryrun.ErrNotKept, As: serve.Refuse(http.StatusNotFound, "payload_not_kept", "No payload of that event is kept: dead letters and what waits have theirs. Send the message in its place.")},
		{Of: dryrun.ErrSeveral, As: serve.Refuse(http.StatusConflict, "queue_needed", "Messages of several queues or tenants are kept under this event id; name one with queue or tenant.")},
		{Of: store.ErrBusy, As: serve.Refuse(http.StatusConflict, "busy", "Others have changed it at the same time; look at it again.")},
		{Of: store.ErrInvalid, As: errPage},
	},
	Last: serve.Refuse(http.StatusServiceUnavailable, "store_unavailable", "The store did not answer; try again.").After(5),
}

func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	a.problem(r.Context(), err).Write(w)
}

// problem is the answer to an error. It logs one that the ladder does not know.
func (a *API) problem(ctx context.Context, err error) *serve.Problem {
	if r := (*console.Refusal)(nil); errors.As(err, &r) {
		return serve.Refuse(int(r.Kind), r.Code, r.Detail)
	}
	p := ladder.Problem(err)
	if p == ladder.Last {
		a.Log.LogAttrs(ctx, slog.LevelWarn, "ops request failed", slog.String("error", err.Error()))
	}
	return p
}

// maxTried is the largest body of a trial, in bytes: a message and the files of a catalog.
const maxTried = 4 << 20

// readJSON reads the body of a request: one JSON value and nothing behind it. Names are exact,
// known, and there once: another reader may take the other one of two. The error is an answer
// with the advice.
func readJSON(r *http.Request, into any, advice string) error {
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, into, json.RejectUnknownMembers(true)) != nil {
		return serve.Refuse(http.StatusBadRequest, "body_malformed", advice)
	}
	return nil
}
