package billing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/apps/billing"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// getter answers every Get with the same.
type getter struct {
	err   error
	calls int
}

func (g *getter) Get(context.Context, store.Key) (store.Document, error) {
	g.calls++
	return store.Document{}, g.err
}

var updates = catalog.Queue{ID: "updates", OrderingKey: []string{"subscription_id", "correlation_id"}}

func subscriptionsOn(g store.Getter) billing.Subscriptions {
	return billing.Subscriptions{Store: g, Updates: updates, Now: func() time.Time { return noon.Add(1500 * time.Nanosecond) }}
}

func TestEachSubscriptionEventIsStoredAndEmitsAnUpdate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		action, correlation string
		// amount is in minor units; nil where there is none.
		amount any
	}{
		"subscription_activated": {"initial", "530217764480015001", int64(999)},
		"subscription_renewed":   {"renewal", "530217764480015001", int64(999)},
		"subscription_canceled":  {"cancellation", "530217764480015001", int64(999)},
		"trial_activated":        {"trial", "530217764480017001", nil},
		"trial_completed":        {"trial_completed", "530217764480017001", nil},
		"trial_canceled":         {"trial_canceled", "530217764480017001", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			event, g := golden(t, name), &getter{err: errors.New("not to be asked")}
			effect, err := handler.Typed(subscriptionsOn(g).Record)(t.Context(), event)
			require.NoError(t, err)
			require.Zero(t, g.calls, "a first try reads nothing")
			require.Equal(t, billing.Recorded, effect.Result)
			body := paynow(event.Body)
			about := body.Data.Subscription

			require.Len(t, effect.Writes, 2)
			write, period := effect.Writes[0], effect.Writes[1]
			require.Equal(t, store.OpCreate, period.Op)
			require.Equal(t, usage.PeriodsCollection, period.Key.Collection)
			require.Equal(t, about.ProductID, period.Fields["plan"])
			require.Equal(t, event.ID, period.Fields["event_id"])
			require.Equal(t, store.OpCreate, write.Op)
			require.Equal(t, subscriptions.Collection, write.Key.Collection)
			require.NoError(t, store.CheckWrites(effect.Writes))
			for field, want := range map[string]any{
				"event_id": event.ID, "event_type": event.Type, "action": test.action, "subscription_id": test.correlation,
				"customer_id": "530217764480019001", "product_id": about.ProductID, "uid": "u1", "status": about.Status, "cycle": about.Cycle,
				"occurred_at": body.Timestamp, "period_start": about.PeriodStart, "period_end": about.PeriodEnd, "recorded_at": noon.Add(time.Microsecond),
				"amount": test.amount,
			} {
				require.Equal(t, want, write.Fields[field], field)
			}
			_, priced := write.Fields["currency"]
			require.Equal(t, test.amount != nil, priced)

			require.Equal(t, []handler.Emission{{
				To: "updates", OrderingKey: test.correlation,
				Body: contract.Of(&contract.Envelope{
					Action: test.action, CorrelationID: test.correlation, IdempotencyKey: event.CalleeKey(),
					Payload: contract.Payload{
						EventID: event.ID, EventType: event.Type, SubscriptionID: test.correlation, CustomerID: "530217764480019001", UID: "u1",
						ProductID: about.ProductID, Status: about.Status, Currency: about.Currency, Amount: about.Total, Cycle: about.Cycle,
						PeriodStart: about.PeriodStart, PeriodEnd: about.PeriodEnd, OccurredAt: body.Timestamp,
					},
				}),
			}}, effect.Emit)
			_, err = lane.Emit(declared(), event, &effect, noon)
			require.NoError(t, err)
		})
	}
}

func TestAnAmountOfASubscriptionIsStoredInMinorUnits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		total, currency string
		want            any
		reason          string
	}{
		"three digits": {"1.234", "KWD", int64(1234), ""}, "nothing to pay": {"0.00", "USD", int64(0), ""}, "no price": {"", "EUR", nil, ""},
		"too large": {"92233720368547758.08", "USD", nil, "bad_amount"}, "less than nothing": {"-9.99", "EUR", nil, "bad_amount"},
		"no currency": {"9.99", "", nil, "bad_amount"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			event := golden(t, "subscription_renewed")
			about := paynow(event.Body).Data.Subscription
			about.Total, about.Currency = test.total, test.currency
			effect, err := handler.Typed(subscriptionsOn(nil).Record)(t.Context(), event)
			if test.reason != "" {
				requireVerdict(t, err, retry.Rejected, test.reason)
				require.Empty(t, effect.Emit)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, effect.Writes[0].Fields["amount"])
			require.Equal(t, test.total, envelopeOf(effect.Emit[0].Body).Payload.Amount)
		})
	}
}

