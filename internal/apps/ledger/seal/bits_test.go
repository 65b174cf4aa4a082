package seal_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// books are the documents of a small store in memory, for changes that no program would make.
type books map[store.Key]map[string]any

func (b books) Get(_ context.Context, key store.Key) (store.Document, error) {
	fields, there := b[key]
	if !there {
		return store.Document{}, store.ErrNotFound
	}
	return store.Document{Key: key, Fields: fields, Version: 1}, nil
}

func (b books) Query(_ context.Context, q store.Query) (page store.Page, _ error) {
	found := map[store.Cursor]store.Document{}
	for key, fields := range b {
		place, match := store.Cursor{ID: key.ID}, key.Collection == q.Collection &&
			strings.HasPrefix(key.ID, q.IDPrefix)
		if q.Due != nil {
			at, timed := fields[q.Due.Field].(time.Time)
			place.At, match = at, match && timed && !at.After(q.Due.Until)
		}
		for name, value := range q.Equal {
			match = match && fields[name] == value
		}
		if match && place.Compare(q.After) > 0 {
			found[place] = store.Document{Key: key, Fields: fields, Version: 1}
		}
	}
	places := slices.SortedFunc(maps.Keys(found), store.Cursor.Compare)
	if q.Count {
		return store.Page{Count: int64(len(places))}, nil
	}
	for _, place := range places[:min(q.Limit, len(places))] {
		page.Documents = append(page.Documents, found[place])
	}
	if q.Due == nil && len(places) > q.Limit {
		page.Next.ID = places[q.Limit-1].ID
	}
	return page, nil
}

// newBooks has entries of two tenants, sealed by two runs, and one that is not sealed yet.
func newBooks(t *testing.T) books {
	t.Helper()
	s := storetest.Open(t)
	posted := func(writes []store.Write, err error) {
		t.Helper()
		require.NoError(t, err)
		storetest.Put(t, s, append(writes, sealtest.Record(t, "books", writes[0]))...)
	}
	posted(ledger.Post(sale("acme", "a", "2026-10", 100, 0)))
	posted(ledger.Post(sale("acme", "b", "2026-11", 200, time.Second)))
	run(t, s)
	posted(credit(t, "u1", "o1"), nil)
	posted(ledger.Post(sale("beta", "c", "2026-11", 3, 0)))
	run(t, s)
	periods := journal.Periods{
		Store: s, Now: func() time.Time { return noon }, NewID: func() string { return "id" },
	}
	by := audit.Change{Who: audit.Author{Proof: audit.Identity, Name: "ada"}, Why: "it is over"}
	require.NoError(t, filetest.ErrorOf(periods.Close(t.Context(), "acme", "2026-09", by)))
	posted(ledger.Post(sale("acme", "waits", "2026-11", 70, 0)))
	return booksIn(t, s)
}

func booksIn(t *testing.T, s store.Store) books {
	t.Helper()
	all := books{}
	for _, collection := range []string{
		ledger.Entries, ledger.Accounts, seal.Seals, seal.Leaves, seal.Heads, dedupe.Collection, audit.Collection,
		journal.PeriodsCollection,
	} {
		for _, doc := range storetest.All(t, s, collection) {
			all[doc.Key] = doc.Fields
		}
	}
	return all
}

// originsIn finds the records of the entries' events in a store, under the queue of all of them.
func originsIn(s ledger.Reader) journal.Origins {
	return journal.Origins{Store: s, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
		{
			ID: "books", Handlers: map[string]catalog.Handler{
				"*.*.*": {Name: catalog.JournalPost}, "order.paid": {Name: "points.credit"},
			},
		},
	}}}
}

// verified returns the findings of verify, and those of compare with seals that were kept.
func (b books) verified(t *testing.T, kept []seal.Seal) (found, withKept []seal.Finding) {
	t.Helper()
	found = filetest.Must(sealtest.Findings(t.Context(), seal.Verifier{From: b, Origins: originsIn(b)}))(t)
	for _, tenant := range []string{"acme", "beta"} {
		there, _, err := seal.List(t.Context(), b, tenant, store.Cursor{}, 100)
		if err != nil {
			continue // verify has found it
		}
		ofIt := slices.DeleteFunc(slices.Clone(kept), func(s seal.Seal) bool { return s.Tenant != tenant })
		withKept = append(withKept, seal.Compare(ofIt, there).Findings...)
	}
	return found, withKept
}

func sealedBooks(t *testing.T) books {
	t.Helper()
	all := newBooks(t)
	maps.DeleteFunc(all, func(key store.Key, fields map[string]any) bool {
		waits := fields["event_id"] == "waits"
		return waits || key == cursor || !slices.Contains(
			[]string{ledger.Entries, ledger.Accounts, seal.Seals, seal.Leaves, seal.Heads}, key.Collection)
	})
	require.Len(t, all, 4+1+3+3+2)
	require.Empty(t, findings(t, all))
	return all
}

