package webhook_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
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
	"billhook/internal/contract"
	"billhook/internal/routing"
	"billhook/internal/signature"
	"billhook/internal/telemetry"
	"billhook/internal/webhook"
	"billhook/internal/webhook/samples"
	"billhook/internal/webhook/webhooktest"
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

func (p people) UID(_ context.Context, id string) (string, bool, error) {
	uid, ok := p.uids[id]
	return uid, ok, p.err
}

// shelf is products with their points.
type shelf map[string]catalog.Product

func (s shelf) Remembered(id string) (int64, bool) {
	p, known := s[id]
	return p.Points, known
}

func (s shelf) Points(_ context.Context, id string) (int64, bool, error) {
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
	for name, value := range signer.Sign("msg_1", body, at) {
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

func TestSamplesLeaveAsTheContractSays(t *testing.T) {
	t.Parallel()
	attributes := func(eventID, eventType, key string, more map[string]string) map[string]string {
		all := map[string]string{
			"contract": "paynow.v1", "event_id": eventID, "event_type": eventType, "ordering_key": key,
			"order_id": samples.OrderID, "correlation_id": samples.OrderID, "first_published_at": "2026-03-02T10:02:03.45Z",
		}
		maps.Copy(all, more)
		return all
	}
	// What is said of a subscription or a trial has no order.
	period := func(eventID, eventType, id, key string, more map[string]string) map[string]string {
		all := attributes(eventID, eventType, key, map[string]string{"correlation_id": id, "paynow_customer_id": samples.CustomerID})
		delete(all, "order_id")
		maps.Copy(all, more)
		return all
	}
	bought := map[string]string{"uid": samples.UID}
	tests := []struct {
		name       string
		sample     string
		body       string
		attributes map[string]string
		key        string // the real ordering key
	}{
		{
			"an order with known products carries uid and points", samples.OrderCompleted,
			`{"eventId":"502113004410990001","eventType":"order.paid","timestamp":"2026-03-02T10:01:00Z","data":{"order":{"id":"502113004410990002","customerId":"502113004410990003","currency":"USD","total":"20.00","items":[{"productId":"411486491630370501","quantity":2,"price":"10.00"}]}}}`,
			attributes("502113004410990001", "order.paid", samples.UID, map[string]string{"paynow_customer_id": samples.CustomerID, "uid": samples.UID, "points": "2000"}),
			samples.UID,
		},
		{
			"an order with an unknown product carries no points, and is ordered by customer", samples.UnknownProduct,
			`{"eventId":"502113004410990005","eventType":"order.paid","timestamp":"2026-03-02T10:01:00Z","data":{"order":{"id":"502113004410990002","customerId":"502113004410990003","currency":"USD","total":"15.00","items":[{"productId":"411486491630370501","quantity":1,"price":"10.00"},{"productId":"502113004410000777","quantity":1,"price":"5.00"}]}}}`,
			attributes("502113004410990005", "order.paid", samples.CustomerID, map[string]string{"paynow_customer_id": samples.CustomerID}),
			samples.CustomerID,
		},
		{
			"a refund names its order and all that was given back", samples.Refund,
			`{"eventId":"502113004410990011","eventType":"order.refunded","timestamp":"2026-03-03T09:02:00Z","data":{"order":{"id":"502113004410990002","customerId":"502113004410990003","currency":"USD"},"refund":{"id":"502113004410990021","amount":"20.00"}}}`,
			attributes("502113004410990011", "order.refunded", samples.CustomerID, map[string]string{"paynow_customer_id": samples.CustomerID}),
			samples.CustomerID,
		},
		{
			"a partial refund names the part that was given back", samples.RefundPartial,
			`{"eventId":"502113004410990012","eventType":"order.refunded","timestamp":"2026-03-03T09:02:00Z","data":{"order":{"id":"502113004410990002","customerId":"502113004410990003","currency":"USD"},"refund":{"id":"502113004410990021","amount":"5.00"}}}`,
			attributes("502113004410990012", "order.refunded", samples.CustomerID, map[string]string{"paynow_customer_id": samples.CustomerID}),
			samples.CustomerID,
		},
		{
			"a chargeback of nobody we know has no real ordering key", samples.Chargeback,
			`{"eventId":"502113004410990013","eventType":"order.chargeback","timestamp":"2026-03-20T14:45:00Z","data":{"order":{"id":"502113004410990002","currency":"USD"}}}`,
			attributes("502113004410990013", "order.chargeback", "unknown", nil),
			"",
		},
		{
			"a subscription is active from when it says", samples.SubscriptionActivated,
			`{"eventId":"502113004410990016","eventType":"subscription.activated","timestamp":"2026-03-02T10:00:05Z","data":{"subscription":{"id":"502113004410990041","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"active","currency":"EUR","total":"9.99","cycle":1,"periodStart":"2026-03-02T10:00:00Z","periodEnd":"2026-04-02T10:00:00Z"}}}`,
			period("502113004410990016", "subscription.activated", samples.SubscriptionID, samples.UID, bought), samples.UID,
		},
		{
			"a subscription is renewed with its new period", samples.SubscriptionRenewed,
			`{"eventId":"502113004410990014","eventType":"subscription.renewed","timestamp":"2026-04-02T10:00:00Z","data":{"subscription":{"id":"502113004410990041","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"active","currency":"EUR","total":"9.99","cycle":2,"periodStart":"2026-04-02T10:00:00Z","periodEnd":"2026-05-02T10:00:00Z"}}}`,
			period("502113004410990014", "subscription.renewed", samples.SubscriptionID, samples.UID, bought), samples.UID,
		},
		{
			"a subscription is canceled before its period ends", samples.SubscriptionCanceled,
			`{"eventId":"502113004410990017","eventType":"subscription.canceled","timestamp":"2026-04-20T18:30:00Z","data":{"subscription":{"id":"502113004410990041","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"canceled","currency":"EUR","total":"9.99","cycle":2,"periodStart":"2026-04-02T10:00:00Z","periodEnd":"2026-05-02T10:00:00Z"}}}`,
			period("502113004410990017", "subscription.canceled", samples.SubscriptionID, samples.UID, bought), samples.UID,
		},
		{
			"a trial has no price, and its customer has no uid", samples.TrialActivated,
			`{"eventId":"502113004410990015","eventType":"trial.activated","timestamp":"2026-03-02T10:00:00Z","data":{"subscription":{"id":"502113004410990042","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"active","periodStart":"2026-03-02T10:00:00Z","periodEnd":"2026-03-09T10:00:00Z"}}}`,
			period("502113004410990015", "trial.activated", samples.TrialID, samples.CustomerID, nil), samples.CustomerID,
		},
		{
			"a trial is completed when it ends", samples.TrialCompleted,
			`{"eventId":"502113004410990018","eventType":"trial.completed","timestamp":"2026-03-09T10:00:00Z","data":{"subscription":{"id":"502113004410990042","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"completed","periodStart":"2026-03-02T10:00:00Z","periodEnd":"2026-03-09T10:00:00Z"}}}`,
			period("502113004410990018", "trial.completed", samples.TrialID, samples.CustomerID, nil), samples.CustomerID,
		},
		{
			"a trial is canceled when it says", samples.TrialCanceled,
			`{"eventId":"502113004410990019","eventType":"trial.canceled","timestamp":"2026-03-05T07:30:00Z","data":{"subscription":{"id":"502113004410990042","customerId":"502113004410990003","productId":"411486491630370502","checkoutId":"502113004410000300","status":"canceled","periodStart":"2026-03-02T10:00:00Z","periodEnd":"2026-03-09T10:00:00Z"}}}`,
			period("502113004410990019", "trial.canceled", samples.TrialID, samples.CustomerID, nil), samples.CustomerID,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(payNow(t, samples.Read(test.sample, samples.Event{})))
			require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			require.JSONEq(t, fmt.Sprintf(`{"event_id":%q,"queue":"paynow-events","message_id":"1","ordering_key":%q}`,
				test.attributes["event_id"], test.attributes["ordering_key"]), w.Body.String())
			require.Len(t, d.broker.all(), 1)
			got := d.broker.all()[0]
			require.Equal(t, queue, got.topic)
			require.Equal(t, test.body, string(got.message.Data))
			require.Equal(t, test.attributes, got.message.Attributes)
			require.Equal(t, test.key, got.message.OrderingKey)
			requireNothingLeaks(t, d, w, "")

			paid(t, got.message)
			require.NoError(t, got.message.Check())

			require.Equal(t, 1, strings.Count(d.log.String(), "\n"), "one line per webhook")
			var line map[string]any
			require.NoError(t, json.Unmarshal([]byte(d.log.String()), &line))
			require.Equal(t, test.attributes["event_id"], line["event_id"])
			require.Equal(t, queue, line["queue"])
			require.InDelta(t, http.StatusAccepted, line["status"], 0)
		})
	}
}

func TestWhatNobodyWantsIsVerifiedAndIgnored(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body, eventID, reason string
	}{
		{"a paused subscription", strings.Replace(string(samples.Read(samples.SubscriptionRenewed, samples.Event{})), "_RENEWED", "_PAUSED", 1), "502113004410990014", "no_queue"},
		{"an extended trial", strings.Replace(string(samples.Read(samples.TrialActivated, samples.Event{})), "_ACTIVATED", "_EXTENDED", 1), "502113004410990015", "no_queue"},
		{"a type that is new", `{"event_type":"ON_SOMETHING_NEW","event_id":"77"}`, "77", "no_queue"},
		{"odd content that would break the contract", `{"event_type":"ON_PAYOUT","event_id":"77","body":{"id":{"x":1},"currency":5,"lines":"none","amount":"ilse.brandvold@example.org"}}`, "77", "no_queue"},
		{"a body that is an array", `{"event_type":"ON_PAYOUT","event_id":"77","body":[1,2]}`, "77", "no_queue"},
		{"a body that is null", `{"event_type":"ON_PAYOUT","event_id":"77","body":null}`, "77", "no_queue"},
		{"a refund that was canceled", strings.Replace(string(samples.Read(samples.Refund, samples.Event{})), `"status": "completed"`, `"status": "canceled"`, 1), "502113004410990011", "refund_not_completed"},
		{"a refund that failed", strings.Replace(string(samples.Read(samples.Refund, samples.Event{})), `"status": "completed"`, `"status": "failed"`, 1), "502113004410990011", "refund_not_completed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(payNow(t, []byte(test.body)))
			require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
			require.JSONEq(t, fmt.Sprintf(`{"event_id":%q,"ignored":true,"reason":%q}`, test.eventID, test.reason), w.Body.String())
			require.Empty(t, d.broker.all())
			requireNothingLeaks(t, d, w, "")
			require.Contains(t, d.scrape(t), fmt.Sprintf(`billhook_webhooks_total{reason=%q,source="paynow",status="200"} 1`, test.reason), "it is counted")
		})
	}
}

