package push

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pii"
)

// FuzzDecodeEnvelope: any body is refused by the one error that repeats nothing of
// it, or gives a delivery that comes back the same from a push written with it.
func FuzzDecodeEnvelope(f *testing.F) {
	for _, body := range []string{
		`{"message":{"data":"e30=","attributes":{"event_id":"1"},"messageId":"1","message_id":"1","orderingKey":"k",
		"publishTime":"2026-03-02T10:15:00.123Z"},"subscription":"projects/p/subscriptions/s","deliveryAttempt":2}`,
		`{"message":{"messageId":"1"}}`, `{"message":{"messageId":"1","data":null,"attributes":null}}`, `{"message":{}}`, `{}`, ``,
		`{"message":{"messageId":"1","data":"="}}`, `{"message":{"messageid":"1"}}`, `{"message":{"messageId":"1"},"subscription":"////"}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := decodeEnvelope(body)
		if err != nil {
			require.Equal(t, errEnvelope, err)
			return
		}
		require.True(t, pii.ID.Valid(d.messageID))
		require.NotContains(t, d.subscription, "/")
		again, err := json.Marshal(map[string]any{
			"message": map[string]any{
				"data": d.message.Data, "attributes": d.message.Attributes, "messageId": d.messageID,
				"orderingKey": d.message.OrderingKey, "publishTime": d.publishedAt,
			},
			"subscription": d.subscription, "deliveryAttempt": d.attempt,
		})
		require.NoError(t, err)
		same, err := decodeEnvelope(again)
		require.NoError(t, err)
		require.True(t, d.publishedAt.Equal(same.publishedAt))
		same.publishedAt = d.publishedAt
		if len(d.message.Data) == 0 {
			d.message.Data, same.message.Data = nil, nil
		}
		require.Equal(t, d, same)
	})
}
