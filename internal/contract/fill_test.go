package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
)

func TestABodyIsFilledInByPaths(t *testing.T) {
	t.Parallel()
	members := []contract.Member{
		{Name: "order_id", Shape: "id", Required: true}, {Name: "gift", Shape: "boolean"}, {Name: "pieces", Shape: "integer 0..9", Required: true},
		{Name: "lines", List: []contract.Member{{Name: "product_id", Shape: "id", Required: true}}}, {Name: "shop", Object: []contract.Member{{Name: "shop_id", Shape: "id"}}},
	}
	set, err := contract.NewSet(contract.Formats, []contract.Declaration{
		{Format: contract.MessageV1, Type: "order.made", Version: 1, Members: members[:1]}, {Format: contract.MessageV1, Type: "order.made", Version: 2, Members: members},
	})
	require.NoError(t, err)
	require.Nil(t, set.Typed(contract.MessageV1, "order.lost"))
	require.Nil(t, set.Typed("message.v9", "order.made"))
	c := set.Typed(contract.MessageV1, "order.made")
	require.ElementsMatch(t, []string{"id", "type", "timestamp", "version", "data.order_id", "data.pieces", "data.lines[].product_id"}, c.Required("order.made"))
	require.Contains(t, set.Typed(contract.PayNowV1, contract.OrderPaid).Required(contract.OrderPaid), "data.order.items")
	body := c.New("e1", "order.made", "2026-03-02T10:00:00Z")
	for i, part := range [][2]string{{"data.lines[].product_id", "p"}, {"data.order_id", "o1"}, {"data.gift", "true"}, {"data.pieces", "7"}, {"data.shop.shop_id", "s1"}} {
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
	text, err := body.Append(nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"e1","type":"order.made","timestamp":"2026-03-02T10:00:00Z","version":2,"data":{"order_id":"o1","gift":true,"pieces":7,
		"lines":[{"product_id":"p"},{"product_id":"p2"}],"shop":{"shop_id":"s1"}}}`, string(text))
}
