// Command soak proves the one promise on Google's emulators with thousands of PayNow's events.
// Some are sent twice, some have unknown products, some have another payload under a used id.
// Meanwhile the worker is killed with SIGKILL and restarted. Then it counts the results. It
// exits non-zero if anything is lost, doubled or out of order, or a balance is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/dedupe"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

func main() {
	serve.Main("soak", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout) })
}

// senders is how many customers' events are sent at once.
const senders = 8

// event is one webhook of the plan.
type event struct {
	order   e2e.Order
	twice   bool
	unknown bool
	// changed is sent after it: the same id with another payload.
	changed *e2e.Order
}

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "repeats a run's plan")
	events := flags.Int("events", 2000, "how many events")
	customers := flags.Int("customers", 200, "of how many customers")
	kills := flags.Int("kills", 5, "how often the worker is killed")
	patience := flags.Duration("patience", 15*time.Minute, "how long it may take")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()
	_, _ = fmt.Fprintf(stdout, "seed %d: %d events of %d customers, %d kills\n", *seed, *events, *customers, *kills)

	sdk, err := emulator.Find(ctx)
	if err != nil {
		return err
	}
	broker, database, err := sdk.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Stop(), database.Stop()) }()
	c, err := catalog.Load("")
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "billhook-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	const project = "soak"
	running, err := e2e.StartReal(ctx, e2e.Site{
		Folder: folder, Project: project, Broker: broker.Addr(), Database: database.Addr(), Provision: e2e.Provisioned(project, c),
	})
	if err != nil {
		return err
	}
	defer running.Close()

	planned := plan(rand.New(rand.NewPCG(*seed, 1)), *events, *customers)
	started := time.Now()
	sent, err := drive(ctx, running, planned, *kills)
	if err != nil {
		return err
	}
	r, err := settle(ctx, running, planned)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "sent %d in %s: credited %d, duplicates %d, dead-lettered %d (of %d)\n",
		sent, time.Since(started).Round(time.Second), r.credited, r.duplicates, r.deadLettered, r.toDeadLetter)
	_, _ = fmt.Fprintf(stdout, "lost %d, doubled %d, out of order %d, other balances wrong %d, dead letters missing %d\n",
		r.lost, r.doubled, r.outOfOrder, r.wrongBalances, r.missingLetters)
	if r.lost+r.doubled+r.outOfOrder+r.wrongBalances+r.missingLetters > 0 {
		return errors.New("the promise is broken")
	}
	return nil
}

// plan draws the events by customer: 20 % are sent twice, 5 % have an unknown product, 2 % are
// followed by another payload under their id.
func plan(random *rand.Rand, events, customers int) [][]event {
	byCustomer := make([][]event, customers)
	for i := range events {
		customer := random.IntN(customers)
		id := fmt.Sprintf("60000000%010d", i)
		e := event{order: e2e.Order{
			EventID: id, OrderID: id + "1", CustomerID: fmt.Sprintf("61000000%010d", customer), UID: fmt.Sprintf("soak-user-%d", customer),
			Lines: []e2e.Line{{Product: e2e.Product, Quantity: 1 + random.Int64N(5), Price: 1000}},
		}}
		e.twice = random.Float64() < 0.20
		switch draw := random.Float64(); {
		case draw < 0.05:
			e.unknown = true
			e.order.Lines = append(e.order.Lines, e2e.Line{Product: e2e.UnknownProduct, Quantity: 1, Price: 500})
		case draw < 0.07:
			changed := e.order
			changed.Lines = []e2e.Line{{Product: e2e.Product, Quantity: 99, Price: 1000}}
			e.changed = &changed
		}
		byCustomer[customer] = append(byCustomer[customer], e)
	}
	return byCustomer
}

// drive sends all events, those of a customer one after the other, and kills the worker at
// regular intervals. It returns how many webhooks were accepted.
func drive(ctx context.Context, running *e2e.Real, planned [][]event, kills int) (int, error) {
	total := 0
	for _, events := range planned {
		total += len(events)
	}
	killed := make(chan error, 1)
	go func() { killed <- kill(ctx, running, total, kills) }()
	var sent atomic.Int64
	var sending errgroup.Group
	sending.SetLimit(senders)
	for _, events := range planned {
		sending.Go(func() error {
			for _, e := range events {
				n, err := send(ctx, running.WebhookURL, e)
				if err != nil {
					return fmt.Errorf("event %s: %w", e.order.EventID, err)
				}
				sent.Add(int64(n))
			}
			return nil
		})
	}
	err := sending.Wait()
	return int(sent.Load()), errors.Join(err, <-killed)
}

