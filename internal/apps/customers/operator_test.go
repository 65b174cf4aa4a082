package customers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// desk is an operator on a class's store.
type desk struct {
	*class
	*customers.Operator
	ids int
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{class: newClass(t)}
	d.Operator = &customers.Operator{Store: d.store, Now: func() time.Time { return d.now }, NewID: func() string { d.ids++; return fmt.Sprint("id-", d.ids) }}
	return d
}

// guestOrders credits n orders of so many points each to the customer's own account.
func (d *desk) guestOrders(t *testing.T, from, n int, points int64) {
	t.Helper()
	for i := from; i < from+n; i++ {
		order := fmt.Sprint("order-", i)
		writes, err := ledger.Credit(ledger.Move{
			Tenant: "default", Order: order, EventID: fmt.Sprint("e", i), From: ledger.IssuedPoints(order), To: ledger.CustomerPoints("c1"),
			Amount: points, Currency: ledger.Points, CreatedAt: noon,
		})
		require.NoError(t, err)
		d.commit(t, writes...)
	}
}

func (d *desk) balance(t *testing.T, account ledger.Account) int64 {
	t.Helper()
	doc, err := d.store.Get(t.Context(), account.Key("default"))
	if err != nil {
		require.ErrorIs(t, err, store.ErrNotFound)
		return 0
	}
	balance, _ := doc.Fields["balance"].(int64)
	return balance
}

func (d *desk) changes(t *testing.T) []audit.Entry {
	t.Helper()
	entries, next, err := audit.Subject{Kind: customers.AuditKind, Tenant: "default", ID: "c1"}.List(t.Context(), d.Store, store.Cursor{}, 100)
	require.NoError(t, err)
	require.Empty(t, next)
	return entries
}

func link(uid string) customers.Change {
	return customers.Change{Tenant: "default", CustomerID: "c1", UID: uid, Who: "local:ada", Why: "ticket 7"}
}

func TestALinkMovesTheGuestsPointsOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.guestOrders(t, 0, 3, 100)
	before, err := d.Show(t.Context(), "default", "c1")
	require.NoError(t, err)
	require.Equal(t, customers.State{Mapping: customers.Mapping{Tenant: "default", CustomerID: "c1"}, GuestAccount: "points:customer:c1", GuestPoints: 300}, before)

	done, err := d.Link(t.Context(), link("u1"))
	require.NoError(t, err)
	require.Equal(t, customers.Linked{Tenant: "default", CustomerID: "c1", UID: "u1", Operation: "link-id-1", MovedPoints: 300, MovedOrders: 3}, done)
	require.Equal(t, int64(300), d.balance(t, ledger.UserPoints("u1")))
	state, err := d.Show(t.Context(), "default", "c1")
	require.NoError(t, err)
	require.Equal(t, customers.State{
		Mapping: customers.Mapping{Tenant: "default", CustomerID: "c1", UID: "u1", Since: noon, MovedPoints: 300, MovedOrders: 3}, GuestAccount: "points:customer:c1",
	}, state)
	require.Equal(t, []audit.Entry{{
		Kind: "customer", Tenant: "default", Subject: "c1", Action: "link", Who: "local:ada", Why: "ticket 7", At: noon,
		After: map[string]any{"uid": "u1", "operation": "link-id-1"},
	}}, d.changes(t))

	again, err := d.Link(t.Context(), link("u1"))
	require.NoError(t, err)
	require.Zero(t, again.MovedPoints)
	require.Equal(t, "u1", again.Before)
	require.Equal(t, int64(300), d.balance(t, ledger.UserPoints("u1")))
	require.Len(t, d.changes(t), 1, "what changes nothing is no change")

	// An order that was on its way while it was linked carried no uid.
	d.guestOrders(t, 3, 1, 50)
	d.now = noon.Add(time.Hour)
	rest, err := d.Link(t.Context(), link("u1"))
	require.NoError(t, err)
	require.Equal(t, int64(50), rest.MovedPoints)
	require.Equal(t, int64(350), d.balance(t, ledger.UserPoints("u1")))
	changes := d.changes(t)
	require.Len(t, changes, 2)
	require.Equal(t, "move", changes[0].Action)
}