func TestUIDComesFromTheDirectoryWhereTheBodyHasNone(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) {
		c.Customers = people{uids: map[string]string{samples.CustomerID: "user-of-the-directory"}}
	})
	require.Equal(t, http.StatusAccepted, d.send(payNow(t, samples.Read(samples.Refund, samples.Event{}))).Code)
	require.Equal(t, http.StatusAccepted, d.send(payNow(t, samples.Read(samples.OrderCompleted, samples.Event{}))).Code)
	require.Len(t, d.broker.all(), 2)
	first, second := d.broker.all()[0].message, d.broker.all()[1].message
	require.Equal(t, "user-of-the-directory", first.Attributes["uid"])
	require.Equal(t, "user-of-the-directory", first.Attributes["ordering_key"])
	require.Equal(t, "user-of-the-directory", first.OrderingKey)
	require.Equal(t, samples.CustomerID, first.Attributes["paynow_customer_id"])
	require.Equal(t, "customer", first.Attributes["uid_source"])
	require.Equal(t, samples.UID, second.Attributes["uid"], "the body's own uid comes first")
	require.NotContains(t, second.Attributes, "uid_source")
}

func TestADirectoryThatFailsKeepsTheEventWithItsSender(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) { c.Customers = people{err: errDown} })
	w := d.send(payNow(t, samples.Read(samples.Refund, samples.Event{})))
	requireProblem(t, d, w, http.StatusServiceUnavailable, "customer_lookup_failed", "")
	require.NotEmpty(t, w.Header().Get("Retry-After"))
}

// lost is a directory that never answers.
type lost struct{}

func (lost) UID(ctx context.Context, _ string) (string, bool, error) {
	<-ctx.Done()
	return "", false, ctx.Err()
}

func TestADirectoryThatNeverAnswersIsWaitedForOnlySoLong(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) { c.Customers, c.PublishTimeout = lost{}, time.Millisecond })
	w := d.send(payNow(t, samples.Read(samples.Refund, samples.Event{})))
	requireProblem(t, d, w, http.StatusServiceUnavailable, "customer_lookup_failed", "")
}

func TestTheUIDOfAnIdentityProviderIsTheOrderingKey(t *testing.T) {
	t.Parallel()
	for _, uid := range []string{
		"auth0|5f7c8ec7c33c6c004bbafe82", "google-oauth2|103547991597142817347", "facebook|4539148803436467", "samlp|acme|00u1abcd", "eu-west-1:2f3d0a11-1111-4111-8111-111111111111",
		"_ce3d2948b4cf20146dee0a0b3dd6f69b6cf86f62d7", "700000000000000300",
	} {
		t.Run(uid, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(payNow(t, spoil(t, samples.UID, uid)))
			require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
			sent := d.broker.all()
			require.Len(t, sent, 1)
			require.Equal(t, uid, sent[0].message.OrderingKey)
			require.Equal(t, uid, sent[0].message.Attributes["uid"])
			require.Equal(t, uid, sent[0].message.Attributes["ordering_key"])
		})
	}
}

func TestADirectoryCannotLetAnAddressOut(t *testing.T) {
	t.Parallel()
	const address = "mette.lindqvist@example.com"
	d := open(t, func(c *webhook.Config) { c.Customers = people{uids: map[string]string{samples.CustomerID: address}} })
	w := d.send(payNow(t, samples.Read(samples.Refund, samples.Event{})))
	require.NotEqual(t, http.StatusAccepted, w.Code)
	require.Empty(t, d.broker.all())
	requireNothingLeaks(t, d, w, address)
}

func TestAnUnconfirmedPublishKeepsTheEventWithItsSender(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	d.broker.errors = []error{errDown}
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	w := d.send(payNow(t, body))
	requireProblem(t, d, w, http.StatusServiceUnavailable, "publish_unconfirmed", "")
	require.NotEmpty(t, w.Header().Get("Retry-After"))

	w = d.send(payNow(t, body))
	require.Equal(t, http.StatusAccepted, w.Code)
	require.Empty(t, w.Header().Get("Retry-After"))
	require.Len(t, d.broker.all(), 1)
}

func TestAMessageOverALimitIsFinal(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	d.broker.errors = []error{fmt.Errorf("publish: %w", contract.ErrLimit)}
	w := d.send(payNow(t, samples.Read(samples.OrderCompleted, samples.Event{})))
	requireProblem(t, d, w, http.StatusUnprocessableEntity, "message_limit", "")
	require.Empty(t, w.Header().Get("Retry-After"))
}

// stuck is a broker that never answers.
type stuck struct{}

