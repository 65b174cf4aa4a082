package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/catalog"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/telemetry"
)

const (
	secret = "isolation-secret-of-more-than-24-bytes"
	// other is the queue beside the payments', and its target.
	other = "isolation-other"
	// publishers is how many events are published at once.
	publishers = 64
)

// load is what is published: payment events, how many a second, and with each so many of the
// other queue.
type load struct{ events, rate, others int }

// result is one measurement.
type result struct {
	waits []time.Duration // of the payment events, sorted
	// memory is the most that was left of the heap by a garbage collection, with the stacks, in bytes.
	memory uint64
	asked  int64
}

// quantile returns the wait that this share of the events did not exceed.
func (r result) quantile(share float64) time.Duration {
	return r.waits[int(share*float64(len(r.waits)-1))]
}

// pair is one round of a row.
type pair struct{ with, without result }

// tell writes a row: the median of the rounds, and the median of their ratios. One round that
// the machine has disturbed changes neither.
func tell(w io.Writer, name string, rounds []pair) {
	if len(rounds) == 0 {
		return // they have failed, which is reported
	}
	figure := func(of func(result) float64) (with, ratio float64) {
		return median(rounds, func(p pair) float64 { return of(p.with) }), median(rounds, func(p pair) float64 { return of(p.with) / of(p.without) })
	}
	asked, _ := figure(func(r result) float64 { return float64(r.asked) })
	p50, p50Ratio := figure(func(r result) float64 { return r.quantile(0.50).Seconds() })
	p99, p99Ratio := figure(func(r result) float64 { return r.quantile(0.99).Seconds() })
	memory, memoryRatio := figure(func(r result) float64 { return float64(r.memory) })
	_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.1f ms\tx %.2f\t%.1f ms\tx %.2f\t%.1f MB\tx %.2f\n",
		name, asked, 1000*p50, p50Ratio, 1000*p99, p99Ratio, memory/1e6, memoryRatio)
}

