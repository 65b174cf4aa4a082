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

// Who finds a tampering, as docs/why/ledger.md has it.
const (
	byVerify = "`verify`"
	byKept   = "`compare`"
	nobody   = "nobody"
)

// clocks are the hours of the sealer's two runs; an entry that is forced in by somebody is sealed by him.
func whole(t *testing.T, clocks [2]int, forced ...ledger.Entry) books {
	t.Helper()
	s := stamping{storetest.Open(t), new(time.Time)}
	posted := func(writes []store.Write, err error) {
		t.Helper()
		require.NoError(t, err)
		storetest.Put(t, s, append(writes, sealtest.Record(t, "books", writes[0]))...)
	}
	sealed := func(hours int) {
		sealtest.Seal(t, s, sealtest.Trusting{}, noon.Add(time.Duration(hours)*time.Hour))
	}
	posted(ledger.Post(sale("acme", "a", "2026-10", 100, 0)))
	posted(ledger.Post(sale("acme", "b", "2026-11", 200, time.Second)))
	sealed(clocks[0])
	posted(credit(t, "u1", "o1"), nil)
	posted(ledger.Post(sale("beta", "c", "2026-11", 3, 0)))
	sealed(clocks[1])
	periods := journal.Periods{
		Store: s, Now: func() time.Time { return noon }, NewID: func() string { return "id" },
	}
	_, err := periods.Close(t.Context(), "acme", "2026-09",
		audit.Change{Who: audit.Author{Proof: audit.Identity, Name: "ada"}, Why: "it is over"})
	require.NoError(t, err)
	if len(forced) > 0 {
		post(t, s, forced...)
		sealed(clocks[1] + 1)
	}
	posted(ledger.Post(sale("acme", "waits", "2026-11", 70, 0)))
	all := books{}
	for _, collection := range []string{
		ledger.Entries, ledger.Accounts, seal.Seals, seal.Leaves, seal.Heads, dedupe.Collection, audit.Collection,
		journal.PeriodsCollection,
	} {
		for doc, err := range store.Each(t.Context(), s,
			store.Query{Collection: collection, Limit: store.MaxPage}) {
			require.NoError(t, err)
			all[doc.Key] = doc.Fields
		}
	}
	return all
}

// stamping is a store whose time passes by its commits alone: the same books have the same seals.
type stamping struct {
	store.Store

	now *time.Time
}

func (s stamping) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	if s.now.IsZero() {
		*s.now = noon
	}
	*s.now = s.now.Add(time.Millisecond)
	writes = slices.Clone(writes)
	for i, w := range writes {
		if w.Stamp != "" {
			writes[i].Fields = with(w.Fields, w.Stamp, *s.now)
			writes[i].Stamp = ""
		}
	}
	return s.Store.Commit(ctx, writes)
}

func (b books) verified(t *testing.T, kept []seal.Seal) (found, withKept []seal.Finding) {
	t.Helper()
	origins := journal.Origins{Store: b, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
		{
			ID: "books", Handlers: map[string]catalog.Handler{
				"*.*.*": {Name: catalog.JournalPost}, "order.paid": {Name: "points.credit"},
			},
		},
	}}}
	found = filetest.Must(sealtest.Findings(t.Context(), seal.Verifier{From: b, Origins: origins}))(t)
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

