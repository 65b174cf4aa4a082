package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/telemetry"
)

const (
	paynowSecret  = "paynow-secret-of-the-tests-0001"
	genericSecret = "generic-secret-of-the-tests-001"
	tolerance     = 5 * time.Minute
	queue         = "paynow-events"
)

var (
	fixed   = time.Date(2026, 3, 2, 10, 2, 3, 450_000_000, time.UTC)
	errDown = errors.New("down: ilse.brandvold@example.org") // foreign errors may hold anything
)

// loaded is the catalog that is built in. It is read-only: source changes a copy.
var loaded = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.Load("") })

// published is what the fake broker was handed.
type published struct {
	topic   string
	message contract.Message
}

// recorder is a broker that remembers, and fails as often as it is told to.
type recorder struct {
	mu     sync.Mutex
	got    []published
	errors []error
}

func (p *recorder) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errors) > 0 {
		err := p.errors[0]
		p.errors = p.errors[1:]
		return "", err
	}
	p.got = append(p.got, published{topic, m})
	return strconv.Itoa(len(p.got)), nil
}

func (p *recorder) all() []published {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got
}

// people is a customer directory.
type people struct {
	uids map[string]string
	err  error
}

func (p people) UID(_ context.Context, _, id string) (string, bool, error) {
	uid, ok := p.uids[id]
	return uid, ok, p.err
}

// shelf is products with their points.
type shelf map[string]catalog.Product

func (s shelf) Remembered(_, id string) (int64, bool) {
	p, known := s[id]
	return p.Points, known
}

func (s shelf) Points(_ context.Context, _, id string) (int64, bool, error) {
	p, known := s[id]
	return p.Points, known, nil
}

// door is a service with everything around it.
type door struct {
	*webhook.Service
	broker  *recorder
	log     *strings.Builder
	metrics *telemetry.Metrics
}

// config is a configuration that works, and what it publishes and logs to.
func config(tb testing.TB) (webhook.Config, *recorder, *strings.Builder) {
	tb.Helper()
	declared, err := loaded()
	require.NoError(tb, err)
	broker, log := &recorder{}, &strings.Builder{}
	return webhook.Config{
		Catalog:        declared,
		Secrets:        map[string][]string{"paynow": {paynowSecret}, "generic": {genericSecret}},
		Tolerance:      tolerance,
		Publisher:      broker,
		Customers:      people{},
		Products:       shelf(declared.Products),
		Log:            telemetry.NewLogger(log, slog.LevelDebug),
		Metrics:        telemetry.NewMetrics(),
		Now:            func() time.Time { return fixed },
		PublishTimeout: 5 * time.Second,
	}, broker, log
}

// open returns a service; change may be nil.
func open(tb testing.TB, change func(*webhook.Config)) *door {
	tb.Helper()
	c, broker, log := config(tb)
	if change != nil {
		change(&c)
	}
	service, err := webhook.New(c)
	require.NoError(tb, err)
	return &door{Service: service, broker: broker, log: log, metrics: c.Metrics}
}

// source returns a change that replaces one source of the catalog.
func source(name string, change func(*catalog.Source)) func(*webhook.Config) {
	return func(c *webhook.Config) {
		declared := *c.Catalog
		declared.Sources = maps.Clone(declared.Sources)
		s := declared.Sources[name]
		s.Name = name
		change(&s)
		declared.Sources[name] = s
		c.Catalog = &declared
	}
}

func sign(tb testing.TB, r *http.Request, scheme signature.Scheme, secret string, body []byte, at time.Time) {
	tb.Helper()
	signer, err := signature.NewSigner(scheme, secret)
	require.NoError(tb, err)
	for name, value := range signer.SignFor(r.URL.RequestURI(), "msg_1", body, at) {
		r.Header.Set(name, value)
	}
}

