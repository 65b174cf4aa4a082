package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"billhook/e2e/chaos/arm"
	"billhook/internal/contract"
)

// event is one event of the plan.
type event struct {
	arm *arm.Arm
	id  string
	// key is the ordering key, or the payment to refund. cycle is the position in it, from 1.
	key   string
	cycle int64
	// due is the time after the start.
	due time.Duration
}

// push is one delivery of the plan. It is repeated until it is acknowledged.
type push struct {
	*event
	// due is the time after the start. An ordered event may come later.
	due       time.Duration
	messageID string
	// republished is the message, where a worker has published it.
	republished *contract.Message
	// counted: the message has a delivery count.
	counted bool
	// Times for which the handler stalls at the first delivery.
	stallBefore, stallAfter time.Duration
	seed                    uint64
}

// plan holds all deliveries: single ones of the unordered arms, and sequences by ordering key.
type plan struct {
	events   []*event
	single   []push
	byKey    [][]push
	stalling int
}

const (
	// perKey is the number of events of an ordering key.
	perKey = 25
	// perPayment is the number of events that ask for the refund of one payment.
	perPayment = 3
	// gap is the time between two events, if the machine is fast enough.
	gap = 3 * time.Millisecond
	// stalled is the share of the deliveries that stall.
	stalled = 0.03
)

// draw draws a plan. The events are split evenly among the arms that must hold. Each control
// gets a tenth as many. Each event is delivered 2.3 times on average.
func draw(seed uint64, arms []arm.Arm, events int) *plan {
	random := rand.New(rand.NewPCG(seed, 1))
	p := &plan{}
	holding := 0
	for _, a := range arms {
		if !a.Control {
			holding++
		}
	}
	for i := range arms {
		a := &arms[i]
		n := max(events/10, 1)
		if !a.Control {
			n = max(events/holding, 1)
		}
		keys := max(n/perKey, 1)
		for j := range n {
			key, cycle := j%keys, j/keys
			if a.Money {
				key, cycle = j/perPayment, j%perPayment // they come one after the other, and meet
			}
			p.events = append(p.events, &event{
				arm: a, id: fmt.Sprintf("%s-%06d", a.Name, j), key: fmt.Sprintf("key-%04d", key), cycle: int64(cycle) + 1,
			})
		}
	}
	// The arms run side by side. Within an arm the events keep their order.
	lined := map[*arm.Arm][]int{}
	for i, place := range random.Perm(len(p.events)) {
		lined[p.events[i].arm] = append(lined[p.events[i].arm], place)
	}
	for _, places := range lined {
		slices.Sort(places)
	}
	for _, e := range p.events {
		e.due = time.Duration(lined[e.arm][0]) * gap
		lined[e.arm] = lined[e.arm][1:]
	}
	walks := map[string][]*event{}
	for _, e := range p.events {
		if e.arm.Ordered {
			walks[e.arm.Name+e.key] = append(walks[e.arm.Name+e.key], e)
			continue
		}
		first := e.due + time.Duration(random.Float64()*float64(600*time.Millisecond))
		p.single = append(p.single, p.push(random, e, first, 0))
		for n := range duplicates(random) {
			p.single = append(p.single, p.push(random, e, first+delay(random), n+1))
		}
	}
	for _, e := range p.events {
		if walk := walks[e.arm.Name+e.key]; e.cycle == 1 && e.arm.Ordered {
			p.byKey = append(p.byKey, p.walk(random, walk))
		}
	}
	return p
}

// duplicates draws how often an event is delivered again: 1.3 times on average.
func duplicates(random *rand.Rand) int {
	draw := random.Float64()
	return slices.IndexFunc([]float64{0.25, 0.65, 0.85, 0.95, 1}, func(below float64) bool { return draw < below })
}

// delay draws how much later a duplicate comes: almost at once, soon, or late.
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
	d := push{event: e, due: due, counted: random.IntN(2) == 0, seed: random.Uint64()}
	// A duplicate is either the same message again, or a second message with the same event.
	d.messageID = e.id
	if copied > 0 && random.IntN(2) == 0 {
		d.messageID = fmt.Sprintf("%s-%d", e.id, copied)
	}
	if random.Float64() < stalled {
		p.stalling++
		long := arm.Lease*2/3 + time.Duration(random.Float64()*float64(2*arm.Lease))
		if random.IntN(3) > 0 {
			d.stallBefore = long
		} else {
			d.stallAfter = long
		}
	}
	return d
}
