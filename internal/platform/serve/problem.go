package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"billhook/internal/pii"
)

// Problem is an error answer (RFC 9457), and the error that has this answer. Its texts repeat
// nothing from a request's body or headers.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what the client can do.
	Detail string `json:"detail,omitempty"`
	// Code is the last part of Type, for programs. Type is an address where the service has pages.
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

// After returns the problem with a Retry-After of so many seconds.
func (p Problem) After(seconds int) *Problem {
	p.RetryAfter = seconds
	return &p
}

// Below returns the problem with its type an address: that of the code's page, below that of all.
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

// The errors of whoever checks the token of a request's sender. Any other means that it is not valid.
var (
	// ErrNoToken: the request carries none.
	ErrNoToken = errors.New("auth: no bearer token")
	// ErrNotAllowed: the token is genuine, and its account is not accepted.
	ErrNotAllowed = errors.New("auth: not an accepted account")
	// ErrKeysUnavailable: the keys that have signed it could not be fetched. The token may be good: the answer
	// is 503, never 401.
	ErrKeysUnavailable = errors.New("auth: signing keys unavailable")
)

// Refusals is a table of answers, for a page to print.
type Refusals []*Problem

// Add adds an answer to the table. after is its Retry-After in seconds; 0: none.
func (all *Refusals) Add(status int, code, detail string, after int) *Problem {
	refused := Refuse(status, code, detail).After(after)
	*all = append(*all, refused)
	return refused
}

// String is the table in Markdown: a row for each status and Retry-After, with its codes.
func (all *Refusals) String() string {
	var rows []string
	last := &Problem{}
	for _, p := range slices.SortedFunc(slices.Values(*all), func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.RetryAfter, b.RetryAfter),
			cmp.Compare(a.Code, b.Code))
	}) {
		said := fmt.Sprintf("`%s`: %s", p.Code, p.Detail)
		switch end := len(rows) - 1; {
		case p.Status != last.Status || p.RetryAfter != last.RetryAfter:
			after := ""
			if p.RetryAfter > 0 {
				after = strconv.Itoa(p.RetryAfter) + " s"
			}
			rows = append(rows, fmt.Sprintf("| %d | %s | %s", p.Status, after, said))
		case p.Detail == last.Detail:
			rows[end] = strings.TrimSuffix(rows[end], ": "+p.Detail) + ", " + said
		default:
			rows[end] += "<br>" + said
		}
		last = p
	}
	return "| answer | `Retry-After` | code, and what it says |\n| ---: | ---: | --- |\n" +
		strings.Join(rows, " |\n") + " |\n"
}

// ErrorMapping says how a service answers errors: each as the first known one that it is, or as Last.
type ErrorMapping struct {
	Known []KnownError
	Last  *Problem
}

// KnownError is how one error is answered. A problem without a detail gets what the error's own text says
// behind that of Of. The text then is ours.
type KnownError struct {
	Of error
	As *Problem
}

// Problem returns the answer to an error. One that is a problem, or wraps one, is answered as it says itself.
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

// Answer serves what a function returns as JSON with a status, and leaves its error to refuse.
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

// WriteJSON answers with v as JSON.
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
	_, _ = w.Write(body) // the client has left
}

// Header values that all answers share, which saves an allocation each.
var (
	plainJSON   = []string{"application/json"}
	problemJSON = []string{"application/problem+json"}

	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)
