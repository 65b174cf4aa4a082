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
	Recorded        = "recorded"         // it is stored, and the subscription service is notified
	AlreadyRecorded = "already_recorded" // it was stored before, and its idempotency record has expired
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

// Record stores the event and its billing period, and emits an envelope.v1 about it. A first try reads
// nothing; a further one emits nothing if the event is stored already.
func (s Subscriptions) Record(
	ctx context.Context, e handler.Event, in *contract.Payment,
) (handler.Effect, error) {
	action, ok := actions[e.Type]
	if !ok {
		return handler.Effect{}, retry.Permanent("event_type_unknown", nil)
	}
	sub, uid := in.Data.Subscription, e.Attributes[contract.AttrUID]
	if sub == nil {
		return handler.Effect{}, retry.Permanent("no_subscription", nil)
	}
	if e.Try > 0 {
		switch _, err := s.Store.Get(ctx, subscriptions.Key(e.Tenant, sub.ID, e.ID)); {
		case err == nil:
			return handler.Effect{Result: AlreadyRecorded}, nil
		case !errors.Is(err, store.ErrNotFound):
			return handler.Effect{}, retry.Outage("store_unavailable", err)
		}
	}
	kept := subscriptions.Event{
		Tenant: e.Tenant, EventID: e.ID, EventType: e.Type, Action: action, Subscription: sub.ID,
		Customer: sub.CustomerID, Product: sub.ProductID, Status: sub.Status, UID: uid, Cycle: sub.Cycle,
		OccurredAt: in.Timestamp, PeriodStart: sub.PeriodStart, PeriodEnd: sub.PeriodEnd, RecordedAt: s.Now(),
	}
	if sub.Total != "" {
		amount, err := parse(sub.Total, sub.Currency)
		if err != nil {
			return handler.Effect{}, err
		}
		kept.Amount, kept.Currency = &amount, sub.Currency
	}
	update := contract.Of(&contract.Envelope{
		Action: action, CorrelationID: sub.ID, IdempotencyKey: e.CalleeKey(),
		Payload: contract.Payload{
			EventID: e.ID, EventType: e.Type, SubscriptionID: sub.ID, CustomerID: sub.CustomerID, UID: uid,
			ProductID: sub.ProductID, Status: sub.Status, Currency: sub.Currency, Amount: sub.Total, Cycle: sub.Cycle,
			PeriodStart: sub.PeriodStart, PeriodEnd: sub.PeriodEnd, OccurredAt: in.Timestamp,
		},
	})
	writes := []store.Write{kept.Write()}
	if period, ok := usage.PeriodWrite(kept); ok {
		writes = append(writes, period)
	}
	key := update.OrderingKey(s.Updates.OrderingKey, nil)
	emit := []handler.Emission{{To: s.Updates.ID, OrderingKey: key, Body: update}}
	return handler.Effect{Writes: writes, Result: Recorded, Emit: emit}, nil
}
