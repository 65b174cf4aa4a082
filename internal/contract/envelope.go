package contract

// Actions of envelope.v1 that tell of a subscription (billing queues, section 4) and of its ends.
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
	ID string `json:"id" validate:"required,id"`
	// Action is the event type, such as initial, trial or renewal.
	Action string `json:"action" validate:"required,event_type"`
	// CorrelationID ties messages of one story together, such as a subscription's id.
	CorrelationID string `json:"correlation_id,omitempty" validate:"omitempty,id"`
	// IdempotencyKey names what the message was made from, such as a payment's event id.
	IdempotencyKey string `json:"idempotency_key,omitempty" validate:"omitempty,id"`
	// CreatedAt is RFC 3339.
	CreatedAt string `json:"created_at" validate:"required,timestamp"`
	// Attempts is how often the message was tried before it came here.
	Attempts int64 `json:"attempts" validate:"min=0,max=1000"`
	// MaxAttempts, if not 0, is how often the message may be tried, bounded by its queue.
	MaxAttempts int64   `json:"max_attempts,omitzero" validate:"min=0,max=1000"`
	Payload     Payload `json:"payload"`
}

// Payload is what an envelope is about; its shapes are declared in catalog/messages.yaml.
type Payload struct {
	// EventID and EventType are of the provider's event behind the message.
	EventID        string `json:"event_id,omitempty"`
	EventType      string `json:"event_type,omitempty"`
	SubscriptionID string `json:"subscription_id,omitempty"`
	PaymentID      string `json:"payment_id,omitempty"`
	OrderID        string `json:"order_id,omitempty"`
	CustomerID     string `json:"customer_id,omitempty"`
	UID            string `json:"uid,omitempty"`
	ProductID      string `json:"product_id,omitempty"`
	Status         string `json:"status,omitempty"`
	// Currency is ISO 4217; required where an amount is given. Neither is left out for its
	// value: an envelope may ask for money to be moved, and without an amount for all of it.
	Currency    string `json:"currency,omitempty"`
	Amount      string `json:"amount,omitempty"`
	PeriodStart string `json:"period_start,omitempty"`
	PeriodEnd   string `json:"period_end,omitempty"`
	// Cycle is which billing cycle a renewal is.
	Cycle int64 `json:"cycle,omitzero"`
	// PlanID and PreviousPlanID are of a change of plans.
	PlanID         string `json:"plan_id,omitempty"`
	PreviousPlanID string `json:"previous_plan_id,omitempty"`
	// Quantity of Meter is usage that is taken over; below 0 it corrects.
	Meter      string `json:"meter,omitempty"`
	Quantity   int64  `json:"quantity,omitzero"`
	OccurredAt string `json:"occurred_at,omitempty"`
}

// Event is the body of a message.v1 message (requirements: queue design, message format standard).
type Event struct {
	// ID is the idempotency key of the message.
	ID string `json:"id" validate:"required,id"`
	// Type is the event type, such as order.created.
	Type string `json:"type" validate:"required,event_type"`
	// Timestamp is RFC 3339.
	Timestamp string `json:"timestamp" validate:"required,timestamp"`
	// Version is that of the declaration of Data; several versions live side by side.
	Version int64 `json:"version" validate:"min=1,max=1000"`
	// Producer is the service that sends it.
	Producer string `json:"producer,omitempty" validate:"omitempty,code"`
	// CorrelationID ties messages of one story together, such as the request behind them.
	CorrelationID string `json:"correlation_id,omitempty" validate:"omitempty,id"`
	// Data is what is declared of type and version in catalog/messages.yaml.
	Data     any       `json:"data"`
	Metadata *Metadata `json:"metadata,omitempty"`
}

// Metadata is about a message's way.
type Metadata struct {
	// Attempt is which of the message's attempts the next one is, from 1 on.
	Attempt int64 `json:"attempt,omitzero" validate:"min=0,max=1000"`
	// MaxRetries, if not 0, is how often the message may be tried, bounded by its queue.
	MaxRetries       int64  `json:"max_retries,omitzero" validate:"min=0,max=1000"`
	FirstPublishedAt string `json:"first_published_at,omitempty" validate:"omitempty,timestamp"`
}
