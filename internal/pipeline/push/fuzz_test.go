package push_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
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

// FuzzPush posts any body to a healthy worker.
func FuzzPush(f *testing.F) {
	for _, body := range seeds() {
		f.Add(body)
	}
	r := newRig(f, setup{log: slog.DiscardHandler})
	f.Fuzz(func(t *testing.T, body []byte) { r.settles(t, body) })
}

// FuzzEvent posts any message in a sound envelope to a healthy worker.
func FuzzEvent(f *testing.F) {
	for _, m := range []message{
		paid("e1", known, 1), paid("e1", known, 2), paid("e2", known, 1), paid("e2", unknown, 1), paid("e2", known, 0),
		paid("e2", known, 1).with(func(m *message) { m.attributes["tenant"] = "other" }),
		paid("e2", known, 1).with(func(m *message) { delete(m.attributes, "contract") }), {body: ""}, {body: "[]"}, {body: "{}"},
	} {
		f.Add(m.data(), m.attributes["event_id"], m.attributes["event_type"], m.attributes["contract"], m.attributes["tenant"], m.attributes["max_attempts"])
	}
	r := newRig(f, setup{log: slog.DiscardHandler})
	f.Fuzz(func(t *testing.T, data []byte, id, kind, format, tenant, attempts string) {
		m := message{id: "m-1", body: string(data), published: start, attributes: map[string]string{"ordering_key": buyer}}
		for name, value := range map[string]string{
			"event_id": id, "event_type": kind, "contract": format, "tenant": tenant, "max_attempts": attempts,
		} {
			if value != "" {
				m.attributes[name] = value
			}
		}
		r.settles(t, m.envelope())
	})
}

// settles posts a body twice to a worker that has credited e1 and nothing else. The
// answer is one of the table; it keeps what it acks (in the store, or as a dead
// letter); it fails with a 5xx only where the handler says that it may be tried
// again; and the second delivery of what was settled is acked and changes nothing.
func (r *rig) settles(t *testing.T, body []byte) {
	t.Helper()
	r.counter.Store, r.broker.letters = &memory{docs: map[store.Key]store.Document{}}, nil
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 2)).code)
	records := r.records(t)

	got := r.post("/push/orders", body)
	letters := len(r.letters())
	switch got.code {
	case http.StatusOK:
		require.Equal(t, "processed", got.Outcome)
		require.Equal(t, records+1, r.records(t), "what is acked is kept")
		require.Zero(t, letters)
	case http.StatusNoContent:
		require.Equal(t, records, r.records(t), "a duplicate leaves things as they are")
		require.Zero(t, letters)
	case http.StatusBadRequest, http.StatusConflict, http.StatusUnprocessableEntity:
		require.EqualValues(t, 2000, r.balance(t))
		if got.Code == "envelope_malformed" {
			require.Equal(t, http.StatusBadRequest, got.code)
			require.Zero(t, letters)
			return
		}
		require.Equal(t, "dead_lettered", got.Outcome)
		require.Equal(t, records+1, r.records(t))
		require.Equal(t, 1, letters)
	case http.StatusInternalServerError:
		require.Equal(t, "order_not_seen", got.Reason, "a refund before its order")
		require.Zero(t, letters)
		return
	default:
		t.Fatalf("status %d: %s", got.code, got.text)
	}
	records = r.records(t)
	require.Equal(t, http.StatusNoContent, r.post("/push/orders", body).code, "what is settled is acked when it comes again")
	require.Len(t, r.letters(), letters)
	require.Equal(t, records, r.records(t))
}

// FuzzDeadLetterPush posts any body as a dead letter to a healthy worker: it is kept
// or it is no push at all.
func FuzzDeadLetterPush(f *testing.F) {
	for _, body := range seeds() {
		f.Add(body)
	}
	r := newRig(f, setup{log: slog.DiscardHandler})
	f.Fuzz(func(t *testing.T, body []byte) {
		r.counter.Store = &memory{docs: map[store.Key]store.Document{}}
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
		if query.After = page.Next; page.Next.IsZero() {
			return n
		}
	}
}

// memory is a store in a map for one caller at a time: a fuzz target must begin
// anew with every input, and a file is too slow for that.
type memory struct {
	docs map[store.Key]store.Document
	last store.Version
}

func (m *memory) Get(_ context.Context, key store.Key) (store.Document, error) {
	doc, ok := m.docs[key]
	if !ok {
		return store.Document{}, store.ErrNotFound
	}
	return doc, nil
}

func (m *memory) Query(_ context.Context, q store.Query) (store.Page, error) {
	var page store.Page
	for key, doc := range m.docs {
		if key.Collection == q.Collection && strings.HasPrefix(key.ID, q.IDPrefix) {
			page.Documents = append(page.Documents, doc)
		}
	}
	slices.SortFunc(page.Documents, func(a, b store.Document) int { return strings.Compare(a.Key.ID, b.Key.ID) })
	return page, nil
}

func (m *memory) Commit(_ context.Context, writes []store.Write) ([]store.Version, error) {
	if err := store.CheckWrites(writes); err != nil {
		return nil, err
	}
	for _, w := range writes {
		have, ok := m.docs[w.Key]
		switch {
		case w.Op == store.OpCreate && ok:
			return nil, store.ErrExists
		case w.Version != 0 && have.Version != w.Version:
			return nil, store.ErrStale
		}
	}
	for _, w := range writes {
		fields := maps.Clone(w.Fields)
		for name, add := range w.Add {
			old, _ := m.docs[w.Key].Fields[name].(int64)
			fields[name] = old + add
		}
		m.last++
		m.docs[w.Key] = store.Document{Key: w.Key, Fields: fields, Version: m.last}
	}
	return make([]store.Version, len(writes)), nil
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
