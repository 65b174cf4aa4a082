package standin_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

var indexedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func wanted(id string) store.Write {
	return store.Set(store.Key{Collection: "c", ID: id}, map[string]any{"state": "open", "names": []any{"n"}, "at": indexedAt})
}

func TestALongTextIsFoundByItself(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	long := strings.Repeat("x", 50_000)
	for id, text := range map[string]string{"a": long, "b": long + "x", "c": long[:200], "d": long[:201]} {
		_, err := s.Commit(t.Context(), []store.Write{store.Set(store.Key{Collection: "c", ID: id}, map[string]any{"text": text})})
		require.NoError(t, err)
	}
	for id, text := range map[string]string{"a": long, "b": long + "x", "c": long[:200], "d": long[:201]} {
		page, err := s.Query(t.Context(), store.Query{Collection: "c", Equal: map[string]any{"text": text}, Limit: 9})
		require.NoError(t, err)
		require.Len(t, page.Documents, 1)
		require.Equal(t, id, page.Documents[0].Key.ID)
	}
}

// Two values that many documents have, and few have both.
func TestACountLooksAtWhatItCounts(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	var writes []store.Write
	for i := range 400 {
		fields := map[string]any{"queue": "a", "status": "failed"}
		if i%2 == 0 {
			fields = map[string]any{"queue": "b", "status": "done"}
		}
		if i < 3 {
			fields = map[string]any{"queue": "a", "status": "done"}
		}
		writes = append(writes, store.Create(store.Key{Collection: "c", ID: fmt.Sprintf("%03d", 399-i)}, fields))
	}
	_, err := s.Commit(t.Context(), writes)
	require.NoError(t, err)
	before := s.Looked()
	for limit, want := range map[int]int64{2: 2, 100: 3} {
		page, err := s.Query(t.Context(), store.Query{Collection: "c", Equal: map[string]any{"queue": "a", "status": "done"}, Count: true, Limit: limit})
		require.NoError(t, err)
		require.Equal(t, want, page.Count)
	}
	require.EqualValues(t, 5, s.Looked()-before)
}

func TestAQueryThatEndsWhileItWaitsMakesNoIndex(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	_, err := s.Commit(t.Context(), []store.Write{wanted("a")})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Query(ctx, store.Query{Collection: "c", Equal: map[string]any{"state": "open"}, Limit: 1})
	require.ErrorIs(t, err, context.Canceled)
}

// fill stores so many documents like the records of events.
func fill(b *testing.B, s *standin.Store, documents int) {
	b.Helper()
	for first := 0; first < documents; first += store.MaxWrites {
		var writes []store.Write
		for i := first; i < first+store.MaxWrites; i++ {
			writes = append(writes, record(i))
		}
		_, err := s.Commit(b.Context(), writes)
		require.NoError(b, err)
	}
}

func record(i int) store.Write {
	at := indexedAt.Add(time.Duration(i) * time.Millisecond)
	status := "COMPLETED"
	if i%1000 == 0 {
		status = "FAILED"
	}
	return store.Create(store.Key{Collection: "events", ID: fmt.Sprintf("%08x-%d", uint32(i)*2654435761, i)}, map[string]any{
		"queue": "orders", "tenant": "default", "event_id": fmt.Sprint(i), "event_type": "order.paid", "status": status, "hour": at.Format("2006-01-02T15"),
		"payload_hash": strings.Repeat("0", 64), "attempts": int64(1), "correlation_id": fmt.Sprint("c", i), "created_at": at, "updated_at": at,
		"expire_at": at.Add(720 * time.Hour), "message_id": fmt.Sprint(i), "names": []any{"default", "orders"},
	})
}

var benchmarked = map[string]store.Query{
	"equal":       {Equal: map[string]any{"event_id": "777"}},
	"equal-twice": {Equal: map[string]any{"queue": "orders", "status": "FAILED"}},
	"hour":        {Equal: map[string]any{"queue": "orders", "hour": "2026-03-01T12"}},
	"correlation": {Equal: map[string]any{"correlation_id": "c777"}},
	"due":         {Due: &store.Due{Field: "expire_at", Until: indexedAt.Add(720 * time.Hour)}},
}

func BenchmarkQuery(b *testing.B) {
	s, err := standin.OpenTemporaryStore(filepath.Join(b.TempDir(), "store.db"))
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	fill(b, s, 50_000)
	for name, query := range benchmarked {
		query.Collection, query.Limit = "events", 20
		b.Run(name, func(b *testing.B) {
			_, err := s.Query(b.Context(), query) // makes the index
			require.NoError(b, err)
			for b.Loop() {
				_, err := s.Query(b.Context(), query)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkCommit creates one record in a commit, which is forced to the disk where it is durable.
// Where there are indexes, there are five of them.
func BenchmarkCommit(b *testing.B) {
	for name, open := range map[string]func(string) (*standin.Store, error){"durable": standin.OpenStore, "temporary": standin.OpenTemporaryStore} {
		for _, queried := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/queried=%t", name, queried), func(b *testing.B) {
				s, err := open(filepath.Join(b.TempDir(), "store.db"))
				require.NoError(b, err)
				defer func() { require.NoError(b, s.Close()) }()
				fill(b, s, 20_000)
				for _, query := range benchmarked {
					query.Collection, query.Limit = "events", 1
					if queried {
						_, err := s.Query(b.Context(), query)
						require.NoError(b, err)
					}
				}
				for i := 20_000; b.Loop(); i++ {
					_, err := s.Commit(b.Context(), []store.Write{record(i)})
					require.NoError(b, err)
				}
			})
		}
	}
}
