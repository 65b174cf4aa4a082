package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
)

const olderSecret = "the-older-secret-of-24-bytes-up"

func mac(secret, signed string) []byte {
	sum := hmac.New(sha256.New, []byte(secret))
	sum.Write([]byte(signed))
	return sum.Sum(nil)
}

// senders sign by hand, as the documentation of each provider has it, not by its declaration.
var senders = map[string]func(h http.Header, secret, body string, at time.Time){
	"stripe": func(h http.Header, secret, body string, at time.Time) {
		stamp := strconv.FormatInt(at.Unix(), 10)
		h.Set("Stripe-Signature", "t="+stamp+",v1="+hex.EncodeToString(mac(secret, stamp+"."+body))+",v0=00")
	},
	"paddle": func(h http.Header, secret, body string, at time.Time) {
		stamp := strconv.FormatInt(at.Unix(), 10)
		h.Set("Paddle-Signature", "ts="+stamp+";h1="+hex.EncodeToString(mac(secret, stamp+":"+body)))
	},
	"lemon-squeezy": func(h http.Header, secret, body string, _ time.Time) {
		h.Set("X-Signature", hex.EncodeToString(mac(secret, body)))
	},
	"standard-webhooks": func(h http.Header, secret, body string, at time.Time) {
		stamp := strconv.FormatInt(at.Unix(), 10)
		h.Set("webhook-id", "msg_1")
		h.Set("webhook-timestamp", stamp)
		h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac(secret, "msg_1."+stamp+"."+body)))
	},
}

// provided has a source for each provider, whose events go to a queue of its format.
func provided(c *webhook.Config) {
	producing()(c)
	c.Catalog.Sources = maps.Clone(c.Catalog.Sources)
	for name := range senders {
		events := map[string]string{}
		for eventType := range c.Catalog.Providers[name].Events {
			events[eventType] = queue
			if c.Catalog.Providers[name].Contract == contract.MessageV1 {
				events[eventType] = "fis-ingestion"
			}
		}
		c.Catalog.Sources[name] = catalog.Source{Name: name, Scheme: catalog.Scheme(name), SecretVariable: "WEBHOOK_SECRET_X", MaxBodyBytes: 1 << 20, Events: events}
		c.Secrets[name] = []string{paynowSecret, olderSecret}
	}
}

func sentBy(t testing.TB, provider, secret, body string, at time.Time) *http.Request {
	t.Helper()
	r := request(t, "/webhooks/"+provider, strings.NewReader(body))
	senders[provider](r.Header, secret, body, at)
	return r
}

// eachSample visits the samples of the providers, by the names of their files.
func eachSample(t testing.TB, visit func(name, provider, body string)) {
	t.Helper()
	files, err := filepath.Glob("../../../catalog/providers/samples/*/*.json")
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	for _, file := range files {
		text := filetest.Read(t, file)
		provider := filepath.Base(filepath.Dir(file))
		visit(provider+": "+strings.TrimSuffix(filepath.Base(file), ".json"), provider, text)
	}
}

func TestEachSampleOfAProviderIsPublishedAsRecorded(t *testing.T) {
	t.Parallel()
	const file = "testdata/provided.json"
	all := map[string]record{}
	eachSample(t, func(name, provider, body string) {
		d := open(t, provided)
		got := requireSent(t, d, sentBy(t, provider, paynowSecret, body, fixed), "")
		requireWhole(t, got.message)
		all[name] = record{got.topic, got.answer, got.message.Data, got.message.Attributes, got.message.OrderingKey, got.dropped}
		c, _ := loaded()
		trial, err := webhook.Try(c, c.Providers[provider], []byte(body), func() time.Time { return fixed })
		require.NoError(t, err)
		require.JSONEq(t, string(got.message.Data), strings.Replace(string(trial.Message), "id-of-the-request", "msg_1", 1), "a trial is the same code")
		again := taken(t, d, sentBy(t, provider, olderSecret, body, fixed.Add(time.Minute))).broker.all()
		require.Equal(t, again[0].message.Attributes["event_id"], again[1].message.Attributes["event_id"], "it is the same event")
	})
	asRecorded(t, file, all)
}

