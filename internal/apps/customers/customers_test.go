package customers_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

type office struct {
	*customers.Mappings
	*customers.Operator
	counter *storetest.Counter
	faults  *storetest.Faults
	store   store.Store
	now     time.Time
	log     bytes.Buffer
	ids     int
}

func newOffice(t *testing.T) *office {
	t.Helper()
	d := &office{counter: &storetest.Counter{Store: storetest.Open(t)}, now: noon}
	d.faults = &storetest.Faults{Store: d.counter}
	clock := func() time.Time { return d.now }
	d.Mappings = customers.NewMappings(d.faults, slog.New(slog.NewJSONHandler(&d.log, nil)), clock)
	d.store = d.Watch(d.faults)
	d.Operator = &customers.Operator{
		Store: d.store, Now: clock, NewID: func() string { d.ids++; return fmt.Sprint("id-", d.ids) },
	}
	return d
}

func (d *office) guestOrders(t *testing.T, from, n int, points int64) {
	t.Helper()
	account := ledger.CustomerPoints("c1")
	for begin := from; begin < from+n; begin += 400 {
		end := min(begin+400, from+n)
		writes := []store.Write{
			store.Increment(account.Key("default"), map[string]int64{"balance": points * int64(end-begin)}, nil),
		}
		for i := begin; i < end; i++ {
			order := fmt.Sprint("order-", i)
			writes = append(writes, ledgertest.Credited(t, ledger.Move{
				Tenant: "default", Order: order, EventID: fmt.Sprint("e", i), To: account, Amount: points,
				CreatedAt: noon,
			})[0])
		}
		storetest.Put(t, d.store, writes...)
	}
}

func (d *office) balance(t *testing.T, account ledger.Account) int64 {
	t.Helper()
	doc := filetest.Must(store.Find(t.Context(), d.store, account.Key("default")))(t)
	balance, _ := doc.Fields["balance"].(int64)
	return balance
}

func (d *office) changes(t *testing.T) []audit.Entry {
	t.Helper()
	subject := audit.Subject{Kind: customers.AuditKind, Tenant: "default", ID: "c1"}
	return filetest.Must(subject.All(t.Context(), d.Store))(t)
}

var (
	ada    = audit.Author{Proof: audit.ThisMachine, Name: "ada"}
	why    = console.Edit{Change: console.Change{Why: "ticket 7"}}
	c1     = customers.CustomerOf{Owned: console.Owned{Tenant: "default"}, ID: "c1"}
	unlink = customers.UnlinkCustomer{CustomerOf: c1, Edit: why}
)

func link(uid string) customers.LinkCustomer {
	return customers.LinkCustomer{CustomerOf: c1, UID: uid, Edit: why}
}

