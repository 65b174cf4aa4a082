package pages

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console"
	"billhook/internal/contract/money"
	"billhook/internal/inspect/events"
	"billhook/internal/inspect/queues"
	"billhook/internal/inspect/search"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/screen"
)

type queuePage struct {
	declaredView

	Hours, Days plot
}

func (p *Pages) queue(v *visit) (any, error) {
	view, err := p.detail(v, p.row("queues show"))
	if err != nil {
		return nil, err
	}
	id := console.Member(view.Answer, "id")
	hours, most, err := p.rates(v, "queue", id)
	days, mostADay, failed := p.rates(v, "queue", id, "days", "30")
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	view.Facts = slices.DeleteFunc(view.Facts, func(c cell) bool {
		return c.Text == "0" || slices.Contains([]string{"Queue", "State", "Cause"}, c.Label)
	})
	view.Tables = slices.DeleteFunc(view.Tables, func(g grid) bool { return len(g.Rows) == 0 })
	return queuePage{
		view, plotOf("Attempts an hour, the last 24 hours", "an hour", hours[id], most),
		plotOf("Attempts a day, the last 30 days", "a day", days[id], mostADay),
	}, nil
}

// rates returns the series of queues by id, and the largest bucket of all.
func (p *Pages) rates(v *visit, given ...string) (of map[string]queues.Series, most int64, err error) {
	found, err := look[queues.Rates](p, v, "queues rates", given...)
	of = map[string]queues.Series{}
	for _, series := range found.Items {
		of[series.Queue] = series
		for _, b := range series.Buckets {
			most = max(most, tried(b.Counts))
		}
	}
	return of, most, err
}

type overview struct {
	queues.Queues

	Summary     string
	Need, Well  queueTable
	ForApproval int64
}

type queueTable struct {
	Heads []link
	Rows  []queueRow
	// Most is the scale of all charts, from 0.
	Most int64
}

type queueRow struct {
	queues.Queue

	Hours plot
}

func (p *Pages) overview(v *visit) (any, error) {
	var page overview
	var err error
	if page.Queues, err = look[queues.Queues](p, v, "queues ls"); err != nil {
		return nil, err
	}
	hours, most, err := p.rates(v) // of all queues: their charts have one scale
	if err != nil {
		return nil, err
	}
	page.Summary = strings.TrimSuffix(page.Notes()[0], ".")
	table, compare := queueTable{Most: most}, sorts[1].compare
	for _, s := range sorts {
		head := link{Address: with("/ops/", "sort", s.by), Name: s.name, Current: v.query("sort") == s.by}
		if table.Heads = append(table.Heads, head); head.Current {
			compare = s.compare
		}
	}
	page.Need, page.Well = table, table
	for _, q := range slices.SortedStableFunc(slices.Values(page.Items), func(a, b queues.Queue) int {
		return cmp.Or(compare(a, b), a.State.Compare(b.State), byFailures(a, b), byDeadLetters(a, b),
			byWaiting(a, b))
	}) {
		page.ForApproval += q.Waiting.ForApproval.Count
		in := &page.Need
		if q.State == queues.Working || q.State == queues.Off {
			in = &page.Well
		}
		chart := plotOf("The last 24 hours", "an hour", hours[q.ID], most)
		in.Rows = append(in.Rows, queueRow{Queue: q, Hours: chart})
	}
	return page, nil
}

var sorts = []struct {
	by, name string
	compare  func(a, b queues.Queue) int
}{
	{"queue", "Queue", func(a, b queues.Queue) int { return cmp.Compare(a.ID, b.ID) }},
	{"", "State", func(a, b queues.Queue) int { return a.State.Compare(b.State) }},
	{"dead_letters", "Dead letters", byDeadLetters},
	{"waiting", "Waiting", byWaiting},
	{"failed", "Last hour", byFailures},
	{"rate", "24 hours", func(a, b queues.Queue) int { return cmp.Compare(b.LastHour.In, a.LastHour.In) }},
}

