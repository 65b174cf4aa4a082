package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// sealed compares the leaves of a seal, nil where it cannot be read, with the entries that name it.
func (v *verification) sealed(ctx context.Context, number int64, leaves []leaf, s *Seal) error {
	places := make(map[string]int, len(leaves)) // of the entries that are still to be found
	for i, l := range leaves {
		places[l.id] = i
	}
	totals := map[string]Totals{}
	whole := true
	query := store.Query{Collection: ledger.Entries, Equal: map[string]any{fieldTenant: v.tenant, "seal": number}, Limit: store.MaxPage}
	for doc, err := range store.Each(ctx, v.From, query) {
		if err != nil {
			return err
		}
		v.done.read++
		v.done.Entries++
		place, held := places[doc.Key.ID]
		if !held {
			whole = false
			if entry, err := ledger.Read(doc); err == nil && entry.Leaf < int64(len(leaves)) && isLeaf(entry, leaves[entry.Leaf]) {
				v.find(Changed, leavesKey(v.tenant, number), number, "a leaf names another entry than it is of")
				delete(places, leaves[entry.Leaf].id)
			} else {
				v.find(Added, doc.Key, number, "the seal does not hold it")
			}
			continue
		}
		delete(places, doc.Key.ID)
		entry, same := v.compare(doc, number, int64(place), leaves[place])
		v.late(entry, s)
		for _, line := range entry.Lines {
			same = same && add(totals, entry.Period, totalsOf(line)) == nil
		}
		whole = whole && same
	}
	for _, id := range slices.Sorted(maps.Keys(places)) {
		whole = false
		doc, err := store.Find(ctx, v.From, ledger.Key(id))
		switch {
		case err != nil:
			return fmt.Errorf("seal: read entry: %w", err)
		case doc.Version == 0:
			v.find(Missing, doc.Key, number, "the entry is gone")
		default:
			v.compare(doc, number, int64(places[id]), leaves[places[id]])
		}
	}
	if s != nil && whole && !reflect.DeepEqual(s.Totals, totals) {
		v.find(Changed, sealKey(v.tenant, number), number, "its totals are not those of its entries")
	}
	return nil
}

func isLeaf(entry ledger.Entry, l leaf) bool {
	hash, err := entry.LeafHash()
	return err == nil && bytes.Equal(hash, l.hash)
}

// compare compares an entry with the leaf that stands for it, and reports whether it is the same.
func (v *verification) compare(doc store.Document, number, place int64, l leaf) (ledger.Entry, bool) {
	entry, err := ledger.Read(doc)
	switch {
	case err != nil:
		v.find(Changed, doc.Key, number, "the entry is not readable")
	case !isLeaf(entry, l):
		v.find(Changed, doc.Key, number, "the entry is not what was sealed")
	case entry.Tenant != v.tenant || entry.Seal != number || entry.Leaf != place:
		v.find(Moved, doc.Key, number, "the entry names another place than its seal gives it")
	default:
		return entry, true
	}
	return ledger.Entry{}, false
}

// entries looks for entries that no seal holds: those of the tenant, or of no tenant that has a chain.
func (v *verification) entries(ctx context.Context, p position) (position, error) {
	of, rest := v.tenant, v.tenant == ""
	query := store.Query{Collection: ledger.Entries, After: store.Cursor{ID: p.After}, Limit: store.MaxPage}
	if !rest {
		query.Equal = map[string]any{fieldTenant: of}
	} else if p.After == "" {
		if seen, err := allSeen(ctx, v.From); seen || err != nil {
			return position{}, err
		}
	}
	page, err := v.From.Query(ctx, query)
	if err != nil {
		return p, fmt.Errorf("seal: read entries: %w", err)
	}
	v.done.read += int64(len(page.Documents))
	// The head and the tenants after the entries: what is sealed meanwhile has a seal up to it, and a tenant among them.
	var h head
	var sealed []string
	if rest {
		sealed, err = Tenants(ctx, v.From)
	} else if h, err = readHead(ctx, v.From, of); errors.Is(err, ErrBroken) {
		err = nil // it is found with the seals
	}
	if err != nil {
		return p, err
	}
	var unsealed []ledger.Entry
	for _, doc := range page.Documents {
		if tenant, _ := doc.Fields[fieldTenant].(string); slices.Contains(sealed, tenant) {
			continue
		}
		if entry, ok := v.mark(doc, h.Number); ok {
			unsealed = append(unsealed, entry)
		}
	}
	if err := v.unsealed(ctx, unsealed); err != nil {
		return p, err
	}
	if v.tenant = of; !rest {
		if err := v.held(ctx, page.Documents); err != nil {
			return p, err
		}
	}
	switch {
	case !page.Next.IsZero():
		return position{Part: partEntries, After: page.Next.ID}, nil
	case rest:
		return position{}, nil
	default:
		return position{Part: partAccounts}, nil
	}
}

func (v *verification) unsealed(ctx context.Context, entries []ledger.Entry) error {
	founded, err := ask(ctx, entries, v.Origins.Vouched)
	if err != nil {
		return err
	}
	v.done.read += int64(len(entries))
	for i, entry := range entries {
		v.done.Unsealed++
		v.tenant = entry.Tenant
		v.late(entry, nil)
		if !founded[i] {
			v.find(Unfounded, ledger.Key(entry.ID), 0, "neither the record of an event nor the audit names the entry")
		}
	}
	return nil
}

// SealedWithin is how long after the closing of a month a seal may hold entries that were posted
// before: longer than a sealer takes, and as long as nobody is told that it does not seal.
const SealedWithin = 15 * time.Minute

