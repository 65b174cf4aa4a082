package payments_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/payments"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

var noon = time.Date(2027, time.March, 1, 12, 0, 0, 0, time.UTC)

var (
	updates = catalog.Queue{ID: "updates", OrderingKey: []string{"subscription_id", "correlation_id"}}
	refunds = catalog.Queue{ID: "refunds", OrderingKey: []string{"payment_id"}}
)

// key is the gateway's key of paymentEvent.
var key = handler.CalleeKey("initiations", "default", "evt-1")

func answerOf(payment, status string) string {
	return fmt.Sprintf(
		`{"payment_id":%q,"subscription_id":"sub-1","amount":"9.99","currency":"EUR","status":%q}`, payment, status)
}

func paymentEvent(action string, payload contract.Payload) handler.Event {
	body := contract.Of(&contract.Envelope{
		ID: "evt-1", Action: action, CreatedAt: "2027-03-01T12:00:00Z", CorrelationID: "story-1", Payload: payload,
	})
	return handler.Event{
		Queue: "initiations", Tenant: "default", ID: "evt-1", Type: action, CorrelationID: "story-1",
		Attempt: 1, Body: body,
	}
}

var renewal = contract.Payload{
	SubscriptionID: "sub-1", CustomerID: "cus-1", UID: "u1", ProductID: "gold", Amount: "9.99",
	Currency: "EUR", Cycle: 3,
	PeriodStart: "2027-03-01T00:00:00Z", PeriodEnd: "2027-04-01T00:00:00Z",
}

func paymentsOf(d *bank) payments.Payments {
	return payments.Payments{Gateway: d, Updates: updates, Refunds: refunds}
}

func envelopes(t *testing.T, effect handler.Effect) (all []*contract.Envelope) {
	t.Helper()
	for _, e := range effect.Emit {
		envelope := filetest.Must(contract.As[*contract.Envelope](e.Body))(t)
		all = append(all, envelope)
	}
	return all
}

func requireVerdict(t *testing.T, err, means error) {
	t.Helper()
	require.Equal(t, retry.Decide(means), retry.Decide(err), "%v", err)
}

func TestAPaymentEmitsAnUpdateOfItsActionAndATrialsRefund(t *testing.T) {
	t.Parallel()
	type outcome struct{ action, payment, status, result string }
	outcomes := []outcome{
		{"renewal", "", "declined", payments.Declined}, {"trial", "pay-7", "declined", payments.Declined},
	}
	for _, action := range []string{"initial", "renewal", "upgrade", "downgrade", "trial"} {
		outcomes = append(outcomes, outcome{action, "pay-7", "succeeded", payments.Paid})
	}
	for _, test := range outcomes {
		answer := strings.Replace(answerOf(test.payment, test.status), "{", `{"fee":"0.30",`, 1)
		d, event := &bank{canned: true, answer: answer, known: answer}, paymentEvent(test.action, renewal)
		h := paymentsOf(d).Initiate()
		if test.action == "trial" {
			h = paymentsOf(d).Trial()
		}
		effect := filetest.Must(h.Do(t.Context(), event))(t)
		require.Equal(t, test.result, effect.Result)
		order := `{"event_id":"` + key + `","tenant":"default","source_event_id":"evt-1","action":"` + test.action +
			`","subscription_id":"sub-1","correlation_id":"story-1","created_at":"2027-03-01T12:00:00Z",` +
			`"payload":{"subscription_id":"sub-1","customer_id":"cus-1","uid":"u1","product_id":"gold",` +
			`"currency":"EUR","amount":"9.99",` +
			`"period_start":"2027-03-01T00:00:00Z","period_end":"2027-04-01T00:00:00Z","cycle":3}}`
		require.Equal(t, []string{key + " " + order}, d.orders)

		sent := renewal
		sent.EventID, sent.EventType, sent.PaymentID, sent.Status = "evt-1", test.action, test.payment, test.status
		want := []*contract.Envelope{
			{Action: test.action, CorrelationID: "story-1", IdempotencyKey: key, Payload: sent},
		}
		to := []string{"updates sub-1"}
		switch {
		case test.result == payments.Declined:
			want[0].Action = payments.ActionDeclined
		case test.action == "trial":
			to, want = append(to, "refunds pay-7"), append(want, &contract.Envelope{
				Action: "refund", CorrelationID: "story-1",
				IdempotencyKey: handler.CalleeKey("refunds", "default", key), Payload: contract.Payload{
					EventID: "evt-1", EventType: "trial", SubscriptionID: "sub-1", PaymentID: "pay-7", CustomerID: "cus-1",
					UID: "u1", Amount: "9.99", Currency: "EUR",
				},
			})
		}
		require.Equal(t, want, envelopes(t, effect))
		require.Equal(t, to, filetest.Map(effect.Emit, func(e handler.Emission) string {
			return e.To + " " + e.OrderingKey
		}))
		emitted := effect
		require.NoError(t, filetest.ErrorOf(lane.Emit(catalogtest.Shipped(), event, &emitted, noon)))

		found := filetest.Must(h.Reconcile(t.Context(), event))(t)
		require.True(t, found.Done)
		require.Equal(t, effect, found.Effect, "a reconciled payment has the effect of the first attempt")
		require.Equal(t, []string{key}, d.reconciled)
		plan := filetest.Must(h.Plan(t.Context(), event))(t)
		require.Equal(t, []handler.Call{d.Request(key, []byte(order))}, plan.Calls)
		require.Len(t, d.orders, 1, "a plan sends no order")
	}
}

