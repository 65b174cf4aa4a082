package pages

import (
	"cmp"
	"slices"

	"github.com/go-chi/chi/v5"

	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/pause"
)

func (p *Pages) overviewRoutes(r chi.Router) {
	p.page(r, "/", "overview.html", p.overview)
}

// overview is every queue, the worst first.
type overview struct {
	Queues []queueCard
	Outbox ops.Outbox
	// Books is what the daily verification of the books has found, and BooksOf a tenant of whom.
	Books   seal.Verdict
	BooksOf string
	// ForApproval counts the operations that wait for a second person.
	ForApproval int64
}

// queueCard is one queue of the overview.
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

// signs are what is wrong with a queue, the worst first.
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

// worst is the place of the first sign in their order.
func worst(signs []string) int { return slices.Index(order, signs[0]) }

// unacked is how many messages wait in the broker, as far as that is known.
func unacked(q ops.Queue) int64 {
	if q.Waiting.Unacknowledged == nil {
		return 0
	}
	return *q.Waiting.Unacknowledged
}
