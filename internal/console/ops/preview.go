package ops

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pii"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/lane"
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

const previewTime = time.Second

// Preview is what an operation would touch now: what the person sees who begins it, and the one who approves it.
type Preview struct {
	deadletter.Preview
	// Items are the newest of them, at most 20.
	Items []Previewed `json:"items"`
}

// Previewed is a dead letter, and what a worker would do of it now: what it would write, emit and call.
type Previewed struct {
	deadletter.Item
	// Trial is absent where Unknown says why that is not known.
	Trial   *dryrun.Trial `json:"trial,omitempty"`
	Unknown string        `json:"unknown,omitempty"`
	// Later is what came after it, where it is the only one.
	Later *Later `json:"later,omitempty"`
}

func (a *API) previewDeadLetters(r *http.Request) (Preview, error) {
	f, err := a.filter(read(r, filters...))
	if err != nil {
		return Preview{}, err
	}
	return a.preview(r.Context(), f)
}

// previewOperation answers what an operation that waits would touch, were it approved now.
func (a *API) previewOperation(r *http.Request) (Preview, error) {
	op, err := a.Operator.Operation(r.Context(), param(r, "id"))
	if err != nil {
		return Preview{}, err
	}
	return a.preview(r.Context(), op.Matching())
}

func (a *API) preview(ctx context.Context, f deadletter.Filter) (Preview, error) {
	counted, err := a.Operator.Preview(ctx, f)
	if err != nil {
		return Preview{}, err
	}
	shown := Preview{Preview: counted, Items: []Previewed{}}
	limited, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	for _, item := range counted.Sample {
		one := Previewed{Item: item}
		trial, err := a.Tries.Try(limited, dryrun.Asked{Queue: item.Queue, DeadLetter: &item})
		switch {
		case err == nil:
			one.Trial = &trial
		case limited.Err() != nil:
			one.Unknown = "It could not be tried in time."
		default:
			one.Unknown = a.problem(ctx, err).Detail
		}
		if len(counted.Sample) == 1 {
			if one.Later, err = a.later(ctx, item); err != nil {
				return Preview{}, err
			}
		}
		shown.Items = append(shown.Items, one)
	}
	return shown, nil
}

// Later says what became of the later messages of a dead letter's ordering key: the queue went on without
// it, and its replay comes behind these.
type Later struct {
	// Done counts the events that are completed, Dead those that have a dead letter of their own, and
	// Waiting those that are with a worker, in the broker after a failure, or kept for later.
	Done    int64 `json:"done"`
	Dead    int64 `json:"dead_lettered"`
	Waiting int64 `json:"waiting"`
	// More: only the newest laterLooked were looked at.
	More bool `json:"more"`
}

// laterLooked is how many events of the key are looked at, and how many kept messages are counted.
const laterLooked = 100

// String is what a person reads.
func (l Later) String() string {
	text := fmt.Sprintf("%d done, %d dead-lettered, %d waiting", l.Done, l.Dead, l.Waiting)
	if l.More {
		text += ", and more"
	}
	return text
}

// later looks at what came after an open dead letter; nil where nothing follows anything.
func (a Reads) later(ctx context.Context, item deadletter.Item) (*Later, error) {
	q, known := a.Catalog.Queue(item.Queue)
	key, tenant := item.OrderingKey, cmp.Or(item.Tenant, contract.DefaultTenant)
	if !known || !q.Ordered() || item.State != deadletter.Open || key == "" || key == contract.UnknownOrderingKey {
		return nil, nil
	}
	since := cmp.Or(item.FirstPublished, item.Died())
	records, last, err := dedupe.List(ctx, a.Store, dedupe.Listing{
		Equal: map[string]any{"queue": q.ID, "ordering_key": key}, Since: since, Limit: laterLooked,
	})
	if err != nil {
		return nil, err
	}
	later := Later{More: !last.IsZero()}
	for _, r := range records {
		switch {
		case r.Tenant != tenant, r.EventID == item.EventID, !cmp.Or(r.PublishedAt, r.CreatedAt).After(since):
		case r.Status == dedupe.Completed:
			later.Done++
		case r.Status == dedupe.DeadLettered:
			later.Dead++
		case r.Status == dedupe.Processing, r.DelayTicket == "": // else it is among those that are kept
			later.Waiting++
		}
	}
	line, err := lane.Open(ctx, a.Store, lane.Name{Queue: q.ID, Tenant: tenant, OrderingKey: key})
	if err != nil || !line.Exists() {
		return &later, err
	}
	_, kept, err := lane.First(ctx, a.Store, line, laterLooked+1)
	later.Waiting += min(kept, laterLooked)
	later.More = later.More || kept > laterLooked
	return &later, err
}
