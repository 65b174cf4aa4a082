package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/store"
)

// sealed compares the leaves of a seal, nil where it cannot be read, with the entries that name it.
func (v *verification) sealed(ctx context.Context, number int64, leaves []leaf, s *Seal) error {
	places := make(map[string]int, len(leaves))
	for i, l := range leaves {
		places[l.id] = i
	}
	totals := map[string]Totals{}
	found := make(map[string]bool, len(leaves))
	whole := true
	query := store.Query{Collection: ledger.Entries, Equal: map[string]any{"tenant": v.tenant, "seal": number}, Limit: store.MaxPage}
	for doc, err := range store.Each(ctx, v.From, query) {
		if err != nil {
			return err
		}
		v.done.read++
		v.done.Entries++
		place, held := places[doc.Key.ID]
		if !held {
			if at := misnamed(doc, leaves); at >= 0 {
				v.find(Changed, store.Key{Collection: Leaves, ID: ID(v.tenant, number)}, number, "a leaf names another entry than it is of")
				found[leaves[at].id] = true
			} else {
				v.find(Added, doc.Key, number, "the seal does not hold it")
			}
			whole = false
			continue
		}
		found[doc.Key.ID] = true
		entry, ok := v.compare(doc, number, int64(place), leaves[place].hash)
		v.late(entry, s)
		for _, line := range entry.Lines {
			ok = ok && add(totals, entry.Period, line) == nil
		}
		whole = whole && ok
	}
	for _, l := range leaves {
		if found[l.id] {
			continue
		}
		whole = false
		doc, err := v.From.Get(ctx, ledger.Key(l.id))
		switch {
		case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
			v.find(Missing, ledger.Key(l.id), number, "the entry is gone")
		case err != nil:
			return fmt.Errorf("seal: read entry: %w", err)
		default:
			v.compare(doc, number, int64(places[l.id]), l.hash)
		}
	}
	if s != nil && whole && !reflect.DeepEqual(s.Totals, totals) {
		v.find(Changed, sealKey(v.tenant, number), number, "its totals are not those of its entries")
	}
	return nil
}

// misnamed returns the leaf whose hash is that of an entry; -1: none.
func misnamed(doc store.Document, leaves []leaf) int {
	entry, err := ledger.Read(doc)
	if err != nil {
		return -1
	}
	hash, err := entry.LeafHash()
	return slices.IndexFunc(leaves, func(l leaf) bool { return err == nil && bytes.Equal(l.hash, hash) })
}

// compare compares an entry with the leaf that stands for it, and reports whether it is the same.
func (v *verification) compare(doc store.Document, number, place int64, hash []byte) (ledger.Entry, bool) {
	entry, err := ledger.Read(doc)
	var canonical []byte
	if err == nil {
		canonical, err = entry.Canonical()
	}
	switch {
	case err != nil:
		v.find(Changed, doc.Key, number, "the entry is not readable")
	case !bytes.Equal(leafHash(canonical), hash):
		v.find(Changed, doc.Key, number, "the entry is not what was sealed")
	case entry.Tenant != v.tenant || entry.Seal != number || entry.Leaf != place:
		v.find(Moved, doc.Key, number, "the entry names another place than its seal gives it")
	default:
		return entry, true
	}
	return ledger.Entry{}, false
}

// entries reads the entries of the tenant behind an id, for those that no seal holds.
func (v *verification) entries(ctx context.Context, after string) error {
	page, err := v.From.Query(ctx, store.Query{Collection: ledger.Entries, Equal: map[string]any{"tenant": v.tenant}, After: store.Cursor{ID: after}, Limit: store.MaxPage})
	if err != nil {
		return fmt.Errorf("seal: read entries: %w", err)
	}
	v.done.read += int64(len(page.Documents))
	// The head after its entries: what is sealed meanwhile has a seal up to it.
	h, err := readHead(ctx, v.From, v.tenant)
	if err != nil && !errors.Is(err, ErrBroken) {
		return err
	}
	var unsealed []ledger.Entry
	for _, doc := range page.Documents {
		if entry, ok := v.mark(doc, h.Number); ok {
			unsealed = append(unsealed, entry)
		}
	}
	v.done.Next = accountsPage
	if !page.Next.IsZero() {
		v.done.Next = entriesPage + page.Next.ID
	}
	if err := v.held(ctx, page.Documents); err != nil {
		return err
	}
	return v.unsealed(ctx, unsealed)
}

func (v *verification) unsealed(ctx context.Context, entries []ledger.Entry) error {
	founded, err := ask(ctx, entries, v.Origins.Vouched)
	if err != nil {
		return err
	}
	v.done.read += int64(len(entries))
	for i, entry := range entries {
		v.done.Unsealed++
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
	switch {
	case err != nil:
		v.find(Changed, doc.Key, 0, "the entry is not readable")
	case entry.Seal > newest:
		v.find(Added, doc.Key, entry.Seal, "the entry names a seal that there is not")
	default:
		return entry, true
	}
	return ledger.Entry{}, false
}
