// Package payments starts payments and refunds at the payment gateway: a payment once for each key of an
// event, a refund once for each payment. It owns the orders to the gateway, the meaning of its answers, and
// the events that follow. It does not know how the gateway is called, does not retry, and does not decide
// whether a payment is due.
package payments

import (
	"context"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// MaxAnswer is the largest answer of the gateway that is read, in bytes.
const MaxAnswer = 16 << 10

// Gateway is one of the gateway's services. It executes one order for each key, the CalleeKey of an event. It
// repeats its answer to a repeated order, and never executes an order that it has declined.
type Gateway interface {
	// Do sends an order, a JSON object, under a key. After an error marked retry.Permanent the order is not
	// executed, now or later; after any other the outcome is unknown.
	Do(ctx context.Context, key string, order []byte) (answer []byte, err error)
	// Reconcile requests the outcome of the order with a key. If the order is known, answer is Do's.
	Reconcile(ctx context.Context, key string) (answer []byte, known bool, err error)
	// Request returns the request that Do would make.
	Request(key string, order []byte) handler.Call
}

const (
	statusSucceeded = "succeeded"
	statusDeclined  = "declined"
	statusPending   = "pending"
)

// said has the members that are read from the gateway's answer.
type said struct {
	PaymentID      string `json:"payment_id"`
	SubscriptionID string `json:"subscription_id"`
	Amount         string `json:"amount"`
	Currency       string `json:"currency"`
	Status         string `json:"status"`
}

// about reports whether the answer is about the order. Members that the order left out may have any value.
func (s said) about(ordered contract.Payload) bool {
	agree := func(ordered, said string) bool { return ordered == "" || ordered == said }
	return agree(ordered.SubscriptionID, s.SubscriptionID) && agree(ordered.PaymentID, s.PaymentID) &&
		agree(ordered.Amount, s.Amount) && agree(ordered.Currency, s.Currency)
}

// read reads the gateway's answer to an order. After an error money may have moved: the next attempt
// reconciles. The error repeats nothing of the answer.
func read(answer []byte, ordered contract.Payload) (said, error) {
	var s said
	switch err := json.Unmarshal(answer, &s); {
	case err != nil, s.PaymentID != "" && !pii.ID.Valid(s.PaymentID):
		return said{}, retry.Transient("gateway_answer_unreadable", nil)
	case s.Status == statusPending:
		return said{}, retry.Transient("gateway_pending", nil)
	case s.Status != statusDeclined && (s.Status != statusSucceeded || s.PaymentID == ""):
		return said{}, retry.Transient("gateway_answer_unclear", nil)
	case !s.about(ordered):
		return said{}, retry.Transient("gateway_answer_of_another_order", nil)
	default:
		return s, nil
	}
}

// The results of a payment, as the event's record keeps them.
const (
	Paid     = "paid"     // the gateway has taken the money
	Declined = "declined" // the gateway has declined it; the subscription service is notified
)

// ActionDeclined is the action of the update about a declined payment, which a receiver that reads only the
// action must not mistake for a successful one. The payload's event_type has the payment's action.
const ActionDeclined = "payment_declined"

const actionRefund = "refund"

// Payments starts payments.
type Payments struct {
	Gateway Gateway
	Updates catalog.Queue
	Refunds catalog.Queue
}

type (
	envelope   = *contract.Envelope
	reconciled = handler.Reconciled
)

// Initiate returns the handler of initial payments, renewals, upgrades and downgrades.
func (p Payments) Initiate() handler.Leased { return p.leased(false) }

// Trial returns the handler of the payment that verifies a trial's card, and is refunded.
func (p Payments) Trial() handler.Leased { return p.leased(true) }

func (p Payments) leased(refunded bool) handler.Leased {
	effect := func(event handler.Event, body envelope, answer []byte) (handler.Effect, error) {
		s, err := read(answer, body.Payload)
		if err != nil {
			return handler.Effect{}, err
		}
		update := updateOf(event, body, s)
		effect := handler.Effect{Result: Declined, Emit: []handler.Emission{emission(p.Updates, update)}}
		if s.Status == statusSucceeded {
			effect.Result = Paid
			if refunded {
				effect.Emit = append(effect.Emit, p.refund(event, update))
			}
		}
		return effect, nil
	}
	order := func(event handler.Event, body envelope) ([]byte, error) {
		// Without it, the update could not be delivered once money has moved.
		if body.Payload.SubscriptionID == "" {
			return nil, retry.Permanent("subscription_id_missing", nil)
		}
		order, err := event.Body.Post(event.CalleeKey(), event.Tenant)
		if err != nil {
			return nil, retry.Permanent("body_not_encodable", nil)
		}
		return order, nil
	}
	return handler.Leased{
		Plan: handler.Typed(func(_ context.Context, event handler.Event, body envelope) (handler.Plan, error) {
			order, err := order(event, body)
			if err != nil {
				return handler.Plan{}, err
			}
			return handler.Plan{Calls: []handler.Call{p.Gateway.Request(event.CalleeKey(), order)}}, nil
		}),
		Do: handler.Typed(func(ctx context.Context, event handler.Event, body envelope) (handler.Effect, error) {
			order, err := order(event, body)
			if err != nil {
				return handler.Effect{}, err
			}
			answer, err := p.Gateway.Do(ctx, event.CalleeKey(), order)
			if err != nil {
				return handler.Effect{}, err
			}
			return effect(event, body, answer)
		}),
		Reconcile: handler.Typed(func(ctx context.Context, event handler.Event, body envelope) (
			r reconciled, _ error,
		) {
			answer, known, err := p.Gateway.Reconcile(ctx, event.CalleeKey())
			if err != nil || !known {
				return r, err
			}
			r.Effect, err = effect(event, body, answer)
			r.Done = err == nil
			return r, err
		}),
	}
}

func updateOf(event handler.Event, body envelope, s said) envelope {
	update := &contract.Envelope{
		Action: body.Action, CorrelationID: event.CorrelationID, IdempotencyKey: event.CalleeKey(),
		Payload: body.Payload,
	}
	if s.Status == statusDeclined {
		update.Action = ActionDeclined
	}
	about := &update.Payload
	about.EventID, about.EventType, about.Status = event.ID, event.Type, s.Status
	if s.PaymentID != "" {
		about.PaymentID = s.PaymentID
	}
	return update
}

// refund returns the full refund of a trial's payment, under its own key: billing-queues, section 7.1.
func (p Payments) refund(event handler.Event, update envelope) handler.Emission {
	paid := update.Payload
	return emission(p.Refunds, &contract.Envelope{
		Action: actionRefund, CorrelationID: update.CorrelationID,
		IdempotencyKey: handler.CalleeKey(p.Refunds.ID, event.Tenant, update.IdempotencyKey),
		Payload: contract.Payload{
			EventID: event.ID, EventType: paid.EventType, SubscriptionID: paid.SubscriptionID,
			PaymentID:  paid.PaymentID,
			CustomerID: paid.CustomerID, UID: paid.UID, Currency: paid.Currency, Amount: paid.Amount,
		},
	})
}

func emission(to catalog.Queue, envelope *contract.Envelope) handler.Emission {
	body := contract.Of(envelope)
	return handler.Emission{To: to.ID, OrderingKey: body.OrderingKey(to.OrderingKey, nil), Body: body}
}

// Register puts the handlers into the registry.
func Register(r *handler.Registry, payment, trial Payments, refund Refunds) {
	handler.RegisterLeased[envelope](r, "payments.initiate", payment.Initiate(), payment.Updates.ID)
	emits := []string{trial.Updates.ID, trial.Refunds.ID}
	handler.RegisterLeased[envelope](r, "payments.initiate_trial", trial.Trial(), emits...)
	handler.RegisterLeased[envelope](r, RefundHandler, refund.Leased())
}