func TestAPaymentWithoutASubscriptionIsNotMade(t *testing.T) {
	t.Parallel()
	d := &bank{canned: true, answer: `{"payment_id":"pay-7","status":"succeeded"}`}
	_, err := paymentsOf(d).Initiate().Do(t.Context(),
		paymentEvent("renewal", contract.Payload{Amount: "9.99", Currency: "EUR"}))
	requireVerdict(t, err, retry.Permanent("subscription_id_missing", nil))
	require.Empty(t, d.orders)
}

func TestAnUnclearAnswerOfTheGatewayIsRetried(t *testing.T) {
	t.Parallel()
	for reason, answers := range map[string][]string{
		"gateway_answer_unreadable": {
			``, `["succeeded"]`, `{"payment_id":7,"status":"succeeded"}`, `{"payment_id":"p","status":"succeeded"}{}`,
			`{"payment_id":"p","status":"declined","status":"succeeded"}`,
			`{"payment_id":"paid by Ada","status":"succeeded"}`,
			`{"payment_id":"` + strings.Repeat("p", 129) + `","status":"succeeded"}`,
		},
		"gateway_answer_unclear": {
			`null`, `{"status":"succeeded"}`, `{"payment_id":"p","status":"requires_action"}`,
		},
		"gateway_pending": {`{"payment_id":"p","status":"pending"}`},
	} {
		for _, answer := range answers {
			initiate := paymentsOf(&bank{canned: true, answer: answer, known: answer + " "}).Initiate()
			effect, err := initiate.Do(t.Context(), paymentEvent("renewal", renewal))
			requireVerdict(t, err, retry.Transient(reason, nil))
			require.Empty(t, effect.Emit, answer)
			found, err := initiate.Reconcile(t.Context(), paymentEvent("renewal", renewal))
			requireVerdict(t, err, retry.Transient(reason, nil))
			require.False(t, found.Done, answer)
			require.NotContains(t, err.Error(), "Ada")
		}
	}
}

// If the gateway has another order under the event's key, the payment is neither reported as made nor
// refunded: its outcome is unknown.
func TestAnAnswerOfAnotherOrderIsRetried(t *testing.T) {
	t.Parallel()
	ordered := renewal
	ordered.PaymentID = "pay-7"
	for name, replaced := range map[string][2]string{
		"its own order":        {"", ""},
		"another subscription": {`"sub-1"`, `"sub-2"`},
		"no subscription":      {`"subscription_id":"sub-1",`, ``},
		"another amount":       {"9.99", "19.99"},
		"no amount":            {`"amount":"9.99",`, ``},
		"another currency":     {"EUR", "USD"},
		"no currency":          {`"currency":"EUR",`, ``},
		"another payment":      {"pay-7", "pay-8"},
	} {
		for _, status := range []string{"succeeded", "declined"} {
			answer := strings.Replace(answerOf("pay-7", status), replaced[0], replaced[1], 1)
			h := paymentsOf(&bank{canned: true, answer: answer, known: answer}).Trial()
			effect, err := h.Do(t.Context(), paymentEvent("trial", ordered))
			found, unsettled := h.Reconcile(t.Context(), paymentEvent("trial", ordered))
			require.Equal(t, effect, found.Effect, name)
			require.Equal(t, name == "its own order", found.Done, name)
			if found.Done {
				require.NoError(t, err)
				require.Equal(t, "pay-7", envelopes(t, effect)[0].Payload.PaymentID,
					"the update names the ordered payment")
				continue
			}
			requireVerdict(t, err, retry.Transient("gateway_answer_of_another_order", nil))
			requireVerdict(t, unsettled, retry.Transient("gateway_answer_of_another_order", nil))
			require.Empty(t, effect, name)
		}
	}
}

func TestAPaymentThatIsUnknownToTheGatewayIsNotDone(t *testing.T) {
	t.Parallel()
	unknown := paymentsOf(&bank{canned: true}).Initiate()
	found, err := unknown.Reconcile(t.Context(), paymentEvent("renewal", renewal))
	require.NoError(t, err)
	require.False(t, found.Done, "the gateway has no such order")

	lost := paymentsOf(&bank{canned: true, err: errLost}).Initiate()
	require.ErrorIs(t, filetest.ErrorOf(lost.Do(t.Context(), paymentEvent("renewal", renewal))), errLost)
	found, err = lost.Reconcile(t.Context(), paymentEvent("renewal", renewal))
	require.ErrorIs(t, err, errLost)
	require.False(t, found.Done)
}

// At the end every message is delivered without faults until it has an answer.
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
			require.Equal(rt, means.Reason == "refund_under_way", means.Scope == retry.OtherEvent,
				"it waits for another message")
			switch {
			case err == nil:
				require.Contains(rt, []string{"", effect.Result}, answers[id],
					"the answer to a message does not change")
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
				continue // its record is final
			}
			b.does = rapid.SliceOfN(rapid.SampledFrom([]string{"succeed", "fail", "lose", "decline", "refuse"}), 0,
				2).Draw(rt, "gateway")
			db.FailBefore(rapid.IntRange(0, 1).Draw(rt, "commits that fail"))
			db.FailReads(rapid.SampledFrom([]int{0, 0, 1}).Draw(rt, "reads that fail"))
			if rapid.Bool().Draw(rt, "loses an answer of the store") {
				db.FailAfter(1)
			}
			if other := rapid.SampledFrom(ids).Draw(rt, "another"); answers[other] == "" {
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
		require.Equal(rt, b.refunded, refunded,
			"each payment was refunded for one message")
		for payment := range b.refunded {
			found := filetest.Must(payments.FindRefund(t.Context(), db, "default", payment))(rt)
			require.Equal(rt, payments.Refunded, found.State)
		}
	})
}
