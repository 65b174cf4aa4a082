package seal_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
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
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// Who finds a tampering, as docs/ledger.md has it.
const (
	byVerify = "`verify`"
	byKept   = "`verify --seals`"
	nobody   = "nobody"
)

// whole are the books of two tenants with all that stands beside them: records, audit, a closed month,
// an entry that waits for its seal. clocks are when the two runs of the sealer were, in hours; an entry that is
// forced in by somebody is sealed by him.
func whole(t *testing.T, clocks [2]int, forced ...ledger.Entry) books {
	t.Helper()
	s := storetest.Open(t)
	posted := func(writes []store.Write, err error) {
		t.Helper()
		require.NoError(t, err)
		_, err = s.Commit(t.Context(), append(writes, sealtest.Record(t, "books", writes[0])))
		require.NoError(t, err)
	}
	sealed := func(hours int) {
		t.Helper()
		now := func() time.Time { return noon.Add(time.Duration(hours) * time.Hour) }
		_, err := seal.Sealer{Store: s, Origins: sealtest.Trusting{}, Now: now}.Run(t.Context())
		require.NoError(t, err)
	}
	posted(ledger.Post(sale("acme", "a", "2026-10", 100, 0)))
	posted(ledger.Post(sale("acme", "b", "2026-11", 200, time.Second)))
	sealed(clocks[0])
	posted(ledger.Credit(ledger.Move{
		Tenant: "acme", Order: "o1", EventID: "e1", From: ledger.IssuedPoints("o1"), To: ledger.UserPoints("u1"), Amount: 5, Currency: ledger.Points,
		OrderTotal: 2500, OrderCurrency: "SGD", CreatedAt: noon,
	}))
	posted(ledger.Post(sale("beta", "c", "2026-11", 3, 0)))
	sealed(clocks[1])
	periods := journal.Periods{Store: s, Now: func() time.Time { return noon }, NewID: func() string { return "id" }}
	_, err := periods.Close(t.Context(), "acme", "2026-09", journal.Change{Who: audit.Author{Proof: audit.Identity, Name: "ada"}, Why: "it is over"})
	require.NoError(t, err)
	if len(forced) > 0 {
		post(t, s, forced...)
		sealed(clocks[1] + 1)
	}
	posted(ledger.Post(sale("acme", "waits", "2026-11", 70, 0)))
	return copied(t, s, dedupe.Collection, audit.Collection, journal.PeriodsCollection)
}

// become makes the books others.
func (b books) become(others books) {
	clear(b)
	maps.Copy(b, others)
}

// verified is what a verification finds, with the origins that the worker has, and with seals that were kept.
func (b books) verified(t *testing.T, kept []seal.Seal) (found, withKept []seal.Finding) {
	t.Helper()
	origins := journal.Origins{Store: b, Catalog: &catalog.Catalog{Queues: []catalog.Queue{
		{ID: "books", Handlers: map[string]catalog.Handler{"*.*.*": {Name: catalog.JournalPost}, "order.paid": {Name: "points.credit"}}},
	}}}
	require.NoError(t, seal.Verifier{From: b, Origins: origins}.All(t.Context(), func(f seal.Finding) { found = append(found, f) }))
	for _, tenant := range []string{"acme", "beta"} {
		there, _, err := seal.List(t.Context(), b, tenant, 0, 100)
		if err != nil {
			continue // verify has found it
		}
		more, _ := seal.AgainstKept(tenant, kept, there)
		withKept = append(withKept, more...)
	}
	return found, withKept
}