// As many records as entries vouch for all; where the two differ each is asked about.
func TestManyEntriesAreVouchedForByTheNumberOfTheirRecords(t *testing.T) {
	t.Parallel()
	s := &storetest.Counter{Store: storetest.Open(t)}
	origins := journal.Origins{Store: s, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
		{ID: "books", Handlers: map[string]catalog.Handler{"*.*.*": {Name: catalog.JournalPost}}},
	}}}
	for round, invented := range []int{0, 1, 0} {
		for i := range 40 {
			writes := filetest.Must(ledger.Post(sale("acme", fmt.Sprint("e", round, "-", i), "2026-11", 100, 0)))(t)
			storetest.Put(t, s, append(writes, sealtest.Record(t, "books", writes[0]))...)
			if i < invented {
				post(t, s, sale("acme", "invented", "2026-11", 100, 0))
			}
		}
		unreadable := 0
		if round == 2 { // the record is there, and the entry is no more what it names
			key := ledger.Key(ledger.EntryID("acme", "e2-7"))
			storetest.Edit(t, s, key, func(fields map[string]any) { delete(fields, "kind") })
			unreadable = 1
			storetest.Put(t, s, store.Delete(ledger.Key(ledger.EntryID("acme", "invented")), 0))
		}
		gets := s.Gets.Load()
		done := sealtest.Seal(t, s, origins, noon)
		require.Equal(t, []int{40 - unreadable, invented, unreadable},
			[]int{done.Entries, done.Unfounded, done.Unreadable})
		require.Equal(t, round > 0, s.Gets.Load()-gets > 39, "each is asked about")
		if round == 2 {
			require.Equal(t, 1, sealtest.Seal(t, s, origins, noon).Unreadable, "its turn comes again")
		}
	}
}

