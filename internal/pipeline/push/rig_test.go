package push_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/push"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
	"billhook/internal/retry"
)

var start = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

const (
	known   = "411486491630370501"
	unknown = "999999999999999999"
	buyer   = "530217764480019001"
)

// broker keeps the published messages: dead letters, emissions, and messages that are released or replayed.
type broker struct {
	before func(topic string)

	mu    sync.Mutex
	down  bool
	taken map[string][]contract.Message
}

const dlq, updates = "orders-dlq", "updates"

var errBroker = errors.New("no answer")

func (b *broker) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.before != nil {
		b.before(topic)
	}
	if b.down {
		return "", errBroker
	}
	b.taken[topic] = append(b.taken[topic], m)
	return fmt.Sprint(topic, len(b.taken[topic])), m.Check()
}

// bouncer accepts the good token, or returns its error.
type bouncer struct{ err error }

func (b *bouncer) Verify(_ context.Context, authorization string) error {
	if b.err == nil && authorization != "Bearer good" {
		return errors.New("no token")
	}
	return b.err
}

// rig is a push service on a real store.
type rig struct {
	*push.Service
	config  push.Config
	http    http.Handler
	queue   catalog.Queue
	faults  *storetest.Faults
	counter *storetest.Counter
	db      store.Store
	broker  *broker
	bouncer *bouncer
	log     *journal
	relay   *lane.Relay
	alarms  alarms
	live    bool
	ahead   atomic.Bool // its timer fires at once, and no time passes
	now     atomic.Int64
	ids     atomic.Int64
	// do is the handler of order.paid. Before that, its calls return fails, one after the other; during, if set,
	// runs within the next one.
	do     handler.Tx
	fails  []error
	during func(context.Context)
	calls  atomic.Int64
	leased *handler.Leased
	cells  int // no two share an event or a key
}

// alarms keeps the times of the alarms.
type alarms struct {
	mu  sync.Mutex
	at  []time.Time
	err error
}

func (a *alarms) At(_ context.Context, at time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, at)
	return a.err
}

// passing is a timer that advances the rig's clock.
func (r *rig) passing(d time.Duration) (<-chan time.Time, func() bool) {
	if r.ahead.Load() {
		d = 0
	}
	c := make(chan time.Time, 1)
	c <- time.Unix(0, r.now.Add(int64(d)))
	return c, func() bool { return true }
}

// setup has what differs in one test.
type setup struct {
	queue func(*catalog.Queue)
	// leased: the handler runs under a lease; many: it calls many places.
	leased, many bool
	log          slog.Handler
	// live: the rig's clock is that of its test's bubble. Else time passes when the service waits.
	live bool
}

func newRig(tb testing.TB, with setup) *rig {
	tb.Helper()
	db := storetest.Open(tb)
	r := &rig{
		live: with.live, broker: &broker{taken: map[string][]contract.Message{}}, bouncer: &bouncer{},
		log: &journal{}, do: credit,
	}
	r.db, r.counter = db, &storetest.Counter{Store: db}
	r.faults = &storetest.Faults{Store: r.counter}
	r.now.Store(start.UnixNano())
	r.queue = catalog.Queue{
		ID: "orders", Enabled: true, Contract: contract.PaymentV1, Concurrency: 60,
		RememberFor: 30 * 24 * time.Hour,
		AckDeadline: time.Minute, Lease: 2 * time.Minute,
		DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Retention: 14 * 24 * time.Hour},
		OnTerminal: catalog.Reject,
		Backoff:    retry.Policy{Base: 10 * time.Second, Multiplier: 2, Max: 600 * time.Second},
		Handlers:   map[string]catalog.Handler{},
	}
	for eventType, name := range map[string]string{
		"order.paid": "points.credit", "order.refunded": "points.reverse",
	} {
		r.queue.Handlers[eventType] = catalog.Handler{
			Name: name, Emits: []string{updates}, MaxAttempts: 3, Timeout: 30 * time.Second, Backoff: r.queue.Backoff,
		}
	}
	if with.queue != nil {
		with.queue(&r.queue)
	}
	clock, timer := func() time.Time { return time.Unix(0, r.now.Load()).UTC() }, handler.Timer(r.passing)
	if with.live {
		clock, timer = func() time.Time { return time.Now().UTC() }, push.RealTimer
	}
	registry := handler.NewRegistry()
	registry.Tx("points.reverse", credit)
	if with.leased {
		registry.Leased("points.credit", handler.Leased{Do: r.handle, SafeToRepeat: true, ManyPlaces: with.many})
	} else {
		registry.Tx("points.credit", r.handle)
	}
	registered, _ := registry.Lookup("points.credit")
	r.leased = registered.Leased
	log := with.log
	if log == nil {
		log = slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})
	}
	var names atomic.Int64
	r.relay = &lane.Relay{Of: lane.Outbox, Store: r.faults, Publisher: r.broker, Now: clock}
	r.config = push.Config{
		Rates:  rates.NewRecorder(rates.Config{Store: db, Self: rates.Service{Instance: "instance-1"}, Now: clock}),
		Queues: []catalog.Queue{r.queue, {ID: "asleep", Contract: contract.PaymentV1}}, Catalog: declared(),
		Handlers: registry, Outbox: r.relay, Alarm: &r.alarms, Timer: timer, Authenticator: r.bouncer,
		Log: slog.New(log), Metrics: telemetry.NewMetrics(), Dice: func() float64 { return 0.5 },
		Once: dedupe.Once{
			Store: r.faults, Now: clock, NewToken: func() string { return fmt.Sprint("token-", names.Add(1)) },
			Instance: "instance-1",
		},
	}
	r.Service = push.New(r.config)
	r.http = routed(r.Service)
	return r
}

