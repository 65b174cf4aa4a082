package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"billhook/internal/pii"
)

// Problem is an error answer (RFC 9457), and the error that leads to it. Its texts contain nothing from a
// request's body or headers.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what the client can do.
	Detail string `json:"detail,omitempty"`
	// Code is the last part of Type, for programs. Type is a URL if the service has pages.
	Code       string          `json:"code"`
	Violations []pii.Violation `json:"violations,omitempty"`

	// RetryAfter is the header of that name in seconds; 0: none.
	RetryAfter int `json:"-"`
	// Authenticate is the header WWW-Authenticate; empty: none.
	Authenticate string `json:"-"`
}

// Refuse returns a problem.
func Refuse(status int, code, detail string) *Problem {
	return &Problem{
		Type: "urn:billhook:problem:" + code, Title: http.StatusText(status), Status: status,
		Detail: detail, Code: code,
	}
}

// After returns the problem with a Retry-After of this many seconds.
func (p Problem) After(seconds int) *Problem {
	p.RetryAfter = seconds
	return &p
}

// Below returns the problem with the URL of its code's page as the type; pages is the prefix of the URL.
func (p Problem) Below(pages string) *Problem {
	p.Type = pages + p.Code
	return &p
}

func (p *Problem) Error() string { return p.Code }

// Write answers with the problem. The caller must write nothing more.
func (p *Problem) Write(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Authenticate != "" {
		w.Header().Set("WWW-Authenticate", p.Authenticate)
	}
	body, _ := json.Marshal(p) // strings and ints always marshal
	write(w, p.Status, problemJSON, body)
}

// The errors of a check of the sender's token. Any other error means that the token is not valid.
var (
	// ErrNoToken: the request has no bearer token.
	ErrNoToken = errors.New("auth: no bearer token")
	// ErrNotAllowed: the token is genuine, but its account is not accepted.
	ErrNotAllowed = errors.New("auth: not an accepted account")
	// ErrKeysUnavailable: the keys to verify the token could not be fetched. The token may be valid, so the
	// answer is 503, never 401.
	ErrKeysUnavailable = errors.New("auth: signing keys unavailable")
)

// Refusals is a table of answers that a page prints.
type Refusals []*Problem

// Add adds an answer to the table. after is its Retry-After in seconds; 0: none.
func (all *Refusals) Add(status int, code, detail string, after int) *Problem {
	refused := Refuse(status, code, detail).After(after)
	*all = append(*all, refused)
	return refused
}

// ErrorMapping maps errors to answers: the first entry of Known that matches, else Last.
type ErrorMapping struct {
	Known []KnownError
	Last  *Problem
}

// KnownError maps an error to its answer. If the problem has no detail, the detail is the error's text after
// the text of Of; such a text must be written by this program.
type KnownError struct {
	Of error
	As *Problem
}

// Problem returns the answer to an error. An error that is or wraps a Problem is its own answer.
func (m ErrorMapping) Problem(err error) *Problem {
	if p := (*Problem)(nil); errors.As(err, &p) {
		return p
	}
	for _, known := range m.Known {
		if errors.Is(err, known.Of) {
			if known.As.Detail == "" {
				return Refuse(known.As.Status, known.As.Code, strings.TrimPrefix(err.Error(), known.Of.Error()+": "))
			}
			return known.As
		}
	}
	return m.Last
}

// Answer serves a function's value as JSON with a status, and passes its error to refuse.
func Answer[T any](
	status int, does func(*http.Request) (T, error), refuse func(http.ResponseWriter, *http.Request, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := does(r)
		if err != nil {
			refuse(w, r, err)
			return
		}
		WriteJSON(w, status, value)
	}
}

// WriteJSON writes an answer with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		Refuse(http.StatusInternalServerError, "internal", "The answer could not be written.").Write(w)
		return
	}
	write(w, status, plainJSON, body)
}

func write(w http.ResponseWriter, status int, contentType []string, body []byte) {
	header := w.Header()
	header["Content-Type"] = contentType
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"] = noSniff
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has left
}

// Header values that all answers share, to save an allocation for each.
var (
	plainJSON   = []string{"application/json"}
	problemJSON = []string{"application/problem+json"}

	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)
