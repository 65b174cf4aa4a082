// Package ledgertest compares the books with a model in memory, on a given store.
package ledgertest

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/ledger"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// The tenant and the accounts of the model. The guest's orders may be moved to the user.
const (
	tenant = "acme"
	guest  = ledger.Account("points:customer:c1")
	user   = ledger.Account("points:user:u1")
)

// order is the model of an order's chain.
type order struct {
	holder         ledger.Account
	credited, left int64
	events         []string
}

// world is the books and the model of them.
type world struct {
	store *storetest.Faults
	now   time.Time
	ops   int
	// orders and journal are what the books must contain: the chains by order, and the lines of each journal
	// entry by id.
	orders  map[string]*order
	journal map[string][]ledger.Line
	// chains and entries were read earlier, and may be out of date.
	chains  map[string]ledger.Chain
	entries []store.Document
	// hashes has the hashes of the entries at the last check.
	hashes map[string]string
}

// Run credits, refunds and transfers points, posts and reverses journal entries, and gives entries new times,
// in any order, with outdated reads, refused commits and lost answers. After every step each entry balances
// in each currency, the balances are the sums of the lines, each reversal is exact and single, and no entry
// has changed. open opens an empty store.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	rapid.Check(t, func(check *rapid.T) {
		w := &world{
			store: &storetest.Faults{Store: open(t)}, now: time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC),
			orders: map[string]*order{}, journal: map[string][]ledger.Line{}, chains: map[string]ledger.Chain{},
			hashes: map[string]string{},
		}
		check.Repeat(map[string]func(*rapid.T){
			"an order is paid":          w.pay,
			"a refund":                  w.refund,
			"a chain is read for later": w.keep,
			"the guest becomes a user":  w.link,
			"an event is posted":        w.post,
			"an entry is reverted":      w.revert,
			"an entry gets a new time":  w.reposition,
			"time passes":               func(*rapid.T) { w.now = w.now.Add(17 * time.Minute) },
			"":                          w.check,
		})
	})
}

// commit commits as a worker does, with a fault or without: it repeats a commit without an answer. done
// reports whether the writes are stored, perhaps by a commit whose answer was lost.
func (w *world) commit(t *rapid.T, writes []store.Write) (done bool) {
	require.NoError(t, store.CheckWrites(writes))
	fault := rapid.SampledFrom([]string{"", "", "refused", "lost"}).Draw(t, "fault")
	switch fault {
	case "refused":
		w.store.FailBefore(1)
	case "lost":
		w.store.FailAfter(1)
	}
	before := w.all(t)
	_, err := w.store.Commit(context.Background(), writes)
	if errors.Is(err, storetest.ErrFault) {
		_, err = w.store.Commit(context.Background(), writes)
		if fault == "lost" && (errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrStale)) {
			// The caller's own document refuses the repetition, if it did not exist before.
			_, there := before[writes[0].Key.ID]
			return !there || writes[0].Op == store.OpUpdate
		}
	}
	if err != nil {
		require.True(t, errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrStale), "%v", err)
	}
	return err == nil
}

// all returns the documents of all entries, by id.
func (w *world) all(t require.TestingT) map[string]store.Document {
	all := map[string]store.Document{}
	for _, doc := range storetest.All(t, w.store.Store, ledger.Entries) {
		all[doc.Key.ID] = doc
	}
	require.Less(t, len(all), store.MaxPage)
	return all
}

func drawOrder(t *rapid.T) string {
	return rapid.SampledFrom([]string{"o", "o~", "o~0000"}).Draw(t, "order")
}

func (w *world) pay(t *rapid.T) {
	id, amount := drawOrder(t), rapid.Int64Range(1, 1000).Draw(t, "points")
	to := rapid.SampledFrom([]ledger.Account{guest, user}).Draw(t, "to")
	w.ops++
	event := fmt.Sprint("paid-", w.ops)
	writes := Credited(t, ledger.Move{
		Tenant: tenant, Order: id, EventID: event, To: to, Amount: amount, CreatedAt: w.now,
	})
	_, there := w.orders[id]
	require.Equal(t, !there, w.commit(t, writes), "an order is credited once")
	if !there {
		w.orders[id] = &order{holder: to, credited: amount, left: amount}
	}
}

