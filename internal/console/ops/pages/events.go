package pages

import (
	"errors"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/console/ops"
	"billhook/internal/platform/serve"
)

// eventRoutes adds the job log, the story of an event, and the payloads that are kept of it.
func (p *Pages) eventRoutes(r chi.Router) {
	p.page(r, "/events", "events.html", p.events)
	p.page(r, "/events/{id}", "event.html", p.event)
	p.outcome(r, "/events/{id}/payload", "payload.html", p.eventNamed, p.eventPayload)
	p.outcome(r, "/dead-letters/{id}/payload", "payload.html", p.letterNamed, p.letterPayload)
}

type jobLog struct {
	ops.List[ops.Line]
	// Queues are the ids to choose from. Waiting is what stands in no line, on the first page.
	Queues  []string
	Waiting *ops.Elsewhere
}

// eventFilters are the parameters of the job log, as the API has them.
var eventFilters = []string{"queue", "status", "type", "event_id", "correlation_id", "key", "since", "until", "page"}

func (p *Pages) events(v *visit) (any, error) {
	view := jobLog{}
	for _, q := range p.Catalog.Queues {
		view.Queues = append(view.Queues, q.ID)
	}
	filters := v.filters(eventFilters...)
	if err := v.get(with("/v1/ops/events", append(filters, "limit", rows)...), &view.List); err != nil {
		return view, v.refused(err)
	}
	if len(v.filters(eventFilters[1:]...)) > 0 {
		return view, nil
	}
	return view, v.get(with("/v1/ops/waiting", "queue", v.query("queue")), &view.Waiting)
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
	Moments []moment
	// Choices are the events of the id, where it is that of several.
	Choices []ops.Line
	// Live: something is still to come of it.
	Live bool
}

// moment is a thing that happened to an event: a step of its history, an entry in the books, or what it
// emitted.
type moment struct {
	ops.Step
	Posted *ops.Posted
	Emits  []ops.Emission
	// Left is how many emissions are not shown.
	Left int64
}

// The moments that are no step of the history.
const (
	momentPosted  ops.What = "posted"
	momentEmitted ops.What = "emitted"
)

// Took is how long an attempt took.
func (m moment) Took() string {
	if took := m.End.Sub(m.At); took >= time.Millisecond {
		return took.Round(time.Millisecond).String()
	}
	return "less than 1ms"
}

func (p *Pages) event(v *visit) (any, error) {
	view := story{}
	err := v.get(eventAt(v, "/v1/ops/events/%s"), &view.Event)
	if problem := (*serve.Problem)(nil); errors.As(err, &problem) && problem.Code == "queue_needed" {
		var lines ops.List[ops.Line]
		err = v.get(with("/v1/ops/events", "event_id", v.param("id"), "limit", rows), &lines)
		view.EventID, view.Choices = v.param("id"), lines.Items
		return view, err
	}
	view.Live = len(view.Places) > 0
	view.Moments = momentsOf(view.Event)
	return view, err
}

func eventAt(v *visit, format string) string {
	return with(href(format, v.param("id")), "queue", v.query("queue"), "tenant", v.query("tenant"))
}

// momentsOf puts what an event has moved and emitted among the steps of its history, in the order of time.
func momentsOf(e ops.Event) (all []moment) {
	for _, step := range e.History {
		all = append(all, moment{Step: step})
	}
	for _, posted := range e.Effect {
		all = append(all, moment{Step: ops.Step{At: posted.PostedAt, What: momentPosted}, Posted: &posted})
	}
	if len(e.Emissions) > 0 {
		all = append(all, moment{Step: ops.Step{At: e.ProcessedAt, What: momentEmitted}, Emits: e.Emissions, Left: int64(max(0, len(e.Emitted)-emissions(e)))})
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.At.Compare(b.At) })
	return all
}

// emissions is how many messages the emissions of an event are of: one may be in several queues.
func emissions(e ops.Event) int {
	ids := map[string]bool{}
	for _, one := range e.Emissions {
		ids[one.EventID] = true
	}
	return len(ids)
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

func (p *Pages) eventNamed(v *visit) (any, error) {
	return payload{Of: "event", ID: v.param("id"), Back: eventAt(v, "/ops/events/%s")}, nil
}

func (p *Pages) eventPayload(v *visit) (any, error) {
	var kept ops.Payload
	if err := v.post(eventAt(v, "/v1/ops/events/%s/payload"), ops.Reason{Why: v.form("why")}, &kept); err != nil {
		return nil, err
	}
	view := payload{Of: "event", ID: v.param("id"), Back: eventAt(v, "/ops/events/%s"), More: kept.More}
	for _, item := range kept.Items {
		view.Items = append(view.Items, readable(item))
	}
	return view, nil
}

func (p *Pages) letterNamed(v *visit) (any, error) {
	return payload{Of: "dead letter", ID: v.param("id"), Back: href("/ops/dead-letters/%s", v.param("id"))}, nil
}

func (p *Pages) letterPayload(v *visit) (any, error) {
	var letter ops.Letter
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
