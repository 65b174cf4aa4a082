package billing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/billing"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// shop is the program's own handlers and the operator on one real store.
type shop struct {
	*seam
	points   billing.Points
	operator *customers.Operator
	teacher  *customers.Teacher
	customer string
}

// seam is a store in which something else can happen between a reader and its commit.
type seam struct {
	*storetest.Faults
	// before, if set, is run once, before the commit that is nth from now.
	before func()
	nth    int
	// lose is how many commits are left until one happens and its answer is lost; 0: none.
	lose int
	// around, if set, is called before every commit, and what it returns after those that
	// succeeded.
	around func(writes []store.Write) (after func())
}

var errLost = errors.New("the answer is lost")

func (s *seam) commit(_ context.Context, writes []store.Write, do func() error) error {
	if before := s.before; before != nil {
		if s.nth--; s.nth <= 0 {
			s.before = nil
			before()
		}
	}
	lost := s.lose == 1
	s.lose = max(s.lose-1, 0)
	after := func() {}
	if s.around != nil {
		after = s.around(writes)
	}
	if err := do(); err != nil {
		return err
	}
	after()
	if lost {
		return errLost
	}
	return nil
}

var shops atomic.Int64

func newShop(db store.Store) *shop {
	n := shops.Add(1)
	s := &shop{seam: &seam{Faults: &storetest.Faults{Store: db}}, customer: fmt.Sprint("c", n)}
	s.OnCommit = s.commit
	s.reopen()
	return s
}

// reopen is a new instance, which knows nobody.
func (s *shop) reopen() {
	var ids int
	s.teacher = customers.NewTeacher(s.seam, slog.New(slog.DiscardHandler), func() time.Time { return noon })
	watched := s.teacher.Watch(s.seam)
	s.points = billing.Points{
		Store: s.seam, Products: shelf{"piece": {Points: perPiece}}, Now: func() time.Time { return noon }, Teacher: s.teacher,
	}
	s.operator = &customers.Operator{Store: watched, Now: func() time.Time { return noon }, NewID: func() string { ids++; return fmt.Sprint(s.customer, "-", shops.Add(1)) }}
}

// deliver does what the worker does, as run does on other books.
func (s *shop) deliver(h deed, event handler.Event) (string, error) {
	watched := s.teacher.Watch(s.seam)
	for ; event.Try < 10; event.Try++ {
		effect, err := handler.Typed(h)(context.Background(), event)
		if err != nil || len(effect.Writes) == 0 {
			return effect.Result, err
		}
		_, err = watched.Commit(context.Background(), effect.Writes)
		if !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrStale) {
			return effect.Result, err
		}
	}
	return "", retry.Busy("contention", nil)
}

func (s *shop) order(event, order, uid string) handler.Event {
	body := &contract.PayNow{EventID: event, EventType: "order.paid"}
	body.Data.Order = &contract.Order{ID: s.customer + order, CustomerID: s.customer, Items: []contract.Item{{ProductID: "piece", Quantity: 1}}}
	return eventOf(body, map[string]string{contract.AttrUID: uid, contract.AttrCustomerID: s.customer})
}

func (s *shop) uid(t require.TestingT) string {
	state, err := s.operator.Show(context.Background(), tenant, s.customer)
	require.NoError(t, err)
	return state.UID
}

