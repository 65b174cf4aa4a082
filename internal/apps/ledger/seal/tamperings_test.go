package seal_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// Who finds a tampering, as docs/why/ledger.md has it.
const (
	byVerify = "`verify`"
	byKept   = "`compare`"
	byNobody = "nobody"
)

// One count of the records vouches for many entries; where the numbers differ, each entry's record is read.
func TestManyEntriesAreVouchedForByTheNumberOfTheirRecords(t *testing.T) {
	t.Parallel()
	s := &storetest.Counter{Store: storetest.Open(t)}
	for round, invented := range []int{0, 1, 0} {
		for i := range 40 {
			writes := filetest.Must(ledger.Post(sale("acme", fmt.Sprint("e", round, "-", i), "2026-11", 100, 0)))(t)
			storetest.Put(t, s, append(writes, sealtest.Record(t, "books", writes[0]))...)
			if i < invented {
				post(t, s, sale("acme", "invented", "2026-11", 100, 0))
			}
		}
		unreadable := 0
		if round == 2 { // the record exists, but its entry cannot be read any more
			key := ledger.Key(ledger.EntryID("acme", "e2-7"))
			storetest.Edit(t, s, key, func(fields map[string]any) { delete(fields, "kind") })
			unreadable = 1
			storetest.Put(t, s, store.Delete(ledger.Key(ledger.EntryID("acme", "invented")), 0))
		}
		gets := s.Gets.Load()
		done := sealtest.Seal(t, s, originsIn(s), noon)
		require.Equal(t, []int{40 - unreadable, invented, unreadable},
			[]int{done.Entries, done.Unfounded, done.Unreadable})
		require.Equal(t, round > 0, s.Gets.Load()-gets > 39, "the record of each entry is read")
		if round == 2 {
			require.Equal(t, 1, sealtest.Seal(t, s, originsIn(s), noon).Unreadable, "the next run reads it again")
		}
	}
}

// tampering is a change to books, and the finding that it must lead to; of what nobody finds there is none.
type tampering struct {
	do       func(books)
	kind     string
	document store.Key
}

func entryKey(event string) store.Key { return ledger.Key(ledger.EntryID("acme", event)) }

func sealedKey(collection string, number int64) store.Key {
	return store.Key{Collection: collection, ID: seal.ID("acme", number)}
}

// The documents of newBooks, and one that is added.
var (
	entryA, entryB, addedEntry = entryKey("a"), entryKey("b"), entryKey("added")

	firstSeal, secondSeal = sealedKey(seal.Seals, 1), sealedKey(seal.Seals, 2)
	firstLeaves           = sealedKey(seal.Leaves, 1)
	acmeHead              = store.Key{Collection: seal.Heads, ID: seal.HeadID("acme")}
	cursor                = store.Key{Collection: seal.Heads, ID: "~cursor"}
	balance               = ledger.UserPoints("u1").Key("acme")
	progress              = store.Key{Collection: seal.Verifications, ID: "books"}
)

// posted are the fields of an entry that was committed before all others.
func posted(t *testing.T, event string, amount int64, change ...any) map[string]any {
	t.Helper()
	writes := filetest.Must(ledger.Post(sale("acme", event, "2026-11", amount, 0)))(t)
	return with(with(writes[0].Fields, "committed_at", noon.AddDate(-20, 0, 0)), change...)
}

// later is a time behind all seals.
var later = noon.AddDate(5000, 0, 0)

func deleteAll(match func(store.Key, map[string]any) bool) func(books) {
	return func(all books) { maps.DeleteFunc(all, match) }
}

func deleted(document store.Key) func(books) {
	return deleteAll(func(key store.Key, _ map[string]any) bool { return key == document })
}

func deletedCollection(name string) func(books) {
	return deleteAll(func(key store.Key, _ map[string]any) bool { return key.Collection == name })
}

func set(key store.Key, fields ...any) func(books) {
	return func(all books) { all[key] = with(all[key], fields...) }
}

