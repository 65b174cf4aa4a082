package seal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// stream reads entries in the order of their positions, those of all shards.
type stream struct {
	from store.Querier
	// tenant is whose entries they are; empty: those of all.
	tenant string
	// after is the position behind which it begins, and until the time of the last; zero: it has no end.
	after store.Cursor
	until time.Time

	begun  bool
	shards [ledger.Shards]struct {
		after     store.Cursor
		documents []store.Document
		whole     bool
	}
}

var forever = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// next returns the next entries, up to a position; none: these were all.
func (s *stream) next(ctx context.Context) (some []store.Document, err error) {
	end := store.Cursor{At: forever}
	for i := range s.shards {
		shard := &s.shards[i]
		if !s.begun {
			shard.after = s.after
		}
		if len(shard.documents) < store.MaxPage/2 && !shard.whole {
			query := store.Query{
				Collection: ledger.Entries, Equal: map[string]any{"shard": int64(i)}, Due: &store.Due{Field: "committed_at", Until: s.until},
			}
			if s.tenant != "" {
				query = store.Query{
					Collection: ledger.Entries, Equal: map[string]any{"shard": int64(i), "tenant": s.tenant}, Due: &store.Due{Field: "committed_at", Until: s.until},
				}
			}
			query.After, query.Limit = shard.after, store.MaxPage
			if s.until.IsZero() {
				query.Due.Until = forever
			}
			page, err := s.from.Query(ctx, query)
			if err != nil {
				return nil, fmt.Errorf("seal: read entries: %w", err)
			}
			shard.documents, shard.whole = append(shard.documents, page.Documents...), len(page.Documents) < store.MaxPage
		}
		if n := len(shard.documents); n > 0 {
			shard.after = ledger.Position(shard.documents[n-1])
			if !shard.whole && shard.after.Compare(end) < 0 {
				end = shard.after
			}
		}
	}
	s.begun = true
	// All of one time come together, unless that is more than a page.
	for _, last := range []store.Cursor{{At: end.At}, end} {
		for i := range s.shards {
			shard := &s.shards[i]
			n := slices.IndexFunc(shard.documents, func(doc store.Document) bool { return ledger.Position(doc).Compare(last) > 0 })
			if n < 0 {
				n = len(shard.documents)
			}
			some, shard.documents = append(some, shard.documents[:n]...), shard.documents[n:]
		}
		if len(some) > 0 {
			break
		}
	}
	slices.SortFunc(some, func(a, b store.Document) int { return ledger.Position(a).Compare(ledger.Position(b)) })
	return some, nil
}

// rest returns all that is left of it, and, asked again, what has come since.
func (s *stream) rest(ctx context.Context) (all []store.Document, err error) {
	for i := range s.shards {
		s.shards[i].whole = false
	}
	for {
		some, err := s.next(ctx)
		if err != nil || len(some) == 0 {
			return all, err
		}
		all = append(all, some...)
	}
}