func TestALinkMovesGuestPointsOnceAndNoPointsOfThePreviousUser(t *testing.T) {
	t.Parallel()
	d := newOffice(t)
	for i, step := range []struct {
		sentence       string
		orders         int // new guest orders, of 100 points each
		uid            string
		before         string
		moved          int64
		action         string // in the audit; empty: none
		first, another int64  // the users' balances after it
	}{
		{"the first link", 3, "u1", "", 300, "link", 300, 0},
		{"the same link again", 0, "u1", "u1", 0, "", 300, 0},
		{"another order without a uid", 1, "u1", "u1", 100, "move", 400, 0},
		{"another user", 1, "u2", "u1", 100, "link", 400, 100},
	} {
		d.now = noon.Add(time.Duration(i) * time.Hour)
		d.guestOrders(t, 10*i, step.orders, 100)
		shown := filetest.Must(d.Show(t.Context(), "default", "c1"))(t)
		require.Equal(t, []any{step.before, "points:customer:c1", int64(100 * step.orders)},
			[]any{shown.UID, shown.GuestAccount, shown.GuestPoints})
		audited := len(d.changes(t))
		done, err := d.Link(t.Context(), ada, link(step.uid))
		require.NoError(t, err, step.sentence)
		require.Equal(t, customers.Linked{
			Tenant: "default", CustomerID: "c1", UID: step.uid, Before: step.before, Operation: done.Operation,
			MovedPoints: step.moved, MovedOrders: step.moved / 100,
		}, done, step.sentence)
		require.Equal(t, []int64{step.first, step.another},
			[]int64{d.balance(t, ledger.UserPoints("u1")), d.balance(t, ledger.UserPoints("u2"))})
		changes := d.changes(t)
		if step.action == "" {
			require.Len(t, changes, audited, "without a change there is no audit entry")
			continue
		}
		var before map[string]any
		if step.before != "" {
			before = map[string]any{"uid": step.before}
		}
		require.Equal(t, audit.Entry{
			Kind: "customer", Tenant: "default", Subject: "c1", Action: step.action, Who: "local:ada",
			Why: "ticket 7", At: d.now,
			Before: before, After: map[string]any{"uid": step.uid, "operation": done.Operation},
		}, changes[0], step.sentence)
	}
	state := filetest.Must(d.Show(t.Context(), "default", "c1"))(t)
	require.Equal(t, customers.Mapping{
		Tenant: "default", CustomerID: "c1", UID: "u2", Since: d.now, MovedPoints: 100, MovedOrders: 1,
		Version: state.Version,
	}, state.Mapping)

	d.now = d.now.Add(time.Hour)
	state = filetest.Must(d.Unlink(t.Context(), ada, unlink))(t)
	require.Empty(t, state.UID)
	require.Equal(t, int64(100), d.balance(t, ledger.UserPoints("u2")), "unlinking moves no points")
	require.Equal(t, audit.Entry{
		Kind: "customer", Tenant: "default", Subject: "c1", Action: "unlink", Who: "local:ada", Why: "ticket 7",
		At: d.now, Before: map[string]any{"uid": "u2"},
	}, d.changes(t)[0])
	require.ErrorIs(t, filetest.ErrorOf(d.Unlink(t.Context(), ada, unlink)), customers.ErrUnknown)
}

func TestAnInvalidLinkIsRefused(t *testing.T) {
	t.Parallel()
	d := newOffice(t)
	for _, uid := range []string{"", "ilse.brandvold@example.org"} {
		require.ErrorIs(t, filetest.ErrorOf(d.Link(t.Context(), ada, link(uid))), audit.ErrInvalid)
	}
	require.ErrorIs(t, filetest.ErrorOf(d.Show(t.Context(), "default", "a/b")), audit.ErrInvalid)
	removed := link("u1")
	removed.After = "page"
	_, err := d.Link(t.Context(), ada, removed)
	require.ErrorIs(t, err, audit.ErrChanged, "the link to continue does not exist any more")
}

// Every second order has two entries, so that some pages of entries end within an order.
func TestThousandsOfOrdersMoveInSeveralCalls(t *testing.T) {
	t.Parallel()
	d := newOffice(t)
	const orders = 3000
	d.guestOrders(t, 0, orders, 2)
	for i := range orders / 2 {
		chain := filetest.Must(ledger.Load(t.Context(), d.store, "default", fmt.Sprint("order-", 2*i)))(t)
		storetest.Put(t, d.store, filetest.Must(chain.Reverse("", "refund", 1, noon))(t)...)
	}
	const points, entries = 2*orders - orders/2, orders + orders/2
	d.counter.Queries.Store(0)
	d.counter.Commits.Store(0)
	// Time passes with every commit, so that one call does not suffice.
	d.Store = passing(d.store, func() { d.now = d.now.Add(2500 * time.Millisecond) })
	change, calls, left, moved := link("u1"), 0, int64(points), int64(0)
	for {
		done := filetest.Must(d.Link(t.Context(), ada, change))(t)
		calls++
		left, moved = left-done.MovedPoints, moved+done.MovedOrders
		require.Equal(t, left, done.Left)
		if done.Next == "" {
			break
		}
		change.After = done.Next
	}
	require.EqualValues(t, orders, moved)
	require.Greater(t, calls, 2)
	require.Equal(t, int64(points), d.balance(t, ledger.UserPoints("u1")))
	require.Zero(t, d.balance(t, ledger.CustomerPoints("c1")))
	require.LessOrEqual(t, d.counter.Commits.Load(), int64(orders/200+10),
		"a commit moves 200 orders, except at the ends of pages")
	require.LessOrEqual(t, d.counter.Queries.Load(), int64(2*entries/ledger.MaxEntries+4))

	d.counter.Queries.Store(0)
	require.NoError(t, filetest.ErrorOf(d.Link(t.Context(), ada, link("u1"))))
	require.Zero(t, d.counter.Queries.Load(), "no entries are read of an empty account")
}

