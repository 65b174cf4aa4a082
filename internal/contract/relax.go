package contract

import (
	"billhook/internal/pii"
)

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
