package billing_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog/catalogtest"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/products"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestPointsAreCreditedToTheUserOrElseToTheCustomer(t *testing.T) {
	t.Parallel()
	type attributes = map[string]string
	for name, test := range map[string]struct {
		attributes attributes
		customerID string
		account    ledger.Account
	}{
		"a user":               {attributes{"uid": "u1", "paynow_customer_id": "c2"}, "c1", "points:user:u1"},
		"the order's customer": {attributes{"paynow_customer_id": "c2"}, "c1", "points:customer:c1"},
		"the attribute's":      {attributes{"paynow_customer_id": "c2"}, "", "points:customer:c2"},
		"an empty user":        {attributes{"uid": ""}, "c1", "points:customer:c1"},
		"an attribute points":  {attributes{"uid": "u1", "points": "999999"}, "", "points:user:u1"},
		"neither":              {nil, "", ""},
		"both are empty":       {attributes{"uid": "", "paynow_customer_id": ""}, "", ""},
	} {
		s, event := newShop(t), golden(t, "order_paid")
		event.Attributes = test.attributes
		as[*contract.Payment](event.Body).Data.Order.CustomerID = test.customerID
		_, err := s.run(s.points.Credit, event)
		if test.account == "" {
			requireVerdict(t, retry.Permanent("no_account", nil), err)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, int64(2250), s.balance(t, test.account), name)
	}
}

type pointsOf = func(context.Context, string, string) (int64, bool, error)

func requireRefused(t *testing.T, event handler.Event, products pointsOf, want error) {
	t.Helper()
	s := newShop(t)
	s.points.PointsOf = products
	_, err := s.run(s.points.Credit, event)
	requireVerdict(t, want, err)
	s.requireNothingBooked(t)
}

func TestAnOrderWithoutAnExactWorthIsADeadLetter(t *testing.T) {
	t.Parallel()
	goods := shelf{
		"known": {Points: 1}, "max": {Points: ledger.MaxAmount}, "most": {Points: math.MaxInt64},
		"below": {Points: -1}, "free": {Points: 0},
	}.Points
	known, long := paid("", item("known", 1)), paid("", item("known", 1))
	as[*contract.Payment](long.Body).Data.Order.ID = strings.Repeat("o", 1500)
	envelope := handler.Event{Body: contract.Of(&contract.Envelope{})}
	for reason, events := range map[string]map[string]handler.Event{
		"no_items": {"no items": paid("")},
		"amount_overflow": {
			"a product beyond 64 bits":       paid("", item("most", 1<<53-1)),
			"a quantity beyond the bound":    paid("", item("known", ledger.MaxAmount+1)),
			"a sum beyond the bound":         paid("", item("max", 1), item("known", 1)),
			"a negative quantity":            paid("", item("known", -1)),
			"a product with negative points": paid("", item("below", 1)),
		},
		"entry_invalid": {"an order of 0 points": paid("", item("free", 1)), "an id that is too long": long},
		"bad_amount": {
			"a total with one decimal place": paid("10.0", item("known", 1)),
			"a negative total":               paid("-10.00", item("known", 1)),
		},
		"no_order": {"a body without an order": eventOf(&contract.Payment{}, nil)},
		"unexpected_body": {
			"no body": {}, "a nil body": {Body: contract.Body{}}, "a body of another contract": envelope,
		},
	} {
		filetest.Each(t, events, func(t *testing.T, event handler.Event) {
			requireRefused(t, event, goods, retry.Permanent(reason, nil))
		})
	}
	for err, want := range map[error]error{
		errLost: retry.Outage("store_unavailable", nil), products.ErrBroken: retry.Transient("product_broken", nil),
	} {
		unreadable := func(context.Context, string, string) (int64, bool, error) { return 0, false, err }
		requireRefused(t, known, unreadable, want)
	}
	s := newShop(t)
	s.points.PointsOf = goods
	s.must(t, s.points.Credit, paid("", item("max", 1)), billing.Credited)
	require.Equal(t, int64(ledger.MaxAmount), s.balance(t, user), "the largest credit")
}