func (stuck) Publish(ctx context.Context, _ string, _ contract.Message) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestABrokerThatNeverAnswersIsWaitedForOnlySoLong(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) { c.Publisher, c.PublishTimeout = stuck{}, time.Millisecond })
	w := d.send(payNow(t, samples.Read(samples.OrderCompleted, samples.Event{})))
	requireProblem(t, d, w, http.StatusServiceUnavailable, "publish_unconfirmed", "")
}

func TestBadBodiesAreRefused(t *testing.T) {
	t.Parallel()
	const (
		long      = "an-id-that-is-much-too-long-"
		address   = "mette.lindqvist@example.com"
		malformed = "body_malformed"
		broken    = "contract_broken"
		bad, no   = http.StatusBadRequest, http.StatusUnprocessableEntity
	)
	quantity := func(q string) []byte { return spoil(t, `"quantity":2`, `"quantity":`+q) }
	eventID := func(id string) []byte { return spoil(t, `"event_id":"502113004410990001"`, `"event_id":`+id) }
	tests := []struct {
		name   string
		body   []byte
		status int
		code   string
		path   string // of a violation, where there is to be one
		secret string // must not be repeated
	}{
		{"no body", nil, bad, malformed, "", ""},
		{"only white space", []byte(" \n"), bad, malformed, "", ""},
		{"not JSON", []byte("mette=lindqvist&paid=1"), bad, malformed, "", "lindqvist"},
		{"cut off in the middle", []byte(order[:len(order)/2]), bad, malformed, "", ""},
		{"two documents", []byte(order + order), bad, malformed, "", ""},
		{"something behind the document", []byte(order + "x"), bad, malformed, "", ""},
		{"a byte order mark", []byte("\xef\xbb\xbf" + order), bad, malformed, "", ""},
		{"an array", []byte(`["mette"]`), no, broken, "", "mette"},
		{"a string", []byte(`"mette"`), no, broken, "", "mette"},
		{"a number", []byte(`8675309`), no, broken, "", "8675309"},
		{"null", []byte(`null`), no, broken, "", ""},
		{"an empty object", []byte(`{}`), no, broken, "event_id", ""},
		{"no event type", []byte(`{"event_id":"5"}`), no, broken, "event_type", ""},
		{"an event type that is a number", []byte(`{"event_id":"5","event_type":8675309}`), no, broken, "event_type", "8675309"},
		{"a body that is a string", []byte(`{"event_type":"ON_REFUND","event_id":"5","body":"mette"}`), no, broken, "body", "mette"},
		{"a body that is an array", []byte(`{"event_type":"ON_REFUND","event_id":"5","body":["mette"]}`), no, broken, "body", "mette"},
		{"a body that is null", []byte(`{"event_type":"ON_REFUND","event_id":"5","body":null}`), no, broken, "body.order_id", ""},
		{"no body member", []byte(`{"event_type":"ON_ORDER_COMPLETED","event_id":"5"}`), no, broken, "body.id", ""},
		{"lines that are an object", spoil(t, `[{"product_id":"411486491630370501","price":1000,"quantity":2}]`, `{"a":"mette"}`), no, broken, "body.lines", "mette"},
		{"a line that is a string", spoil(t, `{"product_id":"411486491630370501","price":1000,"quantity":2}`, `"mette"`), no, broken, "body.lines[0]", "mette"},
		{"no lines", spoil(t, `[{"product_id":"411486491630370501","price":1000,"quantity":2}]`, `[]`), no, broken, "body.lines", ""},
		{"a line without a product", spoil(t, `"product_id":"411486491630370501",`, ``), no, broken, "body.lines[0].product_id", ""},
		{"NaN", quantity("NaN"), bad, malformed, "", "NaN"},
		{"Infinity in a field that is dropped", spoil(t, `"name":"Ilse Brandvold"`, `"name":Infinity`), bad, malformed, "", "Infinity"},
		{"a quantity of 1e400", quantity("1e400"), no, broken, "body.lines[0].quantity", "1e400"},
		{"a name twice that is kept", spoil(t, `"currency":"USD"`, `"currency":"USD","currency":"EUR"`), bad, malformed, "", "EUR"},
		{"a name twice that is dropped", spoil(t, `"name":"Ilse Brandvold"`, `"name":"mette","name":"metta"`), bad, malformed, "", "mett"},
		{"a name twice, once escaped", spoil(t, `"currency":"USD"`, `"currency":"USD","\u0063urrency":"EUR"`), bad, malformed, "", "EUR"},
		{"invalid UTF-8 in a field that is kept", eventID("\"5\xff\""), bad, malformed, "", "5\xff"},
		{"invalid UTF-8 in a field that is dropped", spoil(t, `Ilse Brandvold`, "mette\xc3\x28"), bad, malformed, "", "mette"},
		{"half a surrogate in a field that is kept", eventID(`"5\ud800"`), bad, malformed, "", "ud800"},
		{"arrays a hundred thousand deep", []byte(strings.Repeat("[", 100_000)), bad, malformed, "", ""},
		{"objects a hundred thousand deep in a field that is dropped", spoil(t, `"name":"Ilse Brandvold"`, `"name":`+strings.Repeat(`{"a":`, 100_000)+"1"+strings.Repeat("}", 100_000)), bad, malformed, "", ""},
		{"a quantity of 0", quantity("0"), no, broken, "body.lines[0].quantity", ""},
		{"no quantity", spoil(t, `,"quantity":2`, ``), no, broken, "body.lines[0].quantity", ""},
		{"a quantity below 0", quantity("-731"), no, broken, "body.lines[0].quantity", "731"},
		{"a quantity that is not exact everywhere", quantity("9007199254740993"), no, broken, "body.lines[0].quantity", "9007199254740993"},
		{"a quantity one above the largest", quantity("9007199254740992"), no, broken, "body.lines[0].quantity", "9007199254740992"},
		{"a quantity beyond int64", quantity("99999999999999999999"), no, broken, "body.lines[0].quantity", "99999999999999999999"},
		{"a quantity whose points do not fit beside those before it", spoil(t, `{"product_id":"411486491630370501","price":1000,"quantity":2}`, strings.TrimSuffix(strings.Repeat(`{"product_id":"411486491630370501","price":0,"quantity":9007199254740991},`, 3), ",")), no, broken, "body.lines[1].quantity", "9007199254740991"},
		{"half a piece", quantity("1.5"), no, broken, "body.lines[0].quantity", "1.5"},
		{"a quantity in quotes", quantity(`"73173"`), no, broken, "body.lines[0].quantity", "73173"},
		{"an event id of 1500 bytes", eventID(`"` + strings.Repeat(long, 54)[:1500] + `"`), no, broken, "event_id", long},
		{"an order id of 1500 bytes", spoil(t, `"502113004410990002"`, `"`+strings.Repeat(long, 54)[:1500]+`"`), no, broken, "body.id", long},
		{"an event id with a slash", eventID(`"a/../b"`), no, broken, "event_id", "a/../b"},
		{"an empty event id", eventID(`""`), no, broken, "event_id", ""},
		{"an event id that is null", eventID(`null`), no, broken, "event_id", ""},
		{"an event id that is a number", eventID(`8675309`), no, broken, "event_id", "8675309"},
		{"control characters in an event id", eventID(`"mette\u0000\r\nX-Bad: 1"`), no, broken, "event_id", "mette"},
		{"a raw control character", eventID("\"mette\x00\""), bad, malformed, "", "mette"},
		{"an event id that contains an e-mail address", eventID(`"order-` + address + `"`), no, broken, "event_id", address},
		{"a product id that is an IP address", spoil(t, `"411486491630370501"`, `"203.0.113.77"`), no, broken, "body.lines[0].product_id", "203.0.113.77"},
		{"an order id that is a card number", spoil(t, `"502113004410990002"`, `"4539148803436467"`), no, broken, "body.id", "4539148803436467"},
		{"a product id that is a card number behind a prefix", spoil(t, `"411486491630370501"`, `"card-4539148803436467"`), no, broken, "body.lines[0].product_id", "4539148803436467"},
		{"an event type that is a sentence", spoil(t, `"ON_ORDER_COMPLETED"`, `"Mette has paid"`), no, broken, "event_type", "Mette"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			p := requireProblem(t, d, d.send(payNow(t, test.body)), test.status, test.code, test.secret)
			if test.code == broken {
				require.NotEmpty(t, p.Violations)
			}
			if test.path != "" {
				var paths []string
				for _, v := range p.Violations {
					require.NotEmpty(t, v.Rule)
					paths = append(paths, v.Path)
				}
				require.Contains(t, paths, test.path)
			}
		})
	}
}

