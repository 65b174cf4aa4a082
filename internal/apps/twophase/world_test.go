package twophase_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"billhook/internal/apps/twophase"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// fault is what befalls one step: a read, a commit, or a request to the other side.
type fault int

const (
	none fault = iota
	// lostBefore and lostAfter: the caller hears nothing; the step did not, or did, happen.
	lostBefore
	lostAfter
	// diedBefore and diedAfter: the worker is killed on this side of the step or that.
	diedBefore
	diedAfter
	// resent: a commit happens, its answer is lost, and the client library sends it again.
	resent
	// late: a request to the other side times out, and arrives there some time later.
	late
)

// everything lists what can befall a step of each name.
var everything = map[string][]fault{
	"read":    {none, lostBefore, diedBefore},
	"find":    {none, lostBefore, lostAfter, diedBefore, diedAfter},
	"commit":  {none, lostBefore, lostAfter, diedBefore, diedAfter, resent},
	"request": {none, lostBefore, lostAfter, diedBefore, diedAfter, late},
}

var errLost = errors.New("no answer")

var start = time.Date(2027, time.March, 1, 12, 0, 0, 0, time.UTC)

const (
	opening = 100
	amount  = 5
)

var wallet = store.Key{Collection: "accounts", ID: "wallet"}

// heldUp lists what can befall a step that takes place nevertheless: what stops a
// worker before one is, to another worker, no different from one that is slow.
var heldUp = map[string][]fault{
	"read": {none}, "find": {none}, "commit": {none, lostAfter, resent}, "request": {none, lostAfter, late},
}

// side is the other side. How it treats keys is what the package asks of it, or not.
type side struct {
	// decisions are what it says to the requests that it considers; the last one stays.
	decisions []bool
	// forgets: a refusal is not remembered under the key.
	forgets bool
	// voids: asking for a key that nothing was done under refuses it for good.
	voids bool
	// rebuffs: a repetition of what was done is refused, instead of answered alike.
	rebuffs bool

	done, refused bool
	times         int
	inFlight      int
}

func (s *side) request() (string, error) {
	switch {
	case s.done && s.rebuffs:
		return "", retry.Permanent("done_already", nil)
	case s.done:
		return "refunded", nil
	case s.refused:
		return "", retry.Permanent("declined", nil)
	}
	accepts := s.decisions[0]
	if len(s.decisions) > 1 {
		s.decisions = s.decisions[1:]
	}
	if !accepts {
		s.refused = !s.forgets
		return "", retry.Permanent("declined", nil)
	}
	s.done = true
	s.times++
	return "refunded", nil
}

func (s *side) find() (string, bool) {
	if s.done {
		return "refunded", true
	}
	s.refused = s.refused || s.voids
	return "", false
}

