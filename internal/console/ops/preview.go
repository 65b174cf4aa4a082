package ops

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/serve"
)

// Try asks what a worker would do of an event whose message is kept, or of a message that the request brings.
type Try struct {
	EventID string `json:"event_id,omitempty"`
	Queue   string `json:"queue,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	// Message is one as it is on the topic.
	Message *TriedMessage `json:"message,omitempty"`
	// Catalog are files, by their names, that replace those of the running catalog.
	Catalog map[string]string `json:"catalog,omitempty"`
}

// TriedMessage is a message as a dead letter shows it.
type TriedMessage struct {
	// Data is the payload where it is JSON; else Base64 has it.
	Data        jsontext.Value    `json:"data,omitempty" show:"Payload"`
	Base64      []byte            `json:"data_base64,omitempty" show:"Payload (not JSON)"`
	Attributes  map[string]string `json:"attributes,omitempty" show:"Attributes"`
	OrderingKey string            `json:"ordering_key,omitempty" show:"Ordering key"`
}

const tryAdvice = `Send JSON: {"event_id": "..."}, or {"queue": "...", "message": {"data": {...}, "attributes": {...}}}, and "catalog": {"products.yaml": "..."} for other files.`

func (a *API) try(r *http.Request) (dryrun.Trial, error) {
	var request Try
	if err := readJSON(r, &request, tryAdvice); err != nil {
		return dryrun.Trial{}, err
	}
	asked := dryrun.Asked{EventID: request.EventID, Queue: request.Queue, Tenant: request.Tenant, Files: request.Catalog}
	switch m := request.Message; {
	case (m == nil) == (request.EventID == ""), m != nil && (request.Queue == "" || request.Tenant != ""):
		return dryrun.Trial{}, serve.Refuse(http.StatusBadRequest, "body_malformed", tryAdvice)
	case m == nil && !pii.ID.Valid(request.EventID):
		return dryrun.Trial{}, serve.Refuse(http.StatusBadRequest, "event_id_invalid", "An event id has letters, digits and . _ : - only.")
	case m != nil:
		data := []byte(m.Data)
		if m.Base64 != nil {
			data = m.Base64
		}
		asked.Message = &contract.Message{Data: data, Attributes: m.Attributes, OrderingKey: m.OrderingKey}
	}
	trial, err := a.Tries.Try(r.Context(), asked)
	if err == nil {
		a.Log.LogAttrs(r.Context(), slog.LevelInfo, "event tried", slog.String("who", Who(r.Context())), slog.String("queue", trial.Queue),
			slog.String("event_id", trial.EventID), slog.String("outcome", string(trial.Outcome)), slog.String("reason", trial.Reason), files(request.Catalog))
	}
	return trial, err
}

func files(of map[string]string) slog.Attr {
	return slog.String("catalog", strings.Join(slices.Sorted(maps.Keys(of)), " "))
}
