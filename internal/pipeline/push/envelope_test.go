package push_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
)

func TestARequestThatIsNoPushIsRefused(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"no body":                              "",
		"no JSON":                              "nonsense",
		"half of one":                          `{"message":{"messageId":"1","data":"e30="`,
		"a list":                               `[]`,
		"null":                                 `null`,
		"two documents":                        `{"message":{"messageId":"1"}}{"message":{"messageId":"2"}}`,
		"no message":                           `{"subscription":"projects/p/subscriptions/s"}`,
		"a message without an id":              `{"message":{"data":"e30="}}`,
		"a message with an empty id":           `{"message":{"messageId":""}}`,
		"a message id that is no id":           `{"message":{"messageId":"a/b"}}`,
		"a message id of 1500 bytes":           `{"message":{"messageId":"` + strings.Repeat("1", 1500) + `"}}`,
		"a message id that is a number":        `{"message":{"messageId":1}}`,
		"a message that is a string":           `{"message":"x"}`,
		"data that is no base64":               `{"message":{"messageId":"1","data":"***"}}`,
		"data of the URL alphabet":             `{"message":{"messageId":"1","data":"_-_-"}}`,
		"data that is an object":               `{"message":{"messageId":"1","data":{}}}`,
		"attributes that are a list":           `{"message":{"messageId":"1","attributes":["a"]}}`,
		"an attribute that is a number":        `{"message":{"messageId":"1","attributes":{"a":1}}}`,
		"an attribute given twice":             `{"message":{"messageId":"1","attributes":{"a":"1","a":"2"}}}`,
		"a message given twice":                `{"message":{"messageId":"1"},"message":{"messageId":"2"}}`,
		"a time that is none":                  `{"message":{"messageId":"1","publishTime":"yesterday"}}`,
		"a delivery attempt that is no number": `{"message":{"messageId":"1"},"deliveryAttempt":"2"}`,
		"a delivery attempt of 1e400":          `{"message":{"messageId":"1"},"deliveryAttempt":1e400}`,
		"a delivery attempt that is NaN":       `{"message":{"messageId":"1"},"deliveryAttempt":NaN}`,
		"invalid UTF-8":                        "{\"message\":{\"messageId\":\"1\",\"attributes\":{\"a\":\"\xff\"}}}",
		"deep nesting":                         strings.Repeat(`{"message":`, 100_000),
	} {
		for _, path := range []string{"/push/orders", "/push/dead-letters/orders"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, setup{})
				got := r.post(path, []byte(body))
				require.Equal(t, http.StatusBadRequest, got.code)
				require.Equal(t, "envelope_malformed", got.Code)
				require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
				require.Empty(t, r.letters())
				require.Zero(t, r.counter.Gets.Load()+r.counter.Commits.Load())
			})
		}
	}
}

func TestUnknownMembersOfAPushAreIgnored(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	body := bytes.Replace(paid("e1", known, 1).envelope(), []byte(`{"message":{`), []byte(`{"new":[1,{"deep":null}],"message":{"newer":1e400,`), 1)
	require.Equal(t, http.StatusOK, r.post("/push/orders", body).code)
}

func TestABodyThatIsTooLargeIsNotRead(t *testing.T) {
	t.Parallel()
	for name, length := range map[string]int64{"that says so": 1 << 30, "that does not say": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{})
			endless := &zeros{}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push/orders", endless)
			request.Header.Set("Authorization", "Bearer good")
			request.ContentLength = length
			got := r.serve(request)
			require.Equal(t, http.StatusRequestEntityTooLarge, got.code)
			require.Equal(t, "too_large", got.Code)
			require.Less(t, endless.read, 32<<20)
			if length > 0 {
				require.Zero(t, endless.read)
			}
		})
	}
}

// zeros is a body without an end.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	z.read += len(p)
	return len(p), nil
}

func TestABodyThatBreaksOffIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	whole := paid("e1", known, 1).envelope()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push/orders", bytes.NewReader(whole[:len(whole)/2]))
	request.Header.Set("Authorization", "Bearer good")
	request.ContentLength = int64(len(whole))
	got := r.serve(request)
	require.Equal(t, http.StatusServiceUnavailable, got.code)
	require.Equal(t, "body_unread", got.Code)
	require.Empty(t, r.letters())
}

func TestTheLargestMessageOfPubSubIsTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	m := paid("e1", known, 1).with(func(m *message) {
		for i := range 70 {
			m.attributes[fmt.Sprintf("own-%02d", i)] = strings.Repeat("\x01", 1024)
		}
		m.body = strings.Repeat("x", contract.MaxMessageBytes-contract.Message{Attributes: m.attributes}.Size())
	})
	got := r.deliver(m)
	require.Equal(t, http.StatusBadRequest, got.code)
	require.Equal(t, "body_malformed", got.Reason)
	_, ok := r.recordAt(t, dedupe.MessageKey("orders", m.id, m.data()))
	require.True(t, ok)
	letter := r.letters()[0]
	require.True(t, bytes.Equal(m.data(), letter.Data))
	require.Contains(t, letter.Attributes["dead_letter_detail"], "attributes left out or cut", "for those of the dead letter")
}
