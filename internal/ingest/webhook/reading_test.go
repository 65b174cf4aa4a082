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

// reading is the configuration with a provider's API in front of Stripe's, which is asked with a key.
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

// A refund and a dispute of Stripe's name no customer: their payment does, which puts them behind its order.
func TestWhatAWebhookDoesNotSayIsReadOfItsProvidersAPI(t *testing.T) {
	t.Parallel()
	payment := filetest.Read(t, readSamples, "read", "payment_intent.json")
	for _, name := range []string{"refund.created", "charge.dispute.created"} {
		body, asked := filetest.Read(t, readSamples, name+".json"), ""
		d := open(t, reading(t, func(w http.ResponseWriter, r *http.Request) {
			asked += r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
			_, _ = io.WriteString(w, payment)
		}))
		got := requireSent(t, d, sentBy(t, "stripe", paynowSecret, body, fixed), "")
		require.Equal(t, "GET /v1/payment_intents/pi_3PgafmBhExample0000000001 Bearer rk_test_1", asked, name)
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

// Whoever sent the event keeps it while nothing is known. A payment that is not there is known.
func TestAnEventIsNotPublishedUntilItsProvidersAPIHasAnswered(t *testing.T) {
	t.Parallel()
	payment := filetest.Read(t, readSamples, "read", "payment_intent.json")
	for what, test := range map[string]struct {
		code        int
		answer      string
		change      [2]string
		want        int
		says, asked string
	}{
		"it is down": {code: 500, want: 503, says: `"cause":"api_500"`, asked: "yes"},
		"the key is refused": {
			code: 401, answer: payment, want: 503, says: `"cause":"api_401"`, asked: "yes",
		},
		"it is elsewhere": {code: 302, want: 503, says: `"cause":"api_302"`, asked: "yes"},
		"no JSON":         {code: 200, answer: "<html>", want: 503, says: `"cause":"api_malformed"`, asked: "yes"},
		"too much": {
			code: 200, answer: `"` + strings.Repeat("x", 256<<10) + `"`, want: 503, says: `"cause":"api_too_large"`,
			asked: "yes",
		},
		"cut off":       {code: -1, want: 503, says: `"cause":"api_unavailable"`, asked: "yes"},
		"there is none": {code: 404, answer: payment, want: 202, says: `"ordering_key":"unknown"`, asked: "yes"},
		"without a customer": {
			code: 200, answer: `{}`, want: 202, says: `"ordering_key":"unknown"`, asked: "yes",
		},
		"a customer that is text": {
			code: 200, answer: `{"customer":"Ilse B"}`, want: 202, says: "read.customer: id", asked: "yes",
		},
		"twice": {
			code: 200, answer: `{"customer":"a","customer":"b"}`, want: 503, says: `"cause":"api_malformed"`,
			asked: "yes",
		},
		"a failed refund": {
			code: 200, answer: payment, change: [2]string{`"succeeded"`, `"failed"`}, want: 200,
			says: "refund_not_completed",
		},
		"an id that is a path": {
			code: 200, answer: payment, change: [2]string{`"pi_3PgafmBhExample0000000001"`, `"../balance"`}, want: 422,
			says: "data.object.payment_intent",
		},
		"a body with that member": {
			code: 200, answer: payment, change: [2]string{`"livemode"`, `"read"`}, want: 400, says: "body_malformed",
			asked: "yes",
		},
		"an event without a route": {
			code: 200, answer: payment, change: [2]string{`"refund.created"`, `"payout.paid"`}, want: 200,
			says: "no_queue",
		},
	} {
		asked := ""
		d := open(t, reading(t, func(w http.ResponseWriter, _ *http.Request) {
			asked = "yes"
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
		require.Equal(t, test.asked, asked, what)
		require.Contains(t, w.Body.String()+d.log.String(), test.says, what)
		require.Len(t, d.broker.all(), map[bool]int{true: 1}[test.want == http.StatusAccepted], what)
		require.NotContains(t, w.Body.String()+d.log.String(), "rk_test_1", what)
	}
}

// What the provider's API says is people's data as a webhook's is.
func TestNoTextOfAnAnswerLeavesUnlessItHasItsShape(t *testing.T) {
	t.Parallel()
	payment, answer := filetest.Read(t, readSamples, "read", "payment_intent.json"), ""
	d := open(t, reading(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	body := filetest.Read(t, readSamples, "refund.created.json")
	for _, answer = range planted(t, payment) {
		taken(t, d, sentBy(t, "stripe", paynowSecret, body, fixed))
	}
	require.Greater(t, len(d.broker.all()), 8)
	require.NotRegexp(t, "Mette|Brandvold", d.out(httptest.NewRecorder()))
}