func put(key store.Key, fields map[string]any) func(books) {
	return func(all books) { all[key] = fields }
}

// sealed posts entries without records of events, and seals what has no seal.
func sealed(t *testing.T, entries ...ledger.Entry) func(books) {
	return func(all books) {
		s := storetest.Open(t)
		for key, fields := range all {
			storetest.Put(t, s, store.Set(key, fields))
		}
		post(t, s, entries...)
		sealtest.Seal(t, s, sealtest.Trusting{}, noon.Add(2*time.Hour))
		clear(all)
		maps.Copy(all, booksIn(t, s))
	}
}

// rehashed changes a seal, and gives it the hash of what it says then.
func rehashed(t *testing.T, key store.Key, change func(s *seal.Seal)) func(books) {
	return func(all books) {
		var s seal.Seal
		require.NoError(t, store.Decode(all[key], &s))
		change(&s)
		s = s.Rehashed()
		all[key] = store.Encode(&s)
	}
}

func tamperedEntries(t *testing.T) map[string]tampering {
	t.Helper()
	return map[string]tampering{
		"an entry was deleted":        {deleted(entryA), seal.Missing, entryA},
		"an entry was changed":        {set(entryA, "event_type", "other.event.happened"), seal.Changed, entryA},
		"an entry got one more field": {set(entryA, "note", "x"), seal.Changed, entryA},
		"two entries changed places": {func(all books) {
			all[entryA], all[entryB] = with(all[entryA], "committed_at", all[entryB]["committed_at"]),
				with(all[entryB], "committed_at", all[entryA]["committed_at"])
		}, seal.Changed, entryB},
		"an entry was moved to the position of another seal": {func(all books) {
			all[entryA] = with(all[entryA], "committed_at", all[secondSeal]["through"])
		}, seal.Changed, entryA},
		"a sealed entry was moved behind all seals": {set(entryA, "committed_at", later), seal.Changed, entryA},
		"an entry was added before the last seal": {
			put(addedEntry, posted(t, "added", 10)), seal.Added, addedEntry,
		},
		"an entry was added without the time of its commit": {
			put(addedEntry, posted(t, "added", 10, "committed_at", nil)), seal.Changed, addedEntry,
		},
		"an entry was added to an unknown shard": {
			put(addedEntry, posted(t, "added", 10, "shard", int64(9))), seal.Changed, addedEntry,
		},
		"an entry was added after the last seal": {
			put(addedEntry, posted(t, "added", 10, "committed_at", later)), seal.Unfounded, addedEntry,
		},
		"an entry was added without a tenant, and a head for it": {func(all books) {
			all[addedEntry] = posted(t, "added", 10, "tenant", "")
			all[store.Key{Collection: seal.Heads, ID: seal.HeadID("")}] = with(all[acmeHead], "tenant", "")
		}, seal.Changed, addedEntry},
		"an entry and its seal were added in a closed month": {
			sealed(t, sale("acme", "dated", "2026-09", 10, -time.Hour)), seal.Late, entryKey("dated"),
		},
	}
}

func tamperedBalances() map[string]tampering {
	made := ledger.UserPoints("u2").Key("acme")
	return map[string]tampering{
		"a balance was changed":              {set(balance, "balance", int64(9_999_999)), seal.Changed, balance},
		"a balance was deleted":              {deleted(balance), seal.Missing, balance},
		"a balance was given another tenant": {set(balance, "tenant", "beta"), seal.Missing, balance},
		"a balance was added": {
			func(all books) { all[made] = with(all[balance], "account", "points:user:u2") }, seal.Changed, made,
		},
	}
}

