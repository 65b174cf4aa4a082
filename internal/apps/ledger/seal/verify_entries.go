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

// sealed compares the leaves of a seal with the entries between the last seal and this one. If one of the two
// seals cannot be read, it compares the leaves with the entries that they name.
func (v *verification) sealed(ctx context.Context, last, now Seal, leaves []leaf) error {
	places := make(map[string]int, len(leaves)) // of the entries that are not found yet
	for i, l := range leaves {
		places[l.id] = i
	}
	var documents, loose []store.Document
	var err error
	if !last.unread() && !now.unread() {
		documents, err = stream(ctx, v.From, v.tenant, last.cursor(), now.cursor()).all()
	}
	if err != nil {
		return err
	}
	totals, whole := map[string]Totals{}, true
	for _, doc := range documents {
		place, held := places[doc.Key.ID]
		if delete(places, doc.Key.ID); held {
			entry, same := v.compare(doc, now.Number, leaves[place])
			v.late(entry, now)
			for _, line := range entry.Lines {
				same = same && add(totals, entry.Period, totalsOf(line)) == nil
			}
			whole = whole && same
			continue
		}
		whole = false
		entry, err := ledger.Read(doc)
		i := slices.IndexFunc(leaves, func(l leaf) bool { return err == nil && isLeaf(entry, l) })
		if i < 0 {
			loose = append(loose, doc)
			continue
		}
		v.find(Changed, leavesKey(v.tenant, now.Number), now.Number, "a leaf has the id of another entry")
		delete(places, leaves[i].id)
	}
	for _, id := range slices.Sorted(maps.Keys(places)) {
		whole = false
		doc, err := store.Find(ctx, v.From, ledger.Key(id))
		switch {
		case err != nil:
			return fmt.Errorf("seal: read entry: %w", err)
		case doc.Version == 0:
			v.find(Missing, doc.Key, now.Number, "the entry does not exist")
		default:
			v.compare(doc, now.Number, leaves[places[id]])
			documents = append(documents, doc)
		}
	}
	if !now.unread() && whole && !reflect.DeepEqual(now.Totals, totals) {
		v.find(Changed, sealKey(v.tenant, now.Number), now.Number, "its totals are not those of its entries")
	}
	v.seen += int64(len(documents))
	err = v.loose(ctx, loose, func(store.Document) int64 { return now.Number })
	return errors.Join(err, v.held(ctx, documents))
}

func isLeaf(entry ledger.Entry, l leaf) bool {
	hash, err := entry.LeafHash()
	return err == nil && bytes.Equal(hash, l.hash)
}

// compare compares an entry with its leaf, and reports whether it is the same.
func (v *verification) compare(doc store.Document, number int64, l leaf) (ledger.Entry, bool) {
	v.done.Entries++
	entry, err := ledger.Read(doc)
	switch {
	case err != nil:
		v.find(Changed, doc.Key, number, "the entry is not readable")
	case !isLeaf(entry, l) || entry.Tenant != v.tenant:
		v.find(Changed, doc.Key, number, "the entry is not as it was sealed")
	default:
		return entry, true
	}
	return ledger.Entry{}, false
}

// loose verifies entries that no seal has. An entry that a seal has passed is a finding even if something
// vouches for it: either its commit took longer than the sealer waits, or a seal was deleted. passed returns
// the number of the seal that has passed the entry; 0: none; below 0: only the cursor has.
func (v *verification) loose(
	ctx context.Context, documents []store.Document, passed func(store.Document) int64,
) error {
	var entries []ledger.Entry
	for _, doc := range documents {
		entry, err := ledger.Read(doc)
		if err != nil {
			v.tenant = entry.Tenant
			v.find(Changed, doc.Key, max(passed(doc), 0), "the entry is not readable")
			continue
		}
		entries = append(entries, entry)
	}
	founded, err := checkAll(ctx, entries, v.Origins.Vouched)
	if err != nil {
		return err
	}
	v.reads.n.Add(int64(len(entries))) // the least that vouching for one reads
	for i, entry := range entries {
		v.done.Unsealed++
		v.tenant = entry.Tenant
		v.late(entry, Seal{})
		switch key, number := ledger.Key(entry.ID), passed(entry.Document); {
		case number != 0:
			v.find(Added, key, max(number, 0), "no seal holds it, and later entries are sealed")
			if founded[i] && v.Moves != nil {
				err = errors.Join(err, reposition(ctx, v.Moves, entry.Document))
			}
		case !founded[i]:
			v.find(Unfounded, key, 0, "neither the record of an event nor the audit names the entry")
		}
	}
	return err
}

