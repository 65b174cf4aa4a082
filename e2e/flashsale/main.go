// Command flashsale sells a hundred pieces of one product to three thousand buyers at once. Their
// orders come through the door in one burst, open loop: nobody waits for anybody's order. Two
// workers take them, and each second one of them is killed with SIGKILL and started again. Whoever
// gets a piece reserved pays. Then it counts.
//
//	go run ./e2e/flashsale [-stack simulator|emulators] [-orders 3000] [-pieces 100] [-kills-every 1s]
//
// The services are the real binaries. On the emulators of Google nothing is slowed down. In the
// simulator a commit takes 20 ms, a read 5 to 10 ms and a publish 30 ms, as in production.
//
// The command exits non-zero unless as many orders are confirmed as there were pieces, and all
// others are cancelled, each with a reason; the stock is sold out; and every buyer was told once,
// on each channel.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"billhook/internal/platform/serve"
)

func main() {
	serve.Main("flashsale", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

// sale is what is asked for.
type sale struct {
	orders, pieces int
	killsEvery     time.Duration
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	kind := flags.String("stack", "simulator", "where it runs: simulator or emulators")
	orders := flags.Int("orders", 3000, "how many orders come at once")
	pieces := flags.Int("pieces", 100, "how many pieces there are")
	killsEvery := flags.Duration("kills-every", time.Second, "how often a worker is killed; 0: never")
	patience := flags.Duration("patience", 15*time.Minute, "how long it may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	opened := map[string]func(context.Context, string) (*place, error){"simulator": simulated, "emulators": emulated}[*kind]
	if opened == nil || *orders < 1 || *pieces < 0 {
		return fmt.Errorf("-stack is simulator or emulators, -orders at least 1, -pieces at least 0")
	}
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()
	s, err := start(ctx, opened)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	asked := sale{*orders, *pieces, *killsEvery}
	_, _ = fmt.Fprintf(stdout, "%s: %d orders for %d pieces, two workers, kill -9 every %s; %d cores, %s %s/%s\n",
		*kind, asked.orders, asked.pieces, asked.killsEvery, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	took, err := s.sell(ctx, asked, stdout)
	if err != nil {
		return err
	}
	out, err := s.count(ctx, asked)
	if err != nil {
		return err
	}
	out.print(stdout)
	s.why(stdout)
	_, _ = fmt.Fprintf(stdout, "the door had taken all after %s, every order had ended after %s, every buyer was told after %s; %d refusals at the door, %d kills -9 that left %d pushes unanswered\n",
		short(took.taken), short(took.ended), short(took.told), took.refused, s.kills, s.unanswered.Load())
	return out.judge(asked)
}

func short(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// outcome is what has become of a sale.
type outcome struct {
	confirmed int
	// cancelled counts orders by reason.
	cancelled map[string]int
	// open counts the orders in any other state, by state.
	open                      map[string]int
	available, reserved, sold int64
	// lost are the orders that are not there. doubled are those that have passed a state twice.
	lost, doubled int
	// told counts the notifications that were taken, by type.
	told map[string]int
	// wanted are as many as there should be.
	wanted map[string]int
	// toldTwice counts the notifications that were taken more than once.
	toldTwice int
	// letters counts the dead letters.
	letters int
}

func (o outcome) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "confirmed %d, cancelled %s; stock: %d available, %d reserved, %d sold\n",
		o.confirmed, spelled(o.cancelled), o.available, o.reserved, o.sold)
	_, _ = fmt.Fprintf(w, "lost %d, doubled %d, in another state %s, dead letters %d\n", o.lost, o.doubled, spelled(o.open), o.letters)
	_, _ = fmt.Fprintf(w, "notifications: %s; told twice: %d\n", spelled(o.told), o.toldTwice)
}

// why says, from the workers' log, how deliveries were answered other than by success, by queue.
// What a killed worker had in hand it has not logged.
func (s *stack) why(w io.Writer) {
	others := map[string]map[string]int{}
	for _, d := range s.log.Deliveries("") {
		if d.Outcome == "processed" {
			continue
		}
		if others[d.Queue] == nil {
			others[d.Queue] = map[string]int{}
		}
		name := d.Reason
		switch {
		case d.Message == "attempt again":
			name += " (waited in its request)"
		case d.Outcome == "retry" && d.Status < http.StatusMultipleChoices:
			name += " (kept)"
		case d.Outcome == "retry":
			name += " (nacked)"
		}
		others[d.Queue][name]++
	}
	for _, queue := range slices.Sorted(maps.Keys(others)) {
		_, _ = fmt.Fprintf(w, "%s, deliveries besides those that succeeded: %s\n", queue, spelled(others[queue]))
	}
}

// spelled lists counts by name.
func spelled(counts map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// judge returns an error that says what is wrong.
func (o outcome) judge(asked sale) error {
	var wrong []error
	must := func(holds bool, format string, args ...any) {
		if !holds {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	want, cancelled := min(asked.pieces, asked.orders), 0
	for _, n := range o.cancelled {
		cancelled += n
	}
	must(o.confirmed == want, "%d orders are confirmed, not %d", o.confirmed, want)
	must(cancelled == asked.orders-want, "%d orders are cancelled, not %d", cancelled, asked.orders-want)
	must(o.cancelled[""] == 0, "%d orders are cancelled without a reason", o.cancelled[""])
	must(len(o.open) == 0, "orders rest in another state: %s", spelled(o.open))
	must(o.lost == 0 && o.doubled == 0, "%d orders are lost, %d doubled", o.lost, o.doubled)
	must(o.available == int64(asked.pieces-want) && o.reserved == 0 && o.sold == int64(want), "the stock is %d available, %d reserved, %d sold", o.available, o.reserved, o.sold)
	must(maps.Equal(o.told, o.wanted), "notifications: %s, not %s", spelled(o.told), spelled(o.wanted))
	must(o.toldTwice == 0, "%d notifications were taken twice", o.toldTwice)
	must(o.letters == 0, "%d messages are dead letters", o.letters)
	return errors.Join(wrong...)
}
