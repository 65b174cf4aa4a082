package billing_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

var updates = catalog.Queue{ID: "updates", OrderingKey: []string{"subscription_id", "correlation_id"}}

// record calls the handler. A first try reads nothing; a further one finds the event, or gets the error.
func record(event handler.Event, found error) (handler.Effect, error) {
	now := func() time.Time { return noon.Add(1500 * time.Nanosecond) }
	s := billing.Subscriptions{Store: getter{found}, Updates: updates, Now: now}
	return handler.Typed(s.Record)(context.Background(), event)
}

type getter struct{ err error }

func (g getter) Get(context.Context, store.Key) (store.Document, error) {
	return store.Document{}, g.err
}

func TestEachSubscriptionEventIsStoredAndEmitsAnUpdate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		golden, action string
		price          string // its total and currency; empty: the golden's
		amount         any    // in minor units; nil: none
	}{
		{"subscription_activated", "initial", "", int64(999)},
		{"subscription_renewed", "renewal", "", int64(999)},
		{"subscription_renewed", "renewal", "1.234 KWD", int64(1234)},
		{"subscription_renewed", "renewal", "0.00 USD", int64(0)},
		{"subscription_renewed", "renewal", " EUR", nil},
		{"subscription_canceled", "cancellation", "", int64(999)},
		{"trial_activated", "trial", "", nil},
		{"trial_completed", "trial_completed", "", nil},
		{"trial_canceled", "trial_canceled", "", nil},
	} {
		event, name := golden(t, test.golden), test.golden+" "+test.price
		body := as[*contract.Payment](event.Body)
		about := body.Data.Subscription
		if test.price != "" {
			about.Total, about.Currency, _ = strings.Cut(test.price, " ")
		}
		effect, err := record(event, errors.New("must not be read"))
		require.NoError(t, err, name)
		require.Equal(t, billing.Recorded, effect.Result, name)

		require.Len(t, effect.Writes, 2, name)
		require.NoError(t, store.CheckWrites(effect.Writes))
		write, period := effect.Writes[0], effect.Writes[1]
		require.Equal(t, []any{store.OpCreate, usage.PeriodsCollection, about.ProductID, event.ID},
			[]any{period.Op, period.Key.Collection, period.Fields["plan"], period.Fields["event_id"]}, name)
		at := []any{write.Op, write.Key.Collection}
		require.Equal(t, []any{store.OpCreate, subscriptions.Collection}, at, name)
		for field, want := range map[string]any{
			"event_id": event.ID, "event_type": event.Type, "action": test.action, "subscription_id": about.ID,
			"customer_id": "530217764480019001", "product_id": about.ProductID, "uid": "u1", "status": about.Status,
			"cycle": about.Cycle, "occurred_at": body.Timestamp, "period_start": about.PeriodStart,
			"period_end": about.PeriodEnd, "recorded_at": noon.Add(time.Microsecond), "amount": test.amount,
		} {
			require.Equal(t, want, write.Fields[field], name+" "+field)
		}
		_, priced := write.Fields["currency"]
		require.Equal(t, test.amount != nil, priced, name)

		update := contract.Of(&contract.Envelope{
			Action: test.action, CorrelationID: about.ID, IdempotencyKey: event.CalleeKey(),
			Payload: contract.Payload{
				EventID: event.ID, EventType: event.Type, SubscriptionID: about.ID,
				CustomerID: "530217764480019001", UID: "u1", ProductID: about.ProductID, Status: about.Status,
				Currency: about.Currency, Amount: about.Total, Cycle: about.Cycle,
				PeriodStart: about.PeriodStart, PeriodEnd: about.PeriodEnd, OccurredAt: body.Timestamp,
			},
		})
		emitted := []handler.Emission{{To: "updates", OrderingKey: about.ID, Body: update}}
		require.Equal(t, emitted, effect.Emit, name)
	}
}

