package payments_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/payments"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func refunding(db store.GetCommitter, gateway payments.Gateway) handler.Leased {
	return payments.Refunds{Gateway: gateway, Store: db, Now: func() time.Time { return noon }}.Leased()
}

func refundOf(id, payment, amount string) handler.Event {
	payload := contract.Payload{PaymentID: payment, SubscriptionID: "sub-1", Amount: amount}
	if amount != "" {
		payload.Currency = "EUR"
	}
	body := contract.Of(&contract.Envelope{
		ID: id, Action: "refund", CreatedAt: "2027-03-01T12:00:00Z", CorrelationID: "sub-1", Payload: payload,
	})
	return handler.Event{Queue: "refunds", Tenant: "default", ID: id, Type: "refund", Attempt: 1, Body: body}
}

func in(currency string, event handler.Event) handler.Event {
	envelope, _ := contract.As[*contract.Envelope](event.Body)
	envelope.Payload.Currency = currency
	return event
}

func deliver(ctx context.Context, h handler.Leased, event handler.Event) (handler.Effect, error) {
	if event.Attempt > 1 {
		if known, err := h.Reconcile(ctx, event); err != nil || known.Done {
			return known.Effect, err
		}
	}
	return h.Do(ctx, event)
}

func again(event handler.Event) handler.Event { event.Attempt++; return event }

func refundIn(t *testing.T, db store.Getter, payment string) payments.Refund {
	t.Helper()
	return filetest.Must(payments.FindRefund(t.Context(), db, "default", payment))(t)
}

// refundStep is a delivery, its outcome, and the refund of pay-1 after it: state, event and reason.
type refundStep struct {
	event  handler.Event
	result string
	want   error
	found  string
}

