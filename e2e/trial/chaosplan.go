package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

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
	// stalls is the attribute that makes the handler stall at the first delivery, for so many milliseconds;
	// empty: none.
	stalls, long string
	seed         uint64
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
// gets a tenth as many. Each event is delivered 2.3 times on average.
func draw(seed uint64, arms []*arm, events int) *plan {
	random := rand.New(rand.NewPCG(seed, 1))
	p := &plan{}
	controls := len(slices.DeleteFunc(slices.Clone(arms), func(a *arm) bool { return a.control == nil }))
	of := map[*arm][]*event{}
	for _, a := range arms {
		n := max(events/10, 1)
		if a.control == nil {
			n = max(events/(len(arms)-controls), 1)
		}
		keys := max(n/perKey, 1)
		for j := range n {
			key, cycle := j%keys, j/keys
			if a.name == armRefunds {
				key, cycle = j/perPayment, j%perPayment // they come one after the other, and meet
			}
			e := &event{arm: a, id: fmt.Sprintf("%s-%06d", a.name, j), cycle: int64(cycle) + 1}
			e.key = fmt.Sprintf("key-%04d", key)
			e.message = e.made()
			of[a] = append(of[a], e)
		}
		p.events = append(p.events, of[a]...)
	}
	// The arms run side by side. Within an arm the events keep their order.
	positions := random.Perm(len(p.events))
	for _, a := range arms {
		own := positions[:len(of[a])]
		positions = positions[len(of[a]):]
		slices.Sort(own)
		for i, e := range of[a] {
			e.due = time.Duration(own[i]) * gap
		}
	}
	byKey := map[string][]*event{}
	for _, e := range p.events {
		if e.arm.ordered {
			byKey[e.arm.name+e.key] = append(byKey[e.arm.name+e.key], e)
			continue
		}
		first := e.due + time.Duration(random.Float64()*float64(600*time.Millisecond))
		p.walks = append(p.walks, []push{p.push(random, e, first, 0)})
		for n := range duplicates(random) {
			p.walks = append(p.walks, []push{p.push(random, e, first+delay(random), n+1)})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		p.walks = append(p.walks, p.walk(random, byKey[key]))
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
		if d.stalls, d.long = stallBefore, strconv.FormatInt(long.Milliseconds(), 10); random.IntN(3) == 0 {
			d.stalls = stallAfter
		}
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
	if n == 1 && d.stalls != "" {
		m.Attributes = maps.Clone(m.Attributes)
		m.Attributes[d.stalls] = d.long
	}
	if !d.counted {
		n = 0
	}
	return m.PushBody(d.arm.name+"-push", n)
}