func TestAnEventThatCannotBeRecordedIsADeadLetter(t *testing.T) {
	t.Parallel()
	renewed := func(data contract.PaymentData) handler.Event {
		return handler.Event{Type: contract.SubscriptionRenewed, Body: contract.Of(&contract.Payment{Data: data})}
	}
	priced := func(total, currency string) handler.Event {
		return renewed(contract.PaymentData{Subscription: &contract.Subscription{Total: total, Currency: currency}})
	}
	another := handler.Event{Type: contract.SubscriptionRenewed, Body: contract.Of(&contract.Envelope{})}
	for name, test := range map[string]struct {
		event  handler.Event
		reason string
	}{
		"a body of another contract": {another, "unexpected_body"},
		"no body":                    {handler.Event{Type: contract.SubscriptionRenewed}, "unexpected_body"},
		"another type":               {paid(""), "event_type_unknown"},
		"no subscription":            {renewed(contract.PaymentData{}), "no_subscription"},
		"a price that is too large":  {priced("92233720368547758.08", "USD"), "bad_amount"},
		"a negative price":           {priced("-9.99", "EUR"), "bad_amount"},
		"a price without a currency": {priced("9.99", ""), "bad_amount"},
	} {
		effect, err := record(test.event, nil)
		requireVerdict(t, retry.Permanent(test.reason, nil), err)
		require.Empty(t, effect, name)
	}
}

func TestASecondTryEmitsNothingForARecordedEvent(t *testing.T) {
	t.Parallel()
	event := golden(t, "subscription_renewed")
	event.Try = 1
	effect := filetest.Must(record(event, nil))(t)
	require.Equal(t, handler.Effect{Result: billing.AlreadyRecorded}, effect)
	effect = filetest.Must(record(event, store.ErrNotFound))(t)
	require.Equal(t, []any{billing.Recorded, 1, 2}, []any{effect.Result, len(effect.Emit), len(effect.Writes)})
	_, err := record(event, errors.New("no answer"))
	requireVerdict(t, retry.Outage("store_unavailable", nil), err)
}

// No valid body of payment.v1 makes an invalid envelope.v1, or an invalid document.
func TestEverySubscriptionEventThatIngestAcceptsCanBeEmitted(t *testing.T) {
	t.Parallel()
	types := []string{
		contract.SubscriptionActivated, contract.SubscriptionRenewed, contract.SubscriptionCanceled,
		contract.TrialActivated, contract.TrialCompleted, contract.TrialCanceled,
	}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`)
		code := rapid.StringMatching(`[A-Za-z][A-Za-z0-9._-]{0,63}`)
		maybe := func(g *rapid.Generator[string], name string) string {
			return rapid.OneOf(rapid.Just(""), g).Draw(t, name)
		}
		times := rapid.SampledFrom([]string{
			"2026-03-02T10:15:00Z", "2026-03-02T10:15:00.123456789+05:30", "0001-01-01T00:00:00Z",
			"9999-12-31T23:59:59Z",
		})
		body := &contract.Payment{
			EventID: id.Draw(t, "event"), EventType: rapid.SampledFrom(types).Draw(t, "type"),
			Timestamp: times.Draw(t, "at"),
			Data: contract.PaymentData{Subscription: &contract.Subscription{
				ID: id.Draw(t, "subscription"), CustomerID: maybe(id, "customer"), ProductID: maybe(id, "product"),
				CheckoutID: maybe(id, "checkout"), Status: maybe(code, "status"),
				Cycle:       rapid.Int64Range(0, 1_000_000).Draw(t, "cycle"),
				PeriodStart: maybe(times, "from"), PeriodEnd: maybe(times, "to"),
			}},
		}
		priced := prices.Draw(t, "price")
		body.Data.Subscription.Total, body.Data.Subscription.Currency = priced[0], priced[1]
		uid := maybe(rapid.StringMatching(`[A-Za-z][A-Za-z0-9._:-]{0,127}`), "uid")
		attributes := contract.Attributes{
			OrderingKey: "k", EventID: body.EventID, EventType: body.EventType, UID: uid,
		}
		if contract.Of(body).Validate() != nil || attributes.Validate() != nil {
			t.Skip("ingest refuses it")
		}
		event := eventOf(body, attributes.Map())
		event.Queue, event.Tenant = "events", dedupe.DefaultTenant
		effect := filetest.Must(record(event, nil))(t)
		require.NoError(t, filetest.ErrorOf(lane.Emit(declared, event, &effect, noon)))
		require.NoError(t, store.CheckWrites(effect.Writes))
	})
}

var (
	declared = catalogtest.Contracts()
	prices   = rapid.SampledFrom([][2]string{
		{"", ""},
		{"", "EUR"},
		{"9.99", "EUR"},
		{"0.00", "USD"},
		{"1500", "JPY"},
		{"92233720368547758.07", "USD"},
		{"92233720368547758.08", "USD"},
	})
)
