package seal

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
)

const (
	// maxEntries and the three documents of the seal make up the writes of one commit.
	maxEntries = store.MaxWrites - 3
	// maxBytes is what the entries of one commit may come to.
	maxBytes = 4 << 20
	// maxSums bounds the sums of a seal, so that it fits in one document.
	maxSums = 2000
)

// atOnce is how many entries are read before they are sealed.
const atOnce = 5 * store.MaxPage

// tries is how often a run looks again after another sealer was faster.
const tries = 3

// Sealer seals what is posted and has no seal. Every field is required.
type Sealer struct {
	Store   store.Store
	Origins Origins
	Now     func() time.Time
}

// Sealed is what one run did.
type Sealed struct {
	Entries int `json:"entries"`
	Seals   int `json:"seals"`
	Raced   int `json:"raced"`
	// Unreadable counts the entries that cannot be sealed; verify names them.
	Unreadable int `json:"unreadable"`
	// Unfounded counts the entries that nothing vouches for: they are not sealed, and verify names them, too.
	Unfounded int `json:"unfounded"`
	// More: the run's time was over; another would find more.
	More bool `json:"more"`
	// OldestSeconds is the age of the oldest entry that was seen and is left without a seal; 0: none.
	OldestSeconds int64 `json:"oldest_seconds"`
}

// Run seals what it finds until nothing is left or the context is done. An error is the first that occurred;
// the other tenants were sealed nevertheless. Any number of sealers may run at once.
func (s Sealer) Run(ctx context.Context) (Sealed, error) {
	r := round{Sealer: s, unreadable: map[string]bool{}, unfounded: map[string]bool{}}
	err := r.run(ctx)
	r.done.Unreadable, r.done.Unfounded = len(r.unreadable), len(r.unfounded)
	if !r.oldest.IsZero() {
		r.done.OldestSeconds = max(int64(s.Now().Sub(r.oldest).Seconds()), 1)
	}
	return r.done, err
}

type round struct {
	Sealer

	done                  Sealed
	oldest                time.Time
	unreadable, unfounded map[string]bool
}

// run walks over what is not sealed, so many entries at a time that the seals of many tenants are full.
func (r *round) run(ctx context.Context) error {
	var first error
	for after, raced := "", 0; ; {
		byTenant, next, err := r.open(ctx, after)
		if err != nil && ctx.Err() == nil {
			return cmp.Or(first, err)
		}
		again := false
		for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
			switch err := r.seal(ctx, tenant, byTenant[tenant]); {
			case errors.Is(err, store.ErrStale), errors.Is(err, store.ErrExists):
				// Another sealer was faster, or this one, and the answer was lost: look again.
				r.done.Raced++
				again = true
			case err != nil:
				r.left(byTenant[tenant]...)
				if ctx.Err() == nil {
					first = cmp.Or(first, err)
				}
			}
		}
		switch {
		case ctx.Err() != nil:
			r.done.More = true
			return first
		case again && raced < tries: // then whoever is faster seals them
			raced++
			continue
		case next == "":
			return first
		}
		after, raced = next, 0
	}
}

// open reads entries without a seal, behind an id, by tenant, and notes those that cannot be read. next is empty where it
// has come to the end.
func (r *round) open(ctx context.Context, after string) (byTenant map[string][]ledger.Entry, next string, err error) {
	byTenant = map[string][]ledger.Entry{}
	query := store.Query{Collection: ledger.Entries, Equal: map[string]any{ledger.FieldOpen: true}, After: store.Cursor{ID: after}, Limit: store.MaxPage}
	n := 0
	for doc, err := range store.Each(ctx, r.Store, query) {
		if err != nil {
			return nil, "", fmt.Errorf("seal: find entries: %w", err)
		}
		entry, err := ledger.Read(doc)
		if err == nil {
			_, err = entry.Canonical()
		}
		if err == nil {
			byTenant[entry.Tenant] = append(byTenant[entry.Tenant], entry)
		} else {
			r.unreadable[doc.Key.ID] = true
			posted, _ := doc.Fields["posted_at"].(time.Time)
			r.left(ledger.Entry{PostedAt: posted})
		}
		if n++; n == atOnce {
			return byTenant, doc.Key.ID, nil
		}
	}
	return byTenant, "", nil
}