func tamperedSeals(t *testing.T) map[string]tampering {
	t.Helper()
	third, unknown := sealedKey(seal.Seals, 3), store.Key{Collection: seal.Seals, ID: firstSeal.ID + "x"}
	moreLeaves := sealedKey(seal.Leaves, 3)
	return map[string]tampering{
		"the first seal was deleted":                {deleted(firstSeal), seal.Missing, firstSeal},
		"the last seal was deleted":                 {deleted(secondSeal), seal.Missing, secondSeal},
		"all seals were deleted, but not the heads": {deletedCollection(seal.Seals), seal.Missing, firstSeal},
		"a list of leaves was deleted":              {deleted(firstLeaves), seal.Missing, firstLeaves},
		"the head was deleted":                      {deleted(acmeHead), seal.Missing, acmeHead},
		"two seals changed places": {func(all books) {
			all[firstSeal], all[secondSeal] = all[secondSeal], all[firstSeal]
		}, seal.Changed, firstSeal},
		"the leaves were reordered": {func(all books) {
			list := slices.Clone(all[firstLeaves]["leaves"].([]any))
			slices.Reverse(list)
			all[firstLeaves] = with(all[firstLeaves], "leaves", list)
		}, seal.Changed, firstLeaves},
		"a seal was added": {
			func(all books) { all[third] = with(all[secondSeal], "number", int64(3)) }, seal.Changed, third,
		},
		"leaves were added without a seal": {
			func(all books) { all[moreLeaves] = all[firstLeaves] }, seal.Added, moreLeaves,
		},
		"a seal was added under an invalid id": {
			func(all books) { all[unknown] = all[firstSeal] }, seal.Added, unknown,
		},
		"the head was set back": {func(all books) {
			all[acmeHead] = with(all[acmeHead], "number", int64(1), "hash", all[firstSeal]["hash"])
		}, seal.Changed, acmeHead},
		"a tenant's seals, leaves and head were deleted, but not its entries": {
			deleteAll(func(key store.Key, _ map[string]any) bool {
				return strings.HasPrefix(key.ID, acmeHead.ID)
			}), seal.Added, entryA,
		},
		"a seal was made again, with its hash": {rehashed(t, firstSeal, func(s *seal.Seal) {
			s.SealedAt = s.SealedAt.Add(time.Hour)
		}), seal.Changed, secondSeal},
		"the running sums of a seal were changed, with its hash": {rehashed(t, secondSeal, func(s *seal.Seal) {
			s.Running["2026-11"]["revenue"]["EUR"] = seal.Sum{Credit: 2}
		}), seal.Changed, secondSeal},
		"the periods of a seal were changed, with its hash": {
			rehashed(t, secondSeal, func(s *seal.Seal) { s.Periods["2026-10"] = 2 }), seal.Changed, secondSeal,
		},
		"the totals of a seal were changed, with its running sums and its hash": {
			rehashed(t, secondSeal, func(s *seal.Seal) {
				for _, of := range []map[string]seal.Totals{s.Totals, s.Running} {
					of["2026-11"]["points:user"][ledger.Points] = seal.Sum{Credit: 6}
				}
			}), seal.Changed, secondSeal,
		},
	}
}

// tamperedEverywhere is found only by seals that were kept elsewhere.
func tamperedEverywhere(t *testing.T) map[string]tampering {
	t.Helper()
	return map[string]tampering{
		"everything was sealed again": {func(all books) {
			for _, made := range []string{seal.Seals, seal.Leaves, seal.Heads} {
				deletedCollection(made)(all)
			}
			sealed(t)(all)
		}, seal.Resealed, firstSeal},
		"the newest seals were deleted, with their entries and balances": {func(all books) {
			maps.DeleteFunc(all, func(key store.Key, fields map[string]any) bool {
				newest := fields["event_id"] == "e-o1" || key.Collection != seal.Heads && fields["number"] == int64(2)
				return key == balance || fields["tenant"] == "acme" && newest
			})
			all[acmeHead] = map[string]any{
				"tenant": "acme", "number": int64(1), "hash": all[firstSeal]["hash"],
				"periods": all[firstSeal]["periods"],
				"through": all[firstSeal]["through"], "through_id": all[firstSeal]["through_id"],
			}
		}, seal.Resealed, secondSeal},
		"all documents of a tenant were deleted": {deleteAll(func(_ store.Key, fields map[string]any) bool {
			return fields["tenant"] == "beta"
		}), seal.Resealed, store.Key{Collection: seal.Seals, ID: seal.ID("beta", 1)}},
	}
}

