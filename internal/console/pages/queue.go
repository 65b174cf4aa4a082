package pages

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"billhook/internal/console"
	"billhook/internal/pipeline/queues"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
)

type queuePage struct {
	queues.QueueDetail

	Facts       []cell
	Tables      []grid
	Hours, Days plot
}

func (p *Pages) queue(v *visit) (any, error) {
	var page queuePage
	var err error
	if page.QueueDetail, err = look[queues.QueueDetail](p, v, "queues show"); err != nil {
		return nil, err
	}
	hours, err := look[queues.Rates](p, v, "queues rates", "queue", page.ID)
	if err != nil {
		return nil, err
	}
	days, err := look[queues.Rates](p, v, "queues rates", "queue", page.ID, "days", "30")
	if err != nil {
		return nil, err
	}
	changes, err := look[console.List[audit.Entry]](p, v, "queues history", "limit", "5")
	if err != nil {
		return nil, err
	}
	facts, tables := p.facts(v, p.row("queues show"), page.QueueDetail)
	page.Facts = slices.DeleteFunc(facts, func(c cell) bool {
		return c.Text == "" || c.Text == "0" || slices.Contains([]string{"Queue", "State", "Cause"}, c.Label)
	})
	made := gridOf(p.row("queues history").Columns, reflect.ValueOf(changes.Items), "")
	made.Title = "Changes"
	page.Tables = slices.DeleteFunc(append(tables, made), func(g grid) bool { return len(g.Rows) == 0 })
	page.Hours, page.Days = plotOf("24 hours", buckets(hours, page.ID), 0), plotOf("30 days", buckets(days, page.ID), 0)
	return page, nil
}

type overview struct {
	queues.Queues

	// Summary is how many queues need somebody. Need are those that say something, and Well the others.
	Summary    string
	Need, Well queueTable
	// BooksOf is a tenant of whom the verification of the books has found something.
	BooksOf     string
	ForApproval int64
}

type queueTable struct {
	Heads []link
	Rows  []queueRow
}

type queueRow struct {
	queues.Queue

	Hours plot
}

func (p *Pages) overview(v *visit) (any, error) {
	page := overview{BooksOf: v.tenant()}
	var err error
	if page.Queues, err = look[queues.Queues](p, v, "queues ls"); err != nil {
		return nil, err
	}
	hours, err := look[queues.Rates](p, v, "queues rates")
	if err != nil {
		return nil, err
	}
	page.Summary = page.Notes()[0]
	if len(page.Books.Findings) > 0 {
		page.BooksOf = page.Books.Findings[0].Tenant
	}
	var most int64 // of any queue in an hour: the pictures have one scale
	for _, series := range hours.Items {
		for _, b := range series.Buckets {
			most = max(most, tried(b.Counts))
		}
	}
	for _, q := range page.Items {
		page.ForApproval += q.Waiting.ForApproval.Count
		row := queueRow{Queue: q, Hours: plotOf("24 hours", buckets(hours, q.ID), most)}
		if q.State == queues.Working || q.State == queues.Off {
			page.Well.Rows = append(page.Well.Rows, row)
		} else {
			page.Need.Rows = append(page.Need.Rows, row)
		}
	}
	for _, table := range []*queueTable{&page.Need, &page.Well} {
		compare := sorts[1].compare
		for _, s := range sorts {
			head := link{Address: with("/ops/", "sort", s.by), Name: s.name, Current: v.query("sort") == s.by}
			if table.Heads = append(table.Heads, head); head.Current {
				compare = s.compare
			}
		}
		slices.SortStableFunc(table.Rows, func(a, b queueRow) int {
			return cmp.Or(compare(a.Queue, b.Queue), a.State.Compare(b.State), cmp.Compare(b.LastHour.FailurePercent, a.LastHour.FailurePercent), byDeadLetters(a.Queue, b.Queue), byWaiting(a.Queue, b.Queue))
		})
	}
	return page, nil
}

// sorts are the columns of the overview, by which it can be sorted.
var sorts = []struct {
	by, name string
	compare  func(a, b queues.Queue) int
}{
	{"queue", "Queue", func(a, b queues.Queue) int { return cmp.Compare(a.ID, b.ID) }},
	{"", "State", func(a, b queues.Queue) int { return a.State.Compare(b.State) }},
	{"dead_letters", "Dead letters", byDeadLetters},
	{"waiting", "Waiting", byWaiting},
	{"rate", "24 hours", func(a, b queues.Queue) int { return cmp.Compare(b.LastHour.In, a.LastHour.In) }},
}

func byDeadLetters(a, b queues.Queue) int {
	return cmp.Compare(b.DeadLetters.Count.Count, a.DeadLetters.Count.Count)
}

func byWaiting(a, b queues.Queue) int { return cmp.Compare(b.Waiting.Total(), a.Waiting.Total()) }

// plot is a small picture of buckets: a bar for each, the oldest first. Done and Failed are paths of SVG,
// in a box of Width and Height.
type plot struct {
	// Text says what is seen, for those who do not see it.
	Text          string
	Done, Failed  string
	Width, Height int
	Empty         bool
}

// The measures of a plot.
const (
	plotHeight = 40
	barWidth   = 6
	barGap     = 1
)

// plotOf is the picture of buckets where most is as high as it is; 0: the most of them is.
func plotOf(of string, buckets []rates.Bucket, most int64) plot {
	p := plot{Width: len(buckets) * (barWidth + barGap), Height: plotHeight}
	var own int64
	var sum rates.Counts
	for _, b := range buckets {
		own, sum = max(own, tried(b.Counts)), sum.Plus(b.Counts)
	}
	p.Text = fmt.Sprintf("%s: about %s in, %s out, %d %% of attempts failed; at most %s in one bar", of, number(sum.In), number(sum.Out()), sum.FailurePercent(), number(own))
	if p.Empty = own == 0; p.Empty {
		return p
	}
	most = max(most, own)
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

func tried(c rates.Counts) int64 { return c.Processed + c.Other + c.Dead + c.Failed }

func buckets(all queues.Rates, queue string) []rates.Bucket {
	for _, series := range all.Items {
		if series.Queue == queue {
			return series.Buckets
		}
	}
	return nil
}
