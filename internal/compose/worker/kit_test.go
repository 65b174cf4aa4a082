package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/compose/worker/workertest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/platform/store/storetest"
)

// morning is the start of tests, and the publish time of messages whose time does not matter.
var morning = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

// clock is advanced by a test, while workers may read it.
type clock struct{ atomic.Int64 }

func newClock(at time.Time) *clock {
	c := &clock{}
	c.Store(at.UnixNano())
	return c
}

func (c *clock) Now() time.Time { return time.Unix(0, c.Load()).UTC() }

func (c *clock) pass(d time.Duration) { c.Add(int64(d)) }

type published struct {
	topic   string
	message contract.Message
}

var errNotGranted = errors.New("permission denied")

// shelves is a broker that keeps published messages until they are taken.
type shelves struct {
	// granted are the topics that may be published to; nil: all.
	granted []string
	mu      sync.Mutex
	taken   []published
	refused []string
}

func (s *shelves) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.granted != nil && !slices.Contains(s.granted, topic) {
		s.refused = append(s.refused, topic)
		return "", errNotGranted
	}
	s.taken = append(s.taken, published{topic, m})
	return "1", nil
}

func (s *shelves) all() []published {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.taken
	s.taken = nil
	return taken
}

func (s *shelves) take(topic string) (messages []contract.Message) {
	for _, p := range s.all() {
		if p.topic == topic {
			messages = append(messages, p.message)
		}
	}
	return messages
}

func config(t testing.TB, change func(*worker.Config)) worker.Config {
	t.Helper()
	c := workertest.Config(t)
	c.Publisher = &shelves{}
	if change != nil {
		change(&c)
	}
	return c
}

func open(t *testing.T, change func(*worker.Config)) *worker.Worker {
	t.Helper()
	return filetest.Must(worker.New(config(t, change)))(t)
}

func counting(t *testing.T, change func(*worker.Config)) (w *worker.Worker, counter *storetest.Counter) {
	t.Helper()
	return open(t, func(c *worker.Config) {
		c.Now = func() time.Time { return morning }
		if change != nil {
			change(c)
		}
		counter = &storetest.Counter{Store: c.Store}
		c.Store = counter
	}), counter
}

// spent counts the reads, the commits and the written documents of an action.
func spent(counter *storetest.Counter, do func()) []int64 {
	reads, commits, documents := counter.Gets.Load()+counter.Queries.Load(), counter.Commits.Load(),
		counter.Written.Load()
	do()
	return []int64{
		counter.Gets.Load() + counter.Queries.Load() - reads, counter.Commits.Load() - commits,
		counter.Written.Load() - documents,
	}
}

// pushOf is the request with which Pub/Sub delivers a message.
func pushOf(t require.TestingT, path, messageID string, at time.Time, m contract.Message) *http.Request {
	body := filetest.Must(json.Marshal(map[string]any{
		"message": map[string]any{
			"data": m.Data, "attributes": m.Attributes, "orderingKey": m.OrderingKey, "messageId": messageID,
			"publishTime": at.Format(time.RFC3339Nano),
		},
		"subscription": "projects/p/subscriptions/s",
	}))(t)
	return httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, bytes.NewReader(body))
}

// pushed delivers a message as Pub/Sub does, and returns the answer's status, outcome and reason.
func pushed(
	t require.TestingT, w http.Handler, path, messageID string, at time.Time, m contract.Message,
) (code int, outcome, reason string) {
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, pushOf(t, path, messageID, at, m))
	var answer struct{ Outcome, Reason string }
	if recorder.Code != http.StatusNoContent {
		require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answer), recorder.Body)
	}
	return recorder.Code, answer.Outcome, answer.Reason
}

// carrying is the message of a body, with more attributes.
func carrying(t require.TestingT, body contract.Body, more ...string) contract.Message {
	id, eventType := body.Identity()
	attributes := map[string]string{
		"event_id": id, "event_type": eventType, "routing_key": eventType, "ordering_key": "key-" + id,
	}
	for i := 0; i < len(more); i += 2 {
		attributes[more[i]] = more[i+1]
	}
	return contract.Message{Data: filetest.Must(body.Append(nil))(t), Attributes: attributes}
}

// posted delivers a body as Pub/Sub does, with more attributes, and returns the answer's status and reason.
func posted(
	t require.TestingT, w http.Handler, path string, body contract.Body, more ...string,
) (code int, reason string) {
	m := carrying(t, body, more...)
	code, _, reason = pushed(t, w, path, "m-"+m.Attributes["event_id"], morning, m)
	return code, reason
}

// paidOrder is a paid order of one piece of each product.
func paidOrder(event, customer string, products ...string) contract.Body {
	order := &contract.Order{ID: "order-" + event, CustomerID: customer}
	for _, product := range products {
		order.Items = append(order.Items, contract.Item{ProductID: product, Quantity: 1})
	}
	return contract.Of(&contract.Payment{
		EventID: event, EventType: contract.OrderPaid, Timestamp: "2026-03-02T10:15:00Z",
		Data: contract.PaymentData{Order: order},
	})
}

func respond(
	w http.Handler, method, path, body string, changes ...func(*http.Request),
) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Operator", "ada")
	for _, change := range changes {
		change(r)
	}
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, r)
	return answer
}

func answered(t require.TestingT, w http.Handler, path string, into any) {
	answer := respond(w, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, answer.Code, "%s: %s", path, answer.Body)
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), into), answer.Body.String())
}

func post(t require.TestingT, w http.Handler, want int, path, body string, into any) {
	answer := respond(w, http.MethodPost, path, body)
	require.Equal(t, want, answer.Code, "%s: %s", path, answer.Body)
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), into))
}

func task(t require.TestingT, w http.Handler, name string) (done map[string]any) {
	post(t, w, http.StatusOK, "/tasks/"+name, "", &done)
	return done
}
