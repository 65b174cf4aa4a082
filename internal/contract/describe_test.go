package contract_test

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
)

func TestEachContractHasAnIDAndASchemaOfItsOwn(t *testing.T) {
	t.Parallel()
	set, err := contract.NewSet(contract.Formats, []contract.Declaration{
		{Format: contract.MessageV1, Type: "order.created", Version: 1, Members: []contract.Member{{Name: "order_id", Shape: "id", Required: true}}},
		{Format: contract.MessageV1, Type: "order.created", Version: 2, Members: []contract.Member{{Name: "shop_id", Shape: "id", Required: true}}},
		{Format: contract.MessageV1, Type: "*.reverted", Version: 1, Members: []contract.Member{{Name: "reverts", Shape: "id", Required: true}}},
		{Format: contract.EnvelopeV1, Type: "#", Version: 1, Members: []contract.Member{{Name: "payment_id", Shape: "id"}}},
	})
	require.NoError(t, err)
	var ids []string
	for _, c := range set.All() {
		ids = append(ids, c.ID())
		found, ok := set.Contract(c.ID())
		require.True(t, ok)
		require.Same(t, c, found)
	}
	require.Equal(t, []string{"paynow.v1", "envelope.v1:#:1", "message.v1:order.created:1", "message.v1:order.created:2", "message.v1:*.reverted:1"}, ids)
	_, ok := set.Contract("message.v1:order.created:3")
	require.False(t, ok)
	require.Empty(t, (*contract.Set)(nil).All())

	for id, want := range map[string]struct {
		typeIs, content string
		member          string
	}{
		"message.v1:order.created:2": {`{"const":"order.created"}`, "data", "shop_id"},
		"message.v1:*.reverted:1":    {`{"pattern":"^[^.]+\\.reverted$"}`, "data", "reverts"},
	} {
		c, _ := set.Contract(id)
		text, err := set.Schema(c)
		require.NoError(t, err)
		var schema struct {
			Title      string                    `json:"title"`
			Properties map[string]map[string]any `json:"properties"`
		}
		require.NoError(t, json.Unmarshal(text, &schema))
		require.Equal(t, id, schema.Title)
		typeIs, err := json.Marshal(schema.Properties["type"])
		require.NoError(t, err)
		require.JSONEq(t, want.typeIs, string(typeIs))
		require.EqualValues(t, c.Version(), schema.Properties["version"]["const"])
		members := schema.Properties[want.content]["properties"].(map[string]any)
		require.Len(t, members, 1, "of this contract alone")
		require.Contains(t, members, want.member)
	}
	whole, _ := set.Contract(contract.PayNowV1)
	text, err := set.Schema(whole)
	require.NoError(t, err)
	require.Contains(t, string(text), `"eventType"`)
}
