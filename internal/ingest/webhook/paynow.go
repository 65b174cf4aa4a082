package webhook

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/money"
	"billhook/internal/pii"
)

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

var paynowRules = map[string]pii.Rule{
	"id": pii.ID, "order_id": pii.ID, "pretty_id": pii.ID, "customer.id": pii.ID, "customer_id": pii.ID, "product_id": pii.ID, "checkout_id": pii.ID,
	"status": pii.Code, "currency": pii.Currency, "billing_cycle_sequence": pii.Integer,
	"amount": pii.Integer, "store_refund_amount": pii.Integer, "total_amount": pii.Integer,
	"lines[].product_id": pii.ID, "lines[].quantity": pii.Quantity, "lines[].price": pii.Integer,
	"completed_at": pii.Time, "created_at": pii.Time, "approved_at": pii.Time, "pending_at": pii.Time, "chargeback_at": pii.Time, "active_at": pii.Time,
	"canceled_at": pii.Time, "starts_at": pii.Time, "ends_at": pii.Time, "current_period_start": pii.Time, "current_period_end": pii.Time,
}

// fields are members of PayNow's body: a bad value refuses the webhook where its effect needs the member, and
// is left out, counted and reported where it does not. at is the event's own time.
type fields struct {
	needs, takes string
	at           func(b *paynowBody) string
}

const (
	ofBuyer        = "customer.id customer_id "
	ofOrder        = ofBuyer + "pretty_id currency "
	ofTrial        = ofBuyer + "product_id checkout_id status "
	ofSubscription = ofTrial + "currency total_amount billing_cycle_sequence current_period_start current_period_end "
)

// paynowFields are what is read of each type of event. An order is credited by its lines, and its cost is
// only for refunds. A refund without an amount is of the whole order. An account stands in three places;
// without one the event has no ordering key.
var paynowFields = func() map[string]fields {
	last := func(b *paynowBody) string {
		return cmp.Or(b.CompletedAt, b.ChargebackAt, b.ApprovedAt, b.PendingAt, b.CreatedAt)
	}
	canceled := func(b *paynowBody) string { return b.CanceledAt }
	return map[string]fields{
		contract.OrderPaid:       {"id lines[].product_id lines[].quantity", ofOrder + "total_amount lines[].price completed_at created_at", last},
		contract.OrderRefunded:   {"order_id amount store_refund_amount status", ofOrder + "id completed_at approved_at pending_at created_at", last},
		contract.OrderChargeback: {"order_id", ofOrder + "completed_at chargeback_at created_at", last},
		// It knows only when the chargeback was opened.
		contract.OrderChargebackClosed: {"order_id", ofOrder, func(*paynowBody) string { return "" }},
		contract.SubscriptionActivated: {"id", ofSubscription + "active_at", func(b *paynowBody) string { return b.ActiveAt }},
		// Its only time is that of what was paid for.
		contract.SubscriptionRenewed:  {"id", ofSubscription, func(b *paynowBody) string { return b.CurrentPeriodStart }},
		contract.SubscriptionCanceled: {"id", ofSubscription + "canceled_at", canceled},
		contract.TrialActivated:       {"id", ofTrial + "starts_at ends_at", func(b *paynowBody) string { return b.StartsAt }},
		contract.TrialCompleted:       {"id", ofTrial + "starts_at ends_at", func(b *paynowBody) string { return b.EndsAt }},
		contract.TrialCanceled:        {"id", ofTrial + "starts_at ends_at canceled_at", canceled},
	}
}()

type paynowBody struct {
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
		// Metadata is an object with the allowed keys, or nothing.
		Metadata jsontext.Value `json:"metadata"`
	} `json:"checkout"`
	Lines []struct {
		ProductID string `json:"product_id"`
		Quantity  int64  `json:"quantity"`
		Price     *int64 `json:"price"`
	} `json:"lines"`
}

type payNow struct {
	// head is enough to know whether any queue wants the event.
	head *pii.Projection
	// bodies are what is read of the event, by the contract's name of its type.
	bodies map[string]*pii.Projection
	now    func() time.Time
}

