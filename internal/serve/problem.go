package serve

import (
	"encoding/json"
	"net/http"
)

// Problem is an error answer (RFC 9457). Its texts repeat nothing from a request's body or
// headers.
type Problem struct {
	// Type is urn:billhook:problem:<code>.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what the client can do.
	Detail string `json:"detail,omitempty"`
	// Code is the last part of Type, for programs.
	Code string `json:"code"`
	// Violations lists the fields that break the contract.
	Violations []Violation `json:"violations,omitempty"`
}

// Violation names a field path and the rule it breaks, never the value.
type Violation struct {
	Path string `json:"path"`
	Rule string `json:"rule"`
}

// WriteProblem answers with a problem document. The caller must write nothing more.
func WriteProblem(w http.ResponseWriter, status int, code, detail string, violations ...Violation) {
	body, err := json.Marshal(Problem{
		Type: "urn:billhook:problem:" + code, Title: http.StatusText(status), Status: status,
		Detail: detail, Code: code, Violations: violations,
	})
	if err != nil {
		// Strings and ints always marshal.
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
	_, _ = w.Write(body) // the client is gone
}

// Header values that all answers share, which saves an allocation each.
var (
	plainJSON   = []string{"application/json"}
	problemJSON = []string{"application/problem+json"}

	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)
