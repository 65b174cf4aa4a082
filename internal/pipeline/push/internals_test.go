package push

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pii"
	"billhook/internal/platform/serve"
)

// BodyBudget gives the service another budget of the bodies in flight, and returns how much of it is held.
func (s *Service) BodyBudget(bytes int64) (held func() int64) {
	s.bodies = serve.NewBudget(bytes)
	return s.bodies.Held
}

// Dispositions prints the table of dispositions. The last row of each state fits always.
func Dispositions() string {
	text := strings.Builder{}
	text.WriteString("| the message is not handled, since | and | so |\n| --- | --- | --- |\n")
	for i, r := range dispositions {
		var when []string
		for _, c := range r.when {
			when = append(when, c.text)
		}
		if last := i+1 == len(dispositions) || dispositions[i+1].state != r.state; last != (len(when) == 0) {
			panic(r.state)
		}
		fmt.Fprintf(&text, "| %s | %s | `%s` |\n", r.state, strings.Join(when, ", and "), r.then)
	}
	return text.String()
}

// notPushes are bodies that are no push requests.
var notPushes = []string{
	``, `null`, `[]`, `nonsense`, `{"message":{"messageId":"1"}}{"message":{"messageId":"2"}}`,
	`{"message":{}}`, `{"message":{"messageId":""}}`, `{"message":{"messageId":"a/b"}}`, `{"message":{"messageid":"1"}}`,
	`{"message":{"messageId":"` + strings.Repeat("1", 1500) + `"}}`,
	`{"message":{"messageId":"1","data":"***"}}`, `{"message":{"messageId":"1","data":"_-_-"}}`,
	`{"message":{"messageId":"1","attributes":{"a":1}}}`, `{"message":{"messageId":"1","attributes":{"a":"1","a":"2"}}}`,
	`{"message":{"messageId":"1"},"message":{"messageId":"2"}}`, `{"message":{"messageId":"1","publishTime":"yesterday"}}`,
	`{"message":{"messageId":"1"},"deliveryAttempt":1e400}`, "{\"message\":{\"messageId\":\"1\",\"attributes\":{\"a\":\"\xff\"}}}",
	strings.Repeat(`{"message":`, 100_000),
}

func TestBodyThatIsNoPushRequestIsRefused(t *testing.T) {
	t.Parallel()
	for _, body := range notPushes {
		_, err := decodeEnvelope([]byte(body))
		require.Equal(t, errEnvelope, err, "%.80s", body)
	}
	_, err := decodeEnvelope([]byte(`{"new":[1,{"deep":null}],"message":{"newer":1e400,"messageId":"1"}}`))
	require.NoError(t, err, "unknown members are passed over")
}

// FuzzDecodeEnvelope: any body is refused by the one error that repeats nothing of it, or gives a
// delivery that comes back the same from a push written with it.
func FuzzDecodeEnvelope(f *testing.F) {
	for _, body := range []string{
		`{"message":{"data":"e30=","attributes":{"event_id":"1"},"messageId":"1","message_id":"1","orderingKey":"k",
		"publishTime":"2026-03-02T10:15:00.123Z"},"subscription":"projects/p/subscriptions/s","deliveryAttempt":2}`,
		`{"message":{"messageId":"1","data":null,"attributes":null}}`, `{"message":{"messageId":"1"},"subscription":"////"}`, `{}`,
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
			"subscription": d.subscription, "deliveryAttempt": d.number,
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
