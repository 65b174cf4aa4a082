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

// A refund and a dispute of Stripe name no customer. Their payment does, and so they have its key. Like a
// webhook, it may hold personal data.
func TestMembersThatAWebhookLacksAreReadFromItsProvidersAPI(t *testing.T) {
	t.Parallel()
	payment := filetest.Read(t, readSamples, "read", "payment_intent.json")
	for _, name := range []string{"refund.created", "charge.dispute.created"} {
		body, called, answer := filetest.Read(t, readSamples, name+".json"), "", payment
		d := open(t, reading(t, func(w http.ResponseWriter, r *http.Request) {
			called += r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
			_, _ = io.WriteString(w, answer)
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
		for _, answer = range planted(t, payment) {
			accepted(t, d, sentBy(t, "stripe", paynowSecret, body, fixed))
		}
		require.Greater(t, len(d.broker.all()), 8)
		require.NotRegexp(t, "Mette|Brandvold", d.out(httptest.NewRecorder()))
	}
}

// Until then its sender has to keep it. That a payment does not exist is an answer.
func TestEventIsNotPublishedUntilItsProvidersAPIHasAnswered(t *testing.T) {
	t.Parallel()
	payment := filetest.Read(t, readSamples, "read", "payment_intent.json")
	all := requests(t).Answered
	all = append(all, provider{
		What: "too much", Code: http.StatusOK, Answer: `"` + strings.Repeat("x", 256<<10) + `"`,
		Status: http.StatusServiceUnavailable, Says: `"cause":"api_too_large"`,
	})
	for _, test := range all {
		called := false
		d := open(t, reading(t, func(w http.ResponseWriter, _ *http.Request) {
			called = true
			if test.Code < 0 {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Location", "https://elsewhere.example/")
			w.WriteHeader(test.Code)
			_, _ = io.WriteString(w, strings.Replace(test.Answer, "payment", payment, 1))
		}))
		body := strings.Replace(filetest.Read(t, readSamples, "refund.created.json"), test.Old, test.With, 1)
		w := d.send(sentBy(t, "stripe", paynowSecret, body, fixed))
		require.Equal(t, test.Status, w.Code, "%s: %s", test.What, w.Body)
		require.Equal(t, !test.Uncalled, called, test.What)
		require.Contains(t, d.out(w), test.Says, test.What)
		require.Len(t, d.broker.all(), map[bool]int{true: 1}[test.Status == http.StatusAccepted], test.What)
		require.NotContains(t, d.out(w), "rk_test_1", test.What)
	}
}
