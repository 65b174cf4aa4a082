// Package sealtest compares sealing, balances and verification with a model in memory, on a given store. The
// tests of each kind of store run it.
package sealtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// errEnd is the error of a commit in which the process ended.
var errEnd = errors.New("sealtest: the process ended")

var (
	tenants    = []string{"acme", "zeta/öl~1"}
	periods    = []string{"2026-09", "2026-10", "2026-11"}
	currencies = []string{"SGD", "JPY"}
	accounts   = []string{"1200:receivable", "4000:revenue", "2200:tax"}
)

// Run compares histories with the model, each on an empty store that open returns. With -short three of four
// histories are left out.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		if testing.Short() && rapid.IntRange(0, 3).Draw(rt, "left out") > 0 {
			return
		}
		w := &world{
			faults: &storetest.Faults{Store: open(t)}, now: time.Date(2026, 11, 3, 10, 0, 0, 0, time.UTC),
			posted: map[string][]ledger.Entry{}, late: map[string]ledger.Entry{},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"post": w.post, "post many": w.postMany, "a commit comes late": w.postLate, "verify as each day": w.verify,
			"seal": w.seal, "seal twice at once": w.sealTwice,
			"post while a seal is made": w.postWhile, "sum up while a sealer runs": w.sumWhile,
			"read with faults": w.readFails, "": w.look,
		})
		w.end(rt)
	})
}

// Trusting vouches for every entry, and has no closed month.
type Trusting struct{}

// Vouched returns true.
func (Trusting) Vouched(context.Context, ledger.Entry) (bool, error) { return true, nil }

// Made returns a number that matches no entries, so that the sealer calls Vouched for each.
func (Trusting) Made(context.Context, string, time.Time, time.Time) (int64, error) { return -1, nil }

// Closings returns no closed month.
func (Trusting) Closings(context.Context, string) (map[string]time.Time, error) { return nil, nil }

// Document returns the document that a write makes, with the time of its commit.
func Document(made store.Write) store.Document {
	fields := maps.Clone(made.Fields)
	if made.Stamp != "" {
		fields[made.Stamp] = time.Date(2026, 11, 3, 10, 0, 0, 0, time.UTC)
	}
	return store.Document{Key: made.Key, Fields: fields, Version: 1}
}

// Record returns the write of the record in a queue for the event of an entry, whose write is given.
func Record(t require.TestingT, queue string, made store.Write) store.Write {
	entry := filetest.Must(ledger.Read(Document(made)))(t)
	record := dedupe.Record{Status: dedupe.Completed, Ref: entry.ID}
	record.Queue, record.Tenant, record.EventID = queue, entry.Tenant, entry.EventID
	return store.Set(dedupe.Key(queue, entry.Tenant, entry.EventID), record.Fields()).Stamped(made.Stamp)
}

// world is the store and the model of it.
type world struct {
	faults *storetest.Faults
	now    time.Time
	posted map[string][]ledger.Entry
	// late has the entries that were committed with an earlier time than others, and are in no seal.
	late map[string]ledger.Entry
	n    int
}

// faultless reads and writes without faults.
func (w *world) faultless() store.Store { return w.faults.Store }

func (w *world) sealer(s store.Store) seal.Sealer {
	return seal.Sealer{Store: s, Origins: Trusting{}, Now: func() time.Time { return w.now }}
}

// post posts one entry of a journal, or the credit of an order's points.
func (w *world) post(t *rapid.T) { w.commit(t, w.entry(t)) }

// postLate commits an entry that got its time long before, so that later ones may be sealed.
func (w *world) postLate(t *rapid.T) {
	all := slices.Concat(w.posted[tenants[0]], w.posted[tenants[1]])
	if len(all) == 0 {
		t.Skip("nothing is posted")
	}
	writes := w.entry(t)
	other := rapid.SampledFrom(all).Draw(t, "behind")
	at := other.CommittedAt.Add(-time.Duration(rapid.IntRange(0, 2).Draw(t, "by")) * time.Microsecond)
	writes[0].Fields[writes[0].Stamp], writes[0].Stamp = at, ""
	entry := w.commit(t, writes)
	w.late[entry.ID] = entry
}