// late finds an entry that came into a month after it was closed, or under a seal long after: then its
// time is not what it was. s is nil where there is no seal, or none that can be read.
func (v *verification) late(entry ledger.Entry, s *Seal) {
	closes, closed := v.closings[entry.Period]
	switch {
	case !closed:
	case !entry.PostedAt.Before(closes):
		v.find(Late, ledger.Key(entry.ID), entry.Seal, "the entry was posted in "+entry.Period+" after that was closed")
	case s != nil && s.SealedAt.After(closes.Add(SealedWithin)):
		v.find(Late, ledger.Key(entry.ID), entry.Seal, "the entry was put under a seal long after "+entry.Period+" was closed")
	}
}

// mark checks an entry for which no seal may stand, where the newest seal of its tenant is known, and
// returns it where it waits for its seal. Those that say which seal holds them are compared with it.
func (v *verification) mark(doc store.Document, newest int64) (entry ledger.Entry, waits bool) {
	if number, ok := doc.Fields["seal"].(int64); ok && 0 < number && number <= newest {
		return ledger.Entry{}, false
	}
	entry, err := ledger.Read(doc)
	v.tenant = entry.Tenant
	switch {
	case err != nil:
		v.tenant, _ = doc.Fields[fieldTenant].(string)
		v.find(Changed, doc.Key, 0, "the entry is not readable")
	case entry.Seal > newest:
		v.find(Added, doc.Key, entry.Seal, "the entry names a seal that there is not")
	default:
		return entry, true
	}
	return ledger.Entry{}, false
}

// Tenants returns the tenants that have a head or a first seal, sorted.
func Tenants(ctx context.Context, from store.Querier) ([]string, error) {
	found := map[string]bool{}
	err := eachTenant(ctx, from, "", store.MaxPage, func(tenant string) bool { found[tenant] = true; return true })
	return slices.Sorted(maps.Keys(found)), err
}

// tenantBehind returns the tenant of the next head behind an id, without reading all; none: there is no more.
func tenantBehind(ctx context.Context, from store.Querier, head string) (next string, err error) {
	err = eachTenant(ctx, from, head, 1, func(tenant string) bool {
		if next == "" || HeadID(tenant) < HeadID(next) {
			next = tenant
		}
		return false
	})
	return next, err
}

// eachTenant sees the tenants whose heads' ids are behind one, by their heads, and by their first seals, each until see
// wants no more.
func eachTenant(ctx context.Context, from store.Querier, behind string, page int, see func(tenant string) (more bool)) error {
	for _, query := range []store.Query{{Collection: Heads}, {Collection: Seals, Equal: map[string]any{"number": int64(1)}}} {
		query.After.ID, query.Limit = behind, page
		for doc, err := range store.Each(ctx, from, query) {
			if err != nil {
				return err
			}
			if tenant, ok := tenantOf(doc.Key.ID); ok && HeadID(tenant) > behind && !see(tenant) {
				break
			}
		}
	}
	return nil
}

// tenantOf returns the tenant whose head or seal has the id; ok reports whether there is one.
func tenantOf(id string) (tenant string, ok bool) {
	id, _, _ = strings.Cut(id, "~")
	_, escaped, found := strings.Cut(id, "-")
	tenant, err := url.PathUnescape(escaped)
	return tenant, found && err == nil && tenant != "" && HeadID(tenant) == id
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
	return store.Count(ctx, from, store.Query{Collection: ledger.Entries, Equal: match, Limit: math.MaxInt32})
}

// accountTries is how often an account is summed up that moves meanwhile.
const accountTries = 3

const fieldTenant = "tenant"

// accounts compares the balances of the tenant's accounts with the sums of their entries, sealed or not.
func (v *verification) accounts(ctx context.Context, p position) (position, error) {
	query := store.Query{
		Collection: ledger.Accounts, Equal: map[string]any{fieldTenant: v.tenant}, After: store.Cursor{ID: p.After}, Limit: accountsAtOnce,
	}
	for doc, err := range store.Each(ctx, v.From, query) {
		if err != nil || v.done.read >= accountReads {
			return p, err
		}
		if err := v.account(ctx, doc); err != nil {
			return p, err
		}
		v.done.Accounts++
		p.After = doc.Key.ID
	}
	return position{}, nil
}

// account compares one balance. An account that keeps moving is left for the next verification.
func (v *verification) account(ctx context.Context, doc store.Document) error {
	name, _ := doc.Fields[ledger.FieldAccount].(string)
	if ledger.Account(name).Key(v.tenant) != doc.Key || doc.Fields["currency"] != ledger.Points {
		v.find(Changed, doc.Key, 0, "the account says that it is another")
		return nil
	}
	query := store.Query{
		Collection: ledger.Entries, Equal: map[string]any{fieldTenant: v.tenant, ledger.FieldAccount: name}, Limit: store.MaxPage,
	}
	for range accountTries {
		sum := int64(0)
		for entry, err := range store.Each(ctx, v.From, query) {
			if err != nil {
				return err
			}
			move, err := ledger.MoveFromDocument(entry)
			if err != nil {
				return nil // it is found as an entry
			}
			v.done.read++
			sum += move.Change()
		}
		now, err := store.Find(ctx, v.From, doc.Key)
		if err != nil {
			return fmt.Errorf("seal: read account: %w", err)
		}
		if now.Version == doc.Version {
			if doc.Fields["balance"] != sum {
				v.find(Changed, doc.Key, 0, "the balance is not the sum of the account's entries")
			}
			return nil
		}
		doc = now
	}
	return nil
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