// memory is a store in a map.
type memory struct {
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

func (m *memory) Commit(_ context.Context, writes []store.Write) ([]store.Version, error) {
	if err := store.CheckWrites(writes); err != nil {
		return nil, err
	}
	for _, w := range writes {
		have, ok := m.docs[w.Key]
		switch {
		case w.Op == store.OpCreate && ok:
			return nil, store.ErrExists
		case w.Op == store.OpUpdate && have.Version != w.Version:
			return nil, store.ErrStale
		}
	}
	var versions []store.Version
	for _, w := range writes {
		fields := map[string]any{}
		maps.Copy(fields, w.Fields)
		if w.Op == store.OpIncrement {
			maps.Copy(fields, m.docs[w.Key].Fields)
			for name, add := range w.Add {
				old, _ := fields[name].(int64)
				fields[name] = old + add
			}
		}
		m.last++
		versions = append(versions, m.last)
		m.docs[w.Key] = store.Document{Key: w.Key, Fields: fields, Version: m.last}
	}
	return versions, nil
}

// attempt is one delivery of the event to one worker, stopped before every step.
type attempt struct {
	w      *world
	pause  func(string) bool
	resume func() (string, bool)
	stop   func()
	// next is the name of the step that it stands before.
	next   string
	fault  fault
	dead   bool
	result string
	err    error
}

// step does one step under the fault that was set for it.
func (a *attempt) step(name string, do func() error) error {
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
		a.w.side.inFlight++
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

func (a *attempt) Get(ctx context.Context, key store.Key) (doc store.Document, err error) {
	return doc, a.step("read", func() (err error) {
		doc, err = a.w.store.Get(ctx, key)
		return err
	})
}

func (a *attempt) Commit(ctx context.Context, writes []store.Write) (versions []store.Version, err error) {
	err = a.step("commit", func() (err error) {
		versions, err = a.w.store.Commit(ctx, writes)
		return err
	})
	return versions, err
}

func move(from, to string) []store.Write {
	return []store.Write{store.Increment(wallet, map[string]int64{from: -amount, to: amount}, nil)}
}

// reserving is work that reserves in the wallet, without another side.
func reserving(on store.GetCommitter, now func() time.Time) twophase.Work {
	return twophase.Work{
		Store: on, Now: now, RememberFor: time.Hour,
		Prepare: func(context.Context, handler.Event) ([]store.Write, error) { return move("free", "reserved"), nil },
		Confirm: func(context.Context, handler.Event, string) ([]store.Write, error) {
			return move("reserved", "spent"), nil
		},
		RollBack: func(context.Context, handler.Event, string) ([]store.Write, error) {
			return move("reserved", "free"), nil
		},
	}
}

func (a *attempt) work() twophase.Work {
	work := reserving(a, func() time.Time { return start })
	work.CommitThere = func(context.Context, handler.Event) (result string, err error) {
		err = a.step("request", func() (err error) {
			result, err = a.w.side.request()
			return err
		})
		return result, err
	}
	work.Find = func(context.Context, handler.Event) (result string, done bool, err error) {
		err = a.step("find", func() error {
			result, done = a.w.side.find()
			return nil
		})
		return result, done, err
	}
	return work
}

// world is one event, the store, the other side, and the workers at it.
type world struct {
	store store.GetCommitter
	side  side
	// together is how many attempts may run at once; deliveries how many there are
	// before the last ones, which nothing befalls.
	together, deliveries int
	// reconciles: the worker asks Reconcile before a repeated attempt.
	reconciles bool
	// budget is how many faults there may be, of those that can befall a step.
	budget  int
	befalls map[string][]fault

	delivered int
	answers   []attempt
}

// run lets the event's deliveries go on until it is settled. pick chooses one of n
// ways to go on. It returns what is wrong in the end.
func (w *world) run(pick func(n int) int) error {
	if _, err := w.store.Commit(context.Background(), []store.Write{
		store.Set(wallet, map[string]any{"free": int64(opening), "reserved": int64(0), "spent": int64(0)}),
	}); err != nil {
		return err
	}
	var active []*attempt
	defer func() {
		for _, a := range active {
			a.stop()
		}
	}()
	for {
		more := w.delivered < w.deliveries && len(active) < w.together && !w.answered()
		var ways []func()
		for i, a := range active {
			ways = append(ways, func() {
				if w.budget > 0 {
					kinds := w.befalls[a.next]
					if a.fault = kinds[pick(len(kinds))]; a.fault != none {
						w.budget--
					}
				}
				if !a.goOn() {
					w.answers = append(w.answers, *a)
					active = append(active[:i:i], active[i+1:]...)
				}
			})
		}
		if more {
			ways = append(ways, func() { active = append(active, w.deliver()) })
		}
		if len(ways) == 0 {
			break
		}
		if w.side.inFlight > 0 {
			ways = append(ways, w.arrive)
		}
		ways[pick(len(ways))]()
		if err := w.always(); err != nil {
			return err
		}
	}
	for range 2 { // the deliveries that nothing befalls, if it takes any
		if w.answered() {
			break
		}
		a := w.deliver()
		for a.goOn() {
		}
		w.answers = append(w.answers, *a)
	}
	for w.side.inFlight > 0 {
		w.arrive()
	}
	return w.inTheEnd()
}

func final(err error) bool { return err != nil && retry.Decide(err).Class.Terminal() }

// answered reports whether a worker has heard how it ended: nobody delivers the event again.
func (w *world) answered() bool {
	return slices.ContainsFunc(w.answers, func(a attempt) bool { return !a.dead && (a.err == nil || final(a.err)) })
}

func (w *world) arrive() {
	w.side.inFlight--
	_, _ = w.side.request()
}

// deliver starts an attempt, and runs it up to its first step.
func (w *world) deliver() *attempt {
	w.delivered++
	a := &attempt{w: w}
	event := event
	event.Attempt = w.delivered
	a.resume, a.stop = iter.Pull(func(yield func(string) bool) {
		a.pause = yield
		h := a.work().Leased()
		if event.Attempt > 1 && w.reconciles {
			effect, done, err := h.Reconcile(context.Background(), event)
			a.result, a.err = effect.Result, err
			if done || a.err != nil {
				return
			}
		}
		effect, err := h.Do(context.Background(), event)
		a.result, a.err = effect.Result, err
	})
	a.goOn()
	return a
}

// goOn does the step that the attempt stands before, and reports whether there is another.
func (a *attempt) goOn() (more bool) {
	a.next, more = a.resume()
	return more
}

func (w *world) state() string {
	doc, _ := w.store.Get(context.Background(), phaseKey)
	state, _ := doc.Fields["state"].(string)
	return state
}

// always holds after every step.
func (w *world) always() error {
	doc, _ := w.store.Get(context.Background(), wallet)
	state, amounts := w.state(), [3]any{doc.Fields["free"], doc.Fields["reserved"], doc.Fields["spent"]}
	want := map[string][3]any{
		"":            {int64(opening), int64(0), int64(0)},
		"prepared":    {int64(opening - amount), int64(amount), int64(0)},
		"committed":   {int64(opening - amount), int64(0), int64(amount)},
		"rolled_back": {int64(opening), int64(0), int64(0)},
	}[state]
	switch {
	case amounts != want:
		return fmt.Errorf("%s, but free, reserved and spent are %v", state, amounts)
	case state == "" && (w.side.done || w.side.inFlight > 0):
		return errors.New("asked there before anything was reserved here")
	case state == "committed" && !w.side.done:
		return errors.New("confirmed here what has not happened there")
	case w.side.times > 1:
		return errors.New("done twice there")
	}
	return nil
}

// inTheEnd holds once the event is settled and nothing is under way.
func (w *world) inTheEnd() error {
	if err := w.always(); err != nil {
		return err
	}
	settled := "rolled_back"
	if w.side.done {
		settled = "committed"
	}
	if w.state() != settled {
		return fmt.Errorf("%s here, while %s there", w.state(), settled)
	}
	for i, a := range w.answers {
		switch {
		case a.dead:
		case a.err == nil && (a.result != "refunded" || !w.side.done):
			return fmt.Errorf("delivery %d answers %q, while %s", i+1, a.result, settled)
		case final(a.err) && (w.side.done || retry.Decide(a.err).Reason != "declined"):
			return fmt.Errorf("delivery %d answers %w, while %s", i+1, a.err, settled)
		}
	}
	if !w.answered() {
		return errors.New("two deliveries that nothing befell did not settle it")
	}
	return nil
}
