package standin_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// TestPagesLeaveOutWhatCannotBeReadAndNothingElse goes through all pages of any size, by id and by time.
func TestPagesLeaveOutWhatCannotBeReadAndNothingElse(t *testing.T) {
	t.Parallel()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		collection := fmt.Sprint("list-", round)
		var good, damaged []string
		start := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
		for n := range rapid.IntRange(0, 12).Draw(t, "documents") {
			fields := map[string]any{"at": start.Add(-time.Duration(n/2) * time.Second)} // in the order of their ids, two at a time
			id := fmt.Sprintf("%02d", n)
			if rapid.Bool().Draw(t, "damaged") {
				fields["damaged"], damaged = true, append(damaged, id)
			} else {
				good = append(good, id)
			}
			_, err := db.Commit(context.Background(), []store.Write{store.Create(store.Key{Collection: collection, ID: id}, fields)})
			require.NoError(t, err)
		}
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		for _, query := range []store.Query{
			{Collection: collection, Limit: limit},
			{Collection: collection, Limit: limit, Newest: &store.Newest{Field: "at"}},
		} {
			skipped := map[string]bool{}
			lists := store.Readable{
				Store: db, Skipped: func(_ context.Context, key store.Key) { skipped[key.ID] = true },
				Check: map[string]func(store.Document) error{collection: func(doc store.Document) error {
					if doc.Fields["damaged"] != nil {
						return errors.New("damaged")
					}
					return nil
				}},
			}
			var seen []string
			for {
				page, err := lists.Query(context.Background(), query)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Documents), limit)
				for _, doc := range page.Documents {
					seen = append(seen, doc.Key.ID)
				}
				if len(page.Documents) < limit { // as lists by time tell that there is no next page
					break
				}
				if query.Newest == nil {
					if query.After = page.Next; query.After.IsZero() {
						break
					}
					continue
				}
				last := page.Documents[limit-1]
				at, _ := last.Fields["at"].(time.Time)
				query.After = store.Cursor{At: at, ID: last.Key.ID}
			}
			require.ElementsMatch(t, good, seen)
			for _, id := range damaged {
				require.True(t, skipped[id], "it is told of")
			}
			require.Len(t, skipped, len(damaged))
		}
	})
}
