package contract

// Event types of payment.v1 that have a handler, or rules beyond those of their fields.
const (
	OrderPaid             = "order.paid"
	OrderRefunded         = "order.refunded"
	OrderChargebackClosed = "order.chargeback_closed"
	SubscriptionActivated = "subscription.activated"
	SubscriptionRenewed   = "subscription.renewed"
	SubscriptionCanceled  = "subscription.canceled"
	TrialActivated        = "trial.activated"
	TrialCompleted        = "trial.completed"
	TrialCanceled         = "trial.canceled"
)

// Payment is the body of a payment.v1 message (requirements: PayNow contract, version 1.0). Amounts are
// decimal strings with exactly their currency's digits. Total, currency and refund are for partial refunds.
type Payment struct {
	// EventID is the provider's own event id; the idempotency key.
	EventID   string `json:"eventId" validate:"required,id"`
	EventType string `json:"eventType" validate:"required,event_type"`
	// Timestamp is RFC 3339: the provider's time of the event, if it sent one.
	Timestamp string      `json:"timestamp" validate:"required,timestamp"`
	Data      PaymentData `json:"data"`
}

// PaymentData has the event's content: IDs, codes, amounts and times, but no personal data.
type PaymentData struct {
	Order *Order `json:"order,omitempty"`
	// Refund is never dropped for a bad value: without it the whole order would be refunded.
	Refund       *Refund       `json:"refund,omitempty" pii:"strict"`
	Subscription *Subscription `json:"subscription,omitempty"`
}

// Order is the order that an event concerns.
type Order struct {
	ID         string `json:"id" validate:"required,id"`
	PrettyID   string `json:"prettyId,omitempty" validate:"omitempty,id"`
	CustomerID string `json:"customerId,omitempty" validate:"omitempty,id"`
	// Currency is ISO 4217; required where an amount is given.
	Currency string `json:"currency,omitempty" validate:"omitempty,currency"`
	// Total is the price of the order, including taxes and discounts.
	Total string `json:"total,omitempty" validate:"omitempty,amount=Currency"`
	Items []Item `json:"items,omitempty" validate:"omitempty,max=5000,dive"`
}

// Item is one line of an order.
type Item struct {
	ProductID string `json:"productId" validate:"required,id"`
	// Quantity is at most 2^53-1, the largest integer that every JSON reader keeps exact.
	Quantity int64 `json:"quantity" validate:"min=1,max=9007199254740991"`
	// Price is the price of one unit; the requirements' own example has prices without a currency.
	Price string `json:"price,omitempty" validate:"omitempty,order_price"`
}

// Refund is the refund that an order.refunded event reports.
type Refund struct {
	ID string `json:"id,omitempty" validate:"omitempty,id"`
	// Amount is the refunded amount, in the order's currency; empty: the whole order.
	Amount string `json:"amount,omitempty" validate:"omitempty,order_amount" pii:"strict"`
}

// Subscription is the subscription or trial that an event concerns.
type Subscription struct {
	ID         string `json:"id" validate:"required,id"`
	CustomerID string `json:"customerId,omitempty" validate:"omitempty,id"`
	ProductID  string `json:"productId,omitempty" validate:"omitempty,id"`
	CheckoutID string `json:"checkoutId,omitempty" validate:"omitempty,id"`
	Status     string `json:"status,omitempty" validate:"omitempty,code"`
	// Currency is ISO 4217; required where a total is given.
	Currency string `json:"currency,omitempty" validate:"omitempty,currency"`
	// Total is the price of one cycle, including taxes and discounts.
	Total string `json:"total,omitempty" validate:"omitempty,amount=Currency"`
	// Cycle is the number of the billing cycle, from 1 on; 0: there are no cycles.
	Cycle int64 `json:"cycle,omitzero" validate:"min=0,max=1000000"`
	// PeriodStart and PeriodEnd bound the paid period, or the trial.
	PeriodStart string `json:"periodStart,omitempty" validate:"omitempty,timestamp"`
	PeriodEnd   string `json:"periodEnd,omitempty" validate:"omitempty,timestamp"`
}

