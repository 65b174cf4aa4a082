package webhook

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/money"
	"billhook/internal/pii"
)

// paynowTypes maps PayNow's event types to the contract's.
var paynowTypes = map[string]string{
	"ON_ORDER_COMPLETED":   contract.OrderPaid,
	"ON_REFUND":            contract.OrderRefunded,
	"ON_CHARGEBACK":        contract.OrderChargeback,
	"ON_CHARGEBACK_CLOSED": contract.OrderChargebackClosed,

	"ON_SUBSCRIPTION_ACTIVATED": contract.SubscriptionActivated,
	"ON_SUBSCRIPTION_RENEWED":   contract.SubscriptionRenewed,
	"ON_SUBSCRIPTION_CANCELED":  contract.SubscriptionCanceled,
	"ON_TRIAL_ACTIVATED":        contract.TrialActivated,
	"ON_TRIAL_COMPLETED":        contract.TrialCompleted,
	"ON_TRIAL_CANCELED":         contract.TrialCanceled,
}

// paynowEvent is what is left of PayNow's webhook after minimization.
type paynowEvent struct {
	EventType string `json:"event_type"`
	EventID   string `json:"event_id"`
	Body      struct {
		ID       string `json:"id"`
		OrderID  string `json:"order_id"`
		PrettyID string `json:"pretty_id"`
		Customer struct {
			ID string `json:"id"`
		} `json:"customer"`
		CustomerID        string `json:"customer_id"`
		Currency          string `json:"currency"`
		Status            string `json:"status"`
		TotalAmount       *int64 `json:"total_amount"`
		Amount            *int64 `json:"amount"`
		StoreRefundAmount *int64 `json:"store_refund_amount"`
		CompletedAt       string `json:"completed_at"`
		ChargebackAt      string `json:"chargeback_at"`
		ApprovedAt        string `json:"approved_at"`
		PendingAt         string `json:"pending_at"`
		CreatedAt         string `json:"created_at"`

		// Of subscriptions and trials.
		ProductID          string `json:"product_id"`
		CheckoutID         string `json:"checkout_id"`
		Cycle              int64  `json:"billing_cycle_sequence"`
		ActiveAt           string `json:"active_at"`
		CanceledAt         string `json:"canceled_at"`
		CurrentPeriodStart string `json:"current_period_start"`
		CurrentPeriodEnd   string `json:"current_period_end"`
		StartsAt           string `json:"starts_at"`
		EndsAt             string `json:"ends_at"`

		Checkout struct {
			// Metadata is an object with the one allowed key, or nothing.
			Metadata jsontext.Value `json:"metadata"`
		} `json:"checkout"`
		Lines []struct {
			ProductID string `json:"product_id"`
			Quantity  int64  `json:"quantity"`
			Price     *int64 `json:"price"`
		} `json:"lines"`
	} `json:"body"`
}

// payNow reads PayNow's webhooks.
type payNow struct {
	// head is enough to know whether any queue wants the event.
	head *pii.Projection
	full *pii.Projection
	now  func() time.Time
}

func newPayNow(source catalog.Source, now func() time.Time) (*payNow, error) {
	for eventType := range source.Events {
		if paynowTypes[eventType] == "" {
			return nil, fmt.Errorf("source %s: event type %s has no mapping into the contract", source.Name, eventType)
		}
	}
	rules := map[string]pii.Rule{
		"event_type": pii.Code, "event_id": pii.ID,
		"body.id": pii.ID, "body.order_id": pii.ID, "body.pretty_id": pii.ID,
		"body.customer.id": pii.ID, "body.customer_id": pii.ID,
		"body.currency": pii.Currency, "body.status": pii.Code,
		"body.total_amount": pii.Integer, "body.amount": pii.Integer, "body.store_refund_amount": pii.Integer,
		"body.completed_at": pii.Time, "body.chargeback_at": pii.Time, "body.approved_at": pii.Time,
		"body.pending_at": pii.Time, "body.created_at": pii.Time,
		"body.product_id": pii.ID, "body.checkout_id": pii.ID, "body.billing_cycle_sequence": pii.Integer,
		"body.active_at": pii.Time, "body.canceled_at": pii.Time, "body.starts_at": pii.Time, "body.ends_at": pii.Time,
		"body.current_period_start": pii.Time, "body.current_period_end": pii.Time,
		"body.lines[].product_id": pii.ID, "body.lines[].quantity": pii.Quantity, "body.lines[].price": pii.Integer,
	}
	if source.UIDMetadataKey != "" {
		rules["body."+source.UIDMetadataKey] = pii.UID
	}
	return &payNow{
		head: pii.NewProjection(map[string]pii.Rule{"event_type": pii.Code, "event_id": pii.ID}),
		full: pii.NewProjection(rules),
		now:  now,
	}, nil
}