// variants are values with one changed bit: of texts, numbers, times and booleans, also in maps and lists,
// and of the names in maps.
func variants(value any) (all []any) {
	switch v := value.(type) {
	case string:
		for i := range 8 * len(v) {
			changed := []byte(v)
			changed[i/8] ^= 1 << (i % 8)
			all = append(all, string(changed))
		}
	case int64:
		for i := range 64 {
			all = append(all, v^1<<i)
		}
	case bool:
		all = append(all, !v)
	case time.Time:
		for i := range 57 { // a store keeps microseconds up to the year 9999
			all = append(all, time.UnixMicro(v.UnixMicro()^1<<i).UTC())
		}
	case []any:
		for i, inner := range v {
			for _, changed := range variants(inner) {
				list := slices.Clone(v)
				list[i] = changed
				all = append(all, list)
			}
		}
	case map[string]any:
		for name, inner := range v {
			for _, changed := range variants(inner) {
				all = append(all, with(v, name, changed))
			}
			for _, renamed := range variants(name) {
				fields := with(v, name, nil)
				fields[renamed.(string)] = inner
				all = append(all, fields)
			}
		}
	}
	return all
}

// With -short it is every 31st bit.
func TestEverySingleChangedBitIsFound(t *testing.T) {
	t.Parallel()
	all := sealedBooks(t)
	every := 1
	if testing.Short() {
		every = 31
	}
	for key, fields := range all {
		t.Run(key.String(), func(t *testing.T) {
			t.Parallel()
			tenant, _ := fields["tenant"].(string)
			// Nothing depends on the time of an account's last change.
			if key.Collection == ledger.Accounts {
				fields = with(fields, "updated_at", nil)
			}
			changed := maps.Clone(all)
			found := 0
			for i, variant := range variants(fields) {
				if i%every != 0 {
					continue
				}
				changed[key] = variant.(map[string]any)
				findings := filetest.Must(sealtest.FindingsOf(t.Context(), verifier(changed), tenant))(t)
				named := slices.ContainsFunc(findings, func(f seal.Finding) bool { return f.Document == key.String() })
				require.True(t, named, "%v instead of %v", variant, fields)
				found++
			}
			require.Positive(t, found)
		})
	}
}

// with returns a copy of fields, changed by pairs of a name and a value; nil removes a field.
func with(fields map[string]any, pairs ...any) map[string]any {
	if fields = maps.Clone(fields); fields == nil {
		fields = map[string]any{}
	}
	for pair := range slices.Chunk(pairs, 2) {
		fields[pair[0].(string)] = pair[1]
		if pair[1] == nil {
			delete(fields, pair[0].(string))
		}
	}
	return fields
}

func TestAnInvalidPageIsRefused(t *testing.T) {
	t.Parallel()
	all := verifier(sealedBooks(t))
	for _, at := range []string{
		"x", "1", "{}x", "[]", `{"part":"others"}`, `{"part":"seals","seal":-1}`, `{"part":"seals","more":1}`,
		`{"part":"accounts","after":3}`,
	} {
		require.ErrorIs(t, filetest.ErrorOf(all.Page(t.Context(), "acme", at)), seal.ErrPage, at)
	}
	require.ErrorIs(t, filetest.ErrorOf(all.Page(t.Context(), "", `{"part":"seals"}`)), seal.ErrPage)
}

// A balance that changes during the verification is no finding.
func TestBalancesOfManyEntriesAreComparedOverSeveralParts(t *testing.T) {
	t.Parallel()
	s := &storetest.Faults{Store: storetest.Open(t)}
	for user := range 13 {
		uid := fmt.Sprint("u", user)
		writes := []store.Write{
			store.Increment(ledger.UserPoints(uid).Key("acme"), map[string]int64{"balance": 5 * 400},
				credit(t, uid, "o")[1].Fields),
		}
		for i := range 400 {
			writes = append(writes, credit(t, uid, fmt.Sprint(uid, "-", i))[0])
		}
		storetest.Put(t, s, writes...)
	}
	reads := 0
	// An order is paid after the account is read, and before its entries are.
	s.OnRead = func(do func() error) error {
		if reads++; reads == 2 {
			storetest.Put(t, s.Store, credit(t, "u0", "later")...)
		}
		return do()
	}
	parts := 0
	for at := `{"part":"accounts"}`; at != ""; parts++ {
		part := filetest.Must(verifier(s).Page(t.Context(), "acme", at))(t)
		require.Empty(t, part.Findings)
		at = part.Next
	}
	require.Equal(t, 2, parts)
	s.OnRead = nil
	key := ledger.UserPoints("u1").Key("acme")
	storetest.Edit(t, s, key, func(fields map[string]any) { fields["balance"] = int64(9_999_999) })
	require.Equal(t, []seal.Finding{{
		Kind: seal.Changed, Tenant: "acme", Document: key.String(),
		Detail: "the balance is not the sum of the account's entries",
	}}, filetest.Must(sealtest.FindingsOf(t.Context(), verifier(s), "acme"))(t))
}