func TestThousandsOfBadLinesAreAShortAnswer(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	lines := strings.Repeat(`{"product_id":"a/b","quantity":0},`, 5000)
	w := d.send(payNow(t, spoil(t, `{"product_id":"411486491630370501","price":1000,"quantity":2}`, strings.TrimSuffix(lines, ","))))
	p := requireProblem(t, d, w, http.StatusUnprocessableEntity, "contract_broken", "a/b")
	require.LessOrEqual(t, len(p.Violations), 20)
}

func TestBoundariesThatAreStillAccepted(t *testing.T) {
	t.Parallel()
	const line = `{"product_id":"411486491630370501","price":1000,"quantity":2}`
	most := `{"product_id":"411486491630370501","price":0,"quantity":9007199254740991}`
	tests := []struct {
		name   string
		body   []byte
		points string
	}{
		{"the largest quantity, whose points just fit", spoil(t, line, most), "9007199254740991000"},
		{"points that do not fit beside a product that is unknown, which the worker refuses", spoil(t, line, most+","+most+`,{"product_id":"777","price":0,"quantity":1}`), ""},
		{"a price of nothing", spoil(t, `"price":1000`, `"price":0`), "2000"},
		{"a price that is null", spoil(t, `"price":1000`, `"price":null`), "2000"},
		{"the largest price", spoil(t, `"price":1000`, `"price":9223372036854775807`), "2000"},
		{"a dropped number that no float holds", spoil(t, `"name":"Ilse Brandvold"`, `"name":1e400`), "2000"},
		{"a dropped field nested fifty deep", spoil(t, `"name":"Ilse Brandvold"`, `"name":`+strings.Repeat("[", 50)+strings.Repeat("]", 50)), "2000"},
		{"exactly 1 MiB", append([]byte(order), bytes.Repeat([]byte(" "), 1<<20-len(order))...), "2000"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(payNow(t, test.body))
			require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			require.Len(t, d.broker.all(), 1)
			points, ok := d.broker.all()[0].message.Attributes["points"]
			require.Equal(t, test.points, points)
			require.Equal(t, test.points != "", ok, "an empty attribute is not sent")
			requireNothingLeaks(t, d, w, "")
		})
	}
}

func TestAmountsHaveTheDigitsOfTheirCurrency(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]string{"USD": "10.00", "JPY": "1000", "KWD": "1.000"} {
		t.Run(currency, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			require.Equal(t, http.StatusAccepted, d.send(payNow(t, spoil(t, `"USD"`, `"`+currency+`"`))).Code)
			m := payNowOf(t, d.broker.all()[0].message.Data)
			require.Equal(t, want, m.Data.Order.Items[0].Price)
		})
	}
}

func TestTheTimeIsTheLatestThatTheEventTellsOfItself(t *testing.T) {
	t.Parallel()
	const times = `"created_at":"2026-03-01T00:00:01Z","pending_at":"2026-03-01T00:00:02Z","approved_at":"2026-03-01T00:00:03Z","completed_at":"2026-03-01T00:00:04Z"`
	for name, test := range map[string]struct{ eventType, times, want string }{
		"completed":                              {"ON_REFUND", times, "2026-03-01T00:00:04Z"},
		"approved":                               {"ON_REFUND", strings.Replace(times, "completed_at", "x", 1), "2026-03-01T00:00:03Z"},
		"pending":                                {"ON_REFUND", `"created_at":"2026-03-01T00:00:01Z","pending_at":"2026-03-01T00:00:02Z"`, "2026-03-01T00:00:02Z"},
		"created":                                {"ON_REFUND", `"created_at":"2026-03-01T00:00:01Z"`, "2026-03-01T00:00:01Z"},
		"a chargeback that was opened":           {"ON_CHARGEBACK", `"chargeback_at":"2026-03-01T00:00:05Z"`, "2026-03-01T00:00:05Z"},
		"its end, which says only when it began": {"ON_CHARGEBACK_CLOSED", `"chargeback_at":"2026-03-01T00:00:05Z"`, "2026-03-02T10:02:03Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			body := fmt.Sprintf(`{"event_type":%q,"event_id":"5","body":{"id":"6","order_id":"7",%s}}`, test.eventType, test.times)
			require.Equal(t, http.StatusAccepted, d.send(payNow(t, []byte(body))).Code)
			m := payNowOf(t, d.broker.all()[0].message.Data)
			require.Equal(t, test.want, m.Timestamp)
		})
	}
}

func TestWhoseOrderItIsMayStandInEitherPlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ customer, want string }{
		"inside the customer":                  {`"customer":{"id":"8"}`, "8"},
		"beside it":                            {`"customer_id":"9"`, "9"},
		"in both, where the customer's counts": {`"customer":{"id":"8"},"customer_id":"9"`, "8"},
		"nowhere":                              {`"customer":null`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			body := `{"event_type":"ON_CHARGEBACK","event_id":"5","body":{"id":"6","order_id":"7","pretty_id":"BH-1042",` + test.customer + `}}`
			require.Equal(t, http.StatusAccepted, d.send(payNow(t, []byte(body))).Code)
			m := payNowOf(t, d.broker.all()[0].message.Data)
			require.Equal(t, &contract.Order{ID: "7", PrettyID: "BH-1042", CustomerID: test.want}, m.Data.Order)
		})
	}
}

func TestAnEventWithoutATimeHasThatOfItsReceipt(t *testing.T) {
	t.Parallel()
	for sample, times := range map[string][]string{
		samples.OrderCompleted:        {"completed_at", "created_at"},
		samples.SubscriptionActivated: {"active_at"},
		samples.SubscriptionRenewed:   {"current_period_start"},
		samples.SubscriptionCanceled:  {"canceled_at"},
		samples.TrialActivated:        {"starts_at"},
		samples.TrialCompleted:        {"ends_at"},
		samples.TrialCanceled:         {"canceled_at"},
	} {
		t.Run(sample, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			body := string(samples.Read(sample, samples.Event{}))
			for _, name := range times {
				require.Contains(t, body, `"`+name+`"`)
				body = strings.ReplaceAll(body, `"`+name+`"`, `"not_`+name+`"`)
			}
			require.Equal(t, http.StatusAccepted, d.send(payNow(t, []byte(body))).Code)
			m := payNowOf(t, d.broker.all()[0].message.Data)
			require.Equal(t, "2026-03-02T10:02:03Z", m.Timestamp)
		})
	}
}

// unread is a body that must not be touched.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// counted is a body without an end in sight that knows how much of it was taken. It
// ends all the same, so that a limit that is gone fails a test and not the machine.
type counted struct{ n int }