// TestEachTamperingIsFoundByWhomTheDocsSay holds the table of docs/ledger.md: each tampering, and who finds it.
func TestEachTamperingIsFoundByWhomTheDocsSay(t *testing.T) {
	t.Parallel()
	a, b := ledger.Key(ledger.EntryID("acme", "a")), ledger.Key(ledger.EntryID("acme", "b"))
	first := store.Key{Collection: seal.Seals, ID: seal.ID("acme", 1)}
	second := store.Key{Collection: seal.Seals, ID: seal.ID("acme", 2)}
	third := store.Key{Collection: seal.Seals, ID: seal.ID("acme", 3)}
	leaves := store.Key{Collection: seal.Leaves, ID: first.ID}
	head := store.Key{Collection: seal.Heads, ID: seal.HeadID("acme")}
	held := ledger.UserPoints("u1").Key("acme")
	invented := ledger.Key(ledger.EntryID("acme", "invented"))
	dated := sale("acme", "dated", "2026-09", 10, -time.Hour)
	usual := [2]int{1, 1}
	table := map[string]struct {
		by   string
		do   func(books)
		kind string
		key  store.Key
	}{
		"an entry is gone":          {byVerify, func(all books) { delete(all, a) }, seal.Missing, a},
		"an entry was changed":      {byVerify, func(all books) { all[a] = with(all[a], "event_type", "other.event.happened") }, seal.Changed, a},
		"an entry has a field more": {byVerify, func(all books) { all[a] = with(all[a], "note", "x") }, seal.Changed, a},
		"two entries changed places": {byVerify, func(all books) {
			x, y := all[a]["leaf"], all[b]["leaf"]
			all[a], all[b] = with(all[a], "leaf", y), with(all[b], "leaf", x)
		}, seal.Moved, b},
		"an entry says that another seal holds it": {byVerify, func(all books) { all[a] = with(all[a], "seal", int64(2)) }, seal.Moved, a},
		"an entry was put into a seal": {byVerify, func(all books) {
			added := postedFields(t, sale("acme", "added", "2026-11", 10, 0))
			all[ledger.Key(ledger.EntryID("acme", "added"))] = with(with(without(added, "open", "unsealed"), "seal", int64(1)), "leaf", int64(2))
		}, seal.Added, ledger.Key(ledger.EntryID("acme", "added"))},
		"an entry names a seal that there is not": {byVerify, func(all books) {
			added := postedFields(t, sale("acme", "added", "2026-11", 10, 0))
			all[ledger.Key(ledger.EntryID("acme", "added"))] = with(with(without(added, "open", "unsealed"), "seal", int64(9)), "leaf", int64(0))
		}, seal.Added, ledger.Key(ledger.EntryID("acme", "added"))},
		"a sealed entry is marked as unsealed": {byVerify, func(all books) {
			all[a] = with(with(without(all[a], "seal", "leaf"), "open", true), "unsealed", "acme")
		}, seal.Moved, a},
		"an entry has no mark": {byVerify, func(all books) {
			all[ledger.Key(ledger.EntryID("acme", "added"))] = without(postedFields(t, sale("acme", "added", "2026-11", 10, 0)), "open", "unsealed")
		}, seal.Changed, ledger.Key(ledger.EntryID("acme", "added"))},
		"a balance was changed":       {byVerify, func(all books) { all[held] = with(all[held], "balance", int64(9_999_999)) }, seal.Changed, held},
		"a balance is gone":           {byVerify, func(all books) { delete(all, held) }, seal.Missing, held},
		"a balance of another tenant": {byVerify, func(all books) { all[held] = with(all[held], "tenant", "beta") }, seal.Missing, held},
		"a balance was made up": {byVerify, func(all books) {
			other := ledger.UserPoints("u2")
			all[other.Key("acme")] = with(all[held], "account", string(other))
		}, seal.Changed, ledger.UserPoints("u2").Key("acme")},
		"the first seal is gone": {byVerify, func(all books) { delete(all, first) }, seal.Missing, first},
		"the last seal is gone":  {byVerify, func(all books) { delete(all, second) }, seal.Missing, second},
		"the leaves are gone":    {byVerify, func(all books) { delete(all, leaves) }, seal.Missing, leaves},
		"the head is gone":       {byVerify, func(all books) { delete(all, head) }, seal.Missing, head},
		"the leaves were reordered": {byVerify, func(all books) {
			list := slices.Clone(all[leaves]["leaves"].([]any))
			slices.Reverse(list)
			all[leaves] = with(all[leaves], "leaves", list)
		}, seal.Changed, leaves},
		"the seals changed places": {byVerify, func(all books) { all[first], all[second] = all[second], all[first] }, seal.Changed, first},
		"a seal was added":         {byVerify, func(all books) { all[third] = with(all[second], "number", int64(3)) }, seal.Changed, third},
		"leaves without a seal":    {byVerify, func(all books) { all[store.Key{Collection: seal.Leaves, ID: third.ID}] = all[leaves] }, seal.Added, store.Key{Collection: seal.Leaves, ID: third.ID}},
		"a seal under an id that none has": {byVerify, func(all books) {
			all[store.Key{Collection: seal.Seals, ID: first.ID + "x"}] = all[first]
		}, seal.Added, store.Key{Collection: seal.Seals, ID: first.ID + "x"}},
		"the head was set back": {byVerify, func(all books) {
			all[head] = with(with(all[head], "number", int64(1)), "hash", all[first]["hash"])
		}, seal.Changed, head},
		"a whole chain is gone, and its entries are not": {byVerify, func(all books) {
			for key := range all {
				if strings.HasPrefix(key.ID, seal.HeadID("acme")) {
					delete(all, key)
				}
			}
		}, seal.Added, a},
		"a seal was made again, its hash with it": {byVerify, func(all books) {
			all[first] = whole(t, [2]int{0, 1})[first]
		}, seal.Changed, second},
		"an entry was put in with the mark that it waits for its seal": {byVerify, func(all books) {
			all[invented] = postedFields(t, sale("acme", "invented", "2026-11", 10, 0))
		}, seal.Unfounded, invented},
		"an entry was put in, and a seal made for it, in a closed month": {byVerify, func(all books) {
			all.become(whole(t, usual, dated))
		}, seal.Late, ledger.Key(ledger.EntryID("acme", "dated"))},

		"all was sealed again": {byKept, func(all books) { all.become(whole(t, [2]int{2, 2})) }, seal.Resealed, first},
		"the newest seals were cut off, with their entries and balances": {byKept, func(all books) {
			for key, fields := range all {
				if key == held || fields["tenant"] == "acme" && (fields["seal"] == int64(2) || key.Collection != seal.Heads && fields["number"] == int64(2)) {
					delete(all, key)
				}
			}
			all[head] = map[string]any{"tenant": "acme", "number": int64(1), "hash": all[first]["hash"], "periods": all[first]["periods"]}
		}, seal.Resealed, second},
		"all of a tenant is gone": {byKept, func(all books) {
			for key, fields := range all {
				if fields["tenant"] == "beta" {
					delete(all, key)
				}
			}
		}, seal.Resealed, store.Key{Collection: seal.Seals, ID: seal.ID("beta", 1)}},

		"an entry was put in, and a seal made for it, in an open month": {nobody, func(all books) {
			all.become(whole(t, usual, sale("acme", "invented", "2026-11", 10, 0)))
		}, "", store.Key{}},
		"an entry was put in together with the record of an event": {nobody, func(all books) {
			all[invented] = postedFields(t, sale("acme", "invented", "2026-11", 10, 0))
			record := sealtest.Record(t, "books", store.Write{Key: invented, Fields: all[invented]})
			all[record.Key] = record.Fields
		}, "", store.Key{}},
		"an entry was changed before it was sealed, and is right in itself": {nobody, func(all books) {
			all[ledger.Key(ledger.EntryID("acme", "waits"))] = postedFields(t, sale("acme", "waits", "2026-11", 7_000, 0))
		}, "", store.Key{}},
		"the records of events whose entries are sealed were changed, or are gone": {nobody, func(all books) {
			delete(all, dedupe.Key("books", "acme", "a"))
		}, "", store.Key{}},
		"an entry of the audit was changed, or is gone": {nobody, func(all books) {
			for key := range all {
				if key.Collection == audit.Collection {
					delete(all, key)
				}
			}
		}, "", store.Key{}},
		"the document of a closed month was changed, or is gone": {nobody, func(all books) {
			for key := range all {
				if key.Collection == journal.PeriodsCollection {
					delete(all, key)
				}
			}
		}, "", store.Key{}},
		"a balance was made up of a tenant that has no seals": {nobody, func(all books) {
			all[ledger.UserPoints("u9").Key("gamma")] = map[string]any{"tenant": "gamma", "account": "points:user:u9", "currency": ledger.Points, "balance": int64(9)}
		}, "", store.Key{}},
		"the time of an account's last change was changed": {nobody, func(all books) {
			all[held] = with(all[held], "updated_at", noon.Add(time.Hour))
		}, "", store.Key{}},
		"what the daily verification keeps of its progress was changed": {nobody, func(all books) {
			all[store.Key{Collection: seal.Verifications, ID: "books"}] = map[string]any{"at": "behind everything"}
		}, "", store.Key{}},
	}
	base := whole(t, usual)
	var kept []seal.Seal
	for _, tenant := range []string{"acme", "beta"} {
		seals, _, err := seal.List(t.Context(), base, tenant, 0, 100)
		require.NoError(t, err)
		kept = append(kept, seals...)
	}
	found, withKept := base.verified(t, kept)
	require.Empty(t, append(found, withKept...))
	for sentence, test := range table {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
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
	}

	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "ledger.md"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), "| what was done | found by |\n| --- | --- |\n")
	var written []string
	for line := range strings.Lines(rest) {
		row := regexp.MustCompile(`^\| (.+) \| (.+) \|\n$`).FindStringSubmatch(line)
		if row == nil {
			break
		}
		require.Equal(t, table[row[1]].by, row[2], row[1])
		written = append(written, row[1])
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(table)), written, "docs/ledger.md has a row for each")
}
