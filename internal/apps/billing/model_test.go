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
	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

type fact struct {
	id, kind, order, uid string
	refund               string // the refund's own id; empty: not given
	quantity             int64
	total                int64 // cents of the order; -1: not given
	amount               int64 // cents of the refund; -1: not given
}

const closed = "order.chargeback_closed"

type booked struct {
	eventID, uid   string
	credited, left int64
	total          int64
	reversals      map[string]bool // by event, and by refund
}

type model map[string]*booked

type outcome struct {
	result string
	err    error
	change int64
}

func (m model) expect(f fact) outcome {
	o := m[f.order]
	if f.kind == closed {
		return outcome{result: billing.Noted}
	}
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
			return outcome{err: retry.Conflicting("order_credited_differently", nil)}
		}
	}
	if o == nil {
		return outcome{err: retry.Missing("order_not_seen", nil)}
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
			return outcome{err: retry.Permanent("order_total_unknown", nil)}
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
		m[f.order] = &booked{
			eventID: f.id, uid: f.uid, credited: out.change, left: out.change, total: f.total,
			reversals: map[string]bool{},
		}
	case out.change < 0:
		o := m[f.order]
		o.left += out.change
		o.reversals[f.id] = true
		if f.kind == "order.refunded" { // a chargeback reverses all that is left
			o.reversals[f.refund] = true
		}
	}
}

