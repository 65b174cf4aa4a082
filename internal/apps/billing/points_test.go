package billing_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/catalog"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// The products of the golden events.
var goods = shelf{
	"411486491630370501": {Points: 1000},
	"411486491630370502": {Points: 250},
}

const order = "530217764480012801" // of the golden events

// tenant is whose events these are.
const tenant = "default"

var user = ledger.UserPoints("u1")

// shelf is products with their points.
type shelf map[string]catalog.Product

func (s shelf) Points(_ context.Context, _, id string) (int64, bool, error) {
	p, known := s[id]
	return p.Points, known, nil
}

func pointsOn(books *ledgertest.Books) billing.Points {
	return billing.Points{Store: books, Products: goods, Now: func() time.Time { return noon }}
}

// golden is the event of a golden body, for the user u1.
func golden(t *testing.T, name string) handler.Event {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "contract", "testdata", contract.PayNowV1, name+".json"))
	require.NoError(t, err)
	body := &contract.PayNow{}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(body))
	return eventOf(body, map[string]string{contract.AttrUID: "u1"})
}

func eventOf(body *contract.PayNow, attributes map[string]string) handler.Event {
	return handler.Event{
		Tenant: tenant, ID: body.EventID, Type: body.EventType, Contract: contract.PayNowV1,
		Attempt: 1, Body: contract.Of(body), Attributes: attributes,
	}
}

// paid is the event of an order with a total in dollars.
func paid(id, orderID, total string, items ...contract.Item) handler.Event {
	o := &contract.Order{ID: orderID, Total: total, Items: items}
	if total != "" {
		o.Currency = "USD"
	}
	return eventOf(&contract.PayNow{EventID: id, EventType: "order.paid", Data: contract.PayNowData{Order: o}},
		map[string]string{contract.AttrUID: "u1"})
}

// refunded is the event of a refund of the golden order; without an amount, of everything.
func refunded(id, amount, currency string) handler.Event {
	return eventOf(&contract.PayNow{EventID: id, EventType: "order.refunded", Data: contract.PayNowData{
		Order: &contract.Order{ID: order, Currency: currency}, Refund: &contract.Refund{Amount: amount},
	}}, nil)
}

// deed is a handler of points.
type deed = func(context.Context, handler.Event, *contract.PayNow) (handler.Effect, error)

// run does what the worker does: it commits what the handler returns, and calls it
// again when somebody else was faster.
func run(books *ledgertest.Books, h deed, event handler.Event) (string, error) {
	for ; ; event.Try++ {
		effect, err := handler.Typed(h)(context.Background(), event)
		if err != nil || len(effect.Writes) == 0 {
			return effect.Result, err
		}
		if err = books.Commit(context.Background(), effect.Writes); !errors.Is(err, store.ErrExists) {
			return effect.Result, err
		}
	}
}

func must(t *testing.T, books *ledgertest.Books, h deed, event handler.Event, want string) {
	t.Helper()
	result, err := run(books, h, event)
	require.NoError(t, err)
	require.Equal(t, want, result)
}

func requireVerdict(t *testing.T, err error, class retry.Class, reason string) {
	t.Helper()
	require.Error(t, err)
	want := retry.Verdict{Class: class, Reason: reason, Counts: true}
	switch reason {
	case "store_unavailable":
		want = retry.Decide(retry.Outage(reason, nil))
	case "order_not_seen":
		want = retry.Decide(retry.Missing(reason, nil))
	}
	require.Equal(t, want, retry.Decide(err))
}

func TestEveryHandlerOfTheCatalogIsRegistered(t *testing.T) {
	t.Parallel()
	registry := handler.NewRegistry()
	billing.Register(registry, pointsOn(&ledgertest.Books{}), billing.Subscriptions{})
	for _, name := range []string{"points.credit", "points.reverse", "points.acknowledge", "subscriptions.record"} {
		_, ok := registry.Lookup(name)
		require.True(t, ok, name)
	}
}

func TestACreditReadsNothingAndAReversalReadsOnce(t *testing.T) {
	t.Parallel()
	books := &ledgertest.Books{}
	points := pointsOn(books)
	must(t, books, points.Credit, golden(t, "order_paid"), billing.Credited)
	require.Zero(t, books.Queries())
	effect, err := handler.Typed(points.Reverse)(t.Context(), golden(t, "order_chargeback"))
	require.NoError(t, err)
	require.Len(t, effect.Writes, 2)
	require.Equal(t, 1, books.Queries())
}