// read minimizes the webhook, then maps what is left into the contract. Where no
// queue wants the event, event carries its id and ignored says why. The error is a
// *pii.Error or a *contract.Invalid.
func (p *payNow) read(scratch, body []byte, source catalog.Source) (event inbound, ignored string, err error) {
	minimized, err := p.full.Append(scratch, body)
	if err != nil {
		// An event that nobody wants may look as it likes: only its head is read.
		if head, headErr := p.head.Append(scratch, body); headErr == nil {
			var e paynowEvent
			if json.Unmarshal(head, &e) == nil && e.EventID != "" && e.EventType != "" && source.Events[e.EventType] == "" {
				return inbound{message: &contract.PayNow{EventID: e.EventID, EventType: e.EventType}, format: contract.PayNowV1}, "no_queue", nil
			}
		}
		return inbound{}, "", err
	}
	var e paynowEvent
	if err := json.Unmarshal(minimized, &e); err != nil {
		return inbound{}, "", &pii.Error{Malformed: true}
	}
	switch {
	case e.EventID == "":
		return inbound{}, "", broken("event_id", "required")
	case e.EventType == "":
		return inbound{}, "", broken("event_type", "required")
	}
	m := &contract.PayNow{EventID: e.EventID, EventType: paynowTypes[e.EventType]}
	event = inbound{message: m, format: contract.PayNowV1, queue: source.Events[e.EventType]}
	event.uid = onlyValue(e.Body.Checkout.Metadata)
	switch {
	case event.queue == "":
		m.EventType = e.EventType
		return event, "no_queue", nil
	case m.EventType == contract.OrderRefunded && (e.Body.Status == "canceled" || e.Body.Status == "failed"):
		return event, "refund_not_completed", nil
	}
	m.Timestamp = p.timestamp(&e)
	return event, "", e.fill(m)
}

// onlyValue is the text in a minimized object of at most one member, {"uid":"abc"},
// whose name has no colon and whose value nothing escaped.
func onlyValue(object jsontext.Value) string {
	if _, value, ok := bytes.Cut(object, []byte(`:"`)); ok {
		return string(bytes.TrimSuffix(value, []byte(`"}`)))
	}
	return ""
}

// timestamp is the event's own time, else that of its receipt.
func (p *payNow) timestamp(e *paynowEvent) string {
	b := &e.Body
	var own string
	switch paynowTypes[e.EventType] {
	case contract.OrderChargebackClosed: // which knows only when it was opened
	case contract.SubscriptionActivated:
		own = b.ActiveAt
	case contract.SubscriptionRenewed: // which has no time but that of what was paid for
		own = b.CurrentPeriodStart
	case contract.SubscriptionCanceled, contract.TrialCanceled:
		own = b.CanceledAt
	case contract.TrialActivated:
		own = b.StartsAt
	case contract.TrialCompleted:
		own = b.EndsAt
	default:
		own = cmp.Or(b.CompletedAt, b.ChargebackAt, b.ApprovedAt, b.PendingAt, b.CreatedAt)
	}
	if own == "" {
		return p.now().UTC().Format(time.RFC3339)
	}
	return own
}

// fill maps what the event is about.
func (e *paynowEvent) fill(m *contract.PayNow) error {
	if currency := e.Body.Currency; currency != "" {
		if _, ok := money.Exponent(currency); !ok {
			return broken("body.currency", "currency")
		}
	}
	switch m.EventType {
	case contract.SubscriptionActivated, contract.SubscriptionRenewed, contract.SubscriptionCanceled,
		contract.TrialActivated, contract.TrialCompleted, contract.TrialCanceled:
		return e.fillSubscription(m)
	default:
		return e.fillOrder(m)
	}
}

