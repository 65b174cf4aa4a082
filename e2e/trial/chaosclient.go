package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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
	http    *http.Client
	workers *workers
	slots   chan struct{}
	started time.Time
	// late are the requests after their deadline.
	late sync.WaitGroup

	mu sync.Mutex
	// begun counts the messages that workers have published anew. open are the deliveries that are not acknowledged, by
	// arm and id.
	begun int
	open  map[at]int
	// last is closed at the end of the newest delivery of an ordering key.
	last map[at]chan struct{}
	// pushes are counted by arm. unanswered had no answer by the deadline, refused one that does not acknowledge.
	pushes              map[string]int
	unanswered, refused int
}

func newClient(to *workers) *client {
	return &client{
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders}}, workers: to,
		slots: make(chan struct{}, senders), started: time.Now(), pushes: map[string]int{}, open: map[at]int{}, last: map[at]chan struct{}{},
	}
}

func (c *client) run(r *run, p *plan) {
	var all sync.WaitGroup
	c.mu.Lock()
	for _, walk := range append(p.byKey, p.single) {
		for _, d := range walk {
			c.opened(d)
		}
	}
	c.mu.Unlock()
	for _, d := range p.single {
		all.Go(func() { c.deliver(r.ctx, d) })
	}
	for _, walk := range p.byKey {
		all.Go(func() {
			for _, d := range walk {
				if e2e.Wait(r.ctx, d.due-time.Since(c.started)) {
					wait, end := c.turn(at{d.arm.name, d.key})
					wait()
					c.deliver(r.ctx, d)
					end()
				}
			}
		})
	}
	r.wait("deliveries to be acknowledged", all.Wait)
	r.wait("requests after their deadline", c.late.Wait)
	if r.ctx.Err() != nil {
		r.Fatalf("not acknowledged: %s: %w", c.waiting(), r.ctx.Err())
	}
}

// waiting says which deliveries are not acknowledged: how many of each arm, and one of them.
func (c *client) waiting() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	left, of := counts{}, map[string]string{}
	for d, n := range c.open {
		left.add(d.arm, n)
		of[d.arm] = d.id
	}
	return fmt.Sprintf("%s, such as %v", left, of)
}

// turn waits for what was published before under an ordering key, as a broker does. It queues at once, and
// returns the functions that wait and that let the next one go on.
func (c *client) turn(key at) (wait, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, done := c.last[key], make(chan struct{})
	c.last[key] = done
	return func() {
		if before != nil {
			<-before
		}
	}, func() { close(done) }
}

// again delivers a message that a worker has published on the topic of an arm. It returns at once.
func (c *client) again(ctx context.Context, to *arm, m contract.Message) {
	c.mu.Lock()
	c.begun++
	d := push{
		event: &event{arm: to, id: m.Attributes[contract.AttrEventID], key: m.OrderingKey}, due: time.Since(c.started), messageID: fmt.Sprintf("again-%06d", c.begun), republished: &m,
		counted: c.begun%2 == 0, seed: uint64(c.begun),
	}
	c.opened(d)
	c.mu.Unlock()
	wait, end := func() {}, func() {}
	if to.ordered {
		wait, end = c.turn(at{to.name, d.key})
	}
	go func() {
		wait()
		c.deliver(ctx, d)
		end()
	}()
}

func (c *client) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) == 0 && len(c.slots) == 0
}

// opened counts a delivery that is to be acknowledged. The lock is held.
func (c *client) opened(d push) { c.open[at{d.arm.name, d.id}]++ }

func (c *client) deliver(ctx context.Context, d push) {
	random := rand.New(rand.NewPCG(d.seed, 3))
	pause := d.due - time.Since(c.started)
	for n := 1; e2e.Wait(ctx, pause); n++ {
		if c.attempt(ctx, random, d, n) {
			c.mu.Lock()
			defer c.mu.Unlock()
			of := at{d.arm.name, d.id}
			if c.open[of]--; c.open[of] == 0 {
				delete(c.open, of)
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
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.workers.one().URL+"/push/"+d.arm.name, bytes.NewReader(body))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		acked = err == nil && (response.StatusCode == http.StatusOK || response.StatusCode == http.StatusNoContent)
	}
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