func median(rounds []pair, of func(pair) float64) float64 {
	all := make([]float64, len(rounds))
	for i, p := range rounds {
		all[i] = of(p)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// twoQueues returns a catalog of the queue of payments' outcomes, as it is shipped, and one that
// is like it and posts to another target.
func twoQueues() (c *catalog.Catalog, payments catalog.Queue, eventType string, err error) {
	if c, err = catalog.Load(""); err != nil {
		return nil, payments, "", err
	}
	payments, _ = c.EmitsTo("subscriptions.record")
	eventType = slices.Sorted(maps.Keys(payments.Handlers))[0]
	entry := payments.Handlers[eventType]
	beside := payments
	beside.ID, beside.Alias, beside.DeadLetter.Topic, beside.DeadLetter.Aliases = other, "", other+"-dlq", nil
	target := c.Targets[entry.Post.Target]
	entry.Post.Target, entry.Name = other, "post:"+other
	beside.Handlers = map[string]catalog.Handler{eventType: entry}
	kept := payments.Handlers[eventType].Post.Target
	c.Targets = map[string]catalog.Target{kept: target}
	target.Name, target.Internal, target.Breaker = other, true, catalog.Breaker{}
	c.Targets[other] = target
	c.Queues, c.Sources = []catalog.Queue{payments, beside}, nil
	return c, payments, eventType, nil
}

// measure makes one measurement.
func measure(ctx context.Context, l load, t target) (r result, err error) {
	c, payments, eventType, err := twoQueues()
	if err != nil {
		return r, err
	}
	at, err := serveAt(ctx, t)
	if err != nil {
		return r, err
	}
	defer at.close()
	well := &once{posted: map[string]int{}}
	service := httptest.NewServer(well)
	defer service.Close()
	folder, err := os.MkdirTemp("", "billhook-isolation-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	places := map[string]devstack.Place{other: {URL: at.url(), Secret: secret}}
	for name := range c.Targets {
		if name != other {
			places[name] = devstack.Place{URL: service.URL, Secret: secret}
		}
	}
	j := &journal{Handler: telemetry.NewLogger(io.Discard, nil).Handler(), queue: payments.ID, ended: map[string]time.Time{}, wanted: l.events, all: make(chan struct{})}
	stack, err := devstack.Start(ctx, devstack.Config{
		Catalog: c, ProjectID: "isolation", WebhookPort: "0", WorkerPort: "0", StorePath: filepath.Join(folder, "store.db"),
		Targets: places, Log: slog.New(j), Drain: time.Millisecond,
	})
	if err != nil {
		return r, err
	}
	defer func() {
		at.close() // what hangs ends
		if closed := stack.Close(); !errors.Is(closed, context.DeadlineExceeded) {
			err = errors.Join(err, closed)
		}
	}()
	memory := watch()
	sent, err := l.publish(ctx, stack, payments.Topic(), eventType)
	if err != nil {
		return r, err
	}
	begun := at.begun
	if l.others == 0 {
		begun = j.all
	}
	for _, happens := range []chan struct{}{j.all, begun} {
		select {
		case <-happens:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
	r.memory, r.asked = memory(), at.asked.Load()
	j.mu.Lock()
	defer j.mu.Unlock()
	well.mu.Lock()
	defer well.mu.Unlock()
	for id, began := range sent {
		if n := well.posted[handler.CalleeKey(payments.ID, contract.DefaultTenant, id)]; n != 1 {
			return r, fmt.Errorf("the promise is broken: a payment event was posted %d times", n)
		}
		r.waits = append(r.waits, j.ended[id].Sub(began))
	}
	slices.Sort(r.waits)
	return r, nil
}

// publish publishes the load, and returns when each of the payment events was sent.
func (l load) publish(ctx context.Context, stack *devstack.Stack, topic, eventType string) (map[string]time.Time, error) {
	var publishing errgroup.Group
	publishing.SetLimit(publishers)
	send := func(topic, id string) {
		publishing.Go(func() error {
			m, err := message(id, eventType)
			if err == nil {
				_, err = stack.Publisher.Publish(ctx, topic, m)
			}
			return err
		})
	}
	sent := map[string]time.Time{}
	every := time.NewTicker(time.Second / time.Duration(l.rate))
	defer every.Stop()
	for i := range l.events {
		for n := range l.others {
			send(other, fmt.Sprintf("other-%d-%d", i, n))
		}
		id := fmt.Sprintf("payment-%d", i)
		sent[id] = time.Now()
		send(topic, id)
		select {
		case <-every.C:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), publishing.Wait())
		}
	}
	return sent, publishing.Wait()
}

// message is an event of a subscription of its own.
func message(id, eventType string) (contract.Message, error) {
	data, err := contract.Of(&contract.Envelope{
		ID: id, Action: eventType, CreatedAt: "2026-11-20T09:00:00Z", Payload: contract.Payload{SubscriptionID: "subscription-" + id},
	}).Append(nil)
	return contract.Message{Data: data, OrderingKey: "subscription-" + id, Attributes: map[string]string{
		contract.AttrEventID: id, contract.AttrEventType: eventType, contract.AttrContract: contract.EnvelopeV1, contract.AttrOrderingKey: "subscription-" + id,
	}}, err
}

// watch returns a function that ends the watch and says what was the most memory in use.
func watch() (most func() uint64) {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	end, seen := make(chan struct{}), make(chan uint64)
	go func() {
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		var highest uint64
		for {
			metrics.Read(sample)
			highest = max(highest, sample[0].Value.Uint64()+sample[1].Value.Uint64())
			select {
			case <-every.C:
			case <-end:
				seen <- highest
				return
			}
		}
	}()
	return func() uint64 { close(end); return <-seen }
}

// journal is a log handler that notes when the events of a queue were processed.
type journal struct {
	slog.Handler
	queue string
	// all is closed when as many are processed as are wanted.
	all    chan struct{}
	wanted int

	mu    sync.Mutex
	ended map[string]time.Time
}

// Handle implements slog.Handler.
func (j *journal) Handle(ctx context.Context, line slog.Record) error {
	if line.Message == "delivery" {
		fields := map[string]string{}
		line.Attrs(func(a slog.Attr) bool {
			fields[a.Key] = a.Value.String()
			return true
		})
		if fields["queue"] == j.queue && fields["outcome"] == "processed" {
			j.mu.Lock()
			id := fields["event_id"]
			if _, known := j.ended[id]; !known {
				if j.ended[id] = line.Time; len(j.ended) == j.wanted {
					close(j.all)
				}
			}
			j.mu.Unlock()
		}
	}
	return j.Handler.Handle(ctx, line)
}
