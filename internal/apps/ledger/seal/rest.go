package seal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

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

const accountsPage = "accounts "

// The bounds of a page of the accounts: those that one query returns, and the documents after which
// the page ends, also within an account.
const (
	accountsAtOnce = 50
	accountReads   = 5000
)

// accountTries is how often an account is summed up that moves meanwhile.
const accountTries = 3

// summing is a place among the accounts: behind one, and within the entries of the next.
type summing struct {
	// After is the id of the last account that is done.
	After string
	// Version is that of the next account when its summing began, Sum its entries up to the id Entries.
	Version store.Version
	Sum     int64
	Entries string
}

// accounts compares the balances of the tenant's accounts with the sums of their entries, sealed or not.
func (v *verification) accounts(ctx context.Context, at string) error {
	var p summing
	if at != "" && json.Unmarshal([]byte(at), &p) != nil {
		return ErrPage
	}
	query := store.Query{
		Collection: ledger.Accounts, Equal: map[string]any{fieldTenant: v.tenant}, After: store.Cursor{ID: p.After}, Limit: accountsAtOnce,
	}
	for doc, err := range store.Each(ctx, v.From, query) {
		done := false
		if v.done.read++; err == nil && v.done.read <= accountReads {
			done, err = v.account(ctx, doc, &p)
		}
		if err != nil {
			return err
		}
		if !done {
			text, err := json.Marshal(p)
			v.done.Next = accountsPage + string(text)
			return err
		}
		v.done.Accounts++
		p = summing{After: doc.Key.ID}
	}
	return nil
}

const fieldTenant = "tenant"

// account compares one balance. done is false where the page ends within its entries, which p remembers.
// An account that keeps moving is left for the next verification.
func (v *verification) account(ctx context.Context, doc store.Document, p *summing) (done bool, err error) {
	if p.Version != 0 && p.Version != doc.Version {
		return true, nil
	}
	name, _ := doc.Fields[ledger.FieldAccount].(string)
	if ledger.Account(name).Key(v.tenant) != doc.Key || doc.Fields["currency"] != ledger.Points {
		v.find(Changed, doc.Key, 0, "the account says that it is another")
		return true, nil
	}
	query := store.Query{
		Collection: ledger.Entries, Equal: map[string]any{fieldTenant: v.tenant, ledger.FieldAccount: name}, Limit: store.MaxPage,
	}
	for range accountTries {
		for query.After.ID = p.Entries; ; query.After.ID = p.Entries {
			moves, next, err := store.List(ctx, v.From, query, ledger.MoveFromDocument)
			switch {
			case errors.Is(err, ledger.ErrBroken):
				return true, nil // it is found as an entry
			case err != nil:
				return false, fmt.Errorf("seal: read entries: %w", err)
			}
			v.done.read += int64(len(moves))
			for _, move := range moves {
				p.Sum += move.Change()
			}
			if p.Entries = next.ID; next.IsZero() {
				break
			}
			if v.done.read >= accountReads {
				p.Version = doc.Version
				return false, nil
			}
		}
		now, err := store.Find(ctx, v.From, doc.Key)
		if err != nil {
			return false, fmt.Errorf("seal: read account: %w", err)
		}
		if now.Version == doc.Version {
			if doc.Fields["balance"] != p.Sum {
				v.find(Changed, doc.Key, 0, "the balance is not the sum of the account's entries")
			}
			return true, nil
		}
		doc, *p = now, summing{After: p.After}
	}
	return true, nil
}

// held looks for the accounts that entries have moved something on: a balance that is gone is none.
func (v *verification) held(ctx context.Context, entries []store.Document) error {
	known := map[store.Key]bool{}
	var keys []store.Key
	for _, doc := range entries {
		name, _ := doc.Fields[ledger.FieldAccount].(string)
		key := ledger.Account(name).Key(v.tenant)
		if name != "" && !known[key] && store.CheckKey(key) == nil {
			known[key], keys = true, append(keys, key)
		}
	}
	v.done.read += int64(len(keys))
	there, err := ask(ctx, keys, func(ctx context.Context, key store.Key) (bool, error) {
		doc, err := store.Find(ctx, v.From, key)
		return doc.Fields[fieldTenant] == v.tenant, err // of another, no page of the accounts has it
	})
	if err != nil {
		return err
	}
	for i, key := range keys {
		if !there[i] {
			v.find(Missing, key, 0, "entries have moved something on the account, and it is gone")
		}
	}
	return nil
}
