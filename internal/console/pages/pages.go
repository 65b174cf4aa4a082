// Package pages owns the pages at /ops/: what the ops API reads and changes, rendered on the server, complete
// without a script. It reads and changes data only through the API, changes nothing on GET, and loads no
// style or script of another site.
package pages

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/docs/reference"
	"billhook/docs/runbooks"
	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/platform/serve"
)

// Caller calls the ops API for the person of the context.
type Caller interface {
	// Call calls an operation, and returns a value of its answer's type. The error is a *serve.Problem, or wraps
	// the context's.
	Call(ctx context.Context, o console.Operation, in console.Input) (any, error)
}

// Pages serves the pages.
type Pages struct {
	API      Caller
	Declared *console.Catalog
	// Sessions admit people to the pages.
	Sessions *access.Sessions
	Catalog  *catalog.Catalog
	// Environment names the deployment. Live: it uses neither emulators nor stand-ins.
	Environment string
	Live        bool
	Log         *slog.Logger
	Now         func() time.Time
	// Longest is how long a page may take; 0: 4 seconds.
	Longest time.Duration
}

//go:embed templates static
var files embed.FS

// Routes adds the pages.
func (p *Pages) Routes(r chi.Router) {
	p.Longest = cmp.Or(p.Longest, longest)
	r.Get("/ops", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/ops/", http.StatusSeeOther)
	})
	r.Route("/ops/", func(r chi.Router) {
		r.Use(secured...)
		r.With(zipped).Get("/static/*", p.static)
		r.Group(func(r chi.Router) {
			r.Use(p.fromHere)
			p.signInRoutes(r)
		})
		r.Group(func(r chi.Router) {
			r.Use(zipped, p.Sessions.Guard(p.refuse), p.punctual)
			p.declaredRoutes(r)
			p.shapedRoutes(r)
			r.NotFound(func(w http.ResponseWriter, r *http.Request) { p.fail(p.visit(w, r), errNoPage) })
		})
	})
}

func (p *Pages) shapedRoutes(r chi.Router) {
	p.page(r, "/", "overview.html", p.overview)
	p.page(r, "/queues/{id}", "queues_show.html", p.queue)
	p.page(r, "/events/{event_id}", "events_show.html", p.event)
	p.page(r, "/search", "search.html", p.search)
	p.page(r, "/runbooks/{name}", "runbook.html", func(v *visit) (_ any, err error) {
		book, found := runbooks.Read(v.param("name"))
		if !found {
			err = errNoPage
		}
		return book, err
	})
	p.page(r, "/reasons/{reason}", "reason.html", func(v *visit) (_ any, err error) {
		code := explained{Code: v.param("reason")}
		if code.Entries = reference.Entries(code.Code); code.Entries == nil {
			err = errNoPage
		}
		return code, err
	})
	p.page(r, "/accounts/{account}", "declared_detail.html", p.account)
	r.Get("/journal", func(w http.ResponseWriter, r *http.Request) {
		to := strings.TrimSuffix("/ops/journal/balances?"+r.URL.RawQuery, "?")
		http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // a page of this site
	})
	r.Get("/journal/balances.csv", p.balancesCSV)
}

// explained is a code with all that it means.
type explained struct {
	Code    string
	Entries []reference.Entry
}

var errNoPage = serve.Refuse(http.StatusNotFound, "page_unknown", "There is no page at this address.")

// longest is how long a page may take, after which the store counts as down.
const longest = 4 * time.Second

func (p *Pages) punctual(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), p.Longest)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

const maxForm = 64 << 10

type visit struct {
	w       http.ResponseWriter
	request *http.Request
	ctx     context.Context //nolint:containedctx // it lives as long as the request
	skipped *api.Skipped
	now     time.Time
	problem *serve.Problem
}

func (p *Pages) visit(w http.ResponseWriter, r *http.Request) *visit {
	ctx, skipped := api.CollectSkipped(r.Context())
	return &visit{w: w, request: r, ctx: ctx, skipped: skipped, now: p.Now().UTC()}
}

func (v *visit) param(name string) string { return api.Param(v.request, name) }