func TestAPaymentIsRefundedOnceForAnyNumberOfMessages(t *testing.T) {
	t.Parallel()
	of := func(id, amount string) handler.Event { return refundOf(id, "pay-1", amount) }
	queue, tenant := of("r-1", "9.99"), of("r-1", "9.99")
	queue.Queue, tenant.Tenant = "another", "another"
	declined, otherwise := retry.Permanent("refund_declined", nil), retry.Permanent("refunded_otherwise", nil)
	for name, test := range map[string]struct {
		bank            *bank
		orders, refunds int
		steps           []refundStep
	}{
		"events differ by queue, and payments by tenant": {newBank(), 2, 2, []refundStep{
			{of("r-1", "9.99"), "refunded", nil, "refunded r-1"},
			{again(of("r-1", "9.99")), "refunded", nil, "refunded r-1"},
			{of("r-2", "9.99"), "already_refunded", nil, "refunded r-1"},
			{again(of("r-2", "9.99")), "already_refunded", nil, "refunded r-1"},
			{of("r-3", "5.00"), "", otherwise, "refunded r-1"},
			{of("r-4", ""), "", otherwise, "refunded r-1"},
			{in("USD", of("r-7", "9.99")), "", otherwise, "refunded r-1"},
			{queue, "already_refunded", nil, "refunded r-1"},
			{tenant, "refunded", nil, "refunded r-1"},
		}},
		"the whole payment": {newBank(), 1, 1, []refundStep{
			{of("r-5", ""), "refunded", nil, "refunded r-5"},
			{of("r-6", ""), "already_refunded", nil, "refunded r-5"},
		}},
		"only another message requests a refused refund again": {newBank("fail", "decline"), 3, 1, []refundStep{
			{of("r-1", ""), "", errLost, "under_way r-1"},
			{again(of("r-1", "")), "", declined, "refused r-1 refund_declined"},
			{again(of("r-1", "")), "", declined, "refused r-1 refund_declined"},
			{of("r-2", ""), "refunded", nil, "refunded r-2"},
			{again(of("r-1", "")), "already_refunded", nil, "refunded r-2"},
		}},
		"a reserved refund keeps its amount": {newBank("fail"), 2, 1, []refundStep{
			{of("r-1", "9.99"), "", errLost, "under_way r-1"},
			{of("r-1", "99.90"), "", otherwise, "under_way r-1"},
			{again(of("r-1", "99.90")), "", otherwise, "under_way r-1"},
			{of("r-1", ""), "", otherwise, "under_way r-1"},
			{again(of("r-1", "")), "", otherwise, "under_way r-1"},
			{in("USD", of("r-1", "9.99")), "", otherwise, "under_way r-1"},
			{again(in("USD", of("r-1", "9.99"))), "", otherwise, "under_way r-1"},
			// another message waits, with any amount
			{of("r-2", "5.00"), "", retry.Missing("refund_under_way", nil), "under_way r-1"},
			{again(of("r-1", "9.99")), "refunded", nil, "refunded r-1"},
		}},
	} {
		db := storetest.Open(t)
		h := refunding(db, test.bank)
		for _, id := range []string{"pay-1", "no/id"} {
			_, err := payments.FindRefund(t.Context(), db, "default", id)
			require.ErrorIs(t, err, payments.ErrNoRefund)
		}
		for i, step := range test.steps {
			effect, err := deliver(t.Context(), h, step.event)
			require.Equal(t, retry.Decide(step.want), retry.Decide(err), "%s, %d", name, i)
			found := refundIn(t, db, "pay-1")
			now := strings.TrimSpace(string(found.State) + " " + found.EventID + " " + found.Reason)
			require.Equal(t, []string{step.result, step.found}, []string{effect.Result, now}, "%s, %d", name, i)
			if errors.Is(step.want, otherwise) {
				requireVerdict(t, filetest.ErrorOf(h.Plan(t.Context(), step.event)), otherwise)
			}
		}
		require.Len(t, test.bank.orders, test.orders, name)
		require.Equal(t, map[string]int{"pay-1": test.refunds}, test.bank.refunded, name)
		first, found := test.bank.made[test.steps[0].event.CalleeKey()], refundIn(t, db, "pay-1")
		require.Equal(t, []string{first.Amount, first.Currency, "sub-1"},
			[]string{found.Amount, found.Currency, found.SubscriptionID}, "the stored amount is the requested one")
		require.Equal(t, []time.Time{noon, noon}, []time.Time{found.ReservedAt, found.SettledAt})
		for state, n := range map[payments.State]int{payments.Refunded: test.refunds, payments.UnderWay: 0} {
			page, next := filetest.Both(payments.ListRefunds(t.Context(), db, state, store.Cursor{}, 10))(t)
			require.Empty(t, next)
			require.Len(t, page, n)
		}
	}
}

// A worker's request for r-1 reaches the gateway after another worker's request for it was refused, and while
// the outcome of r-2, which has the reservation, is unknown.
func TestALateAnswerToOneMessageDoesNotChangeTheRefundOfAnother(t *testing.T) {
	t.Parallel()
	for reason, forgets := range map[string]bool{"refund_declined": false, "two_phase_disagreement": true} {
		m, late := newMemory(), newBank("refuse", "lose")
		late.forgets = forgets
		h := refunding(m, late)
		late.before = func() {
			_, err := h.Do(t.Context(), refundOf("r-1", "pay-1", ""))
			requireVerdict(t, err, retry.Permanent("callee_refused_422", nil))
			require.ErrorIs(t, err, errRefused, "it has more detail than the stored reason")
			require.ErrorIs(t, filetest.ErrorOf(h.Do(t.Context(), refundOf("r-2", "pay-1", ""))), errLost)
		}
		_, err := h.Do(t.Context(), refundOf("r-1", "pay-1", ""))
		requireVerdict(t, err, retry.Permanent(reason, nil))
		require.Equal(t, []string{"under_way", "r-2"}, []string{m.state(), refundIn(t, m, "pay-1").EventID}, reason)
		effect := filetest.Must(deliver(t.Context(), h, again(refundOf("r-2", "pay-1", ""))))(t)
		require.Equal(t, "refunded", effect.Result)
	}
}