func (c *counted) Read(p []byte) (int, error) {
	if c.n > 8<<20 {
		return 0, io.EOF
	}
	c.n += len(p)
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// faulty gives some of a body, then an error.
type faulty struct {
	io.Reader
	err error
}

func (f faulty) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = f.err
	}
	return n, err
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	big := append(bytes.Clone(body), bytes.Repeat([]byte(" "), 1<<20+1-len(body))...)
	change := func(f func(r *http.Request)) func(t *testing.T) *http.Request {
		return func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			f(r)
			return r
		}
	}
	at := func(moment time.Time) func(t *testing.T) *http.Request {
		return func(t *testing.T) *http.Request {
			t.Helper()
			r := request(t, "/webhooks/paynow", bytes.NewReader(body))
			sign(t, r, signature.PayNow, paynowSecret, body, moment)
			return r
		}
	}
	const unauthorized = http.StatusUnauthorized
	tests := []struct {
		name    string
		request func(t *testing.T) *http.Request
		status  int
		code    string
	}{
		{"1 MiB and a byte, announced", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, big)
			require.EqualValues(t, 1<<20+1, r.ContentLength)
			return r
		}, http.StatusRequestEntityTooLarge, "too_large"},
		{"too much announced is not even read", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			r.Body, r.ContentLength = io.NopCloser(unread{t}), 1<<40
			return r
		}, http.StatusRequestEntityTooLarge, "too_large"},
		{"1 MiB and a byte, chunked", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, big)
			r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
			return r
		}, http.StatusRequestEntityTooLarge, "too_large"},
		{"a body that errors midway", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			r.Body = io.NopCloser(faulty{bytes.NewReader(body[:len(body)/2]), io.ErrUnexpectedEOF})
			return r
		}, http.StatusBadRequest, "body_unread"},
		{"a body that errors right behind its end", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			r.Body = io.NopCloser(faulty{bytes.NewReader(body), errDown})
			return r
		}, http.StatusBadRequest, "body_unread"},
		{"no signature", change(func(r *http.Request) { r.Header.Del("PayNow-Signature") }), unauthorized, "signature_missing"},
		{"no timestamp", change(func(r *http.Request) { r.Header.Del("PayNow-Timestamp") }), unauthorized, "signature_missing"},
		{"an empty signature", change(func(r *http.Request) { r.Header.Set("PayNow-Signature", "") }), unauthorized, "signature_missing"},
		{"two signatures", change(func(r *http.Request) { r.Header.Add("PayNow-Signature", r.Header.Get("PayNow-Signature")) }), unauthorized, "signature_malformed"},
		{"two timestamps", change(func(r *http.Request) { r.Header.Add("PayNow-Timestamp", r.Header.Get("PayNow-Timestamp")) }), unauthorized, "signature_malformed"},
		{"a signature that is shorter", change(func(r *http.Request) {
			r.Header.Set("PayNow-Signature", base64.StdEncoding.EncodeToString(make([]byte, 20)))
		}), unauthorized, "signature_malformed"},
		{"a signature that is longer", change(func(r *http.Request) {
			r.Header.Set("PayNow-Signature", base64.StdEncoding.EncodeToString(make([]byte, 64)))
		}), unauthorized, "signature_malformed"},
		{"a signature with a space behind it", change(func(r *http.Request) {
			r.Header.Set("PayNow-Signature", r.Header.Get("PayNow-Signature")+" ")
		}), unauthorized, "signature_malformed"},
		{"a signature that is no base64", change(func(r *http.Request) { r.Header.Set("PayNow-Signature", strings.Repeat("%", 44)) }), unauthorized, "signature_malformed"},
		{"a signature of something else", change(func(r *http.Request) {
			r.Header.Set("PayNow-Signature", base64.StdEncoding.EncodeToString(make([]byte, 32)))
		}), unauthorized, "signature_mismatch"},
		{"a signature with another secret", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			sign(t, r, signature.PayNow, genericSecret, body, fixed)
			return r
		}, unauthorized, "signature_mismatch"},
		{"a body changed on its way", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			r.Body = io.NopCloser(bytes.NewReader(bytes.Replace(body, []byte(`"quantity": 2`), []byte(`"quantity": 9`), 1)))
			return r
		}, unauthorized, "signature_mismatch"},
		{"a timestamp changed on its way", change(func(r *http.Request) {
			r.Header.Set("PayNow-Timestamp", strconv.FormatInt(fixed.UnixMilli()+1, 10))
		}), unauthorized, "signature_mismatch"},
		{"what is not JSON and not signed", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			r.Body = io.NopCloser(strings.NewReader("{"))
			return r
		}, unauthorized, "signature_mismatch"},
		{"a timestamp of letters", change(func(r *http.Request) { r.Header.Set("PayNow-Timestamp", "yesterday") }), unauthorized, "signature_malformed"},
		{"a timestamp below 0", change(func(r *http.Request) { r.Header.Set("PayNow-Timestamp", "-1") }), unauthorized, "signature_malformed"},
		{"a timestamp beyond int64", change(func(r *http.Request) { r.Header.Set("PayNow-Timestamp", strings.Repeat("9", 40)) }), unauthorized, "signature_malformed"},
		{"seconds where milliseconds are due", at(time.UnixMilli(fixed.Unix())), unauthorized, "timestamp_too_old"},
		{"a timestamp just too old", at(fixed.Add(-tolerance - time.Millisecond)), unauthorized, "timestamp_too_old"},
		{"a timestamp just too new", at(fixed.Add(tolerance + time.Millisecond)), unauthorized, "timestamp_too_new"},
		{"a timestamp of next year", at(fixed.AddDate(1, 0, 0)), unauthorized, "timestamp_too_new"},
		{"a timestamp at the end of what fits", at(time.UnixMilli(999_999_999_999_999_999)), unauthorized, "timestamp_too_new"},
		{"a form", change(func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }), http.StatusUnsupportedMediaType, "content_type"},
		{"text", change(func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), http.StatusUnsupportedMediaType, "content_type"},
		{"JSON in another charset", change(func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-16") }), http.StatusUnsupportedMediaType, "content_type"},
		{"no content type", change(func(r *http.Request) { r.Header.Del("Content-Type") }), http.StatusUnsupportedMediaType, "content_type"},
		{"two content types", change(func(r *http.Request) { r.Header.Add("Content-Type", "application/json") }), http.StatusUnsupportedMediaType, "content_type"},
		{"a content type that is none", change(func(r *http.Request) { r.Header.Set("Content-Type", ";;;") }), http.StatusUnsupportedMediaType, "content_type"},
		{"a compressed body", change(func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }), http.StatusUnsupportedMediaType, "content_encoding"},
		{"a source that is not declared", change(func(r *http.Request) { r.URL.Path = "/webhooks/stripe" }), http.StatusNotFound, "source_unknown"},
		{"a source whose name is an address", change(func(r *http.Request) { r.URL.Path = "/webhooks/ilse.brandvold@example.org" }), http.StatusNotFound, "source_unknown"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			r := test.request(t)
			given := r.Header.Get("PayNow-Signature")
			requireProblem(t, d, d.send(r), test.status, test.code, given)
		})
	}
}

func TestAnotherMethodIsAProblemToo(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/webhooks/paynow", "/queues/paynow-events/messages"} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			t.Run(method+" "+path, func(t *testing.T) {
				t.Parallel()
				d := open(t, nil)
				r := payNow(t, samples.Read(samples.OrderCompleted, samples.Event{}))
				r.Method, r.URL.Path = method, path
				requireProblem(t, d, d.send(r), http.StatusMethodNotAllowed, "method_not_allowed", "")
			})
		}
	}
}

func TestAPathThatIsNotThereIsAProblemToo(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	r := payNow(t, samples.Read(samples.OrderCompleted, samples.Event{}))
	r.URL.Path = "/webhooks/paynow/ilse_b"
	requireProblem(t, d, d.send(r), http.StatusNotFound, "not_found", "")
}

// RFC 9110, 15.5.6: a 405 must say which methods are allowed.
func TestARefusedMethodNamesTheAllowedOne(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	r := payNow(t, samples.Read(samples.OrderCompleted, samples.Event{}))
	r.Method = http.MethodGet
	require.Equal(t, http.MethodPost, d.send(r).Header().Get("Allow"))
}

