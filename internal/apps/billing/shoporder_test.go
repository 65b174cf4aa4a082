package billing_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/retry"
)

// forShop is the event of the golden order, which pays for an order of the shop.
func forShop(t *testing.T, id, shopOrder string) handler.Event {
	t.Helper()
	event := golden(t, "order_paid")
	event.Queue, event.ID, event.Attributes[contract.AttrShopOrderID] = "paynow-events", id, shopOrder
	return event
}

func TestAPaidOrderConfirmsTheOrderOfTheShopThatItNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		told      []string
		shopOrder string
		// there is the event that has credited the order before; empty: none has.
		there string
		try   int

		result string
		emits  int
	}{
		"a first try":                            {told: []string{"orders"}, shopOrder: "cart-7", result: billing.Credited, emits: 1},
		"where nobody takes it":                  {shopOrder: "cart-7", result: billing.Credited},
		"an order of nothing in the shop":        {told: []string{"orders"}, result: billing.Credited},
		"a second try, of what is not there":     {told: []string{"orders"}, shopOrder: "cart-7", try: 1, result: billing.Credited, emits: 1},
		"a second try, of what another has done": {told: []string{"orders"}, shopOrder: "cart-7", there: "e0", try: 1, result: billing.AlreadyCredited, emits: 1},
		"a second try, of what its own has done": {told: []string{"orders"}, shopOrder: "cart-7", there: "e1", try: 1, result: billing.Credited, emits: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := &ledgertest.Books{}
			points := pointsOn(books)
			if test.there != "" {
				must(t, books, points.Credit, forShop(t, test.there, ""), billing.Credited)
			}
			points.Orders = test.told
			event := forShop(t, "e1", test.shopOrder)
			event.Try = test.try
			effect, err := handler.Typed(points.Credit)(t.Context(), event)
			require.NoError(t, err)
			require.Equal(t, test.result, effect.Result)
			for n, emission := range effect.Emit {
				require.Equal(t, test.told[n], emission.To)
				require.Equal(t, "cart-7", emission.OrderingKey, "behind what else is told of the order")
				require.True(t, emission.Due.IsZero())
				m, err := contract.As[*contract.Event](emission.Body)
				require.NoError(t, err)
				require.Equal(t, "order.payment_confirmed", m.Type)
				require.Equal(t, fmt.Sprintf("{cart-7 %s}", order), fmt.Sprint(m.Data))
			}
			require.Len(t, effect.Emit, test.emits)
		})
	}
}

// An order that cannot be credited confirms nothing: its dead letter does, when it is replayed.
func TestAnOrderWithoutPointsConfirmsNothing(t *testing.T) {
	t.Parallel()
	books := &ledgertest.Books{}
	points := pointsOn(books)
	points.Products, points.Orders = shelf{}, []string{"orders"}
	effect, err := handler.Typed(points.Credit)(t.Context(), forShop(t, "e1", "cart-7"))
	require.Equal(t, "unknown_product", retry.Decide(err).Reason)
	require.Empty(t, effect)
	points.Products = goods
	effect, err = handler.Typed(points.Credit)(t.Context(), forShop(t, "e1", "cart-7"))
	require.NoError(t, err)
	require.Len(t, effect.Emit, 1)

	must(t, books, points.Credit, forShop(t, "e0", "cart-7"), billing.Credited)
	points.Products = shelf{"411486491630370501": {Points: 1}, "411486491630370502": {Points: 1}}
	event := forShop(t, "e1", "cart-7")
	event.Try = 1
	effect, err = handler.Typed(points.Credit)(t.Context(), event)
	require.Equal(t, "order_credited_differently", retry.Decide(err).Reason)
	require.Empty(t, effect)
}

// Whatever ingest accepts as an id can be emitted: no buyer loses points over it.
func TestEveryIDOfAShopOrderCanBeEmitted(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	books := &ledgertest.Books{}
	points := pointsOn(books)
	points.Orders = c.EmitsOf("points.credit")
	require.Len(t, points.Orders, 1)
	event := forShop(t, "e1", "")
	rapid.Check(t, func(rt *rapid.T) {
		id := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`), rapid.StringMatching(`[0-9]{1,24}`), rapid.Just("4111111111111111"), rapid.Just("203.0.113.77")).Draw(rt, "id")
		require.True(rt, pii.ID.Valid(id))
		event.Attributes[contract.AttrShopOrderID] = id
		effect, err := handler.Typed(points.Credit)(context.Background(), event)
		require.NoError(rt, err)
		emitted, err := lane.Emit(c, event, &effect, noon)
		require.NoError(rt, err)
		require.Equal(rt, []string{lane.ID(event, 0)}, handler.EmittedIDs(emitted.Messages))
	})
}