func passing(s store.Store, pass func()) store.Store {
	return &storetest.Faults{
		Store: s, OnCommit: func(_ context.Context, _ []store.Write, do func() error) error {
			pass()
			return do()
		},
	}
}

func TestALinkStopsIfSomebodyChangesTheMappingMeanwhile(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]store.Write{
		"somebody links another user": store.Set(customers.Key("default", "c1"), map[string]any{"uid": "u2"}),
		"somebody unlinks":            store.Delete(customers.Key("default", "c1"), 0),
	} {
		d, commits := newOffice(t), 0
		d.guestOrders(t, 0, 3, 100)
		d.Store = passing(d.store, func() {
			if commits++; commits == 2 {
				storetest.Put(t, d.store, meanwhile)
			}
		})
		require.ErrorIs(t, filetest.ErrorOf(d.Link(t.Context(), ada, link("u1"))), audit.ErrChanged, name)
		require.Equal(t, []int64{300, 0},
			[]int64{d.balance(t, ledger.CustomerPoints("c1")), d.balance(t, ledger.UserPoints("u1"))}, name)
	}
}

func TestAChangeFailsIfOthersAlwaysCommitFirst(t *testing.T) {
	t.Parallel()
	d := newOffice(t)
	d.guestOrders(t, 0, 1, 1000)
	n := 0
	d.Store = passing(d.store, func() {
		n++
		storetest.Put(t, d.store, store.Set(customers.Key("default", "c1"),
			map[string]any{"uid": "u1", "n": int64(n)}))
	})
	require.ErrorIs(t, filetest.ErrorOf(d.Link(t.Context(), ada, link("u1"))), store.ErrBusy)
	require.ErrorIs(t, filetest.ErrorOf(d.Unlink(t.Context(), ada, unlink)), store.ErrBusy)
}

func (d *office) learn(t *testing.T, customer, uid string, try int) customers.Learned {
	t.Helper()
	order := customers.Mapping{Tenant: "default", CustomerID: customer, UID: uid, LinkedBy: "e1"}
	return filetest.Must(d.Learn(t.Context(), order, try))(t)
}

func TestTheFirstOrderOfACustomerWritesItsMapping(t *testing.T) {
	t.Parallel()
	d := newOffice(t)
	first := d.learn(t, "c1", "u1", 0)
	require.Equal(t, []store.Write{store.Create(customers.Key("default", "c1"), map[string]any{
		"uid": "u1", "since": noon, "linked_by": "e1", "moved_points": int64(0), "tenant": "default",
		"customer_id": "c1", "moved_orders": int64(0),
	})}, first.Writes)
	require.Equal(t, first.Writes, d.learn(t, "c1", "u1", 0).Writes,
		"an uncommitted mapping is not cached")
	storetest.Put(t, d.store, first.Writes...)
	for _, try := range []int{0, 1, 2} {
		require.Equal(t, customers.Learned{}, d.learn(t, "c1", "u1", try))
	}
	require.Zero(t, d.counter.Gets.Load())
	d.now = noon.Add(time.Hour)
	require.NotEmpty(t, d.learn(t, "c1", "u1", 0).Writes, "a cached mapping expires")
}

