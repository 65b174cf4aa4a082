package standin

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/platform/serve"
)

// Outcomes of a line of a bulk.
const (
	// Stale: the version is not above the one that is there.
	Stale = "stale"
	// Absent: there is no document to delete.
	Absent = "absent"
)

// refused begins the id of a document that is refused every time, behind its tenant.
const refused = "refuse-"

// indexed is a document of the index at a path.
type indexed struct{ path, id string }

// held is a document as the index has it. Without a source it is deleted.
type held struct {
	version int64
	source  string
	times   int
}

// statuses are those of an item, by outcome.
var statuses = map[string]int{
	Applied: http.StatusCreated, Duplicate: http.StatusOK, Failed: http.StatusServiceUnavailable, Refused: http.StatusBadRequest,
	Stale: http.StatusConflict, Absent: http.StatusNotFound,
}

// Document is the source of a document that the index at a path has; empty: it has none.
func (r *Receiver) Document(path, id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.documents[indexed{path, id}].source
}

// batch receives posts of a form. Each line is a delivery, and has a mode of its own; one that hangs, or is
// forgotten, takes the answer of the whole batch with it. The deliveries of a batch have one time.
func (r *Receiver) batch(form catalog.Form) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		body, ok := r.read(w, request)
		if !ok {
			return
		}
		rows, why := lines(body)
		if form == catalog.Bulk {
			rows, why = actions(body)
		}
		switch {
		case request.Header.Get("Content-Type") != "application/x-ndjson":
			serve.Refuse(http.StatusUnsupportedMediaType, "content_type", "Send application/x-ndjson.").Write(w)
			return
		case why == "" && len(rows) == 0:
			why = "There is no line."
		}
		if why != "" {
			serve.Refuse(http.StatusBadRequest, "malformed", why).Write(w)
			return
		}
		items, at := []map[string]any{}, r.now()
		for _, one := range rows {
			outcome := one.take(r, request.URL.Path, at)
			switch outcome {
			case Hung:
				r.silence.hang(request)
			case Forgotten:
				cut()
			}
			items = append(items, one.item(statuses[outcome]))
		}
		serve.WriteJSON(w, http.StatusOK, map[string]any{"items": items})
	}
}

// row is one event of a batch.
type row interface {
	// take applies it, and returns the outcome.
	take(r *Receiver, path string, at time.Time) string
	item(status int) map[string]any
}

// event is a line of a batch.
type event struct {
	delivery Delivery
	line     []byte
}

// lines reads a batch of events. why is what is wrong with it.
func lines(body []byte) (rows []row, why string) {
	for rest := body; len(rest) > 0; {
		var line []byte
		var ended bool
		line, rest, ended = bytes.Cut(rest, []byte{'\n'})
		var given struct {
			EventID       string `json:"event_id"`
			Tenant        string `json:"tenant"`
			SourceEventID string `json:"source_event_id"`
			EventType     string `json:"event_type"`
			Action        string `json:"action"`
			CorrelationID string `json:"correlation_id"`
		}
		if !ended || json.Unmarshal(line, &given) != nil || given.EventID == "" {
			return nil, "The body is not lines of JSON, each with an event_id and an end."
		}
		rows = append(rows, event{Delivery{
			Key: given.EventID, Tenant: given.Tenant, EventID: cmp.Or(given.SourceEventID, given.EventID),
			Action: cmp.Or(given.Action, given.EventType), CorrelationID: given.CorrelationID,
		}, line})
	}
	return rows, ""
}

func (e event) take(r *Receiver, path string, at time.Time) string {
	e.delivery.Path, e.delivery.At = path, at
	return r.take(e.delivery, sha256.Sum256(e.line))
}

func (event) item(status int) map[string]any { return map[string]any{"status": status} }

// action is an action of a bulk, with its document unless it is a delete.
type action struct {
	name, id string
	version  int64
	source   string
}

// actions reads a bulk as Elasticsearch does. An action is index or delete, with _id, version and version_type
// and nothing else; behind an index stands a document; each line has an end. why is what is wrong with it.
func actions(body []byte) (rows []row, why string) {
	for rest := body; len(rest) > 0; {
		var head, source []byte
		var ended bool
		head, rest, ended = bytes.Cut(rest, []byte{'\n'})
		var named map[string]struct {
			ID          string `json:"_id"`
			Version     int64  `json:"version"`
			VersionType string `json:"version_type"`
		}
		if err := json.Unmarshal(head, &named, json.RejectUnknownMembers(true)); err != nil || !ended || len(named) != 1 {
			return nil, "Malformed action/metadata line: one action, with _id, version and version_type."
		}
		one := action{name: slices.Collect(maps.Keys(named))[0]}
		meta := named[one.name]
		one.id, one.version = meta.ID, meta.Version
		switch {
		case one.name != "index" && one.name != "delete":
			return nil, "Malformed action/metadata line: the action is index or delete."
		case one.id == "" || len(one.id) > 512 || (one.version > 0) != (meta.VersionType == "external"):
			return nil, "Malformed action/metadata line: an _id of at most 512 bytes, and a version of the type external or none."
		}
		if one.name == "index" {
			source, rest, ended = bytes.Cut(rest, []byte{'\n'})
			if !ended || jsontext.Value(source).Kind() != '{' || !jsontext.Value(source).IsValid() {
				return nil, "Behind the action index stands a document, and the bulk ends with a newline."
			}
			one.source = string(source)
		}
		rows = append(rows, one)
	}
	return rows, ""
}

// mapped reports whether the index has a place for a document: its mapping is strict, and a member of it is a
// value, or a list of objects of values. Whatever is around a document, such as a message's head, is not mapped.
func mapped(source string) bool {
	members := map[string]jsontext.Value{}
	if json.Unmarshal([]byte(source), &members) != nil || members["event_id"] != nil || members["event_type"] != nil {
		return false
	}
	for _, value := range members {
		if value.Kind() == '{' {
			return false
		}
	}
	return true
}

func (a action) take(r *Receiver, path string, at time.Time) (outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		tenant, _, _ := strings.Cut(a.id, "~")
		r.deliveries = append(r.deliveries, Delivery{Path: path, Tenant: tenant, EventID: a.id, Action: a.name, At: at, Outcome: outcome})
	}()
	mode := r.orders.next(a.id)
	known := indexed{path, a.id}
	document, there := r.documents[known]
	switch {
	case mode == Fail:
		return Failed
	case mode == Hang:
		return Hung
	case mode == Refuse, strings.HasPrefix(a.id[strings.LastIndexByte(a.id, '~')+1:], refused), a.name == "index" && !mapped(a.source):
		return Refused
	case a.version > 0 && document.version >= a.version:
		return Stale
	case a.name == "delete" && document.source == "":
		outcome = Absent
	case there && document.source == a.source:
		outcome = Duplicate // it is what it was
	default:
		outcome = Applied
		document.times++
	}
	document.version, document.source = max(document.version, a.version), a.source
	r.documents[known] = document
	if mode == Forget {
		return Forgotten
	}
	return outcome
}

func (a action) item(status int) map[string]any {
	return map[string]any{a.name: map[string]any{"_id": a.id, "status": status}}
}