func TestPointsAreCreditedOnceAndReversedBelowZeroNever(t *testing.T) {
	t.Parallel()
	books := &ledgertest.Books{}
	points := pointsOn(books)
	for _, step := range []struct {
		golden  string
		h       deed
		result  string
		balance int64
	}{
		{"order_paid", points.Credit, billing.Credited, 2250},
		{"order_paid", points.Credit, billing.Credited, 2250},
		// 2250 x 10.01 / 25.00 is 900.9.
		{"order_refunded_partial", points.Reverse, billing.Reversed, 1350},
		{"order_refunded_partial", points.Reverse, billing.Reversed, 1350},
		{"order_refunded_full", points.Reverse, billing.Reversed, 0},
		{"order_refunded_full", points.Reverse, billing.Reversed, 0},
		{"order_chargeback", points.Reverse, billing.NothingToReverse, 0},
		{"order_chargeback_closed", points.Acknowledge, billing.Noted, 0},
	} {
		must(t, books, step.h, golden(t, step.golden), step.result)
		require.Equal(t, step.balance, books.Balance(tenant, user), step.golden)
	}
	chain, err := ledger.Load(t.Context(), books, tenant, order)
	require.NoError(t, err)
	require.Len(t, chain.Entries, 3)
	require.Equal(t, int64(2500), chain.Entries[0].OrderTotal)
	require.Equal(t, "USD", chain.Entries[0].OrderCurrency)
	require.Len(t, books.All(ledger.Accounts), 1)
}

func TestPointsGoToTheUserOrElseToTheCustomer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attributes map[string]string
		customerID string
		account    ledger.Account
	}{
		"the user, where one is known":        {map[string]string{"uid": "u1", "paynow_customer_id": "c2"}, "c1", "points:user:u1"},
		"else the customer of the order":      {map[string]string{"paynow_customer_id": "c2"}, "c1", "points:customer:c1"},
		"else the customer of the attributes": {map[string]string{"paynow_customer_id": "c2"}, "", "points:customer:c2"},
		"an empty user is none":               {map[string]string{"uid": ""}, "c1", "points:customer:c1"},
		"a points attribute changes nothing":  {map[string]string{"uid": "u1", "points": "999999"}, "", "points:user:u1"},
		"nor does one that is not a number":   {map[string]string{"uid": "u1", "points": "many"}, "", "points:user:u1"},
		"nobody, without attributes and body": {nil, "", ""},
		"nobody, where all of them are empty": {map[string]string{"uid": "", "paynow_customer_id": ""}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := &ledgertest.Books{}
			event := golden(t, "order_paid")
			event.Attributes = test.attributes
			paynow(event.Body).Data.Order.CustomerID = test.customerID
			result, err := run(books, pointsOn(books).Credit, event)
			if test.account == "" {
				requireVerdict(t, err, retry.Rejected, "no_account")
				return
			}
			require.NoError(t, err)
			require.Equal(t, billing.Credited, result)
			require.Equal(t, int64(2250), books.Balance(tenant, test.account))
		})
	}
}

func TestAnOrderWithoutAnExactWorthIsADeadLetter(t *testing.T) {
	t.Parallel()
	huge := shelf{
		"known": {Points: 1}, "max": {Points: ledger.MaxAmount}, "most": {Points: math.MaxInt64}, "below": {Points: -1}, "free": {Points: 0},
	}
	for name, test := range map[string]struct {
		event  handler.Event
		reason string
	}{
		"no items": {paid("e", "o", ""), "no_items"},
		"points times quantity beyond 128 bits/2": {paid("e", "o", "", contract.Item{ProductID: "most", Quantity: 1<<53 - 1}), "amount_overflow"},
		"a quantity beyond the bound":             {paid("e", "o", "", contract.Item{ProductID: "known", Quantity: ledger.MaxAmount + 1}), "amount_overflow"},
		"a sum beyond the bound":                  {paid("e", "o", "", contract.Item{ProductID: "max", Quantity: 1}, contract.Item{ProductID: "known", Quantity: 1}), "amount_overflow"},
		"a negative quantity":                     {paid("e", "o", "", contract.Item{ProductID: "known", Quantity: -1}), "amount_overflow"},
		"a product of negative worth":             {paid("e", "o", "", contract.Item{ProductID: "below", Quantity: 1}), "amount_overflow"},
		"an order worth nothing":                  {paid("e", "o", "", contract.Item{ProductID: "free", Quantity: 1}), "entry_invalid"},
		"a total with the wrong digits":           {paid("e", "o", "10.0", contract.Item{ProductID: "known", Quantity: 1}), "bad_amount"},
		"a negative total":                        {paid("e", "o", "-10.00", contract.Item{ProductID: "known", Quantity: 1}), "bad_amount"},
		"an order id too long for a document":     {paid("e", strings.Repeat("o", 1500), "", contract.Item{ProductID: "known", Quantity: 1}), "entry_invalid"},
		"a body without an order":                 {eventOf(&contract.PayNow{}, nil), "no_order"},
		"no body":                                 {handler.Event{}, "unexpected_body"},
		"a nil body":                              {handler.Event{Body: contract.Body{}}, "unexpected_body"},
		"a body of another contract":              {handler.Event{Body: contract.Of(&contract.Envelope{})}, "unexpected_body"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := &ledgertest.Books{}
			points := pointsOn(books)
			points.Products = huge
			_, err := run(books, points.Credit, test.event)
			requireVerdict(t, err, retry.Rejected, test.reason)
			require.Empty(t, books.All(ledger.Entries))
			require.Empty(t, books.All(ledger.Accounts))
		})
	}
	books := &ledgertest.Books{}
	points := pointsOn(books)
	points.Products = huge
	must(t, books, points.Credit, paid("e", "o", "", contract.Item{ProductID: "max", Quantity: 1}), billing.Credited)
	require.Equal(t, int64(ledger.MaxAmount), books.Balance(tenant, user), "the largest credit")
}

