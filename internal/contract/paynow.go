package contract

// Event types of paynow.v1 that are handled, or whose rules go beyond their fields.
const (
	OrderPaid             = "order.paid"
	OrderRefunded         = "order.refunded"
	OrderChargeback       = "order.chargeback"
	OrderChargebackClosed = "order.chargeback_closed"
	SubscriptionActivated = "subscription.activated"
	SubscriptionRenewed   = "subscription.renewed"
	SubscriptionCanceled  = "subscription.canceled"
	TrialActivated        = "trial.activated"
	TrialCompleted        = "trial.completed"
	TrialCanceled         = "trial.canceled"
)

// PayNow is the body of a paynow.v1 message (requirements: PayNow contract, version 1.0). Amounts are decimal
// strings with exactly the digits of their currency. Total, currency and refund are new: a part is reversed
// by them.
type PayNow struct {
	// EventID is PayNow's own event id; the idempotency key.
	EventID string `json:"eventId" validate:"required,id"`
	// EventType is the queue contract's name of the type, such as order.paid.
	EventType string `json:"eventType" validate:"required,event_type"`
	// Timestamp is RFC 3339, from PayNow where the event has a time of its own.
	Timestamp string     `json:"timestamp" validate:"required,timestamp"`
	Data      PayNowData `json:"data"`
}

// PayNowData is what the event is about: IDs, codes, amounts and times, no people.
type PayNowData struct {
	Order *Order `json:"order,omitempty"`
	// Refund is never left out for its value: without it all of the order is given back.
	Refund       *Refund       `json:"refund,omitempty" pii:"strict"`
	Subscription *Subscription `json:"subscription,omitempty"`
}

// Order is the order an event is about.
type Order struct {
	ID         string `json:"id" validate:"required,id"`
	PrettyID   string `json:"prettyId,omitempty" validate:"omitempty,id"`
	CustomerID string `json:"customerId,omitempty" validate:"omitempty,id"`
	// Currency is ISO 4217; required where an amount is given.
	Currency string `json:"currency,omitempty" validate:"omitempty,currency"`
	// Total is what the order cost, taxes and discounts included.
	Total string `json:"total,omitempty" validate:"omitempty,amount=Currency"`
	Items []Item `json:"items,omitempty" validate:"omitempty,max=5000,dive"`
}

// Item is one line of an order.
type Item struct {
	ProductID string `json:"productId" validate:"required,id"`
	// Quantity is at most 2^53-1, the largest integer that every JSON reader keeps exact.
	Quantity int64 `json:"quantity" validate:"min=1,max=9007199254740991"`
	// Price is of one piece; the requirements' own example has prices without a currency.
	Price string `json:"price,omitempty" validate:"omitempty,order_price"`
}

// Refund is the refund an order.refunded event is about.
type Refund struct {
	ID string `json:"id,omitempty" validate:"omitempty,id"`
	// Amount is what was given back, in the order's currency; empty: all of it.
	Amount string `json:"amount,omitempty" validate:"omitempty,order_amount" pii:"strict"`
}

// Subscription is the subscription, or the trial, an event is about.
type Subscription struct {
	// ID is the subscription's own, and a trial's own.
	ID         string `json:"id" validate:"required,id"`
	CustomerID string `json:"customerId,omitempty" validate:"omitempty,id"`
	ProductID  string `json:"productId,omitempty" validate:"omitempty,id"`
	CheckoutID string `json:"checkoutId,omitempty" validate:"omitempty,id"`
	// Status is PayNow's word for it, such as active.
	Status string `json:"status,omitempty" validate:"omitempty,code"`
	// Currency is ISO 4217; required where a total is given.
	Currency string `json:"currency,omitempty" validate:"omitempty,currency"`
	// Total is what one cycle costs, taxes and discounts included.
	Total string `json:"total,omitempty" validate:"omitempty,amount=Currency"`
	// Cycle counts the billing cycles, the first being 1; 0 where there are none.
	Cycle int64 `json:"cycle,omitzero" validate:"min=0,max=1000000"`
	// PeriodStart and PeriodEnd bound what is paid for, or tried.
	PeriodStart string `json:"periodStart,omitempty" validate:"omitempty,timestamp"`
	PeriodEnd   string `json:"periodEnd,omitempty" validate:"omitempty,timestamp"`
}
