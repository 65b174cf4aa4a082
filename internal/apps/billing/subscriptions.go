package billing

import (
	"context"
	"errors"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/subscriptions"
	"billhook/internal/apps/usage"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// The results of a subscription's event.
const (
	Recorded        = "recorded"         // it is kept, and the subscription service is notified
	AlreadyRecorded = "already_recorded" // it was kept before, and its record was forgotten since
)

var actions = map[string]string{
	contract.SubscriptionActivated: contract.ActionInitial,
	contract.SubscriptionRenewed:   contract.ActionRenewal,
	contract.SubscriptionCanceled:  contract.ActionCancellation,
	contract.TrialActivated:        contract.ActionTrial,
	contract.TrialCompleted:        contract.ActionTrialCompleted,
	contract.TrialCanceled:         contract.ActionTrialCanceled,
}

// Subscriptions records the events of subscriptions and trials, and emits an update of each.
type Subscriptions struct {
	Store   store.Getter
	Updates catalog.Queue
	Now     func() time.Time
}

// Record keeps the payment event and the billing period that it tells, and emits an envelope.v1 about it. A
// first try reads nothing. Where the event's document is there already, nothing is emitted again.
func (s Subscriptions) Record(
	ctx context.Context, event handler.Event, body *contract.Payment,
) (handler.Effect, error) {
	action, ok := actions[event.Type]
	if !ok {
		return handler.Effect{}, retry.Permanent("event_type_unknown", nil)
	}
	subscription := body.Data.Subscription
	if subscription == nil {
		return handler.Effect{}, retry.Permanent("no_subscription", nil)
	}
	if event.Try > 0 {
		switch _, err := s.Store.Get(ctx, subscriptions.Key(event.Tenant, subscription.ID, event.ID)); {
		case err == nil:
			return handler.Effect{Result: AlreadyRecorded}, nil
		case !errors.Is(err, store.ErrNotFound):
			return handler.Effect{}, retry.Outage("store_unavailable", err)
		}
	}
	kept := subscriptions.Event{
		Tenant: event.Tenant, EventID: event.ID, EventType: event.Type, Action: action,
		Subscription: subscription.ID,
		Customer:     subscription.CustomerID, Product: subscription.ProductID, Status: subscription.Status,
		UID: event.Attributes[contract.AttrUID], Cycle: subscription.Cycle, OccurredAt: body.Timestamp,
		PeriodStart: subscription.PeriodStart, PeriodEnd: subscription.PeriodEnd, RecordedAt: s.Now(),
	}
	if subscription.Total != "" {
		amount, err := parse(subscription.Total, subscription.Currency)
		if err != nil {
			return handler.Effect{}, err
		}
		kept.Amount, kept.Currency = &amount, subscription.Currency
	}
	update := contract.Of(&contract.Envelope{
		Action: action, CorrelationID: subscription.ID, IdempotencyKey: event.CalleeKey(),
		Payload: contract.Payload{
			EventID: event.ID, EventType: event.Type, SubscriptionID: subscription.ID,
			CustomerID: subscription.CustomerID,
			UID:        event.Attributes[contract.AttrUID], ProductID: subscription.ProductID, Status: subscription.Status,
			Currency: subscription.Currency, Amount: subscription.Total, Cycle: subscription.Cycle,
			PeriodStart: subscription.PeriodStart, PeriodEnd: subscription.PeriodEnd, OccurredAt: body.Timestamp,
		},
	})
	writes := []store.Write{kept.Write()}
	if period, ok := usage.Tell(kept); ok {
		writes = append(writes, period)
	}
	return handler.Effect{
		Writes: writes, Result: Recorded,
		Emit: []handler.Emission{
			{To: s.Updates.ID, OrderingKey: update.OrderingKey(s.Updates.OrderingKey, nil), Body: update},
		},
	}, nil
}