// tailTries is how often the entries are counted again if others are posted meanwhile.
const tailTries = 3

// tail verifies the entries after the last seal. If the tenant has more entries than were read so far, some
// are at positions without a seal: then all are read.
func (v *verification) tail(ctx context.Context, last Seal, p position) (position, error) {
	sealed, err := readCursor(ctx, v.From)
	if err != nil || last.unread() {
		return position{Part: partEntries}, err
	}
	var documents []store.Document
	next := position{Part: partEntries}
	for range tailTries {
		if documents, err = stream(ctx, v.From, v.tenant, last.cursor(), end).all(); err != nil {
			return p, err
		}
		switch doc, err := store.Find(ctx, v.From, sealKey(v.tenant, p.Seal+1)); {
		case err != nil:
			return p, fmt.Errorf("seal: read seal: %w", err)
		case doc.Version != 0: // made meanwhile
			return p, nil
		}
		n, err := count(ctx, v.From, map[string]any{fieldTenant: v.tenant})
		if err != nil {
			return p, err
		}
		if n == p.Seen+int64(len(documents)) {
			next.Part = partAccounts
			break
		}
	}
	return next, errors.Join(v.loose(ctx, documents, sealed.passed), v.held(ctx, documents))
}

// entries reads all entries, page by page. For a tenant it verifies those that cannot be read; without a
// tenant, those whose tenant has no chain.
func (v *verification) entries(ctx context.Context, p position) (position, error) {
	rest := v.tenant == ""
	query := store.Query{Collection: ledger.Entries, After: store.Cursor{ID: p.After}, Limit: store.MaxPage}
	if !rest {
		query.Equal = map[string]any{fieldTenant: v.tenant}
	} else if p.After == "" {
		if seen, err := allSeen(ctx, v.From); seen || err != nil {
			return position{}, err
		}
	}
	sealed, err := readCursor(ctx, v.From)
	if err != nil {
		return p, err
	}
	page, err := v.From.Query(ctx, query)
	if err != nil {
		return p, fmt.Errorf("seal: read entries: %w", err)
	}
	var tenants []string
	if rest { // after the entries, so that it includes the tenant of an entry that is sealed meanwhile
		if tenants, err = Tenants(ctx, v.From); err != nil {
			return p, err
		}
	}
	switch err := v.loose(ctx, slices.DeleteFunc(page.Documents, func(doc store.Document) bool {
		entry, err := ledger.Read(doc)
		return rest && slices.Contains(tenants, entry.Tenant) || !rest && err == nil
	}), sealed.passed); {
	case err != nil:
		return p, err
	case !page.Next.IsZero():
		return position{Part: partEntries, After: page.Next.ID}, nil
	case rest:
		return position{}, nil
	default:
		return position{Part: partAccounts}, nil
	}
}

// SealedWithin is how long after the closing of a month a seal may have entries that were posted before:
// longer than a sealer takes, as long as no alert says that it does not seal.
const SealedWithin = 15 * time.Minute

// late reports an entry that was posted in a month after its closing, or sealed long after it: then the time
// of its posting was changed.
func (v *verification) late(entry ledger.Entry, under Seal) {
	closes, closed := v.closings[entry.Period]
	switch {
	case !closed:
	case !entry.PostedAt.Before(closes):
		v.find(Late, ledger.Key(entry.ID), under.Number,
			"the entry was posted in "+entry.Period+" after that was closed")
	case under.SealedAt.After(closes.Add(SealedWithin)):
		v.find(Late, ledger.Key(entry.ID), under.Number,
			"the entry was sealed long after "+entry.Period+" was closed")
	}
}