// load returns the chain of an order as it is, or as it was read before.
func (w *world) load(t *rapid.T, id string) (chain ledger.Chain, current bool) {
	fresh := filetest.Must(ledger.Load(context.Background(), w.store.Store, tenant, id))(t)
	if kept, ok := w.chains[id]; ok && rapid.Bool().Draw(t, "out of date") {
		return kept, len(kept.Entries) == len(fresh.Entries)
	}
	return fresh, true
}

func (w *world) keep(t *rapid.T) {
	id := drawOrder(t)
	chain := filetest.Must(ledger.Load(context.Background(), w.store.Store, tenant, id))(t)
	w.chains[id] = chain
}

func (w *world) refund(t *rapid.T) {
	id, amount := drawOrder(t), rapid.Int64Range(1, 1200).Draw(t, "points")
	w.ops++
	event := fmt.Sprint("refund-", w.ops)
	chain, current := w.load(t, id)
	writes, err := chain.Reverse("of-"+event, event, amount, w.now)
	o := w.orders[id]
	if current {
		switch {
		case o == nil:
			require.ErrorIs(t, err, ledger.ErrNoCredit)
		case amount > o.left:
			require.ErrorIs(t, err, ledger.ErrNotLeft)
		default:
			require.NoError(t, err)
		}
	}
	if err != nil {
		return
	}
	done := w.commit(t, writes)
	require.Equal(t, current, done, "an outdated chain appends nothing")
	if done {
		o.left, o.events = o.left-amount, append(o.events, event)
	}
}

func (w *world) link(t *rapid.T) {
	chains, next, err := ledger.HeldBy(context.Background(), w.store.Store, tenant, guest, store.Cursor{})
	require.NoError(t, err)
	require.Empty(t, next)
	w.ops++
	writes, amount := filetest.Both(ledger.Transfer(chains, user, fmt.Sprint("link-", w.ops), w.now))(t)
	var held int64
	for _, o := range w.orders {
		if o.holder == guest {
			held += o.left
		}
	}
	require.Equal(t, held, amount)
	if amount == 0 {
		return
	}
	require.True(t, w.commit(t, writes))
	for _, o := range w.orders {
		if o.holder == guest && o.left > 0 {
			o.holder = user
		}
	}
}

// drawLines draws lines that balance: in each of some currencies some credits, and one debit of their sum.
func drawLines(t *rapid.T) (lines []ledger.Line) {
	for _, currency := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"EUR", "USD", "JPY"}), 1, 3,
		rapid.ID[string]).Draw(t, "currencies") {
		var sum int64
		for range rapid.IntRange(1, 3).Draw(t, "credits") {
			amount := rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Just(int64(ledger.MaxAmount/3))).Draw(t, "amount")
			sum += amount
			lines = append(lines, ledger.Line{
				Account:  rapid.SampledFrom([]string{"income:sales", "liabilities:vat"}).Draw(t, "account"),
				Currency: currency, Credit: amount,
			})
		}
		lines = append(lines, ledger.Line{Account: "assets:bank", Currency: currency, Debit: sum})
	}
	return lines
}

func (w *world) post(t *rapid.T) {
	event := fmt.Sprint("e", rapid.IntRange(0, 9).Draw(t, "event"))
	e := ledger.Entry{
		Tenant: tenant, Kind: ledger.KindJournal, EventID: event, Period: ledger.PeriodOf(w.now), OccurredAt: w.now,
		PostedAt: w.now, Lines: drawLines(t),
	}
	if rapid.IntRange(0, 9).Draw(t, "off by") == 0 {
		e.Lines[0].Credit++
		_, err := ledger.Post(e)
		require.ErrorIs(t, err, ledger.ErrInvalid)
		return
	}
	writes := filetest.Must(ledger.Post(e))(t)
	id := ledger.EntryID(tenant, event)
	_, there := w.journal[id]
	require.Equal(t, !there, w.commit(t, writes), "an event is posted once")
	if !there {
		w.journal[id] = e.Lines
	}
}

