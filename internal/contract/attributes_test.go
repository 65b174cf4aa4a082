package contract_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
)

func TestAttributesAgreeWithTheBodyThatTheyRepeat(t *testing.T) {
	t.Parallel()
	const rule = "agrees_with_body"
	disagrees := map[string]string{"order_paid order": rule, "renewal story": rule, "renewal uid": rule} // what only these bodies say
	for file, correlation := range map[string]string{
		"paynow.v1/order_paid": "530217764480012801", "paynow.v1/trial_activated": "530217764480017001", "envelope.v1/renewal": "530217764480015001",
	} {
		format, name, _ := strings.Cut(file, "/")
		m, err := contracts().Decode(format, goldenOf(t, format, name))
		require.NoError(t, err)
		a := m.Attributes()
		a.OrderingKey = "k"
		require.NoError(t, m.CheckAttributes(a.Map()))
		require.Equal(t, format, contracts().Detect(a.Map(), nil))
		require.Equal(t, []string{correlation, "530217764480019001"}, []string{a.CorrelationID, a.CustomerID})
		for change, rule := range map[string]string{
			"event_id=other": rule, "event_type=order.refunded": rule, "paynow_customer_id=other": "agrees_with_body",
			"contract=" + contract.MessageV1: rule, "event_id=": "required", "points=1.5": "number", "first_published_at=yesterday": "timestamp",
			"ordering_key=": "required", "uid=ilse@example.org": "uid", "order_id=other": disagrees[name+" order"], "correlation_id=other": disagrees[name+" story"],
			"uid=u1": disagrees[name+" uid"], "googclient_traceparent=00-1-2-01": "", "points=5": "",
		} {
			attribute, value, _ := strings.Cut(change, "=")
			attributes := a.Map()
			attributes[attribute] = value
			err := m.CheckAttributes(attributes)
			if rule == "" {
				require.NoError(t, err, change)
				continue
			}
			require.EqualError(t, err, "contract: attributes."+attribute+": "+rule, file)
		}
	}
}

// Every attribute, of any text: the schema takes what the rules take.
func TestTheAttributesSchemaAgreesWithTheRules(t *testing.T) {
	t.Parallel()
	schema := compile(t, "paynow.v1.attributes.json")
	names := append(slices.Sorted(maps.Keys(contract.AttributeRules)), "googclient_traceparent")
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.SampledFrom([]string{"", "unknown", "1000", "-1", "99999999999999999999", "three", "a/b", "now", "a\nb", "customer", contract.EnvelopeV1, "2026-03-02T10:15:00.123456789Z"}),
			rapid.StringMatching(`[A-Za-z0-9._:|@/ -]{0,66}|[a-z]{60,70}|[0-9a-z|]{120,135}|[0-9]{1,21}`),
		).Draw(t, "value")
		attributes := map[string]string{"event_id": "1", "event_type": "order.paid", "ordering_key": "u1"}
		attributes[rapid.SampledFrom(names).Draw(t, "name")] = value
		document := map[string]any{}
		for key, value := range attributes {
			if value != "" {
				document[key] = value
			}
		}
		byGo, bySchema := contract.AttributesOf(attributes).Validate(), schema.Validate(document)
		if attributes["contract"] != "" && bySchema != nil {
			return // the schema lists the contracts
		}
		require.Equal(t, byGo == nil, bySchema == nil, "%v: %v: %v", attributes, byGo, bySchema)
	})
}

func TestAttributesSurviveTheMapAndBack(t *testing.T) {
	t.Parallel()
	want := map[string]string{}
	for name := range contract.AttributeRules {
		want[name] = "of " + name
	}
	require.Len(t, want, reflect.TypeFor[contract.Attributes]().NumField())
	require.Equal(t, want, contract.AttributesOf(want).Map())
	require.Empty(t, (&contract.Attributes{}).Map())
}
