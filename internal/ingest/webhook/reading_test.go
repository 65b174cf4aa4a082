package webhook_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
)

// reading is the configuration with an API of Stripe, and a key for it.
func reading(t *testing.T, answer http.HandlerFunc) func(*webhook.Config) {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	return func(c *webhook.Config) {
		provided(c)
		declared, stripe := *c.Catalog, c.Catalog.Providers["stripe"]
		stripe.API.URL = server.URL + "/v1"
		declared.Providers = maps.Clone(declared.Providers)
		declared.Providers["stripe"] = stripe
		c.Catalog, c.Client, c.Keys = &declared, *server.Client(), map[string]string{"stripe": "rk_test_1"}
	}
}

const readSamples = "../../../catalog/providers/samples/stripe"

// A refund and a dispute of Stripe name no customer. Their payment does, and so they have its key.
func TestMembersThatAWebhookLacksAreReadFromItsProvidersAPI(t *testing.T) {
	t.Parallel()
	payment := filetest.Read(t, readSamples, "read", "payment_intent.json")
	for _, name := range []string{"refund.created", "charge.dispute.created"} {
		body, called := filetest.Read(t, readSamples, name+".json"), ""
		d := open(t, reading(t, func(w http.ResponseWriter, r *http.Request) {
			called += r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
			_, _ = io.WriteString(w, payment)
		}))
		got := requireSent(t, d, sentBy(t, "stripe", paynowSecret, body, fixed), "")
		require.Equal(t, "GET /v1/payment_intents/pi_3PgafmBhExample0000000001 Bearer rk_test_1", called, name)
		require.Equal(t, "user-1", got.message.OrderingKey, name)
		require.Equal(t, "cus_QXg1o8vlGExample", got.message.Attributes["paynow_customer_id"], name)
		c := loaded()
		trial, err := webhook.Try(c, c.Providers["stripe"], webhook.Beside([]byte(body), []byte(payment)),
			func() time.Time { return fixed })
		require.NoError(t, err)
		require.Equal(t, "https://api.stripe.com/v1/payment_intents/pi_3PgafmBhExample0000000001", trial.Read)
		require.JSONEq(t, string(got.message.Data), string(trial.Message), "a trial is the same code")
	}
}

// Until then its sender has to keep it. That a payment does not exist is an answer.
func TestEventIsNotPublishedUntilItsProvidersAPIHasAnswered(t *testing.T) {
	t.Parallel()
	payment := filetest.Read(t, readSamples, "read", "payment_intent.json")
	for what, test := range map[string]struct {
		code     int
		answer   string
		change   [2]string
		want     int
		says     string
		uncalled bool // the API is not called
	}{
		"it is down": {code: 500, want: 503, says: `"cause":"api_500"`},
		"the key is refused": {
			code: 401, answer: payment, want: 503, says: `"cause":"api_401"`,
		},
		"it redirects": {code: 302, want: 503, says: `"cause":"api_302"`},
		"no JSON":      {code: 200, answer: "<html>", want: 503, says: `"cause":"api_malformed"`},
		"too much": {
			code: 200, answer: `"` + strings.Repeat("x", 256<<10) + `"`, want: 503, says: `"cause":"api_too_large"`,
		},
		"cut off":                    {code: -1, want: 503, says: `"cause":"api_unavailable"`},
		"the payment does not exist": {code: 404, answer: payment, want: 202, says: `"ordering_key":"unknown"`},
		"without a customer": {
			code: 200, answer: `{}`, want: 202, says: `"ordering_key":"unknown"`,
		},
		"a customer that is text": {
			code: 200, answer: `{"customer":"Ilse B"}`, want: 202, says: "read.customer: id",
		},
		"twice": {
			code: 200, answer: `{"customer":"a","customer":"b"}`, want: 503, says: `"cause":"api_malformed"`,
		},
		"a failed refund": {
			code: 200, answer: payment, change: [2]string{`"succeeded"`, `"failed"`}, want: 200,
			says: "refund_not_completed", uncalled: true,
		},
		"an id that is a path": {
			code: 200, answer: payment, change: [2]string{`"pi_3PgafmBhExample0000000001"`, `"../balance"`}, want: 422,
			says: "data.object.payment_intent", uncalled: true,
		},
		"a body that has the member read": {
			code: 200, answer: payment, change: [2]string{`"livemode"`, `"read"`}, want: 400, says: "body_malformed",
		},
		"an event without a route": {
			code: 200, answer: payment, change: [2]string{`"refund.created"`, `"payout.paid"`}, want: 200,
			says: "no_queue", uncalled: true,
		},
	} {
		called := false
		d := open(t, reading(t, func(w http.ResponseWriter, _ *http.Request) {
			called = true
			if test.code < 0 {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Location", "https://elsewhere.example/")
			w.WriteHeader(test.code)
			_, _ = io.WriteString(w, test.answer)
		}))
		body := strings.Replace(filetest.Read(t, readSamples, "refund.created.json"), test.change[0],
			test.change[1], 1)
		w := d.send(sentBy(t, "stripe", paynowSecret, body, fixed))
		require.Equal(t, test.want, w.Code, "%s: %s", what, w.Body)
		require.Equal(t, !test.uncalled, called, what)
		require.Contains(t, w.Body.String()+d.log.String(), test.says, what)
		require.Len(t, d.broker.all(), map[bool]int{true: 1}[test.want == http.StatusAccepted], what)
		require.NotContains(t, w.Body.String()+d.log.String(), "rk_test_1", what)
	}
}

// An answer of a provider's API may hold personal data, as a webhook may.
func TestTextOfAnAPIsAnswerIsPublishedOnlyInItsShape(t *testing.T) {
	t.Parallel()
	payment, answer := filetest.Read(t, readSamples, "read", "payment_intent.json"), ""
	d := open(t, reading(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	body := filetest.Read(t, readSamples, "refund.created.json")
	for _, answer = range planted(t, payment) {
		accepted(t, d, sentBy(t, "stripe", paynowSecret, body, fixed))
	}
	require.Greater(t, len(d.broker.all()), 8)
	require.NotRegexp(t, "Mette|Brandvold", d.out(httptest.NewRecorder()))
}
