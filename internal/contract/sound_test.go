package contract

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSoundNeverSaysYesWhereTheTagsSayNo draws bodies of good and bad parts, and asks both.
func TestSoundNeverSaysYesWhereTheTagsSayNo(t *testing.T) {
	t.Parallel()
	var yes, no int
	check := func(t *rapid.T) {
		// Mostly good, so that whole bodies are.
		pick := func(label, good string, bad ...string) string {
			if rapid.IntRange(0, 19).Draw(t, label+"?") > 0 {
				return good
			}
			return rapid.SampledFrom(append(bad, "", "a/b", "ilse@example.org", "\x00")).Draw(t, label)
		}
		amount := func(label string) string {
			return pick(label, "10.00", "10", "10.000", "-1.00", "1e2", "x", "92233720368547758.08")
		}
		m := &PayNow{
			EventID: pick("event id", "e1"), EventType: pick("type", OrderPaid, OrderRefunded, SubscriptionRenewed, TrialCanceled, "order paid", "other"),
			Timestamp: pick("time", "2026-01-01T00:00:00Z", "yesterday", "2026-13-01T00:00:00Z"),
		}
		if rapid.IntRange(0, 9).Draw(t, "order?") > 0 {
			order := &Order{
				ID: pick("order", "o1"), PrettyID: pick("pretty", "p1"), CustomerID: pick("customer", "c1"),
				Currency: pick("currency", "USD", "JPY", "XXQ", "usd"), Total: amount("total"),
			}
			for range rapid.IntRange(0, 3).Draw(t, "items") {
				order.Items = append(order.Items, Item{
					ProductID: pick("product", "x1"), Price: amount("price"),
					Quantity: rapid.SampledFrom([]int64{1, 2, 2, 1<<53 - 1, 1 << 53, 0, -1}).Draw(t, "quantity"),
				})
			}
			m.Data.Order = order
		}
		if rapid.Bool().Draw(t, "refund?") {
			m.Data.Refund = &Refund{ID: pick("refund", "r1"), Amount: amount("amount")}
		}
		if rapid.Bool().Draw(t, "subscription?") {
			m.EventType = pick("type", SubscriptionRenewed, TrialCanceled, OrderPaid)
			m.Data.Subscription = &Subscription{
				ID: pick("subscription", "s1"), CustomerID: pick("customer", "c1"), ProductID: pick("product", "x1"), CheckoutID: pick("checkout", "k1"),
				Status: pick("status", "active", "has left"), Currency: pick("currency", "USD", "JPY", "XXQ"), Total: amount("total"),
				Cycle:       rapid.SampledFrom([]int64{0, 1, 2, 2, 1_000_000, 1_000_001, -1}).Draw(t, "cycle"),
				PeriodStart: pick("start", "2026-01-01T00:00:00Z", "yesterday"), PeriodEnd: pick("end", "2026-02-01T00:00:00Z", "2026-02-30T00:00:00Z"),
			}
		}
		if m.sound() {
			yes++
			require.NoError(t, validate(m, ""))
		} else {
			no++
		}
	}
	// A short run draws few, and all of them may be wrong.
	for range 20 {
		if rapid.Check(t, check); yes > 0 && no > 0 {
			break
		}
	}
	require.Positive(t, yes)
	require.Positive(t, no)
}