func kill(ctx context.Context, running *e2e.Real, total, kills int) error {
	for i := range kills {
		after := total * (i + 1) / (kills + 2)
		err := running.Log.Until(ctx, func() bool { return running.Log.Count("delivery") >= after })
		if err != nil {
			return fmt.Errorf("kill %d: %w", i+1, err)
		}
		running.KillWorker()
		if err := running.RestartWorker(ctx); err != nil {
			return err
		}
	}
	return nil
}

// send sends one event of the plan until it is accepted, and returns its number of webhooks.
func send(ctx context.Context, base string, e event) (int, error) {
	bodies := [][]byte{e.order.JSON()}
	if e.twice {
		bodies = append(bodies, e.order.JSON())
	}
	if e.changed != nil {
		bodies = append(bodies, e.changed.JSON())
	}
	for _, body := range bodies {
		if _, _, err := e2e.Accept(ctx, base, body); err != nil {
			return 0, err
		}
	}
	return len(bodies), nil
}

// result holds the counts.
type result struct {
	credited, duplicates, deadLettered, toDeadLetter         int
	lost, doubled, outOfOrder, wrongBalances, missingLetters int
}

// settle waits until there was no delivery for ten seconds, then counts.
func settle(ctx context.Context, running *e2e.Real, planned [][]event) (result, error) {
	var r result
	letters := map[string]bool{}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last, quiet := -1, 0; quiet < 10; {
		found, err := running.DeadLetters(ctx)
		if err != nil {
			return r, err
		}
		for _, m := range found {
			// A kill between the confirmed dead letter and the record causes a second copy of
			// the same source message. In the store it is one item.
			letters[m.Attributes["event_id"]+" "+m.Attributes["dead_letter_reason"]] = true
		}
		if n := running.Log.Count("delivery"); n != last {
			last, quiet = n, 0
		} else {
			quiet++
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r, fmt.Errorf("waiting for the end: %w", ctx.Err())
		}
	}
	for _, d := range running.Log.Deliveries("") {
		if d.Outcome == "duplicate" {
			r.duplicates++
		}
	}
	r.deadLettered = len(letters)
	for _, events := range planned {
		for _, e := range events {
			var reason string
			switch {
			case e.unknown:
				reason = "unknown_product"
			case e.changed != nil:
				reason = "payload_conflict"
			default:
				continue
			}
			r.toDeadLetter++
			if !letters[e.order.EventID+" "+reason] {
				r.missingLetters++
			}
		}
		if err := r.count(ctx, running, events); err != nil {
			return r, err
		}
	}
	return r, nil
}

// count compares one customer's events and balance with the plan.
func (r *result) count(ctx context.Context, running *e2e.Real, events []event) error {
	if len(events) == 0 {
		return nil
	}
	var want int64
	var order []time.Time
	for _, e := range events {
		doc, err := running.Store.Get(ctx, dedupe.Key(e2e.Queue, dedupe.DefaultTenant, e.order.EventID))
		if errors.Is(err, store.ErrNotFound) {
			r.lost++
			continue
		}
		if err != nil {
			return err
		}
		record, err := dedupe.FromDocument(doc)
		switch {
		case err != nil:
			return err
		case e.unknown && record.Status == dedupe.DeadLettered:
			continue
		case e.unknown || record.Status != dedupe.Completed:
			r.lost++
			continue
		}
		r.credited++
		order = append(order, record.ProcessedAt)
		for _, line := range e.order.Lines {
			want += line.Quantity * e2e.PointsPerPiece
		}
	}
	if !slices.IsSortedFunc(order, time.Time.Compare) {
		r.outOfOrder++
	}
	balance, err := e2e.Points(ctx, running.Store, events[0].order.UID)
	if err != nil {
		return err
	}
	switch {
	case balance > want:
		r.doubled++
	case balance < want:
		r.wrongBalances++
	}
	return nil
}