func TestAnAnswerOfAnotherOrderSettlesNoRefund(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		answerOf("pay-2", "succeeded"), answerOf("pay-2", "declined"),
		strings.Replace(answerOf("pay-1", "succeeded"), "sub-1", "sub-2", 1),
	} {
		db := storetest.Open(t)
		h := refunding(db, &bank{canned: true, answer: answer, known: answer})
		_, err := h.Do(t.Context(), refundOf("r-1", "pay-1", "9.99"))
		requireVerdict(t, err, retry.Transient("gateway_answer_of_another_order", nil))
		found, err := h.Reconcile(t.Context(), refundOf("r-1", "pay-1", "9.99"))
		require.False(t, found.Done)
		requireVerdict(t, err, retry.Transient("gateway_answer_of_another_order", nil))
		require.Equal(t, payments.UnderWay, refundIn(t, db, "pay-1").State)
	}
}

func TestARefundWithoutAPaymentIsADeadLetter(t *testing.T) {
	t.Parallel()
	db, d := storetest.Open(t), &bank{canned: true}
	h := refunding(db, d)
	_, err := h.Do(t.Context(), refundOf("r-1", "", ""))
	requireVerdict(t, err, retry.Permanent("payment_id_missing", nil))
	_, err = h.Do(t.Context(), handler.Event{Queue: "refunds", Tenant: "default", ID: "r-1"})
	requireVerdict(t, err, retry.Permanent("unexpected_body", nil))
	page, _ := filetest.Both(payments.ListRefunds(t.Context(), db, "", store.Cursor{}, 10))(t)
	require.Empty(t, page)
	require.Empty(t, d.orders)
}

// The store refuses each of the three commits.
func TestARepeatedlyFailedCommitHasAReason(t *testing.T) {
	t.Parallel()
	for want, fail := range map[error]func(m *memory) error{
		retry.Busy("contention", nil):          func(*memory) error { return store.ErrStale },
		retry.Outage("store_unavailable", nil): func(*memory) error { return errLost },
		retry.Permanent("effect_invalid", nil): func(*memory) error { return store.ErrInvalid },
		retry.Transient("refund_lost", nil): func(m *memory) error {
			delete(m.docs, refundKey)
			return store.ErrStale
		},
	} {
		for step, gateway := range map[string]*bank{
			"reserve": newBank(), "confirm": newBank(), "roll back": newBank("decline"),
		} {
			if step == "reserve" && retry.Decide(want).Reason == "refund_lost" {
				continue // there is no reservation yet
			}
			m := newMemory()
			db := &storetest.Faults{Store: m}
			db.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
				if step != "reserve" && m.state() == "" {
					return do()
				}
				return fail(m)
			}
			_, err := refunding(db, gateway).Do(t.Context(), refundOf("r-1", "pay-1", ""))
			require.Equal(t, retry.Decide(want), retry.Decide(err), step)
		}
	}
}

func TestNothingIsRefundedWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	db, b := &storetest.Faults{Store: storetest.Open(t)}, newBank()
	db.Down(true)
	_, err := refunding(db, b).Do(t.Context(), refundOf("r-1", "pay-1", ""))
	requireVerdict(t, err, retry.Outage("store_unavailable", nil))
	_, err = payments.FindRefund(t.Context(), db, "default", "pay-1")
	require.ErrorIs(t, err, storetest.ErrFault)
	require.Empty(t, b.orders)
}

