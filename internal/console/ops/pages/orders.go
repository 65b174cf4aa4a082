package pages

import (
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/orders"
	"billhook/internal/console/ops"
)

func (p *Pages) orderRoutes(r chi.Router) {
	p.page(r, "/orders", "orders.html", p.orders)
	p.page(r, "/orders/{id}", "order.html", p.order)
}

// ordersPage are the orders in a state.
type ordersPage struct {
	ops.List[orders.Order]
	State  string
	States []string
}

func (p *Pages) orders(v *visit) (any, error) {
	page := ordersPage{State: v.query("state"), States: []string{
		string(orders.PaymentInitiated), string(orders.OrderConfirmed), string(orders.OrderCancelled), string(orders.OrderShipped), "all",
	}}
	if page.State == "" {
		page.State = page.States[0]
	}
	err := v.get(with("/v1/ops/orders", "state", page.State, "limit", rows, "page", v.query("page")), &page.List)
	return page, err
}

// orderPage is an order in its state machine.
type orderPage struct {
	orders.Order
	Machine []orderState
}

// orderState is a state of the machine as one order has it.
type orderState struct {
	orders.State
	// Stands: the order is in it. At and EventID are of when it came to it, where it was in it at all.
	Stands  bool
	At      time.Time
	EventID string
	// Ways are those by which the order can leave it; Open: it can still come to it.
	Ways []orders.Way
	Open bool
}

func (p *Pages) order(v *visit) (any, error) {
	var page orderPage
	if err := v.get(with(href("/v1/ops/orders/%s", v.param("id")), "tenant", v.query("tenant")), &page.Order); err != nil {
		return nil, err
	}
	page.Machine = machine(page.Order)
	return page, nil
}

// machine is the state machine with the way that an order has gone: each state once, in the order in
// which orders come to them.
func machine(o orders.Order) (states []orderState) {
	ways := orders.Ways()
	open := map[orders.State]bool{o.State: true}
	for grown := true; grown; {
		grown = false
		for _, way := range ways {
			if open[way.From] && !open[way.To] {
				open[way.To], grown = true, true
			}
		}
	}
	for _, way := range ways {
		if slices.ContainsFunc(states, func(s orderState) bool { return s.State == way.To }) {
			continue
		}
		s := orderState{State: way.To, Stands: way.To == o.State, Open: open[way.To]}
		for _, step := range o.History {
			if step.State == way.To {
				s.At, s.EventID = step.At, step.EventID
			}
		}
		for _, out := range ways {
			if out.From == way.To {
				s.Ways = append(s.Ways, out)
			}
		}
		states = append(states, s)
	}
	return states
}
