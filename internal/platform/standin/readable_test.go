package standin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/platform/store"
)

// TestPagesLeaveOutWhatCannotBeReadAndNothingElse goes through all pages of any size, by id and by time.
func TestPagesLeaveOutWhatCannotBeReadAndNothingElse(t *testing.T) {
	t.Parallel()
	db, round := openStore(t), 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		collection := fmt.Sprint("list-", round)
		var good, damaged []string
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
		for _, newest := range []*store.Newest{nil, {Field: "at"}} {
			var seen, skipped []string
			lists := store.Readable{
				Store: db, Skipped: func(_ context.Context, key store.Key) { skipped = append(skipped, key.ID) },
				Check: map[string]func(store.Document) error{collection: func(doc store.Document) error {
					if doc.Fields["damaged"] != nil {
						return errors.New("damaged")
					}
					return nil
				}},
			}
			query := store.Query{Collection: collection, Limit: limit, Newest: newest}
			for last := false; !last; {
				page, err := lists.Query(context.Background(), query)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page.Documents), limit)
				for _, doc := range page.Documents {
					seen = append(seen, doc.Key.ID)
					at, _ := doc.Fields["at"].(time.Time)
					query.After = store.Cursor{At: at, ID: doc.Key.ID}
				}
				last = len(page.Documents) < limit // as lists by time tell that there is no next page
				if newest == nil {
					query.After = page.Next
					last = last || page.Next.IsZero()
				}
			}
			require.ElementsMatch(t, good, seen)
			require.Subset(t, skipped, damaged, "it is told of")
			require.Subset(t, damaged, skipped)
		}
	})
}
