package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"billhook/e2e"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

// soak proves the one promise from the webhook to the balance, on Google's emulators, with thousands of PayNow's
// events. Some are sent twice, some have unknown products, some have another payload under a used id. Meanwhile the
// workers are killed with SIGKILL in turn. It fails if anything is lost, doubled or out of order, a balance is wrong, or a
// dead letter is missing.
func soak(flags *flag.FlagSet) func(*run) {
	events := flags.Int("events", 2000, "how many events")
	customers := flags.Int("customers", 200, "of how many customers")
	kills := flags.Int("kills", 5, "how often a worker is killed")
	return func(r *run) {
		s, planned := open(r), planWebhooks(r.seed, *events, *customers)
		r.printf("%d events of %d customers, two workers, %d kills -9\n", *events, *customers, *kills)
		began := time.Now()
		sent, refused := s.soak(r, planned, *kills)
		found, wrong := s.reckon(r, planned)
		r.printf("sent %d in %s: %s, duplicates %d; %d refusals by the webhook service, %d kills -9 that left %d pushes unanswered\n",
			sent, time.Since(began).Round(time.Second), found, s.others()[e2e.Queue]["processed_before"], refused, s.kills, s.unanswered.Load())
		judgeSoak(r, wrong)
	}
}

type webhook struct {
	order e2e.Order
	twice bool
	// changed is sent after it: the same id with another payload.
	changed *e2e.Order
	// reason is that of its dead letter; empty: there is none. A conflict is one beside the event that was credited.
	reason string
}

const (
	unknownProduct  = "unknown_product"
	payloadConflict = "payload_conflict"
)

// planWebhooks draws the events by customer: 20 % are sent twice, 5 % have an unknown product, 2 % are followed by another
// payload under their id.
func planWebhooks(seed uint64, events, customers int) [][]webhook {
	random := rand.New(rand.NewPCG(seed, 1))
	byCustomer := make([][]webhook, customers)
	for i := range events {
		customer := random.IntN(customers)
		id := fmt.Sprintf("60000000%010d", i)
		w := webhook{twice: random.Float64() < 0.20, order: e2e.Order{
			EventID: id, OrderID: id + "1", CustomerID: fmt.Sprintf("61000000%010d", customer), UID: fmt.Sprintf("soak-user-%d", customer),
			Lines: []e2e.Line{{Product: e2e.Product, Quantity: 1 + random.Int64N(5), Price: 1000}},
		}}
		switch draw := random.Float64(); {
		case draw < 0.05:
			w.reason = unknownProduct
			w.order.Lines = append(w.order.Lines, e2e.Line{Product: e2e.UnknownProduct, Quantity: 1, Price: 500})
		case draw < 0.07:
			w.reason = payloadConflict
			changed := w.order
			changed.Lines = []e2e.Line{{Product: e2e.Product, Quantity: 99, Price: 1000}}
			w.changed = &changed
		}
		byCustomer[customer] = append(byCustomer[customer], w)
	}
	return byCustomer
}

// soak sends all events, those of a customer one after the other, while the workers are killed at regular intervals, and
// waits until there was no delivery for ten seconds. It returns how many webhooks were accepted, and how many refused before.
func (s *site) soak(r *run, planned [][]webhook, kills int) (sent, refused int64) {
	var accepted, refusals atomic.Int64
	total := 0
	var sending errgroup.Group
	sending.SetLimit(8 + 1)
	for _, events := range planned {
		total += len(events)
	}
	sending.Go(func() error {
		for i := range kills {
			after := total * (i + 1) / (kills + 2)
			r.must(s.log.Until(r.ctx, func() bool { return len(s.log.Deliveries("")) >= after }))
			s.kill(r)
		}
		return nil
	})
	for _, events := range planned {
		sending.Go(func() error {
			for _, w := range events {
				bodies := [][]byte{w.order.JSON()}
				if w.twice {
					bodies = append(bodies, w.order.JSON())
				}
				if w.changed != nil {
					bodies = append(bodies, w.changed.JSON())
				}
				for _, body := range bodies {
					_, n, err := e2e.Accept(r.ctx, s.webhook.URL, body)
					require.NoError(r, err, "event %s", w.order.EventID)
					accepted.Add(1)
					refusals.Add(int64(n))
				}
			}
			return nil
		})
	}
	r.must(sending.Wait())
	last, since := -1, time.Now()
	s.settle(r, s.store, func() bool {
		if n := len(s.log.Deliveries("")); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 10*time.Second
	})
	return accepted.Load(), refusals.Load()
}

func judgeSoak(r *run, wrong counts) {
	if wrong.total() > 0 {
		r.broken("%s", wrong)
	}
}

func (s *site) reckon(r *run, planned [][]webhook) (found, wrong counts) {
	deadLetters := map[string]bool{}
	each(r, s.store, deadletter.Collection, nil, func(doc store.Document) {
		item, err := deadletter.ItemOf(doc)
		r.must(err)
		deadLetters[item.EventID+" "+item.Reason] = true
	})
	found, wrong = counts{"dead-lettered": len(deadLetters)}, counts{}
	for _, events := range planned {
		var want, balance int64
		var times []time.Time
		for _, w := range events {
			if w.reason != "" && !deadLetters[w.order.EventID+" "+w.reason] {
				wrong.add("dead letters missing", 1)
			}
			status := dedupe.Completed
			if w.reason == unknownProduct {
				status = dedupe.DeadLettered
			}
			doc, err := s.store.Get(r.ctx, dedupe.Key(e2e.Queue, contract.DefaultTenant, w.order.EventID))
			var record dedupe.Record
			if err == nil {
				record, err = dedupe.FromDocument(doc)
			}
			switch {
			case errors.Is(err, store.ErrNotFound), err == nil && record.Status != status:
				wrong.add("lost", 1)
			case err != nil:
				r.must(err)
			case status == dedupe.Completed:
				found.add("credited", 1)
				times = append(times, record.ProcessedAt)
				want += w.order.Lines[0].Quantity * e2e.PointsPerPiece
			}
			balance, err = e2e.Points(r.ctx, s.store, w.order.UID)
			r.must(err)
		}
		if !slices.IsSortedFunc(times, time.Time.Compare) {
			wrong.add("out of order", 1)
		}
		switch {
		case balance > want:
			wrong.add("doubled", 1)
		case balance < want:
			wrong.add("too few points", 1)
		}
	}
	return found, wrong
}