func TestAFurtherTryReadsTheMappingAndLogsAnotherUser(t *testing.T) {
	t.Parallel()
	d := newOffice(t)
	require.NotEmpty(t, d.learn(t, "c1", "u1", 1).Writes, "a mapping that does not exist is created")
	require.EqualValues(t, 1, d.counter.Gets.Load())
	// Another instance has linked it.
	storetest.Put(t, d.faults, d.learn(t, "c1", "u1", 0).Writes...)
	require.Equal(t, customers.Learned{Looked: true}, d.learn(t, "c1", "u1", 1))
	require.Equal(t, customers.Learned{}, d.learn(t, "c1", "u1", 0), "it is cached now")
	require.EqualValues(t, 2, d.counter.Gets.Load())
	require.Equal(t, customers.Learned{Differs: true, Looked: true}, d.learn(t, "c1", "u2", 0))
	require.Contains(t, d.log.String(),
		`"event_id":"e1","tenant":"default","customer_id":"c1","uid":"u2","mapped_uid":"u1"`)
	// A person changes it through another instance: an outdated cached mapping logs nothing.
	storetest.Put(t, d.faults, store.Set(customers.Key("default", "c1"), map[string]any{"uid": "u2"}))
	require.Equal(t, customers.Learned{Looked: true}, d.learn(t, "c1", "u2", 0))
	storetest.Put(t, d.faults, store.Delete(customers.Key("default", "c1"), 0))
	require.NotEmpty(t, d.learn(t, "c1", "u3", 0).Writes)
	require.NotEmpty(t, d.learn(t, "c1", "u2", 0).Writes, "the mapping is not cached any more")
}

func TestAMappingThatCannotBeReadIsNotOverwritten(t *testing.T) {
	t.Parallel()
	d := newOffice(t)
	storetest.Put(t, d.store, store.Create(customers.Key("default", "c1"), map[string]any{"uid": int64(7)}))
	require.Equal(t, customers.Learned{Differs: true, Looked: true}, d.learn(t, "c1", "u1", 1))
	d.faults.Down(true)
	_, err := d.Learn(t.Context(), customers.Mapping{Tenant: "default", CustomerID: "c1", UID: "u1"}, 1)
	require.ErrorIs(t, err, storetest.ErrFault, "a failed read is an error, not an absent mapping")
}

func TestAMappingWithAnUncertainWriteIsNotCached(t *testing.T) {
	t.Parallel()
	d := newOffice(t)
	first := d.learn(t, "c1", "u1", 0)
	d.faults.FailAfter(1)
	require.ErrorIs(t, filetest.ErrorOf(d.store.Commit(t.Context(), first.Writes)), storetest.ErrFault)
	require.NotEmpty(t, d.learn(t, "c1", "u1", 0).Writes)
	require.Equal(t, customers.Learned{Looked: true}, d.learn(t, "c1", "u1", 1))
	storetest.Put(t, d.store, store.Delete(customers.Key("default", "c1"), 0))
	require.NotEmpty(t, d.learn(t, "c1", "u1", 0).Writes, "an unlink by this instance removes it from the cache")
}

func TestTheNotesOfALinkSayWhatItMovesAndWhatIsLeft(t *testing.T) {
	t.Parallel()
	state := customers.State{GuestPoints: 7, GuestAccount: "guest~c1"}
	state.CustomerID = "c1"
	moves := "7 points of guests' orders are on guest~c1; linking moves them."
	require.Equal(t, []string{"Customer c1 is linked to nobody.", moves}, state.Notes())
	state.UID = "u1"
	require.Equal(t, []string{"A person has linked the customer.", moves}, state.Notes())
	state.LinkedBy, state.GuestPoints = "e1", 0
	require.Empty(t, state.Notes(), "an order has linked it")
	linked := customers.Linked{MovedPoints: 3, MovedOrders: 1, Left: 4, Next: "more"}
	require.Equal(t, "more",
		linked.Join(&customers.Linked{Operation: "o1", Before: "u0", MovedPoints: 2, MovedOrders: 1}))
	require.Equal(t, []any{int64(5), int64(2), "u0"},
		[]any{linked.MovedPoints, linked.MovedOrders, linked.Before})
	require.Equal(t, []string{"4 points are left on the guest account; link once more to move them."},
		linked.Notes())
	require.Empty(t, customers.Linked{}.Notes())
}
