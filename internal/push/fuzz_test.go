package push_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/store"
)

// seeds are bodies that a push endpoint may see.
func seeds() [][]byte {
	bodies := [][]byte{
		paid("e1", known, 1).envelope(), paid("e1", known, 1).again(2).envelope(), paid("e1", unknown, 1).envelope(),
		paid("e1", known, 0).envelope(), paid("e1", known, 1).with(crowd).envelope(), paid("e1", known, 1).with(once).envelope(),
		paid("e1", known, 1).with(func(m *message) { m.attributes["tenant"] = "~/%" }).envelope(),
		paid("e1", known, 1).with(func(m *message) { m.attributes["contract"] = "envelope.v1" }).envelope(),
		message{id: "1", body: "", published: start}.envelope(),
		message{id: "1", body: `{"eventId":"e1","eventType":"order.paid","timestamp":"x","data":{}}`, published: start}.envelope(),
	}
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"message":{"messageId":"1"}}`, `{"message":{"messageId":"1","data":"AA=="},"deliveryAttempt":-1}`,
		`{"message":{"messageId":"1","attributes":{"":"","__x__":"y"}}}`, `{"message":{"messageId":"1","publishTime":"9999-12-31T23:59:59Z"}}`,
		`{"message":{"messageId":"` + strings.Repeat("x", 128) + `","data":"////"},"subscription":"////"}`,
	} {
		bodies = append(bodies, []byte(body))
	}
	return bodies
}

// FuzzPush posts any body twice to a healthy worker. Its answer is one of the table,
// it keeps what it acks (in the store, or as a dead letter), it never fails with a
// 5xx but for what the handler itself may try again, and the second delivery of what
// was settled is acked.
func FuzzPush(f *testing.F) {
	for _, body := range seeds() {
		f.Add(body)
	}
	r := newRig(f, setup{})
	f.Fuzz(func(t *testing.T, body []byte) {
		letters, records := len(r.letters()), r.records(t)
		got := r.post("/push/orders", body)
		switch got.code {
		case http.StatusOK:
			require.Equal(t, "processed", got.Outcome)
			_, ok := r.record(t, got.EventID)
			require.True(t, ok || r.records(t) > records, "what is acked is kept")
		case http.StatusNoContent:
			require.Equal(t, letters, len(r.letters()))
			require.Equal(t, records, r.records(t), "a duplicate leaves things as they are")
			require.Positive(t, records)
		case http.StatusBadRequest, http.StatusConflict, http.StatusUnprocessableEntity:
			if got.Code == "envelope_malformed" {
				require.Equal(t, http.StatusBadRequest, got.code)
				require.Equal(t, letters, len(r.letters()))
				return
			}
			require.Equal(t, "dead_lettered", got.Outcome)
			require.Equal(t, letters+1, len(r.letters()), "one dead letter")
		case http.StatusInternalServerError:
			require.Equal(t, "order_not_seen", got.Reason, "a refund before its order")
			return
		default:
			t.Fatalf("status %d: %s", got.code, got.text)
		}
		letters = len(r.letters())
		require.Equal(t, http.StatusNoContent, r.post("/push/orders", body).code, "what is settled is acked when it comes again")
		require.Equal(t, letters, len(r.letters()))
	})
}

// FuzzDeadLetterPush posts any body as a dead letter to a healthy worker: it is kept
// or it is no push at all.
func FuzzDeadLetterPush(f *testing.F) {
	for _, body := range seeds() {
		f.Add(body)
	}
	r := newRig(f, setup{})
	f.Fuzz(func(t *testing.T, body []byte) {
		got := r.post("/push/dead-letters/orders", body)
		require.Contains(t, []int{http.StatusNoContent, http.StatusBadRequest}, got.code, got.text)
	})
}

// records counts the records that there are.
func (r *rig) records(t require.TestingT) int {
	var n int
	query := store.Query{Collection: dedupe.Collection, Limit: store.MaxPage}
	for {
		page, err := r.counter.Query(context.Background(), query)
		require.NoError(t, err)
		n += len(page.Documents)
		if query.After = page.Next; page.Next == "" {
			return n
		}
	}
}

func TestTheSeedsCoverEveryAnswer(t *testing.T) {
	t.Parallel()
	var codes []int
	r := newRig(t, setup{})
	for _, body := range seeds() {
		codes = append(codes, r.post("/push/orders", body).code)
	}
	slices.Sort(codes)
	require.Equal(t, []int{200, 204, 400, 409, 422}, slices.Compact(codes))
}
