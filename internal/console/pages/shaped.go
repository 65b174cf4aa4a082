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
	hours, err := look[queues.Rates](p, v, "queues rates", "queue", id)
	if err != nil {
		return nil, err
	}
	days, err := look[queues.Rates](p, v, "queues rates", "queue", id, "days", "30")
	if err != nil {
		return nil, err
	}
	view.Facts = slices.DeleteFunc(view.Facts, func(c cell) bool {
		return c.Text == "0" || slices.Contains([]string{"Queue", "State", "Cause"}, c.Label)
	})
	view.Tables = slices.DeleteFunc(view.Tables, func(g grid) bool { return len(g.Rows) == 0 })
	return queuePage{
		view, plotOf("Attempts an hour, the last 24 hours", "an hour", buckets(hours, id), 0),
		plotOf("Attempts a day, the last 30 days", "a day", buckets(days, id), 0),
	}, nil
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
	// Most is the scale of all charts, from 0, and From the beginning of their first hour.
	Most int64
	From time.Time
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
	hours, err := look[queues.Rates](p, v, "queues rates")
	if err != nil {
		return nil, err
	}
	page.Summary = strings.TrimSuffix(page.Notes()[0], ".")
	most, from := int64(0), v.now // of any queue in an hour: the charts have one scale
	for _, series := range hours.Items {
		for _, b := range series.Buckets {
			most = max(most, tried(b.Counts))
		}
		from = series.Buckets[0].At
	}
	table, compare := queueTable{Most: most, From: from}, sorts[1].compare
	for _, s := range sorts {
		head := link{Address: with("/ops/", "sort", s.by), Name: s.name, Current: v.query("sort") == s.by}
		if table.Heads = append(table.Heads, head); head.Current {
			compare = s.compare
		}
	}
	page.Need, page.Well = table, table
	for _, q := range slices.SortedStableFunc(slices.Values(page.Items), func(a, b queues.Queue) int {
		return cmp.Or(
			compare(a, b), a.State.Compare(b.State), cmp.Compare(b.LastHour.FailurePercent, a.LastHour.FailurePercent),
			byDeadLetters(a, b), byWaiting(a, b),
		)
	}) {
		page.ForApproval += q.Waiting.ForApproval.Count
		in := &page.Need
		if q.State == queues.Working || q.State == queues.Off {
			in = &page.Well
		}
		in.Rows = append(in.Rows, queueRow{Queue: q, Hours: plotOf("The last 24 hours", "an hour", buckets(hours, q.ID), most)})
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
	{"failed", "Last hour", func(a, b queues.Queue) int { return cmp.Compare(b.LastHour.FailurePercent, a.LastHour.FailurePercent) }},
	{"rate", "24 hours", func(a, b queues.Queue) int { return cmp.Compare(b.LastHour.In, a.LastHour.In) }},
}

func byDeadLetters(a, b queues.Queue) int {
	return cmp.Compare(b.DeadLetters.Count.Count, a.DeadLetters.Count.Count)
}

func byWaiting(a, b queues.Queue) int { return cmp.Compare(b.Waiting.Total(), a.Waiting.Total()) }

type plot struct {
	// Text is the chart in a sentence, for those who do not see it.
	Title, Text string
	Bars        []bar
	Most        int64
	From, To    time.Time
	Empty       bool
}

type bar struct{ Done, Failed int64 }

func plotOf(title, unit string, buckets []rates.Bucket, most int64) plot {
	p, least, own, sum := plot{Title: title}, int64(math.MaxInt64), int64(0), rates.Counts{}
	for _, b := range buckets {
		least, own, sum = min(least, tried(b.Counts)), max(own, tried(b.Counts)), sum.Plus(b.Counts)
		p.Bars = append(p.Bars, bar{b.Processed + b.Other, b.Dead + b.Failed})
	}
	p.Text = fmt.Sprintf("%s: about %s in, %s out, %d %% of attempts failed", title, number(sum.In), number(sum.Out()), sum.FailurePercent())
	if p.Empty = own == 0; !p.Empty {
		p.Text += fmt.Sprintf("; %s to %s attempts %s", number(least), number(own), unit)
		p.Most, p.From, p.To = max(most, own), buckets[0].At, buckets[len(buckets)-1].At
	}
	return p
}

func tried(c rates.Counts) int64 { return c.Processed + c.Other + c.Dead + c.Failed }

func buckets(all queues.Rates, queue string) []rates.Bucket {
	for _, series := range all.Items {
		if series.Queue == queue {
			return series.Buckets
		}
	}
	return nil
}

func (p *Pages) search(v *visit) (any, error) {
	o := p.row("search")
	if v.query("q") == "" {
		return declaredView{Help: o.Help}, nil
	}
	view, err := p.detail(v, o)
	if found, _ := view.Answer.(search.Search); len(found.Items) == 1 {
		if shows, err := url.Parse(found.Items[0].Path); err == nil { // others have written the id in it
			return nil, elsewhere("/ops/" + strings.TrimPrefix(shows.String(), looks))
		}
	}
	return view, err
}

// event is the page of an event, and of the dead letter that it has become until somebody has dealt with that.
func (p *Pages) event(v *visit) (any, error) {
	view, err := p.detail(v, p.row("events show"))
	event, _ := view.Answer.(events.Event)
	for _, dead := range event.DeadLetters {
		if dead.State == deadletter.Open && err == nil {
			show := p.row("dlq show")
			view.Others = map[string]any{}
			view.Others[show.Name], err = p.API.Call(v.ctx, show, console.Input{Path: map[string]string{lastParam(show): dead.ID}})
		}
	}
	return view, err
}

// account is the page of an account of points. Of another one there is the statement.
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
	rows := [][]string{{"tenant", "period", "account", "type", "currency", "opening", "debit", "credit", "closing"}}
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
