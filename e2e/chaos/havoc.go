package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"billhook/e2e"
)

// target is one worker. After a kill it returns at another address.
type target struct {
	binary      string
	environment []string
	// store is the gate between the worker and the database.
	store   *e2e.Gate
	log     *e2e.Log
	process atomic.Pointer[e2e.Process]
}

func (t *target) start(ctx context.Context) error {
	process, err := e2e.Start(ctx, t.binary, t.environment, t.log)
	if err == nil {
		t.process.Store(process)
	}
	return err
}

// havoc disturbs the workers while they work.
type havoc struct {
	targets    [2]*target
	seed       uint64
	killsEvery time.Duration

	kills, freezes int
	// Counts of answers and requests of the store that were cut off, and of times in which
	// either was delayed.
	cutAnswers, cutRequests, late atomic.Int64
}

// run goes on until ctx ends, and leaves both workers running. It fails if a worker cannot be
// started again.
func (h *havoc) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.kill(ctx) })
	group.Go(func() error {
		h.freeze(ctx)
		return nil
	})
	for i, t := range h.targets {
		group.Go(func() error {
			h.disturb(ctx, t, rand.New(rand.NewPCG(h.seed, 20+uint64(i))))
			return nil
		})
	}
	return group.Wait()
}

// about returns long, varied by up to a third.
func about(random *rand.Rand, long time.Duration) time.Duration {
	return time.Duration(float64(long) * (2 + 2*random.Float64()) / 3)
}

// kill ends the workers in turn with SIGKILL and starts each again at once.
func (h *havoc) kill(ctx context.Context) error {
	random := rand.New(rand.NewPCG(h.seed, 10))
	for e2e.Wait(ctx, about(random, h.killsEvery)) {
		t := h.targets[h.kills%2]
		t.process.Load().Kill()
		h.kills++
		if err := t.start(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("kill %d: %w", h.kills, err)
		}
	}
	return nil
}

// freeze pauses a worker for longer than a lease.
func (h *havoc) freeze(ctx context.Context) {
	random := rand.New(rand.NewPCG(h.seed, 11))
	for e2e.Wait(ctx, about(random, 3*time.Second)) {
		p := h.targets[random.IntN(2)].process.Load()
		p.Freeze()
		h.freezes++
		e2e.Wait(ctx, about(random, 500*time.Millisecond))
		p.Thaw()
	}
}

// disturb cuts or delays the traffic between a worker and the store.
func (h *havoc) disturb(ctx context.Context, t *target, random *rand.Rand) {
	for e2e.Wait(ctx, about(random, time.Second)) {
		what, counter, hold := random.Float64(), &h.cutAnswers, t.store.HoldAnswers
		if what >= 0.6 && what <= 0.9 {
			counter, hold = &h.cutRequests, t.store.HoldRequests
		}
		select {
		case <-hold():
		case <-time.After(200 * time.Millisecond): // nothing was sent
			t.store.Open()
			continue
		}
		if what < 0.75 {
			e2e.Wait(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			t.store.Drop()
		} else {
			counter = &h.late
			e2e.Wait(ctx, about(random, 400*time.Millisecond))
			t.store.Open()
		}
		counter.Add(1)
	}
}
