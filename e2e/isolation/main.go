// Command isolation measures what one queue's target, or one queue's flood, costs the other
// queues of the same worker, in one run on the embedded stack, in real time:
//
//	go run ./e2e/isolation [-events 400] [-rate 50] [-rounds 3] [-only regexp]
//
// Each row is a target that means harm. While its queue gets two events for each of the
// payments' queue, the time from the publish of a payment event to its acknowledgement is
// measured, and the most memory that a garbage collection leaves in use. Directly before it, the
// same is measured with a target that behaves; the ratios are to that. Figures are medians of the
// rounds. The targets that mean harm have no breaker, so that they do
// harm all the time. In the last row the target behaves and takes 200 ms, and its queue gets ten
// times the events that it can handle; there, the row before has none.
//
// Webhook service, worker, broker, store and targets are one process here. Deployed, each pool
// has a worker of its own, so that what they share here is more than what they share there.
//
// The command exits non-zero where an event of the payments' queue was not posted exactly once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"text/tabwriter"
	"time"

	"billhook/internal/platform/serve"
)

func main() {
	serve.Main("isolation", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("isolation", flag.ContinueOnError)
	events := flags.Int("events", 400, "how many payment events a measurement has")
	rate := flags.Int("rate", 50, "how many payment events are published a second")
	rounds := flags.Int("rounds", 3, "how often each row is measured, with and without")
	only := flags.String("only", "", "measure the rows whose name this matches")
	if err := flags.Parse(args); err != nil {
		return err
	}
	matches, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	started := time.Now()
	_, _ = fmt.Fprintf(stdout, "%d payment events, %d a second: %d cores, %s %s/%s\n\n", *events, *rate, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "the other target\tits requests\tp50\t\tp99\t\tmemory\t")
	var broken []error
	for _, r := range rows() {
		if !matches.MatchString(r.name) {
			continue
		}
		var measured []pair
		for range *rounds {
			without, err := measure(ctx, load{*events, *rate, r.beside.perEvent}, r.beside.target)
			if err != nil {
				broken = append(broken, fmt.Errorf("beside a target that behaves: %w", err))
				continue
			}
			with, err := measure(ctx, load{*events, *rate, r.perEvent}, r.target)
			if err != nil {
				broken = append(broken, fmt.Errorf("%s: %w", r.name, err))
				continue
			}
			measured = append(measured, pair{with, without})
		}
		tell(table, r.name, measured)
	}
	_ = table.Flush() // to stdout, like all output
	_, _ = fmt.Fprintf(stdout, "\nin %s\n", time.Since(started).Round(time.Second))
	return errors.Join(broken...)
}

// row is one comparison: a target, and how many events its queue gets for each of the payments'.
type row struct {
	name     string
	target   target
	perEvent int
	// beside is what it is compared with.
	beside struct {
		target   target
		perEvent int
	}
}

func rows() []row {
	var all []row
	for _, t := range hostile {
		r := row{name: t.name, target: t.target, perEvent: 2}
		r.beside.target, r.beside.perEvent = behaves(0), r.perEvent
		all = append(all, r)
	}
	// Ten slots for 200 ms each are 50 events a second: as many as the payments' queue gets.
	flood := row{name: "ten times what it can handle", target: behaves(200 * time.Millisecond), perEvent: 10}
	flood.beside.target = flood.target
	return append(all, flood)
}