func TestThePaidOrderThatNamesBothLinksTheCustomerToTheUser(t *testing.T) {
	t.Parallel()
	s := newShop(storetest.Open(t))
	first, err := handler.Typed(s.points.Credit)(t.Context(), s.order("e1", "o1", "u1"))
	require.NoError(t, err)
	require.Len(t, first.Writes, 3, "the entry, the balance, the mapping")
	for _, step := range []struct {
		sentence, event, order, uid string
		result, mapped              string
	}{
		{"a guest's order teaches nothing", "e0", "o0", "", billing.Credited, ""},
		{"the first that names both teaches", "e1", "o1", "u1", billing.Credited, "u1"},
		{"the next knows", "e2", "o2", "u1", billing.Credited, "u1"},
		{"another uid is told, and has its points", "e3", "o3", "u2", billing.CreditedDiffers, "u1"},
		{"as often as it comes", "e4", "o4", "u2", billing.CreditedDiffers, "u1"},
		{"a guest's order stays a guest's", "e5", "o5", "", billing.Credited, "u1"},
	} {
		result, err := s.deliver(s.points.Credit, s.order(step.event, step.order, step.uid))
		require.NoError(t, err, step.sentence)
		require.Equal(t, step.result, result, step.sentence)
		require.Equal(t, step.mapped, s.uid(t), step.sentence)
	}
	s.reopen()
	result, err := s.deliver(s.points.Credit, s.order("e6", "o6", "u1"))
	require.NoError(t, err)
	require.Equal(t, billing.Credited, result, "another instance looks and goes on")
	s.reopen()
	result, err = s.deliver(s.points.Credit, s.order("e7", "o7", "u2"))
	require.NoError(t, err)
	require.Equal(t, billing.CreditedDiffers, result)
	for account, points := range map[ledger.Account]int64{
		ledger.UserPoints("u1"): 3 * perPiece, ledger.UserPoints("u2"): 3 * perPiece, ledger.CustomerPoints(s.customer): 2 * perPiece,
	} {
		require.Equal(t, points, s.balance(t, account), account)
	}
}

func TestAGuestsOrderIsNotCreditedAgainAfterItsPointsWereMoved(t *testing.T) {
	t.Parallel()
	s := newShop(storetest.Open(t))
	_, err := s.deliver(s.points.Credit, s.order("e1", "o1", ""))
	require.NoError(t, err)
	_, err = s.operator.Link(t.Context(), customers.Change{Tenant: tenant, CustomerID: s.customer, UID: "u1", Who: "ada", Why: "w"})
	require.NoError(t, err)
	result, err := s.deliver(s.points.Credit, s.order("e2", "o1", "u1"))
	require.NoError(t, err)
	require.Equal(t, billing.AlreadyCredited, result)
	_, err = s.deliver(s.points.Credit, s.order("e3", "o1", "u2"))
	requireVerdict(t, err, retry.Conflict, "order_credited_differently")
	require.Equal(t, int64(perPiece), s.balance(t, ledger.UserPoints("u1")))
}

func TestACustomerThatCannotBeReadNowIsRetried(t *testing.T) {
	t.Parallel()
	s := newShop(storetest.Open(t))
	event := s.order("e1", "o1", "u1")
	event.Try = 1
	s.points.Teacher = customers.NewTeacher(refusing{}, slog.New(slog.DiscardHandler), func() time.Time { return noon })
	_, err := handler.Typed(s.points.Credit)(t.Context(), event)
	requireVerdict(t, err, retry.Unavailable, "store_unavailable")
}

type refusing struct{}

func (refusing) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{}, errLost
}

func (s *shop) balance(t require.TestingT, account ledger.Account) int64 {
	doc, err := s.Get(context.Background(), account.Key(tenant))
	if errors.Is(err, store.ErrNotFound) {
		return 0
	}
	require.NoError(t, err)
	balance, ok := doc.Fields["balance"].(int64)
	require.True(t, ok)
	return balance
}

// or is a uid, or nobody's.
func or(uid any) string { text, _ := uid.(string); return text }