func TestAnEndlessBodyIsReadOnlyToTheLimit(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	endless := &counted{}
	r := payNow(t, nil)
	r.Body, r.ContentLength = io.NopCloser(endless), -1
	requireProblem(t, d, d.send(r), http.StatusRequestEntityTooLarge, "too_large", "")
	require.LessOrEqual(t, endless.n, 4<<20)
}

func TestWhatSendersMayDoDifferently(t *testing.T) {
	t.Parallel()
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	header := func(name, value string) func(*testing.T, *http.Request) {
		return func(_ *testing.T, r *http.Request) { r.Header.Set(name, value) }
	}
	at := func(moment time.Time) func(*testing.T, *http.Request) {
		return func(t *testing.T, r *http.Request) {
			t.Helper()
			sign(t, r, signature.PayNow, paynowSecret, body, moment)
		}
	}
	tests := []struct {
		name   string
		change func(*testing.T, *http.Request)
	}{
		{"base64 with padding", func(t *testing.T, r *http.Request) {
			t.Helper()
			require.True(t, strings.HasSuffix(r.Header.Get("PayNow-Signature"), "="))
		}},
		{"base64 without padding", func(_ *testing.T, r *http.Request) {
			r.Header.Set("PayNow-Signature", strings.TrimRight(r.Header.Get("PayNow-Signature"), "="))
		}},
		{"a timestamp as old as is allowed", at(fixed.Add(-tolerance))},
		{"a timestamp as new as is allowed", at(fixed.Add(tolerance))},
		{"a charset that says UTF-8", header("Content-Type", "application/json; charset=utf-8")},
		{"a content type in capitals", header("Content-Type", "Application/JSON; Charset=UTF-8")},
		{"a length that is not announced", func(_ *testing.T, r *http.Request) { r.ContentLength = -1 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			r := payNow(t, body)
			test.change(t, r)
			w := d.send(r)
			require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			require.Len(t, d.broker.all(), 1)
		})
	}
}

func TestEverySecretIsTriedWhileSecretsRotate(t *testing.T) {
	t.Parallel()
	const older, newer = "the-older-secret-of-24-bytes-up", "the-newer-secret-of-24-bytes-up"
	d := open(t, func(c *webhook.Config) {
		c.Secrets = map[string][]string{"paynow": {newer, older}, "generic": {genericSecret}}
	})
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	for _, secret := range []string{older, newer} {
		r := request(t, "/webhooks/paynow", bytes.NewReader(body))
		sign(t, r, signature.PayNow, secret, body, fixed)
		require.Equal(t, http.StatusAccepted, d.send(r).Code)
	}
	require.Equal(t, http.StatusUnauthorized, d.send(payNow(t, body)).Code, "a secret that was retired")
	require.Len(t, d.broker.all(), 2)
}

func TestTheRateLimitCountsOnlyWhatIsSigned(t *testing.T) {
	t.Parallel()
	now := fixed
	d := open(t, func(c *webhook.Config) {
		source("paynow", func(s *catalog.Source) { s.RatePerSecond, s.Burst = 1, 1 })(c)
		c.Now = func() time.Time { return now }
	})
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	for range 5 {
		r := payNow(t, body)
		r.Header.Set("PayNow-Signature", base64.StdEncoding.EncodeToString(make([]byte, 32)))
		requireProblem(t, d, d.send(r), http.StatusUnauthorized, "signature_mismatch", "")
	}
	require.Equal(t, http.StatusAccepted, d.send(payNow(t, body)).Code)
	w := d.send(payNow(t, body))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Contains(t, w.Body.String(), `"rate_limited"`)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Len(t, d.broker.all(), 1)
	requireNothingLeaks(t, d, w, "")

	now = now.Add(time.Second)
	require.Equal(t, http.StatusAccepted, d.send(payNow(t, body)).Code)
}

// goldens are the contract's own bodies in a format, one per kind of event.
func goldens(tb testing.TB, format string) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("..", "contract", "testdata", format, "*.json"))
	require.NoError(tb, err)
	require.NotEmpty(tb, files)
	all := map[string][]byte{}
	for _, file := range files {
		all[filepath.Base(file)], err = os.ReadFile(file)
		require.NoError(tb, err)
	}
	return all
}

// updates is a queue of envelopes.
const updates = "pay-subscription-update"

// told routes the generic source's envelopes to that queue.
func told(c *webhook.Config) {
	source("generic", func(s *catalog.Source) {
		s.Events = maps.Clone(s.Events)
		q, _ := c.Catalog.Queue(updates)
		for action := range q.Handlers {
			s.Events[action] = updates
		}
	})(c)
}

func TestTheContractsOwnBodiesPassUnchanged(t *testing.T) {
	t.Parallel()
	for format, to := range map[string]string{contract.PayNowV1: queue, contract.EnvelopeV1: updates} {
		for name, body := range goldens(t, format) {
			for _, path := range []string{"/webhooks/generic", "/queues/" + to + "/messages"} {
				t.Run(name+" at "+path, func(t *testing.T) {
					t.Parallel()
					d := open(t, told)
					w := d.send(generic(t, path, body))
					require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
					require.Len(t, d.broker.all(), 1)
					got := d.broker.all()[0]
					require.Equal(t, to, got.topic)
					var compact bytes.Buffer
					require.NoError(t, json.Compact(&compact, body))
					require.Equal(t, compact.String(), string(got.message.Data))
					m, err := contracts(t).Decode(format, got.message.Data)
					require.NoError(t, err)
					require.NoError(t, m.CheckAttributes(got.message.Attributes))
					require.Equal(t, format, got.message.Attributes["contract"])
					require.NoError(t, got.message.Check())
				})
			}
		}
	}
}

// ordering serves the queue of orders, which takes message.v1.
func ordering(c *webhook.Config) {
	c.Catalog = new(*c.Catalog)
	c.Catalog.Queues = slices.Clone(c.Catalog.Queues)
	i := slices.IndexFunc(c.Catalog.Queues, func(q catalog.Queue) bool { return q.ID == "orders-process" })
	c.Catalog.Queues[i].Enabled = true
}

func TestAMessageIsTakenByWhatIsDeclaredOfIt(t *testing.T) {
	t.Parallel()
	good := string(goldens(t, contract.MessageV1)["order.created.json"])
	for name, test := range map[string]struct {
		old, with  string
		path, rule string
	}{
		"as it is":                       {},
		"a version that is not declared": {`"version": 1`, `"version": 2`, "version", "undeclared"},
		"a type that is not declared":    {`"order.created"`, `"order.lost"`, "type", "undeclared"},
		"a type of another queue":        {`"order.created"`, `"order.payment_failed"`, "data.user_id", "unknown"},
		"a member that is not declared":  {`"total"`, `"subtotal"`, "data.subtotal", "unknown"},
		"a member that is missing":       {`"order_id": "ord_abc123",`, ``, "data.order_id", "required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, ordering)
			w := d.send(generic(t, "/queues/orders-process/messages", []byte(strings.Replace(good, test.old, test.with, 1))))
			if test.path != "" {
				p := requireProblem(t, d, w, http.StatusUnprocessableEntity, "contract_broken", "")
				require.Equal(t, []string{test.path, test.rule}, []string{p.Violations[0].Path, p.Violations[0].Rule})
				return
			}
			require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			m := d.broker.all()[0].message
			body, err := contracts(t).Decode(contract.MessageV1, m.Data)
			require.NoError(t, err)
			require.NoError(t, body.Validate())
			require.NoError(t, body.CheckAttributes(m.Attributes))
			require.Equal(t, []string{"ord_abc123", "ord_abc123", "req_xyz789"}, []string{m.OrderingKey, m.Attributes["order_id"], m.Attributes["correlation_id"]})
		})
	}
}

