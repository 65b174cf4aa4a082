package webhook_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pii"
)

const shopOrderPath = "body.checkout.metadata.order_id"

// forOrder is the order, paid for one of the shop's that its metadata names.
func forOrder(t testing.TB, id string) []byte {
	t.Helper()
	return spoil(t, `"uid":"`+samples.UID+`"`, `"order_id":`+id+`,"uid":"`+samples.UID+`"`)
}

func TestTheShopsOrderIsTakenFromTheMetadataAndNeverReachesTheBody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ id, want string }{
		"a UUID":                    {`"0d0e7a5e-2f6f-4d53-9f0a-3a6d0f4c9b11"`, "0d0e7a5e-2f6f-4d53-9f0a-3a6d0f4c9b11"},
		"escaped where need not be": {`"\u0063art-7"`, "cart-7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			got := requireTaken(t, d, payNow(t, forOrder(t, test.id)), nil, "")
			require.Equal(t, test.want, got.Attributes["shop_order_id"])
			require.Equal(t, "502113004410990002", got.Attributes["order_id"], "the payment provider's own")
			require.Equal(t, samples.UID, got.Attributes["uid"])
			require.NotContains(t, string(got.Data), test.want)
			paid(t, got)
		})
	}
}

// The buyer has paid, whatever the shop wrote into the checkout.
func TestABadIdOfTheShopsOrderIsLeftOutAndTheOrderIsTaken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ id, rule, secret string }{
		"a number":          {`1007`, "id", "1007"},
		"an object":         {`{"id":"mette"}`, "id", "mette"},
		"an e-mail address": {`"mette.lindqvist@example.com"`, "id", "mette"},
		"a NUL":             {`"mette\u0000"`, "id", "mette"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			got := requireTaken(t, d, payNow(t, forOrder(t, test.id)), []string{shopOrderPath + ": " + test.rule}, test.secret)
			require.NotContains(t, got.Attributes, "shop_order_id")
			require.Equal(t, samples.UID, got.OrderingKey, "its neighbor in the metadata stays")
			require.Equal(t, "2000", got.Attributes["points"])
		})
	}
}

// What the metadata say is taken or left out by one rule: no second look refuses the buyer's order.
func TestNoIdOfTheShopsOrderRefusesAPaidOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		id := rapid.OneOf(
			rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,140}`), rapid.StringMatching(`[0-9]{1,24}`), rapid.StringMatching(`\+?[0-9]{2,4}[-. ][0-9]{3}[-. ][0-9]{4,7}`),
			rapid.StringMatching(`[A-Z]{2}[0-9]{2}[A-Z0-9]{10,30}`), rapid.StringMatching(`[0-9]{1,3}(\.[0-9]{1,3}){3}`), rapid.StringMatching(`[ -!#-\[\]-~]{0,20}`),
		).Draw(rt, "id")
		d := open(t, nil)
		w := d.send(payNow(t, forOrder(t, `"`+id+`"`)))
		require.Equal(rt, http.StatusAccepted, w.Code, "%s", w.Body)
		got := d.broker.all()[0].message.Attributes["shop_order_id"]
		require.True(rt, got == "" || got == id && pii.ID.Valid(id), got)
	})
}

func TestNothingElseNamesTheShopsOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from func(*catalog.Source)
		body []byte
	}{
		"a source without the key":  {func(s *catalog.Source) { s.OrderIDMetadataKey = "" }, forOrder(t, `"cart-7"`)},
		"a source with neither key": {func(s *catalog.Source) { s.OrderIDMetadataKey, s.UIDMetadataKey = "", "" }, forOrder(t, `"cart-7"`)},
		"an order that names none":  {func(*catalog.Source) {}, forOrder(t, `""`)},
		"a refund": {func(*catalog.Source) {}, []byte(`{"event_type":"ON_REFUND","event_id":"5","body":{"id":"6","order_id":"7","status":"completed","amount":500,"currency":"USD",` +
			`"customer":{"id":"502113004410990003"},"checkout":{"metadata":{"order_id":"cart-7"}}}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, source("paynow", test.from))
			got := requireTaken(t, d, payNow(t, test.body), nil, "cart-7")
			require.NotContains(t, got.Attributes, "shop_order_id")
		})
	}
}