func byFailures(a, b queues.Queue) int {
	return cmp.Compare(b.LastHour.FailurePercent, a.LastHour.FailurePercent)
}

func byDeadLetters(a, b queues.Queue) int {
	return cmp.Compare(b.DeadLetters.Count.Count, a.DeadLetters.Count.Count)
}

func byWaiting(a, b queues.Queue) int { return cmp.Compare(b.Waiting.Total(), a.Waiting.Total()) }

type plot struct {
	// Text is the chart in a sentence, for people who cannot see it.
	Title, Text string
	Bars        []bar
	// Most is the upper end of its scale; 0: there is nothing to show.
	Most     int64
	From, To time.Time
}

type bar struct{ Done, Failed int64 }

func plotOf(title, unit string, of queues.Series, most int64) plot {
	p, least, own, sum := plot{Title: title}, int64(math.MaxInt64), int64(0), of.Total
	for _, b := range of.Buckets {
		least, own = min(least, tried(b.Counts)), max(own, tried(b.Counts))
		p.Bars = append(p.Bars, bar{b.Processed + b.Other, b.Dead + b.Failed})
		p.From, p.To = of.Buckets[0].At, b.At
	}
	p.Text = fmt.Sprintf("%s: about %s in, %s out, %d %% of attempts failed", title, number(sum.In),
		number(sum.Out), sum.FailurePercent)
	if own > 0 {
		p.Text += fmt.Sprintf("; %s to %s attempts %s", number(least), number(own), unit)
		p.Most = most
	}
	return p
}

func tried(c rates.Counts) int64 { return c.Out() + c.Failed }

func (p *Pages) search(v *visit) (any, error) {
	o := p.row("search")
	if v.query("q") == "" {
		return declaredView{Help: o.Help}, nil
	}
	view, err := p.detail(v, o)
	if found, _ := view.Answer.(search.Search); len(found.Items) == 1 && len(found.More) == 0 {
		if shows, err := url.Parse(found.Items[0].Path); err == nil { // the id may come from outside
			return nil, elsewhere("/ops/" + strings.TrimPrefix(shows.String(), looks))
		}
	}
	return view, err
}

// event is the page of an event, with its open dead letter.
func (p *Pages) event(v *visit) (any, error) {
	view, err := p.detail(v, p.row("events show"))
	event, _ := view.Answer.(events.Event)
	for _, dead := range event.DeadLetters {
		if dead.State == deadletter.Open && err == nil {
			show := p.row("dlq show")
			of := console.Input{Path: map[string]string{lastParam(show): dead.ID}}
			view.Others = map[string]any{}
			view.Others[show.Name], err = p.API.Call(v.ctx, show, of)
		}
	}
	return view, err
}

// account is the page of an account of points. Any other account has only a statement.
func (p *Pages) account(v *visit) (any, error) {
	name := v.param("account")
	if control := ledger.Control(name); control == name || ledger.Account(name).OfOrder() {
		return nil, elsewhere(href("/ops/accounts/%s/statement", control) + "?" + v.request.URL.RawQuery)
	}
	return p.detail(v, p.row("accounts show"))
}

func (p *Pages) balancesCSV(w http.ResponseWriter, r *http.Request) {
	v := p.visit(w, r)
	trial, err := look[seal.TrialBalance](p, v, "journal balances")
	if err != nil {
		p.fail(v, err)
		return
	}
	rows := [][]string{strings.Fields("tenant period account type currency opening debit credit closing")}
	for _, b := range slices.Concat(trial.Balances, trial.Totals) {
		row := []string{trial.Tenant, trial.Period, b.Account, b.Type, b.Currency}
		for _, amount := range []int64{b.Opening, b.Debit, b.Credit, b.Closing} {
			row = append(row, money.Text(amount, b.Currency))
		}
		rows = append(rows, row)
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="balances.csv"`)
	screen.CSV(w, rows)
}