func request(tb testing.TB, path string, body io.Reader) *http.Request {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// payNow is a request as PayNow sends it, now.
func payNow(tb testing.TB, body []byte) *http.Request {
	tb.Helper()
	r := request(tb, "/webhooks/paynow", bytes.NewReader(body))
	sign(tb, r, signature.PayNow, paynowSecret, body, fixed)
	return r
}

// generic is a request signed with the generic secret.
func generic(tb testing.TB, path string, body []byte) *http.Request {
	tb.Helper()
	r := request(tb, path, bytes.NewReader(body))
	sign(tb, r, signature.Generic, genericSecret, body, fixed)
	return r
}

func (d *door) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// taken sends a request that has to be accepted.
func taken(t *testing.T, d *door, r *http.Request) *door {
	t.Helper()
	w := d.send(r)
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	return d
}

// toldOf is what is published of a body of PayNow's.
func toldOf(t *testing.T, body string) *contract.PayNow {
	t.Helper()
	return payNowOf(t, taken(t, open(t, nil), payNow(t, []byte(body))).broker.all()[0].message.Data)
}

type problem struct {
	Type       string `json:"type"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	Violations []struct {
		Path string `json:"path"`
		Rule string `json:"rule"`
	} `json:"violations"`
}

// requireProblem checks a refusal from all sides: the answer, that nothing was
// published, and that neither people nor the bad value are in the answer or the log.
func requireProblem(t *testing.T, d *door, w *httptest.ResponseRecorder, status int, code, secret string) problem {
	t.Helper()
	require.Equal(t, status, w.Code, "%s", w.Body)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	var p problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, status, p.Status)
	require.Equal(t, code, p.Code)
	require.Equal(t, "urn:billhook:problem:"+code, p.Type)
	require.Empty(t, d.broker.all(), "nothing may be published")
	requireNothingLeaks(t, d, w, secret)
	return p
}

var logTime = regexp.MustCompile(`"time":"[^"]*",`)

func requireNothingLeaks(t *testing.T, d *door, w *httptest.ResponseRecorder, secret string) {
	t.Helper()
	hidden := append([]string{paynowSecret, genericSecret}, samples.Personal...)
	if secret != "" {
		hidden = append(hidden, secret)
	}
	// The logger's own time may have any digits in it.
	log := logTime.ReplaceAllString(d.log.String(), "")
	for _, value := range hidden {
		require.NotContains(t, w.Body.String(), value, "the answer repeats a value")
		require.NotContains(t, log, value, "the log repeats a value")
		require.NotContains(t, fmt.Sprint(w.Header()), value, "a header repeats a value")
	}
}

// order is a small order that is accepted as it is; tables spoil one thing of it.
const order = `{"event_type":"ON_ORDER_COMPLETED","event_id":"502113004410990001","body":{"id":"502113004410990002",` +
	`"customer":{"id":"502113004410990003","name":"Ilse Brandvold"},"checkout":{"metadata":{"uid":"Zk3uQm0aBcD4eFgH5iJkL6mNoPq7"}},` +
	`"currency":"USD","total_amount":2000,"completed_at":"2026-03-02T10:01:00Z","billing_email":"ilse.brandvold@example.org",` +
	`"lines":[{"product_id":"411486491630370501","price":1000,"quantity":2}]}}`

// spoil returns the order with one place of it replaced.
func spoil(tb testing.TB, old, replacement string) []byte {
	tb.Helper()
	require.Equal(tb, 1, strings.Count(order, old), "%s must be in the order once", old)
	return []byte(strings.Replace(order, old, replacement, 1))
}

func TestNewRefusesATypeThatCannotBeMappedAndToPublishWithoutADeadline(t *testing.T) {
	t.Parallel()
	c, _, _ := config(t)
	c.PublishTimeout = 0
	source("paynow", func(s *catalog.Source) { s.Events = map[string]string{"ON_NOTHING": queue} })(&c)
	_, err := webhook.New(c)
	require.ErrorContains(t, err, "webhook: no publish timeout")
	require.ErrorContains(t, err, "event type ON_NOTHING has no mapping", "all mistakes at once")
}

func TestNewRefusesARouteToAQueueThatWouldNotTakeTheEvent(t *testing.T) {
	t.Parallel()
	const paynowType, genericType = "ON_TRIAL_ACTIVATED", "trial.activated"
	for name, change := range map[string]func(*catalog.Queue){
		"of another format":             func(q *catalog.Queue) { q.Contract = contract.EnvelopeV1 },
		"of a format that is not taken": func(q *catalog.Queue) { q.Contract = "message.v2" },
		"that is not enabled":           func(q *catalog.Queue) { q.Enabled = false },
		"that has no handler for it":    func(q *catalog.Queue) { q.Handlers = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, _ := config(t)
			source("paynow", func(s *catalog.Source) { s.Events = map[string]string{paynowType: queue} })(&c)
			source("generic", func(s *catalog.Source) { s.Events = map[string]string{genericType: queue} })(&c)
			queueOf(queue, change)(&c)
			_, err := webhook.New(c)
			require.ErrorContains(t, err, paynowType)
			if name != "of another format" { // which a generic source may send
				require.ErrorContains(t, err, genericType)
			}
		})
	}
}

func TestConcurrentWebhooksDoNotShareABuffer(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	const n = 64
	requests := make([]*http.Request, n)
	for i := range requests {
		id := strconv.Itoa(800_000 + i)
		requests[i] = payNow(t, samples.Read(samples.OrderCompleted, samples.Event{EventID: id, OrderID: "o" + id, UID: "u" + id}))
	}
	var group sync.WaitGroup
	for _, r := range requests {
		group.Go(func() { d.send(r) })
	}
	group.Wait()
	require.Len(t, d.broker.all(), n)
	seen := map[string]bool{}
	for _, got := range d.broker.all() {
		m := paid(t, got.message)
		require.Equal(t, "o"+m.EventID, m.Data.Order.ID)
		require.Equal(t, "u"+m.EventID, got.message.OrderingKey)
		seen[m.EventID] = true
	}
	require.Len(t, seen, n)
}

func TestAServiceThatDrainsIsNotReadyButStillAnswers(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	ready := func() int {
		return d.send(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready", http.NoBody)).Code
	}
	require.Equal(t, http.StatusOK, ready())
	d.Drain()
	require.Equal(t, http.StatusServiceUnavailable, ready())
	require.Equal(t, http.StatusAccepted, d.send(payNow(t, samples.Read(samples.OrderCompleted, samples.Event{}))).Code)
}
