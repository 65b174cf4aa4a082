package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"billhook/catalog"
	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// chaos tries to make two workers on Firestore's emulator lose or double an event. Messages are repeated,
// late and out of order, workers killed and frozen, handlers stalled beyond their lease, answers dropped.
//
// It fails if an arm loses, doubles or reorders events, or if the control check-then-act doubles none.
func chaos(flags *flag.FlagSet) func(*run) {
	events := flags.Int("events", 15000, "how many events, controls not counted")
	names := flags.String("arms", "", "which arms, separated by commas; all if empty")
	return func(r *run) {
		arms := filetest.Must(chosen(*names))(r)
		p := draw(r, arms, *events)
		r.printf("%d events in %d messages\n", len(p.events), len(p.publishes))
		database := r.emulated(emulator.SDK.StartFirestore)
		documents := r.documents(database)
		program := filetest.Must(os.Executable())(r)
		ws, log, o := &workers{}, &e2e.Log{}, newOutside(r)
		b := newBroker(r)
		stores := [2]*e2e.Gate{e2e.NewGate(r, database), e2e.NewGate(r, database)}
		brokers := e2e.NewGate(r, b.Addr())
		ws.begin(r, program, log, func(i int) []string {
			return []string{
				"FIRESTORE_EMULATOR_HOST=" + stores[i].Addr(), "PUBSUB_EMULATOR_HOST=" + brokers.Addr(),
				outsideVariable + "=" + o.URL, "PATH=" + os.Getenv("PATH"),
			}
		})

		b.PushTo(ws.front(forgotten))
		began := time.Now()
		r.beside(func() {
			for _, m := range p.publishes {
				e2e.Wait(r.ctx, m.due-time.Since(began))
				r.must(filetest.ErrorOf(b.Publish(r.ctx, m.arm.name, m.message)))
			}
			r.until(often, patient(r, b))
		},
			func(ctx context.Context) { ws.rage(ctx, time.Second) },
			ws.freeze,
			func(ctx context.Context) { disturb(ctx, r, "store", stores[0], 20) },
			func(ctx context.Context) { disturb(ctx, r, "store", stores[1], 21) },
			func(ctx context.Context) { disturb(ctx, r, "broker", brokers, 22) },
			func(ctx context.Context) { ws.schedule(ctx, time.Second) },
			func(ctx context.Context) { ws.schedule(ctx, 700*time.Millisecond) }, // a second sealer and relay
		)
		o.mend()
		held := patient(r, b)
		ws.settle(documents, func() string {
			all := store.Query{Collection: ledger.Entries, Limit: math.MaxInt32}
			unsealed := filetest.Must(store.Count(r.ctx, documents, all))(r)
			for _, doc := range everything(r, documents, seal.Leaves, whole) {
				unsealed -= int64(len(doc.Fields["leaves"].([]any)))
			}
			return cmp.Or(held(), unless(unsealed == 0, "%d entries to be sealed", unsealed))
		})
		o.Close() // Close waits for late requests to the gateway, which count, too
		judge(r, count(r, documents, o, b, log, p, arms))
	}
}

// disturb holds requests or answers at a gate about every second, and then cuts or releases them.
func disturb(ctx context.Context, r *run, of string, gate *e2e.Gate, stream uint64) {
	random := rand.New(rand.NewPCG(r.seed, stream))
	for e2e.Wait(ctx, about(random, time.Second)) {
		what, hold := "answers of the "+of+" ", gate.HoldAnswers
		if random.IntN(3) == 0 {
			what, hold = "requests to the "+of+" ", gate.HoldRequests
		}
		select {
		case <-hold():
			if random.IntN(4) == 0 {
				e2e.Wait(ctx, about(random, 400*time.Millisecond))
				r.saw(what + "late")
				break
			}
			e2e.Wait(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			gate.Drop()
			r.saw(what + "cut")
		case <-time.After(200 * time.Millisecond): // no bytes were sent
		}
		gate.Open()
	}
}

type event struct {
	arm *arm
	id  string
	// key is the ordering key, or the payment to refund. cycle is the event's position within the key, from 1.
	key   string
	cycle int64
}

// plan has the events, and their messages in the order of publishing.
type plan struct {
	events    []*event
	publishes []publish
}

// publish is one message about an event, and the time after the start at which it is due.
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
	// stalls is the attribute of messages whose handler stalls before its effect; stalled is their share.
	stalls  = "chaos_stalls"
	stalled = 0.03
)

