package dedupetest

import (
	"context"
	"errors"

	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// Fate is the outcome of one call of a worker.
type Fate string

// The outcomes of a call.
const (
	Answered Fate = "answered"
	refused  Fate = "never arrives"
	lost     Fate = "done, answer lost"
	crash    Fate = "the worker dies before it"
	severed  Fate = "the worker dies after it"
)

// Fates are what a model draws from: most calls are answered.
var Fates = []Fate{Answered, Answered, Answered, Answered, Answered, refused, lost, crash, severed}

var errFate = errors.New("dedupetest: the call has no answer")

// Worker stops before every call, until the test chooses its outcome.
type Worker struct {
	Running bool
	fate    chan Fate
	stopped chan struct{}
	dead    bool
}

// Call makes one call with the chosen outcome. A dead worker makes none.
func (w *Worker) Call(do func() error) error {
	if w.dead {
		return errFate
	}
	w.stopped <- struct{}{}
	next := <-w.fate
	w.dead = next == crash || next == severed
	if next == refused || next == crash {
		return errFate
	}
	if err := do(); err != nil || next == Answered {
		return err
	}
	return errFate
}

// Store is a store whose reads and commits are the worker's calls.
func (w *Worker) Store(on store.Store) store.Store {
	return &storetest.Faults{
		Store: on, OnRead: w.Call,
		OnCommit: func(_ context.Context, _ []store.Write, do func() error) error { return w.Call(do) },
	}
}

// Start starts a worker, and returns at its first call.
func (w *Worker) Start(run func()) {
	w.dead, w.fate, w.stopped = false, make(chan Fate), make(chan struct{})
	stopped := w.stopped
	go func() {
		defer close(stopped)
		run()
	}()
	_, w.Running = <-stopped
}

// Step lets a running worker make its next call.
func (w *Worker) Step(next Fate) {
	w.fate <- next
	_, w.Running = <-w.stopped
}

// Settle lets the worker finish without faults.
func (w *Worker) Settle() {
	for w.Running {
		w.Step(Answered)
	}
}
