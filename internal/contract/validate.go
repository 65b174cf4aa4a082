package contract

import (
	"errors"
	"reflect"
	"strings"

	"github.com/go-playground/validator/v10"

	"billhook/internal/money"
	"billhook/internal/pii"
)

// Violation names a field by its JSON path and the rule it breaks, never the value.
type Violation struct {
	Path string
	Rule string
}

// Invalid says which rules of the contract a message breaks. Its text holds paths
// and rules alone.
type Invalid struct{ Violations []Violation }

func (e *Invalid) Error() string {
	var text strings.Builder
	text.WriteString("contract: ")
	for i, v := range e.Violations {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(v.Path + ": " + v.Rule)
	}
	return text.String()
}

// maxViolations bounds what an Invalid lists: a body with thousands of bad lines
// needs no answer of thousands of entries.
const maxViolations = 20

var rules = newRules()

// newRules makes the validator. The words that name a shape are those of package
// pii, so a shape is declared once.
func newRules() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(field reflect.StructField) string {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		return name
	})
	for word, valid := range map[string]func(string) bool{
		"id": pii.ID.Valid, "uid": pii.UID.Valid, "event_type": pii.Code.Valid, "code": pii.Code.Valid,
		"timestamp": pii.Time.Valid, "currency": isCurrency,
		"ordering_key": func(key string) bool { return pii.ID.Valid(key) || pii.UID.Valid(key) },
	} {
		must(v.RegisterValidation(word, func(field validator.FieldLevel) bool { return valid(field.Field().String()) }))
	}
	must(v.RegisterValidation("amount", isAmount))
	v.RegisterStructValidation(relations, PayNow{})
	return v
}

func must(err error) {
	if err != nil {
		panic(err) // a tag that cannot be registered is a mistake of the program
	}
}

func isCurrency(code string) bool {
	_, ok := money.Exponent(code)
	return ok
}

// isAmount: not negative, with exactly the digits of its currency, which must be
// there. Where the currency is given and wrong, that is the violation, once.
func isAmount(field validator.FieldLevel) bool {
	currency, ok := currencyOf(field)
	if !ok {
		return false
	}
	if currency == "" {
		// The requirements' own example has prices without a currency. Any other amount
		// without one could not be reckoned with.
		return field.FieldName() == "price" && pii.Amount.Valid(field.Field().String())
	}
	minor, err := money.Parse(field.Field().String(), currency)
	return errors.Is(err, money.ErrCurrency) || (err == nil && minor >= 0)
}

// currencyOf finds the currency that an amount is in: that beside it, else its order's.
func currencyOf(field validator.FieldLevel) (currency string, ok bool) {
	switch about := field.Parent().Interface().(type) {
	case Subscription:
		return about.Currency, true
	case Payload:
		return about.Currency, true
	}
	body, ok := field.Top().Interface().(*PayNow)
	if !ok || body.Data.Order == nil {
		return "", false
	}
	return body.Data.Order.Currency, true
}

// relations checks the rules between fields.
func relations(level validator.StructLevel) {
	body, ok := level.Top().Interface().(*PayNow)
	if !ok {
		return
	}
	if path := body.lacks(); path != "" {
		level.ReportError(nil, path, path, "required", "")
	}
}

// lacks is the path of what the body's event type needs and the body has not.
func (m *PayNow) lacks() string {
	switch order := m.Data.Order; {
	case order == nil && strings.HasPrefix(m.EventType, orderPrefix):
		return "data.order"
	case order != nil && m.EventType == OrderPaid && len(order.Items) == 0:
		return "data.order.items"
	case m.Data.Subscription == nil && (strings.HasPrefix(m.EventType, subscriptionPrefix) || strings.HasPrefix(m.EventType, trialPrefix)):
		return "data.subscription"
	default:
		return ""
	}
}

// Validate reports every rule of paynow.v1 that the body breaks, as an *Invalid.
// Beyond the fields: an order.* event has an order, a paid order has an item, a
// subscription.* or trial.* event has a subscription, and amounts have a currency and
// exactly its digits.
func (m *PayNow) Validate() error {
	if m.sound() {
		return nil
	}
	return validate(m, "")
}

// sound reports whether the body keeps every rule, without the reflection that it
// takes to say which it breaks: two thirds of a webhook's allocations. The tags are
// the authority: where this says no, they are read; a property test holds that it
// never says yes where they would not.
func (m *PayNow) sound() bool {
	d := &m.Data
	return pii.ID.Valid(m.EventID) && pii.Code.Valid(m.EventType) && pii.Time.Valid(m.Timestamp) && m.lacks() == "" &&
		(d.Order != nil || d.Subscription != nil) &&
		(d.Order == nil || d.Order.sound()) &&
		(d.Refund == nil || (d.Order != nil && emptyOr(pii.ID, d.Refund.ID) && isPrice(d.Refund.Amount, d.Order.Currency))) &&
		(d.Subscription == nil || d.Subscription.sound())
}

func (order *Order) sound() bool {
	if !pii.ID.Valid(order.ID) || !emptyOr(pii.ID, order.PrettyID) || !emptyOr(pii.ID, order.CustomerID) ||
		!isCurrency(order.Currency) || len(order.Items) > maxItems || !isPrice(order.Total, order.Currency) {
		return false
	}
	for i := range order.Items {
		item := &order.Items[i]
		if !pii.ID.Valid(item.ProductID) || item.Quantity < 1 || item.Quantity > maxQuantity || !isPrice(item.Price, order.Currency) {
			return false
		}
	}
	return true
}

func (s *Subscription) sound() bool {
	return pii.ID.Valid(s.ID) && emptyOr(pii.ID, s.CustomerID) && emptyOr(pii.ID, s.ProductID) && emptyOr(pii.ID, s.CheckoutID) &&
		emptyOr(pii.Code, s.Status) && (s.Currency == "" || isCurrency(s.Currency)) && isPrice(s.Total, s.Currency) &&
		s.Cycle >= 0 && s.Cycle <= maxCycle && emptyOr(pii.Time, s.PeriodStart) && emptyOr(pii.Time, s.PeriodEnd)
}

// isPrice: nothing, or an amount of the currency that is not negative.
func isPrice(amount, currency string) bool {
	if amount == "" {
		return true
	}
	minor, err := money.Parse(amount, currency)
	return err == nil && minor >= 0
}

// The bounds of the tags, for sound.
const (
	maxItems    = 5000
	maxQuantity = 1<<53 - 1
	maxCycle    = 1_000_000
	maxTries    = 1000
)

func emptyOr(rule pii.Rule, value string) bool { return value == "" || rule.Valid(value) }

// validate is the one place where the tags of a message are read. prefix goes before
// every path.
func validate(message any, prefix string) error {
	err := rules.Struct(message)
	if err == nil {
		return nil
	}
	var broken validator.ValidationErrors
	if !errors.As(err, &broken) {
		return ErrMalformed // nothing to look at: a nil message
	}
	invalid := &Invalid{Violations: make([]Violation, 0, min(len(broken), maxViolations))}
	for _, field := range broken[:min(len(broken), maxViolations)] {
		_, path, _ := strings.Cut(field.Namespace(), ".") // the Go type's name stands first
		rule := field.Tag()
		if field.Param() != "" {
			rule += "=" + field.Param()
		}
		invalid.Violations = append(invalid.Violations, Violation{Path: prefix + path, Rule: rule})
	}
	return invalid
}
