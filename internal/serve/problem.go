package serve

import (
	"encoding/json"
	"net/http"
)

// Problem is an error answer (RFC 9457). Its texts are ours alone: nothing from a
// request's body or headers is repeated in it.
type Problem struct {
	// Type is urn:billhook:problem:<code>.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what to do about it.
	Detail string `json:"detail,omitempty"`
	// Code is the last part of Type, for those who switch on it.
	Code string `json:"code"`
	// Violations lists the fields that break the contract.
	Violations []Violation `json:"violations,omitempty"`
}

// Violation names a field path and the rule it breaks, never the value.
type Violation struct {
	Path string `json:"path"`
	Rule string `json:"rule"`
}

// WriteProblem answers with a problem document. The caller returns right after.
func WriteProblem(w http.ResponseWriter, status int, code, detail string, violations ...Violation) {
	body, err := json.Marshal(Problem{
		Type: "urn:billhook:problem:" + code, Title: http.StatusText(status), Status: status,
		Detail: detail, Code: code, Violations: violations,
	})
	if err != nil {
		// Strings and ints always marshal; should that change, answer without a body.
		w.WriteHeader(status)
		return
	}
	write(w, status, problemJSON, body)
}

// WriteJSON answers with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		WriteProblem(w, http.StatusInternalServerError, "internal", "The answer could not be written.")
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
	_, _ = w.Write(body) // the peer is gone: there is nobody left to tell
}

// Shared header values: one allocation each for the life of the program.
var (
	plainJSON   = []string{"application/json"}
	problemJSON = []string{"application/problem+json"}

	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)
