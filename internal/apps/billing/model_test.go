package billing_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/billing"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// fact is one event as the model sees it.
type fact struct {
	id, kind, order, uid string
	refund               string // the refund's own id; empty: not given
	quantity             int64
	total                int64 // cents of the order; -1: not given
	amount               int64 // cents of the refund; -1: not given
}

// booked is one order as the model sees it.
type booked struct {
	eventID, uid   string
	credited, left int64
	total          int64
	reversals      map[string]bool // by event, and by refund
}

// model is what the books should hold, computed the plain way.
type model struct {
	orders   map[string]*booked
	balances map[string]int64
}

// outcome is what becomes of a fact: a result or a reason, and the points moved.
type outcome struct {
	result, reason string
	change         int64
}

const perPiece = 7 // points, so that shares seldom come out even

func (m model) expect(f fact) outcome {
	o := m.orders[f.order]
	if f.kind == "order.paid" {
		worth := f.quantity * perPiece
		switch {
		case o == nil:
			return outcome{result: billing.Credited, change: worth}
		case o.eventID == f.id:
			return outcome{result: billing.Credited}
		case o.uid == f.uid && o.credited == worth:
			return outcome{result: billing.AlreadyCredited}
		default:
			return outcome{reason: "order_credited_differently"}
		}
	}
	if o == nil {
		return outcome{reason: "order_not_seen"}
	}
	if o.reversals[f.id] {
		return outcome{result: billing.Reversed}
	}
	if f.kind == "order.refunded" && f.refund != "" && o.reversals[f.refund] {
		return outcome{result: billing.AlreadyReversed}
	}
	take := o.left
	if f.kind == "order.refunded" && f.amount >= 0 {
		if o.total < 0 {
			return outcome{reason: "order_total_unknown"}
		}
		if f.amount < o.total {
			share := new(big.Int).Mul(big.NewInt(o.credited), big.NewInt(f.amount))
			take = min(take, share.Quo(share, big.NewInt(o.total)).Int64())
		}
	}
	if take == 0 {
		return outcome{result: billing.NothingToReverse}
	}
	return outcome{result: billing.Reversed, change: -take}
}

func (m model) apply(f fact, out outcome) {
	switch {
	case out.change > 0:
		m.orders[f.order] = &booked{
			eventID: f.id, uid: f.uid, credited: out.change, left: out.change, total: f.total, reversals: map[string]bool{},
		}
		m.balances[f.uid] += out.change
	case out.change < 0:
		o := m.orders[f.order]
		o.left += out.change
		o.reversals[f.id] = true
		if f.kind == "order.refunded" { // a chargeback takes all that is left, whatever was refunded before
			o.reversals[f.refund] = true
		}
		m.balances[o.uid] += out.change
	}
}

func (f fact) event() handler.Event {
	body := &contract.PayNow{EventID: f.id, EventType: f.kind}
	body.Data.Order = &contract.Order{ID: f.order, Currency: "USD"}
	if f.kind == "order.paid" {
		body.Data.Order.Items = []contract.Item{{ProductID: "piece", Quantity: f.quantity}}
		if f.total >= 0 {
			body.Data.Order.Total, _ = money.Format(f.total, "USD")
		}
	} else if f.amount >= 0 || f.refund != "" {
		body.Data.Refund = &contract.Refund{ID: f.refund}
		if f.amount >= 0 {
			body.Data.Refund.Amount, _ = money.Format(f.amount, "USD")
		}
	}
	return eventOf(body, map[string]string{contract.AttrUID: f.uid})
}

func facts() *rapid.Generator[fact] {
	return rapid.Custom(func(t *rapid.T) fact {
		f := fact{
			id: fmt.Sprint("e", rapid.IntRange(0, 60).Draw(t, "event")),
			// Names that begin alike, or would if they were not escaped.
			order: rapid.SampledFrom([]string{"o", "o~", "o~0000", "o/1"}).Draw(t, "order"),
			uid:   rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "uid"),
			kind: rapid.SampledFrom([]string{
				"order.paid", "order.refunded", "order.refunded", "order.refunded", "order.chargeback",
			}).Draw(t, "kind"),
			quantity: rapid.SampledFrom([]int64{1, 10, 1000, 1_000_000_000_000}).Draw(t, "quantity"),
			total:    rapid.SampledFrom([]int64{-1, 0, 1, 3, 999, 100_000}).Draw(t, "total"),
			amount:   rapid.OneOf(rapid.Just(int64(-1)), rapid.Int64Range(0, 400), rapid.Int64Range(0, 120_000)).Draw(t, "amount"),
		}
		if f.kind != "order.paid" {
			f.refund = rapid.SampledFrom([]string{"", "", "r1", "r2", "r3"}).Draw(t, "refund")
		}
		return f
	})
}