func TestAnotherLinkMovesNoPointsOfTheUserBefore(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.guestOrders(t, 0, 1, 100)
	_, err := d.Link(t.Context(), link("u1"))
	require.NoError(t, err)
	d.guestOrders(t, 1, 1, 10)
	d.now = noon.Add(time.Hour)
	done, err := d.Link(t.Context(), link("u2"))
	require.NoError(t, err)
	require.Equal(t, "u1", done.Before)
	require.Equal(t, int64(10), done.MovedPoints)
	require.Equal(t, int64(100), d.balance(t, ledger.UserPoints("u1")))
	require.Equal(t, int64(10), d.balance(t, ledger.UserPoints("u2")))
	changes := d.changes(t)
	require.Equal(t, map[string]any{"uid": "u1"}, changes[0].Before)
	require.Equal(t, "u2", changes[0].After["uid"])

	d.now = noon.Add(2 * time.Hour)
	state, err := d.Unlink(t.Context(), customers.Change{Tenant: "default", CustomerID: "c1", Who: "local:ada", Why: "two people"})
	require.NoError(t, err)
	require.Empty(t, state.UID)
	require.Equal(t, int64(10), d.balance(t, ledger.UserPoints("u2")), "nothing moves back")
	last := d.changes(t)[0]
	require.Equal(t, audit.Entry{
		Kind: "customer", Tenant: "default", Subject: "c1", Action: "unlink", Who: "local:ada", Why: "two people", At: d.now, Before: map[string]any{"uid": "u2"},
	}, last)
	_, err = d.Unlink(t.Context(), customers.Change{Tenant: "default", CustomerID: "c1", Who: "local:ada", Why: "two people"})
	require.ErrorIs(t, err, customers.ErrUnknown)
}

func TestAnInvalidChangeOfACustomerIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.Link(t.Context(), link("u1"))
	require.NoError(t, err)
	nobody, u1 := "", "u1"
	for name, test := range map[string]struct {
		change func(*customers.Change)
		link   error
		unlink error
	}{
		"no customer":            {func(c *customers.Change) { c.CustomerID = "" }, customers.ErrRefused, customers.ErrRefused},
		"a customer of a path":   {func(c *customers.Change) { c.CustomerID = "a/b" }, customers.ErrRefused, customers.ErrRefused},
		"no uid":                 {func(c *customers.Change) { c.UID = "" }, customers.ErrRefused, nil},
		"an address":             {func(c *customers.Change) { c.UID = "ilse.brandvold@example.org" }, customers.ErrRefused, nil},
		"no reason":              {func(c *customers.Change) { c.Why = " " }, customers.ErrRefused, customers.ErrRefused},
		"a reason without end":   {func(c *customers.Change) { c.Why = strings.Repeat("w", 2000) }, audit.ErrInvalid, audit.ErrInvalid},
		"nobody was expected":    {func(c *customers.Change) { c.Expect = &nobody }, customers.ErrChanged, customers.ErrChanged},
		"and who is there is ok": {func(c *customers.Change) { c.Expect = &u1 }, nil, nil},
	} {
		change := link("u2")
		test.change(&change)
		_, err := d.Link(t.Context(), change)
		require.ErrorIs(t, err, test.link, name)
		if _, err = d.Link(t.Context(), link("u1")); err != nil {
			require.NoError(t, err, name)
		}
		_, err = d.Unlink(t.Context(), change)
		require.ErrorIs(t, err, test.unlink, name)
		_, err = d.Link(t.Context(), link("u1"))
		require.NoError(t, err)
	}
}

func TestTenThousandOrdersMoveInPagesAndGoOnWhereTheyStopped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const orders = 10_000
	// Many in one commit: the test is of moving them.
	for start := 0; start < orders; start += 400 {
		var writes []store.Write
		for i := start; i < start+400; i++ {
			order := fmt.Sprint("order-", i)
			w, err := ledger.Credit(ledger.Move{
				Tenant: "default", Order: order, EventID: "e", From: ledger.IssuedPoints(order), To: ledger.CustomerPoints("c1"), Amount: 2, Currency: ledger.Points, CreatedAt: noon,
			})
			require.NoError(t, err)
			writes = append(writes, w[0])
		}
		d.commit(t, append(writes, store.Increment(ledger.CustomerPoints("c1").Key("default"), map[string]int64{"balance": 800}, nil))...)
	}
	d.counter.Queries.Store(0)
	d.counter.Commits.Store(0)
	// Time passes with every commit, so that one call does not do.
	d.Store = passing(d.store, func() { d.now = d.now.Add(time.Second) })
	change, calls, moved := link("u1"), 0, int64(0)
	for {
		done, err := d.Link(t.Context(), change)
		require.NoError(t, err)
		calls++
		moved += done.MovedOrders
		if done.Next == "" {
			require.Zero(t, done.Left)
			break
		}
		require.Equal(t, 2*(orders-moved), done.Left)
		change.After = done.Next
	}
	require.EqualValues(t, orders, moved)
	require.Equal(t, 4, calls)
	require.Equal(t, int64(2*orders), d.balance(t, ledger.UserPoints("u1")))
	require.Zero(t, d.balance(t, ledger.CustomerPoints("c1")))
	require.LessOrEqual(t, d.counter.Commits.Load(), int64(orders/200+10), "two hundred orders a commit, but for the ends of pages")
	require.LessOrEqual(t, d.counter.Queries.Load(), int64(2*orders/ledger.MaxEntries+4))

	d.counter.Queries.Store(0)
	_, err := d.Link(t.Context(), link("u1"))
	require.NoError(t, err)
	require.Zero(t, d.counter.Queries.Load(), "where the account has nothing, no entry is read")
}

