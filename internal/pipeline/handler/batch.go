package handler

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"billhook/catalog"
	"billhook/internal/retry"
)

// Outcome is what became of one event of a batch.
type Outcome struct {
	Effect Effect
	Err    error
}

// Timer starts a timer: c receives when d has passed, unless stop was called.
type Timer func(d time.Duration) (c <-chan time.Time, stop func() bool)

// Batch makes one call for concurrent attempts. It ends at their earliest deadline, not when one is canceled.
type Batch struct {
	// Queue finds a queue by its id; a queue without a batch in the catalog has batches of one.
	Queue func(id string) (catalog.Queue, bool)
	Timer Timer
	// Call returns an outcome for each event, in the same order, or an error for all of them.
	Call func(ctx context.Context, events []Event) ([]Outcome, error)
}

// Leased returns the handler that one attempt calls; it is safe to repeat.
func (b Batch) Leased() Leased {
	g := &gatherer{Batch: b, open: map[string]*gathering{}}
	return Leased{Do: g.do, SafeToRepeat: true, batched: true}
}

type gatherer struct {
	Batch
	mu   sync.Mutex
	open map[string]*gathering
}

type gathering struct {
	attempts []*attempt
	full     chan struct{} // closed when no more may join
}

var unanswered = retry.Transient("batch_unanswered", nil)

type attempt struct {
	ctx      context.Context //nolint:containedctx // the call needs the contexts of its attempts
	event    Event
	taken    atomic.Bool   // set by the call, or by the attempt itself if it leaves first
	done     chan struct{} // closed when outcome or panicked is set
	outcome  Outcome
	panicked any
}

// do is one attempt. Once the call has begun, do waits for its end, as if it had made the call itself.
func (g *gatherer) do(ctx context.Context, event Event) (Effect, error) {
	a := &attempt{ctx: ctx, event: event, done: make(chan struct{})}
	g.join(a)
	select {
	case <-a.done:
	case <-ctx.Done():
		if a.taken.CompareAndSwap(false, true) {
			return Effect{}, ctx.Err()
		}
		<-a.done
	}
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.outcome.Effect, a.outcome.Err
}

func (g *gatherer) join(a *attempt) {
	queue, _ := g.Queue(a.event.Queue)
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.open[a.event.Queue]
	if all == nil {
		all = &gathering{full: make(chan struct{})}
		g.open[a.event.Queue] = all
		go g.call(a.event.Queue, all, queue.Batch.Wait)
	}
	if all.attempts = append(all.attempts, a); len(all.attempts) >= queue.Batch.Size {
		delete(g.open, a.event.Queue)
		close(all.full)
	}
}

func (g *gatherer) call(queue string, all *gathering, wait time.Duration) {
	late, stop := g.Timer(wait)
	select {
	case <-all.full:
		stop()
	case <-late:
		g.mu.Lock()
		if g.open[queue] == all {
			delete(g.open, queue)
		}
		g.mu.Unlock()
	}
	left := func(a *attempt) bool { return !a.taken.CompareAndSwap(false, true) }
	attempts := slices.DeleteFunc(all.attempts, left)
	if len(attempts) == 0 {
		return // all have left
	}
	events := make([]Event, len(attempts))
	ctx := context.WithoutCancel(attempts[0].ctx)
	for i, a := range attempts {
		events[i], a.outcome.Err = a.event, unanswered
		if deadline, ok := a.ctx.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline) // the earliest of all holds
			defer cancel()
		}
	}
	defer func() {
		panicked := recover()
		for _, a := range attempts {
			a.panicked = panicked
			close(a.done)
		}
	}()
	outcomes, err := g.Call(ctx, events)
	if err == nil && len(outcomes) != len(events) {
		err = unanswered
	}
	for i, a := range attempts {
		if a.outcome.Err = err; err == nil {
			a.outcome = outcomes[i]
		}
	}
}
