package payments_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/payments"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

type fault int

const (
	none       fault = iota
	lostBefore       // the caller gets no answer, and the step did not happen
	lostAfter        // the caller gets no answer, and the step happened
	diedBefore       // the worker is killed before the step
	diedAfter        // the worker is killed after the step
	resent           // a commit is made, its answer is lost, and the client library repeats it
	late             // a request to the gateway times out, and arrives there later
)

// At a read, a death of the worker ends the attempt as an error does.
var everything = map[string][]fault{
	"read":    {none, lostBefore},
	"find":    {none, lostBefore, lostAfter, diedBefore, diedAfter},
	"commit":  {none, lostBefore, lostAfter, diedBefore, diedAfter, resent},
	"request": {none, lostBefore, lostAfter, diedBefore, diedAfter, late},
}

// heldUp has the faults of steps that happen: to another worker, one that dies before its step seems slow.
var heldUp = map[string][]fault{
	"read": {none}, "find": {none}, "commit": {none, lostAfter, resent}, "request": {none, lostAfter, late},
}

var banks = map[string]func() *bank{
	"agrees, and repeats its answer":   func() *bank { return newBank() },
	"agrees, and refuses a repetition": func() *bank { b := newBank(); b.rebuffs = true; return b },
	"declines permanently":             func() *bank { return newBank("decline") },
	"refuses one and accepts the next, unless reconciled between": func() *bank {
		b := newBank("refuse")
		b.forgets, b.voids = true, true
		return b
	},
}

var refundKey = store.Key{Collection: payments.RefundsCollection, ID: store.ID("default", "pay-1")}

// memory is a store in memory, without queries.
type memory struct {
	store.Querier

	docs map[store.Key]store.Document
	last store.Version
}

func newMemory() *memory { return &memory{docs: map[store.Key]store.Document{}} }

func (m *memory) Get(_ context.Context, key store.Key) (store.Document, error) {
	if doc, ok := m.docs[key]; ok {
		return doc, nil
	}
	return store.Document{}, store.ErrNotFound
}

func (m *memory) Commit(_ context.Context, writes []store.Write) (versions []store.Version, err error) {
	if err := store.CheckWrites(writes); err != nil {
		return nil, err
	}
	for _, w := range writes {
		if m.docs[w.Key].Version != w.Version {
			return nil, store.ErrStale
		}
	}
	for _, w := range writes {
		m.last++
		m.docs[w.Key] = store.Document{Key: w.Key, Fields: w.Fields, Version: m.last}
		versions = append(versions, m.last)
	}
	return versions, nil
}

func (m *memory) state() string {
	state, _ := m.docs[refundKey].Fields["state"].(string)
	return state
}

// worker is one delivery of the event, which stops before every step; it is its own gateway.
type worker struct {
	w      *world
	pause  func(string) bool
	resume func() (string, bool)
	stop   func()
	next   string // the next step
	fault  fault
	dead   bool
	effect handler.Effect
	err    error
}

func (a *worker) step(name string, do func() error) error {
	if !a.dead {
		a.pause(name)
	}
	f := a.fault
	a.fault = none
	a.dead = a.dead || f == diedBefore
	if a.dead || f == lostBefore {
		return errLost
	}
	if f == late {
		a.w.inFlight = append(a.w.inFlight, do)
		return errLost
	}
	err := do()
	if f == resent {
		err = do()
	}
	a.dead = f == diedAfter
	if a.dead || f == lostAfter {
		return errLost
	}
	return err
}

func (a *worker) Do(ctx context.Context, id string, order []byte) (answer []byte, err error) {
	return answer, a.step("request", func() (err error) {
		answer, err = a.w.bank.Do(ctx, id, order)
		return err
	})
}

func (a *worker) Reconcile(ctx context.Context, id string) (answer []byte, known bool, err error) {
	return answer, known, a.step("find", func() (err error) {
		answer, known, err = a.w.bank.Reconcile(ctx, id)
		return err
	})
}

func (a *worker) Request(id string, order []byte) handler.Call { return a.w.bank.Request(id, order) }

func (a *worker) resumed() (more bool) {
	a.next, more = a.resume()
	return more
}

type world struct {
	memory     *memory
	bank       *bank
	together   int                // how many workers may run at once
	deliveries int                // how many deliveries precede the last ones, which have no faults
	reconciles bool               // whether a repeated attempt calls Reconcile first
	budget     int                // the largest number of faults
	faults     map[string][]fault // the faults of each step

	delivered int
	inFlight  []func() error
	answers   []*worker
}

func (w *world) run(pick func(n int) int) error {
	var active []*worker
	defer func() {
		for _, a := range active {
			a.stop()
		}
	}()
	for {
		var steps []func()
		for i, a := range active {
			steps = append(steps, func() {
				if w.budget > 0 {
					kinds := w.faults[a.next]
					if a.fault = kinds[pick(len(kinds))]; a.fault != none {
						w.budget--
					}
				}
				if !a.resumed() {
					w.answers = append(w.answers, a)
					active = append(active[:i:i], active[i+1:]...)
				}
			})
		}
		if w.delivered < w.deliveries && len(active) < w.together && !w.answered() {
			steps = append(steps, func() { active = append(active, w.deliver()) })
		}
		if len(steps) == 0 {
			break
		}
		if len(w.inFlight) > 0 {
			steps = append(steps, w.arrive)
		}
		steps[pick(len(steps))]()
		if err := w.always(); err != nil {
			return err
		}
	}
	for range 2 { // the deliveries without faults
		if w.answered() {
			break
		}
		a := w.deliver()
		for a.resumed() {
		}
		w.answers = append(w.answers, a)
	}
	for len(w.inFlight) > 0 {
		w.arrive()
	}
	return w.inTheEnd()
}

