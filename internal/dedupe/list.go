package dedupe

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/internal/platform/store"
)

// Shards is how many parts the time index of the records has. One part takes about 500 writes a
// second, since its times rise.
const Shards = 8

const (
	fieldShard   = "shard"
	fieldCreated = "created_at"
)

// Shard is the part of the time index that a record is in, from 0 to Shards-1. It follows from the
// event, so that it stays when the record is written again.
func Shard(queue, tenant, eventID string) int64 {
	id := key(queue, tenant, eventID).ID
	sum := sha256.Sum256([]byte(id))
	return int64(sum[0] % Shards)
}

// The bounds of a page of the job log.
const (
	// MaxListed is the most that a page holds.
	MaxListed = 200
	// MaxListReads is the most that the database reads for it, in documents.
	MaxListReads = 250
	// chunk is how many documents of a part are held at most before it is known how many are needed.
	chunk = (MaxListReads - MaxListed) / Shards
)

// Listing asks for a page of the job log.
type Listing struct {
	// Equal are fields that the records have: queue, status, event_type, event_id, correlation_id, ordering_key,
	// customer.
	Equal map[string]any
	// Since and Until bound the time of creation: not before Since, before Until. A zero time is none.
	Since, Until time.Time
	// After is the next of the page before.
	After store.Cursor
	// Limit is how many records it holds, 1 to MaxListed.
	Limit int
}

// List returns a page of the job log, the newest first, ties by the record's id, the greatest first. next is
// zero where no record is behind it. The database reads at most the limit and chunk of each part, however many
// records there are.
func List(ctx context.Context, from store.Querier, page Listing) (records []Record, next store.Cursor, err error) {
	var parts [Shards]part
	for shard := range parts {
		query := store.Query{Collection: Collection, Equal: maps.Clone(page.Equal), Newest: &store.Newest{Field: fieldCreated, Since: page.Since, Until: page.Until}, After: page.After}
		if query.Equal == nil {
			query.Equal = map[string]any{}
		}
		query.Equal[fieldShard] = int64(shard)
		parts[shard].query = query
	}
	for len(records) < page.Limit {
		if err := fill(ctx, from, parts[:], min(chunk, page.Limit-len(records))); err != nil {
			return nil, next, err
		}
		newest := newestOf(parts[:])
		if newest == nil {
			return records, store.Cursor{}, nil
		}
		for ; newest != nil && len(records) < page.Limit; newest = newestOf(parts[:]) {
			doc := newest.documents[0]
			record, err := FromDocument(doc)
			if err != nil {
				return nil, next, err
			}
			records, next = append(records, record), cursorOf(doc)
			newest.documents = newest.documents[1:]
			if newest.unknown() {
				break
			}
		}
	}
	for i := range parts {
		if len(parts[i].documents) > 0 || parts[i].unknown() {
			return records, next, nil
		}
	}
	return records, store.Cursor{}, nil
}

type part struct {
	query     store.Query
	documents []store.Document
	ended     bool
}

func (p *part) unknown() bool { return len(p.documents) == 0 && !p.ended }

func fill(ctx context.Context, from store.Querier, parts []part, most int) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range parts {
		p := &parts[i]
		p.query.Limit = most - len(p.documents)
		if p.ended || p.query.Limit < 1 {
			continue
		}
		group.Go(func() error {
			page, err := from.Query(ctx, p.query)
			if err != nil {
				return err
			}
			p.documents, p.ended = append(p.documents, page.Documents...), len(page.Documents) < p.query.Limit
			if found := len(page.Documents); found > 0 {
				p.query.After = cursorOf(page.Documents[found-1])
			}
			return nil
		})
	}
	return group.Wait()
}

func newestOf(parts []part) (newest *part) {
	for i := range parts {
		p := &parts[i]
		if len(p.documents) > 0 && (newest == nil || later(cursorOf(p.documents[0]), cursorOf(newest.documents[0]))) {
			newest = p
		}
	}
	return newest
}

func later(a, b store.Cursor) bool {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) > 0
}

func cursorOf(doc store.Document) store.Cursor {
	at, _ := doc.Fields[fieldCreated].(time.Time)
	return store.Cursor{At: at, ID: doc.Key.ID}
}