func tamperedUnseen(t *testing.T) map[string]tampering {
	t.Helper()
	return map[string]tampering{
		"an entry and its seal were added in an open month": {
			do: sealed(t, sale("acme", "invented", "2026-11", 10, 0)),
		},
		"an entry was added with the record of an event": {do: func(all books) {
			all[addedEntry] = posted(t, "added", 10, "committed_at", later)
			record := sealtest.Record(t, "books", store.Write{Key: addedEntry, Fields: all[addedEntry]})
			all[record.Key] = record.Fields
		}},
		"an entry was changed consistently before it was sealed": {
			do: put(entryKey("waits"), posted(t, "waits", 7_000, "committed_at", later)),
		},
		"the records of events whose entries are sealed were changed or deleted": {
			do: deleted(dedupe.Key("books", "acme", "a")),
		},
		"an entry of the audit was changed or deleted": {do: deletedCollection(audit.Collection)},
		"the document of a closed month was changed or deleted": {
			do: deletedCollection(journal.PeriodsCollection),
		},
		"a balance was added for a tenant without seals": {
			do: put(ledger.UserPoints("u9").Key("gamma"), map[string]any{
				"tenant": "gamma", "account": "points:user:u9", "currency": ledger.Points, "balance": int64(9),
			}),
		},
		"the time of an account's last change was changed": {do: set(balance, "updated_at", noon.Add(time.Hour))},
		"the sealer's cursor was set back":                 {do: deleted(cursor)},
		"the progress of the daily verification was changed": {
			do: put(progress, map[string]any{"at": "behind everything"}),
		},
	}
}

// The table is that of docs/why/ledger.md.
func TestEachTamperingIsFoundByWhomTheDocsSay(t *testing.T) {
	t.Parallel()
	base := newBooks(t)
	var kept []seal.Seal
	for _, tenant := range []string{"acme", "beta"} {
		seals, _ := filetest.Both(seal.List(t.Context(), base, tenant, store.Cursor{}, 100))(t)
		kept = append(kept, seals...)
	}
	found, withKept := base.verified(t, kept)
	require.Empty(t, append(found, withKept...))
	verify := tamperedEntries(t)
	maps.Copy(verify, tamperedBalances())
	maps.Copy(verify, tamperedSeals(t))
	page := "| found by | what was done |\n| --- | --- |\n"
	for _, of := range []struct {
		who   string
		table map[string]tampering
	}{{byVerify, verify}, {byKept, tamperedEverywhere(t)}, {byNobody, tamperedUnseen(t)}} {
		page += fmt.Sprintf("| %s | %s |\n", of.who, strings.Join(slices.Sorted(maps.Keys(of.table)), "; "))
		filetest.Each(t, of.table, func(t *testing.T, test tampering) {
			all := maps.Clone(base)
			test.do(all)
			found, withKept := all.verified(t, kept)
			switch of.who {
			case byVerify:
				withKept = found
			case byKept:
				require.Empty(t, found, "verify alone finds nothing")
			case byNobody:
				require.Empty(t, append(found, withKept...))
				return
			}
			require.True(t, slices.ContainsFunc(withKept, func(f seal.Finding) bool {
				return f.Kind == test.kind && f.Document == test.document.String()
			}), "%+v", withKept)
		})
	}
	const begin, end = "<!-- tamperings: go test ./internal/apps/ledger/seal -run Tampering -update -->\n",
		"<!-- end of tamperings -->"
	filetest.Part(t, page, begin, end, "..", "..", "..", "..", "docs", "why", "ledger.md")
}
