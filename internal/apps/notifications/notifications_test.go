package notifications_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/apps/notifications"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

var start = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

var shipped = catalogtest.Shipped()

// Queue 2 of the queue design, notifications.send, has this table, without order.cancelled.
func TestTheChannelsAreThoseOfTheQueueDesign(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string][]string{
		"order.confirmed": {"email", "sms", "push"}, "order.shipped": {"email", "push"},
		"order.cancelled": {"email", "push"},
		"payment.failed":  {"email", "push"}, "seller.order_created": {"email", "push"},
		"review.received": {"email"}, "flash_sale.starting": {"push"},
	}, shipped.Notifications)
	require.NoError(t, notifications.Check(shipped))
	send, _ := shipped.EmitsTo(notifications.FanOut)
	fanOut, _ := shipped.HandledBy(notifications.FanOut)
	require.Equal(t, []time.Duration{24 * time.Hour, 24 * time.Hour},
		[]time.Duration{send.MessageTTL, fanOut.MessageTTL})
}

func fanned(
	t *testing.T, eventType, data string, attributes map[string]string,
) (map[string]contract.Message, handler.Effect, error) {
	t.Helper()
	body := filetest.Must(shipped.Contracts.Decode(contract.MessageV1, fmt.Appendf(nil,
		`{"id":"e1","type":%q,"timestamp":"2026-11-20T08:59:58Z","version":1,"data":%s}`, eventType, data)))(t)
	registry := handler.NewRegistry()
	notifications.Register(registry, shipped)
	h, ok := registry.Lookup(notifications.FanOut)
	require.True(t, ok)
	event := handler.Event{
		Queue: "notifications-fanout", Tenant: "default", ID: "e1", Type: eventType, CorrelationID: "req-1",
		PublishedAt: start, Body: body, Attributes: attributes,
	}
	effect, err := h.Tx(t.Context(), event)
	if err != nil {
		return nil, effect, err
	}
	messages := map[string]contract.Message{}
	for i, emission := range effect.Emit {
		require.Equal(t, "notifications-send", emission.To)
		_, m, err := shipped.Contracts.Compose(emission.Body, contract.Stamp{
			ID: lane.ID(event, i), RoutingKey: emission.RoutingKey, Since: emission.Since, At: start.Add(time.Hour),
		})
		require.NoError(t, err)
		messages[emission.RoutingKey] = m
	}
	return messages, effect, nil
}

// The age of an event that was kept before counts from its first publishing.
func TestAnEventBecomesAMessageForEachOfItsChannels(t *testing.T) {
	t.Parallel()
	send, _ := shipped.Queue("notifications-send")
	for eventType, data := range map[string]string{
		"order.confirmed":      `{"user_id":"u-1","order_id":"o-1"}`,
		"order.shipped":        `{"user_id":"u-1","order_id":"o-1"}`,
		"payment.failed":       `{"user_id":"u-1","order_id":"o-1","payment_id":"p-1"}`,
		"seller.order_created": `{"user_id":"u-1","order_id":"o-1"}`,
		"review.received":      `{"user_id":"u-1","product_id":"x-1"}`,
		"flash_sale.starting":  `{"user_id":"u-1","product_id":"x-1"}`,
	} {
		first := map[bool]string{true: "2026-11-19T10:00:00Z"}[strings.HasPrefix(eventType, "order.")]
		messages, effect, err := fanned(t, eventType, data, map[string]string{contract.AttrFirstPublished: first})
		require.NoError(t, err, eventType)
		require.Equal(t, notifications.FannedOut, effect.Result, eventType)
		require.Empty(t, effect.Writes, eventType)
		keys := filetest.Map(shipped.Notifications[eventType], func(channel string) string {
			return "notification." + channel + "." + strings.ReplaceAll(eventType, ".", "_")
		})
		require.ElementsMatch(t, keys, slices.Collect(maps.Keys(messages)))
		for key, m := range messages {
			var body struct {
				Type          string          `json:"type"`
				CorrelationID string          `json:"correlation_id"`
				Data          json.RawMessage `json:"data"`
			}
			require.NoError(t, json.Unmarshal(m.Data, &body))
			require.Equal(t, []string{key, "req-1"}, []string{body.Type, body.CorrelationID})
			require.JSONEq(t, data, string(body.Data))
			since := contract.TimeOf(m.Attributes[contract.AttrFirstPublished])
			require.Equal(t, cmp.Or(contract.TimeOf(first), start), since)
			require.Empty(t, m.OrderingKey, "the channels have no order")
			_, handled := send.Handler(body.Type)
			require.True(t, handled && send.Takes(m.Attributes), "the queue is bound to it")
		}
	}
}

func TestAnEventWithoutAUserOrAChannelIsADeadLetter(t *testing.T) {
	t.Parallel()
	_, _, err := fanned(t, "order.shipped", `{"order_id":"o-1"}`, nil)
	require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "user_missing", Counts: true},
		retry.Decide(err))
	_, _, err = fanned(t, "order.created", `{"order_id":"o-1","user_id":"u-1"}`, nil)
	require.Equal(t, "channels_missing", retry.Decide(err).Reason)
}

func TestEveryHandledEventTypeHasChannels(t *testing.T) {
	t.Parallel()
	c := *shipped
	c.Notifications = maps.Clone(c.Notifications)
	delete(c.Notifications, "review.received")
	require.ErrorContains(t, notifications.Check(&c),
		": queue notifications-fanout: event type review.received: notifications.yaml has no row for it")
	c.Queues = nil
	require.NoError(t, notifications.Check(&c), "a deployment without the queue")
}
