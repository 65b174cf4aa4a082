package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"billhook/e2e"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
)

type event struct {
	arm *arm
	id  string
	// key is the ordering key, or the payment to refund. cycle is the position in it, from 1.
	key   string
	cycle int64
	// due is the time after the start.
	due     time.Duration
	message contract.Message
}

// push is one delivery. It is repeated until it is acknowledged.
type push struct {
	*event
	// due is the time after the start. An ordered event may come later.
	due       time.Duration
	messageID string
	// counted: the message has a delivery count.
	counted bool
	// stalls is for how long the handler stalls at the first delivery.
	stalls time.Duration
	seed   uint64
}

// stalls is the attribute of a delivery whose handler stalls before its effect.
const stalls = "chaos_stalls"

// plan holds all deliveries: those of an ordering key one after the other, and each of the unordered arms for
// itself.
type plan struct {
	random *rand.Rand
	events []*event
	walks  [][]push
}

const (
	perKey     = 25
	perPayment = 3
	// gap is the time between two events, if the machine is fast enough.
	gap = 3 * time.Millisecond
	// stalled is the share of the deliveries that stall.
	stalled = 0.03
)

// draw draws a plan. The events are split evenly among the arms that must hold. Each control
// gets a tenth as many. Each event is delivered 2.3 times on average. The arms run side by side.
func draw(r *run, arms []*arm, events int) *plan {
	p := &plan{random: rand.New(rand.NewPCG(r.seed, 1))}
	controls := len(slices.DeleteFunc(slices.Clone(arms), func(a *arm) bool { return !a.control }))
	all := events + controls*events/10
	for _, a := range arms {
		n := max(events/10, 1)
		if !a.control {
			n = max(events/(len(arms)-controls), 1)
		}
		keys := max(n/perKey, 1)
		byKey := make([][]*event, keys)
		for j := range n {
			key, cycle := j%keys, j/keys
			if a.name == armRefunds {
				key, cycle = j/perPayment, j%perPayment // they come one after the other, and meet
			}
			e := &event{
				arm: a, id: fmt.Sprintf("%s-%06d", a.name, j), key: fmt.Sprintf("key-%04d", key), cycle: int64(cycle) + 1,
				due: gap * time.Duration(j*all/n),
			}
			e.message = r.message(a.body(e), e.key)
			p.events = append(p.events, e)
			if a.ordered {
				byKey[key] = append(byKey[key], e)
				continue
			}
			e.message.OrderingKey = ""
			first := e.due + p.before(600*time.Millisecond)
			p.walks = append(p.walks, []push{p.push(e, first, e.id)})
			for n := 1; p.random.Float64() < 0.565; n++ { // 1.3 times on average, and most of them soon
				id := e.id // the same message again, or a second message with the same event
				if p.random.IntN(2) == 0 {
					id = fmt.Sprintf("%s-%d", e.id, n)
				}
				after := time.Duration(math.Pow(p.random.Float64(), 5) * float64(5*time.Second))
				p.walks = append(p.walks, []push{p.push(e, first+after, id)})
			}
		}
		for _, of := range byKey {
			p.walks = append(p.walks, p.walk(of))
		}
	}
	return p
}

func (p *plan) deliveries() (n int) {
	for _, walk := range p.walks {
		n += len(walk)
	}
	return n
}

// before is a time before the longest.
func (p *plan) before(longest time.Duration) time.Duration {
	return time.Duration(p.random.Float64() * float64(longest))
}

// walk draws the deliveries of one key. Sometimes the broker goes back some messages and
// delivers from there on again.
func (p *plan) walk(events []*event) []push {
	var pushes []push
	for i, e := range events {
		pushes = append(pushes, p.push(e, e.due, e.id))
		if p.random.Float64() < 0.55 {
			for _, again := range events[max(0, i-p.random.IntN(4)) : i+1] {
				pushes = append(pushes, p.push(again, e.due, again.id))
			}
		}
	}
	return pushes
}

