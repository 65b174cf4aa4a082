package ops_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// credit credits the points of an order to a user, by an event, some seconds after at, and returns the id
// of the entry.
func (r *rig) credit(t *testing.T, event, order string, amount int64, second int) string {
	t.Helper()
	writes, err := ledger.Credit(ledger.Move{
		Tenant: "default", Order: order, EventID: event, From: ledger.IssuedPoints(order), To: ledger.UserPoints("u1"), Amount: amount, Currency: ledger.Points,
		CreatedAt: at.Add(time.Duration(second) * time.Second),
	})
	require.NoError(t, err)
	r.commit(t, writes...)
	return writes[0].Key.ID
}

// made is the record of an event of orders that has made an entry.
func made(event, entry string) store.Write {
	of := record("orders", "default", event)
	of.Entry = entry
	return own(of)
}

// around are the balances before and after of an entry's accounts, as text.
func around(of ops.Posted) (texts []string) {
	text := func(n *int64) string {
		if n == nil {
			return "?"
		}
		return fmt.Sprint(*n)
	}
	for _, b := range of.Balances {
		texts = append(texts, fmt.Sprintf("%s %s: %s, %s", b.Account, b.Currency, text(b.Before), text(b.After)))
	}
	return texts
}

func TestAnEventTellsWhatItMovedAndTheBalancesAroundThat(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.credit(t, "before", "o0", 30, 0)
	credited := r.credit(t, "e1", "o1", 1000, 1)
	chain, err := ledger.Load(t.Context(), r.store, "default", "o1")
	require.NoError(t, err)
	writes, err := chain.Reverse("e2", 400, at.Add(2*time.Second))
	require.NoError(t, err)
	r.commit(t, writes...)
	r.credit(t, "after", "o2", 7, 3)
	r.commit(t, made("e1", credited), made("e2", writes[0].Key.ID), own(record("refunds", "default", "e3")))
	for event, want := range map[string]string{"e1": "points:user:u1 points: 30, 1030", "e2": "points:user:u1 points: 1030, 630"} {
		told := r.event(t, event)
		require.Len(t, told.Effect, 1)
		require.Equal(t, []string{want}, around(told.Effect[0]))
		require.Len(t, told.Effect[0].Lines, 2)
	}
	require.Empty(t, r.event(t, "e3").Effect)
}

func TestAnEventOfTheJournalTellsTheBalancesAroundItsSeal(t *testing.T) {
	t.Parallel()
	r := open(t)
	posted := func(event string) {
		told := record("refunds", "default", event)
		told.Ref = ledger.EntryID("default", event)
		r.enter(t, sale("default", event, "2026-03", 250))
		r.commit(t, own(told))
	}
	posted("e1")
	require.Equal(t, []string{"cash EUR: ?, ?", "revenue EUR: ?, ?"}, around(r.event(t, "e1").Effect[0]))
	r.seal(t)
	posted("e2")
	posted("e3")
	r.seal(t)
	require.Equal(t, []string{"cash EUR: 0, 250", "revenue EUR: 0, -250"}, around(r.event(t, "e1").Effect[0]))
	second := r.event(t, "e2").Effect[0]
	require.Equal(t, []string{"cash EUR: 250, 750", "revenue EUR: -250, -750"}, around(second))
	require.EqualValues(t, 2, second.Balances[0].Seal)
}

// TestWhatAnotherEventMovedIsNoEffectOfThisOne: other queues and tenants have events of the same id.
func TestWhatAnotherEventMovedIsNoEffectOfThisOne(t *testing.T) {
	t.Parallel()
	r := open(t)
	credited := r.credit(t, "e1", "o1", 1000, 0)
	failed, nothing := record("orders", "default", "e1"), record("orders", "default", "e2")
	failed.Status, failed.Ref = dedupe.Failed, credited
	acme := record("orders", "acme", "e1")
	acme.Ref = credited
	nothing.Ref = "usage-entry-of-another-collection"
	r.commit(t, own(failed), own(acme), own(record("refunds", "default", "e1")), own(nothing))
	for _, path := range []string{"e1?queue=orders&tenant=default", "e1?tenant=acme", "e1?queue=refunds", "e2"} {
		require.Empty(t, r.event(t, path).Effect, path)
	}
}

func TestALinkLeadsToTheLogAndTheTracesOfAnEvent(t *testing.T) {
	t.Parallel()
	told := record("orders", "default", "a:b")
	told.Log = []dedupe.Attempt{{Number: 1, Begun: at.Add(90 * time.Second), Trace: "0af7651916cd43dd8448eb211c80319c"}, {Number: 2, Begun: at.Add(2 * time.Minute)}}
	r := open(t)
	r.commit(t, own(told))
	event := r.event(t, "a:b")
	require.Empty(t, event.LogLink)
	require.Empty(t, event.History[0].TraceLink)
	r.links = ops.Links{Log: "https://log.example/?q={event_id}+{since}", Trace: "https://trace.example/{trace}"}
	r.over(r.store)
	event = r.event(t, "a:b")
	require.Equal(t, "https://log.example/?q=a%3Ab+2026-03-02T10%3A16%3A00Z", event.LogLink)
	require.Equal(t, "https://trace.example/0af7651916cd43dd8448eb211c80319c", event.History[0].TraceLink)
	require.Empty(t, event.History[1].TraceLink)
}

// TestTheEffectCostsABoundedNumberOfReads: however much has moved on the account.
func TestTheEffectCostsABoundedNumberOfReads(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after int
		balances      []string
		requests      int64
	}{
		"one entry":        {0, 0, []string{"points:user:u1 points: 0, 1000"}, 7 + 3},
		"many before it":   {300, 2, []string{"points:user:u1 points: 300, 1300"}, 7 + 3},
		"many after it":    {2, 300, []string{"points:user:u1 points: 2, 1002"}, 7 + 3},
		"many around it":   {300, 300, []string{"points:user:u1 points: ?, ?"}, 7 + 3},
		"as many as known": {0, 99, []string{"points:user:u1 points: 0, 1000"}, 7 + 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			for i := range test.before {
				r.credit(t, fmt.Sprint("b", i), fmt.Sprint("b", i), 1, -1)
			}
			credited := r.credit(t, "e1", "o1", 1000, 0)
			for i := range test.after {
				r.credit(t, fmt.Sprint("a", i), fmt.Sprint("a", i), 1, 1)
			}
			r.commit(t, made("e1", credited))
			counter := &storetest.Counter{Store: r.store}
			r.over(counter)
			require.Equal(t, test.balances, around(r.event(t, "e1").Effect[0]))
			require.Equal(t, test.requests, counter.Gets.Load()+counter.Queries.Load())
			require.LessOrEqual(t, counter.Reads.Load(), int64(2*101+12))
		})
	}
}