func (r *round) left(entries ...ledger.Entry) {
	for _, entry := range entries {
		if !entry.PostedAt.IsZero() && (r.oldest.IsZero() || entry.PostedAt.Before(r.oldest)) {
			r.oldest = entry.PostedAt
		}
	}
}

// seal puts entries of a tenant under seals, the oldest first. Those that nothing vouches for are left.
func (r *round) seal(ctx context.Context, tenant string, all []ledger.Entry) error {
	answers, err := ask(ctx, all, r.Origins.Vouched)
	if err != nil {
		return fmt.Errorf("seal: find origins: %w", err)
	}
	var entries []ledger.Entry
	for i, entry := range all {
		if answers[i] {
			entries = append(entries, entry)
			continue
		}
		r.unfounded[entry.ID] = true
		r.left(entry)
	}
	slices.SortFunc(entries, func(a, b ledger.Entry) int {
		return cmp.Or(a.PostedAt.Compare(b.PostedAt), strings.Compare(a.ID, b.ID))
	})
	for len(entries) > 0 {
		n, err := r.prolong(ctx, tenant, entries)
		if err != nil {
			return err
		}
		entries = entries[n:]
		r.done.Seals++
		r.done.Entries += n
	}
	return nil
}

// prolong commits the next seal of a tenant's chain, of as many entries as fit into it, and returns their number.
func (r *round) prolong(ctx context.Context, tenant string, entries []ledger.Entry) (n int, err error) {
	last, err := readHead(ctx, r.Store, tenant)
	if err != nil {
		return 0, err
	}
	next := Seal{
		Tenant: tenant, Number: last.Number + 1, Previous: last.Hash, SealedAt: r.Now().UTC().Truncate(time.Microsecond),
		Totals: map[string]Totals{}, Running: map[string]Totals{}, Periods: maps.Clone(last.Periods),
	}
	var leaves []leaf
	entries = entries[:min(len(entries), maxEntries)]
	writes := make([]store.Write, 3, len(entries)+3)
	size := 0
	for _, entry := range entries {
		canonical, err := entry.Canonical()
		if err != nil {
			return 0, err
		}
		before := Totals{}
		if _, begun := next.Running[entry.Period]; !begun {
			if before, err = last.running(ctx, r.Store, entry.Period); err != nil {
				return 0, err
			}
		}
		size += len(canonical)
		if len(leaves) > 0 && (size > maxBytes || sums(next.Running)+sums(map[string]Totals{"": before})+len(entry.Lines) > maxSums) {
			break
		}
		err = add(next.Running, entry.Period, before)
		for _, line := range entry.Lines {
			err = errors.Join(err, add(next.Totals, entry.Period, totalsOf(line)), add(next.Running, entry.Period, totalsOf(line)))
		}
		if err != nil {
			return 0, err
		}
		next.Periods[entry.Period] = next.Number
		writes = append(writes, entry.Sealed(next.Number, int64(len(leaves))))
		leaves = append(leaves, leaf{entry.ID, leafHash(canonical)})
	}
	next.Count, next.Root = int64(len(leaves)), hex.EncodeToString(rootOf(leaves))
	if next.Hash, err = next.computed(); err != nil {
		return 0, err
	}
	after := next.head()
	writes[0] = store.Create(sealKey(tenant, next.Number), store.Encode(&next))
	writes[1] = store.Create(leavesKey(tenant, next.Number), leavesFields(tenant, next.Number, leaves))
	writes[2] = store.Replace(headKey(tenant), last.version, store.Encode(&after))
	failpoint.Hit(failpoint.SealCommit)
	if _, err := r.Store.Commit(ctx, writes); err != nil {
		return 0, fmt.Errorf("seal: commit: %w", err)
	}
	failpoint.Hit(failpoint.SealCommitted)
	return len(leaves), nil
}
