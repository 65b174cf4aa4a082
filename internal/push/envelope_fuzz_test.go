package push

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pii"
)

// FuzzDecodeEnvelope holds the decoder to the standard library's reading of the same
// body: what it accepts, the other one accepts too, with the same message in it.
func FuzzDecodeEnvelope(f *testing.F) {
	for _, body := range []string{
		`{"message":{"data":"e30=","attributes":{"event_id":"1"},"messageId":"1","message_id":"1","orderingKey":"k",
		"publishTime":"2026-03-02T10:15:00.123Z"},"subscription":"projects/p/subscriptions/s","deliveryAttempt":2}`,
		`{"message":{"messageId":"1"}}`, `{"message":{"messageId":"1","data":null,"attributes":null}}`, `{"message":{}}`, `{}`, ``,
		`{"message":{"messageId":"1","data":"="}}`, `{"message":{"messageid":"1"}}`,
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
		var other struct {
			Message struct {
				Data       []byte            `json:"data"`
				Attributes map[string]string `json:"attributes"`
			} `json:"message"`
		}
		require.NoError(t, json.Unmarshal(body, &other))
		// encoding/json also takes names in another case, and the last of several.
		if string(other.Message.Data) == string(d.message.Data) {
			require.Equal(t, len(other.Message.Attributes), len(d.message.Attributes))
		}
	})
}