func TestAnOrderCostsItsTotalOrElseTheSumOfItsPrices(t *testing.T) {
	t.Parallel()
	known := "411486491630370501"
	for name, test := range map[string]struct {
		order    contract.Order
		total    int64
		currency string
		reason   string
	}{
		"its total":                        {order: contract.Order{Currency: "USD", Total: "25.00", Items: []contract.Item{{ProductID: known, Quantity: 1, Price: "9.00"}}}, total: 2500, currency: "USD"},
		"its total in yen":                 {order: contract.Order{Currency: "JPY", Total: "2500", Items: []contract.Item{{ProductID: known, Quantity: 1}}}, total: 2500, currency: "JPY"},
		"nothing, which is known":          {order: contract.Order{Currency: "USD", Total: "0.00", Items: []contract.Item{{ProductID: known, Quantity: 1}}}, currency: "USD"},
		"the sum of its prices":            {order: contract.Order{Currency: "KWD", Items: []contract.Item{{ProductID: known, Quantity: 2, Price: "1.500"}, {ProductID: known, Quantity: 1, Price: "0.250"}}}, total: 3250, currency: "KWD"},
		"unknown, where a price is absent": {order: contract.Order{Currency: "USD", Items: []contract.Item{{ProductID: known, Quantity: 2, Price: "1.50"}, {ProductID: known, Quantity: 1}}}},
		"unknown without a currency":       {order: contract.Order{Total: "25.00", Items: []contract.Item{{ProductID: known, Quantity: 1, Price: "9.00"}}}},
		"an error, where a price is wrong": {order: contract.Order{Currency: "JPY", Items: []contract.Item{{ProductID: known, Quantity: 1, Price: "9.00"}}}, reason: "bad_amount"},
		"an error in no currency of ISO's": {order: contract.Order{Currency: "ABC", Total: "25.00", Items: []contract.Item{{ProductID: known, Quantity: 1}}}, reason: "bad_amount"},
		"an error beyond int64":            {order: contract.Order{Currency: "JPY", Items: []contract.Item{{ProductID: known, Quantity: 2, Price: strconv.Itoa(math.MaxInt64)}}}, reason: "amount_overflow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := &ledgertest.Books{}
			test.order.ID = order
			event := eventOf(&contract.PayNow{EventID: "e", Data: contract.PayNowData{Order: &test.order}}, map[string]string{"uid": "u1"})
			_, err := run(books, pointsOn(books).Credit, event)
			if test.reason != "" {
				requireVerdict(t, err, retry.Rejected, test.reason)
				return
			}
			require.NoError(t, err)
			chain, err := ledger.Load(t.Context(), books, tenant, order)
			require.NoError(t, err)
			require.Equal(t, test.total, chain.Entries[0].OrderTotal)
			require.Equal(t, test.currency, chain.Entries[0].OrderCurrency)
		})
	}
}

