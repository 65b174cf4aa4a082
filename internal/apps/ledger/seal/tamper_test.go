package seal_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// books is a copy of a small store in memory, for changes that no store would make.
type books map[store.Key]map[string]any

func (b books) Get(_ context.Context, key store.Key) (store.Document, error) {
	fields, there := b[key]
	if !there {
		return store.Document{}, store.ErrNotFound
	}
	return store.Document{Key: key, Fields: fields, Version: 1}, nil
}

func (b books) Query(_ context.Context, q store.Query) (store.Page, error) {
	var page store.Page
	for key, fields := range b {
		if key.Collection != q.Collection || !strings.HasPrefix(key.ID, q.IDPrefix) || key.ID <= q.After.ID {
			continue
		}
		match := true
		for name, value := range q.Equal {
			match = match && fields[name] == value
		}
		if match {
			page.Documents = append(page.Documents, store.Document{Key: key, Fields: fields, Version: 1})
		}
	}
	if q.Count {
		return store.Page{Count: int64(len(page.Documents))}, nil
	}
	slices.SortFunc(page.Documents, func(a, b store.Document) int { return strings.Compare(a.Key.ID, b.Key.ID) })
	if len(page.Documents) > q.Limit {
		page.Documents = page.Documents[:q.Limit]
		page.Next.ID = page.Documents[q.Limit-1].Key.ID
	}
	return page, nil
}

// copied returns the documents of the books in a store, and those of more collections.
func copied(t *testing.T, s store.Querier, more ...string) books {
	t.Helper()
	all := books{}
	for _, collection := range append([]string{ledger.Entries, ledger.Accounts, seal.Seals, seal.Leaves, seal.Heads}, more...) {
		for doc, err := range store.Each(t.Context(), s, store.Query{Collection: collection, Limit: store.MaxPage}) {
			require.NoError(t, err)
			all[doc.Key] = doc.Fields
		}
	}
	return all
}

// sealedBooks are those of a tenant with two seals, and of another with one.
func sealedBooks(t *testing.T) books {
	t.Helper()
	s := storetest.Open(t)
	post(t, s, sale("acme", "a", "2026-10", 100, 0), sale("acme", "b", "2026-11", 200, time.Second))
	run(t, s)
	credit, err := ledger.Credit(ledger.Move{
		Tenant: "acme", Order: "o1", EventID: "e1", From: ledger.IssuedPoints("o1"), To: ledger.UserPoints("u1"), Amount: 5, Currency: ledger.Points,
		OrderTotal: 2500, OrderCurrency: "SGD", CreatedAt: noon,
	})
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), credit)
	require.NoError(t, err)
	post(t, s, sale("beta", "c", "2026-11", 3, 0))
	run(t, s)
	all := copied(t, s)
	require.Len(t, all, 4+1+3+3+2)
	require.Empty(t, findings(t, all))
	return all
}

// variants yields each value that differs from the given one in a single bit: of a text, a number, a
// time, a truth, also of those in maps and lists, and of the names in maps.
func variants(value any) iter.Seq[any] {
	return func(yield func(any) bool) {
		switch v := value.(type) {
		case string:
			for i := range 8 * len(v) {
				changed := []byte(v)
				changed[i/8] ^= 1 << (i % 8)
				if !yield(string(changed)) {
					return
				}
			}
		case int64:
			for i := range 64 {
				if !yield(v ^ 1<<i) {
					return
				}
			}
		case bool:
			yield(!v)
		case time.Time:
			for i := range 57 { // a store keeps microseconds up to the year 9999
				if !yield(time.UnixMicro(v.UnixMicro() ^ 1<<i).UTC()) {
					return
				}
			}
		case []any:
			for i, inner := range v {
				for changed := range variants(inner) {
					list := slices.Clone(v)
					list[i] = changed
					if !yield(list) {
						return
					}
				}
			}
		case map[string]any:
			for name, inner := range v {
				for changed := range variants(inner) {
					fields := maps.Clone(v)
					fields[name] = changed
					if !yield(fields) {
						return
					}
				}
				for renamed := range variants(name) {
					fields := maps.Clone(v)
					delete(fields, name)
					fields[renamed.(string)] = inner
					if !yield(fields) {
						return
					}
				}
			}
		}
	}
}

// With -short it is every eleventh bit.
func TestEverySingleBitThatIsChangedIsFound(t *testing.T) {
	t.Parallel()
	all := sealedBooks(t)
	every := 1
	if testing.Short() {
		every = 11
	}
	for key, fields := range all {
		t.Run(key.String(), func(t *testing.T) {
			t.Parallel()
			tenant := "acme"
			if fields["tenant"] == "beta" {
				tenant = "beta"
			}
			changed := maps.Clone(all)
			n, found := 0, 0
			for variant := range variants(fields) {
				if n++; n%every != 0 {
					continue
				}
				if key.Collection == ledger.Accounts && sameAccount(fields, variant.(map[string]any)) {
					continue // the time of an account's last change is nothing that anybody goes by
				}
				changed[key] = variant.(map[string]any)
				named := false
				require.NoError(t, seal.Verifier{From: changed, Origins: sealtest.Trusting{}}.Tenant(t.Context(), tenant, func(f seal.Finding) { named = named || f.Document == key.String() }))
				require.True(t, named, "%v instead of %v", variant, fields)
				found++
			}
			require.Positive(t, found)
			t.Logf("%d of %d changes of one bit, each found and named", found, n)
		})
	}
}