func TestADeadLetterNamesTheUnknownProducts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		items, named string
		reads        int
	}{
		"one":                   {"odd", "odd", 1},
		"after a known one":     {"known odd", "odd", 2},
		"after an overflow":     {"most odd", "odd", 2},
		"two":                   {"odd known even", "odd even", 3},
		"one in several items":  {"odd known odd known odd", "odd", 2},
		"more than MaxSubjects": {"o1 o2 o3 o4 o5 o6 o7 o8 o9", "o1 o2 o3 o4 o5", 5},
	} {
		s, reads := newShop(t), 0
		s.points.PointsOf = func(ctx context.Context, tenant, id string) (int64, bool, error) {
			reads++
			return shelf{"known": {Points: 1}, "most": {Points: 1 << 62}}.Points(ctx, tenant, id)
		}
		items := filetest.Map(strings.Fields(test.items), func(id string) contract.Item { return item(id, 9) })
		_, err := s.run(s.points.Credit, paid("", items...))
		requireVerdict(t, retry.BadRequest("unknown_product", nil), err)
		var marked *retry.Error
		require.ErrorAs(t, err, &marked)
		require.Equal(t, strings.Fields(test.named), marked.Subjects, name)
		require.Equal(t, test.reads, reads, name)
		s.requireNothingBooked(t)
	}
}

func TestAnOrderCostsItsTotalOrElseTheSumOfItsPrices(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		currency, total string
		prices          string // of one piece each, but of two pieces of the first
		want            int64
		in              string // its currency; empty: the total is unknown
		reason          string
	}{
		"its total":                        {"USD", "25.00", "9.00", 2500, "USD", ""},
		"its total in yen":                 {"JPY", "2500", "-", 2500, "JPY", ""},
		"a known total of 0":               {"USD", "0.00", "-", 0, "USD", ""},
		"the sum of its prices":            {"KWD", "", "1.500 0.250", 3250, "KWD", ""},
		"unknown without a price":          {"USD", "", "1.50 -", 0, "", ""},
		"unknown without a currency":       {"", "25.00", "9.00", 0, "", ""},
		"an error for an invalid price":    {"JPY", "", "9.00", 0, "", "bad_amount"},
		"an error for an unknown currency": {"ABC", "25.00", "-", 0, "", "bad_amount"},
		"an error for a sum beyond int64":  {"JPY", "", strconv.Itoa(math.MaxInt64), 0, "", "amount_overflow"},
	} {
		s := newShop(t)
		costs := contract.Order{ID: order, Currency: test.currency, Total: test.total}
		for i, price := range strings.Fields(test.prices) {
			one := item("point", max(2-int64(i), 1))
			one.Price = strings.Trim(price, "-")
			costs.Items = append(costs.Items, one)
		}
		body := &contract.Payment{EventID: "e", Data: contract.PaymentData{Order: &costs}}
		event := eventOf(body, map[string]string{"uid": "u1"})
		_, err := s.run(s.points.Credit, event)
		if test.reason != "" {
			requireVerdict(t, retry.Permanent(test.reason, nil), err)
			continue
		}
		require.NoError(t, err, name)
		chain, err := ledger.Load(t.Context(), s, tenant, order)
		require.NoError(t, err, name)
		first := chain.Entries[0]
		require.Equal(t, []any{test.want, test.in}, []any{first.OrderTotal, first.OrderCurrency}, name)
	}
}

// The model covers the rest: how much is left, and repeated events and refunds.
func TestARefundReversesItsShareRoundedDown(t *testing.T) {
	t.Parallel()
	const most = ledger.MaxAmount
	for name, test := range map[string]struct {
		points           int64 // the credit
		total            string
		amount, currency string
		left             int64
		reason           string
	}{
		"a third":                    {100, "10.00", "3.33", "USD", 67, ""},
		"half, without a currency":   {100, "10.00", "5.00", "", 50, ""},
		"a product beyond 64 bits":   {most, "92233720368547758.07", "46116860184273879.03", "USD", most/2 + 1, ""},
		"a part in another currency": {100, "10.00", "5.00", "EUR", 100, "currency_mismatch"},
		"a part of an unknown total": {100, "", "5.00", "USD", 100, "order_total_unknown"},
		"an amount without cents":    {100, "10.00", "5", "USD", 100, "bad_amount"},
		"a negative amount":          {100, "10.00", "-5.00", "USD", 100, "bad_amount"},
	} {
		s := newShop(t)
		s.must(t, s.points.Credit, paid(test.total, item("point", test.points)), billing.Credited)
		event := refunded(test.amount, test.currency)
		if result, err := s.run(s.points.Reverse, event); test.reason != "" {
			requireVerdict(t, retry.Permanent(test.reason, nil), err)
		} else {
			require.Equal(t, billing.Reversed, result, name)
			s.must(t, s.points.Reverse, event, billing.Reversed)
			event.ID = "r2"
			s.must(t, s.points.Reverse, event, billing.AlreadyReversed)
		}
		require.Equal(t, test.left, s.balance(t, user), name)
	}
}