func TestAProvidersRequestIsRefusedWhereAnythingOfItsSignatureIsWrong(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	eachSample(t, func(_, provider, body string) {
		if seen[provider] {
			return
		}
		seen[provider] = true
		scheme := schemeOf(t, provider)
		for what, change := range map[string]func(r *http.Request){
			"tampered":          func(r *http.Request) { r.Body = http.NoBody },
			"of another secret": func(r *http.Request) { senders[provider](r.Header, genericSecret, body, fixed) },
			"two headers":       func(r *http.Request) { r.Header.Add(scheme.Header, r.Header.Get(scheme.Header)) },
			"without":           func(r *http.Request) { r.Header.Del(scheme.Header) },
			"truncated":         func(r *http.Request) { r.Header.Set(scheme.Header, r.Header.Get(scheme.Header)[:40]) },
			"another encoding":  func(r *http.Request) { r.Header.Set(scheme.Header, scheme.Prefix+"%%%") },
			"stale":             func(r *http.Request) { senders[provider](r.Header, paynowSecret, body, fixed.Add(-time.Hour)) },
		} {
			if what == "stale" && scheme.ReplayWindow == "none" {
				continue
			}
			d, r := open(t, provided), sentBy(t, provider, paynowSecret, body, fixed)
			change(r)
			require.Equal(t, http.StatusUnauthorized, d.send(r).Code, "%s: %s", provider, what)
			require.Empty(t, d.broker.all(), "%s: %s", provider, what)
		}
	})
	require.Len(t, seen, len(senders))
}

var leaf = regexp.MustCompile(`[:\[,] ("[^"]+")[ ,\n}]`)

const canary = "Mette Lindqvist <mette@example.org>"

// A person's data stays out of everything, wherever in a sample it stands: also where an id is expected.
func TestNoTextOfAProvidersSampleLeavesUnlessItHasItsShape(t *testing.T) {
	t.Parallel()
	eachSample(t, func(name, provider, body string) {
		for _, at := range leaf.FindAllStringSubmatchIndex(body, -1) {
			leaf, changed := body[at[2]:at[3]], body[:at[2]]+strconv.Quote(canary)+body[at[3]:]
			d := open(t, provided)
			w := d.send(sentBy(t, provider, paynowSecret, changed, fixed))
			require.Contains(t, []int{http.StatusOK, http.StatusAccepted, http.StatusUnprocessableEntity}, w.Code, "%s: %s: %s", name, leaf, w.Body)
			out := w.Body.String() + d.log.String()
			for _, got := range d.broker.all() {
				out += string(got.message.Data) + fmt.Sprint(got.message.Attributes)
			}
			require.NotContains(t, out, "Mette", "%s: %s", name, leaf)
			require.NotContains(t, out, "Brandvold", name)
		}
	})
}

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
		c, _ := loaded()
		trial, err := webhook.Try(c, c.Providers["stripe"], webhook.Beside([]byte(body), []byte(payment)), func() time.Time { return fixed })
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
		"it is down":               {code: 500, want: 503, says: `"cause":"api_500"`, asked: "yes"},
		"the key is refused":       {code: 401, answer: payment, want: 503, says: `"cause":"api_401"`, asked: "yes"},
		"it is elsewhere":          {code: 302, want: 503, says: `"cause":"api_302"`, asked: "yes"},
		"no JSON":                  {code: 200, answer: "<html>", want: 503, says: `"cause":"api_malformed"`, asked: "yes"},
		"too much":                 {code: 200, answer: `"` + strings.Repeat("x", 256<<10) + `"`, want: 503, says: `"cause":"api_too_large"`, asked: "yes"},
		"cut off":                  {code: -1, want: 503, says: `"cause":"api_unavailable"`, asked: "yes"},
		"there is none":            {code: 404, answer: payment, want: 202, says: `"ordering_key":"unknown"`, asked: "yes"},
		"without a customer":       {code: 200, answer: `{}`, want: 202, says: `"ordering_key":"unknown"`, asked: "yes"},
		"a customer that is text":  {code: 200, answer: `{"customer":"Ilse B"}`, want: 202, says: "read.customer: id", asked: "yes"},
		"twice":                    {code: 200, answer: `{"customer":"a","customer":"b"}`, want: 503, says: `"cause":"api_malformed"`, asked: "yes"},
		"a failed refund":          {code: 200, answer: payment, change: [2]string{`"succeeded"`, `"failed"`}, want: 200, says: "refund_not_completed"},
		"an id that is a path":     {code: 200, answer: payment, change: [2]string{`"pi_3PgafmBhExample0000000001"`, `"../balance"`}, want: 422, says: "data.object.payment_intent"},
		"a body with that member":  {code: 200, answer: payment, change: [2]string{`"livemode"`, `"read"`}, want: 400, says: "body_malformed", asked: "yes"},
		"an event without a route": {code: 200, answer: payment, change: [2]string{`"refund.created"`, `"payout.paid"`}, want: 200, says: "no_queue"},
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
		body := strings.Replace(filetest.Read(t, readSamples, "refund.created.json"), test.change[0], test.change[1], 1)
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
	for _, at := range leaf.FindAllStringSubmatchIndex(payment, -1) {
		answer = payment[:at[2]] + strconv.Quote(canary) + payment[at[3]:]
		taken(t, d, sentBy(t, "stripe", paynowSecret, body, fixed))
	}
	out := d.log.String()
	for _, got := range d.broker.all() {
		out += string(got.message.Data) + fmt.Sprint(got.message.Attributes)
	}
	require.Greater(t, len(d.broker.all()), 8)
	require.NotContains(t, out, "Mette")
	require.NotContains(t, out, "Brandvold")
}

