package seal

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// Tenants returns the tenants that have a head or a first seal, sorted.
func Tenants(ctx context.Context, from store.Querier) ([]string, error) {
	found := map[string]bool{}
	for _, query := range []store.Query{
		{Collection: Heads, Limit: store.MaxPage},
		{Collection: Seals, Equal: map[string]any{"number": int64(1)}, Limit: store.MaxPage},
	} {
		for doc, err := range store.Each(ctx, from, query) {
			if err != nil {
				return nil, err
			}
			if tenant, ok := tenantOf(doc.Key.ID); ok {
				found[tenant] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// tenantOf returns the tenant whose head or seal has the id; ok reports whether there is one.
func tenantOf(id string) (tenant string, ok bool) {
	id, _, _ = strings.Cut(id, "~")
	_, escaped, found := strings.Cut(id, "-")
	tenant, err := url.PathUnescape(escaped)
	return tenant, found && err == nil && HeadID(tenant) == id
}

// Rest looks for entries that the verification of no tenant sees: those without a tenant, and those of a
// tenant without a chain. Where the numbers of entries are right it reads none. Pages are as those of Page.
func (v Verifier) Rest(ctx context.Context, at string) (Verified, error) {
	done := Verified{Findings: []Finding{}}
	after, ok := strings.CutPrefix(at, entriesPage)
	if at != "" && !ok {
		return done, ErrPage
	}
	if at == "" {
		if seen, err := allSeen(ctx, v.From); seen || err != nil {
			return done, err
		}
	}
	page, err := v.From.Query(ctx, store.Query{Collection: ledger.Entries, After: store.Cursor{ID: after}, Limit: store.MaxPage})
	if err != nil {
		return done, fmt.Errorf("seal: read entries: %w", err)
	}
	done.read += int64(len(page.Documents))
	// The tenants after the entries: whoever is sealed meanwhile is one of them.
	tenants, err := Tenants(ctx, v.From)
	if err != nil {
		return done, err
	}
	for _, doc := range page.Documents {
		if tenant, _ := doc.Fields["tenant"].(string); slices.Contains(tenants, tenant) {
			continue
		}
		entry, _ := ledger.Read(doc) // mark says what is wrong
		one := verification{Verifier: v, tenant: entry.Tenant, done: done}
		if entry, ok := one.mark(doc, 0); ok {
			if err := one.unsealed(ctx, []ledger.Entry{entry}); err != nil {
				return done, err
			}
		}
		done = one.done
	}
	if !page.Next.IsZero() {
		done.Next = entriesPage + page.Next.ID
	}
	return done, nil
}

// allSeen reports whether the tenants have as many entries as there are, or more meanwhile.
func allSeen(ctx context.Context, from store.Querier) (bool, error) {
	all, err := count(ctx, from, nil)
	if err != nil {
		return false, err
	}
	tenants, err := Tenants(ctx, from)
	if err != nil {
		return false, err
	}
	for _, tenant := range tenants {
		n, err := count(ctx, from, map[string]any{"tenant": tenant})
		if err != nil {
			return false, err
		}
		all -= n
	}
	return all <= 0, nil
}

func count(ctx context.Context, from store.Querier, match map[string]any) (int64, error) {
	page, err := from.Query(ctx, store.Query{Collection: ledger.Entries, Equal: match, Count: true, Limit: math.MaxInt32})
	if err != nil {
		return 0, fmt.Errorf("seal: count entries: %w", err)
	}
	return page.Count, nil
}

// Resealed is the kind of a finding that kept seals alone tell: the seal is not the one that was kept.
const Resealed = "resealed"

// AgainstKept compares the seals of a tenant that somebody has kept elsewhere with those that are there, and
// counts them. Only this finds that all was sealed again, or that the newest were cut off.
func AgainstKept(tenant string, kept, there []Seal) (found []Finding, compared int64) {
	hashes := map[int64]string{}
	for _, s := range there {
		hashes[s.Number] = s.Hash
	}
	for _, s := range kept {
		if s.Tenant != tenant {
			continue
		}
		finding := Finding{Kind: Resealed, Tenant: tenant, Document: sealKey(tenant, s.Number).String(), Seal: s.Number}
		switch hash, known := hashes[s.Number]; {
		case !known:
			finding.Detail = "the seal that was kept is gone"
		case hash != s.Hash:
			finding.Detail = "the seal is not the one that was kept: the books were sealed again"
			compared++
		default:
			compared++
			continue
		}
		found = append(found, finding)
	}
	return found, compared
}