// draw draws a plan with 2.3 messages per event on average. With an ordering key, messages are repeated in
// the order in which a broker would. The arms run at the same time; each control gets a tenth of the events.
func draw(r *run, arms []*arm, events int) *plan {
	p, random := &plan{}, rand.New(rand.NewPCG(r.seed, 1))
	send := func(e *event, due time.Duration) {
		m := r.message(e.arm.body(e), e.key)
		if !e.arm.ordered {
			m.OrderingKey = ""
		}
		if random.Float64() < stalled {
			m.Attributes[stalls] = about(random, chaosLease).String()
		}
		p.publishes = append(p.publishes, publish{e, m, due})
	}
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
				key, cycle = j/perPayment, j%perPayment // refunds of a payment run at the same time
			}
			e := &event{a, fmt.Sprintf("%s-%06d", a.name, j), fmt.Sprintf("key-%04d", key), int64(cycle) + 1}
			p.events, byKey[key] = append(p.events, e), append(byKey[key], e)
			due := gap * time.Duration(j*all/n)
			send(e, due)
			if a.ordered && random.Float64() < 0.55 {
				for _, again := range byKey[key][max(0, cycle-random.IntN(4)):] {
					send(again, due)
				}
			}
			for !a.ordered && random.Float64() < 0.565 { // 1.3 repeats on average, most of them soon
				send(e, due+time.Duration(math.Pow(random.Float64(), 5)*float64(5*time.Second)))
			}
		}
	}
	slices.SortStableFunc(p.publishes, func(a, b publish) int { return cmp.Compare(a.due, b.due) })
	return p
}

const (
	// A delivery without an answer is repeated after ackDeadline, but its request may continue until forgotten.
	ackDeadline = 2 * chaosLease
	forgotten   = 3 * time.Second
)

// newBroker starts a broker with a topic and a subscription for each arm, which holds emitted messages.
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
	b := filetest.Must(standin.NewBroker(config))(r)
	r.Cleanup(func() { r.must(b.Close()) })
	return b
}

// stuckFor is the longest time that the arms may take without an acknowledged message.
const stuckFor = 3 * time.Minute

// patient returns a function that returns how many messages each arm still has. It fails the run if their
// total has not become smaller for longer than stuckFor.
func patient(r *run, b *standin.Broker) (held func() string) {
	least, since := math.MaxInt, time.Now()
	return func() string {
		backlogs, _ := filetest.Both(b.Backlogs(r.ctx))(r)
		left := counts{}
		for _, a := range arms {
			left.add(a.name, int(backlogs[a.name].Messages))
		}
		if total := left.total(); total < least || total == 0 {
			least, since = total, time.Now()
		}
		if time.Since(since) > stuckFor {
			r.Fatalf("no message has been acknowledged for %s; the arms hold: %s", stuckFor, left)
		}
		return unless(len(left) == 0, "messages to be acknowledged: %s", left)
	}
}

// outside is a service with idempotency keys and a payment gateway. Both fail at random.
type outside struct {
	*httptest.Server
	run     *run
	service *standin.Receiver
	gateway *standin.Gateway

	mu     sync.Mutex
	random *rand.Rand
	well   bool // it does not fail any more
	// unasked counts, by key, posts without a reconciling GET before them: without idempotency keys they double.
	unasked counts
}

func newOutside(r *run) *outside {
	o := &outside{run: r, random: rand.New(rand.NewPCG(r.seed, 2)), unasked: counts{}}
	posts := []catalog.Post{effectPost, batchPost}
	config := standin.ServiceConfig{Secrets: []string{chaosSecret}, Posts: posts, Tolerance: time.Minute}
	o.gateway = filetest.Must(standin.NewGateway(config))(r)
	o.service = filetest.Must(standin.NewReceiver(config))(r)
	o.gateway.Before(o.service)
	o.Server = httptest.NewServer(o)
	r.Cleanup(o.Close)
	r.Cleanup(o.CloseClientConnections)
	return o
}

func (o *outside) mend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.well = true
	o.run.must(errors.Join(o.service.Behave("", standin.Normal, 1), o.gateway.Behave("", standin.Normal, 1)))
}

// late is a mode beyond those of the stand-ins: a request takes effect after its lease.
const late = standin.Mode("late")

// ServeHTTP draws a request's mode and delay, and counts posts and reconciling requests.
func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // read before the client leaves
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	modes := []standin.Mode{standin.Fail, standin.Forget, standin.Hang, late}
	odds, behave := 0.02, o.service.Behave // of each mode
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		odds, modes[1], behave = 0.1, standin.Lose, o.gateway.Behave // most payments have only one request
	}
	o.mu.Lock()
	switch key, ours := strings.CutPrefix(r.URL.Path, effectPost.Path); {
	case ours && r.Method == http.MethodGet:
		o.unasked[strings.TrimPrefix(key, "/")]--
	case ours:
		o.unasked[r.Header.Get("Idempotency-Key")]++
	}
	draw, pause := int(o.random.Float64()/odds), time.Duration(o.random.Float64()*float64(2*answerWithin))
	fails := draw < len(modes) && !o.well
	o.mu.Unlock()
	if fails {
		o.run.saw("outside to " + string(modes[draw]))
	}
	switch {
	case fails && modes[draw] == late:
		e2e.Wait(context.WithoutCancel(r.Context()), pause)
	case fails:
		o.run.must(behave("", modes[draw], 1))
	}
	o.gateway.ServeHTTP(w, r)
}
