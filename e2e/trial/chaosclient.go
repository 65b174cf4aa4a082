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
	// stalls is the attribute that makes the handler stall at the first delivery, for so many milliseconds.
	stalls map[string]string
	seed   uint64
}

// Attributes of a delivery that make its handler stall before or after the effect.
const (
	stallBefore = "chaos_stall_before"
	stallAfter  = "chaos_stall_after"
)

// plan holds all deliveries: those of an ordering key one after the other, and each of the unordered arms for
// itself.
type plan struct {
	events   []*event
	walks    [][]push
	stalling int
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
func draw(seed uint64, arms []*arm, events int) *plan {
	random, p := rand.New(rand.NewPCG(seed, 1)), &plan{}
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
			e := &event{arm: a, id: fmt.Sprintf("%s-%06d", a.name, j), cycle: int64(cycle) + 1, due: gap * time.Duration(j*all/n)}
			e.key = fmt.Sprintf("key-%04d", key)
			e.message = e.made()
			p.events = append(p.events, e)
			if a.ordered {
				byKey[key] = append(byKey[key], e)
				continue
			}
			first := e.due + time.Duration(random.Float64()*float64(600*time.Millisecond))
			p.walks = append(p.walks, []push{p.push(random, e, first, 0)})
			for n := range duplicates(random) {
				p.walks = append(p.walks, []push{p.push(random, e, first+delay(random), n+1)})
			}
		}
		for _, of := range byKey {
			p.walks = append(p.walks, p.walk(random, of))
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

func duplicates(random *rand.Rand) int {
	draw := random.Float64()
	return slices.IndexFunc([]float64{0.25, 0.65, 0.85, 0.95, 1}, func(below float64) bool { return draw < below })
}

func delay(random *rand.Rand) time.Duration {
	longest := 5 * time.Second
	switch d := random.Float64(); {
	case d < 0.45:
		longest = 20 * time.Millisecond
	case d < 0.80:
		longest = time.Second
	}
	return time.Duration(random.Float64() * float64(longest))
}

// walk draws the deliveries of one key. Sometimes the broker goes back some messages and
// delivers from there on again.
func (p *plan) walk(random *rand.Rand, events []*event) []push {
	var pushes []push
	for i, e := range events {
		pushes = append(pushes, p.push(random, e, e.due, 0))
		if random.Float64() < 0.55 {
			for again := max(0, i-random.IntN(4)); again <= i; again++ {
				pushes = append(pushes, p.push(random, events[again], e.due, 0))
			}
		}
	}
	return pushes
}

func (p *plan) push(random *rand.Rand, e *event, due time.Duration, copied int) push {
	d := push{event: e, due: due, messageID: e.id, counted: random.IntN(2) == 0, seed: random.Uint64()}
	// A duplicate is either the same message again, or a second message with the same event.
	if copied > 0 && random.IntN(2) == 0 {
		d.messageID = fmt.Sprintf("%s-%d", e.id, copied)
	}
	if random.Float64() < stalled {
		p.stalling++
		long := chaosLease*2/3 + time.Duration(random.Float64()*float64(2*chaosLease))
		where := []string{stallBefore, stallBefore, stallAfter}[random.IntN(3)]
		d.stalls = map[string]string{where: fmt.Sprint(long.Milliseconds())}
	}
	return d
}

// made is the message of an event.
func (e *event) made() contract.Message {
	body := e.arm.body(e)
	data, err := body.Append(nil)
	if err != nil {
		panic(err) // the arms' bodies are JSON
	}
	attributes := body.Attributes()
	attributes.OrderingKey = e.key
	m := contract.Message{Data: data, Attributes: attributes.Map()}
	if e.arm.ordered {
		m.OrderingKey = e.key
	}
	return m
}

// body is that of the push at its n-th delivery.
func (d push) body(n int) ([]byte, error) {
	m := standin.Message{ID: d.messageID, PublishTime: time.Now().UTC(), Message: d.message}
	if n == 1 {
		m.Attributes = maps.Clone(m.Attributes)
		maps.Copy(m.Attributes, d.stalls)
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
