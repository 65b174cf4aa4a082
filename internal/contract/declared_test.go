package contract_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pii"
)

// upgrades declares an upgrade with members that contract.Payload has not: a number, a boolean, and an object.
func upgrades(t *testing.T, more ...contract.Member) *contract.Set {
	t.Helper()
	set, err := contract.NewSet(contract.Formats, []contract.Declaration{
		{Format: contract.EnvelopeV1, Type: "#", Version: 1, Members: []contract.Member{{Name: "subscription_id", Shape: "id"}}},
		{Format: contract.EnvelopeV1, Type: "upgrade", Version: 1, Members: append([]contract.Member{
			{Name: "subscription_id", Shape: "id", Required: true},
			{Name: "seats", Shape: "integer 0..1000"},
			{Name: "prorated", Shape: "boolean"},
			{Name: "accepted", Shape: "boolean", Required: true},
			{Name: "invoice", Object: []contract.Member{
				{Name: "invoice_id", Shape: "id", Required: true}, {Name: "paid", Shape: "boolean"}, {Name: "amount", Shape: "amount"}, {Name: "currency", Shape: "currency"},
			}},
		}, more...)},
	})
	require.NoError(t, err)
	return set
}

const upgrade = `{"id":"u1","action":"upgrade","created_at":"2026-03-02T10:15:00Z","attempts":0,` +
	`"payload":{"subscription_id":"s1","seats":7,"prorated":true,"accepted":false,"invoice":{"invoice_id":"i1","paid":true,"amount":"9.99","currency":"EUR"}}}`

func TestMembersBeyondAHandlersTypeTravelOn(t *testing.T) {
	t.Parallel()
	set := upgrades(t)
	require.NoError(t, set.Takes(contract.EnvelopeV1, "upgrade", reflect.TypeFor[*contract.Envelope]()))
	require.NoError(t, set.Takes(contract.EnvelopeV1, "upgrade", reflect.TypeFor[contract.Payload]()))
	c, err := set.Find(contract.EnvelopeV1, []byte(upgrade))
	require.NoError(t, err)
	minimized, err := c.Projection().Append(nil, []byte(upgrade))
	require.NoError(t, err)
	require.JSONEq(t, upgrade, string(minimized), "it passes ingest")
	body, err := set.Decode(contract.EnvelopeV1, minimized)
	require.NoError(t, err)
	require.NoError(t, body.Validate())
	require.Equal(t, []any{"s1", "", int64(7), int64(0)}, []any{body.Text("subscription_id"), body.Text("seats"), body.Number("seats"), body.Number("subscription_id")})
	onTopic, err := body.Append(nil)
	require.NoError(t, err)
	require.JSONEq(t, upgrade, string(onTopic))

	posted, err := body.Post("key-1", "default")
	require.NoError(t, err)
	var sent struct{ Payload json.RawMessage }
	require.NoError(t, json.Unmarshal(posted, &sent))
	require.JSONEq(t, `{"subscription_id":"s1","seats":7,"prorated":true,"accepted":false,"invoice":{"invoice_id":"i1","paid":true,"amount":"9.99","currency":"EUR"}}`, string(sent.Payload))

	type invoice struct {
		InvoiceID string `json:"invoice_id"`
		Paid      bool   `json:"paid"`
	}
	type own struct {
		Seats    int64    `json:"seats"`
		Prorated bool     `json:"prorated"`
		Accepted *bool    `json:"accepted"`
		Invoice  *invoice `json:"invoice"`
	}
	require.NoError(t, set.Takes(contract.EnvelopeV1, "upgrade", reflect.TypeFor[own]()))
	taken, err := contract.As[own](body)
	require.NoError(t, err)
	require.Equal(t, own{7, true, new(bool), &invoice{"i1", true}}, taken)
	whole, err := contract.As[*contract.Envelope](body)
	require.NoError(t, err)
	require.Equal(t, "s1", whole.Payload.SubscriptionID)

	type wrong struct {
		Prorated string `json:"prorated"`
		Invoice  struct {
			InvoiceID int64 `json:"invoice_id"`
		} `json:"invoice"`
	}
	err = set.Takes(contract.EnvelopeV1, "upgrade", reflect.TypeFor[wrong]())
	require.ErrorContains(t, err, ".prorated is no string")
	require.ErrorContains(t, err, ".invoice.invoice_id is no int64")
}

// A payload whose members are bad, each with the path and rule that is said, and none of the value.
func TestBooleansAndObjectsAreHeldToTheirShapes(t *testing.T) {
	t.Parallel()
	set := upgrades(t)
	for _, test := range readBodies(t).Held {
		require.Equal(t, 1, strings.Count(upgrade, test.Old), test.What)
		bad := []byte(strings.Replace(upgrade, test.Old, test.With, 1))
		c, err := set.Find(contract.EnvelopeV1, bad)
		require.NoError(t, err)
		document, err := pii.Parse(bad)
		require.NoError(t, err)
		minimized, err := c.Projection().Exact(nil, document)
		if err == nil {
			body, decoded := set.Decode(contract.EnvelopeV1, minimized)
			require.NoError(t, decoded)
			err = body.Validate()
		}
		require.ErrorContains(t, err, test.Want, test.What)
		require.NotContains(t, strings.ToLower(err.Error()), "mette")
	}
	schemas, err := set.Schemas()
	require.NoError(t, err)
	require.Regexp(t, `"prorated":\s*{\s*"type":\s*"boolean"`, string(schemas["envelope.v1.json"]))
	require.Regexp(t, `"invoice":\s*{\s*"type":\s*"object"`, string(schemas["envelope.v1.json"]))
}

func TestWhatCannotBeDeclaredOfAnObjectIsSaid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		member contract.Member
		want   string
	}{
		"an object in an object": {contract.Member{Name: "a", Object: []contract.Member{{Name: "b", Object: []contract.Member{{Name: "c", Shape: "id"}}}}}, "a: an object has members of shapes alone"},
		"a list in an object":    {contract.Member{Name: "a", Object: []contract.Member{{Name: "b", List: []contract.Member{{Name: "c", Shape: "id"}}}}}, "a: an object has members of shapes alone"},
		"a boolean with bounds":  {contract.Member{Name: "a", Shape: "boolean 0..1"}, `"boolean 0..1" is not a shape`},
		"a text in an object":    {contract.Member{Name: "a", Object: []contract.Member{{Name: "b", Shape: "text"}}}, `a: b: "text" is not a shape`},
		"an amount alone in one": {contract.Member{Name: "a", Object: []contract.Member{{Name: "b", Shape: "amount"}}}, "a: b: an amount has its currency beside it"},
	} {
		_, err := contract.NewSet(contract.Formats, []contract.Declaration{{Format: contract.MessageV1, Type: "x.y", Version: 1, Members: []contract.Member{test.member}}})
		require.ErrorContains(t, err, test.want, name)
	}
}
