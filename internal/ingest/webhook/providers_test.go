package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
)

const olderSecret = "the-older-secret-of-24-bytes-up"

func mac(secret, signed string) []byte {
	sum := hmac.New(sha256.New, []byte(secret))
	sum.Write([]byte(signed))
	return sum.Sum(nil)
}

// senders sign as the documentation of each provider says, not by its declaration.
var senders = map[string]func(h http.Header, secret, body string, at time.Time){
	"stripe": func(h http.Header, secret, body string, at time.Time) {
		stamp := strconv.FormatInt(at.Unix(), 10)
		h.Set("Stripe-Signature", "t="+stamp+",v1="+hex.EncodeToString(mac(secret, stamp+"."+body))+",v0=00")
	},
	"paddle": func(h http.Header, secret, body string, at time.Time) {
		stamp := strconv.FormatInt(at.Unix(), 10)
		h.Set("Paddle-Signature", "ts="+stamp+";h1="+hex.EncodeToString(mac(secret, stamp+":"+body)))
	},
	"paynow": func(h http.Header, secret, body string, at time.Time) {
		stamp := strconv.FormatInt(at.UnixMilli(), 10)
		h.Set("PayNow-Signature", base64.StdEncoding.EncodeToString(mac(secret, stamp+"."+body)))
		h.Set("PayNow-Timestamp", stamp)
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

// provided adds a source for each provider, whose events go to a queue of its format.
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
		c.Catalog.Sources[name] = catalog.Source{
			Name: name, Scheme: catalog.Scheme(name), SecretVariable: "WEBHOOK_SECRET_X", MaxBodyBytes: 1 << 20,
			Events: events,
		}
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
	files := filetest.Must(filepath.Glob("../../../catalog/providers/samples/*/*.json"))(t)
	require.Greater(t, len(files), 10)
	for _, file := range files {
		text := filetest.Read(t, file)
		provider := filepath.Base(filepath.Dir(file))
		visit(provider+": "+strings.TrimSuffix(filepath.Base(file), ".json"), provider, text)
	}
}

func TestEachSampleOfAProviderIsPublishedAsRecorded(t *testing.T) {
	t.Parallel()
	all := map[string]record{}
	eachSample(t, func(name, provider, body string) {
		d := open(t, provided)
		got := requireSent(t, d, sentBy(t, provider, paynowSecret, body, fixed), "")
		requireWhole(t, got.message)
		all[name] = record{
			got.topic, got.answer, got.message.Data, got.message.Attributes, got.message.OrderingKey, got.dropped,
		}
		c := loaded()
		trial, err := webhook.Try(c, c.Providers[provider], []byte(body), func() time.Time { return fixed })
		require.NoError(t, err)
		require.JSONEq(t, string(got.message.Data), strings.Replace(string(trial.Message), "id-of-the-request",
			"msg_1", 1), "a trial is the same code")
	})
	asRecorded(t, "testdata/provided.json", all)
}

// eachWebhook visits the samples of every shipped provider, and those of PayNow in package samples.
func eachWebhook(t testing.TB, visit func(name, provider, body string)) {
	t.Helper()
	eachSample(t, visit)
	for _, name := range samples.Names() {
		visit("paynow: "+name, "paynow", string(samples.Read(name, samples.Event{})))
	}
}

func TestProvidersRequestWithAWrongSignatureIsRefused(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{}
	eachWebhook(t, func(_, provider, body string) { bodies[provider] = body })
	shipped := slices.Sorted(maps.Keys(loaded().Providers))
	require.Equal(t, shipped, slices.Sorted(maps.Keys(bodies)), "each shipped provider")
	inHex, inBase64 := regexp.MustCompile(`[0-9a-f]{64}`), regexp.MustCompile(`[A-Za-z0-9+/]{43}=`)
	for provider, body := range bodies {
		scheme := loaded().Providers[provider].Signature
		header := func(change func(value string) string) func(r *http.Request) {
			return func(r *http.Request) { r.Header.Set(scheme.Header, change(r.Header.Get(scheme.Header))) }
		}
		signed := func(secret string, at time.Time) func(r *http.Request) {
			return func(r *http.Request) { senders[provider](r.Header, secret, body, at) }
		}
		for what, test := range map[string]struct {
			change func(r *http.Request)
			want   string
		}{
			"good":             {func(*http.Request) {}, ""},
			"the older secret": {signed(olderSecret, fixed), ""},
			"a removed secret": {signed(genericSecret, fixed), "signature_mismatch"},
			"tampered": {
				func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(body + " ")) }, "signature_mismatch",
			},
			"stale":         {signed(paynowSecret, fixed.Add(-tolerance-time.Second)), "timestamp_too_old"},
			"of the future": {signed(paynowSecret, fixed.Add(tolerance+2*time.Second)), "timestamp_too_new"},
			"two headers": {
				func(r *http.Request) { r.Header.Add(scheme.Header, r.Header.Get(scheme.Header)) }, "signature_malformed",
			},
			"without":     {func(r *http.Request) { r.Header.Del(scheme.Header) }, "signature_missing"},
			"truncated":   {header(func(value string) string { return value[:40] }), "signature_malformed"},
			"no encoding": {header(func(string) string { return scheme.Prefix + "%%%" }), "signature_malformed"},
			"the other encoding": {header(func(value string) string {
				if sum := inHex.FindString(value); sum != "" {
					raw, _ := hex.DecodeString(sum)
					return strings.Replace(value, sum, base64.StdEncoding.EncodeToString(raw), 1)
				}
				sum := inBase64.FindString(value)
				raw, _ := base64.StdEncoding.DecodeString(sum)
				return strings.Replace(value, sum, hex.EncodeToString(raw), 1)
			}), "signature_malformed"},
		} {
			if scheme.ReplayWindow == "none" && strings.HasPrefix(test.want, "timestamp") {
				test.want = "" // it signs no time, as its declaration says
			}
			d, r := open(t, provided), sentBy(t, provider, paynowSecret, body, fixed)
			test.change(r)
			w := d.send(r)
			if test.want == "" {
				require.Equal(t, http.StatusAccepted, w.Code, "%s: %s: %s", provider, what, w.Body)
				continue
			}
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s: %s: %s", provider, what, w.Body)
			require.Contains(t, w.Body.String(), `"`+test.want+`"`, "%s: %s", provider, what)
			require.Empty(t, d.broker.all(), "%s: %s", provider, what)
		}
	}
}