func (p *plan) push(e *event, due time.Duration, messageID string) push {
	d := push{event: e, due: due, messageID: messageID, counted: p.random.IntN(2) == 0, seed: p.random.Uint64()}
	if p.random.Float64() < stalled {
		d.stalls = chaosLease*2/3 + p.before(2*chaosLease)
	}
	return d
}

// body is that of the push at its n-th delivery.
func (d push) body(n int) ([]byte, error) {
	m := standin.Message{ID: d.messageID, PublishTime: time.Now().UTC(), Message: d.message}
	if n == 1 {
		m.Attributes = maps.Clone(m.Attributes)
		m.Attributes[stalls] = d.stalls.String()
	}
	if !d.counted {
		n = 0
	}
	return m.PushBody(d.arm.name+"-push", n)
}

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
	of      *run
	workers *workers
	slots   chan struct{}
	started time.Time
	// late are the requests after their deadline. open counts the deliveries that are not acknowledged.
	late sync.WaitGroup
	open atomic.Int64

	mu sync.Mutex
	// begun counts the messages that workers have published anew.
	begun int
	// last is closed at the end of the newest delivery of an ordering key.
	last map[string]chan struct{}
	// pushes are counted by arm.
	pushes counts
}

func newClient(r *run, ws *workers) *client {
	return &client{of: r, workers: ws, slots: make(chan struct{}, senders), last: map[string]chan struct{}{}, pushes: counts{}}
}

func (c *client) run(p *plan) {
	var all sync.WaitGroup
	c.open.Add(int64(p.deliveries()))
	for _, walk := range p.walks {
		all.Go(func() {
			for _, d := range walk {
				if e2e.Wait(c.of.ctx, d.due-time.Since(c.started)) {
					c.queued(d)()
				}
			}
		})
	}
	all.Wait()
	c.late.Wait()
	if c.of.ctx.Err() != nil {
		c.of.Fatalf("%d deliveries are not acknowledged: %w", c.open.Load(), c.of.ctx.Err())
	}
}

// queued has a delivery wait for what was published before under its ordering key, as a broker does, and
// returns what delivers it.
func (c *client) queued(d push) (deliver func()) {
	if !d.arm.ordered {
		return func() { c.deliver(d) }
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
		c.deliver(d)
	}
}

// again delivers a message that a worker has published on the topic of an arm. It returns at once.
func (c *client) again(to *arm, m contract.Message) {
	c.open.Add(1)
	c.of.saw("messages kept and published anew", 1)
	c.mu.Lock()
	c.begun++
	d := push{
		event:     &event{arm: to, key: m.OrderingKey, message: m},
		messageID: fmt.Sprintf("again-%06d", c.begun), counted: c.begun%2 == 0, seed: uint64(c.begun),
	}
	c.mu.Unlock()
	go c.queued(d)()
}

func (c *client) deliver(d push) {
	random := rand.New(rand.NewPCG(d.seed, 3))
	for n := 1; !c.attempt(random, d, n); n++ {
		if !e2e.Wait(c.of.ctx, 40*time.Millisecond+time.Duration(random.Float64()*float64(300*time.Millisecond))) {
			return
		}
	}
	c.open.Add(-1)
}

func (c *client) attempt(random *rand.Rand, d push, n int) bool {
	select {
	case c.slots <- struct{}{}:
	case <-c.of.ctx.Done():
		return false
	}
	limit := forgotten
	if random.IntN(2) == 0 {
		limit = ackDeadline
	}
	answered := make(chan bool, 1)
	c.late.Go(func() {
		ctx, cancel := context.WithTimeout(c.of.ctx, limit)
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
	switch {
	case err != nil:
		c.of.saw("pushes without an answer", 1)
	case !acked:
		c.of.saw("pushes refused", 1)
	}
	c.of.saw("pushes", 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushes.add(d.arm.name, 1)
	return acked
}
