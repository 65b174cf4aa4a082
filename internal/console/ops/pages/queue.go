package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/pause"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
)

func (p *Pages) queueRoutes(r chi.Router) {
	p.page(r, "/queues/{id}", "queue.html", p.queue)
	p.change(r, "/queues/{id}/pause", "queue_pause.html", loads[queuePause](named("/v1/ops/queues/%s/pause", "id")), switchQueue("pause"))
	p.change(r, "/queues/{id}/resume", "queue_resume.html", loads[queuePause](named("/v1/ops/queues/%s/pause", "id")), switchQueue("resume"))
}

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

type queuePause struct{ ops.QueuePause }

// Words says what the subscription does.
func (q queuePause) Words() string { return standings[q.Subscription] }

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

func (p *Pages) overviewRoutes(r chi.Router) {
	p.page(r, "/", "overview.html", p.overview)
}

type overview struct {
	Queues []queueCard
	Outbox ops.Outbox
	// Books is what the daily verification of the books has found, and BooksOf a tenant of whom.
	Books   seal.Verdict
	BooksOf string
	// ForApproval counts the operations that wait for a second person.
	ForApproval int64
}

type queueCard struct {
	ops.Queue

	Signs       []string
	Hours, Days plot
}

func (p *Pages) overview(v *visit) (any, error) {
	var queues ops.Queues
	var hours, days ops.Rates
	for path, answer := range map[string]any{"/v1/ops/queues": &queues, "/v1/ops/rates?hours=24": &hours, "/v1/ops/rates?days=30": &days} {
		if err := v.get(path, answer); err != nil {
			return nil, err
		}
	}
	page := overview{Outbox: queues.Outbox, Books: queues.Books, BooksOf: v.tenant()}
	if len(page.Books.Findings) > 0 {
		page.BooksOf = page.Books.Findings[0].Tenant
	}
	for _, q := range queues.Items {
		page.ForApproval += q.Waiting.ForApproval.Count
		page.Queues = append(page.Queues, queueCard{
			Queue: q, Signs: signs(q), Hours: plotOf("24 hours", bucketsOf(hours, q.ID)), Days: plotOf("30 days", bucketsOf(days, q.ID)),
		})
	}
	slices.SortStableFunc(page.Queues, func(a, b queueCard) int {
		return cmp.Or(
			cmp.Compare(worst(a.Signs), worst(b.Signs)), cmp.Compare(b.LastHour.FailurePercent, a.LastHour.FailurePercent),
			cmp.Compare(b.DeadLetters.Count.Count, a.DeadLetters.Count.Count), cmp.Compare(unacked(b.Queue), unacked(a.Queue)),
			cmp.Compare(b.LastHour.In, a.LastHour.In),
		)
	})
	return page, nil
}

// What is wrong with a queue, the worst first, and then that nothing is.
const (
	signPaper   = "paused on paper"
	signAlert   = "alert"
	signBreaker = "breaker open"
	signFailing = "failing"
	signBacklog = "backlog"
	signPaused  = "paused"
	signKept    = "off, messages wait"
	signOK      = "ok"
	signOff     = "off"
)

var order = []string{signPaper, signAlert, signBreaker, signFailing, signBacklog, signPaused, signKept, signOK, signOff}

// failingFrom is the share of failed attempts, of a hundred, from which a queue is called failing.
const failingFrom = 10

func signs(q ops.Queue) (all []string) {
	for sign, shown := range map[string]bool{
		signPaper:   q.Paused != nil && q.Paused.Subscription != pause.Paused && q.Paused.Subscription != pause.Unknown,
		signAlert:   q.DeadLetters.Alert,
		signBreaker: len(q.Breakers) > 0,
		signFailing: q.LastHour.FailurePercent >= failingFrom,
		signBacklog: q.Enabled && q.Backlog != nil && q.Backlog.AlertAbove > 0 && q.Backlog.Messages > int64(q.Backlog.AlertAbove),
		signPaused:  q.Paused != nil,
		signKept:    q.Kept != nil && unacked(q) > 0,
		signOff:     !q.Enabled && (q.Kept == nil || unacked(q) == 0),
	} {
		if shown {
			all = append(all, sign)
		}
	}
	if len(all) == 0 {
		return []string{signOK}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(slices.Index(order, a), slices.Index(order, b)) })
	return all
}

func worst(signs []string) int { return slices.Index(order, signs[0]) }

// unacked is how many messages wait in the broker, as far as that is known.
func unacked(q ops.Queue) int64 {
	if q.Waiting.Unacknowledged == nil {
		return 0
	}
	return *q.Waiting.Unacknowledged
}

// plot is a small picture of buckets: a bar for each, the oldest first. Done and Failed are paths of SVG,
// in a box of Width and Height.
type plot struct {
	// Text says what is seen, for those who do not see it.
	Text          string
	Done, Failed  string
	Width, Height int
	// Nothing was counted.
	Empty bool
}

// The measures of a plot.
const (
	plotHeight = 40
	barWidth   = 6
	barGap     = 1
)

func plotOf(of string, buckets []rates.Bucket) plot {
	p := plot{Width: len(buckets) * (barWidth + barGap), Height: plotHeight}
	var most int64
	var sum rates.Counts
	for _, b := range buckets {
		most, sum = max(most, b.Processed+b.Other+b.Dead+b.Failed), sum.Plus(b.Counts)
	}
	p.Text = fmt.Sprintf("%s: about %s in, %s out, %d %% of attempts failed", of, number(sum.In), number(sum.Out()), sum.FailurePercent())
	if p.Empty = most == 0; p.Empty {
		return p
	}
	var done, failed strings.Builder
	for i, b := range buckets {
		x, low := i*(barWidth+barGap), bar(b.Processed+b.Other, most)
		drawBar(&done, x, plotHeight, low)
		drawBar(&failed, x, plotHeight-low, min(bar(b.Dead+b.Failed, most), plotHeight-low))
	}
	p.Done, p.Failed = done.String(), failed.String()
	return p
}

// bar is how high a number is drawn: what is not nothing is seen.
func bar(n, most int64) int {
	if n == 0 {
		return 0
	}
	return max(2, int(n*plotHeight/most))
}

func drawBar(to *strings.Builder, x, bottom, height int) {
	if height > 0 {
		_, _ = fmt.Fprintf(to, "M%d %dv-%dh%dv%dz", x, bottom, height, barWidth, height) // a builder takes everything
	}
}

func bucketsOf(all ops.Rates, queue string) []rates.Bucket {
	for _, series := range all.Items {
		if series.Queue == queue {
			return series.Buckets
		}
	}
	return nil
}
