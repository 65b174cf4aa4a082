package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
)

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

func TestAnEventThatCannotBePublishedNowStaysWithItsSender(t *testing.T) {
	t.Parallel()
	broken := func(err error) func(*webhook.Config) {
		return func(c *webhook.Config) { c.Publisher.(*recorder).errors = []error{err} }
	}
	const lookup, unconfirmed = "customer_lookup_failed", "publish_unconfirmed"
	for name, test := range map[string]struct {
		change func(*webhook.Config)
		status int
		code   string
	}{
		"a directory that fails":         {func(c *webhook.Config) { c.Customers = people{err: errDown} }, http.StatusServiceUnavailable, lookup},
		"a directory that never answers": {func(c *webhook.Config) { c.Customers, c.PublishTimeout = lost{}, time.Millisecond }, http.StatusServiceUnavailable, lookup},
		"a broker that fails":            {broken(errDown), http.StatusServiceUnavailable, unconfirmed},
		"a broker that never answers":    {func(c *webhook.Config) { c.Publisher, c.PublishTimeout = stuck{}, time.Millisecond }, http.StatusServiceUnavailable, unconfirmed},
		"a limit, which is final":        {broken(fmt.Errorf("publish: %w", contract.ErrLimit)), http.StatusUnprocessableEntity, "message_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, test.change)
			body := samples.Read(samples.Refund, samples.Event{})
			w := d.send(payNow(t, body))
			requireProblem(t, d, w, test.status, test.code, "")
			require.Equal(t, test.status == http.StatusServiceUnavailable, w.Header().Get("Retry-After") != "")
			if name == "a broker that fails" {
				w = d.send(payNow(t, body))
				require.Equal(t, http.StatusAccepted, w.Code)
				require.Empty(t, w.Header().Get("Retry-After"))
				require.Len(t, d.broker.all(), 1)
			}
		})
	}
}

// lost is a directory that never answers.
type lost struct{}

func (lost) UID(ctx context.Context, _, _ string) (string, bool, error) {
	<-ctx.Done()
	return "", false, ctx.Err()
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

// stuck is a broker that never answers.
type stuck struct{}

func (stuck) Publish(ctx context.Context, _ string, _ contract.Message) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
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
			d := open(t, queueOf(queue, func(q *catalog.Queue) { q.OrderingKey = test.names }))
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
				"correlation_id": test.correlation, "first_published_at": "2026-03-02T10:02:03.45Z", "door_received_at": "2026-03-02T10:02:03.45Z",
			}, got.Attributes)
		})
	}
}

// TestAMessageSaysWhenTheDoorReceivedIt: the request, and not the moment at which it is published.
func TestAMessageSaysWhenTheDoorReceivedIt(t *testing.T) {
	t.Parallel()
	const envelope = `{"id":"e%d","action":"renewal","created_at":"2026-03-02T10:00:00Z","attempts":0,"payload":{"subscription_id":"s%d"}}`
	for name, test := range map[string]struct {
		request  func(t *testing.T) *http.Request
		messages int
	}{
		"a webhook": {func(t *testing.T) *http.Request {
			t.Helper()
			return payNow(t, samples.Read(samples.OrderCompleted, samples.Event{}))
		}, 1},
		"a producer's": {func(t *testing.T) *http.Request {
			t.Helper()
			return generic(t, "/queues/"+updates+"/messages", fmt.Appendf(nil, envelope, 1, 1))
		}, 1},
		"a list": {func(t *testing.T) *http.Request {
			t.Helper()
			return generic(t, "/queues/"+updates+"/messages", fmt.Appendf(nil, `{"messages":[{"message":`+envelope+`},{"message":`+envelope+`}]}`, 1, 1, 2, 2))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ticks atomic.Int64
			d := open(t, func(c *webhook.Config) {
				c.Now = func() time.Time { return fixed.Add(time.Duration(ticks.Add(1)) * time.Millisecond) }
			})
			answer := d.send(test.request(t))
			sent := d.broker.all()
			require.Len(t, sent, test.messages, "%s", answer.Body)
			for _, one := range sent {
				attributes := one.message.Attributes
				received, err := time.Parse(time.RFC3339Nano, attributes[contract.AttrDoorReceived])
				require.NoError(t, err)
				published, err := time.Parse(time.RFC3339Nano, attributes[contract.AttrFirstPublished])
				require.NoError(t, err)
				require.True(t, received.Before(published))
				require.Equal(t, sent[0].message.Attributes[contract.AttrDoorReceived], attributes[contract.AttrDoorReceived], "those of one request were received at once")
			}
		})
	}
}

func TestAMessageForAQueueOnASharedTopicNamesTheQueue(t *testing.T) {
	t.Parallel()
	d := open(t, queueOf(queue, func(q *catalog.Queue) { q.SharedTopic, q.Bindings = "sales", []routing.Pattern{"order.#"} }))
	require.Equal(t, http.StatusAccepted, d.send(generic(t, "/queues/"+queue+"/messages", goldens(t, contract.PayNowV1)["order_paid.json"])).Code)
	require.Equal(t, "sales", d.broker.all()[0].topic)
	require.Equal(t, queue, d.broker.all()[0].message.Attributes["queue"])
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
