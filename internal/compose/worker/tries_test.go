package worker_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/compose/worker"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// services are the targets of a worker, with the requests that they received.
type services struct {
	mu  sync.Mutex
	all []handler.Call
}

// ServeHTTP answers as each target does after it has applied the request.
func (h *services) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all,
		handler.Call{Method: r.Method, Path: r.URL.Path, ID: r.Header.Get("Idempotency-Key"), Body: body})
	if !strings.Contains(r.URL.Path, "_bulk") {
		var order struct {
			contract.Payload
			Of contract.Payload `json:"payload"`
		}
		_ = json.Unmarshal(body, &order)
		if order.Of.SubscriptionID != "" {
			order.Payload = order.Of
		}
		order.Status, order.PaymentID = "succeeded", cmp.Or(order.PaymentID, "pay-1")
		_ = json.NewEncoder(w).Encode(order.Payload)
		return
	}
	var did map[string]struct {
		ID     string `json:"_id"`
		Status int    `json:"status"`
	}
	_ = json.NewDecoder(bytes.NewReader(body)).Decode(&did) // the first of its lines
	for action, one := range did {
		one.Status = http.StatusOK
		did[action] = one
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": []any{did}})
}

// bench is a worker of the shipped catalog with its broker and services.
type bench struct {
	http.Handler
	catalog  *catalog.Catalog
	store    *storetest.Counter
	services *services
	broker   *shelves
	log      *bytes.Buffer
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{services: &services{}, broker: &shelves{}, log: &bytes.Buffer{}}
	server := httptest.NewServer(b.services)
	t.Cleanup(server.Close)
	b.Handler = open(t, func(c *worker.Config) {
		b.catalog, b.store = c.Catalog, &storetest.Counter{Store: c.Store}
		c.Store, c.Publisher, c.Now, c.PrivateEndpoints = b.store, b.broker, func() time.Time {
			return morning
		}, true
		c.Targets = workertest.Targets(t, c.Catalog, server.URL)
		c.Log = slog.New(slog.NewJSONHandler(b.log, nil))
	})
	endpoint := fmt.Sprintf(`{"id":%q,"url":"%s/partner","events":["#"],"why":"for the test"}`,
		samples.Partner, server.URL)
	post(t, b, http.StatusCreated, "/v1/ops/endpoints", endpoint, new(any))
	return b
}

// try tries a message, and requires that nothing was written, called or published.
func (b *bench) try(t *testing.T, request events.Try) dryrun.Trial {
	t.Helper()
	commits, calls, published := b.store.Commits.Load(), len(b.services.all), len(b.broker.taken)
	question := filetest.Must(json.Marshal(request))(t)
	var trial dryrun.Trial
	post(t, b, http.StatusOK, "/v1/ops/events/try", string(question), &trial)
	require.Equal(t, commits, b.store.Commits.Load(), "nothing is written")
	require.Len(t, b.services.all, calls, "no service is called")
	require.Len(t, b.broker.taken, published, "nothing is published")
	return trial
}

// answer is a worker's answer to a delivery.
type answer struct{ Outcome, Reason string }

// deliver pushes a message, and returns the worker's answer.
func (b *bench) deliver(t *testing.T, queue string, m *events.Message) answer {
	t.Helper()
	code, outcome, reason := pushed(t, b, "/push/"+queue, "17", morning,
		contract.Message{Data: m.Data, Attributes: m.Attributes, OrderingKey: m.OrderingKey})
	if code == http.StatusNoContent {
		outcome = "acknowledged"
	}
	return answer{outcome, reason}
}

// typeOf is an event type that a queue's entry is for, which may be a pattern.
func typeOf(c *catalog.Catalog, q catalog.Queue, entry string) string {
	if !strings.ContainsAny(entry, "*#") {
		return entry
	}
	for _, declared := range c.Contracts.Types(q.Contract) {
		if h, _ := q.Handler(declared); !strings.ContainsAny(declared, "*#") &&
			routing.Pattern(entry).Match(declared) && h.Name == q.Handlers[entry].Name {
			return declared
		}
	}
	return strings.NewReplacer("*", "some", "#", "some").Replace(entry)
}

// messageOf is a message of an event type, with its declared members. All messages are about the same ids.
func messageOf(t *testing.T, c *catalog.Catalog, q catalog.Queue, eventType, id string) *events.Message {
	t.Helper()
	data := filetest.Must(samples.Message(c, q, eventType, "1", morning))(t)
	data = bytes.Replace(data, []byte(`"`+samples.IDPrefix+`1"`), []byte(`"`+id+`"`), 1)
	decoded := filetest.Must(c.Contracts.Decode(q.Contract, data))(t)
	attributes := decoded.Attributes()
	attributes.RoutingKey = eventType
	key := attributes.Order(decoded.OrderingKey(q.OrderingKey, &attributes))
	return &events.Message{Data: data, Attributes: q.Addressed(attributes.Map()), OrderingKey: key}
}

