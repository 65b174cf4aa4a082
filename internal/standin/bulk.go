package standin

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/serve"
)

// Stale is the outcome of a document whose version is not above the one that is there.
const Stale = "stale"

// refused begins the id of a document that is refused every time.
const refused = "refuse-"

// indexed is what the receiver has of a document.
type indexed struct{ path, document string }

// row is one event of a batch: its line and, in a bulk, the action before it.
type row struct {
	delivery Delivery
	document string
	version  int64
	line     []byte
}

// statuses are those of an item, by outcome.
var statuses = map[string]int{
	Applied: http.StatusCreated, Duplicate: http.StatusOK, Failed: http.StatusServiceUnavailable, Refused: http.StatusBadRequest, Stale: http.StatusConflict,
}

// batch receives posts of a form. Each line is a delivery, and has a mode of its own; one that
// hangs, or is forgotten, takes the answer of the whole batch with it. In a bulk a document at a
// version, or a later one, is not changed by a line of that version: the item's status is 409. A
// document whose id begins with "refuse-" is refused. The deliveries of a batch have one time.
func (r *Receiver) batch(form catalog.Form) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		body, ok := r.read(w, request)
		if !ok {
			return
		}
		rows, ok := r.rows(body, form, request.URL.Path)
		if !ok {
			serve.Refuse(http.StatusBadRequest, "malformed", "The body is not lines of JSON, each with event_id and event_type; in a bulk an action with an _id stands before each.").Write(w)
			return
		}
		items := []map[string]any{}
		for _, one := range rows {
			outcome := r.index(one)
			switch outcome {
			case Hung:
				r.silence.hang(request)
			case Forgotten:
				cut()
			}
			item := map[string]any{"status": statuses[outcome]}
			if form == catalog.Bulk {
				item["_id"] = one.document
				item = map[string]any{"index": item}
			}
			items = append(items, item)
		}
		serve.WriteJSON(w, http.StatusOK, map[string]any{"items": items})
	}
}

// rows reads a batch. ok is false where it is none.
func (r *Receiver) rows(body []byte, form catalog.Form, path string) (rows []row, ok bool) {
	at := r.now()
	for rest := body; len(rest) > 0; {
		one := row{delivery: Delivery{Path: path, At: at}}
		if form == catalog.Bulk {
			var action struct {
				Index struct {
					ID          string `json:"_id"`
					Version     int64  `json:"version"`
					VersionType string `json:"version_type"`
				} `json:"index"`
			}
			var text []byte
			text, rest, _ = bytes.Cut(rest, []byte{'\n'})
			if json.Unmarshal(text, &action) != nil || action.Index.ID == "" || (action.Index.Version > 0) != (action.Index.VersionType == "external") {
				return nil, false
			}
			one.document, one.version = action.Index.ID, action.Index.Version
		}
		var given struct {
			EventID       string `json:"event_id"`
			EventType     string `json:"event_type"`
			Action        string `json:"action"`
			CorrelationID string `json:"correlation_id"`
		}
		one.line, rest, ok = bytes.Cut(rest, []byte{'\n'})
		if !ok || json.Unmarshal(one.line, &given) != nil || given.EventID == "" {
			return nil, false
		}
		one.delivery.EventID, one.delivery.Action, one.delivery.CorrelationID = given.EventID, cmp.Or(given.Action, given.EventType), given.CorrelationID
		rows = append(rows, one)
	}
	return rows, len(rows) > 0
}

// index takes one row and returns its outcome.
func (r *Receiver) index(one row) string {
	r.mu.Lock()
	at := indexed{one.delivery.Path, one.document}
	switch {
	case strings.HasPrefix(one.document, refused):
		one.delivery.Outcome = Refused
	case one.version > 0 && r.versions[at] >= one.version:
		one.delivery.Outcome = Stale
	}
	if one.delivery.Outcome != "" {
		r.deliveries = append(r.deliveries, one.delivery)
		r.mu.Unlock()
		return one.delivery.Outcome
	}
	r.mu.Unlock()
	outcome := r.take(one.delivery, sha256.Sum256(one.line))
	if one.version > 0 && (outcome == Applied || outcome == Forgotten) {
		r.mu.Lock()
		r.versions[at] = max(r.versions[at], one.version)
		r.mu.Unlock()
	}
	return outcome
}