func (f fact) event(customer string) handler.Event {
	body := &contract.Payment{EventID: f.id, EventType: f.kind}
	body.Data.Order = &contract.Order{ID: f.order, Currency: "USD", CustomerID: customer}
	if f.kind == "order.paid" {
		body.Data.Order.Items = []contract.Item{item("piece", f.quantity)}
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

func drawFact(t *rapid.T, customer string, uids []string) fact {
	f := fact{
		id: fmt.Sprint("e", rapid.IntRange(0, 60).Draw(t, "event")),
		// These ids have a common prefix, or would without escaping.
		order: customer + rapid.SampledFrom([]string{"o", "o~", "o~0000", "o/1"}).Draw(t, "order"),
		uid:   rapid.SampledFrom([]string{"", "", uids[0], uids[1]}).Draw(t, "uid"),
		kind: rapid.SampledFrom([]string{
			"order.paid", "order.refunded", "order.refunded", "order.refunded", "order.chargeback", closed,
		}).Draw(t, "kind"),
		quantity: rapid.SampledFrom([]int64{1, 10, 1000, 1_000_000_000_000}).Draw(t, "quantity"),
		total:    rapid.SampledFrom([]int64{-1, 0, 1, 3, 999, 100_000}).Draw(t, "total"),
		amount: rapid.OneOf(rapid.Just(int64(-1)), rapid.Int64Range(0, 400), rapid.Int64Range(0, 120_000)).
			Draw(t, "amount"),
	}
	if f.kind != "order.paid" {
		f.refund = rapid.SampledFrom([]string{"", "", "r1", "r2", "r3"}).Draw(t, "refund")
	}
	return f
}

// Entries are only created, accounts only incremented, and points go to the user to whom the customer is
// linked at that time.
func (s *shop) requireRules(t *rapid.T) {
	or := func(uid any) string { text, _ := uid.(string); return text }
	s.around = func(writes []store.Write) func() {
		mapped := s.uid(t)
		return func() {
			now, audited := s.uid(t), false
			for _, w := range writes {
				switch w.Key.Collection {
				case ledger.Entries:
					require.Equal(t, store.OpCreate, w.Op, "an entry is never rewritten")
					if w.Fields["kind"] == "transfer_in" {
						require.Equal(t, "points:user:"+mapped, w.Fields["to"],
							"moved to a user to whom the customer is not linked")
					}
				case ledger.Accounts:
					require.Equal(t, store.OpIncrement, w.Op)
				case audit.Collection:
					audited = true
					before, _ := w.Fields["before"].(map[string]any)
					after, _ := w.Fields["after"].(map[string]any)
					require.Equal(t, []string{mapped, now}, []string{or(before["uid"]), or(after["uid"])},
						"the audit has the uid before and after")
				}
			}
			require.True(t, audited || mapped == now || mapped == "", "a mapping has changed without an audit entry")
		}
	}
}

func (s *shop) requireBooks(t *rapid.T, plain model, uids []string) {
	guest := ledger.CustomerPoints(s.customer)
	holds := map[ledger.Account]int64{}
	for id, o := range plain {
		chain := filetest.Must(ledger.Load(context.Background(), s, tenant, id))(t)
		to := guest
		if o.uid != "" {
			to = ledger.UserPoints(o.uid)
		}
		require.Equal(t, to, chain.Entries[0].To)
		require.Equal(t, []int64{o.credited, o.left}, []int64{chain.Entries[0].Amount, chain.Left()})
		holds[chain.Holder()] += chain.Left()
		out := 0
		for _, e := range chain.Entries {
			if e.Kind == ledger.KindTransferOut {
				out++
				require.Equal(t, guest, e.From)
			}
		}
		require.LessOrEqual(t, out, 1, "moved twice")
	}
	for _, account := range []ledger.Account{guest, ledger.UserPoints(uids[0]), ledger.UserPoints(uids[1])} {
		require.Equal(t, holds[account], s.balance(t, account), account)
	}
}

// history is a shop, and the model that follows it.
type history struct {
	*shop
	plain model
	uids  []string
	links bool // whether people link customers
}

func (h *history) event(t *rapid.T) {
	if !h.links {
		h.points.Mappings = nil // also after another instance has started
	}
	f := drawFact(t, h.customer, h.uids)
	handle := map[string]deed{"order.paid": h.points.Credit, closed: h.points.Acknowledge}[f.kind]
	if handle == nil {
		handle = h.points.Reverse
	}
	result, err := h.run(handle, f.event(h.customer))
	want := h.plain.expect(f) // from the state when its commit succeeded
	switch {
	case errors.Is(err, errLost):
	case !h.links:
		require.Equal(t, retry.Decide(want.err), retry.Decide(err))
		require.Equal(t, want.result, result)
	case err != nil:
		require.Zero(t, want.change, "%v", err)
		return
	}
	h.plain.apply(f, want)
}

func (h *history) drawLink(t *rapid.T) customers.LinkCustomer {
	return h.link(rapid.SampledFrom(h.uids).Draw(t, "to"))
}

// either is an event, a link or an unlink.
func (h *history) either(t *rapid.T) {
	if !h.links || rapid.Bool().Draw(t, "event") {
		h.event(t)
		return
	}
	var err error
	if c := h.drawLink(t); rapid.IntRange(0, 3).Draw(t, "unlink") == 0 {
		unlink := customers.UnlinkCustomer{CustomerOf: c.CustomerOf, Edit: c.Edit}
		_, err = h.operator.Unlink(context.Background(), ada, unlink)
	} else {
		_, err = h.operator.Link(context.Background(), ada, c)
	}
	if err != nil {
		require.True(t, errors.Is(err, customers.ErrUnknown) || errors.Is(err, audit.ErrChanged) ||
			errors.Is(err, errLost), "%v", err)
	}
}

func (h *history) linked(t *rapid.T) {
	if !h.links {
		t.Skip("customers are not linked")
	}
	c := h.drawLink(t)
	require.Zero(t, filetest.Must(h.operator.Link(context.Background(), ada, c))(t).Left)
	require.Zero(t, h.balance(t, ledger.CustomerPoints(h.customer)))
	require.Equal(t, c.UID, h.uid(t))
}

// interrupt calls others before one of the next commits of either.
func (h *history) interrupt(t *rapid.T, others func()) {
	h.nth, h.before = rapid.IntRange(1, 3).Draw(t, "nth"), others
	h.either(t)
	h.before = nil
}

// Events and links interrupt each other before commits, with lost answers and replaced instances. Without
// records of events, only the chains prevent a second credit.
func TestPointsAreConservedByConcurrentEventsAndLinks(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	rapid.Check(t, func(t *rapid.T) {
		h := &history{shop: shopOn(db), plain: model{}, links: rapid.Bool().Draw(t, "people link customers")}
		h.uids = []string{h.customer + "-u1", h.customer + "-u2"}
		h.requireRules(t)
		t.Repeat(map[string]func(*rapid.T){
			"an event or a link": h.either, "an event": h.event, "a link": h.linked,
			"some interrupt another": func(t *rapid.T) {
				h.interrupt(t, func() {
					for range rapid.IntRange(1, 2).Draw(t, "some") {
						h.lose = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "lose")
						h.either(t)
					}
					h.lose = 0
				})
			},
			"one interrupts one that interrupts another": func(t *rapid.T) {
				h.interrupt(t, func() {
					h.nth = rapid.IntRange(1, 3).Draw(t, "nth")
					h.before = func() { h.either(t) }
					h.either(t)
				})
			},
			"an answer that is lost": func(t *rapid.T) {
				h.lose = rapid.IntRange(1, 2).Draw(t, "lose")
				h.either(t)
				h.lose = 0
			},
			"another instance": func(*rapid.T) { h.reopen() },
			"":                 func(t *rapid.T) { h.requireBooks(t, h.plain, h.uids) },
		})
	})
}
