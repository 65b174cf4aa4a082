// Package api serves operations over HTTP: a route for each, refusals as problem documents, and the OpenAPI
// document of all. It does not decide who is admitted, and it knows no operation.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

// Server serves operations.
type Server struct {
	*console.Catalog

	Log *slog.Logger
	// Author is the caller of an admitted request.
	Author func(context.Context) audit.Author
	Now    func() time.Time
	Store  store.GetCommitter
}

var (
	// errNobody is a second check, in case a route is not guarded.
	errNobody = serve.Refuse(http.StatusForbidden, "forbidden", "Nobody was let in for this.")
	errQuery  = serve.Refuse(http.StatusBadRequest, "query_invalid", "The query string is malformed.")

	errNoParameter = serve.Refuse(http.StatusBadRequest, "parameter_unknown", "This takes no parameter.")
)

// maxBody is the largest body of a request, in bytes.
const maxBody = 64 << 10

// Routes adds a route for each operation.
func (s *Server) Routes(r chi.Router) {
	for _, o := range s.Operations {
		r.MethodFunc(o.Method, o.Pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(o, w, r) })
	}
	r.Get("/v1/ops/openapi.json", func(w http.ResponseWriter, r *http.Request) {
		switch query, err := url.ParseQuery(r.URL.RawQuery); {
		case err != nil:
			errQuery.Below(console.Codes).Write(w)
		case len(query) > 0:
			errNoParameter.Below(console.Codes).Write(w)
		default:
			serve.WriteJSON(w, http.StatusOK, s.OpenAPI())
		}
	})
}

func (s *Server) serve(o console.Operation, w http.ResponseWriter, r *http.Request) {
	ctx, skipped := CollectSkipped(r.Context())
	body, repeated, err := s.answer(ctx, o, r)
	if err != nil {
		s.Problem(ctx, o, err).Below(console.Codes).Write(w)
		return
	}
	if repeated {
		w.Header().Set(headerRepeated, "true")
	}
	if said := skipped.String(); said != "" {
		w.Header().Set(HeaderSkipped, said)
	}
	status := http.StatusOK
	if o.Created {
		status = http.StatusCreated
	}
	serve.WriteJSON(w, status, json.RawMessage(body))
}

// answer returns the operation's answer, or the stored one if a change is repeated under its key.
func (s *Server) answer(
	ctx context.Context, o console.Operation, r *http.Request,
) (body []byte, repeated bool, err error) {
	in, err := inputOf(o, r)
	if err != nil {
		return nil, false, err
	}
	change, before, err := s.begin(ctx, o, in, r.Header.Get(headerKey))
	if err != nil || before != "" {
		return []byte(before), true, err
	}
	answer, err := s.Call(ctx, o, in)
	if err == nil {
		body, err = json.Marshal(answer)
	}
	if failed := s.end(ctx, o, change, body, err); failed != nil {
		s.Log.LogAttrs(ctx, slog.LevelWarn, "answer not kept", slog.String("operation", o.Name),
			slog.String("error", failed.Error()))
	}
	return body, false, err
}

// inputOf reads the request of an operation. The error is a *serve.Problem.
func inputOf(o console.Operation, r *http.Request) (in console.Input, err error) {
	if in.Query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return in, errQuery
	}
	in.Path = map[string]string{}
	for _, f := range o.Fields {
		if f.In == console.InPath {
			in.Path[f.Name] = Param(r, f.Name)
		}
	}
	most := cmp.Or(o.Body, maxBody)
	if in.Body, err = io.ReadAll(http.MaxBytesReader(nil, r.Body, most)); err != nil {
		detail := fmt.Sprintf("The body could not be read: it has at most %d KiB.", most>>10)
		return in, serve.Refuse(http.StatusBadRequest, "body_malformed", detail)
	}
	return in, nil
}

// Param returns a path parameter, unescaped: chi leaves it escaped if the client escaped more than necessary.
func Param(r *http.Request, name string) string {
	value := chi.URLParam(r, name)
	if r.URL.RawPath != "" {
		if meant, err := url.PathUnescape(value); err == nil {
			return meant
		}
	}
	return value
}