// What the model draws is left out here: how much is left, and whether an event or a refund comes again.
func TestARefundTakesBackItsShareRoundedDown(t *testing.T) {
	t.Parallel()
	const max = ledger.MaxAmount
	for name, test := range map[string]struct {
		points int64 // the credit
		total  string
		refund handler.Event
		left   int64
		reason string
	}{
		"a third":                           {100, "10.00", refunded("r", "3.33", "USD"), 67, ""},
		"half, without naming the currency": {100, "10.00", refunded("r", "5.00", ""), 50, ""},
		"a product beyond 64 bits":          {max, "92233720368547758.07", refunded("r", "46116860184273879.03", "USD"), max/2 + 1, ""},
		"a part in another currency":        {100, "10.00", refunded("r", "5.00", "EUR"), 100, "currency_mismatch"},
		"a part of an unknown total":        {100, "", refunded("r", "5.00", "USD"), 100, "order_total_unknown"},
		"an amount with the wrong digits":   {100, "10.00", refunded("r", "5", "USD"), 100, "bad_amount"},
		"a negative amount":                 {100, "10.00", refunded("r", "-5.00", "USD"), 100, "bad_amount"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := &ledgertest.Books{}
			points := pointsOn(books)
			points.Products = shelf{"point": {Points: 1}}
			must(t, books, points.Credit, paid("paid", order, test.total, contract.Item{ProductID: "point", Quantity: test.points}), billing.Credited)
			_, err := run(books, points.Reverse, test.refund)
			if test.reason != "" {
				requireVerdict(t, err, retry.Rejected, test.reason)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, test.left, books.Balance(tenant, user))
		})
	}
}

func TestARefundBeforeItsOrderIsRetried(t *testing.T) {
	t.Parallel()
	books := &ledgertest.Books{}
	points := pointsOn(books)
	_, err := run(books, points.Reverse, golden(t, "order_refunded_full"))
	requireVerdict(t, err, retry.Failed, "order_not_seen")
	must(t, books, points.Credit, golden(t, "order_paid"), billing.Credited)
	must(t, books, points.Reverse, golden(t, "order_refunded_full"), billing.Reversed)
	require.Zero(t, books.Balance(tenant, user))
}

// broken answers every query with an error or one page.
type broken struct {
	page store.Page
	err  error
}

func (b broken) Query(context.Context, store.Query) (store.Page, error) { return b.page, b.err }

func TestAStoreThatIsDownIsRetriedAndBrokenBooksAreADeadLetter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		store  broken
		class  retry.Class
		reason string
	}{
		"no answer":                 {broken{err: errors.New("no answer")}, retry.Unavailable, "store_unavailable"},
		"a query it refuses":        {broken{err: store.ErrInvalid}, retry.Rejected, "entry_invalid"},
		"entries that are no chain": {broken{page: store.Page{Documents: []store.Document{{}}}}, retry.Rejected, "ledger_broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			points := billing.Points{Store: test.store, Products: goods, Now: func() time.Time { return noon }}
			_, err := handler.Typed(points.Reverse)(t.Context(), golden(t, "order_chargeback"))
			requireVerdict(t, err, test.class, test.reason)
			event := golden(t, "order_paid")
			event.Try = 1
			_, err = handler.Typed(points.Credit)(t.Context(), event)
			requireVerdict(t, err, test.class, test.reason)
		})
	}
}

func paynow(body contract.Body) *contract.PayNow       { return as[*contract.PayNow](body) }
func envelopeOf(body contract.Body) *contract.Envelope { return as[*contract.Envelope](body) }

func as[B any](body contract.Body) B {
	b, err := contract.As[B](body)
	if err != nil {
		panic(err)
	}
	return b
}

func TestTenantsThatUseOneOrderIDHaveEachTheirOwnPoints(t *testing.T) {
	t.Parallel()
	books := &ledgertest.Books{}
	points := pointsOn(books)
	of := func(tenant string, event handler.Event) handler.Event {
		event.Tenant = tenant
		return event
	}
	refund := refunded("r1", "12.50", "USD")
	must(t, books, points.Credit, of("acme", golden(t, "order_paid")), billing.Credited)
	_, err := run(books, points.Reverse, of("another", refund))
	require.Equal(t, "order_not_seen", retry.Decide(err).Reason)
	must(t, books, points.Credit, of("another", golden(t, "order_paid")), billing.Credited)
	must(t, books, points.Reverse, of("another", refund), billing.Reversed)
	require.Equal(t, []int64{2250, 1125}, []int64{books.Balance("acme", user), books.Balance("another", user)})
	for id, fields := range books.All(ledger.Entries) {
		entry, err := ledger.Read(store.Document{Key: ledger.Key(id), Fields: fields})
		require.NoError(t, err)
		require.Equal(t, ledger.PeriodOf(noon), entry.Period)
	}
}
