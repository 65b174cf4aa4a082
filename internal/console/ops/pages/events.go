package pages

import (
	"errors"
	"net/url"
	"reflect"
	"slices"

	"billhook/internal/console"
	"billhook/internal/console/ops"
	"billhook/internal/platform/serve"
)

// refused shows a refusal on the page itself, which then has nothing to show but its form.
func (v *visit) refused(err error) error {
	if problem := (*serve.Problem)(nil); errors.As(err, &problem) && problem.Status < 500 {
		v.problem = problem
		return nil
	}
	return err
}

type story struct {
	ops.Event
	Facts []cell
	// Choices are the events of the id, where it is that of several; nil: it is not.
	Choices *grid
}

func (p *Pages) event(v *visit) (any, error) {
	view := story{}
	event, err := look[ops.Event](p, v, "events show")
	if problem := (*serve.Problem)(nil); errors.As(err, &problem) && problem.Code == "queue_needed" {
		events := p.row("events ls")
		answer, err := p.API.Call(v.ctx, events, console.Input{Query: url.Values{"event_id": {v.param("event_id")}, "limit": {rows}}})
		if list, ok := answer.(console.List[ops.Line]); ok {
			choices := gridOf(events.Columns, reflect.ValueOf(list.Items), "")
			for i, line := range list.Items {
				choices.Rows[i][0].Href = with(href("/ops/events/%s", line.EventID), "queue", line.Queue, "tenant", line.Tenant)
			}
			view.EventID, view.Choices = v.param("event_id"), &choices
		}
		return view, err
	}
	view.Event = event
	facts, _ := p.facts(v, p.row("events show"), event)
	view.Facts = slices.DeleteFunc(facts, func(c cell) bool { return c.Text == "" })
	return view, err
}