// TestPointsAreConservedWhateverIsLinkedMeanwhile delivers orders of guests and of users, refunds and
// chargebacks, and links, links again and unlinks, in any order, each in the middle of another
// one's commits too, with answers lost and instances replaced. Then every account has exactly
// what the chains say it holds, nothing was moved twice, and what was moved went to whom the
// customer was linked to at that moment.
func TestPointsAreConservedWhateverIsLinkedMeanwhile(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	rapid.Check(t, func(t *rapid.T) {
		s := newShop(db)
		uids := []string{s.customer + "-u1", s.customer + "-u2"}
		names := []string{"o1", "o2", "o3", "o4"}
		plain := model{orders: map[string]*booked{}, balances: map[string]int64{}}
		s.around = func(writes []store.Write) func() {
			mapped := s.uid(t)
			return func() {
				now, audited := s.uid(t), false
				for _, w := range writes {
					switch w.Key.Collection {
					case ledger.Entries:
						require.Equal(t, store.OpCreate, w.Op, "an entry is never rewritten")
						if w.Fields["kind"] == "transfer_in" {
							require.Equal(t, "points:user:"+mapped, w.Fields["to"], "moved to whom the customer is not linked to")
						}
					case ledger.Accounts:
						require.Equal(t, store.OpIncrement, w.Op)
					case audit.Collection:
						audited = true
						before, _ := w.Fields["before"].(map[string]any)
						after, _ := w.Fields["after"].(map[string]any)
						require.Equal(t, mapped, or(before["uid"]), "the audit says what was there")
						require.Equal(t, now, or(after["uid"]), "the audit says what is there")
					}
				}
				require.True(t, audited || mapped == now || mapped == "", "a mapping has changed, and nobody said so")
			}
		}
		event := func(t *rapid.T) {
			f := facts().Draw(t, "fact")
			f.order = s.customer + rapid.SampledFrom(names).Draw(t, "order")
			f.uid = rapid.SampledFrom([]string{"", "", uids[0], uids[1]}).Draw(t, "uid")
			e := f.event()
			paynow(e.Body).Data.Order.CustomerID = s.customer
			h := s.points.Reverse
			if f.kind == "order.paid" {
				h = s.points.Credit
			}
			// What it meets is what is there when its commit succeeds, not now.
			_, err := s.deliver(h, e)
			want := plain.expect(f)
			if errors.Is(err, errLost) || err == nil {
				plain.apply(f, want)
				return
			}
			require.Zero(t, want.change, "%v", err)
		}
		change := func(t *rapid.T) error {
			c := customers.Change{Tenant: tenant, CustomerID: s.customer, UID: rapid.SampledFrom(uids).Draw(t, "to"), Who: "ada", Why: "w"}
			if rapid.IntRange(0, 3).Draw(t, "unlink") == 0 {
				_, err := s.operator.Unlink(context.Background(), c)
				if errors.Is(err, customers.ErrUnknown) {
					return nil
				}
				return err
			}
			_, err := s.operator.Link(context.Background(), c)
			return err
		}
		either := func(t *rapid.T) {
			if rapid.Bool().Draw(t, "event") {
				event(t)
				return
			}
			if err := change(t); err != nil {
				require.True(t, errors.Is(err, customers.ErrChanged) || errors.Is(err, errLost), "%v", err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"one":   either,
			"event": event,
			"a link": func(t *rapid.T) {
				c := customers.Change{Tenant: tenant, CustomerID: s.customer, UID: rapid.SampledFrom(uids).Draw(t, "to"), Who: "ada", Why: "w"}
				done, err := s.operator.Link(context.Background(), c)
				require.NoError(t, err)
				require.Zero(t, done.Left)
				require.Zero(t, s.balance(t, ledger.CustomerPoints(s.customer)))
				require.Equal(t, c.UID, s.uid(t))
			},
			"some in the middle of another": func(t *rapid.T) {
				s.nth = rapid.IntRange(1, 3).Draw(t, "nth")
				s.before = func() {
					for range rapid.IntRange(1, 2).Draw(t, "some") {
						s.lose = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "lose")
						either(t)
					}
					s.lose = 0
				}
				either(t)
				s.before = nil
			},
			"one in the middle of one in the middle of another": func(t *rapid.T) {
				s.nth = rapid.IntRange(1, 3).Draw(t, "nth")
				s.before = func() {
					s.nth = rapid.IntRange(1, 3).Draw(t, "nth")
					s.before = func() { either(t) }
					either(t)
				}
				either(t)
				s.before = nil
			},
			"an answer that is lost": func(t *rapid.T) {
				s.lose = rapid.IntRange(1, 2).Draw(t, "lose")
				either(t)
				s.lose = 0
			},
			"another instance": func(*rapid.T) { s.reopen() },
			"": func(t *rapid.T) {
				holds := map[ledger.Account]int64{}
				for id, o := range plain.orders {
					chain, err := ledger.Load(context.Background(), s, tenant, id)
					require.NoError(t, err)
					require.Equal(t, o.left, chain.Left())
					holds[chain.Holder()] += chain.Left()
					out := 0
					for _, e := range chain.Entries {
						if e.Kind == ledger.KindTransferOut {
							out++
							require.Equal(t, ledger.CustomerPoints(s.customer), e.From)
						}
					}
					require.LessOrEqual(t, out, 1, "moved twice")
				}
				for _, account := range []ledger.Account{ledger.CustomerPoints(s.customer), ledger.UserPoints(uids[0]), ledger.UserPoints(uids[1])} {
					require.Equal(t, holds[account], s.balance(t, account), account)
				}
			},
		})
	})
}