// An intercepted request passes once more within the window, and its sender may sign it again with another
// secret. Both are the same event, of the same id and payload.
func TestReplayedRequestIsTheSameEvent(t *testing.T) {
	t.Parallel()
	eachWebhook(t, func(name, provider, body string) {
		d := open(t, provided)
		seen := map[string]bool{}
		accepted(t, d, sentBy(t, provider, paynowSecret, body, fixed))
		accepted(t, d, sentBy(t, provider, paynowSecret, body, fixed))
		accepted(t, d, sentBy(t, provider, olderSecret, body, fixed.Add(time.Minute)))
		for _, sent := range d.broker.all() {
			sum := filetest.Must(requireWhole(t, sent.message).PayloadHash())(t)
			seen[sent.message.Attributes["event_id"]+sum] = true
		}
		require.Len(t, seen, 1, name)
	})
}

const canary = "Mette Lindqvist <mette@example.org>"

// planted are copies of a document, each with the canary in place of one text value.
func planted(t testing.TB, document string) (copies []string) {
	t.Helper()
	decoder := jsontext.NewDecoder(strings.NewReader(document))
	for {
		value, err := decoder.ReadToken()
		if errors.Is(err, io.EOF) {
			return copies
		}
		require.NoError(t, err)
		in, n := decoder.StackIndex(decoder.StackDepth())
		if value.Kind() == '"' && (in == '[' || n%2 == 0) {
			end := decoder.InputOffset()
			start := end - int64(len(strconv.Quote(value.String())))
			require.Equal(t, strconv.Quote(value.String()), document[start:end],
				"samples have no escapes")
			copies = append(copies, document[:start]+strconv.Quote(canary)+document[end:])
		}
	}
}

