package seal

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/platform/failpoint"
	"billhook/internal/platform/store"
)

// The bounds of a seal: it fits in one document, and so do its leaves; a page of a verification reads ten.
const (
	maxEntries = store.MaxPage
	maxBytes   = 900 << 10
	maxSums    = 2000
)

// atOnce is how many entries are read before they are sealed.
const atOnce = ledger.Shards * store.MaxPage

// countedFrom: up to so many entries, each record is read; for more, counting the records is cheaper.
const countedFrom = 16

// tries is how often a tenant is sealed again after another sealer was faster.
const tries = 3

// Sealer seals posted entries. Every field but Lag is required.
type Sealer struct {
	Store   store.Store
	Origins Origins
	Now     func() time.Time
	// Lag is how long a commit may take in the database after it got its time: younger entries wait.
	Lag time.Duration
}

// Sealed is what one run did.
type Sealed struct {
	Entries int `json:"entries"`
	Seals   int `json:"seals"`
	Raced   int `json:"raced"`
	// Unreadable counts the entries that cannot be sealed; verify names them.
	Unreadable int `json:"unreadable"`
	// Unfounded counts the entries that nothing vouches for. They are not sealed either, and verify names them.
	Unfounded int `json:"unfounded"`
	// More reports that the run was out of time before it had sealed all.
	More bool `json:"more"`
	// OldestSeconds is the age of the oldest entry that the run has seen and left without a seal; 0: none.
	OldestSeconds int64 `json:"oldest_seconds"`
}

// Run seals entries until none is left or the context is done. It returns the first error; other tenants are
// sealed nevertheless. Any number of sealers may run at once.
func (s Sealer) Run(ctx context.Context) (Sealed, error) {
	r := round{Sealer: s}
	// The database's clock decides which entries are older than Lag, because the instances' clocks differ.
	begun := store.Increment(cursorKey, map[string]int64{"runs": 1}, nil).Stamped("now")
	_, err := s.Store.Commit(ctx, []store.Write{begun})
	if err == nil {
		r.cursor, err = readCursor(ctx, s.Store)
	}
	if err == nil {
		err = r.catchUp(ctx)
	}
	if err == nil {
		old := stream(ctx, s.Store, "", r.cursor.cursor(), store.Cursor{At: r.cursor.Now.Add(-s.Lag)})
		err = r.walk(old, func(some []store.Document) error { return r.sealAll(ctx, some) })
	}
	if errors.Is(err, errOvertaken) {
		r.done.Raced++
		err = nil
	}
	if r.done.More = ctx.Err() != nil; r.done.More {
		err = nil
	}
	if !r.oldest.IsZero() {
		r.done.OldestSeconds = max(int64(s.Now().Sub(r.oldest).Seconds()), 1)
	}
	return r.done, cmp.Or(r.first, err)
}

// cursor is the position up to which the entries of all tenants are sealed, except tenants in Behind.
type cursor struct {
	Through `store:",inline"`
	// Now is the database's time when the last run began.
	Now time.Time `store:"now"`
	// Behind has the tenants that could not be sealed, each with the time of the oldest entry that was left.
	Behind map[string]time.Time `store:"behind,omitzero"`

	version store.Version
}

var cursorKey = store.Key{Collection: Heads, ID: "~cursor"}

// readCursor reads the cursor. If it is missing or damaged, the sealer reads all entries again.
func readCursor(ctx context.Context, from store.Getter) (cursor, error) {
	doc, err := store.Find(ctx, from, cursorKey)
	c := cursor{version: doc.Version}
	if err != nil {
		return c, fmt.Errorf("seal: read cursor: %w", err)
	}
	if _ = store.Decode(doc.Fields, &c); c.Behind == nil { // no field is required
		c.Behind = map[string]time.Time{}
	}
	return c, nil
}

// passed is -1 if the cursor is at or after the position of an entry's document, and else 0.
func (c cursor) passed(doc store.Document) int64 {
	tenant, _ := doc.Fields[fieldTenant].(string)
	if _, behind := c.Behind[tenant]; behind || c.before(ledger.Position(doc)) {
		return 0
	}
	return -1
}

type round struct {
	Sealer

	cursor cursor
	done   Sealed
	oldest time.Time
	first  error
}

// errOvertaken: another run has begun, and continues from the same position.
var errOvertaken = errors.New("seal: another run has begun")

