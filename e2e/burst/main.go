// Command burst measures what an unknown product and a burst of orders cost other customers,
// before and after a change of the catalog's numbers, in one run on the embedded stack, in real
// time:
//
//	go run ./e2e/burst [-seed N] [-orders 1500] [-senders 64] [-rounds 1] [-patience 110s]
//
// The first part measures how long a good order waits behind twenty orders of an unknown
// product, each of another customer, and behind refunds that come before their orders. The
// second part measures the throughput of many senders by how long a message waits for a slot.
// In a closed loop a sender waits until its order is credited; in an open one it continues as
// soon as the webhook is accepted. The variants differ only in the catalog's numbers. The one
// that waits for minutes runs beside the others.
//
// A seed repeats the plan: customers and quantities. Timing is up to the machine. The command
// exits non-zero where an order was lost or doubled, or a dead letter is missing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"billhook/catalog"
	"billhook/internal/platform/serve"
)

func main() {
	serve.Main("burst", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("burst", flag.ContinueOnError)
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "repeats a run's plan")
	orders := flags.Int("orders", 1500, "how many orders a burst has")
	senders := flags.Int("senders", 64, "how many send at once")
	rounds := flags.Int("rounds", 1, "how often each burst is sent, one side after the other")
	forgotten := flags.Int("forgotten", 20, "how many orders of a forgotten product come before the good one")
	refunds := flags.Int("refunds", 5, "how many refunds come before their orders, and before the good one")
	patience := flags.Duration("patience", 110*time.Second, "how long the good order is waited for without a budget")
	if err := flags.Parse(args); err != nil {
		return err
	}
	shipped, err := catalog.Load("")
	if err != nil {
		return err
	}
	started := time.Now()
	_, _ = fmt.Fprintf(stdout, "seed %d: %d cores, %s %s/%s\n\n", *seed, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)

	p := &plan{random: rand.New(rand.NewPCG(*seed, 1))}
	behind := stalls(p, *forgotten, *refunds)
	slow := make(chan error, 1)
	go func() {
		short, cancel := context.WithTimeout(ctx, *patience)
		defer cancel()
		slow <- behind[0].measure(ctx, short)
	}()
	var broken []error
	for _, s := range behind[1:] {
		broken = append(broken, s.measure(ctx, ctx))
	}
	loads := bursts(shipped)
	for range *rounds {
		for _, l := range loads {
			broken = append(broken, l.measure(ctx, p.orders(*orders), *senders))
		}
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintf(table, "a burst of %d senders\tslot_wait\tcredits/s\t\tp50\tp99\t\trefused\tnacked\tof the machine\n", *senders)
	for i, l := range loads {
		l.print(table, loads[i-i%2])
	}
	_ = table.Flush() // to stdout, like all output
	broken = append(broken, <-slow)
	_, _ = fmt.Fprintln(table, "\na good order behind\ton_terminal\tnack_budget\twaited\tdead letters\tnacked")
	for _, s := range behind {
		s.print(table)
	}
	_ = table.Flush()
	_, _ = fmt.Fprintf(stdout, "\nin %s\n", time.Since(started).Round(time.Second))
	return errors.Join(broken...)
}
