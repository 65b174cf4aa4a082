package standin

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/platform/serve"
)

// refused begins the id, after the tenant, of a document that is always refused; dev has such a sample.
const refused = "refuse-"

var statuses = map[string]int{
	Applied: http.StatusCreated, Duplicate: http.StatusOK, Failed: http.StatusServiceUnavailable,
	Refused: http.StatusBadRequest,
	Stale:   http.StatusConflict, Absent: http.StatusNotFound,
}

type row struct {
	line     []byte
	delivery Delivery
	version  int64
	source   string
}

// batch receives batches of a form. Each line has its own mode; if one line hangs or is forgotten, the whole
// batch gets no answer.
func (r *Receiver) batch(form catalog.Form) http.HandlerFunc {
	rows, take := events, func(one row) string { return r.take(one.delivery, one.line) }
	if form == catalog.Bulk {
		rows, take = actions, r.index
	}
	return func(w http.ResponseWriter, request *http.Request) {
		body, ok := readSigned(w, request, r.verifiers)
		if !ok {
			return
		}
		all, why := rows(body)
		switch {
		case request.Header.Get("Content-Type") != "application/x-ndjson":
			serve.Refuse(http.StatusUnsupportedMediaType, "content_type", "Send application/x-ndjson.").Write(w)
			return
		case why == "" && len(all) == 0:
			why = "There is no line."
		}
		if why != "" {
			serve.Refuse(http.StatusBadRequest, "malformed", why).Write(w)
			return
		}
		items, at := []map[string]any{}, r.now()
		for _, one := range all {
			one.delivery.Path, one.delivery.At = request.URL.Path, at
			outcome := take(one)
			if outcome == Hung || outcome == Forgotten {
				r.instead(w, request, answers[outcome])
			}
			item := map[string]any{"status": statuses[outcome]}
			if form == catalog.Bulk {
				item["_id"] = one.delivery.EventID
				item = map[string]any{one.delivery.Action: item}
			}
			items = append(items, item)
		}
		serve.WriteJSON(w, http.StatusOK, map[string]any{"items": items})
	}
}

func events(body []byte) (rows []row, why string) {
	for line := range bytes.Lines(body) {
		text, ended := bytes.CutSuffix(line, []byte{'\n'})
		var given posted
		if err := json.Unmarshal(text, &given); err != nil || !ended || given.EventID == "" {
			return nil, "The body is not lines of JSON, each with an event_id and an end."
		}
		rows = append(rows, row{line: text, delivery: given.delivery()})
	}
	return rows, ""
}

// actions reads a bulk request like Elasticsearch: index or delete, with only _id, version and version_type.
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
		if err := json.Unmarshal(head, &named, json.RejectUnknownMembers(true)); err != nil || !ended ||
			len(named) != 1 {
			return nil, "Malformed action/metadata line: one action, with _id, version and version_type."
		}
		name := slices.Collect(maps.Keys(named))[0]
		meta := named[name]
		switch {
		case name != "index" && name != "delete":
			return nil, "Malformed action/metadata line: the action is index or delete."
		case meta.ID == "" || len(meta.ID) > 512 || (meta.Version > 0) != (meta.VersionType == "external"):
			return nil,
				"Malformed action/metadata line: an _id of at most 512 bytes, and a version of the type external or none."
		}
		if name == "index" {
			source, rest, ended = bytes.Cut(rest, []byte{'\n'})
			if !ended || jsontext.Value(source).Kind() != '{' || !jsontext.Value(source).IsValid() {
				return nil, "Behind the action index stands a document, and the bulk ends with a newline."
			}
		}
		tenant, _, _ := strings.Cut(meta.ID, "~")
		rows = append(rows, row{
			delivery: Delivery{Tenant: tenant, EventID: meta.ID, Action: name}, version: meta.Version,
			source: string(source),
		})
	}
	return rows, ""
}

// mapped: the strict mapping takes scalars and lists, but no objects and no members of a message's head.
func mapped(source string) bool {
	members := map[string]jsontext.Value{}
	if json.Unmarshal([]byte(source), &members) != nil || members["event_id"] != nil ||
		members["event_type"] != nil {
		return false
	}
	for _, value := range members {
		if value.Kind() == '{' {
			return false
		}
	}
	return true
}

func (r *Receiver) index(one row) (outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		one.delivery.Outcome = outcome
		r.deliveries = append(r.deliveries, one.delivery)
	}()
	mode, deletes := r.next(one.delivery.EventID), one.delivery.Action == "delete"
	known := delivered{one.delivery.Path, one.delivery.EventID}
	document, there := r.held[known]
	switch {
	case outcomes[mode] != "":
		return outcomes[mode]
	case strings.HasPrefix(known.key[strings.LastIndexByte(known.key, '~')+1:], refused), !deletes &&
		!mapped(one.source):
		return Refused
	case one.version > 0 && document.version >= one.version:
		return Stale
	case deletes && document.source == "":
		outcome = Absent
	case there && document.source == one.source:
		outcome = Duplicate // the document is unchanged
	default:
		outcome = Applied
		document.times++
	}
	document.id, document.version, document.source = known.key, max(document.version, one.version), one.source
	r.held[known] = document
	if mode == Forget {
		return Forgotten
	}
	return outcome
}
