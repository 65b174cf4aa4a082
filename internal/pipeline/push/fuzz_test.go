package push_test

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/platform/standin"
)

// FuzzPush posts any body to a healthy worker, as a message and as a dead letter, which is kept or is no push at all.
func FuzzPush(f *testing.F) {
	for _, m := range []message{
		paid("e1", known, 1), paid("e1", known, 1).again(2), paid("e1", unknown, 1), paid("e1", known, 0), paid("e1", known, 1).with(crowd),
		paid("e1", known, 1).with(once), paid("e1", known, 1).set("tenant", "~/%"), paid("e1", known, 1).set("contract", "envelope.v1"), raw(""),
		raw(`{"eventId":"e1","eventType":"order.paid","timestamp":"x","data":{}}`),
	} {
		f.Add(m.envelope())
	}
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"message":{"messageId":"1"}}`, `{"message":{"messageId":"1","data":"AA=="},"deliveryAttempt":-1}`,
		`{"message":{"messageId":"1","attributes":{"":"","__x__":"y"}}}`, `{"message":{"messageId":"1","publishTime":"9999-12-31T23:59:59Z"}}`,
		`{"message":{"messageId":"` + strings.Repeat("x", 128) + `","data":"////"},"subscription":"////"}`,
	} {
		f.Add([]byte(body))
	}
	r := newRig(f, setup{log: slog.DiscardHandler})
	f.Fuzz(func(t *testing.T, body []byte) {
		r.settles(t, body)
		got := r.post("/push/dead-letters/orders", body)
		require.Contains(t, []int{http.StatusNoContent, http.StatusBadRequest}, got.code, got.text)
	})
}

// FuzzEvent posts any message in a sound envelope to a healthy worker.
func FuzzEvent(f *testing.F) {
	names := []string{"event_id", "event_type", "contract", "tenant", "max_attempts"}
	for _, m := range []message{
		paid("e1", known, 1), paid("e1", known, 2), paid("e2", known, 1), paid("e2", unknown, 1), paid("e2", known, 0),
		paid("e2", known, 1).set("tenant", "other"), paid("e2", known, 1).without("contract"), raw(""), raw("[]"), raw("{}"),
	} {
		f.Add(m.data(), m.attributes[names[0]], m.attributes[names[1]], m.attributes[names[2]], m.attributes[names[3]], m.attributes[names[4]])
	}
	r := newRig(f, setup{log: slog.DiscardHandler})
	f.Fuzz(func(t *testing.T, data []byte, id, kind, format, tenant, attempts string) {
		m := raw(string(data), "ordering_key", buyer)
		for i, value := range []string{id, kind, format, tenant, attempts} {
			if value != "" {
				m = m.set(names[i], value)
			}
		}
		r.settles(t, m.envelope())
	})
}

// settles posts a body twice to a worker that has done e1 and nothing else. What is acked is kept, in the store or as a
// dead letter, and the second delivery of what was settled is acked and changes nothing.
func (r *rig) settles(t *testing.T, body []byte) {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	r.db, r.counter.Store, r.broker.taken[dlq] = db, db, nil
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 2)).code)
	kept := func() [2]int { return [2]int{len(r.documents(dedupe.Collection)), len(r.letters())} }
	got := r.post("/push/orders", body)
	want, is := map[string][2]int{"processed": {2, 0}, "dead_lettered": {2, 1}, "": {1, 0}}[got.Outcome]
	require.True(t, is, got.text)
	require.Equal(t, want, kept(), got.text)
	switch {
	case got.Outcome == "dead_lettered":
		require.EqualValues(t, 1, r.effects("e1"))
	case got.Outcome == "" && got.code != http.StatusNoContent:
		require.Equal(t, []any{http.StatusBadRequest, "envelope_malformed"}, []any{got.code, got.Code})
		return
	}
	require.Equal(t, http.StatusNoContent, r.post("/push/orders", body).code, "what is settled is acked when it comes again")
	require.Equal(t, want, kept())
}
