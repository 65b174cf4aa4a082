package webhook_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/signature"
)

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
	change := func(f func(r *http.Request)) func(t *testing.T) *http.Request {
		return func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			f(r)
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
		{"too much announced is not even read", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			r.Body, r.ContentLength = io.NopCloser(unread{t}), 1<<40
			return r
		}, http.StatusRequestEntityTooLarge, "too_large"},
		{"a body that errors right behind its end", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			r.Body = io.NopCloser(faulty{bytes.NewReader(body), errDown})
			return r
		}, http.StatusBadRequest, "body_unread"},
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
		{"what is not JSON and not signed", func(t *testing.T) *http.Request {
			t.Helper()
			r := payNow(t, body)
			r.Body = io.NopCloser(strings.NewReader("{"))
			return r
		}, unauthorized, "signature_mismatch"},
		{"a form", change(func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }), http.StatusUnsupportedMediaType, "content_type"},
		{"JSON in another charset", change(func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-16") }), http.StatusUnsupportedMediaType, "content_type"},
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

func TestAnotherMethodOrPathIsAProblemToo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path string
		status       int
		code         string
	}{
		"a webhook that is asked for": {http.MethodGet, "/webhooks/paynow", http.StatusMethodNotAllowed, "method_not_allowed"},
		"a message that is put":       {http.MethodPut, "/queues/paynow-events/messages", http.StatusMethodNotAllowed, "method_not_allowed"},
		"a path that is not there":    {http.MethodPost, "/webhooks/paynow/ilse_b", http.StatusNotFound, "not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			r := payNow(t, samples.Read(samples.OrderCompleted, samples.Event{}))
			r.Method, r.URL.Path = test.method, test.path
			w := d.send(r)
			requireProblem(t, d, w, test.status, test.code, "")
			if test.status == http.StatusMethodNotAllowed {
				require.Equal(t, http.MethodPost, w.Header().Get("Allow")) // RFC 9110, 15.5.6
			}
		})
	}
}

func TestAnEndlessBodyIsReadOnlyToTheLimit(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	endless := &counted{}
	r := payNow(t, nil)
	r.Body, r.ContentLength = io.NopCloser(endless), -1
	answered := d.send(r)
	require.Contains(t, answered.Body.String(), "bytes at most", "the limit is named")
	requireProblem(t, d, answered, http.StatusRequestEntityTooLarge, "too_large", "")
	require.LessOrEqual(t, endless.n, 4<<20)
}

func TestSendersMaySpellTheContentTypeOtherwiseAndAnnounceNoLength(t *testing.T) {
	t.Parallel()
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	for name, change := range map[string]func(r *http.Request){
		"a charset that says UTF-8":      func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") },
		"a content type in capitals":     func(r *http.Request) { r.Header.Set("Content-Type", "Application/JSON; Charset=UTF-8") },
		"a length that is not announced": func(r *http.Request) { r.ContentLength = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := payNow(t, body)
			change(r)
			require.Len(t, taken(t, open(t, nil), r).broker.all(), 1)
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