// Actions of envelope.v1 that concern a subscription or its end (billing queues, section 4).
const (
	ActionInitial        = "initial"
	ActionRenewal        = "renewal"
	ActionCancellation   = "cancellation"
	ActionTrial          = "trial"
	ActionTrialCompleted = "trial_completed"
	ActionTrialCanceled  = "trial_canceled"
)

// Envelope is the body of an envelope.v1 message (requirements: billing queues, section 4).
type Envelope struct {
	// ID is the idempotency key of the message.
	ID     string `json:"id" validate:"required,id"`
	Action string `json:"action" validate:"required,event_type"`
	// CorrelationID is shared by related messages, such as a subscription's id.
	CorrelationID string `json:"correlation_id,omitempty" validate:"omitempty,id"`
	// IdempotencyKey is the id of the message's source, such as a payment's event id.
	IdempotencyKey string `json:"idempotency_key,omitempty" validate:"omitempty,id"`
	// CreatedAt is RFC 3339.
	CreatedAt string `json:"created_at" validate:"required,timestamp"`
	// Attempts counts the attempts that were made before the message was sent here.
	Attempts int64 `json:"attempts" validate:"min=0,max=1000"`
	// MaxAttempts is the most attempts of this message, if not 0; its queue may allow fewer.
	MaxAttempts int64   `json:"max_attempts,omitzero" validate:"min=0,max=1000"`
	Payload     Payload `json:"payload"`
}

// Payload is the content of an envelope; catalog/messages.yaml declares its shapes.
type Payload struct {
	EventID        string `json:"event_id,omitempty"`
	EventType      string `json:"event_type,omitempty"`
	SubscriptionID string `json:"subscription_id,omitempty"`
	PaymentID      string `json:"payment_id,omitempty"`
	OrderID        string `json:"order_id,omitempty"`
	CustomerID     string `json:"customer_id,omitempty"`
	UID            string `json:"uid,omitempty"`
	ProductID      string `json:"product_id,omitempty"`
	Status         string `json:"status,omitempty"`
	// Currency is ISO 4217; required where an amount is given. Neither is dropped for a bad value: without an
	// amount, a requested payment would be for all.
	Currency       string `json:"currency,omitempty"`
	Amount         string `json:"amount,omitempty"`
	PeriodStart    string `json:"period_start,omitempty"`
	PeriodEnd      string `json:"period_end,omitempty"`
	Cycle          int64  `json:"cycle,omitzero"`
	PlanID         string `json:"plan_id,omitempty"`
	PreviousPlanID string `json:"previous_plan_id,omitempty"`
	// Quantity is reported usage of Meter; a negative one is a correction.
	Meter      string `json:"meter,omitempty"`
	Quantity   int64  `json:"quantity,omitzero"`
	OccurredAt string `json:"occurred_at,omitempty"`
}

// Event is the body of a message.v1 message (requirements: queue design, message format standard).
type Event struct {
	// ID is the idempotency key of the message.
	ID   string `json:"id" validate:"required,id"`
	Type string `json:"type" validate:"required,event_type"`
	// Timestamp is RFC 3339.
	Timestamp string `json:"timestamp" validate:"required,timestamp"`
	// Version is the version of Data's declaration; several versions are in use at once.
	Version  int64  `json:"version" validate:"min=1,max=1000"`
	Producer string `json:"producer,omitempty" validate:"omitempty,code"`
	// CorrelationID is shared by related messages, such as those of one request.
	CorrelationID string `json:"correlation_id,omitempty" validate:"omitempty,id"`
	// Data has the members that catalog/messages.yaml declares for the type and version.
	Data     any       `json:"data"`
	Metadata *Metadata `json:"metadata,omitempty"`
}

// Metadata counts a message's attempts.
type Metadata struct {
	// Attempt is the number of the next attempt, from 1 on.
	Attempt int64 `json:"attempt,omitzero" validate:"min=0,max=1000"`
	// MaxRetries is the most attempts of this message, if not 0; its queue may allow fewer.
	MaxRetries       int64  `json:"max_retries,omitzero" validate:"min=0,max=1000"`
	FirstPublishedAt string `json:"first_published_at,omitempty" validate:"omitempty,timestamp"`
}
