package dedupe

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"billhook/internal/platform/store"
)

// Shards is how many parts the time index of the records has: one takes about 500 writes a second, since its times rise.
const Shards = 8

const (
	fieldShard   = "shard"
	fieldCreated = "created_at"
)

// MaxListed is the most that a page of the job log holds.
const MaxListed = 200

// spare is how many documents of each part are read beyond a quarter of the page, twice a part's share of it.
const spare = 6

// Listing asks for a page of the job log.
type Listing struct {
	// Equal are queue, status, event_type, event_id, correlation_id, ordering_key or customer of the records.
	Equal map[string]any
	// Since and Until bound the time of creation: not before Since, before Until. A zero time is none.
	Since, Until time.Time
	After        store.Cursor
	// Limit is how many records it holds, 1 to MaxListed.
	Limit int
}

// List returns a page of the job log, the newest first, ties by the record's id, the greatest first. next is
// zero where no record is behind it. The database reads at most a quarter of the limit, and spare, of each part, however
// many records there are. Where so many of a part are newer than the others', the page is shorter than the limit.
func List(ctx context.Context, from store.Querier, page Listing) (records []Record, next store.Cursor, err error) {
	var parts [Shards]store.Page
	most := min(page.Limit, page.Limit/4+spare)
	err = store.AtOnce(ctx, Shards, func(ctx context.Context, shard int) (err error) {
		equal := map[string]any{fieldShard: int64(shard)}
		maps.Copy(equal, page.Equal)
		parts[shard], err = from.Query(ctx, store.Query{
			Collection: Collection, Equal: equal, After: page.After, Limit: most,
			Newest: &store.Newest{Field: fieldCreated, Since: page.Since, Until: page.Until},
		})
		return err
	})
	if err != nil {
		return nil, next, err
	}
	var found []store.Document
	var unread store.Cursor // behind it a part may have more than was read
	for _, part := range parts {
		found = append(found, part.Documents...)
		if len(part.Documents) == most && later(cursorOf(part.Documents[most-1]), unread) > 0 {
			unread = cursorOf(part.Documents[most-1])
		}
	}
	slices.SortFunc(found, func(a, b store.Document) int { return later(cursorOf(b), cursorOf(a)) })
	for _, doc := range found {
		at := cursorOf(doc)
		if len(records) == page.Limit || later(unread, at) > 0 {
			return records, next, nil
		}
		record, err := FromDocument(doc)
		if err != nil {
			return nil, store.Cursor{}, err
		}
		records, next = append(records, record), at
	}
	if unread.IsZero() {
		next = store.Cursor{}
	}
	return records, next, nil
}

func later(a, b store.Cursor) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) }

func cursorOf(doc store.Document) store.Cursor {
	at, _ := doc.Fields[fieldCreated].(time.Time)
	return store.Cursor{At: at, ID: doc.Key.ID}
}
