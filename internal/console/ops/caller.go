package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"

	"billhook/internal/platform/serve"
)

// Caller asks the API from within the process, as a person who has been let in. What it asks for is
// read, refused and written to the audit as if it had come over the network.
type Caller struct{ routes http.Handler }

// Caller returns the API's own caller.
func (a *API) Caller() *Caller {
	router := chi.NewRouter()
	a.routes(router)
	return &Caller{router}
}

var errNobody = errors.New("ops: a call is made for a person, and this one has none")

// Call sends question as JSON, if it is not nil, to a path such as /v1/ops/queues, which may have a
// query. It fills answer, if that is not nil. Who(ctx) must name the person. The error is the
// *serve.Problem that the API answers with, or why the context has ended before it was answered: what
// was changed by then stays changed.
func (c *Caller) Call(ctx context.Context, method, path string, question, answer any) error {
	if Who(ctx) == "" {
		return errNobody
	}
	var body []byte
	var err error
	if question != nil {
		if body, err = json.Marshal(question); err != nil {
			return fmt.Errorf("ops: call: %w", err)
		}
	}
	// A page's own route would be taken for that of the call.
	routed := context.WithValue(ctx, chi.RouteCtxKey, (*chi.Context)(nil))
	request, err := http.NewRequestWithContext(routed, method, path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ops: call: %w", err)
	}
	kept := &keptAnswer{status: http.StatusOK, header: http.Header{}}
	c.routes.ServeHTTP(kept, request)
	if kept.status >= http.StatusMultipleChoices {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("ops: call: %w", err)
		}
		var problem serve.Problem
		if err := json.Unmarshal(kept.body.Bytes(), &problem); err != nil || problem.Code == "" {
			return serve.Refuse(kept.status, "refused", http.StatusText(kept.status))
		}
		return &problem
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(kept.body.Bytes(), answer); err != nil {
		return fmt.Errorf("ops: answer: %w", err)
	}
	return nil
}

// keptAnswer keeps an answer in memory.
type keptAnswer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (k *keptAnswer) Header() http.Header            { return k.header }
func (k *keptAnswer) WriteHeader(status int)         { k.status = status }
func (k *keptAnswer) Write(part []byte) (int, error) { return k.body.Write(part) }