func (w *world) revert(t *rapid.T) {
	var posted []ledger.Entry
	for _, doc := range w.all(t) {
		if entry, err := ledger.Read(doc); err == nil {
			posted = append(posted, entry)
		}
	}
	if len(posted) == 0 {
		t.Skip("nothing is posted")
	}
	slices.SortFunc(posted, func(a, b ledger.Entry) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	entry := rapid.SampledFrom(posted).Draw(t, "entry")
	w.ops++
	reversal, err := entry.Reversal(fmt.Sprint("revert-", w.ops), ledger.PeriodOf(w.now), w.now)
	if entry.Kind != ledger.KindJournal {
		require.ErrorIs(t, err, ledger.ErrIrreversible)
		return
	}
	require.NoError(t, err)
	writes := filetest.Must(ledger.Post(reversal))(t)
	id := ledger.ReversalID(entry.ID)
	_, there := w.journal[id]
	require.Equal(t, !there, w.commit(t, writes), "an entry is reversed once")
	if !there {
		w.journal[id] = reversal.Lines
	}
}

// reposition gives a new time to an entry as it is, or as it was read before.
func (w *world) reposition(t *rapid.T) {
	documents := w.entries
	for _, doc := range w.all(t) {
		documents = append(documents, doc)
	}
	if len(documents) == 0 {
		t.Skip("nothing is posted")
	}
	slices.SortFunc(documents, func(a, b store.Document) int {
		return cmp.Or(cmp.Compare(a.Key.ID, b.Key.ID), cmp.Compare(a.Version, b.Version))
	})
	doc := rapid.SampledFrom(documents).Draw(t, "entry")
	w.entries = append(w.entries, doc)
	_, err := w.store.Store.Commit(context.Background(), []store.Write{ledger.Reposition(doc)})
	now, failed := w.store.Store.Get(context.Background(), doc.Key)
	require.NoError(t, failed)
	if err != nil {
		require.ErrorIs(t, err, store.ErrStale)
		require.NotEqual(t, doc.Version, now.Version, "it has changed since")
		return
	}
	require.Positive(t, ledger.Position(now).At.Compare(ledger.Position(doc).At))
	delete(w.hashes, doc.Key.ID) // the hash includes the time
}

// check compares the books with the model and with themselves.
func (w *world) check(t *rapid.T) {
	sums, journals, all := map[string]int64{}, 0, w.all(t)
	for id, doc := range all {
		entry := filetest.Must(ledger.Read(doc))(t)
		left := map[string]int64{}
		for _, line := range entry.Lines {
			left[line.Currency] += line.Debit - line.Credit
			if line.Currency == ledger.Points {
				sums[line.Account] += line.Credit - line.Debit
			}
		}
		for currency, amount := range left {
			require.Zero(t, amount, "%s does not balance in %s", id, currency)
		}
		if entry.Order == "" {
			journals++
			require.Equal(t, w.journal[id], entry.Lines)
			if entry.Reverts != "" {
				for i, line := range w.journal[entry.Reverts] {
					require.Equal(t, ledger.Line{
						Account: line.Account, Currency: line.Currency, Debit: line.Credit, Credit: line.Debit,
					}, entry.Lines[i])
				}
			}
		}
		hash := filetest.Must(entry.LeafHash())(t)
		if was, seen := w.hashes[id]; seen {
			require.Equal(t, was, hex.EncodeToString(hash), "%s has changed", id)
		}
		w.hashes[id] = hex.EncodeToString(hash)
	}
	require.Len(t, w.journal, journals)
	held := map[ledger.Account]int64{}
	for id, o := range w.orders {
		chain := filetest.Must(ledger.Load(context.Background(), w.store.Store, tenant, id))(t)
		require.Equal(t, o.left, chain.Left())
		require.Equal(t, o.holder, chain.Holder())
		for _, event := range o.events {
			require.True(t, chain.Reversed(event) && chain.Refunded("of-"+event))
		}
		require.False(t, chain.Reversed(chain.Entries[0].EventID) || chain.Refunded("another"))
		for i, m := range chain.Entries {
			require.Equal(t, ledger.Points, m.Currency)
			if m.Kind == ledger.KindTransferIn {
				require.Equal(t, ledger.KindTransferOut, chain.Entries[i-1].Kind)
				require.Contains(t, all, m.Before(), "the first half of the transfer")
			}
		}
		require.Equal(t, -o.left, sums[string(ledger.IssuedPoints(id))])
		held[o.holder] += o.left
	}
	for _, account := range []ledger.Account{guest, user} {
		var balance int64
		doc, err := w.store.Store.Get(context.Background(), account.Key(tenant))
		if err == nil {
			balance, _ = doc.Fields["balance"].(int64)
			require.Equal(t, []any{tenant, string(account), ledger.Points},
				[]any{doc.Fields["tenant"], doc.Fields["account"], doc.Fields["currency"]})
		} else {
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		require.Equal(t, held[account], balance)
		require.Equal(t, held[account], sums[string(account)])
	}
}
