package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
)

// isolation measures the cost of one queue's bad target, or of its flood, to another queue of the same
// worker, compared with a good target. It fails if a payment event was not posted exactly once.
func isolation(flags *flag.FlagSet) func(*run) {
	events := flags.Int("events", 400, "how many payment events a measurement has")
	rate := flags.Int("rate", 50, "how many payment events are published a second")
	rounds := flags.Int("rounds", 3, "how often each row is measured, with and without")
	return func(r *run) {
		rows := r.table("the other target", "its requests", "p99", "", "memory", "")
		for _, row := range besides() {
			var with, without []figures
			for range *rounds {
				var beside, alone figures
				r.part(row.name, func(r *run) { alone = measure(r, row.behaving, *events, *rate, row.others) })
				r.part(row.name, func(r *run) { beside = measure(r, row.target, *events, *rate, row.perEvent) })
				with, without = append(with, beside), append(without, alone)
			}
			rows(compared(row.name, with, without)...)
		}
	}
}

// beside is one comparison of a target with a good one, and the number of events that each gets per payment.
type beside struct {
	name             string
	target, behaving http.HandlerFunc
	perEvent, others int
}

func besides() []beside {
	const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	metadata := http.RedirectHandler("http://169.254.169.254/computeMetadata/v1/", http.StatusFound)
	all := []beside{
		{name: "hangs", target: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "trickles headers", target: raw(func(c net.Conn) { trickle(c, "HTTP/1.1 200 OK\r\nX-A: ") })},
		{name: "trickles a body", target: raw(func(c net.Conn) {
			trickle(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
		})},
		{name: "answers 1 GB", target: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1073741824")
			chunk := make([]byte, 64<<10)
			for err := error(nil); err == nil; {
				_, err = w.Write(chunk)
			}
		}},
		{name: "redirects to metadata", target: metadata.ServeHTTP},
		{name: "resets", target: raw(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })},
		{name: "closes kept connections", target: raw(func(c net.Conn) { _, _ = io.WriteString(c, empty) })},
	}
	for i := range all {
		all[i].perEvent, all[i].behaving, all[i].others = 2, behaves(0), 2
	}
	// Ten slots of 200 ms handle 50 events a second, as many as the payments' queue gets.
	slow := behaves(200 * time.Millisecond)
	return append(all, beside{name: "ten times what it can handle", target: slow, perEvent: 10, behaving: slow})
}

// behaves returns a target that answers each request after some time.
func behaves(takes time.Duration) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { <-time.After(takes) }
}

// raw returns a target that writes directly to a request's connection, and closes it.
func raw(answer func(net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			defer func() { _ = c.Close() }()
			answer(c)
		}
	}
}

// trickle answers byte by byte, until the other side closes the connection.
func trickle(c net.Conn, first string) {
	for _, err := io.WriteString(c, first); err == nil; _, err = io.WriteString(c, "a") {
		<-time.After(10 * time.Millisecond)
	}
}

// figures has the requests to the other target, the payments' p99 in ms, and the most heap and stacks in MB.
type figures [3]float64

// compared returns a row of medians of the rounds and of their ratios, robust against one disturbed round.
func compared(name string, with, without []figures) (cells []any) {
	cells = []any{name}
	median := func(of func(round int) float64) float64 {
		var all []float64
		for i := range with {
			all = append(all, of(i))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for f, form := range []string{"%.0f", "%.1f ms", "%.1f MB"} {
		cells = append(cells, fmt.Sprintf(form, median(func(i int) float64 { return with[i][f] })))
		if f > 0 {
			ratio := median(func(i int) float64 { return with[i][f] / without[i][f] })
			cells = append(cells, fmt.Sprintf("x %.2f", ratio))
		}
	}
	return cells
}

const otherQueue = "isolation-other"

// twoQueues returns a catalog with the queue of payments' outcomes and a copy of it with another target.
func twoQueues() (c *catalog.Catalog, payments catalog.Queue, eventType string) {
	c = catalogtest.Shipped()
	payments, _ = c.EmitsTo("subscriptions.record")
	eventType = slices.Sorted(maps.Keys(payments.Handlers))[0]
	entry, other := payments.Handlers[eventType], payments
	other.ID, other.Alias = otherQueue, ""
	other.DeadLetter.Topic, other.DeadLetter.Aliases = otherQueue+"-dlq", nil
	kept := entry.Post.Target
	target := c.Targets[kept]
	c.Targets = map[string]catalog.Target{kept: target}
	target.Name, target.Internal, target.Breaker = otherQueue, true, catalog.Breaker{}
	c.Targets[otherQueue] = target
	entry.Post.Target, entry.Name = otherQueue, "post:"+otherQueue
	other.Handlers = map[string]catalog.Handler{eventType: entry}
	c.Queues, c.Sources = []catalog.Queue{payments, other}, nil
	return c, payments, eventType
}

// measure publishes rate payment events a second, and with each of them others events to the other queue.
func measure(r *run, target http.HandlerFunc, events, rate, others int) figures {
	c, payments, eventType := twoQueues()
	var asked atomic.Int64
	harm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body) // so that the server notices when the client leaves
		asked.Add(1)
		target(w, request)
	}))
	r.Cleanup(harm.Close)
	e := embed(r, devstack.Config{Catalog: c, Drain: time.Millisecond, Targets: map[string]devstack.Address{
		otherQueue: {URL: harm.URL, Secret: e2e.DeliverySecret},
	}})
	r.Cleanup(harm.CloseClientConnections) // to end requests that hang
	publish := func(topic, id string) {
		of := contract.Payload{SubscriptionID: "subscription-" + id}
		body := contract.Of(&contract.Envelope{
			ID: id, Action: eventType, CreatedAt: "2026-11-20T09:00:00Z", Payload: of,
		})
		r.must(filetest.ErrorOf(e.Publisher.Publish(r.ctx, topic, r.message(body, of.SubscriptionID))))
	}
	var ended map[string]end
	var took []time.Duration
	var memory uint64
	runtime.GC()
	r.beside(func() {
		var sending sync.WaitGroup
		due := time.Now()
		for i := 0; i < events && e2e.Wait(r.ctx, time.Until(due)); i++ {
			due = due.Add(time.Second / time.Duration(rate))
			for n := range others {
				sending.Go(func() { publish(otherQueue, fmt.Sprintf("other-%d-%d", i, n)) })
			}
			id := fmt.Sprintf("payment-%d", i)
			e.sent.Store(id, time.Now())
			sending.Go(func() { publish(payments.Topic(), id) })
		}
		sending.Wait()
		ended = e.await(events)
		r.until(often, func() string {
			return unless(others == 0 || asked.Load() > 0, "a request to the other target")
		})
	}, func(ctx context.Context) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		for e2e.Wait(ctx, 5*time.Millisecond) {
			metrics.Read(sample)
			memory = max(memory, sample[0].Value.Uint64()+sample[1].Value.Uint64())
		}
	})
	posted := e.posted()
	for id, of := range ended {
		took = append(took, of.took)
		if n := len(posted[handler.CalleeKey(payments.ID, contract.DefaultTenant, id)]); n != 1 {
			r.broken("a payment event was posted %d times", n)
		}
	}
	return figures{float64(asked.Load()), 1000 * within(took, 99).Seconds(), float64(memory) / 1e6}
}