func final(err error) bool { return err != nil && retry.Decide(err).Class.Terminal() }

// answered reports whether a worker has a final answer, so that the message is not delivered again.
func (w *world) answered() bool {
	ended := func(a *worker) bool { return !a.dead && (a.err == nil || final(a.err)) }
	return slices.ContainsFunc(w.answers, ended)
}

func (w *world) arrive() {
	_ = w.inFlight[0]()
	w.inFlight = w.inFlight[1:]
}

func (w *world) deliver() *worker {
	w.delivered++
	event := refundOf("r-1", "pay-1", "9.99")
	if w.reconciles {
		event.Attempt = w.delivered
	}
	a := &worker{w: w}
	db := &storetest.Faults{Store: w.memory}
	db.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error { return a.step("commit", do) }
	// The race detector keeps the goroutines of all histories: with -short a worker does not stop before a read
	// that cannot fail.
	if !testing.Short() || len(w.faults["read"]) > 1 {
		db.OnRead = func(do func() error) error { return a.step("read", do) }
	}
	a.resume, a.stop = iter.Pull(func(yield func(string) bool) {
		a.pause = yield
		a.effect, a.err = deliver(context.Background(), refunding(db, a), event)
	})
	a.resumed()
	return a
}

func (w *world) always() error {
	switch at, done := w.memory.state(), w.bank.refunded["pay-1"]; {
	case at == "" && (done > 0 || len(w.inFlight) > 0):
		return errors.New("requested at the gateway before it was reserved")
	case at == "refunded" && done == 0:
		return errors.New("confirmed, but not made at the gateway")
	case done > 1:
		return errors.New("made twice at the gateway")
	}
	return nil
}

func (w *world) inTheEnd() error {
	if err := w.always(); err != nil {
		return err
	}
	done, settled := w.bank.refunded["pay-1"] > 0, "refused"
	if done {
		settled = "refunded"
	}
	if at := w.memory.state(); at != settled {
		return fmt.Errorf("%s here, but %s at the gateway", at, settled)
	}
	for i, a := range w.answers {
		reason := retry.Decide(a.err).Reason
		switch {
		case a.dead:
		case a.err == nil && (a.effect.Result != "refunded" || !done):
			return fmt.Errorf("delivery %d answers %q, but it is %s", i+1, a.effect.Result, settled)
		case final(a.err) && (done || (reason != "refund_declined" && reason != "callee_refused_422")):
			return fmt.Errorf("delivery %d answers %w, but it is %s", i+1, a.err, settled)
		}
	}
	if !w.answered() {
		return errors.New("not settled after two deliveries without faults")
	}
	return nil
}

type odometer struct {
	taken, of []int
	at        int
}

func (o *odometer) pick(n int) int {
	if o.at == len(o.taken) {
		o.taken, o.of = append(o.taken, 0), append(o.of, n)
	}
	o.at++
	return o.taken[o.at-1]
}

func (o *odometer) next() bool {
	for o.at = 0; len(o.taken) > 0; {
		last := len(o.taken) - 1
		if o.taken[last]++; o.taken[last] < o.of[last] {
			return true
		}
		o.taken, o.of = o.taken[:last], o.of[:last]
	}
	return false
}

func everyHistory(t *testing.T, begin func() *world, see func(w *world, err error, choices []int)) {
	t.Helper()
	runs := 0
	for choices := new(odometer); runs == 0 || choices.next(); runs++ {
		w := begin()
		see(w, w.run(choices.pick), choices.taken)
	}
	require.Greater(t, runs, 100)
	t.Log(runs, "histories")
}

// Up to two steps of three deliveries fail; or two workers make their steps in every order, and one seems to
// fail.
func TestNoCrashMakesARefundDisagreeWithTheGateway(t *testing.T) {
	t.Parallel()
	for name, open := range banks {
		for kind, begin := range map[string]func() world{
			"reconciles": func() world {
				return world{together: 1, deliveries: 3, budget: 2, faults: everything, reconciles: true}
			},
			"does not reconcile": func() world {
				return world{together: 1, deliveries: 3, budget: 2, faults: everything}
			},
			"with two workers": func() world {
				return world{together: 2, deliveries: 2, budget: 1, faults: heldUp}
			},
			"step by step": func() world { return world{together: 2, deliveries: 2, faults: everything} },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				everyHistory(t, func() *world {
					w := begin()
					w.memory, w.bank = newMemory(), open()
					return &w
				}, func(_ *world, err error, choices []int) {
					if err != nil {
						require.NoError(t, err, "choices %v", choices)
					}
				})
			})
		}
	}
}

// It shows that the test above can fail.
func TestAGatewayThatForgetsItsRefusalsIsReportedAsADisagreement(t *testing.T) {
	t.Parallel()
	failed, reported := 0, 0
	everyHistory(t, func() *world {
		b := newBank("refuse")
		b.forgets = true
		return &world{memory: newMemory(), bank: b, together: 2, deliveries: 2}
	}, func(w *world, err error, _ []int) {
		if err != nil {
			require.NoError(t, w.always(), "nothing happens twice")
			failed++
		}
		for _, a := range w.answers {
			if retry.Decide(a.err).Reason == "two_phase_disagreement" {
				require.True(t, final(a.err))
				reported++
			}
		}
	})
	require.Positive(t, failed)
	require.Positive(t, reported)
}