func TestAStoreThatIsDownIsRetriedAndBrokenBooksAreADeadLetter(t *testing.T) {
	t.Parallel()
	broken := newShop(t)
	credit := ledgertest.Credited(t, ledger.Move{
		Tenant: tenant, Order: order, EventID: "e", To: user, Amount: 1, CreatedAt: noon,
	})
	storetest.Put(t, broken, store.Create(credit[0].Key, map[string]any{"x": "y"}))
	fails := func(err error) func(func() error) error { return func(func() error) error { return err } }
	for name, test := range map[string]struct {
		read func(do func() error) error
		want error
	}{
		"no answer":                 {fails(errLost), retry.Outage("store_unavailable", nil)},
		"a refused query":           {fails(store.ErrInvalid), retry.Permanent("entry_invalid", nil)},
		"entries that are no chain": {nil, retry.Permanent("ledger_broken", nil)},
	} {
		broken.points.Mappings, broken.OnRead = nil, test.read
		_, err := handler.Typed(broken.points.Reverse)(t.Context(), golden(t, "order_chargeback"))
		requireVerdict(t, test.want, err)
		event := golden(t, "order_paid")
		event.Try = 1
		_, err = handler.Typed(broken.points.Credit)(t.Context(), event)
		require.Equal(t, retry.Decide(test.want), retry.Decide(err), name)
	}
	s := newShop(t)
	event := s.order("e1", "o1", "u1")
	event.Try = 1
	s.Down(true)
	_, err := handler.Typed(s.points.Credit)(t.Context(), event)
	requireVerdict(t, retry.Outage("store_unavailable", nil), err) // when it reads the mapping
}

func (s *shop) order(event, order, uid string) handler.Event {
	body := &contract.Payment{EventID: event, EventType: "order.paid"}
	items := []contract.Item{item("piece", 1)}
	body.Data.Order = &contract.Order{ID: s.customer + order, CustomerID: s.customer, Items: items}
	return eventOf(body, map[string]string{contract.AttrUID: uid, contract.AttrCustomerID: s.customer})
}

func TestAPaidOrderOfAUserLinksTheCustomerToTheUser(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for i, step := range []struct {
		sentence, uid, result, mapped string
		restarts                      bool
	}{
		{"a guest order makes no mapping", "", billing.Credited, "", false},
		{"the first order of a user makes one", "u1", billing.Credited, "u1", false},
		{"the next order finds it in the cache", "u1", billing.Credited, "u1", false},
		{"another uid is logged, and gets its points", "u2", billing.CreditedDiffers, "u1", false},
		{"and so is it again", "u2", billing.CreditedDiffers, "u1", false},
		{"a guest order remains one", "", billing.Credited, "u1", false},
		{"another instance reads the mapping", "u1", billing.Credited, "u1", true},
		{"and logs another uid", "u2", billing.CreditedDiffers, "u1", true},
	} {
		if step.restarts {
			s.reopen()
		}
		result, err := s.run(s.points.Credit, s.order(fmt.Sprint("e", i), fmt.Sprint("o", i), step.uid))
		require.NoError(t, err, step.sentence)
		require.Equal(t, []string{step.result, step.mapped}, []string{result, s.uid(t)}, step.sentence)
	}
	for account, points := range map[ledger.Account]int64{
		user: 3 * perPiece, ledger.UserPoints("u2"): 3 * perPiece, ledger.CustomerPoints(s.customer): 2 * perPiece,
	} {
		require.Equal(t, points, s.balance(t, account), account)
	}
}

