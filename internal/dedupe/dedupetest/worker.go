package dedupetest

import (
	"context"
	"errors"

	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// Fate is what becomes of one call of a worker.
type Fate string

// The fates of a call.
const (
	Answered Fate = "answered"
	refused  Fate = "never arrives"
	lost     Fate = "done, answer lost"
	crash    Fate = "the worker is gone before it"
	severed  Fate = "the worker is gone after it"
)

// Fates are what a model draws from: most calls are answered.
var Fates = []Fate{Answered, Answered, Answered, Answered, Answered, refused, lost, crash, severed}

var errFate = errors.New("dedupetest: the call has no answer")

// Worker stops before every call, until the test says how that goes.
type Worker struct {
	Running bool
	fate    chan Fate
	stopped chan struct{}
	gone    bool
}

// Call makes one call, as it is fated. A worker that is gone makes none.
func (w *Worker) Call(do func() error) error {
	if w.gone {
		return errFate
	}
	w.stopped <- struct{}{}
	next := <-w.fate
	w.gone = next == crash || next == severed
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

// Start has a worker that is not running run, up to its first call.
func (w *Worker) Start(run func()) {
	w.gone, w.fate, w.stopped = false, make(chan Fate), make(chan struct{})
	stopped := w.stopped
	go func() {
		defer close(stopped)
		run()
	}()
	_, w.Running = <-stopped
}

// Step lets a running worker make the call that it stands before.
func (w *Worker) Step(next Fate) {
	w.fate <- next
	_, w.Running = <-w.stopped
}

// Settle lets the worker end without a fault.
func (w *Worker) Settle() {
	for w.Running {
		w.Step(Answered)
	}
}
