package api

import (
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console"
	"billhook/internal/platform/serve"
)

type succeeded struct {
	Success bool `json:"success"`
	Data    any  `json:"data"`
}

type failed struct {
	Success bool   `json:"success"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// Scripts adds a route for each operation of the event queue that Billhook replaces. Their answers have that queue's
// envelope, under the statuses of all others.
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
