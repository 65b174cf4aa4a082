package pages

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"billhook/docs/runbooks"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/search"
	"billhook/internal/pipeline/events"
)

type story struct {
	events.Event
	Facts []cell
	// Choices are the events of the id, where it is that of several; nil: it is not.
	Choices *grid
}

func (p *Pages) event(v *visit) (any, error) {
	view := story{}
	event, err := look[events.Event](p, v, "events show")
	if err != nil && problemOf(err).Code == "queue_needed" {
		choices, err := p.table(v, p.row("events ls"))
		view.EventID, view.Choices = v.param("event_id"), &choices
		return view, err
	}
	view.Event = event
	view.Facts, _ = p.facts(v, p.row("events show"), event)
	return view, err
}

// search asks for what an id leads to, and leads straight to what that is where it is one thing.
func (p *Pages) search(v *visit) (any, error) {
	o := p.row("search")
	view := declaredView{Title: "Search", Help: o.Help, ID: v.query("q")}
	if view.ID == "" {
		return view, nil
	}
	found, err := look[search.Search](p, v, o.Name)
	if err != nil {
		return nil, err
	}
	if len(found.Items) == 1 {
		if shows, err := url.Parse(found.Items[0].Path); err == nil { // others have written the id in it
			return nil, elsewhere("/ops/" + strings.TrimPrefix(shows.String(), looks))
		}
	}
	_, view.Tables = p.facts(v, o, found)
	view.Notes = found.Notes()
	return view, nil
}

func (p *Pages) runbook(v *visit) (any, error) {
	book, found := runbooks.Read(v.param("name"))
	if !found {
		return nil, errNoPage
	}
	return book, nil
}

func (p *Pages) order(v *visit) (any, error) {
	o, err := look[orders.Order](p, v, "orders show")
	facts, tables := p.facts(v, p.row("orders show"), o)
	return orderPage{o, machine(o), facts, tables}, err
}

type orderPage struct {
	orders.Order
	Machine []orderState
	Facts   []cell
	Tables  []grid
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

// machine is each state once, in the order in which orders come to them, with the way that an order has gone.
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
