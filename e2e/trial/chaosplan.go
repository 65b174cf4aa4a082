package main

import (
	"fmt"
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
	// stalls are the attributes that make the handler stall at the first delivery.
	stalls map[string]string
	seed   uint64
}

// plan holds all deliveries: single ones of the unordered arms, and sequences by ordering key.
type plan struct {
	events   []*event
	single   []push
	byKey    [][]push
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
	p, holding := &plan{}, 0
	for _, a := range arms {
		if !a.control {
			holding++
		}
	}
	of := map[*arm][]*event{}
	for _, a := range arms {
		n := max(events/10, 1)
		if !a.control {
			n = max(events/holding, 1)
		}
		keys := max(n/perKey, 1)
		for j := range n {
			key, cycle := j%keys, j/keys
			if a.name == armRefunds {
				key, cycle = j/perPayment, j%perPayment // they come one after the other, and meet
			}
			of[a] = append(of[a], &event{
				arm: a, id: fmt.Sprintf("%s-%06d", a.name, j), key: fmt.Sprintf("key-%04d", key), cycle: int64(cycle) + 1,
			})
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
	walks := map[string][]*event{}
	for _, e := range p.events {
		if e.arm.ordered {
			walks[e.arm.name+e.key] = append(walks[e.arm.name+e.key], e)
			continue
		}
		first := e.due + time.Duration(random.Float64()*float64(600*time.Millisecond))
		p.single = append(p.single, p.push(random, e, first, 0))
		for n := range duplicates(random) {
			p.single = append(p.single, p.push(random, e, first+delay(random), n+1))
		}
	}
	for _, e := range p.events {
		if e.cycle == 1 && e.arm.ordered {
			p.byKey = append(p.byKey, p.walk(random, walks[e.arm.name+e.key]))
		}
	}
	return p
}

func (p *plan) deliveries() int {
	n := len(p.single)
	for _, walk := range p.byKey {
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
		where, long := stallBefore, chaosLease*2/3+time.Duration(random.Float64()*float64(2*chaosLease))
		if random.IntN(3) == 0 {
			where = stallAfter
		}
		d.stalls = map[string]string{where: strconv.FormatInt(long.Milliseconds(), 10)}
	}
	return d
}

// happened is when everything happened that the events tell of.
var happened = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type invoice struct {
	InvoiceID string `json:"invoice_id"`
	Amount    string `json:"amount"`
	Currency  string `json:"currency"`
}

func (d push) body(n int) ([]byte, error) {
	message := standin.Message{ID: d.messageID, PublishTime: time.Now().UTC()}
	if d.republished != nil {
		message.Message = *d.republished
	} else {
		body, at := contract.Body{}, happened.Format(time.RFC3339)
		switch d.arm.name {
		case armJournal:
			paid := invoice{InvoiceID: d.key, Amount: amount, Currency: currency}
			body = contract.Of(&contract.Event{ID: d.id, Type: d.arm.typeOf(), Timestamp: at, Version: 1, Data: paid})
		case armRefunds:
			body = contract.Of(&contract.Envelope{ID: d.id, Action: d.arm.typeOf(), CreatedAt: at, Payload: contract.Payload{PaymentID: d.key}})
		default:
			body = contract.Of(&contract.Envelope{ID: d.id, Action: d.arm.typeOf(), CreatedAt: at, Payload: contract.Payload{SubscriptionID: d.key, Cycle: d.cycle}})
		}
		data, err := body.Append(nil)
		if err != nil {
			return nil, err
		}
		attributes := body.Attributes()
		attributes.OrderingKey = d.key
		message.Message = contract.Message{Data: data, Attributes: attributes.Map()}
		if n == 1 {
			for name, long := range d.stalls {
				message.Attributes[name] = long
			}
		}
		if d.arm.ordered {
			message.OrderingKey = d.key
		}
	}
	if !d.counted {
		n = 0
	}
	return message.PushBody(d.arm.name+"-push", n)
}
