// Package ledgertest keeps books in memory for tests, and enforces their rules: entries are only
// created, accounts only incremented.
package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// ErrRule marks a write that breaks the rules.
var ErrRule = errors.New("ledgertest: write breaks the rules of the books")

// Books are the two collections of the ledger, in memory. The zero value is empty
// and ready. Safe for concurrent use.
type Books struct {
	mu      sync.Mutex
	docs    map[store.Key]map[string]any
	queries int
}

var _ store.Querier = (*Books)(nil)

// Query answers as internal/platform/store says, but for Due and Count. It counts.
func (b *Books) Query(ctx context.Context, query store.Query) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queries++
	var page store.Page
	for key, fields := range b.docs {
		if key.Collection == query.Collection && strings.HasPrefix(key.ID, query.IDPrefix) && key.ID > query.After.ID && equal(fields, query.Equal) {
			page.Documents = append(page.Documents, store.Document{Key: key, Fields: maps.Clone(fields), Version: 1})
		}
	}
	slices.SortFunc(page.Documents, func(a, b store.Document) int { return strings.Compare(a.Key.ID, b.Key.ID) })
	if len(page.Documents) > query.Limit {
		page.Documents = page.Documents[:query.Limit]
		page.Next.ID = page.Documents[query.Limit-1].Key.ID
	}
	return page, nil
}

func equal(fields, wanted map[string]any) bool {
	for name, value := range wanted {
		if fields[name] != value {
			return false
		}
	}
	return true
}

// Commit applies all writes or none. The error wraps store.ErrExists, store.ErrInvalid
// or ErrRule.
func (b *Books) Commit(_ context.Context, writes []store.Write) error {
	if err := store.CheckWrites(writes); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range writes {
		switch {
		case w.Op == store.OpIncrement && w.Key.Collection == ledger.Accounts:
		case w.Op == store.OpCreate && w.Key.Collection == ledger.Entries:
			if _, there := b.docs[w.Key]; there {
				return fmt.Errorf("%w: %s", store.ErrExists, w.Key)
			}
		default:
			return fmt.Errorf("%w: %s", ErrRule, w.Key)
		}
	}
	if b.docs == nil {
		b.docs = map[store.Key]map[string]any{}
	}
	for _, w := range writes {
		fields := b.docs[w.Key]
		if fields == nil {
			fields = map[string]any{}
			b.docs[w.Key] = fields
		}
		maps.Copy(fields, w.Fields)
		for name, add := range w.Add {
			before, _ := fields[name].(int64)
			fields[name] = before + add
		}
	}
	return nil
}

// Queries returns how often the books were read.
func (b *Books) Queries() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queries
}

// Balance returns the balance of a tenant's account; 0 if it has no document.
func (b *Books) Balance(tenant string, account ledger.Account) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	balance, _ := b.docs[account.Key(tenant)]["balance"].(int64)
	return balance
}

// All returns a copy of every document of a collection, by id.
func (b *Books) All(collection string) map[string]map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]map[string]any{}
	for key, fields := range b.docs {
		if key.Collection == collection {
			all[key.ID] = maps.Clone(fields)
		}
	}
	return all
}
