package pages

import (
	"errors"
	"net/url"
	"reflect"
	"slices"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/console"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/serve"
)

// eventRoutes adds the story of an event, and the payload of a dead letter.
func (p *Pages) eventRoutes(r chi.Router) {
	p.page(r, "/events/{event_id}", "event.html", p.event)
	p.outcome(r, "/dead-letters/{id}/payload", "payload.html", p.letterNamed, p.letterPayload)
}

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
	show, _ := p.Declared.Find("events show")
	event, err := look[ops.Event](p, v, show.Name)
	if problem := (*serve.Problem)(nil); errors.As(err, &problem) && problem.Code == "queue_needed" {
		events, _ := p.Declared.Find("events ls")
		answer, err := p.API.Do(v.ctx, events, console.Input{Query: url.Values{"event_id": {v.param("event_id")}, "limit": {rows}}})
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
	facts, _ := p.facts(v, show, event)
	view.Facts = slices.DeleteFunc(facts, func(c cell) bool { return c.Text == "" })
	return view, err
}

type payload struct {
	// Of is event or dead letter, and ID which one.
	Of, ID string
	// Back is the address of the event or the dead letter.
	Back  string
	Items []keptPayload
	More  bool
}

// keptPayload is a message that is kept, and its payload as a text.
type keptPayload struct {
	ops.KeptMessage
	Text string
	// Cut is how many bytes of the text are left out.
	Cut int64
}

const maxPayload = 12 << 10

func (p *Pages) letterNamed(v *visit) (any, error) {
	return payload{Of: "dead letter", ID: v.param("id"), Back: href("/ops/dead-letters/%s", v.param("id"))}, nil
}

func (p *Pages) letterPayload(v *visit) (any, error) {
	var letter deadletter.Kept
	if err := v.post(href("/v1/ops/dead-letters/%s/payload", v.param("id")), ops.Reason{Why: v.form("why")}, &letter); err != nil {
		return nil, err
	}
	message := ops.TriedMessage{Data: letter.Data, Base64: letter.Base64, Attributes: letter.Attributes, OrderingKey: letter.OrderingKey}
	return payload{
		Of: "dead letter", ID: letter.ID, Back: href("/ops/dead-letters/%s", letter.ID),
		Items: []keptPayload{readable(ops.KeptMessage{Place: ops.PlaceDeadLetter, DeadLetter: letter.ID, State: letter.State, TriedMessage: message})},
	}, nil
}

// readable lays out a payload: JSON in lines, with its numbers as they are, or else the bytes as a text.
func readable(kept ops.KeptMessage) keptPayload {
	shown := keptPayload{KeptMessage: kept, Text: string(kept.Base64)}
	if kept.Data != nil {
		data := slices.Clone(kept.Data)
		_ = data.Indent(jsontext.WithIndent("  ")) // else it is shown as it came
		shown.Text = string(data)
	}
	if len(shown.Text) > maxPayload {
		shown.Text, shown.Cut = shown.Text[:maxPayload], int64(len(shown.Text)-maxPayload)
	}
	return shown
}
