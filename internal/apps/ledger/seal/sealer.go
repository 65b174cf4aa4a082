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

// The bounds of one seal.
const (
	// maxEntries and the three documents of the seal make up the writes of one commit.
	maxEntries = store.MaxWrites - 3
	// maxBytes is what the entries of one commit may come to.
	maxBytes = 4 << 20
	// maxSums bounds the sums of a seal, so that it fits in one document.
	maxSums = 2000
)

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
	// Raced counts the seals that another sealer made first.
	Raced int `json:"raced"`
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
	r := round{Sealer: s, unfounded: map[string]bool{}}
	err := r.run(ctx)
	r.done.Unfounded = len(r.unfounded)
	if !r.oldest.IsZero() {
		r.done.OldestSeconds = max(int64(s.Now().Sub(r.oldest).Seconds()), 1)
	}
	return r.done, err
}

type round struct {
	Sealer

	done   Sealed
	oldest time.Time
	// unfounded are the ids of entries that nothing vouches for.
	unfounded map[string]bool
}

// run walks over what is not sealed. Each tenant of a page that is not the last is sealed to its
// end, so that its seals are full and the pages after it hold others.
func (r *round) run(ctx context.Context) error {
	var first error
	ended := map[string]bool{}
	for after := ""; ; {
		page, err := r.Store.Query(ctx, store.Query{
			Collection: ledger.Entries, Equal: map[string]any{ledger.FieldOpen: true}, After: store.Cursor{ID: after}, Limit: store.MaxPage,
		})
		if err != nil && ctx.Err() == nil {
			return cmp.Or(first, fmt.Errorf("seal: find entries: %w", err))
		}
		byTenant := r.read(page.Documents)
		for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
			if ended[tenant] {
				continue
			}
			ended[tenant] = !page.Next.IsZero()
			c := chain{round: r, tenant: tenant}
			if err = c.seal(ctx, byTenant[tenant], page.Next.IsZero()); err != nil {
				r.left(byTenant[tenant]...)
			}
			if ctx.Err() == nil {
				first = cmp.Or(first, err)
			}
		}
		if ctx.Err() != nil {
			r.done.More = true
			return first
		}
		if after = page.Next.ID; after == "" {
			return first
		}
	}
}

// read reads entries by tenant, and counts those that cannot be read.
func (r *round) read(documents []store.Document) map[string][]ledger.Entry {
	byTenant := map[string][]ledger.Entry{}
	for _, doc := range documents {
		entry, err := ledger.Read(doc)
		if err == nil {
			_, err = entry.LeafHash()
		}
		if err != nil {
			r.done.Unreadable++
			posted, _ := doc.Fields["posted_at"].(time.Time)
			r.left(ledger.Entry{PostedAt: posted})
			continue
		}
		byTenant[entry.Tenant] = append(byTenant[entry.Tenant], entry)
	}
	return byTenant
}

func (r *round) left(entries ...ledger.Entry) {
	for _, entry := range entries {
		if !entry.PostedAt.IsZero() && (r.oldest.IsZero() || entry.PostedAt.Before(r.oldest)) {
			r.oldest = entry.PostedAt
		}
	}
}

type chain struct {
	*round

	tenant string
	// known: head and running are as the last seal left them.
	known   bool
	head    head
	running map[string]Totals
}

// seal seals entries of the tenant; unless they are all that it has, also the others.
func (c *chain) seal(ctx context.Context, entries []ledger.Entry, all bool) error {
	for raced := 0; ; raced++ {
		var err error
		if all && raced == 0 {
			err = c.sealThese(ctx, entries)
		} else {
			err = c.sealAll(ctx)
		}
		if !errors.Is(err, store.ErrStale) && !errors.Is(err, store.ErrExists) {
			return err
		}
		// Another sealer was faster, or this one, and the answer was lost: look again.
		c.done.Raced++
		if raced == tries {
			return nil // whoever is faster seals them
		}
	}
}

func (c *chain) sealAll(ctx context.Context) error {
	for after := ""; ; {
		page, err := c.Store.Query(ctx, store.Query{
			Collection: ledger.Entries, Equal: map[string]any{ledger.FieldUnsealed: c.tenant}, After: store.Cursor{ID: after}, Limit: maxEntries,
		})
		if err != nil {
			return fmt.Errorf("seal: find entries: %w", err)
		}
		var uncounted round // what cannot be read is counted by the walk
		if err := c.sealThese(ctx, uncounted.read(page.Documents)[c.tenant]); err != nil {
			return err
		}
		if after = page.Next.ID; after == "" {
			return nil
		}
	}
}