// Call calls an operation for the author in the context. The answer is a value of the operation's answer
// type. The error is a *serve.Problem, or wraps the context's.
func (s *Server) Call(ctx context.Context, o console.Operation, in console.Input) (any, error) {
	in.Now = s.Now().UTC()
	by := s.Author(ctx)
	if by == (audit.Author{}) {
		return nil, errNobody
	}
	answer, err := o.Call(ctx, by, in)
	if err != nil {
		if ended := context.Cause(ctx); ended != nil {
			return nil, ended
		}
		return nil, s.Problem(ctx, o, err)
	}
	if o.Needs != console.Look {
		var attrs []slog.Attr
		for _, f := range o.Fields {
			if f.In != console.InBody {
				attrs = append(attrs, slog.String(f.Name, cmp.Or(in.Path[f.Name], in.Query.Get(f.Name), f.Standard)))
			}
		}
		attrs = append(attrs, slog.String("operation", o.Name))
		if o.Needs == console.Act { // the audit names the author of a change
			attrs = append(attrs, slog.String("who", by.String()))
		}
		s.Log.LogAttrs(ctx, slog.LevelInfo, "operation done", attrs...)
	}
	return answer, nil
}

// Problem returns the answer to an error. It logs an error that no row declares.
func (s *Server) Problem(ctx context.Context, o console.Operation, err error) *serve.Problem {
	if p := (*serve.Problem)(nil); errors.As(err, &p) {
		return p
	}
	if r := o.Refusal(err); r != nil {
		return serve.Refuse(int(r.Kind), r.Code, r.Detail)
	}
	s.Log.LogAttrs(ctx, slog.LevelWarn, "operation failed", slog.String("operation", o.Name),
		slog.String("error", err.Error()))
	return serve.Refuse(http.StatusServiceUnavailable, "store_unavailable",
		"The store did not answer; try again.").After(5)
}

type succeeded struct {
	Success bool `json:"success"`
	Data    any  `json:"data"`
}

type failed struct {
	Success bool   `json:"success"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// Scripts adds a route for each operation of the event queue that Billhook replaces. Answers have that
// queue's envelope, and the same statuses as all others.
func (s *Server) Scripts(r chi.Router, operations []console.Operation) {
	for _, o := range operations {
		r.Method(o.Method, o.Pattern, serve.Answer(http.StatusOK, func(r *http.Request) (succeeded, error) {
			in, err := inputOf(o, r)
			if err != nil {
				return succeeded{}, err
			}
			data, err := s.Call(r.Context(), o, in)
			return succeeded{Success: true, Data: data}, err
		}, func(w http.ResponseWriter, r *http.Request, err error) {
			p := s.Problem(r.Context(), o, err)
			if p.RetryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
			}
			serve.WriteJSON(w, p.Status, failed{Error: p.Code, Message: p.Detail})
		}))
	}
}

// HeaderSkipped counts the unreadable documents that an answer leaves out, and names the first.
const HeaderSkipped = "Billhook-Skipped"

const maxSkipped = 10

// Skipped collects the keys of documents that lists left out. It is safe for concurrent use.
type Skipped struct {
	mu   sync.Mutex
	keys []string
}

type skippedKey struct{}

// CollectSkipped returns a context whose queries add to the collector.
func CollectSkipped(ctx context.Context) (context.Context, *Skipped) {
	s := &Skipped{}
	return context.WithValue(ctx, skippedKey{}, s), s
}

// Skip adds a key to the collector of the context, if it has one.
func Skip(ctx context.Context, key store.Key) {
	if s, ok := ctx.Value(skippedKey{}).(*Skipped); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keys = append(s.keys, key.Collection+"/"+url.PathEscape(key.ID))
	}
}

// String returns the header's value; empty: nothing was left out.
func (s *Skipped) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		return ""
	}
	return fmt.Sprintf("%d: %s", len(s.keys), strings.Join(s.keys[:min(len(s.keys), maxSkipped)], ", "))
}