// keep replaces a document at the version that was read. The error may be errOvertaken.
func keep(ctx context.Context, s store.Store, key store.Key, at *store.Version, fields map[string]any) error {
	versions, err := s.Commit(ctx, []store.Write{store.Replace(key, *at, fields)})
	switch {
	case errors.Is(err, store.ErrStale), errors.Is(err, store.ErrExists):
		return errOvertaken
	case err != nil:
		return fmt.Errorf("seal: keep %s: %w", key, err)
	}
	*at = versions[0]
	return nil
}

// catchUp seals the entries of the tenants that are behind the cursor, up to the cursor.
func (r *round) catchUp(ctx context.Context) error {
	for _, tenant := range slices.Sorted(maps.Keys(r.cursor.Behind)) {
		last, err := readHead(ctx, r.Store, tenant)
		for period := range last.Periods { // an unreadable seal ends it before entries are read
			if err == nil {
				_, err = last.running(ctx, r.Store, period)
			}
		}
		if err == nil {
			err = r.walk(stream(ctx, r.Store, tenant, last.cursor(), r.cursor.cursor()),
				func(some []store.Document) error { return r.sealRaced(ctx, tenant, some) })
		}
		if err != nil {
			r.note(r.cursor.Behind[tenant])
			if ctx.Err() != nil {
				return err
			}
			r.first = cmp.Or(r.first, err)
			continue
		}
		delete(r.cursor.Behind, tenant)
		if err := keep(ctx, r.Store, cursorKey, &r.cursor.version, store.Encode(&r.cursor)); err != nil {
			return err
		}
	}
	return nil
}

// walk passes the entries of a stream to seal in batches. Entries of one time are in one batch, unless they
// are too many, so that the number of their records can match.
func (r *round) walk(entries documents, seal func([]store.Document) error) error {
	var some []store.Document
	for doc, err := range entries {
		if err != nil {
			return err
		}
		n := len(some)
		if n >= atOnce && (n >= 2*atOnce || ledger.Position(doc).At.After(ledger.Position(some[n-1]).At)) {
			if err := seal(some); err != nil {
				return err
			}
			some = nil
		}
		some = append(some, doc)
	}
	if len(some) == 0 {
		return nil
	}
	return seal(some)
}

// sealAll seals entries of all tenants that are not behind. One that cannot be sealed delays no other.
func (r *round) sealAll(ctx context.Context, documents []store.Document) error {
	byTenant := map[string][]store.Document{}
	for _, doc := range documents {
		tenant, _ := doc.Fields[fieldTenant].(string)
		if store.CheckKey(headKey(tenant)) != nil {
			tenant = ""
		}
		byTenant[tenant] = append(byTenant[tenant], doc)
	}
	for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
		if _, behind := r.cursor.Behind[tenant]; behind {
			continue
		}
		if err := r.sealRaced(ctx, tenant, byTenant[tenant]); err != nil {
			posted := r.leave(byTenant[tenant][0])
			if ctx.Err() != nil {
				return err
			}
			r.first, r.cursor.Behind[tenant] = cmp.Or(r.first, err), posted
		}
	}
	r.cursor.Through = Through(ledger.Position(documents[len(documents)-1]))
	return keep(ctx, r.Store, cursorKey, &r.cursor.version, store.Encode(&r.cursor))
}

// leave notes when an unsealed entry was posted.
func (r *round) leave(doc store.Document) (posted time.Time) {
	posted, known := doc.Fields["posted_at"].(time.Time)
	if !known { // an entry of a chain
		posted, _ = doc.Fields[ledger.FieldCreated].(time.Time)
	}
	r.note(posted)
	return posted
}

func (r *round) note(posted time.Time) {
	if !posted.IsZero() && (r.oldest.IsZero() || posted.Before(r.oldest)) {
		r.oldest = posted
	}
}

// sealRaced seals, and tries again if another sealer was faster, or the answer to its own commit was lost.
func (r *round) sealRaced(ctx context.Context, tenant string, documents []store.Document) (err error) {
	for range tries {
		if err = r.seal(ctx, tenant, documents); !errors.Is(err, store.ErrStale) &&
			!errors.Is(err, store.ErrExists) {
			return err
		}
		r.done.Raced++
	}
	return err
}

// seal seals a tenant's entries that have no seal, in the order of their positions.
func (r *round) seal(ctx context.Context, tenant string, documents []store.Document) error {
	last, err := readHead(ctx, r.Store, tenant)
	if err != nil {
		return err
	}
	entries, err := r.founded(ctx, slices.DeleteFunc(slices.Clone(documents), func(doc store.Document) bool {
		return !last.before(ledger.Position(doc))
	}))
	for n := 0; len(entries) > 0 && err == nil; entries = entries[n:] {
		if last, n, err = r.prolong(ctx, last, entries); err == nil {
			r.done.Seals++
			r.done.Entries += n
		}
	}
	return err
}