// The table is that of docs/why/ledger.md.
func TestEachTamperingIsFoundByWhomTheDocsSay(t *testing.T) {
	t.Parallel()
	entry := func(event string) store.Key { return ledger.Key(ledger.EntryID("acme", event)) }
	sealed := func(collection string, number int64) store.Key {
		return store.Key{Collection: collection, ID: seal.ID("acme", number)}
	}
	a, b, added, invented := entry("a"), entry("b"), entry("added"), entry("invented")
	first, second, third := sealed(seal.Seals, 1), sealed(seal.Seals, 2), sealed(seal.Seals, 3)
	leaves := sealed(seal.Leaves, 1)
	head := store.Key{Collection: seal.Heads, ID: seal.HeadID("acme")}
	o1 := credit(t, "u1", "o1")[0].Key
	held, made := ledger.UserPoints("u1").Key("acme"), ledger.UserPoints("u2").Key("acme")
	posted := func(event string, amount int64) map[string]any {
		writes := filetest.Must(ledger.Post(sale("acme", event, "2026-11", amount, 0)))(t)
		return sealtest.Document(writes[0]).Fields // of long ago
	}
	later := func(fields map[string]any) map[string]any {
		return with(fields, "committed_at", noon.AddDate(0, 0, 1))
	}
	usual := [2]int{1, 1}

	gone := func(match func(store.Key, map[string]any) bool) func(books) {
		return func(all books) { maps.DeleteFunc(all, match) }
	}
	lost := func(lost store.Key) func(books) {
		return gone(func(key store.Key, _ map[string]any) bool { return key == lost })
	}
	lostAll := func(collection string) func(books) {
		return gone(func(key store.Key, _ map[string]any) bool { return key.Collection == collection })
	}
	set := func(key store.Key, fields ...any) func(books) {
		return func(all books) { all[key] = with(all[key], fields...) }
	}
	put := func(key store.Key, fields map[string]any) func(books) {
		return func(all books) {
			all[key] = fields
		}
	}
	became := func(clocks [2]int, forced ...ledger.Entry) func(books) {
		return func(all books) {
			clear(all)
			maps.Copy(all, whole(t, clocks, forced...))
		}
	}
	type row struct {
		by   string
		do   func(books)
		kind string
		key  store.Key
	}
	table := map[string]row{
		"an entry is gone":          {byVerify, lost(a), seal.Missing, a},
		"an entry was changed":      {byVerify, set(a, "event_type", "other.event.happened"), seal.Changed, a},
		"an entry has a field more": {byVerify, set(a, "note", "x"), seal.Changed, a},
		"two entries changed places": {byVerify, func(all books) {
			all[a], all[b] = with(all[a], "committed_at", all[b]["committed_at"]),
				with(all[b], "committed_at", all[a]["committed_at"])
		}, seal.Changed, b},
		"an entry was moved to where another seal holds it": {byVerify, func(all books) {
			all[a] = with(all[a], "committed_at", all[second]["through"])
		}, seal.Changed, a},
		"an entry was put where a seal has passed": {byVerify, put(added, posted("added", 10)), seal.Added, added},
		"a sealed entry was moved behind all seals": {
			byVerify, func(all books) { all[a] = later(all[a]) }, seal.Changed, a,
		},
		"an entry has no time of its commit": {
			byVerify, put(added, with(posted("added", 10), "committed_at", nil)), seal.Changed, added,
		},
		"an entry was put into a shard that is none": {
			byVerify, put(added, with(posted("added", 10), "shard", int64(9))), seal.Changed, added,
		},
		"the cursor was set back": {
			by: nobody, do: func(all books) { delete(all, store.Key{Collection: seal.Heads, ID: "~cursor"}) },
		},
		"a balance was changed":       {byVerify, set(held, "balance", int64(9_999_999)), seal.Changed, held},
		"a balance is gone":           {byVerify, lost(held), seal.Missing, held},
		"a balance of another tenant": {byVerify, set(held, "tenant", "beta"), seal.Missing, held},
		"a balance was made up": {
			byVerify, func(all books) { all[made] = with(all[held], "account", "points:user:u2") }, seal.Changed, made,
		},
		"the first seal is gone": {byVerify, lost(first), seal.Missing, first},
		"the last seal is gone":  {byVerify, lost(second), seal.Missing, second},
		"the leaves are gone":    {byVerify, lost(leaves), seal.Missing, leaves},
		"the head is gone":       {byVerify, lost(head), seal.Missing, head},
		"the leaves were reordered": {byVerify, func(all books) {
			list := slices.Clone(all[leaves]["leaves"].([]any))
			slices.Reverse(list)
			all[leaves] = with(all[leaves], "leaves", list)
		}, seal.Changed, leaves},
		"the seals changed places": {
			byVerify, func(all books) { all[first], all[second] = all[second], all[first] }, seal.Changed, first,
		},
		"a seal was added": {
			byVerify, func(all books) { all[third] = with(all[second], "number", int64(3)) }, seal.Changed, third,
		},
		"leaves without a seal": {
			byVerify, func(all books) { all[sealed(seal.Leaves, 3)] = all[leaves] }, seal.Added,
			sealed(seal.Leaves, 3),
		},
		"a seal under an id that none has": {byVerify, func(all books) {
			all[store.Key{Collection: seal.Seals, ID: first.ID + "x"}] = all[first]
		}, seal.Added, store.Key{Collection: seal.Seals, ID: first.ID + "x"}},
		"the head was set back": {byVerify, func(all books) {
			all[head] = with(all[head], "number", int64(1), "hash", all[first]["hash"])
		}, seal.Changed, head},
		"a whole chain is gone, and its entries are not": {
			byVerify, gone(func(key store.Key, _ map[string]any) bool {
				return strings.HasPrefix(key.ID, head.ID)
			}), seal.Added, a,
		},
		"a seal was made again, its hash with it": {
			byVerify, func(all books) { all[first] = whole(t, [2]int{0, 1})[first] }, seal.Changed, second,
		},
		"an entry was put in where it waits for its seal": {
			byVerify, put(invented, later(posted("invented", 10))), seal.Unfounded, invented,
		},
		"an entry of no tenant was put in, and a head for it": {byVerify, func(all books) {
			all[added] = with(posted("added", 10), "tenant", "")
			all[store.Key{Collection: seal.Heads, ID: seal.HeadID("")}] = with(all[head], "tenant", "")
		}, seal.Changed, added},
		"an entry was put in, and a seal made for it, in a closed month": {
			byVerify, became(usual, sale("acme", "dated", "2026-09", 10, -time.Hour)), seal.Late, entry("dated"),
		},

		"all was sealed again": {byKept, became([2]int{2, 2}), seal.Resealed, first},
		"the newest seals were cut off, with their entries and balances": {byKept, func(all books) {
			maps.DeleteFunc(all, func(key store.Key, fields map[string]any) bool {
				newest := key == o1 || key.Collection != seal.Heads && fields["number"] == int64(2)
				return key == held || fields["tenant"] == "acme" && newest
			})
			all[head] = map[string]any{
				"tenant": "acme", "number": int64(1), "hash": all[first]["hash"], "periods": all[first]["periods"],
				"through": all[first]["through"], "through_id": all[first]["through_id"],
			}
		}, seal.Resealed, second},
		"all of a tenant is gone": {byKept, gone(func(_ store.Key, fields map[string]any) bool {
			return fields["tenant"] == "beta"
		}), seal.Resealed, store.Key{Collection: seal.Seals, ID: seal.ID("beta", 1)}},

		"an entry was put in, and a seal made for it, in an open month": {
			by: nobody, do: became(usual, sale("acme", "invented", "2026-11", 10, 0)),
		},
		"an entry was put in together with the record of an event": {by: nobody, do: func(all books) {
			all[invented] = later(posted("invented", 10))
			record := sealtest.Record(t, "books", store.Write{Key: invented, Fields: all[invented]})
			all[record.Key] = record.Fields
		}},
		"an entry was changed before it was sealed, and is right in itself": {
			by: nobody, do: put(entry("waits"), later(posted("waits", 7_000))),
		},
		"the records of events whose entries are sealed were changed, or are gone": {
			by: nobody, do: lost(dedupe.Key("books", "acme", "a")),
		},
		"an entry of the audit was changed, or is gone": {by: nobody, do: lostAll(audit.Collection)},
		"the document of a closed month was changed, or is gone": {
			by: nobody, do: lostAll(journal.PeriodsCollection),
		},
		"a balance was made up of a tenant that has no seals": {
			by: nobody, do: put(ledger.UserPoints("u9").Key("gamma"), map[string]any{
				"tenant": "gamma", "account": "points:user:u9", "currency": ledger.Points, "balance": int64(9),
			}),
		},
		"the time of an account's last change was changed": {
			by: nobody, do: set(held, "updated_at", noon.Add(time.Hour)),
		},
		"what the daily verification keeps of its progress was changed": {
			by: nobody, do: put(store.Key{Collection: seal.Verifications, ID: "books"},
				map[string]any{"at": "behind everything"}),
		},
	}
	base := whole(t, usual)
	var kept []seal.Seal
	for _, tenant := range []string{"acme", "beta"} {
		seals, _ := filetest.Both(seal.List(t.Context(), base, tenant, store.Cursor{}, 100))(t)
		kept = append(kept, seals...)
	}
	found, withKept := base.verified(t, kept)
	require.Empty(t, append(found, withKept...))
	filetest.Each(t, table, func(t *testing.T, test row) {
		all := maps.Clone(base)
		test.do(all)
		found, withKept := all.verified(t, kept)
		switch test.by {
		case byVerify:
			withKept = found
		case byKept:
			require.Empty(t, found, "nothing here tells of it")
		case nobody:
			require.Empty(t, append(found, withKept...))
			return
		}
		require.True(t, slices.ContainsFunc(withKept, func(f seal.Finding) bool {
			return f.Kind == test.kind && f.Document == test.key.String()
		}), "%+v", withKept)
	})

	page := "| found by | what was done |\n| --- | --- |\n"
	for _, who := range []string{byVerify, byKept, nobody} {
		var done []string
		for _, what := range slices.Sorted(maps.Keys(table)) {
			if table[what].by == who {
				done = append(done, what)
			}
		}
		page += fmt.Sprintf("| %s | %s |\n", who, strings.Join(done, "; "))
	}
	const begin, end = "<!-- tamperings: go test ./internal/apps/ledger/seal -run Tampering -update -->\n",
		"<!-- end of tamperings -->"
	filetest.Part(t, page, begin, end, "..", "..", "..", "..", "docs", "why", "ledger.md")
}