// TestTrialDoesNothingAndShowsTheEffectsOfADelivery: for each event type of each enabled queue. So no handler
// writes, publishes or calls while it is tried.
func TestTrialDoesNothingAndShowsTheEffectsOfADelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tried := map[string]bool{}
	for _, q := range b.catalog.Queues {
		for _, entry := range slices.Sorted(maps.Keys(q.Handlers)) {
			if !q.Enabled {
				continue
			}
			eventType := typeOf(b.catalog, q, entry)
			about := q.ID + " " + eventType
			m := messageOf(t, b.catalog, q, eventType, fmt.Sprintf("event-%d", len(tried)))
			trial := b.try(t, events.Try{Queue: q.ID, Message: &events.GivenMessage{Message: *m}})
			tried[about] = true
			require.Equal(t, q.Handlers[entry].Name, trial.Handler, about)
			require.NotContains(t, []string{"handler_panic", "handler_without_plan", dryrun.Commits},
				trial.Reason, about)
			require.NotContains(t, trial.Detail, dryrun.Commits, about)
			called, published := len(b.services.all), len(b.broker.taken)
			answer := b.deliver(t, q.ID, m)
			switch trial.Outcome {
			case dryrun.Calls:
				require.Equal(t, "processed", answer.Outcome, "%s: %s", about, answer.Reason)
				require.Len(t, trial.Calls, 1, about)
				require.Len(t, b.services.all, called+1, about)
				was, would := b.services.all[called], trial.Calls[0]
				require.Equal(t, strings.TrimSpace(string(was.Body)), strings.TrimSpace(bodyText(would.Body)), about)
				endpoint := strings.HasPrefix(would.Target, "endpoint:")
				if endpoint {
					would.Path = was.Path // an endpoint's address is not shown
				}
				require.Equal(t, []string{was.Method, was.Path, was.ID},
					[]string{would.Method, would.Path, would.ID}, about)
			case "processed":
				require.Equal(t, []string{"processed", trial.Result}, []string{answer.Outcome, answer.Reason}, about)
				require.Len(t, b.services.all, called, about)
				b.written(t, about, trial.Writes)
				emitted(t, about, trial.Emits, b.broker.taken[published:])
			case "superseded", "dropped", "expired", "duplicate":
				require.Equal(t, "acknowledged", answer.Outcome, about)
			default:
				require.Equal(t, []string{string(trial.Outcome), trial.Reason},
					[]string{answer.Outcome, answer.Reason}, about)
			}
			if again := b.try(t, events.Try{Queue: q.ID, Message: &events.GivenMessage{Message: *m}}); trial.Outcome ==
				"processed" && q.Remembers() {
				require.Equal(t, []string{"duplicate", "processed_before"},
					[]string{string(again.Outcome), again.Reason}, about)
				require.Equal(t, trial.Result, again.Result, about)
			}
		}
	}
	require.Greater(t, len(tried), 40)
	require.Contains(t, b.log.String(), `"operation":"events try","who":"local:ada"`)
}

// bodyText is the body of a call: JSON as it is, or a text in JSON.
func bodyText(value []byte) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// written requires that the documents are those that a trial showed.
func (b *bench) written(t *testing.T, about string, changes []dryrun.Change) {
	t.Helper()
	for _, c := range changes {
		collection, id, _ := strings.Cut(c.Key, "/")
		doc, err := b.store.Get(t.Context(), store.Key{Collection: collection, ID: id})
		if c.Op == "delete" {
			require.ErrorIs(t, err, store.ErrNotFound, "%s: %s", about, c.Key)
			continue
		}
		require.NoError(t, err, "%s: %s", about, c.Key)
		delete(doc.Fields, ledger.FieldCommitted) // a trial does not know the time of the commit
		fields := filetest.Must(json.Marshal(doc.Fields))(t)
		after := filetest.Must(json.Marshal(c.After))(t)
		require.JSONEq(t, string(fields), string(after), "%s: %s", about, c.Key)
	}
}

// emitted requires that the published messages are those that a trial showed, and that later ones wait.
func emitted(t *testing.T, about string, would []dryrun.Emission, were []published) {
	t.Helper()
	var expected, got []string
	for _, e := range would {
		if e.DueAt.IsZero() {
			expected = append(expected, fmt.Sprint(e.Topic, e.OrderingKey, e.Attributes, string(e.Data)))
		}
	}
	for _, p := range were {
		got = append(got, fmt.Sprint(p.topic, p.message.OrderingKey, p.message.Attributes, string(p.message.Data)))
	}
	require.ElementsMatch(t, got, expected, about)
}

// TestTrialShowsTheOutcomeOfADelivery: for an order that was credited before by another event, another
// payload under the id, an event without a handler, and a body without its attributes.
func TestTrialShowsTheOutcomeOfADelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	q, ok := b.catalog.Queue("paynow-events")
	require.True(t, ok)
	first := messageOf(t, b.catalog, q, "order.paid", "first")
	require.Equal(t, "processed", b.deliver(t, q.ID, first).Outcome)
	other, alone := *first, messageOf(t, b.catalog, q, "order.paid", "alone")
	other.Data, alone.Attributes = bytes.Replace(first.Data, []byte(`"quantity":`),
		[]byte(`"quantity":1`), 1), nil
	broken := &events.Message{
		Data: []byte(`{"eventId":"x"}`), Attributes: map[string]string{"contract": "payment.v1"},
	}
	for reason, m := range map[string]*events.Message{
		"payload_conflict": &other, "processed_before": first, "contract_broken": broken,
		"event_type_unknown": messageOf(t, b.catalog, q, "order.unheard", "unheard"),
	} {
		trial := b.try(t, events.Try{Queue: q.ID, Message: &events.GivenMessage{Message: *m}})
		require.Equal(t, reason, trial.Reason)
		require.Empty(t, trial.Writes)
	}
	for _, m := range []*events.Message{alone, messageOf(t, b.catalog, q, "order.paid", "second")} {
		trial := b.try(t, events.Try{Queue: q.ID, Message: &events.GivenMessage{Message: *m}})
		require.Equal(t, []any{"already_credited", 2}, []any{trial.Result, trial.Tries},
			"the handler is called again")
		require.Empty(t, trial.Writes)
	}
}