func TestAnEventWithoutASubscriptionIsADeadLetter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		event  handler.Event
		reason string
	}{
		"another body":  {handler.Event{Type: contract.SubscriptionRenewed, Body: contract.Of(&contract.Envelope{})}, "unexpected_body"},
		"no body":       {handler.Event{Type: contract.SubscriptionRenewed, Body: contract.Body{}}, "unexpected_body"},
		"another type":  {handler.Event{Type: "order.paid", Body: contract.Of(&contract.PayNow{})}, "event_type_unknown"},
		"an empty data": {handler.Event{Type: contract.SubscriptionRenewed, Body: contract.Of(&contract.PayNow{})}, "no_subscription"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := handler.Typed(subscriptionsOn(nil).Record)(t.Context(), test.event)
			requireVerdict(t, err, retry.Rejected, test.reason)
		})
	}
}

func TestASecondTryEmitsNothingForWhatIsRecorded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		found  error
		result string
		reason string
	}{
		"it was":                  {nil, billing.AlreadyRecorded, ""},
		"it was not":              {store.ErrNotFound, billing.Recorded, ""},
		"nobody can say, for now": {errors.New("no answer"), "", "store_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			event := golden(t, "subscription_renewed")
			event.Try = 1
			effect, err := handler.Typed(subscriptionsOn(&getter{err: test.found}).Record)(t.Context(), event)
			if test.reason != "" {
				requireVerdict(t, err, retry.Unavailable, test.reason)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.result, effect.Result)
			told := len(effect.Emit) + len(effect.Writes)
			require.Equal(t, test.result == billing.Recorded, told > 0)
		})
	}
}

// TestEverySubscriptionEventThatIngestAcceptsCanBeEmitted: no body that keeps the rules of paynow.v1 makes
// an envelope that breaks those of envelope.v1, or a document that no store takes.
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
		times := rapid.SampledFrom([]string{"2026-03-02T10:15:00Z", "2026-03-02T10:15:00.123456789+05:30", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"})
		body := &contract.PayNow{
			EventID: id.Draw(t, "event"), EventType: rapid.SampledFrom(types).Draw(t, "type"), Timestamp: times.Draw(t, "at"),
			Data: contract.PayNowData{Subscription: &contract.Subscription{
				ID: id.Draw(t, "subscription"), CustomerID: maybe(id, "customer"), ProductID: maybe(id, "product"), CheckoutID: maybe(id, "checkout"),
				Status: maybe(code, "status"), Cycle: rapid.Int64Range(0, 1_000_000).Draw(t, "cycle"),
				PeriodStart: maybe(times, "from"), PeriodEnd: maybe(times, "to"),
			}},
		}
		priced := rapid.SampledFrom([][2]string{
			{"", ""}, {"", "EUR"}, {"9.99", "EUR"}, {"0.00", "USD"}, {"1500", "JPY"}, {"92233720368547758.07", "USD"}, {"92233720368547758.08", "USD"},
		}).Draw(t, "price")
		body.Data.Subscription.Total, body.Data.Subscription.Currency = priced[0], priced[1]
		uid := maybe(rapid.StringMatching(`[A-Za-z][A-Za-z0-9._:-]{0,127}`), "uid")
		attributes := contract.Attributes{OrderingKey: "k", EventID: body.EventID, EventType: body.EventType, UID: uid}
		if contract.Of(body).Validate() != nil || attributes.Validate() != nil {
			t.Skip("ingest does not take it")
		}
		event := eventOf(body, attributes.Map())
		event.Queue, event.Tenant = "events", dedupe.DefaultTenant
		effect, err := handler.Typed(subscriptionsOn(nil).Record)(context.Background(), event)
		require.NoError(t, err)
		_, err = lane.Emit(declared(), event, &effect, noon)
		require.NoError(t, err)
		require.NoError(t, store.CheckWrites(effect.Writes))
	})
}

// declared returns a catalog with the shipped contracts, and no queues.
var declared = sync.OnceValue(func() *catalog.Catalog {
	shipped, err := catalog.Load("")
	if err != nil {
		panic(err)
	}
	return &catalog.Catalog{Contracts: shipped.Contracts}
})
