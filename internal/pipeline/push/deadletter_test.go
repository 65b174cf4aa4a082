package push_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

// items are the dead letters in the store.
func (r *rig) items(t *testing.T) []store.Document {
	t.Helper()
	page, err := r.counter.Query(context.Background(), store.Query{Collection: deadletter.Collection, Limit: 100})
	require.NoError(t, err)
	return page.Documents
}

// letter is a message of the dead-letter topic as Pub/Sub delivers it.
func letter(id string, m contract.Message) message {
	return message{id: id, body: string(m.Data), attributes: m.Attributes, published: start}
}

func TestADeadLetterIsKeptOncePerSourceMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	require.Equal(t, "unknown_product", r.deliver(paid("e1", unknown, 1)).Reason)
	told := r.log.lines(t, "delivery")[0]
	require.Equal(t, []any{"unknown_product", unknown + " *retry.Error"}, []any{told["reason"], told["cause"]}, "what it is about stands beside the reason")
	first, second := letter("dlq-1", r.letters()[0]), letter("dlq-2", r.letters()[0])
	for _, m := range []message{first, first, second} {
		got := r.post("/push/dead-letters/orders", m.envelope())
		require.Equal(t, http.StatusNoContent, got.code, got.text)
		require.Empty(t, got.text)
	}
	items := r.items(t)
	require.Len(t, items, 1)
	for field, want := range map[string]any{
		"queue": "orders", "event_id": "e1", "reason": "unknown_product", "status": int64(400), "detail": unknown, "attempts": int64(1),
		"source_message_id": "m-e1", "data": string(paid("e1", unknown, 1).data()),
	} {
		require.Equal(t, want, items[0].Fields[field], field)
	}
	lines := r.log.lines(t, "dead letter kept")
	require.Len(t, lines, 3)
	require.Equal(t, true, lines[0]["new"])
	require.Equal(t, false, lines[2]["new"])
}

func TestADeadLetterOfTheBrokerIsKeptToo(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	bare := message{id: "77", body: "whatever it was", published: start}
	require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders", bare.envelope()).code)
	items := r.items(t)
	require.Len(t, items, 1)
	require.Equal(t, "delivery_attempts_exhausted", items[0].Fields["reason"])
	require.Equal(t, "77", items[0].Fields["source_message_id"])
}

func TestADeadLetterThatCannotBeKeptStaysOnItsTopic(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.faults.Down(true)
	bare := message{id: "77", body: "ilse@example.org", published: start}
	got := r.post("/push/dead-letters/orders", bare.envelope())
	require.Equal(t, http.StatusServiceUnavailable, got.code)
	require.Equal(t, "store_unavailable", got.Code)
	r.faults.Down(false)
	require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders", bare.envelope()).code)
	require.Len(t, r.items(t), 1)
	require.NotContains(t, r.log.String()+got.text, "ilse")
}