// Personal data is not published wherever it is in a sample, also where an id is expected.
func TestTextOfAProvidersSampleIsPublishedOnlyInItsShape(t *testing.T) {
	t.Parallel()
	eachWebhook(t, func(name, provider, body string) {
		d, answers := open(t, provided), httptest.NewRecorder()
		for _, changed := range planted(t, body) {
			w := d.send(sentBy(t, provider, paynowSecret, changed, fixed))
			require.Contains(t, []int{http.StatusOK, http.StatusAccepted, http.StatusUnprocessableEntity}, w.Code,
				"%s: %s", name, w.Body)
			answers.Body.Write(w.Body.Bytes())
		}
		require.NotRegexp(t, "Mette|Brandvold", d.out(answers), name)
	})
}

// A bad value of a required member refuses the event, by the provider's path. Of others it is dropped.
func TestBadValueOfAProvidersSampleRefusesItOrIsDropped(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{}
	eachSample(t, func(name, _, body string) { bodies[name] = body })
	for _, test := range []struct{ of, old, with, want string }{
		{"stripe: invoice.paid", `"paid_at": 1772445659`, `"paid_at": -1`, "202 2026-03-02T10:02:03Z"},
		{
			"stripe: invoice.paid", `"unit_amount": 1000`, `"unit_amount": -1`,
			"202 data.object.lines.data[].price.unit_amount: negative",
		},
		{"stripe: invoice.paid", `"currency": "usd",
      "customer"`, `"currency": "qqq",
      "customer"`, "202 data.object.currency: currency"},
		{"stripe: invoice.paid", `"quantity": 2`, `"quantity": null`, "422 data.object.lines.data[0].quantity"},
		{
			"stripe: invoice.paid", `"payment_intent": "pi_3PgafmBhExample0000000001"`, `"payment_intent": null`,
			"422 data.object.payment_intent",
		},
		{"stripe: refund.created", `"currency": "usd"`, `"currency": null`, "422 data.object.currency"},
		{"stripe: refund.created", `"currency": "usd"`, `"currency": "qqq"`, "422 data.object.currency"},
		{"stripe: refund.created", `"amount": 1000`, `"amount": -1`, "422 data.object.amount"},
		{"stripe: refund.created", `"succeeded"`, `"failed"`, "200 refund_not_completed"},
		{"stripe: refund.created", `"refund.created"`, `"payout.paid"`, "200 no_queue"},
		{
			"stripe: customer.subscription.created", `1775124100`, `253402300800`,
			"202 data.object.current_period_end: timestamp",
		},
		{
			"paddle: transaction.completed", `"total": "2000"`, `"total": "20.00"`,
			"202 data.details.totals.total: integer",
		},
		{"paddle: adjustment.updated", `"total": "1000"`, `"total": "10.00"`, "422 data.totals.total"},
		{"paddle: adjustment.updated", `"action": "refund"`, `"action": "credit"`, "200 not_a_refund"},
		{"lemon-squeezy: order_created", `"status": "paid"`, `"status": "pending"`, "200 order_not_paid"},
		{
			"lemon-squeezy: order_created", `"meta": {`, `"meta": { "event_name": "order_created",`,
			"400 body_malformed",
		},
		{"lemon-squeezy: order_created", `"event_name": "order_created", `, ``, "422 meta.event_name"},
		{"standard-webhooks: invoice.paid", `"amount": 11900`, `"amount": 1000000000000001`, "422 data.amount"},
	} {
		require.Contains(t, bodies[test.of], test.old)
		provider, _, _ := strings.Cut(test.of, ":")
		status, want, _ := strings.Cut(test.want, " ")
		d := open(t, provided)
		w := d.send(sentBy(t, provider, paynowSecret, strings.Replace(bodies[test.of], test.old,
			test.with, 1), fixed))
		require.Equal(t, status, strconv.Itoa(w.Code), "%s: %s: %s", test.of, test.with, w.Body)
		require.Contains(t, d.out(w), want, "%s: %s", test.of, test.with)
	}
}