// sealThese puts entries under seals, the oldest first. Those that nothing vouches for are left.
func (c *chain) sealThese(ctx context.Context, entries []ledger.Entry) error {
	entries, err := c.founded(ctx, entries)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b ledger.Entry) int {
		return cmp.Or(a.PostedAt.Compare(b.PostedAt), strings.Compare(a.ID, b.ID))
	})
	for len(entries) > 0 {
		n, err := c.prolong(ctx, entries)
		if err != nil {
			c.known = false
			return err
		}
		entries = entries[n:]
		c.done.Seals++
		c.done.Entries += n
	}
	return nil
}

func (c *chain) founded(ctx context.Context, entries []ledger.Entry) ([]ledger.Entry, error) {
	answers, err := ask(ctx, entries, c.Origins.Vouched)
	if err != nil {
		return nil, fmt.Errorf("seal: find origins: %w", err)
	}
	var founded []ledger.Entry
	for i, entry := range entries {
		if answers[i] {
			founded = append(founded, entry)
			continue
		}
		c.unfounded[entry.ID] = true
		c.left(entry)
	}
	return founded, nil
}

func (c *chain) prolong(ctx context.Context, entries []ledger.Entry) (n int, err error) {
	if !c.known {
		if c.head, err = readHead(ctx, c.Store, c.tenant); err != nil {
			return 0, err
		}
		c.running, c.known = map[string]Totals{}, true
	}
	next := Seal{
		Tenant: c.tenant, Number: c.head.Number + 1, Previous: c.head.Hash, SealedAt: c.Now().UTC().Truncate(time.Microsecond),
		Totals: map[string]Totals{}, Running: map[string]Totals{}, Periods: maps.Clone(c.head.Periods),
	}
	var leaves []leaf
	writes := make([]store.Write, 3, min(len(entries), maxEntries)+3)
	size, carried := 0, 0
	for _, entry := range entries {
		before, err := c.runningIn(ctx, entry.Period)
		if err != nil {
			return 0, err
		}
		canonical, err := entry.Canonical()
		if err != nil {
			return 0, err
		}
		_, begun := next.Running[entry.Period]
		if !begun && len(leaves) > 0 {
			carried += before.size()
		}
		size += len(canonical)
		if len(leaves) == maxEntries || len(leaves) > 0 && (size > maxBytes || carried+sums(next.Totals)+len(entry.Lines) > maxSums) {
			break
		}
		if !begun {
			next.Running[entry.Period] = before.clone()
		}
		for _, line := range entry.Lines {
			if err := errors.Join(add(next.Totals, entry.Period, line), add(next.Running, entry.Period, line)); err != nil {
				return 0, err
			}
		}
		next.Periods[entry.Period] = next.Number
		writes = append(writes, entry.Sealed(next.Number, int64(len(leaves))))
		leaves = append(leaves, leaf{entry.ID, leafHash(canonical)})
	}
	next.Count, next.Root = int64(len(leaves)), hex.EncodeToString(rootOf(leaves))
	if next.Hash, err = next.computed(); err != nil {
		return 0, err
	}
	after := head{Tenant: c.tenant, Number: next.Number, Hash: next.Hash, Periods: next.Periods}
	key := store.Key{Collection: Heads, ID: HeadID(c.tenant)}
	writes[0] = store.Create(sealKey(c.tenant, next.Number), store.Encode(&next))
	writes[1] = store.Create(store.Key{Collection: Leaves, ID: ID(c.tenant, next.Number)}, leavesFields(c.tenant, next.Number, leaves))
	writes[2] = store.Replace(key, c.head.version, store.Encode(&after))
	failpoint.Hit(failpoint.SealCommit)
	versions, err := c.Store.Commit(ctx, writes)
	if err != nil {
		return 0, fmt.Errorf("seal: commit: %w", err)
	}
	failpoint.Hit(failpoint.SealCommitted)
	c.head = after
	c.head.version = versions[2]
	maps.Copy(c.running, next.Running)
	return len(leaves), nil
}

// runningIn returns all that was sealed so far in a period. A seal is not put upon one that does not
// say what was sealed: the error wraps ErrBroken.
func (c *chain) runningIn(ctx context.Context, period string) (Totals, error) {
	if sum, known := c.running[period]; known {
		return sum, nil
	}
	number, sealed := c.head.Periods[period]
	if !sealed {
		c.running[period] = Totals{}
		return Totals{}, nil
	}
	last, err := readNumber(ctx, c.Store, c.tenant, number)
	if err != nil {
		return nil, err
	}
	sum, there := last.Running[period]
	if !there || number == c.head.Number && last.Hash != c.head.Hash {
		return nil, fmt.Errorf("%w: the head contradicts seal %d", ErrBroken, number)
	}
	for period, sum := range last.Running {
		if c.head.Periods[period] == number {
			c.running[period] = sum
		}
	}
	return sum, nil
}
