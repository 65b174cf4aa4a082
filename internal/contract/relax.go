package contract

import (
	"slices"

	"billhook/internal/money"
	"billhook/internal/pii"
)

// The rules by which an optional field goes with another.
const (
	needsCurrency = "needs_currency"
	needsTotal    = "needs_total"
)

// Relax clears the optional fields of a provider's body that break the contract, and
// returns dropped with them added. What was left out of the body before is in dropped.
// What is still broken then is required.
//
// Nothing that is cleared changes what the event does to money. An amount without its
// currency is no amount. The prices of an order go with its total: where there is none,
// they are added up, and an order that was discounted would have cost more than it did,
// so that a refund of it took back too little. What a refund gives back, and what an
// envelope asks for, is never cleared: without an amount that is all of it.
func (b Body) Relax(dropped []pii.Violation) []pii.Violation {
	r := relaxing{dropped}
	if relax := b.contract.format.Relax; relax != nil {
		relax(b.value, &r)
	}
	l := look{top: b.v(), relax: &r}
	l.object(b.contract.rules, l.top)
	return r.dropped
}

func (r *relaxing) payNow(m *PayNow) {
	if order := m.Data.Order; order != nil {
		r.order(order, m.Data.Refund != nil && m.Data.Refund.Amount != "")
	}
	if s := m.Data.Subscription; s != nil {
		r.subscription(s)
	}
}

type relaxing struct{ dropped []pii.Violation }

func (r *relaxing) drop(path, rule string) {
	r.dropped = pii.AddDropped(r.dropped, pii.Violation{Path: path, Rule: rule})
}

func (r *relaxing) lost(path string) bool {
	return slices.ContainsFunc(r.dropped, func(v pii.Violation) bool { return v.Path == path })
}

// text clears a field, if there is anything in it.
func (r *relaxing) text(path, rule string, field *string) {
	if *field != "" {
		*field = ""
		r.drop(path, rule)
	}
}

// order clears what an order cost. reckoned: the currency is that of a refund's amount,
// too, and stays.
func (r *relaxing) order(order *Order, reckoned bool) {
	if order.Currency != "" && !isCurrency(order.Currency) && !reckoned {
		r.text("data.order.currency", "currency", &order.Currency)
	}
	switch {
	case order.Total == "":
	case order.Currency == "":
		r.text("data.order.total", needsCurrency, &order.Total)
	case !isPrice(order.Total, order.Currency):
		r.text("data.order.total", "amount", &order.Total)
	}
	for i := range order.Items {
		price := &order.Items[i].Price
		switch {
		case r.lost("data.order.currency"):
			r.text("data.order.items[].price", needsCurrency, price)
		case r.lost("data.order.total"):
			r.text("data.order.items[].price", needsTotal, price)
		case order.Currency == "":
			if !pii.Amount.Valid(*price) {
				r.text("data.order.items[].price", "amount", price)
			}
		case !isPrice(*price, order.Currency):
			r.text("data.order.items[].price", "amount", price)
		}
	}
}

func (r *relaxing) subscription(s *Subscription) {
	if s.Currency != "" && !isCurrency(s.Currency) {
		r.text("data.subscription.currency", "currency", &s.Currency)
	}
	switch {
	case s.Total == "":
	case s.Currency == "":
		r.text("data.subscription.total", needsCurrency, &s.Total)
	case !isPrice(s.Total, s.Currency):
		r.text("data.subscription.total", "amount", &s.Total)
	}
}

// isPrice: nothing, or an amount of the currency that is not negative.
func isPrice(amount, currency string) bool {
	if amount == "" {
		return true
	}
	minor, err := money.Parse(amount, currency)
	return err == nil && minor >= 0
}
