package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"billhook/e2e"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
)

// soak checks on Google's emulators that no event is lost or doubled, up to the balance, with two workers
// under kill -9. Some events are repeated, have an unknown product, or another payload under a used id.
func soak(flags *flag.FlagSet) func(*run) {
	events := flags.Int("events", 2000, "how many events")
	customers := flags.Int("customers", 200, "of how many customers")
	kills := flags.Int("kills", 5, "how often a worker is killed")
	return func(r *run) {
		d, planned := deploy(r), planWebhooks(r.seed, *events, *customers)
		began := time.Now()
		d.beside(func() {
			for i := range *kills {
				after := *events * (i + 1) / (*kills + 1)
				d.until(often, func() string {
					came := len(d.log.Deliveries(""))
					return unless(came >= after, "%d deliveries of %d", after-came, after)
				})
				d.kill()
			}
		}, func(context.Context) {
			d.forEach(len(planned), 8, func(i int) { // in order for each customer
				for _, w := range planned[i] {
					for _, body := range w.bodies {
						d.hook(w.order.EventID, body)
					}
				}
			})
		})
		last, since := -1, time.Now()
		d.settle(d.store, func() string {
			if n := len(d.log.Deliveries("")); n != last {
				last, since = n, time.Now()
			}
			return unless(time.Since(since) > 10*time.Second, "10 s without a delivery, of which %d came", last)
		})
		found, wrong := d.countOutcomes(planned)
		r.printf("handled in %s: %s\n", time.Since(began).Round(time.Second), found)
		d.printFailures()
		r.none(wrong)
	}
}

// webhook is an event and the bodies of its requests.
type webhook struct {
	order  e2e.Order
	bodies [][]byte
	// reason is its dead letter's; empty: none. With a conflict, the event is also credited.
	reason string
}

const (
	unknownProduct  = "unknown_product"
	payloadConflict = "payload_conflict"
)

// planWebhooks draws events by customer: 20 % are sent twice, 5 % have an unknown product, 2 % a conflict.
func planWebhooks(seed uint64, events, customers int) [][]webhook {
	d := newDrawing(seed)
	byCustomer := make([][]webhook, customers)
	for range events {
		customer := d.random.IntN(customers)
		w := webhook{order: d.order(customer, e2e.Product)}
		twice, draw := d.random.Float64() < 0.20, d.random.Float64()
		if draw < 0.05 {
			w.reason = unknownProduct
			w.order.Lines = append(w.order.Lines, e2e.Line{Product: e2e.UnknownProduct, Quantity: 1, Price: 500})
		}
		w.bodies = append(w.bodies, w.order.JSON())
		if twice {
			w.bodies = append(w.bodies, w.order.JSON())
		}
		if draw >= 0.05 && draw < 0.07 {
			w.reason = payloadConflict
			changed := w.order
			changed.Lines = []e2e.Line{{Product: e2e.Product, Quantity: 99, Price: 1000}}
			w.bodies = append(w.bodies, changed.JSON())
		}
		byCustomer[customer] = append(byCustomer[customer], w)
	}
	return byCustomer
}

type drawing struct {
	random *rand.Rand
	events int
}

func newDrawing(seed uint64) *drawing { return &drawing{random: rand.New(rand.NewPCG(seed, 1))} }

func (d *drawing) order(customer int, product string) e2e.Order {
	d.events++
	id := fmt.Sprintf("62000000%010d", d.events)
	return e2e.Order{
		EventID: id, OrderID: id + "1",
		CustomerID: fmt.Sprintf("63000000%010d", customer), UID: fmt.Sprint("user-", customer),
		Lines: []e2e.Line{{Product: product, Quantity: 1 + d.random.Int64N(5), Price: 1000}},
	}
}

func points(o e2e.Order) int64 { return o.Lines[0].Quantity * e2e.PointsPerPiece }

func (d *deployed) countOutcomes(planned [][]webhook) (found, wrong counts) {
	deadLetters, want, records := map[string]bool{}, map[string]int64{}, d.records(d.store)
	for _, item := range everything(d.run, d.store, deadletter.Collection, deadletter.ItemOf) {
		deadLetters[item.EventID+" "+item.Reason] = true
	}
	found, wrong = counts{"dead-lettered": len(deadLetters)}, counts{}
	for _, events := range planned {
		var times []time.Time
		for _, w := range events {
			if w.reason != "" && !deadLetters[w.order.EventID+" "+w.reason] {
				wrong.add("dead letters missing", 1)
			}
			want[w.order.UID] += 0 // a user without credits must have no points
			record := records[dedupe.Key(e2e.Queue, contract.DefaultTenant, w.order.EventID)]
			switch {
			case w.reason == unknownProduct && record.Status == dedupe.DeadLettered:
			case w.reason == unknownProduct || record.Status != dedupe.Completed:
				wrong.add("lost", 1)
			default:
				found.add("credited", 1)
				times = append(times, record.ProcessedAt)
				want[w.order.UID] += points(w.order)
			}
		}
		if !slices.IsSortedFunc(times, time.Time.Compare) {
			wrong.add("out of order", 1)
		}
	}
	for name, n := range d.wrongPoints(want) {
		wrong.add(name, n)
	}
	return found, wrong
}
