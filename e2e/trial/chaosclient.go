package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"billhook/e2e"
	"billhook/internal/contract"
)

const (
	// senders is how many requests run at once, late ones included. The emulator queues
	// commits: more requests would only make the queue longer.
	senders = 40
	// ackDeadline is the time after which a delivery without an answer is repeated. Its earlier
	// request may still run.
	ackDeadline = 600 * time.Millisecond
	// forgotten is the time after which the client gives up a request that it did not end at
	// the deadline.
	forgotten = 3 * time.Second
)

// client is the push client of a broker: it repeats each delivery until it is acknowledged.
type client struct {
	workers *workers
	slots   chan struct{}
	started time.Time
	// late are the requests after their deadline.
	late sync.WaitGroup

	mu sync.Mutex
	// begun counts the messages that workers have published anew. open are the deliveries that are not
	// acknowledged, by their events.
	begun int
	open  map[string]int
	// last is closed at the end of the newest delivery of an ordering key.
	last map[string]chan struct{}
	// pushes are counted by arm. unanswered had no answer by the deadline, refused one that does not
	// acknowledge.
	pushes              counts
	unanswered, refused int
}

func (c *client) run(r *run, p *plan) {
	var all sync.WaitGroup
	c.mu.Lock()
	for _, walk := range p.walks {
		for _, d := range walk {
			c.open[d.id]++
		}
		all.Go(func() {
			for _, d := range walk {
				if e2e.Wait(r.ctx, d.due-time.Since(c.started)) {
					c.queued(r.ctx, d)()
				}
			}
		})
	}
	c.mu.Unlock()
	all.Wait()
	c.late.Wait()
	if r.ctx.Err() != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		left := slices.Sorted(maps.Keys(c.open))
		r.Fatalf("%d events are not acknowledged, such as %v: %w", len(left), left[:min(len(left), 3)], r.ctx.Err())
	}
}

// queued has a delivery wait for what was published before under its ordering key, as a broker does, and
// returns what delivers it.
func (c *client) queued(ctx context.Context, d push) (deliver func()) {
	if !d.arm.ordered {
		return func() { c.deliver(ctx, d) }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := d.arm.name + " " + d.key
	before, done := c.last[key], make(chan struct{})
	c.last[key] = done
	return func() {
		defer close(done)
		if before != nil {
			<-before
		}
		c.deliver(ctx, d)
	}
}

// again delivers a message that a worker has published on the topic of an arm. It returns at once.
func (c *client) again(ctx context.Context, to *arm, m contract.Message) {
	c.mu.Lock()
	c.begun++
	d := push{
		event: &event{arm: to, id: m.Attributes[contract.AttrEventID], key: m.OrderingKey, message: m}, due: time.Since(c.started),
		messageID: fmt.Sprintf("again-%06d", c.begun), counted: c.begun%2 == 0, seed: uint64(c.begun),
	}
	c.open[d.id]++
	c.mu.Unlock()
	go c.queued(ctx, d)()
}

func (c *client) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) == 0 && len(c.slots) == 0
}

func (c *client) deliver(ctx context.Context, d push) {
	random := rand.New(rand.NewPCG(d.seed, 3))
	pause := d.due - time.Since(c.started)
	for n := 1; e2e.Wait(ctx, pause); n++ {
		if c.attempt(ctx, random, d, n) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.open[d.id]--; c.open[d.id] == 0 {
				delete(c.open, d.id)
			}
			return
		}
		pause = 40*time.Millisecond + time.Duration(random.Float64()*float64(300*time.Millisecond))
	}
}

func (c *client) attempt(ctx context.Context, random *rand.Rand, d push, n int) bool {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	limit := forgotten
	if random.IntN(2) == 0 {
		limit = ackDeadline
	}
	answered := make(chan bool, 1)
	c.late.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		answered <- c.send(ctx, d, n)
		<-c.slots
	})
	select {
	case acked := <-answered:
		return acked
	case <-time.After(ackDeadline):
		return false
	}
}

func (c *client) send(ctx context.Context, d push, n int) (acked bool) {
	body, err := d.body(n)
	if err != nil {
		return false
	}
	answer, err := e2e.Post(ctx, c.workers.one().URL+"/push/"+d.arm.name, body, nil)
	acked = err == nil && (answer.Status == http.StatusOK || answer.Status == http.StatusNoContent)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushes[d.arm.name]++
	switch {
	case err != nil:
		c.unanswered++
	case !acked:
		c.refused++
	}
	return acked
}