func TestTheOrderingKeyOfPayNowsEventsIsTheCatalogs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		names []string
		want  string
	}{
		"the uid first":      {[]string{"uid", "paynow_customer_id"}, samples.UID},
		"the customer first": {[]string{"paynow_customer_id", "uid"}, customer},
		"the order":          {[]string{"order_id"}, samples.OrderID},
		"nothing":            {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, func(c *webhook.Config) {
				c.Catalog = new(*c.Catalog)
				c.Catalog.Queues = slices.Clone(c.Catalog.Queues)
				c.Catalog.Queues[slices.IndexFunc(c.Catalog.Queues, func(q catalog.Queue) bool { return q.ID == queue })].OrderingKey = test.names
			})
			w := d.send(payNow(t, samples.Read(samples.OrderCompleted, samples.Event{})))
			require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			require.Equal(t, test.want, d.broker.all()[0].message.OrderingKey)
		})
	}
}

func TestAnEnvelopesOrderingKeyIsMadeOfTheCatalogsFields(t *testing.T) {
	t.Parallel()
	const created = `"created_at":"2026-03-02T10:00:00Z","attempts":0,`
	for name, test := range map[string]struct{ body, attribute, key, correlation string }{
		"the subscription comes first": {
			`{"id":"e1","action":"renewal","correlation_id":"c1",` + created + `"payload":{"subscription_id":"s1","payment_id":"p1"}}`, "s1", "s1", "c1",
		},
		"else the correlation":               {`{"id":"e1","action":"renewal","correlation_id":"c1",` + created + `"payload":{"payment_id":"p1"}}`, "c1", "c1", "c1"},
		"else there is none":                 {`{"id":"e1","action":"renewal",` + created + `"payload":{"payment_id":"p1"}}`, "unknown", "", "e1"},
		"the word for none is nobody's name": {`{"id":"e1","action":"renewal",` + created + `"payload":{"subscription_id":"unknown"}}`, "unknown", "", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(generic(t, "/queues/"+updates+"/messages", []byte(test.body)))
			require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			got := d.broker.all()[0].message
			require.Equal(t, test.key, got.OrderingKey)
			require.Equal(t, map[string]string{
				"contract": "envelope.v1", "event_id": "e1", "event_type": "renewal", "ordering_key": test.attribute,
				"correlation_id": test.correlation, "first_published_at": "2026-03-02T10:02:03.45Z",
			}, got.Attributes)
		})
	}
}

func TestAMessageForAQueueOnASharedTopicNamesTheQueue(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) {
		declared := *c.Catalog
		declared.Queues = slices.Clone(declared.Queues)
		at := slices.IndexFunc(declared.Queues, func(q catalog.Queue) bool { return q.ID == queue })
		declared.Queues[at].SharedTopic, declared.Queues[at].Bindings = "sales", []routing.Pattern{"order.#"}
		c.Catalog = &declared
	})
	require.Equal(t, http.StatusAccepted, d.send(generic(t, "/queues/"+queue+"/messages", goldens(t, contract.PayNowV1)["order_paid.json"])).Code)
	require.Equal(t, "sales", d.broker.all()[0].topic)
	require.Equal(t, queue, d.broker.all()[0].message.Attributes["queue"])
}