// hashed is an entry with its leaf.
type hashed struct {
	ledger.Entry
	leaf leaf
}

// founded returns the entries that can be read and that something vouches for. The others get a new time
// before a seal passes their position, so that a later run reads them again.
func (r *round) founded(ctx context.Context, documents []store.Document) (entries []hashed, err error) {
	var all []hashed
	var others []store.Document
	for _, doc := range documents {
		one := hashed{leaf: leaf{id: doc.Key.ID}}
		if one.Entry, err = ledger.Read(doc); err == nil {
			one.leaf.hash, err = one.LeafHash()
		}
		if err == nil {
			all = append(all, one)
			continue
		}
		r.done.Unreadable++
		others = append(others, doc)
	}
	if len(others) == 0 && len(all) > countedFrom {
		made, err := r.Origins.Made(ctx, all[0].Tenant, all[0].CommittedAt, all[len(all)-1].CommittedAt)
		if err != nil {
			return nil, fmt.Errorf("seal: count origins: %w", err)
		}
		if made == int64(len(all)) {
			return all, nil
		}
	}
	answers, err := checkAll(ctx, all, func(ctx context.Context, entry hashed) (bool, error) {
		return r.Origins.Vouched(ctx, entry.Entry)
	})
	if err != nil {
		return nil, fmt.Errorf("seal: find origins: %w", err)
	}
	for i, entry := range all {
		if answers[i] {
			entries = append(entries, entry)
			continue
		}
		r.done.Unfounded++
		others = append(others, entry.Document)
	}
	for _, doc := range others {
		r.leave(doc)
		if err := reposition(ctx, r.Store, doc); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// reposition gives an unsealed entry a new time, unless another run has done so since it was read.
func reposition(ctx context.Context, to store.Committer, doc store.Document) error {
	if _, err := to.Commit(ctx, []store.Write{ledger.Reposition(doc)}); err != nil &&
		!errors.Is(err, store.ErrStale) {
		return fmt.Errorf("seal: move entry: %w", err)
	}
	return nil
}

// prolong commits the next seal of a tenant's chain, with as many entries as fit into it. It returns the new
// head and the number of entries.
func (r *round) prolong(ctx context.Context, last head, entries []hashed) (head, int, error) {
	next := Seal{
		Tenant: last.Tenant, Number: last.Number + 1, Previous: last.Hash,
		SealedAt: r.Now().UTC().Truncate(time.Microsecond),
		Totals:   map[string]Totals{}, Running: map[string]Totals{}, Periods: maps.Clone(last.Periods),
	}
	var leaves []leaf
	size := 0
	for _, entry := range entries[:min(len(entries), maxEntries)] {
		before, err := Totals{}, error(nil)
		if next.Running[entry.Period] == nil {
			before, err = last.running(ctx, r.Store, entry.Period)
		}
		if err != nil {
			return last, 0, err
		}
		size += len(entry.leaf.String()) + 1
		if len(leaves) > 0 && (size > maxBytes ||
			sums(next.Running)+sums(map[string]Totals{"": before})+len(entry.Lines) > maxSums) {
			break
		}
		err = add(next.Running, entry.Period, before)
		for _, line := range entry.Lines {
			err = errors.Join(err, add(next.Totals, entry.Period, totalsOf(line)),
				add(next.Running, entry.Period, totalsOf(line)))
		}
		if err != nil {
			return last, 0, err
		}
		next.Periods[entry.Period], next.Through = next.Number, Through(ledger.Position(entry.Document))
		leaves = append(leaves, entry.leaf)
	}
	next.Count, next.Root = int64(len(leaves)), hex.EncodeToString(rootOf(leaves))
	var err error
	if next.Hash, err = next.computed(); err != nil {
		return last, 0, err
	}
	after := next.head()
	failpoint.Hit(failpoint.SealCommit)
	versions, err := r.Store.Commit(ctx, []store.Write{
		store.Create(sealKey(next.Tenant, next.Number), store.Encode(&next)),
		store.Create(leavesKey(next.Tenant, next.Number), leavesFields(next.Tenant, next.Number, leaves)),
		store.Replace(headKey(next.Tenant), last.version, store.Encode(&after)),
	})
	if err != nil {
		return last, 0, fmt.Errorf("seal: commit: %w", err)
	}
	failpoint.Hit(failpoint.SealCommitted)
	after.version = versions[2]
	return after, len(leaves), nil
}
