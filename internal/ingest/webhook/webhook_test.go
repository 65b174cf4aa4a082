package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
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
	errDown = errors.New("down: ilse.brandvold@example.org") // an error of other code may hold personal data
)

// loaded is the shipped catalog. It is read-only: source changes a copy.
var loaded = sync.OnceValue(catalogtest.Shipped)

type published struct {
	topic   string
	message contract.Message
	dropped []string // as in the log
	answer  []byte
}

// recorder is a broker that keeps what it confirms. An error of before is its answer.
type recorder struct {
	before func(ctx context.Context, m contract.Message) error // may be nil
	mu     sync.Mutex
	got    []published
}

func (p *recorder) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	if p.before != nil {
		if err := p.before(ctx, m); err != nil {
			return "", err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, published{topic: topic, message: m})
	return strconv.Itoa(len(p.got)), nil
}

func (p *recorder) all() []published {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got
}

type people struct {
	uids map[string]string
	err  error
}

func (p people) UID(_ context.Context, _, id string) (string, error) { return p.uids[id], p.err }

type service struct {
	*webhook.Service
	broker  *recorder
	log     *strings.Builder
	metrics *telemetry.Metrics
}

func config(tb testing.TB) (webhook.Config, *recorder, *strings.Builder) {
	tb.Helper()
	declared := loaded()
	broker, log, secrets := &recorder{}, &strings.Builder{}, map[string][]string{}
	for name := range declared.Sources {
		secrets[name] = []string{paynowSecret}
	}
	secrets["generic"] = []string{genericSecret}
	return webhook.Config{
		Catalog:   declared,
		Secrets:   secrets,
		Tolerance: tolerance,
		Publisher: broker,
		UID:       people{}.UID,
		Points: func(_ context.Context, _, id string) (int64, bool, error) {
			p, known := declared.Products[id]
			return p.Points, known, nil
		},
		Log:            telemetry.NewLogger(log, slog.LevelDebug),
		Metrics:        telemetry.NewMetrics(),
		Now:            func() time.Time { return fixed },
		PublishTimeout: 5 * time.Second,
	}, broker, log
}

func open(tb testing.TB, change func(*webhook.Config)) *service {
	tb.Helper()
	c, broker, log := config(tb)
	if change != nil {
		change(&c)
	}
	made := filetest.Must(webhook.New(c))(tb)
	return &service{Service: made, broker: broker, log: log, metrics: c.Metrics}
}

func source(name string, change func(*catalog.Source)) func(*webhook.Config) {
	return func(c *webhook.Config) {
		c.Catalog = new(*c.Catalog)
		c.Catalog.Sources = maps.Clone(c.Catalog.Sources)
		s := c.Catalog.Sources[name]
		s.Name = name
		change(&s)
		c.Catalog.Sources[name] = s
	}
}

// sign signs a request for a destination, which may be another than its own.
func sign(
	tb testing.TB, r *http.Request, destination string, scheme signature.Scheme, secret string, body []byte,
) {
	tb.Helper()
	signer := filetest.Must(signature.NewSigner(scheme, secret))(tb)
	for name, value := range signer.SignFor(destination, "msg_1", body, fixed) {
		r.Header.Set(name, value)
	}
}

func request(tb testing.TB, path string, body io.Reader) *http.Request {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, path, body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func payNow(tb testing.TB, body []byte) *http.Request {
	tb.Helper()
	r := request(tb, "/webhooks/paynow", bytes.NewReader(body))
	sign(tb, r, "", loaded().Providers["paynow"].Signature, paynowSecret, body)
	return r
}

func generic(tb testing.TB, path string, body []byte) *http.Request {
	tb.Helper()
	r := request(tb, path, bytes.NewReader(body))
	sign(tb, r, path, signature.Generic, genericSecret, body)
	return r
}

func (d *service) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// out is an answer with the log and the messages.
func (d *service) out(w *httptest.ResponseRecorder) string {
	out := w.Body.String() + d.log.String()
	for _, got := range d.broker.all() {
		out += string(got.message.Data) + fmt.Sprint(got.message.Attributes)
	}
	return out
}

func (d *service) scrape(tb testing.TB) string {
	tb.Helper()
	page := httptest.NewRecorder()
	d.metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/metrics",
		http.NoBody))
	return page.Body.String()
}

