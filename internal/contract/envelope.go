package contract

// Envelope is the body of an envelope.v1 message (requirements: billing queues,
// section 4): what one billing service asks of, or tells, another.
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
	// Attempts is what the producer says; Billhook counts its own.
	Attempts int64 `json:"attempts" validate:"min=0,max=1000"`
	// MaxAttempts, if not 0, is how often the message may be tried, bounded by its queue.
	MaxAttempts int64   `json:"max_attempts,omitzero" validate:"min=0,max=1000"`
	Payload     Payload `json:"payload"`
}

// Payload is what an envelope is about: ids, codes, amounts and times, no people.
type Payload struct {
	// EventID and EventType are of the provider's event behind the message.
	EventID        string `json:"event_id,omitempty" validate:"omitempty,id"`
	EventType      string `json:"event_type,omitempty" validate:"omitempty,event_type"`
	SubscriptionID string `json:"subscription_id,omitempty" validate:"omitempty,id"`
	PaymentID      string `json:"payment_id,omitempty" validate:"omitempty,id"`
	OrderID        string `json:"order_id,omitempty" validate:"omitempty,id"`
	CustomerID     string `json:"customer_id,omitempty" validate:"omitempty,id"`
	UID            string `json:"uid,omitempty" validate:"omitempty,uid"`
	ProductID      string `json:"product_id,omitempty" validate:"omitempty,id"`
	Status         string `json:"status,omitempty" validate:"omitempty,code"`
	// Currency is ISO 4217; required where an amount is given. Neither is left out for its
	// value: an envelope may ask for money to be moved, and without an amount for all of it.
	Currency    string `json:"currency,omitempty" validate:"omitempty,currency" pii:"strict"`
	Amount      string `json:"amount,omitempty" validate:"omitempty,amount" pii:"strict"`
	PeriodStart string `json:"period_start,omitempty" validate:"omitempty,timestamp"`
	PeriodEnd   string `json:"period_end,omitempty" validate:"omitempty,timestamp"`
	// Cycle is which billing cycle a renewal is.
	Cycle      int64  `json:"cycle,omitzero" validate:"min=0,max=1000000"`
	OccurredAt string `json:"occurred_at,omitempty" validate:"omitempty,timestamp"`
}

// Validate reports every rule of envelope.v1 that the body breaks, as an *Invalid.
// Beyond the fields: an amount has a currency and exactly its digits.
func (m *Envelope) Validate() error { return validate(m, "") }

// Identity returns the idempotency key and the event type.
func (m *Envelope) Identity() (id, eventType string) { return m.ID, m.Action }

// Stamped is the envelope with its id and the time of its making, for an emission.
func (m *Envelope) Stamped(id, createdAt string) Body {
	stamped := *m
	stamped.ID, stamped.CreatedAt = id, createdAt
	return &stamped
}

// OrderingKey is the first of the named fields that the envelope has; empty if it has
// none of them. The names are those of the catalog's ordering_key.
func (m *Envelope) OrderingKey(fields []string) string {
	for _, name := range fields {
		var value string
		switch name {
		case "correlation_id":
			value = m.CorrelationID
		case "subscription_id":
			value = m.Payload.SubscriptionID
		case "payment_id":
			value = m.Payload.PaymentID
		case "order_id":
			value = m.Payload.OrderID
		case "customer_id":
			value = m.Payload.CustomerID
		case "uid":
			value = m.Payload.UID
		}
		if value != "" {
			return value
		}
	}
	return ""
}
