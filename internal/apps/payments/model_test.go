package payments_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/apps/payments"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// TestNoHistoryRefundsAPaymentTwice draws histories of several messages about few payments, in
// which the gateway fails, declines, refuses and loses its answers, the store fails before and after
// its commits, and one message is delivered in the middle of another's commit. At the end every message is delivered without a fault until it has an answer.
func TestNoHistoryRefundsAPaymentTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		db, b := &storetest.Faults{Store: storetest.Open(t)}, newBank()
		h := refunding(db, b)
		attempts, answers := map[string]int{}, map[string]string{}
		event := func(id string) handler.Event {
			e := refundOf(id, "pay-"+id[:1], "")
			attempts[id]++
			e.Attempt = attempts[id]
			return e
		}
		take := func(id string) {
			effect, err := deliver(t.Context(), h, event(id))
			means := retry.Decide(err)
			require.Equal(rt, means.Reason == "refund_under_way", means.Scope == retry.OtherEvent, "it waits for another message")
			switch {
			case err == nil:
				require.Contains(rt, []string{"", effect.Result}, answers[id], "an answer stays, until the record is gone")
				answers[id] = effect.Result
			case means.Class.Terminal():
				if answers[id] == "" {
					answers[id] = means.Reason
				}
			}
			for payment, times := range b.refunded {
				require.Equal(rt, 1, times, payment)
			}
		}
		ids := []string{"a1", "a2", "a3", "b1", "b2"}
		for range rapid.IntRange(1, 25).Draw(rt, "deliveries") {
			id := rapid.SampledFrom(ids).Draw(rt, "message")
			if answers[id] != "" {
				continue // the record has it
			}
			b.does = rapid.SliceOfN(rapid.SampledFrom([]string{"succeed", "fail", "lose", "decline", "refuse"}), 0, 2).Draw(rt, "gateway")
			db.FailBefore(rapid.IntRange(0, 1).Draw(rt, "commits that fail"))
			db.FailReads(rapid.SampledFrom([]int{0, 0, 1}).Draw(rt, "reads that fail"))
			if rapid.Bool().Draw(rt, "loses an answer of the store") {
				db.FailAfter(1)
			}
			if other := rapid.SampledFrom(ids).Draw(rt, "another"); other != id && answers[other] == "" {
				db.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
					db.OnCommit = nil
					take(other)
					return do()
				}
			}
			take(id)
			db.OnCommit = nil
			db.FailBefore(0)
			db.FailAfter(0)
			db.FailReads(0)
		}
		b.does = nil
		for range 10 {
			for _, id := range ids {
				if answers[id] == "" {
					take(id)
				}
			}
		}
		refunded := map[string]int{}
		for _, id := range ids {
			require.NotEmpty(rt, answers[id], "every message has an answer")
			if answers[id] == "refunded" {
				refunded["pay-"+id[:1]]++
			}
		}
		require.Equal(rt, b.refunded, refunded, "each payment was refunded for one message, and the others were told so")
		for payment := range b.refunded {
			found, err := payments.FindRefund(t.Context(), db, "default", payment)
			require.NoError(rt, err)
			require.Equal(rt, payments.Refunded, found.State)
		}
	})
}