func TestAGuestOrderIsNotCreditedAgainAfterItsPointsWereMoved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.must(t, s.points.Credit, s.order("e1", "o1", ""), billing.Credited)
	require.NoError(t, filetest.ErrorOf(s.operator.Link(t.Context(), ada, s.link("u1"))))
	s.must(t, s.points.Credit, s.order("e2", "o1", "u1"), billing.AlreadyCredited)
	_, err := s.run(s.points.Credit, s.order("e3", "o1", "u2"))
	requireVerdict(t, retry.Conflicting("order_credited_differently", nil), err)
	require.Equal(t, int64(perPiece), s.balance(t, user))
}

func forShop(t *testing.T, id, shopOrder string) handler.Event {
	t.Helper()
	event := golden(t, "order_paid")
	event.Queue, event.ID, event.Attributes[contract.AttrShopOrderID] = "paynow-events", id, shopOrder
	return event
}

// An order that cannot be credited confirms no other until its dead letter is replayed.
func TestAPaidOrderConfirmsTheOrderOfTheShopThatItNames(t *testing.T) {
	t.Parallel()
	one, changed := []string{"orders"}, shelf{"411486491630370501": {Points: 1}, "411486491630370502": {}}
	for name, test := range map[string]struct {
		queues    []string
		shopOrder string
		before    string // the event that has credited the order before; empty: none
		products  shelf
		try       int
		result    string
		emits     int
		want      error
	}{
		"a first try":                    {one, "cart-7", "", goods, 0, billing.Credited, 1, nil},
		"without a queue":                {nil, "cart-7", "", goods, 0, billing.Credited, 0, nil},
		"no order of the shop":           {one, "", "", goods, 0, billing.Credited, 0, nil},
		"a second try, not credited yet": {one, "cart-7", "", goods, 1, billing.Credited, 1, nil},
		"a second try, credited by another": {
			one, "cart-7", "e0", goods, 1, billing.AlreadyCredited, 1, nil,
		},
		"a second try, credited by itself": {
			one, "cart-7", "e1", goods, 1, billing.Credited, 1, nil,
		},
		"unknown products": {one, "cart-7", "", shelf{}, 0, "", 0, retry.BadRequest("unknown_product", nil)},
		"the product has other points since": {
			one, "cart-7", "e0", changed, 1, "", 0, retry.Conflicting("order_credited_differently", nil),
		},
	} {
		s := newShop(t)
		s.points.Mappings = nil
		if test.before != "" {
			s.must(t, s.points.Credit, forShop(t, test.before, ""), billing.Credited)
		}
		s.points.Orders, s.points.PointsOf = test.queues, test.products.Points
		event := forShop(t, "e1", test.shopOrder)
		event.Try = test.try
		effect, err := handler.Typed(s.points.Credit)(t.Context(), event)
		require.Equal(t, retry.Decide(test.want), retry.Decide(err), name)
		require.Equal(t, test.result, effect.Result, name)
		require.Len(t, effect.Emit, test.emits, name)
		for _, emission := range effect.Emit {
			m := as[*contract.Event](emission.Body)
			require.Equal(t, "orders cart-7 order.payment_confirmed {cart-7 "+order+"}",
				fmt.Sprint(emission.To, " ", emission.OrderingKey, " ", m.Type, " ", m.Data),
				"it has the ordering key of the shop order's other events")
			require.True(t, emission.Due.IsZero())
		}
	}
}

func TestEveryIDOfAShopOrderCanBeEmitted(t *testing.T) {
	t.Parallel()
	c, s := catalogtest.Shipped(), newShop(t)
	s.points.Mappings, s.points.Orders = nil, c.EmitsOf("points.credit")
	require.Len(t, s.points.Orders, 1)
	event := forShop(t, "e1", "")
	ids := rapid.OneOf(
		rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`), rapid.StringMatching(`[0-9]{1,24}`),
		rapid.Just("4111111111111111"), rapid.Just("203.0.113.77"),
	)
	rapid.Check(t, func(rt *rapid.T) {
		id := ids.Draw(rt, "id")
		require.True(rt, pii.ID.Valid(id))
		event.Attributes[contract.AttrShopOrderID] = id
		effect := filetest.Must(handler.Typed(s.points.Credit)(context.Background(), event))(rt)
		emitted := filetest.Must(lane.Emit(c, event, &effect, noon))(rt)
		require.Equal(rt, []string{lane.ID(event, 0)}, handler.EmittedIDs(emitted.Messages))
	})
}