// TestTheBooksAgreeWithThePlainModel delivers facts in any order, again, and two at
// a time where the second has looked before the first was committed. Nothing
// remembers which events were seen: the chains alone must do.
func TestTheBooksAgreeWithThePlainModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		books := &ledgertest.Books{}
		points := pointsOn(books)
		points.Products = shelf{"piece": {Points: perPiece}}
		m := model{orders: map[string]*booked{}, balances: map[string]int64{}}
		seen := map[string]map[string]any{}

		handlerOf := func(f fact) deed {
			if f.kind == "order.paid" {
				return points.Credit
			}
			return points.Reverse
		}
		requireOutcome := func(want outcome, result string, err error) {
			require.Equal(t, want.result, result)
			if want.reason == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, want.reason, retry.Decide(err).Reason)
		}
		t.Repeat(map[string]func(*rapid.T){
			"one event": func(t *rapid.T) {
				f := facts().Draw(t, "fact")
				want := m.expect(f)
				result, err := run(books, handlerOf(f), f.event())
				requireOutcome(want, result, err)
				m.apply(f, want)
			},
			"two events that meet": func(t *rapid.T) {
				first, second := facts().Draw(t, "first"), facts().Draw(t, "second")
				stale, staleErr := handler.Typed(handlerOf(second))(context.Background(), second.event())
				before := m.expect(second)

				want := m.expect(first)
				result, err := run(books, handlerOf(first), first.event())
				requireOutcome(want, result, err)
				m.apply(first, want)

				if staleErr != nil || len(stale.Writes) == 0 {
					// It had nothing to commit, so what it saw is what it answers.
					requireOutcome(before, stale.Result, staleErr)
					return
				}
				err = books.Commit(context.Background(), stale.Writes)
				result, want = stale.Result, m.expect(second)
				if errors.Is(err, store.ErrExists) {
					again := second.event()
					again.Try = 1
					result, err = run(books, handlerOf(second), again)
				}
				requireOutcome(want, result, err)
				m.apply(second, want)
			},
			"": func(t *rapid.T) {
				requireBooks(t, books, m)
				now := books.All(ledger.Entries)
				for id, fields := range seen {
					require.Equal(t, fields, now[id], "an entry was rewritten")
				}
				seen = now
			},
		})
	})
}

// requireBooks checks the books against the model and against themselves.
func requireBooks(t *rapid.T, books *ledgertest.Books, m model) {
	sums := map[ledger.Account]int64{}
	for id, fields := range books.All(ledger.Entries) {
		entry, err := ledger.Read(store.Document{Key: ledger.Key(id), Fields: fields})
		require.NoError(t, err)
		var left int64
		for _, line := range entry.Lines {
			left += line.Credit - line.Debit
			sums[ledger.Account(line.Account)] += line.Credit - line.Debit
		}
		require.Zero(t, left)
	}
	for uid, balance := range m.balances {
		account := ledger.UserPoints(uid)
		require.Equal(t, balance, books.Balance(tenant, account))
		require.Equal(t, balance, sums[account])
	}
	for id, o := range m.orders {
		chain, err := ledger.Load(context.Background(), books, tenant, id)
		require.NoError(t, err)
		credit, ok := chain.Credit()
		require.True(t, ok)
		require.Equal(t, o.credited, credit.Amount)
		require.Equal(t, o.left, chain.Left())
		require.GreaterOrEqual(t, chain.Left(), int64(0), "more was reversed than credited")
		require.Equal(t, -o.left, sums[ledger.IssuedPoints(id)])
	}
	require.LessOrEqual(t, len(books.All(ledger.Accounts)), len(m.balances), "only users have documents")
}