func accepted(t *testing.T, d *service, r *http.Request) *service {
	t.Helper()
	w := d.send(r)
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	return d
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

// requireProblem holds an answer to a refusal. Nothing is published, and neither its answer nor the log has
// personal data or the bad value.
func requireProblem(
	t *testing.T, d *service, w *httptest.ResponseRecorder, status int, code, secret string,
) problem {
	t.Helper()
	require.Equal(t, status, w.Code, "%s", w.Body)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	p := filetest.JSON[problem](t, w.Body.Bytes())
	require.Equal(t, status, p.Status)
	require.Equal(t, code, p.Code)
	require.Equal(t, "urn:billhook:problem:"+code, p.Type)
	require.Empty(t, d.broker.all(), "nothing is published")
	requireNothingLeaks(t, d, w, secret)
	return p
}

var logTime = regexp.MustCompile(`"time":"[^"]*",`)

func requireNothingLeaks(t *testing.T, d *service, w *httptest.ResponseRecorder, secret string) {
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

const order = `{"event_type":"ON_ORDER_COMPLETED","event_id":"502113004410990001",` +
	`"body":{"id":"502113004410990002",` +
	`"customer":{"id":"502113004410990003","name":"Ilse Brandvold"},` +
	`"checkout":{"metadata":{"uid":"Zk3uQm0aBcD4eFgH5iJkL6mNoPq7"}},` +
	`"currency":"USD","total_amount":2000,"completed_at":"2026-03-02T10:01:00Z",` +
	`"billing_email":"ilse.brandvold@example.org",` +
	`"lines":[{"product_id":"411486491630370501","price":1000,"quantity":2}]}}`

func spoil(tb testing.TB, old, replacement string) []byte {
	tb.Helper()
	require.Equal(tb, 1, strings.Count(order, old), "%s must be in the order once", old)
	return []byte(strings.Replace(order, old, replacement, 1))
}

// requireSent sends an accepted request. Log and metrics have the same dropped fields, and nothing leaks.
func requireSent(t *testing.T, d *service, r *http.Request, secret string) published {
	t.Helper()
	source := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	w := d.send(r)
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	require.Len(t, d.broker.all(), 1)
	requireNothingLeaks(t, d, w, secret)
	got := d.broker.all()[0]
	if secret != "" {
		require.NotContains(t, string(got.message.Data), secret)
		require.NotContains(t, fmt.Sprint(got.message.Attributes, got.message.OrderingKey), secret)
	}
	line := filetest.JSON[struct{ Dropped []string }](t, d.log.String())
	got.dropped, got.answer = line.Dropped, w.Body.Bytes()
	slices.Sort(got.dropped)
	metrics := d.scrape(t)
	require.Equal(t, len(got.dropped), strings.Count(metrics, "\nbillhook_webhook_dropped_fields_total{"))
	for _, one := range got.dropped {
		field, rule, _ := strings.Cut(one, ": ")
		require.Contains(t, metrics,
			fmt.Sprintf("billhook_webhook_dropped_fields_total{field=%q,rule=%q,source=%q} 1", field, rule, source))
	}
	return got
}

func paid(t *testing.T, m contract.Message) *contract.Payment {
	t.Helper()
	return filetest.Must(contract.As[*contract.Payment](requireWhole(t, m)))(t)
}

const (
	customer = "502113004410990003"
	oneLine  = `{"product_id":"411486491630370501","price":1000,"quantity":2}`
)

func goldens(tb testing.TB, format string) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "contract", "testdata", format, "*.json"))
	require.NoError(tb, err)
	require.NotEmpty(tb, files)
	all := map[string][]byte{}
	for _, file := range files {
		all[filepath.Base(file)], err = os.ReadFile(file)
		require.NoError(tb, err)
	}
	return all
}

const updates = "pay-subscription-update"

func lenient(c *webhook.Config) {
	source("generic", func(s *catalog.Source) {
		s.Events = maps.Clone(s.Events)
		q, _ := c.Catalog.Queue(updates)
		for action := range q.Handlers {
			s.Events[action] = updates
		}
	})(c)
}

func unlimited(c *webhook.Config) {
	for name := range c.Catalog.Sources {
		source(name, func(s *catalog.Source) { s.RatePerSecond = 0 })(c)
	}
}

// queues changes a copy of each queue.
func queues(changes ...func(*catalog.Queue)) func(*webhook.Config) {
	return func(c *webhook.Config) {
		c.Catalog = new(*c.Catalog)
		c.Catalog.Queues = slices.Clone(c.Catalog.Queues)
		for i := range c.Catalog.Queues {
			for _, change := range changes {
				change(&c.Catalog.Queues[i])
			}
		}
	}
}

func queueOf(id string, change func(*catalog.Queue)) func(*webhook.Config) {
	return queues(func(q *catalog.Queue) {
		if q.ID == id {
			change(q)
		}
	})
}
