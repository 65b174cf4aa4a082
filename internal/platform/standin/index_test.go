package standin_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/store"
)

func TestALongTextIsFoundByItself(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	long := strings.Repeat("x", 50_000)
	texts := map[string]string{"a": long, "b": long + "x", "c": long[:200], "d": long[:201]}
	for id, text := range texts {
		_, err := s.Commit(t.Context(), []store.Write{store.Set(store.Key{Collection: "c", ID: id}, map[string]any{"text": text})})
		require.NoError(t, err)
	}
	for id, text := range texts {
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
	both := store.Query{Collection: "c", Equal: map[string]any{"queue": "a", "status": "done"}, Count: true}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	both.Limit = 2
	_, err = s.Query(ended, both)
	require.ErrorIs(t, err, context.Canceled, "no index is made for a caller that is gone")
	before := s.Looked()
	for limit, want := range map[int]int64{2: 2, 100: 3} {
		both.Limit = limit
		page, err := s.Query(t.Context(), both)
		require.NoError(t, err)
		require.Equal(t, want, page.Count)
	}
	require.EqualValues(t, 5, s.Looked()-before)
}
