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

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/filetest"
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

func sealedBooks(t *testing.T) books {
	t.Helper()
	all := whole(t, [2]int{1, 1})
	maps.DeleteFunc(all, func(key store.Key, fields map[string]any) bool {
		waits := fields["event_id"] == "waits"
		return waits || key.ID == "~cursor" || !slices.Contains(
			[]string{ledger.Entries, ledger.Accounts, seal.Seals, seal.Leaves, seal.Heads}, key.Collection)
	})
	require.Len(t, all, 4+1+3+3+2)
	require.Empty(t, findings(t, all))
	return all
}

// Texts, numbers, times and truths are changed, also those in maps and lists, and the names in maps.
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
func TestEverySingleBitThatIsChangedIsFound(t *testing.T) {
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
			// The time of an account's last change is nothing that anybody goes by.
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
				findings, err := sealtest.FindingsOf(t.Context(),
					seal.Verifier{From: changed, Origins: sealtest.Trusting{}}, tenant)
				require.NoError(t, err)
				named := slices.ContainsFunc(findings, func(f seal.Finding) bool { return f.Document == key.String() })
				require.True(t, named, "%v instead of %v", variant, fields)
				found++
			}
			require.Positive(t, found)
		})
	}
}

// with returns fields with others, in pairs of a name and a value; one that is nil is taken out.
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

func TestAPageThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	verifier := seal.Verifier{From: sealedBooks(t), Origins: sealtest.Trusting{}}
	for _, at := range []string{
		"x", "1", "{}x", "[]", `{"part":"others"}`, `{"part":"seals","seal":-1}`, `{"part":"seals","more":1}`,
		`{"part":"accounts","after":3}`,
	} {
		require.ErrorIs(t, filetest.ErrorOf(verifier.Page(t.Context(), "acme", at)), seal.ErrPage, at)
	}
	require.ErrorIs(t, filetest.ErrorOf(verifier.Page(t.Context(), "", `{"part":"seals"}`)), seal.ErrPage)
}

// A balance that moves meanwhile is no finding.
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
	// somebody buys after the account is read, and before its entries are
	s.OnRead = func(do func() error) error {
		if reads++; reads == 2 {
			storetest.Put(t, s.Store, credit(t, "u0", "later")...)
		}
		return do()
	}
	parts := 0
	for at := `{"part":"accounts"}`; at != ""; parts++ {
		part, err := seal.Verifier{From: s, Origins: sealtest.Trusting{}}.Page(t.Context(), "acme", at)
		require.NoError(t, err)
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
	}}, filetest.Must(sealtest.FindingsOf(t.Context(), seal.Verifier{From: s, Origins: sealtest.Trusting{}},
		"acme"))(t))
}
