package pages

import (
	"slices"

	"github.com/go-chi/chi/v5"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
)

func (p *Pages) queueRoutes(r chi.Router) {
	p.page(r, "/queues/{id}", "queue.html", p.queue)
	p.change(r, "/queues/{id}/pause", "queue_pause.html", loads[queuePause](named("/v1/ops/queues/%s/pause", "id")), switchQueue("pause"))
	p.change(r, "/queues/{id}/resume", "queue_resume.html", loads[queuePause](named("/v1/ops/queues/%s/pause", "id")), switchQueue("resume"))
	p.page(r, "/outbox", "outbox.html", loads[ops.Lanes](at("/v1/ops/outbox?limit="+rows)))
}

// queuePage is one queue with all that explains how it stands.
type queuePage struct {
	ops.QueueDetail

	Signs       []string
	Hours, Days plot
	Reasons     []deadletter.Reason
	Changes     ops.List[audit.Entry]
}

func (p *Pages) queue(v *visit) (any, error) {
	var page queuePage
	if err := v.get(href("/v1/ops/queues/%s", v.param("id")), &page.QueueDetail); err != nil {
		return nil, err
	}
	var hours, days ops.Rates
	var reasons ops.List[deadletter.Reason]
	for path, answer := range map[string]any{
		with("/v1/ops/rates", "hours", "24", "queue", page.ID):         &hours,
		with("/v1/ops/rates", "days", "30", "queue", page.ID):          &days,
		with("/v1/ops/dead-letters/reasons", "queue", page.ID):         &reasons,
		with(href("/v1/ops/queues/%s/changes", page.ID), "limit", "5"): &page.Changes,
	} {
		if err := v.get(path, answer); err != nil {
			return nil, err
		}
	}
	page.Signs, page.Reasons = signs(page.Queue), reasons.Items
	page.Hours, page.Days = plotOf("24 hours", bucketsOf(hours, page.ID)), plotOf("30 days", bucketsOf(days, page.ID))
	return page, nil
}

// queuePause is how a queue stands before it is paused or resumed.
type queuePause struct{ ops.QueuePause }

// Words says what the subscription does.
func (q queuePause) Words() string { return standings[q.Subscription] }

// standings says of a subscription what it does.
var standings = map[pause.Standing]string{
	pause.Pushing:  "it pushes",
	pause.Paused:   "it pushes nothing",
	pause.Undone:   "it is marked as paused and pushes all the same: somebody has given it its endpoint past Billhook",
	pause.Unmarked: "it pushes nothing and is not marked as paused: somebody has taken its endpoint past Billhook",
	pause.Missing:  "there is none",
	pause.Unknown:  "it cannot be seen from here",
}

// switchQueue pauses or resumes a queue, and goes to its page, which says what the subscription does then.
func switchQueue(verb string) func(*visit) (string, error) {
	return func(v *visit) (string, error) {
		var done ops.QueuePause
		err := v.post(href("/v1/ops/queues/%s/"+verb, v.param("id")), pause.Change{Why: v.form("why")}, &done)
		return href("/ops/queues/%s", done.Queue), err
	}
}

// Standing says what the subscription of a paused queue does; empty where the queue is not paused.
func (q queuePage) Standing() string {
	if q.Paused == nil {
		return ""
	}
	return standings[q.Paused.Subscription]
}

// OnPaper reports whether the queue is paused and its subscription pushes all the same.
func (q queuePage) OnPaper() bool { return slices.Contains(q.Signs, signPaper) }