// fillSubscription maps the subscription, or the trial, which calls its period otherwise.
func (e *paynowEvent) fillSubscription(m *contract.PayNow) error {
	b := &e.Body
	total, err := amount("body.total_amount", b.TotalAmount, b.Currency)
	m.Data.Subscription = &contract.Subscription{
		ID: b.ID, CustomerID: cmp.Or(b.Customer.ID, b.CustomerID), ProductID: b.ProductID, CheckoutID: b.CheckoutID,
		Status: b.Status, Currency: b.Currency, Total: total, Cycle: b.Cycle,
		PeriodStart: cmp.Or(b.CurrentPeriodStart, b.StartsAt), PeriodEnd: cmp.Or(b.CurrentPeriodEnd, b.EndsAt),
	}
	return err
}

// fillOrder maps the order and the refund. The order's own event names itself; the
// others name their order.
func (e *paynowEvent) fillOrder(m *contract.PayNow) error {
	b := &e.Body
	order := &contract.Order{
		ID: b.OrderID, PrettyID: b.PrettyID, CustomerID: cmp.Or(b.Customer.ID, b.CustomerID), Currency: b.Currency,
	}
	m.Data.Order = order
	var err error
	switch m.EventType {
	case contract.OrderPaid:
		order.ID = b.ID
		if order.Total, err = amount("body.total_amount", b.TotalAmount, b.Currency); err != nil {
			return err
		}
		order.Items = make([]contract.Item, len(b.Lines))
		for i, line := range b.Lines {
			item := &order.Items[i]
			item.ProductID, item.Quantity = line.ProductID, line.Quantity
			// Lines mostly repeat their price.
			if i > 0 && line.Price != nil && b.Lines[i-1].Price != nil && *line.Price == *b.Lines[i-1].Price {
				item.Price = order.Items[i-1].Price
				continue
			}
			if item.Price, err = amount("body.lines[].price", line.Price, b.Currency); err != nil {
				return at(err, i)
			}
		}
	case contract.OrderRefunded:
		m.Data.Refund = &contract.Refund{ID: b.ID}
		// PayNow documents amount as the initial payment's and store_refund_amount as
		// the amount refunded: what was given back is the smaller of the two.
		refunded := b.Amount
		if s := b.StoreRefundAmount; s != nil && *s > 0 && (refunded == nil || *refunded <= 0 || *s < *refunded) {
			refunded = s
		}
		if m.Data.Refund.Amount, err = amount("body.amount", refunded, b.Currency); err != nil {
			return err
		}
	}
	return nil
}

// amount writes minor units as the contract's decimal string; none as an empty one.
func amount(path string, minor *int64, currency string) (string, error) {
	switch {
	case minor == nil:
		return "", nil
	case *minor < 0:
		return "", broken(path, "negative")
	case currency == "":
		return "", broken("body.currency", "required")
	}
	text, err := money.Format(*minor, currency)
	if err != nil {
		return "", broken("body.currency", "currency")
	}
	return text, nil
}

// at puts the line's index into the path of its violation.
func at(err error, line int) error {
	var invalid *contract.Invalid
	if errors.As(err, &invalid) {
		for i := range invalid.Violations {
			invalid.Violations[i].Path = strings.Replace(invalid.Violations[i].Path, "[]", "["+strconv.Itoa(line)+"]", 1)
		}
	}
	return err
}

func broken(path, rule string) error {
	return &contract.Invalid{Violations: []contract.Violation{{Path: path, Rule: rule}}}
}

// toPayNow rewrites the paths of the contract's violations into those of PayNow's
// body, which is what its sender knows.
var toPayNow = strings.NewReplacer(
	"data.order.items", "body.lines", "].productId", "].product_id", "data.order.customerId", "body.customer.id",
	"data.order.total", "body.total_amount", "data.order.prettyId", "body.pretty_id", "data.order.", "body.",
	"data.refund.", "body.", "data.subscription.customerId", "body.customer.id", "data.subscription.productId", "body.product_id",
	"data.subscription.checkoutId", "body.checkout_id", "data.subscription.total", "body.total_amount",
	"data.subscription.cycle", "body.billing_cycle_sequence", "data.subscription.", "body.", "eventId", "event_id", "eventType", "event_type",
)

func fromPayNow(eventType string, violations []contract.Violation) {
	for i, v := range violations {
		if v.Path == "data.order.id" && eventType != contract.OrderPaid {
			v.Path = "body.order_id"
		}
		violations[i].Path = toPayNow.Replace(v.Path)
	}
}