func TestAProducersMistakesAreNamed(t *testing.T) {
	t.Parallel()
	const inside = "/queues/paynow-events/messages"
	good := string(goldens(t, contract.PayNowV1)["order_paid.json"])
	const enveloped = "/queues/" + updates + "/messages"
	renewal := string(goldens(t, contract.EnvelopeV1)["renewal.json"])
	tests := []struct {
		name, path, body string
		status           int
		code             string
	}{
		{"a disabled queue", "/queues/orders-process/messages", good, http.StatusNotFound, "queue_unknown"},
		{"a disabled queue by its alias", "/queues/orders.process/messages", good, http.StatusNotFound, "queue_unknown"},
		{"a queue that is not there", "/queues/nothing/messages", good, http.StatusNotFound, "queue_unknown"},
		{"an envelope", inside, `{"action":"charge","payload":{"who":"Ilse"},"id":"5"}`, http.StatusUnprocessableEntity, "contract_unsupported"},
		{"an envelope without an id at the generic source", "/webhooks/generic", `{"action":"charge","payload":{}}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"an envelope with the name of a PayNow event", "/webhooks/generic", strings.Replace(renewal, `"renewal"`, `"order.paid"`, 1), http.StatusUnprocessableEntity, "contract_unsupported"},
		{"a message.v1 with a version in words, at the generic source", "/webhooks/generic", `{"type":"charge","data":{},"version":"1"}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"a PayNow event for a queue of envelopes", enveloped, good, http.StatusUnprocessableEntity, "contract_unsupported"},
		{"an envelope that is cut off", inside, strings.TrimSuffix(strings.TrimSpace(renewal), "}"), http.StatusBadRequest, "body_malformed"},
		{"an envelope with more behind it", inside, renewal + "x", http.StatusBadRequest, "body_malformed"},
		{"an action that the queue has no handler for", enveloped, strings.Replace(renewal, `"renewal"`, `"upgrade"`, 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"an envelope's amount without a currency", enveloped, strings.Replace(renewal, `"currency": "EUR",`, ``, 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"an envelope's amount with the wrong digits", enveloped, strings.Replace(renewal, `"9.99"`, `"9.990"`, 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"an envelope whose uid is an address", enveloped, strings.Replace(renewal, `"uid": "`, `"uid": "mette.lindqvist@example.com`, 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"a raw object, which has no id to be known by", enveloped, `{"action":"renewal","subscription_id":"s1"}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"a message.v1", inside, `{"type":"charge","data":{},"version":"1"}`, http.StatusUnprocessableEntity, "contract_unsupported"},
		{"an empty object", inside, `{}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"an array", inside, `[]`, http.StatusUnprocessableEntity, "contract_broken"},
		{"no body", inside, ``, http.StatusBadRequest, "body_malformed"},
		{"a name twice", inside, `{"eventId":"5","eventId":"6"}`, http.StatusBadRequest, "body_malformed"},
		{"a type that the queue has no handler for", inside, `{"eventId":"5","eventType":"payment.completed","timestamp":"2026-03-02T10:00:00Z","data":{}}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"an order event without an order", inside, `{"eventId":"5","eventType":"order.paid","timestamp":"2026-03-02T10:00:00Z","data":{}}`, http.StatusUnprocessableEntity, "contract_broken"},
		{"a quantity whose points do not fit", inside, strings.Replace(good, `"items": [`, `"items": [`+strings.Repeat(`{"productId":"411486491630370501","quantity":9007199254740991},`, 2), 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"a quantity of 0", inside, strings.Replace(good, `"quantity": 2`, `"quantity": 0`, 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"a price with the wrong digits", inside, strings.Replace(good, `"10.00"`, `"10.0"`, 1), http.StatusUnprocessableEntity, "contract_broken"},
		{"a refund amount without a currency", inside, `{"eventId":"5","eventType":"order.refunded","timestamp":"2026-03-02T10:00:00Z","data":{"order":{"id":"7"},"refund":{"id":"8","amount":"1.00"}}}`, http.StatusUnprocessableEntity, "contract_broken"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			requireProblem(t, d, d.send(generic(t, test.path, []byte(test.body))), test.status, test.code, "")
		})
	}
}

func TestWhatTheContractDoesNotNameIsDroppedFromGenericBodies(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	body := strings.Replace(string(goldens(t, contract.PayNowV1)["order_paid.json"]), `"prettyId"`, `"name":"Ilse Brandvold","email":"ilse.brandvold@example.org","prettyId"`, 1)
	w := d.send(generic(t, "/webhooks/generic", []byte(body)))
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	require.NotContains(t, string(d.broker.all()[0].message.Data), "Ilse")
	requireNothingLeaks(t, d, w, "")
}

func TestWhatTheContractDoesNotNameIsDroppedFromEnvelopes(t *testing.T) {
	t.Parallel()
	d := open(t, told)
	body := strings.Replace(string(goldens(t, contract.EnvelopeV1)["renewal.json"]), `"payload": {`,
		`"note": "Ilse Brandvold", "payload": {"email": "ilse.brandvold@example.org", "customer": {"name": "Ilse Brandvold"},`, 1)
	w := d.send(generic(t, "/webhooks/generic", []byte(body)))
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	require.NotContains(t, string(d.broker.all()[0].message.Data), "Ilse")
	requireNothingLeaks(t, d, w, "")
}

func TestASecretOpensOnlyItsOwnSource(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	body := goldens(t, contract.PayNowV1)["order_paid.json"]
	r := request(t, "/queues/paynow-events/messages", bytes.NewReader(body))
	sign(t, r, signature.Generic, paynowSecret, body, fixed)
	requireProblem(t, d, d.send(r), http.StatusUnauthorized, "signature_mismatch", "")
	r = request(t, "/webhooks/generic", bytes.NewReader(body))
	sign(t, r, signature.PayNow, genericSecret, body, fixed)
	requireProblem(t, d, d.send(r), http.StatusUnauthorized, "signature_missing", "")
}

func TestAGenericTypeThatNoQueueWantsIsIgnored(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a PayNow event": `{"eventId":"5","eventType":"payout.sent","timestamp":"2026-03-02T10:00:00Z","data":{}}`,
		"an envelope":    `{"id":"5","action":"payout","created_at":"2026-03-02T10:00:00Z","attempts":0,"payload":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			w := d.send(generic(t, "/webhooks/generic", []byte(body)))
			require.Equal(t, http.StatusOK, w.Code)
			require.JSONEq(t, `{"event_id":"5","ignored":true,"reason":"no_queue"}`, w.Body.String())
			require.Empty(t, d.broker.all())
		})
	}
}

func TestAStandardWebhooksSource(t *testing.T) {
	t.Parallel()
	const secret = "standard-secret-of-the-tests-001"
	d := open(t, func(c *webhook.Config) {
		events := c.Catalog.Sources["generic"].Events
		source("acme", func(s *catalog.Source) {
			*s = catalog.Source{Name: "acme", Scheme: catalog.SchemeStandard, SecretVariable: "WEBHOOK_SECRET_ACME", MaxBodyBytes: 1 << 20, Events: events}
		})(c)
		c.Secrets["acme"] = []string{secret}
	})
	body := goldens(t, contract.PayNowV1)["order_paid.json"]
	r := request(t, "/webhooks/acme", bytes.NewReader(body))
	sign(t, r, signature.Standard, secret, body, fixed)
	require.Equal(t, http.StatusAccepted, d.send(r).Code)
	r = request(t, "/webhooks/acme", bytes.NewReader(body))
	sign(t, r, signature.Standard, secret, body, fixed)
	r.Header.Set("webhook-id", "another")
	require.Equal(t, http.StatusUnauthorized, d.send(r).Code)
	require.Len(t, d.broker.all(), 1)
}

func TestNewNamesEveryVariableWithoutAGoodSecret(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		secrets map[string][]string
		named   []string
	}{
		{"no secrets at all", nil, []string{"WEBHOOK_SECRET_PAYNOW", "WEBHOOK_SIGNING_SECRET"}},
		{"empty and short ones", map[string][]string{"paynow": {""}, "generic": {"too-short-a-secret"}}, []string{"WEBHOOK_SECRET_PAYNOW", "WEBHOOK_SIGNING_SECRET"}},
		{"a short one beside a good one", map[string][]string{"paynow": {paynowSecret, "too-short-a-secret"}, "generic": {genericSecret}}, []string{"WEBHOOK_SECRET_PAYNOW"}},
		{"an empty one beside a good one", map[string][]string{"paynow": {paynowSecret}, "generic": {genericSecret, ""}}, []string{"WEBHOOK_SIGNING_SECRET"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, _, _ := config(t)
			c.Secrets = test.secrets
			service, err := webhook.New(c)
			require.Nil(t, service)
			require.Error(t, err)
			for _, variable := range []string{"WEBHOOK_SECRET_PAYNOW", "WEBHOOK_SIGNING_SECRET"} {
				require.Equal(t, strings.Contains(strings.Join(test.named, " "), variable), strings.Contains(err.Error(), variable), "%v", err)
			}
			require.NotContains(t, err.Error(), "too-short-a-secret")
			require.NotContains(t, err.Error(), paynowSecret)
		})
	}
}

func TestNewRefusesToPublishWithoutADeadline(t *testing.T) {
	t.Parallel()
	c, _, _ := config(t)
	c.PublishTimeout = 0
	_, err := webhook.New(c)
	require.EqualError(t, err, "webhook: no publish timeout")
}

func TestNewRefusesATypeThatCannotBeMapped(t *testing.T) {
	t.Parallel()
	c, _, _ := config(t)
	source("paynow", func(s *catalog.Source) { s.Events = map[string]string{"ON_NOTHING": queue} })(&c)
	_, err := webhook.New(c)
	require.ErrorContains(t, err, "ON_NOTHING")
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
			c.Catalog.Queues = slices.Clone(c.Catalog.Queues)
			change(&c.Catalog.Queues[slices.IndexFunc(c.Catalog.Queues, func(q catalog.Queue) bool { return q.ID == queue })])
			_, err := webhook.New(c)
			require.ErrorContains(t, err, paynowType)
			if name != "of another format" { // which a generic source may send
				require.ErrorContains(t, err, genericType)
			}
		})
	}
}

func TestWithoutAGenericSourceNoProducerIsLetIn(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) {
		declared := *c.Catalog
		declared.Sources = maps.Clone(declared.Sources)
		delete(declared.Sources, "generic")
		c.Catalog = &declared
	})
	body := goldens(t, contract.PayNowV1)["order_paid.json"]
	requireProblem(t, d, d.send(generic(t, "/queues/paynow-events/messages", body)), http.StatusNotFound, "queue_unknown", "")
}

func TestWhatWasGivenBackIsTheSmallerAmount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ amounts, want string }{
		"the part that was refunded":         {`"amount": 2000, "store_refund_amount": 500`, "5.00"},
		"not more than was paid":             {`"amount": 500, "store_refund_amount": 2000`, "5.00"},
		"the payment, where it says no part": {`"amount": 2000`, "20.00"},
		"the payment, for a part of nothing": {`"amount": 2000, "store_refund_amount": 0`, "20.00"},
		"the part of a payment of nothing":   {`"amount": 0, "store_refund_amount": 500`, "5.00"},
		"all of it, where nothing is said":   {`"x": 0`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			body := `{"event_type":"ON_REFUND","event_id":"5","body":{"id":"6","order_id":"7","currency":"USD",` + test.amounts + `}}`
			require.Equal(t, http.StatusAccepted, d.send(payNow(t, []byte(body))).Code)
			m := payNowOf(t, d.broker.all()[0].message.Data)
			require.Equal(t, test.want, m.Data.Refund.Amount)
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

func TestALargeMessageIsWarnedAboutAndPublished(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	line := `{"product_id":"411486491630370501","price":1000,"quantity":2}`
	body := spoil(t, line, strings.TrimSuffix(strings.Repeat(line+",", 4500), ","))
	w := d.send(payNow(t, body))
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	require.Greater(t, len(d.broker.all()[0].message.Data), contract.WarnDataBytes)
	require.Contains(t, d.log.String(), "large message")
	require.Contains(t, d.scrape(t), `billhook_large_messages_total{queue="paynow-events"} 1`)
}

func TestAnOrderOfAlmostAMebibyteIsMinimizedWhole(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	w := d.send(payNow(t, webhooktest.Order(1<<20-4096)))
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	for _, value := range samples.Personal {
		require.NotContains(t, string(d.broker.all()[0].message.Data), value)
	}
	requireNothingLeaks(t, d, w, "")
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
