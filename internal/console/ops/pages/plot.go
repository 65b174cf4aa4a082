package pages

import (
	"fmt"
	"strings"

	"billhook/internal/console/ops"
	"billhook/internal/pipeline/rates"
)

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

// plotOf draws what has ended, and the failures on top of that.
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

// bucketsOf are those of a queue.
func bucketsOf(all ops.Rates, queue string) []rates.Bucket {
	for _, series := range all.Items {
		if series.Queue == queue {
			return series.Buckets
		}
	}
	return nil
}
