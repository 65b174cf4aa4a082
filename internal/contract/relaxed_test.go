package contract_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pii"
)

// orderOf draws an order whose optional fields may break the contract as far as their shapes allow.
func orderOf(t *rapid.T) *contract.Order {
	amount := rapid.SampledFrom([]string{
		"", "0.00", "10.00", "10.0", "10", "1.000", "-5.00", "10000000000000.00", "10000000000000.01",
		"99999999999999999999.00",
	})
	order := &contract.Order{
		ID: "o1", CustomerID: "c1", Currency: rapid.SampledFrom([]string{"", "USD", "JPY", "KWD", "QQQ"}).Draw(t,
			"currency"),
		Total: amount.Draw(t, "total"),
	}
	for range rapid.IntRange(1, 4).Draw(t, "items") {
		order.Items = append(order.Items,
			contract.Item{ProductID: "p", Quantity: 1, Price: amount.Draw(t, "price")})
	}
	return order
}

// A wrong amount or currency of a refund is not cleared: without an amount all is refunded.
func TestRelaxingChangesNoAmountOfMoney(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		order := orderOf(t)
		was := *order
		was.Items = slices.Clone(order.Items)
		m := &contract.Payment{
			EventID: "e1", EventType: contract.OrderPaid, Timestamp: "2026-03-02T10:15:00Z",
			Data: contract.PaymentData{Order: order},
		}
		amount := rapid.SampledFrom([]string{"none", "", "5.00", "5", "5.0", "-5.00"}).Draw(t, "refunded amount")
		if amount != "none" {
			m.EventType, m.Data.Refund = contract.OrderRefunded, &contract.Refund{ID: "r1", Amount: amount}
		}
		valid := contract.Of(m).Validate() == nil
		dropped := contract.Of(m).Relax(nil)
		if amount != "none" {
			require.Equal(t, amount, m.Data.Refund.Amount)
			if amount != "" {
				require.Equal(t, was.Currency, order.Currency)
			}
			good := amount == "" || (amount == "5.00" && was.Currency == "USD") ||
				(amount == "5" && was.Currency == "JPY")
			require.Equal(t, good, contract.Of(m).Validate() == nil)
			return
		}
		require.NoError(t, contract.Of(m).Validate())
		require.Equal(t, valid, len(dropped) == 0, "a valid order is not changed")
		for i := range order.Items {
			require.Contains(t, []string{"", was.Items[i].Price}, order.Items[i].Price)
			require.Equal(t, was.Items[i].ProductID, order.Items[i].ProductID)
		}
		require.Contains(t, []string{"", was.Total}, order.Total)
		require.Contains(t, []string{"", was.Currency}, order.Currency)
		if was.Total != order.Total || was.Currency != order.Currency {
			require.Empty(t, order.Total)
			for _, item := range order.Items { // else the worker would take the sum of the prices for the total
				require.Empty(t, item.Price)
			}
		}
	})
}

func TestAmountOfAnEnvelopeIsNeverCleared(t *testing.T) {
	t.Parallel()
	body, err := contracts().Decode(contract.EnvelopeV1, []byte(`{"id":"e1","action":"refund",
		"created_at":"2026-03-02T10:15:00Z","max_attempts":5000,
		"payload":{"currency":"QQQ","amount":"5.0","cycle":-1}}`))
	require.NoError(t, err)
	require.Equal(t, pii.Dropped{
		{Path: "max_attempts", Rule: "max=1000"}, {Path: "payload.cycle", Rule: "min=0"},
	}, body.Relax(nil))
	m := filetest.Must(contract.As[*contract.Envelope](body))(t)
	require.Equal(t, []string{"5.0", "QQQ"}, []string{m.Payload.Amount, m.Payload.Currency})
	require.Error(t, body.Validate())
}

func TestEachCauseOfAnUnconfirmedPublishHasACode(t *testing.T) {
	t.Parallel()
	for code, err := range map[string]error{
		"unknown": nil, "topic_missing": contract.ErrTopicMissing, "grant_missing": contract.ErrPublishDenied,
		"broker_unavailable": contract.ErrBrokerDown,
		"quota":              contract.ErrBrokerQuota, "flow_control": contract.ErrPublisherFull,
		"key_held_up": contract.ErrKeyHeldUp,
	} {
		require.Equal(t, code, contract.PublishCause(err))
	}
}

func TestBodyIsFilledInByPaths(t *testing.T) {
	t.Parallel()
	set := declared(t, "filled")
	require.Nil(t, set.Typed(contract.MessageV1, "order.lost"))
	require.Nil(t, set.Typed("message.v9", "order.made"))
	c := set.Typed(contract.MessageV1, "order.made")
	require.ElementsMatch(t, []string{
		"id", "type", "timestamp", "version", "data.order_id", "data.pieces", "data.lines[].product_id",
	}, c.Required("order.made"))
	require.Contains(t, set.Typed(contract.PaymentV1, contract.OrderPaid).Required(contract.OrderPaid),
		"data.order.items")
	body := c.New("e1", "order.made", "2026-03-02T10:00:00Z")
	for i, part := range [][2]string{
		{"data.lines[].product_id", "p"},
		{"data.order_id", "o1"},
		{"data.gift", "true"},
		{"data.pieces", "7"},
		{"data.shop.shop_id", "s1"},
	} {
		slot, known := c.Slot(part[0])
		require.True(t, known)
		if i == 0 {
			body.Grow(slot, 2)
			body.Set(slot, 1, "p2")
		}
		body.Set(slot, 0, part[1])
	}
	_, known := c.Slot("data.note")
	require.False(t, known)
	require.NoError(t, body.Validate())
	text := filetest.Must(body.Append(nil))(t)
	require.JSONEq(t, `{"id":"e1","type":"order.made","timestamp":"2026-03-02T10:00:00Z","version":2,
		"data":{"order_id":"o1","gift":true,"pieces":7,
		"lines":[{"product_id":"p"},{"product_id":"p2"}],"shop":{"shop_id":"s1"}}}`, string(text))
}
