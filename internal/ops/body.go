package ops

import (
	"net/http"

	"github.com/go-json-experiment/json"

	"billhook/internal/serve"
)

// maxRequest is the largest body of a request, in bytes.
const maxRequest = 64 << 10

// readJSON reads the body of a request, one JSON value with nothing behind it. Names are
// exact, each known and there once: of two, whoever checked the request may have looked at
// the other. Where it is not so, readJSON has answered 400, saying send, and returns false.
func readJSON(w http.ResponseWriter, r *http.Request, into any, send string) bool {
	err := json.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxRequest), into, json.RejectUnknownMembers(true))
	if err != nil {
		serve.WriteProblem(w, http.StatusBadRequest, "body_malformed", send)
	}
	return err == nil
}