// What an event's effect needs refuses it by the provider's own path; anything else is left out.
func TestABadValueOfAProvidersSampleRefusesItOrIsLeftOut(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{}
	eachSample(t, func(name, _, body string) { bodies[name] = body })
	for _, test := range []struct{ of, old, with, want string }{
		{"stripe: invoice.paid", `"paid_at": 1772445659`, `"paid_at": -1`, "202 2026-03-02T10:02:03Z"},
		{"stripe: invoice.paid", `"unit_amount": 1000`, `"unit_amount": -1`, "202 data.object.lines.data[].price.unit_amount: negative"},
		{"stripe: invoice.paid", `"currency": "usd",
      "customer"`, `"currency": "qqq",
      "customer"`, "202 data.object.currency: currency"},
		{"stripe: invoice.paid", `"quantity": 2`, `"quantity": null`, "422 data.object.lines.data[0].quantity"},
		{"stripe: invoice.paid", `"payment_intent": "pi_3PgafmBhExample0000000001"`, `"payment_intent": null`, "422 data.object.payment_intent"},
		{"stripe: refund.created", `"currency": "usd"`, `"currency": null`, "422 data.object.currency"},
		{"stripe: refund.created", `"currency": "usd"`, `"currency": "qqq"`, "422 data.object.currency"},
		{"stripe: refund.created", `"amount": 1000`, `"amount": -1`, "422 data.object.amount"},
		{"stripe: refund.created", `"succeeded"`, `"failed"`, "200 refund_not_completed"},
		{"stripe: refund.created", `"refund.created"`, `"payout.paid"`, "200 no_queue"},
		{"stripe: customer.subscription.created", `1775124100`, `253402300800`, "202 data.object.current_period_end: timestamp"},
		{"paddle: transaction.completed", `"total": "2000"`, `"total": "20.00"`, "202 data.details.totals.total: integer"},
		{"paddle: adjustment.updated", `"total": "1000"`, `"total": "10.00"`, "422 data.totals.total"},
		{"paddle: adjustment.updated", `"action": "refund"`, `"action": "credit"`, "200 not_a_refund"},
		{"lemon-squeezy: order_created", `"status": "paid"`, `"status": "pending"`, "200 order_not_paid"},
		{"lemon-squeezy: order_created", `"meta": {`, `"meta": { "event_name": "order_created",`, "400 body_malformed"},
		{"lemon-squeezy: order_created", `"event_name": "order_created", `, ``, "422 meta.event_name"},
		{"standard-webhooks: invoice.paid", `"amount": 11900`, `"amount": 1000000000000001`, "422 data.amount"},
	} {
		require.Contains(t, bodies[test.of], test.old)
		provider, _, _ := strings.Cut(test.of, ":")
		status, want, _ := strings.Cut(test.want, " ")
		d := open(t, provided)
		w := d.send(sentBy(t, provider, paynowSecret, strings.Replace(bodies[test.of], test.old, test.with, 1), fixed))
		require.Equal(t, status, strconv.Itoa(w.Code), "%s: %s: %s", test.of, test.with, w.Body)
		said := w.Body.String() + d.log.String()
		for _, got := range d.broker.all() {
			said += string(got.message.Data)
		}
		require.Contains(t, said, want, "%s: %s", test.of, test.with)
	}
}