func newPayNow(source catalog.Source, now func() time.Time) (*payNow, error) {
	p := &payNow{
		head: pii.NewProjection(map[string]pii.Rule{"event_type": pii.Code, "event_id": pii.ID}), bodies: map[string]*pii.Projection{}, now: now,
	}
	for eventType := range source.Events {
		mapped := paynowTypes[eventType]
		if mapped == "" {
			return nil, fmt.Errorf("source %s: event type %s has no mapping into the contract", source.Name, eventType)
		}
		of, rules := paynowFields[mapped], map[string]pii.Rule{}
		optional := strings.Fields(of.takes)
		for i, name := range optional {
			optional[i] = "body." + name
		}
		for name := range strings.FieldsSeq(of.needs + " " + of.takes) {
			rules["body."+name] = paynowRules[name]
		}
		if source.UIDMetadataKey != "" {
			path := "body." + source.UIDMetadataKey
			rules[path] = pii.UID
			optional = append(optional, path)
		}
		if source.OrderIDMetadataKey != "" && mapped == contract.OrderPaid {
			path := "body." + source.OrderIDMetadataKey
			rules[path] = pii.ID
			optional = append(optional, path)
		}
		p.bodies[mapped] = pii.NewProjection(rules, optional...)
	}
	return p, nil
}

// read minimizes the webhook, then maps what is left into the contract. Of an event that no queue wants only
// the head is read. The error is a *pii.Error or a *contract.Invalid.
func (p *payNow) read(scratch []byte, source catalog.Source, event *event, o *outcome) error {
	document, err := pii.Parse(event.raw)
	if err != nil {
		return err
	}
	minimized, _, err := p.head.Minimize(scratch, document)
	if err != nil {
		return err
	}
	id, eventType := text(minimized, `"event_id":"`), text(minimized, `"event_type":"`)
	switch {
	case len(id) == 0:
		return contract.Broken("event_id", "required")
	case len(eventType) == 0:
		return contract.Broken("event_type", "required")
	}
	m := &contract.PayNow{EventID: string(id)}
	event.body, event.route = contract.Of(m), source.Events[string(eventType)]
	if event.route == "" {
		m.EventType = string(eventType)
		o.ignore("no_queue")
		return nil
	}
	m.EventType = paynowTypes[string(eventType)]
	minimized, o.dropped, err = p.bodies[m.EventType].Minimize(scratch, document)
	if err != nil {
		return err
	}
	var e struct {
		Body paynowBody `json:"body"`
	}
	if err := json.Unmarshal(minimized, &e); err != nil {
		return &pii.Error{Malformed: true}
	}
	if m.EventType == contract.OrderRefunded && (e.Body.Status == "canceled" || e.Body.Status == "failed") {
		o.ignore("refund_not_completed")
		return nil
	}
	event.uid = metadata(e.Body.Checkout.Metadata, source.UIDMetadataKey)
	event.shopOrder = metadata(e.Body.Checkout.Metadata, source.OrderIDMetadataKey)
	if m.Timestamp = paynowFields[m.EventType].at(&e.Body); m.Timestamp == "" {
		m.Timestamp = p.now().UTC().Format(time.RFC3339)
	}
	f := filling{&e.Body, o.dropped}
	err = f.fill(m)
	o.dropped = f.Dropped
	return err
}

// text is what stands behind a name in a minimized object, whose values nothing escaped.
func text(object []byte, name string) []byte {
	_, value, _ := bytes.Cut(object, []byte(name))
	value, _, _ = bytes.Cut(value, []byte{'"'})
	return value
}

// metadata is the text in a minimized object of the member that the path ends with.
func metadata(object jsontext.Value, path string) string {
	return string(text(object, `"`+path[strings.LastIndexByte(path, '.')+1:]+`":"`))
}

type filling struct {
	*paynowBody
	pii.Dropped
}

func (f *filling) fill(m *contract.PayNow) error {
	switch m.EventType {
	case contract.SubscriptionActivated, contract.SubscriptionRenewed, contract.SubscriptionCanceled,
		contract.TrialActivated, contract.TrialCompleted, contract.TrialCanceled:
		f.currencyOrNone()
		m.Data.Subscription = f.subscription()
		return nil
	case contract.OrderRefunded:
		return f.refund(m)
	}
	f.currencyOrNone()
	m.Data.Order = f.order(f.OrderID)
	if m.EventType == contract.OrderPaid {
		m.Data.Order = f.order(f.ID) // the order's own event names itself
		f.cost(m.Data.Order)
	}
	return nil
}

// currencyOrNone leaves out a currency that nobody issues.
func (f *filling) currencyOrNone() {
	if _, ok := money.Exponent(f.Currency); !ok && f.Currency != "" {
		f.Currency = ""
		f.Add("body.currency", "currency")
	}
}

