package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"billhook/internal/contract"
	"billhook/internal/platform/standin"
)

type event struct {
	arm *arm
	id  string
	// key is the ordering key, or the payment to refund. cycle is the position in it, from 1.
	key     string
	cycle   int64
	message contract.Message

	// fate is what has become of it, as is counted in the end.
	fate
}

// plan holds the events, and what is published about them, in its order.
type plan struct {
	random    *rand.Rand
	events    []*event
	publishes []publish
}

// publish is one message about an event, and when it is due after the start.
type publish struct {
	*event
	message contract.Message
	due     time.Duration
}

const (
	perKey     = 25
	perPayment = 3
	// gap is the time between two events, if the machine is fast enough.
	gap = 3 * time.Millisecond
	// stalls is the attribute of a message whose handler stalls before its effect, and stalled the share of those. It
	// stalls for less than the ack deadline: a duplicate stalls again.
	stalls  = "chaos_stalls"
	stalled = 0.03
)

// draw draws a plan. The events are split evenly among the arms that must hold. Each control gets a tenth as
// many. Of each event 2.3 messages are published on average: of those of an ordering key the broker sometimes
// goes back some, and others come again later. The arms run side by side.
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
		byKey := make([][]*event, n)
		for j := range n {
			key, cycle := j%keys, j/keys
			if a.name == armRefunds {
				key, cycle = j/perPayment, j%perPayment // they come one after the other, and meet
			}
			e := &event{arm: a, id: fmt.Sprintf("%s-%06d", a.name, j), key: fmt.Sprintf("key-%04d", key), cycle: int64(cycle) + 1}
			e.message = r.message(a.body(e), e.key)
			p.events, byKey[key] = append(p.events, e), append(byKey[key], e)
			due := gap * time.Duration(j*all/n)
			p.publish(e, due)
			if a.ordered {
				if p.random.Float64() < 0.55 {
					for _, again := range byKey[key][max(0, cycle-p.random.IntN(4)):] {
						p.publish(again, due)
					}
				}
				continue
			}
			e.message.OrderingKey = ""
			for p.random.Float64() < 0.565 { // 1.3 times on average, and most of them soon
				p.publish(e, due+time.Duration(math.Pow(p.random.Float64(), 5)*float64(5*time.Second)))
			}
		}
	}
	slices.SortStableFunc(p.publishes, func(a, b publish) int { return cmp.Compare(a.due, b.due) })
	return p
}

func (p *plan) publish(e *event, due time.Duration) {
	m := e.message
	if p.random.Float64() < stalled {
		m.Attributes = maps.Clone(m.Attributes)
		m.Attributes[stalls] = (chaosLease*2/3 + time.Duration(p.random.Float64()*float64(chaosLease*2/3))).String()
	}
	p.publishes = append(p.publishes, publish{e, m, due})
}

const (
	// ackDeadline is the time after which a delivery without an answer is repeated. Its earlier
	// request may still run, for as long as the push client that has forgotten it takes to give it up.
	ackDeadline = 2 * chaosLease
	forgotten   = 3 * time.Second
)

// newBroker has a topic and a subscription for each arm, of which every second one counts its deliveries. What
// arms publish about their events it holds.
func newBroker(r *run) *standin.Broker {
	config := standin.SimulatorConfig{ProjectID: project}
	for i, a := range arms {
		of := standin.Subscription{
			ID: a.name, Topic: a.name, Path: "/push/" + a.name, Ordered: a.ordered, AckDeadline: ackDeadline,
			MinimumBackoff: 40 * time.Millisecond, MaximumBackoff: chaosLease,
		}
		if i%2 == 0 {
			of.DeadLetterTopic, of.MaxDeliveryAttempts = a.queue().DeadLetter.Topic, attempts
			config.Topics = append(config.Topics, of.DeadLetterTopic)
		}
		config.Subscriptions = append(config.Subscriptions, of)
		for _, topic := range a.handler.Emits {
			config.Subscriptions = append(config.Subscriptions, standin.Subscription{ID: topic, Topic: topic})
		}
	}
	b, err := standin.NewBroker(config)
	r.must(err)
	r.Cleanup(func() { r.must(b.Close()) })
	return b
}

// empty reports whether every message was acknowledged.
func empty(r *run, b *standin.Broker) bool {
	held, _, err := b.Backlogs(r.ctx)
	r.must(err)
	return !slices.ContainsFunc(arms, func(a *arm) bool { return held[a.name].Messages > 0 })
}