// sameAccount reports whether two documents of accounts say the same of what they hold.
func sameAccount(a, b map[string]any) bool {
	for _, name := range []string{"tenant", "account", "currency", "balance"} {
		if a[name] != b[name] {
			return false
		}
	}
	return true
}

func with(fields map[string]any, name string, value any) map[string]any {
	fields = maps.Clone(fields)
	fields[name] = value
	return fields
}

func without(fields map[string]any, names ...string) map[string]any {
	fields = maps.Clone(fields)
	for _, name := range names {
		delete(fields, name)
	}
	return fields
}

func postedFields(t *testing.T, entry ledger.Entry) map[string]any {
	t.Helper()
	writes, err := ledger.Post(entry)
	require.NoError(t, err)
	return writes[0].Fields
}

// Somebody who can write everything can seal everything again. Who kept a seal finds that.
func TestWhoeverKeptASealFindsThatAllWasSealedAgain(t *testing.T) {
	t.Parallel()
	all := sealedBooks(t)
	text, err := seal.Prove(t.Context(), all, ledger.EntryID("acme", "a"))
	require.NoError(t, err)

	forged := storetest.Open(t)
	post(t, forged, sale("acme", "a", "2026-10", 99, 0), sale("acme", "b", "2026-11", 200, time.Second))
	run(t, forged)
	require.Empty(t, findings(t, forged))
	seals, _, err := seal.List(t.Context(), forged, "acme", 0, 1)
	require.NoError(t, err)
	_, err = seal.CheckProof(text, seals)
	require.ErrorIs(t, err, seal.ErrProof)
	kept, _, err := seal.List(t.Context(), all, "acme", 2, 1)
	require.NoError(t, err)
	_, err = seal.CheckProof(text, kept)
	require.NoError(t, err)
}

func TestAPageThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	all := sealedBooks(t)
	for _, at := range []string{"x", "1", "1 h", "-1 h " + seal.HeadID("acme") + "~", "1 h other~"} {
		_, err := seal.Verifier{From: all, Origins: sealtest.Trusting{}}.Page(t.Context(), "acme", at)
		require.ErrorIs(t, err, seal.ErrPage, at)
	}
	_, err := seal.Verifier{From: all, Origins: sealtest.Trusting{}}.Rest(t.Context(), "x")
	require.ErrorIs(t, err, seal.ErrPage)
}

// A seal that is made between any two reads of a verification is no finding, nor is a tenant's first.
func TestASealThatIsMadeMeanwhileIsNoFinding(t *testing.T) {
	t.Parallel()
	for read := range 16 {
		s := storetest.Open(t)
		post(t, s, sale("acme", "a", "2026-11", 100, 0))
		run(t, s)
		post(t, s, sale("acme", "b", "2026-11", 100, 0), sale("beta", "c", "2026-11", 100, 0))
		faults := &storetest.Faults{Store: s}
		n := 0
		faults.OnRead = func(do func() error) error {
			if n++; n == read+1 {
				run(t, s)
			}
			return do()
		}
		require.NoError(t, seal.Verifier{From: faults, Origins: sealtest.Trusting{}}.All(t.Context(), func(f seal.Finding) { require.Fail(t, "a finding", "before read %d: %+v", read, f) }))
	}
}

// A balance of more entries than a part reads is summed up over several parts, and one that moves meanwhile
// is no finding.
func TestABalanceOfManyEntriesIsComparedOverSeveralParts(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t)
	credit := func(order string) []store.Write {
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "acme", Order: order, EventID: "e-" + order, From: ledger.IssuedPoints(order), To: ledger.UserPoints("u1"), Amount: 5, Currency: ledger.Points, CreatedAt: noon,
		})
		require.NoError(t, err)
		return writes
	}
	key := ledger.UserPoints("u1").Key("acme")
	const entries = 5200
	for begin := 0; begin < entries; begin += 400 {
		var writes []store.Write
		for i := begin; i < begin+400; i++ {
			writes = append(writes, credit(fmt.Sprint("o", i))[0])
		}
		_, err := s.Commit(t.Context(), append(writes, store.Increment(key, map[string]int64{"balance": 5 * 400}, credit("o0")[1].Fields)))
		require.NoError(t, err)
	}
	run(t, s)
	require.Empty(t, findings(t, s))
	verifier := seal.Verifier{From: s, Origins: sealtest.Trusting{}}
	parts := 0
	for at := "accounts "; ; parts++ {
		part, err := verifier.Page(t.Context(), "acme", at)
		require.NoError(t, err)
		require.Empty(t, part.Findings)
		if at = part.Next; at == "" {
			break
		}
		if parts == 0 { // somebody buys meanwhile
			_, err := s.Commit(t.Context(), credit("later"))
			require.NoError(t, err)
		}
	}
	require.Positive(t, parts)
	doc, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	doc.Fields["balance"] = int64(9_999_999)
	_, err = s.Commit(t.Context(), []store.Write{store.Set(key, doc.Fields)})
	require.NoError(t, err)
	require.Equal(t, []seal.Finding{{
		Kind: seal.Changed, Tenant: "acme", Document: key.String(), Detail: "the balance is not the sum of the account's entries",
	}}, findings(t, s))
	for _, at := range []string{"accounts x", "accounts 1 2 3", "accounts a b c d"} {
		_, err := verifier.Page(t.Context(), "acme", at)
		require.ErrorIs(t, err, seal.ErrPage, at)
	}
}
