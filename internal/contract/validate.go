package contract

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-playground/validator/v10"

	"billhook/internal/contract/money"
	"billhook/internal/pii"
)

// Invalid says which rules of the contract a message breaks, by paths and rules alone.
type Invalid struct{ Violations []pii.Violation }

func (e *Invalid) Error() string { return pii.Describe("contract", e.Violations) }

// Broken is an Invalid of one violation.
func Broken(path, rule string) error { return &Invalid{[]pii.Violation{{Path: path, Rule: rule}}} }

// maxViolations bounds what an Invalid lists.
const maxViolations = 20

// validation says of each value which tags it does not keep. Its names are JSON's.
var validation = func() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(jsonName)
	register := func(tag string, keeps validator.Func) {
		if err := v.RegisterValidation(tag, keeps); err != nil {
			panic(err)
		}
	}
	for word, s := range shapes {
		if s.valid != nil {
			register(word, func(field validator.FieldLevel) bool { return s.valid(field.Field().String()) })
		}
	}
	register("amount", func(field validator.FieldLevel) bool {
		return isAmount(field.Field().String(), field.Parent().FieldByName(field.Param()).String(), false)
	})
	ofOrder := func(bare bool) validator.Func {
		return func(field validator.FieldLevel) bool {
			order := field.Top().Interface().(*PayNow).Data.Order // found without the tags' paths, which cost more than the check
			return order != nil && isAmount(field.Field().String(), order.Currency, bare)
		}
	}
	register("order_amount", ofOrder(false))
	register("order_price", ofOrder(true))
	return v
}()

// isAmount: where the currency is given and wrong, that is the violation, once.
func isAmount(text, currency string, bare bool) bool {
	if currency == "" {
		return bare && pii.Amount.Valid(text)
	}
	return !isCurrency(currency) || isAmountIn(text, currency)
}

// isAmountIn: 0 to money.Max, with exactly the digits of the currency.
func isAmountIn(text, currency string) bool {
	minor, err := money.Parse(text, currency)
	return err == nil && 0 <= minor && minor <= money.Max
}

// check reports every rule that the struct breaks, as an *Invalid, up to maxViolations.
func check(value any, prefix string) error {
	var broken validator.ValidationErrors
	if !errors.As(validation.Struct(value), &broken) {
		return nil
	}
	invalid := &Invalid{}
	name := reflect.Indirect(reflect.ValueOf(value)).Type().Name()
	for _, b := range broken[:min(len(broken), maxViolations)] {
		rule := b.Tag()
		switch {
		case rule == "order_amount", rule == "order_price":
			rule = "amount"
		case rule == "min" && b.Kind() == reflect.Slice:
			rule = "required"
		case slices.Contains([]string{"min", "max", "oneof"}, rule):
			rule += "=" + b.Param()
		}
		path := strings.TrimPrefix(strings.TrimPrefix(b.Namespace(), name), ".")
		invalid.Violations = append(invalid.Violations, pii.Violation{Path: prefix + path, Rule: rule})
	}
	return invalid
}

// The rules by which an optional field goes with another.
const (
	needsCurrency = "needs_currency"
	needsTotal    = "needs_total"
)

// Relax clears the optional fields of a provider's body that break the contract, and returns dropped with
// them added. Nothing that is cleared changes what the event does to money: the prices of an order go with
// its total, and what a refund gives back stays, since without an amount that is all of it.
func (b Body) Relax(dropped pii.Dropped) pii.Dropped {
	r := relaxing{dropped}
	if relax := b.contract.format.Relax; relax != nil {
		relax(b.value, &r)
	}
	b.contract.rules.clear(b.whole(), "", r.Add)
	return r.Dropped
}

func (r *relaxing) payNow(m *PayNow) {
	if order, refund := m.Data.Order, m.Data.Refund; order != nil {
		// The currency is that of a refund's amount, too, and stays.
		r.cost("data.order.", &order.Currency, &order.Total, refund != nil && refund.Amount != "")
		r.prices(order)
	}
	if s := m.Data.Subscription; s != nil {
		r.cost("data.subscription.", &s.Currency, &s.Total, false)
	}
}

type relaxing struct{ pii.Dropped }

// text clears a field, if there is anything in it.
func (r *relaxing) text(path, rule string, field *string) {
	if *field != "" {
		*field = ""
		r.Add(path, rule)
	}
}

// cost clears a currency that nobody issues, unless it stays, and a total that is not in it.
func (r *relaxing) cost(at string, currency, total *string, stays bool) {
	if !isCurrency(*currency) && !stays {
		r.text(at+"currency", "currency", currency)
	}
	switch {
	case *currency == "":
		r.text(at+"total", needsCurrency, total)
	case !isAmountIn(*total, *currency):
		r.text(at+"total", "amount", total)
	}
}

// prices clears the prices that go with what was cleared, and those that are none.
func (r *relaxing) prices(order *Order) {
	for i := range order.Items {
		price := &order.Items[i].Price
		switch {
		case r.Has("data.order.currency"):
			r.text("data.order.items[].price", needsCurrency, price)
		case r.Has("data.order.total"):
			r.text("data.order.items[].price", needsTotal, price)
		case order.Currency == "":
			if !pii.Amount.Valid(*price) {
				r.text("data.order.items[].price", "amount", price)
			}
		case !isAmountIn(*price, order.Currency):
			r.text("data.order.items[].price", "amount", price)
		}
	}
}

// clear sets optional numbers that are out of their bounds to 0, which is none, and tells of each.
func (r rules) clear(v reflect.Value, prefix string, drop func(path, rule string)) {
	for i := range r {
		f, at, path := &r[i], reflect.Indirect(v.Field(i)), prefix+r[i].name
		switch {
		case !at.IsValid():
		case f.list && f.inside != nil:
			for n := range at.Len() {
				f.inside.clear(at.Index(n), path+"[].", drop)
			}
		case f.kind == reflect.Struct:
			f.inside.clear(at, path+".", drop)
		case f.kind == reflect.Int64 && f.bounded && f.optional && at.Int() < f.low:
			at.SetInt(0)
			drop(path, "min="+strconv.FormatInt(f.low, 10))
		case f.kind == reflect.Int64 && f.bounded && f.optional && at.Int() > f.high:
			at.SetInt(0)
			drop(path, "max="+strconv.FormatInt(f.high, 10))
		}
	}
}