// passed returns the late entries that seals have passed, and removes from late those that are sealed. With
// summed it leaves out those that only the cursor has passed: balances include them.
func (w *world) passed(t *rapid.T, summed bool) (ids []string) {
	through := func(doc store.Document) (at store.Cursor) {
		at.At, _ = doc.Fields["through"].(time.Time)
		at.ID, _ = doc.Fields["through_id"].(string)
		return at
	}
	cursor, err := store.Find(context.Background(), w.faultless(),
		store.Key{Collection: seal.Heads, ID: "~cursor"})
	require.NoError(t, err)
	for id, entry := range w.late {
		require.NoError(t, filetest.ErrorOf(seal.Locate(context.Background(), w.faultless(), &entry)))
		if entry.Seal > 0 {
			delete(w.late, id)
			continue
		}
		head, err := store.Find(context.Background(), w.faultless(),
			store.Key{Collection: seal.Heads, ID: seal.HeadID(entry.Tenant)})
		require.NoError(t, err)
		behind := func(at store.Cursor) bool { return ledger.Position(entry.Document).Compare(at) <= 0 }
		tenants, _ := cursor.Fields["behind"].(map[string]any)
		_, caughtUp := tenants[entry.Tenant]
		if behind(through(head)) || !summed && !caughtUp && behind(through(cursor)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// verify runs a daily verification, which gives a new time to the late entries that it finds.
func (w *world) verify(t *rapid.T) {
	w.now = w.now.Add(24 * time.Hour)
	passed := w.passed(t, false)
	var found []string
	watch := seal.Watch{
		Verifier: seal.Verifier{From: w.faultless(), Origins: Trusting{}}, Store: w.faultless(),
		Now:    func() time.Time { return w.now },
		Report: func(f seal.Finding) { found = append(found, strings.TrimPrefix(f.Document, ledger.Entries+"/")) },
	}
	state := filetest.Must(watch.Step(context.Background()))(t)
	require.Equal(t, w.now, state.Last.FinishedAt)
	require.ElementsMatch(t, passed, found)
	for _, id := range passed {
		delete(w.late, id)
	}
}

// entry returns the writes that post a random entry.
func (w *world) entry(t *rapid.T) []store.Write {
	w.n++
	// Clocks differ between workers, so times may fall.
	at := w.now.Add(time.Duration(rapid.IntRange(-90, 90).Draw(t, "clock")) * time.Second)
	if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
		order := fmt.Sprint("order-", w.n)
		return ledgertest.Credited(t, ledger.Move{
			Tenant: rapid.SampledFrom(tenants).Draw(t, "tenant"), Order: order, EventID: fmt.Sprint("e", w.n),
			To: ledger.UserPoints("u1"), Amount: rapid.Int64Range(1, 5000).Draw(t, "points"), CreatedAt: at,
		})
	}
	entry := ledger.Entry{
		Tenant: rapid.SampledFrom(tenants).Draw(t, "tenant"), Kind: ledger.KindJournal,
		EventID: fmt.Sprint("e", w.n),
		Period:  rapid.SampledFrom(periods).Draw(t, "period"), OccurredAt: at, PostedAt: at,
	}
	currency := rapid.SampledFrom(currencies).Draw(t, "currency")
	amount := rapid.Int64Range(2, 1_000_000).Draw(t, "amount")
	tax := rapid.Int64Range(0, amount-1).Draw(t, "tax")
	entry.Lines = []ledger.Line{
		{Account: accounts[0], Currency: currency, Debit: amount},
		{Account: accounts[1], Currency: currency, Credit: amount - tax},
	}
	if tax > 0 {
		entry.Lines = append(entry.Lines, ledger.Line{Account: accounts[2], Currency: currency, Credit: tax})
	}
	return filetest.Must(ledger.Post(entry))(t)
}

func (w *world) commit(t *rapid.T, writes []store.Write) ledger.Entry {
	require.NoError(t, filetest.ErrorOf(w.faultless().Commit(context.Background(), writes)))
	doc := filetest.Must(w.faultless().Get(context.Background(), writes[0].Key))(t)
	entry := filetest.Must(ledger.Read(doc))(t)
	w.posted[entry.Tenant] = append(w.posted[entry.Tenant], entry)
	return entry
}

func (w *world) postMany(t *rapid.T) {
	for range rapid.IntRange(2, 8).Draw(t, "n") {
		w.post(t)
	}
}

// run runs the sealer; hook replaces each commit.
func (w *world) run(hook func(do func() error) error) (seal.Sealed, error) {
	w.now = w.now.Add(time.Minute)
	w.faults.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error { return hook(do) }
	defer func() { w.faults.OnCommit = nil }()
	return w.sealer(w.faults).Run(context.Background())
}

// another runs a second sealer, without faults.
func (w *world) another(t *rapid.T) {
	require.NoError(t, filetest.ErrorOf(w.sealer(w.faultless()).Run(context.Background())))
}

// seal runs the sealer once, with faults in its commits: they are not made, their answers are lost, the
// client repeats them, or the process ends.
func (w *world) seal(t *rapid.T) {
	faulty := false
	done, err := w.run(func(do func() error) error {
		fault := rapid.SampledFrom(
			[]string{"none", "none", "ends before", "ends after", "lost", "repeated", "refused"}).Draw(t, "fault")
		faulty = faulty || fault != "none"
		switch fault {
		case "ends before", "refused":
			return errEnd
		case "ends after", "lost":
			_ = do()
			return errEnd
		case "repeated":
			_ = do()
		}
		return do()
	})
	require.Zero(t, done.Unreadable)
	if !faulty {
		require.NoError(t, err)
		require.Zero(t, done.OldestSeconds)
		w.allSealed(t)
	}
}

// sealTwice lets a second sealer run whenever the first is about to commit, or has committed.
func (w *world) sealTwice(t *rapid.T) {
	_, err := w.run(func(do func() error) error {
		before := rapid.Bool().Draw(t, "the other first")
		if before {
			w.another(t)
		}
		err := do()
		if !before {
			w.another(t)
		}
		return err
	})
	require.NoError(t, err)
	w.allSealed(t)
}

// postWhile posts an entry whenever a seal is about to be committed.
func (w *world) postWhile(t *rapid.T) {
	_, err := w.run(func(do func() error) error {
		w.post(t)
		return do()
	})
	require.NoError(t, err)
}

// sumWhile lets a sealer run between any two reads of a balance.
func (w *world) sumWhile(t *rapid.T) {
	if w.passed(t, false); len(w.late) > 0 {
		t.Skip("late entries count once a verification has found them")
	}
	w.faults.OnRead = func(do func() error) error {
		if rapid.Bool().Draw(t, "meanwhile") {
			w.another(t)
		}
		return do()
	}
	defer func() { w.faults.OnRead = nil }()
	tenant, period := rapid.SampledFrom(tenants).Draw(t, "tenant"), rapid.SampledFrom(periods).Draw(t, "period")
	w.sums(t, w.faults, tenant, min(period, rapid.SampledFrom(periods).Draw(t, "first")), period)
	w.findings(t, w.faults)
}

// readFails makes the first reads of a run fail.
func (w *world) readFails(t *rapid.T) {
	w.faults.FailReads(rapid.IntRange(1, 3).Draw(t, "reads"))
	_, _ = w.sealer(w.faults).Run(context.Background())
	w.faults.FailReads(0)
}