func (f *filling) order(id string) *contract.Order {
	return &contract.Order{ID: id, PrettyID: f.PrettyID, CustomerID: cmp.Or(f.Customer.ID, f.CustomerID), Currency: f.Currency}
}

func (f *filling) subscription() *contract.Subscription {
	return &contract.Subscription{
		ID: f.ID, CustomerID: cmp.Or(f.Customer.ID, f.CustomerID), ProductID: f.ProductID, CheckoutID: f.CheckoutID,
		Status: f.Status, Currency: f.Currency, Total: f.amountOrNone("body.total_amount", f.TotalAmount), Cycle: f.Cycle,
		PeriodStart: cmp.Or(f.CurrentPeriodStart, f.StartsAt), PeriodEnd: cmp.Or(f.CurrentPeriodEnd, f.EndsAt),
	}
}

// cost maps what the order cost. Without a total prices are added up, so they go with one that is left out.
func (f *filling) cost(order *contract.Order) {
	order.Total = f.amountOrNone("body.total_amount", f.TotalAmount)
	totalLost := f.Has("body.total_amount")
	order.Items = make([]contract.Item, len(f.Lines))
	for i, line := range f.Lines {
		item := &order.Items[i]
		item.ProductID, item.Quantity = line.ProductID, line.Quantity
		if !totalLost || f.Currency == "" {
			item.Price = f.amountOrNone("body.lines[].price", line.Price)
		} else if line.Price != nil {
			f.Add("body.lines[].price", "needs_total")
		}
	}
}

// refund: an amount is never left out for its value, for without one all of the order is given back.
func (f *filling) refund(m *contract.PayNow) error {
	// By PayNow amount is the payment's, and store_refund_amount what was refunded: the smaller one counts.
	refunded := f.Amount
	switch s := f.StoreRefundAmount; {
	case f.Amount != nil && *f.Amount < 0:
		return contract.Broken("body.amount", "negative")
	case s != nil && *s < 0:
		return contract.Broken("body.store_refund_amount", "negative")
	case s != nil && *s > 0 && (refunded == nil || *refunded <= 0 || *s < *refunded):
		refunded = s
	}
	amount := ""
	switch {
	case refunded == nil:
		f.currencyOrNone() // which nothing is reckoned in
	case f.Currency == "":
		return contract.Broken("body.currency", "required")
	default:
		var err error
		if amount, err = money.Format(*refunded, f.Currency); err != nil {
			return contract.Broken("body.currency", "currency")
		}
	}
	m.Data.Order, m.Data.Refund = f.order(f.OrderID), &contract.Refund{ID: f.ID, Amount: amount}
	return nil
}

// amountOrNone leaves out what is below 0 or above money.Max, and any amount without a currency.
func (f *filling) amountOrNone(path string, minor *int64) string {
	switch {
	case minor == nil:
		return ""
	case f.Currency == "":
		f.Add(path, "needs_currency")
		return ""
	case *minor < 0:
		f.Add(path, "negative")
		return ""
	case *minor > money.Max:
		f.Add(path, "amount")
		return ""
	}
	decimal, err := money.Format(*minor, f.Currency)
	if err != nil {
		f.Add(path, "amount") // whatever else money refuses
	}
	return decimal
}

// toPayNow rewrites paths of the contract into those of PayNow's body, which is what its sender knows.
var toPayNow = strings.NewReplacer(
	"data.order.items", "body.lines", "].productId", "].product_id", "data.order.customerId", "body.customer.id",
	"data.order.total", "body.total_amount", "data.order.prettyId", "body.pretty_id", "data.order.", "body.",
	"data.refund.", "body.", "data.subscription.customerId", "body.customer.id", "data.subscription.productId", "body.product_id",
	"data.subscription.checkoutId", "body.checkout_id", "data.subscription.total", "body.total_amount",
	"data.subscription.cycle", "body.billing_cycle_sequence", "data.subscription.", "body.", "eventId", "event_id", "eventType", "event_type",
)

func fromPayNow(eventType string, violations []pii.Violation) {
	for i, v := range violations {
		if v.Path == "data.order.id" && eventType != contract.OrderPaid {
			v.Path = "body.order_id"
		}
		violations[i].Path = toPayNow.Replace(v.Path)
	}
}