// Tenants returns the tenants that have a head or a first seal, sorted.
func Tenants(ctx context.Context, from store.Querier) ([]string, error) {
	found := map[string]bool{}
	err := eachTenant(ctx, from, "", store.MaxPage, func(tenant string) bool {
		found[tenant] = true
		return true
	})
	return slices.Sorted(maps.Keys(found)), err
}

// tenantBehind returns the tenant of the next head after an id, or none, without reading all heads.
func tenantBehind(ctx context.Context, from store.Querier, head string) (next string, err error) {
	err = eachTenant(ctx, from, head, 1, func(tenant string) bool {
		if next == "" || HeadID(tenant) < HeadID(next) {
			next = tenant
		}
		return false
	})
	return next, err
}

// eachTenant passes to see the tenants whose heads' ids are after behind: by their heads, and by their first
// seals, each until see returns false.
func eachTenant(
	ctx context.Context, from store.Querier, behind string, page int, see func(tenant string) (more bool),
) error {
	for _, query := range []store.Query{
		{Collection: Heads}, {Collection: Seals, Equal: map[string]any{"number": int64(1)}},
	} {
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

// tenantOf returns the tenant whose head or seal has the id.
func tenantOf(id string) (tenant string, ok bool) {
	id, _, _ = strings.Cut(id, "~")
	_, escaped, found := strings.Cut(id, "-")
	tenant, err := url.PathUnescape(escaped)
	return tenant, found && err == nil && tenant != "" && HeadID(tenant) == id
}

// allSeen reports whether all entries belong to tenants with a chain, which may get more meanwhile.
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

// accountTries is how often an account is summed up again if it changes meanwhile.
const accountTries = 3

// accounts compares the balances of the tenant's accounts with the sums of their entries, sealed or not.
func (v *verification) accounts(ctx context.Context, p position) (position, error) {
	query := store.Query{
		Collection: ledger.Accounts, Equal: map[string]any{fieldTenant: v.tenant},
		After: store.Cursor{ID: p.After}, Limit: accountsAtOnce,
	}
	for doc, err := range store.Each(ctx, v.From, query) {
		if err != nil || v.reads.n.Load() >= accountReads {
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

// account compares one balance. An account that keeps changing is left for the next verification.
func (v *verification) account(ctx context.Context, doc store.Document) error {
	name, _ := doc.Fields[ledger.FieldAccount].(string)
	if ledger.Account(name).Key(v.tenant) != doc.Key || doc.Fields["currency"] != ledger.Points {
		v.find(Changed, doc.Key, 0, "the account has the fields of another")
		return nil
	}
	query := store.Query{
		Collection: ledger.Entries, Equal: map[string]any{fieldTenant: v.tenant, ledger.FieldAccount: name},
		Limit: store.MaxPage,
	}
	for range accountTries {
		sum := int64(0)
		for entry, err := range store.Each(ctx, v.From, query) {
			if err != nil {
				return err
			}
			move, err := ledger.MoveFromDocument(entry)
			if err != nil {
				return nil // the entry is a finding itself
			}
			sum += move.Change()
		}
		if doc.Fields["balance"] == sum {
			return nil
		}
		now, err := store.Find(ctx, v.From, doc.Key)
		if err != nil {
			return fmt.Errorf("seal: read account: %w", err)
		}
		if now.Version == doc.Version {
			v.find(Changed, doc.Key, 0, "the balance is not the sum of the account's entries")
			return nil
		}
		doc = now
	}
	return nil
}

// held checks that the accounts of entries exist: a balance that was deleted is not among the accounts.
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
	there, err := checkAll(ctx, keys, func(ctx context.Context, key store.Key) (bool, error) {
		doc, err := store.Find(ctx, v.From, key)
		return doc.Fields[fieldTenant] == v.tenant, err // another tenant's is on no page of the accounts
	})
	if err != nil {
		return err
	}
	for i, key := range keys {
		if !there[i] {
			v.find(Missing, key, 0, "the account has entries, but does not exist")
		}
	}
	return nil
}