// query is a parameter. Repeated values, such as the chosen rows of a list, are joined by commas.
func (v *visit) query(name string) string {
	return strings.TrimSpace(strings.Join(v.request.URL.Query()[name], ","))
}

func (v *visit) form(name string) string { return v.request.PostForm.Get(name) }

// elsewhere is the address to redirect to.
type elsewhere string

func (elsewhere) Error() string { return "the page is elsewhere" }

func (p *Pages) page(r chi.Router, route, file string, load func(*visit) (any, error)) {
	if templates[file] == nil {
		panic("pages: no template " + file) // every test finds it
	}
	r.Get(route, func(w http.ResponseWriter, r *http.Request) {
		v := p.visit(w, r)
		data, err := load(v)
		if to, ok := errors.AsType[elsewhere](err); ok {
			http.Redirect(w, r, string(to), http.StatusSeeOther)
			return
		}
		if err != nil {
			p.fail(v, err)
			return
		}
		status := http.StatusOK
		if v.problem != nil {
			status = v.problem.Status
		}
		p.render(v, status, file, data)
	})
}

// change adds a form: GET shows it, POST makes the change and redirects to the address that act returns;
// empty: act has answered. A refusal shows the form again, with its reason and what was filled in.
func (p *Pages) change(
	r chi.Router, route, file string, load func(*visit) (any, error), act func(*visit) (next string, err error),
) {
	p.page(r, route, file, load)
	r.Post(route, func(w http.ResponseWriter, r *http.Request) {
		v := p.visit(w, r)
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			p.fail(v, errForm)
			return
		}
		next, err := act(v)
		if err == nil {
			if next != "" {
				http.Redirect(w, r, next, http.StatusSeeOther)
			}
			return
		}
		if problem := problemOf(err); problem.Status < http.StatusInternalServerError {
			if data, again := load(v); again == nil {
				v.problem = problem
				p.render(v, problem.Status, file, data)
				return
			}
		}
		p.fail(v, err)
	})
}

var (
	errStalled = serve.Refuse(http.StatusServiceUnavailable, "store_stalled", "The database has not answered "+
		"within 4 seconds. Nothing is lost by that: what is delivered meanwhile comes again. Try again in a "+
		"moment, and look at the database itself.")
	errUnknown = serve.Refuse(http.StatusServiceUnavailable, "outcome_unknown", "This has not ended within 4 "+
		"seconds. Whether it was done is not known: look at what became of it before you send it again.")
	errFailed = serve.Refuse(http.StatusServiceUnavailable, "page_failed",
		"This page could not be made; the worker's log says why.")
	errForm = serve.Refuse(http.StatusBadRequest, "form_malformed",
		"The form could not be read; go back and send it again.")
)

func (p *Pages) fail(v *visit, err error) {
	problem := problemOf(err)
	if problem == errStalled && v.request.Method == http.MethodPost {
		problem = errUnknown
	}
	if problem.Status >= http.StatusInternalServerError {
		p.Log.LogAttrs(v.ctx, slog.LevelWarn, "ops page failed", slog.String("code", problem.Code),
			slog.String("error", err.Error()), slog.String("who", access.Who(v.ctx)))
	}
	v.problem = problem
	p.render(v, problem.Status, "problem.html", problem)
}

func problemOf(err error) *serve.Problem {
	problem, refusal := (*serve.Problem)(nil), (*console.Refusal)(nil)
	switch {
	case errors.As(err, &problem):
		return problem
	case errors.As(err, &refusal):
		return serve.Refuse(int(refusal.Kind), refusal.Code, refusal.Detail)
	case errors.Is(err, context.DeadlineExceeded):
		return errStalled
	default:
		return errFailed
	}
}

const rows = "50"

func notFound(err error) *serve.Problem {
	if problem := problemOf(err); problem.Status == http.StatusNotFound {
		return problem
	}
	return nil
}

func (v *visit) refused(err error) error {
	if problem := problemOf(err); problem.Status < http.StatusInternalServerError {
		v.problem = problem
		return nil
	}
	return err
}
