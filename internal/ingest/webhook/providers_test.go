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

// An intercepted request passes once more within the window, and its sender may sign it again with another
// secret. Both are the same event, of the same id and payload. With a removed secret it is refused.
func TestReplayedRequestIsTheSameEvent(t *testing.T) {
	t.Parallel()
	sent := map[string]bool{}
	eachWebhook(t, func(name, provider, body string) {
		d := open(t, provided)
		seen := map[string]bool{}
		accepted(t, d, sentBy(t, provider, paynowSecret, body, fixed))
		accepted(t, d, sentBy(t, provider, paynowSecret, body, fixed))
		accepted(t, d, sentBy(t, provider, olderSecret, body, fixed.Add(time.Minute)))
		removed := d.send(sentBy(t, provider, genericSecret, body, fixed))
		require.Equal(t, http.StatusUnauthorized, removed.Code, name)
		require.Len(t, d.broker.all(), 3, name)
		for _, sent := range d.broker.all() {
			sum := filetest.Must(requireWhole(t, sent.message).PayloadHash())(t)
			seen[sent.message.Attributes["event_id"]+sum] = true
		}
		require.Len(t, seen, 1, name)
		sent[provider] = true
	})
	for shipped := range loaded().Providers {
		require.True(t, sent[shipped], shipped)
	}
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
	for _, test := range requests(t).Spoiled {
		require.Contains(t, bodies[test.Of], test.Old)
		provider, _, _ := strings.Cut(test.Of, ":")
		d := open(t, provided)
		body := strings.Replace(bodies[test.Of], test.Old, test.With, 1)
		w := d.send(sentBy(t, provider, paynowSecret, body, fixed))
		require.Equal(t, test.Status, w.Code, "%s: %s: %s", test.Of, test.With, w.Body)
		require.Contains(t, d.out(w), test.Says, "%s: %s", test.Of, test.With)
	}
}