func TestAnUnknownOutcomeKeepsTheReservationAndRepeatsTheSameOrder(t *testing.T) {
	t.Parallel()
	for _, unknown := range []error{
		errLost, retry.Down("gateway_down", nil), retry.Conflicting("key_reused", nil),
		retry.Unreadable("bad_answer", nil), retry.Transient("again", retry.Permanent("declined", nil)),
	} {
		m, d, event := newMemory(), &bank{canned: true, err: unknown}, refundOf("r-1", "pay-1", "9.99")
		_, err := refunding(m, d).Do(t.Context(), event)
		require.Equal(t, unknown, err)
		require.Equal(t, "under_way", m.state())
		require.Empty(t, d.reconciled, "a first attempt has no order to reconcile")
		d.err = nil
		require.Error(t, filetest.ErrorOf(refunding(m, d).Do(t.Context(), again(event))))
		order := event.CalleeKey() + ` {"event_id":"` + event.CalleeKey() +
			`","tenant":"default","source_event_id":"r-1","action":"refund","payment_id":"pay-1",` +
			`"subscription_id":"sub-1","correlation_id":"sub-1","amount":"9.99","currency":"EUR"}`
		require.Equal(t, []string{order, order}, d.orders)
		require.Equal(t, []string{event.CalleeKey()}, d.reconciled,
			"a further one reconciles before it repeats the order")
	}
}

func TestAnUnreadableDocumentIsRetriedAndNotTreatedAsAbsent(t *testing.T) {
	t.Parallel()
	want := retry.Transient("refund_unreadable", nil)
	for name, change := range map[string]func(fields map[string]any){
		"an unknown state": func(f map[string]any) { f["state"] = "gone" },
		"no event":         func(f map[string]any) { delete(f, "event_id") },
		"no fields":        func(f map[string]any) { clear(f) },
	} {
		m, b := newMemory(), newBank("decline")
		h, event := refunding(m, b), refundOf("r-1", "pay-1", "")
		requireVerdict(t, filetest.ErrorOf(h.Do(t.Context(), event)), retry.Permanent("refund_declined", nil))
		change(m.docs[refundKey].Fields)
		requireVerdict(t, filetest.ErrorOf(h.Do(t.Context(), event)), want)
		_, err := h.Reconcile(t.Context(), event)
		requireVerdict(t, err, want)
		requireVerdict(t, filetest.ErrorOf(h.Plan(t.Context(), event)), want)
		require.Error(t, filetest.ErrorOf(payments.FindRefund(t.Context(), m, "default", "pay-1")), name)
		require.Len(t, b.orders, 1, name)
	}
}

func TestAPlanHasTheReservationAndTheRequest(t *testing.T) {
	t.Parallel()
	m, b := newMemory(), newBank("fail", "decline")
	h, event := refunding(m, b), refundOf("r-1", "pay-1", "9.99")
	fresh := filetest.Must(h.Plan(t.Context(), event))(t)
	require.Len(t, fresh.Writes, 1, "the reservation")
	require.Equal(t, []string{"gateway", event.CalleeKey()}, []string{fresh.Calls[0].Target, fresh.Calls[0].ID})
	require.Empty(t, m.docs, "a plan writes nothing")

	require.ErrorIs(t, filetest.ErrorOf(h.Do(t.Context(), event)), errLost)
	reserved := filetest.Must(h.Plan(t.Context(), event))(t)
	require.Equal(t, handler.Plan{Calls: fresh.Calls}, reserved, "the refund is reserved already")
	_, err := h.Plan(t.Context(), refundOf("r-2", "pay-1", "9.99"))
	requireVerdict(t, err, retry.Missing("refund_under_way", nil))

	requireVerdict(t, filetest.ErrorOf(h.Do(t.Context(), event)), retry.Permanent("refund_declined", nil))
	requireVerdict(t, filetest.ErrorOf(h.Plan(t.Context(), event)), retry.Permanent("refund_declined", nil))
	require.NoError(t, filetest.ErrorOf(h.Do(t.Context(), refundOf("r-2", "pay-1", "9.99"))))
	done := filetest.Must(h.Plan(t.Context(), refundOf("r-2", "pay-1", "9.99")))(t)
	require.Equal(t, handler.Plan{Effect: handler.Effect{Result: "refunded"}}, done,
		"the refund is made already")
}