func TestMain(m *testing.M) { storetest.Main(m) }

func routed(s *push.Service) http.Handler {
	router := chi.NewRouter()
	s.Routes(router)
	return serve.Recover(slog.New(slog.DiscardHandler), router)
}

func (r *rig) handle(ctx context.Context, event handler.Event) (handler.Effect, error) {
	r.calls.Add(1)
	var err error
	if len(r.fails) > 0 {
		err, r.fails = r.fails[0], r.fails[1:]
	}
	if during := r.during; during != nil {
		r.during = nil
		during(ctx)
	}
	if err != nil {
		return handler.Effect{}, err
	}
	return r.do(ctx, event)
}

// message is a message as a test describes it.
type message struct {
	id         string
	body       any
	attributes map[string]string
	attempt    int
	published  time.Time
}

// paid is a paid order of one product under an event id.
func paid(event, product string, quantity int) message {
	return message{
		id: "m-" + event,
		body: contract.Payment{
			EventID: event, EventType: "order.paid", Timestamp: "2026-03-02T10:15:00Z",
			Data: contract.PaymentData{Order: &contract.Order{
				ID: "order-" + event, CustomerID: buyer,
				Items: []contract.Item{{ProductID: product, Quantity: int64(quantity)}},
			}},
		},
		attributes: map[string]string{
			"event_id": event, "event_type": "order.paid", "ordering_key": buyer, "contract": "payment.v1",
			"paynow_customer_id": buyer, "correlation_id": "corr-" + event,
		},
		published: start,
	}
}

// arrived is a message of the broker.
func arrived(id string, m contract.Message, at time.Time) message {
	return message{id: id, body: string(m.Data), attributes: m.Attributes, published: at}
}

func (m message) with(change func(*message)) message {
	m.attributes = maps.Clone(m.attributes)
	change(&m)
	return m
}

// again is the message at its nth delivery.
func (m message) again(attempt int) message {
	return m.with(func(m *message) { m.attempt = attempt })
}

// data is the message's payload: a string as it is, anything else as JSON.
func (m message) data() []byte {
	if text, ok := m.body.(string); ok {
		return []byte(text)
	}
	data, err := json.Marshal(m.body)
	if err != nil {
		panic(err)
	}
	return data
}

// envelope is the message as Pub/Sub posts it.
func (m message) envelope() []byte {
	inner := map[string]any{
		"data": m.data(), "attributes": m.attributes, "messageId": m.id, "message_id": m.id,
		"publishTime": m.published.Format(time.RFC3339Nano), "publish_time": m.published.Format(time.RFC3339Nano),
		"orderingKey": m.attributes["ordering_key"],
	}
	outer := map[string]any{"message": inner, "subscription": "projects/demo/subscriptions/orders-push"}
	if m.attempt > 0 {
		outer["deliveryAttempt"] = m.attempt
	}
	body, err := json.Marshal(outer)
	if err != nil {
		panic(err)
	}
	return body
}

// reply is an answer as a test reads it.
type reply struct {
	code    int
	header  http.Header
	text    string
	Outcome string `json:"outcome"`
	Status  int    `json:"status"`
	Reason  string `json:"reason"`
	EventID string `json:"event_id"`
	Attempt int    `json:"attempt"`
	Delayed bool   `json:"delayed"`
	Ref     string `json:"ref"`
	Code    string `json:"code"`
}

// request pushes a body as Pub/Sub does.
func request(ctx context.Context, path string, body []byte) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Authorization", "Bearer good")
	return r
}

func (r *rig) post(path string, body []byte) reply {
	return r.serve(request(context.Background(), path, body))
}

func (r *rig) serve(request *http.Request) reply {
	recorder := httptest.NewRecorder()
	r.http.ServeHTTP(recorder, request)
	got := reply{code: recorder.Code, header: recorder.Header(), text: recorder.Body.String()}
	_ = json.Unmarshal(recorder.Body.Bytes(), &got) // a 204 has no body
	return got
}

// deliver pushes the message when its event's next attempt is due, as the broker does.
func (r *rig) deliver(m message) reply {
	record, ok := r.record(m.attributes["event_id"])
	if wait := record.NextRetryAt.Sub(r.config.Now()); ok && record.Status == dedupe.Failed &&
		record.DelayTicket == "" && wait > 0 {
		r.pass(wait)
	}
	return r.deliverNow(m)
}

func (r *rig) deliverNow(m message) reply { return r.post("/push/orders", m.envelope()) }

func (r *rig) pass(d time.Duration) {
	if r.live {
		<-time.After(d)
	}
	r.now.Add(int64(d))
}

func (r *rig) record(event string) (record dedupe.Record, ok bool) {
	doc, err := r.db.Get(context.Background(), dedupe.Key("orders", dedupe.DefaultTenant, event))
	if err == nil {
		record, err = dedupe.FromDocument(doc)
	}
	return record, err == nil
}

func (r *rig) deadLetters() []contract.Message {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	return r.broker.taken[dlq]
}

// declared is a catalog of the shipped contracts, without queues.
var declared = sync.OnceValue(catalogtest.Contracts)
