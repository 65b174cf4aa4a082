package seal

import (
	"context"
	"iter"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

type documents iter.Seq2[store.Document, error]

// end is after all positions.
var end = store.Cursor{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}

// stream yields the entries of a tenant, or of all tenants if it is empty, from all shards in the order of
// their positions: after one position, up to another. It ends after an error.
func stream(ctx context.Context, from ledger.Reader, tenant string, after, until store.Cursor) documents {
	var shards [ledger.Shards]struct {
		query store.Query // for the entries after those in read
		read  []store.Document
		whole bool
	}
	for i := range shards {
		q := store.Query{
			Equal: map[string]any{"shard": int64(i)}, Due: &store.Due{Field: "committed_at", Until: until.At},
		}
		if tenant != "" {
			q = store.Query{
				Equal: map[string]any{"shard": int64(i), "tenant": tenant},
				Due:   &store.Due{Field: "committed_at", Until: until.At},
			}
		}
		q.Collection, q.After, q.Limit = ledger.Entries, after, store.MaxPage
		shards[i].query = q
	}
	return func(yield func(store.Document, error) bool) {
		for {
			first, at := -1, until
			for i := range shards {
				s := &shards[i]
				if len(s.read) == 0 && !s.whole {
					page, err := from.Query(ctx, s.query)
					if err != nil {
						yield(store.Document{}, err)
						return
					}
					s.read, s.whole = page.Documents, len(page.Documents) < store.MaxPage
				}
				if len(s.read) > 0 && ledger.Position(s.read[0]).Compare(at) <= 0 {
					first, at = i, ledger.Position(s.read[0])
				}
			}
			if first < 0 {
				return
			}
			s := &shards[first]
			doc := s.read[0]
			s.query.After, s.read = at, s.read[1:]
			if !yield(doc, nil) {
				return
			}
		}
	}
}

func (d documents) all() (all []store.Document, err error) {
	for doc, err := range d {
		if err != nil {
			return nil, err
		}
		all = append(all, doc)
	}
	return all, nil
}