// passing returns a store that calls pass before every commit.
func passing(s store.Store, pass func()) store.Store {
	return &storetest.Faults{Store: s, OnCommit: func(_ context.Context, _ []store.Write, do func() error) error {
		pass()
		return do()
	}}
}

func TestAStoreThatIsDownIsAnErrorAndNoRefusal(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.faults.Down(true)
	_, err := d.Show(t.Context(), "default", "c1")
	require.ErrorIs(t, err, storetest.ErrFault)
	_, err = d.Link(t.Context(), link("u1"))
	require.ErrorIs(t, err, storetest.ErrFault)
	_, err = d.Unlink(t.Context(), link(""))
	require.ErrorIs(t, err, storetest.ErrFault)
	_, err = audit.Subject{Kind: customers.AuditKind, Tenant: "default", ID: "c1"}.All(t.Context(), d.Store)
	require.ErrorIs(t, err, storetest.ErrFault)
}

// at runs something before the nth commit of the operator from now.
func (d *desk) at(nth int, then func()) {
	d.Store = passing(d.store, func() {
		if nth--; nth == 0 {
			then()
		}
	})
}

func TestALinkEndsWhereSomebodyChangesItMeanwhile(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]store.Write{
		"somebody links another": store.Set(customers.Key("default", "c1"), map[string]any{"uid": "u2"}),
		"somebody unlinks":       store.Delete(customers.Key("default", "c1"), 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.guestOrders(t, 0, 3, 100)
			d.at(2, func() { d.commit(t, meanwhile) })
			_, err := d.Link(t.Context(), link("u1"))
			require.ErrorIs(t, err, customers.ErrChanged)
			require.Equal(t, int64(300), d.balance(t, ledger.CustomerPoints("c1")))
			require.Zero(t, d.balance(t, ledger.UserPoints("u1")))
		})
	}
}

func TestAChangeThatOthersAlwaysPrecedeIsAnError(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.guestOrders(t, 0, 1, 1000)
	n := 0
	d.Store = passing(d.store, func() {
		n++
		d.commit(t, store.Set(customers.Key("default", "c1"), map[string]any{"uid": "u1", "n": int64(n)}))
	})
	_, err := d.Link(t.Context(), link("u1"))
	require.ErrorIs(t, err, store.ErrBusy)
	_, err = d.Unlink(t.Context(), link(""))
	require.ErrorIs(t, err, store.ErrBusy)
}

func TestALinkWhoseAnswerIsLostCanBeRepeated(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 2} {
		d := newDesk(t)
		d.guestOrders(t, 0, 3, 100)
		if lost == 2 { // the mapping's commit has its answer, the move's not
			d.Store = passing(d.store, func() {
				if d.counter.Commits.Load() == 4 {
					d.faults.FailAfter(1)
				}
			})
		} else {
			d.faults.FailAfter(1)
		}
		_, err := d.Link(t.Context(), link("u1"))
		require.ErrorIs(t, err, storetest.ErrFault, lost)
		_, err = d.Link(t.Context(), link("u1"))
		require.NoError(t, err)
		require.Equal(t, int64(300), d.balance(t, ledger.UserPoints("u1")))
		require.Zero(t, d.balance(t, ledger.CustomerPoints("c1")))
		state, err := d.Show(t.Context(), "default", "c1")
		require.NoError(t, err)
		require.Equal(t, int64(300), state.MovedPoints)
	}
}
