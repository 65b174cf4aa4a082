package dedupe

import (
	"context"
	"maps"
	"slices"
	"time"

	"billhook/internal/platform/store"
)

// Shards is how many parts the time index of the records has: each takes 500 writes a second of rising times.
const Shards = 8

const (
	fieldShard = "shard"
	fieldEvent = "event_id"
)

// MaxListed is the largest page of the job log.
const MaxListed = 200

// spare is how many documents of each part are read in addition to a quarter of the page. A quarter is twice
// a part's share.
const spare = 6

// Listing selects a page of the job log.
type Listing struct {
	// Equal selects records by queue, tenant, status, event_type, event_id, correlation_id, ordering_key or
	// customer.
	Equal map[string]any
	// Since and Until bound the time of creation: not before Since, before Until. A zero time is no bound.
	Since, Until time.Time
	After        store.Cursor
	// Limit is how many records it holds, 1 to MaxListed.
	Limit int
}

// List returns a page of the job log, newest first; at equal times the greatest id comes first. next is zero
// on the last page. For any number of records, the database reads of each part at most a quarter of the
// limit, and spare. The page is shorter if the newest are all in one part. The records of one event id are
// few, and one query reads them.
func List(
	ctx context.Context, from store.Querier, page Listing,
) (records []Record, next store.Cursor, err error) {
	type listed struct {
		Record
		at store.Cursor
	}
	var parts [Shards][]listed
	var ends [Shards]store.Cursor // of the parts that may have more than was read
	most, queries := min(page.Limit, page.Limit/4+spare), Shards
	if page.Equal[fieldEvent] != nil {
		most, queries = page.Limit, 1
	}
	from = store.Few{Querier: from, Field: fieldEvent}
	err = store.AtOnce(ctx, queries, func(ctx context.Context, shard int) (err error) {
		query := page.part(shard, most)
		if queries == 1 {
			query.Equal = page.Equal
		}
		parts[shard], ends[shard], err = store.List(ctx, from, query, func(doc store.Document) (listed, error) {
			record, err := FromDocument(doc)
			return listed{record, store.Cursor{At: record.CreatedAt, ID: doc.Key.ID}}, err
		})
		return err
	})
	if err != nil {
		return nil, next, err
	}
	found, unread := slices.Concat(parts[:]...), slices.MaxFunc(ends[:], store.Cursor.Compare)
	slices.SortFunc(found, func(a, b listed) int { return b.at.Compare(a.at) })
	for _, one := range found {
		if len(records) == page.Limit || unread.Compare(one.at) > 0 {
			return records, next, nil
		}
		records, next = append(records, one.Record), one.at
	}
	if unread.IsZero() {
		next = store.Cursor{}
	}
	return records, next, nil
}

// part returns the query for the newest records of one part.
func (page Listing) part(shard, most int) store.Query {
	equal := map[string]any{fieldShard: int64(shard)}
	maps.Copy(equal, page.Equal)
	return store.Query{
		Collection: Collection, Equal: equal, After: page.After, Limit: most,
		Newest: &store.Newest{Field: "created_at", Since: page.Since, Until: page.Until},
	}
}

// Count counts the records of a listing, each part up to its share of the limit. more: a part has more.
func Count(ctx context.Context, from store.Querier, page Listing) (all int64, more bool, err error) {
	var counts [Shards]int64
	share := int64(page.Limit / Shards)
	err = store.AtOnce(ctx, Shards, func(ctx context.Context, shard int) (err error) {
		counts[shard], err = store.Count(ctx, from, page.part(shard, int(share)+1))
		return err
	})
	for _, n := range counts {
		all, more = all+min(n, share), more || n > share
	}
	return all, more, err
}

// OfEvent returns the query for the records of an event id, conflicts included: of a tenant, or of all.
func OfEvent(id, tenant string, limit int) store.Query {
	equal := store.Equals(fieldEvent, id, "tenant", tenant)
	return store.Query{Collection: Collection, Equal: equal, Limit: limit}
}
