package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"billhook/e2e"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/store"
)

// workers are two processes that share everything. One of them at a time is killed, and started again at
// another address.
type workers struct {
	of     *run
	binary string
	output *e2e.Log
	both   [2]struct {
		environment []string
		process     atomic.Pointer[e2e.Process]
	}
	// kills counts them. next chooses whose turn it is.
	kills int
	next  atomic.Uint64
}

// begin starts both, each with its variables, as NAME=value, until the end of the run.
func (ws *workers) begin(r *run, binary string, output *e2e.Log, environment func(i int) []string) {
	ws.of, ws.binary, ws.output = r, binary, output
	for i := range ws.both {
		ws.both[i].environment = environment(i)
		ws.start(i)
		r.Cleanup(func() {
			if process := ws.both[i].process.Load(); process != nil {
				process.Kill()
			}
		})
	}
}

func (ws *workers) start(i int) {
	process, err := e2e.Start(ws.of.ctx, ws.binary, ws.both[i].environment, ws.output)
	ws.of.must(err)
	ws.both[i].process.Store(process)
}

// one is a worker that runs, each in its turn. While one of them starts, the other does: they are killed one
// at a time.
func (ws *workers) one() (process *e2e.Process) {
	for process == nil {
		process = ws.both[ws.next.Add(1)%2].process.Load()
	}
	return process
}

// about is so long, or up to a third shorter or longer.
func about(random *rand.Rand, long time.Duration) time.Duration {
	return time.Duration(float64(long) * (2 + 2*random.Float64()) / 3)
}

// kill ends a worker with SIGKILL, each in its turn, and starts it again at once.
func (ws *workers) kill() {
	i := ws.kills % 2
	ws.both[i].process.Swap(nil).Kill() // no new push goes to it
	ws.kills++
	ws.start(i)
}

func (ws *workers) rage(ctx context.Context, every time.Duration) {
	for random := rand.New(rand.NewPCG(ws.of.seed, 10)); every > 0 && e2e.Wait(ctx, about(random, every)); {
		ws.kill()
	}
}

// freeze pauses a worker, about every three seconds until ctx ends, for longer than chaos' lease. It returns
// how often.
func (ws *workers) freeze(ctx context.Context) (freezes int) {
	for random := rand.New(rand.NewPCG(ws.of.seed, 11)); e2e.Wait(ctx, about(random, 3*time.Second)); freezes++ {
		process := ws.one()
		process.Freeze()
		e2e.Wait(ctx, about(random, 500*time.Millisecond))
		process.Thaw()
	}
	return freezes
}

// relay has a worker publish what waits, and seal what is posted, as Cloud Scheduler does each minute. A call
// that fails is followed by the next one.
func (ws *workers) relay(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := ws.one().URL
	for _, task := range []string{"/tasks/relay-outbox", tasks.ReleasePath, "/tasks/seal-journal"} {
		_, _ = e2e.Post(ctx, url+task, nil, nil)
	}
}

func (ws *workers) schedule(ctx context.Context, every time.Duration) {
	for e2e.Wait(ctx, every) {
		ws.relay(ctx)
	}
}

// settle waits until no message waits in a lane, and all is done besides, and stops both workers: what
// comes too often comes before they have stopped. It returns how many lanes waited at most.
func (ws *workers) settle(documents store.Store, done func() bool) (lanes int) {
	r := ws.of
	look := func(query store.Query) store.Page {
		query.Limit = store.MaxPage
		page, err := documents.Query(r.ctx, query)
		r.must(err)
		return page
	}
	for {
		before, waiting, entries := done(), 0, int64(0)
		for _, kind := range []lane.Kind{lane.Outbox, lane.Delayed} {
			waiting += len(look(store.Query{Collection: kind.Lanes()}).Documents)
			entries += look(store.Query{Collection: kind.Entries(), Count: true}).Count
		}
		// A message leaves its lane after it was published, and is acknowledged after it was put into one. A lane
		// without a message may be left until it expires.
		if before && entries == 0 && done() {
			break
		}
		lanes = max(lanes, waiting)
		ws.relay(r.ctx)
		if !e2e.Wait(r.ctx, 500*time.Millisecond) {
			r.Fatalf("not everything was handled: %d lanes with %d messages wait, all else is done: %t: %w", waiting, entries, before, r.ctx.Err())
		}
	}
	for i := range ws.both {
		if code := ws.both[i].process.Load().Stop(); code != 0 {
			r.Fatalf("worker %d has ended with code %d", i+1, code)
		}
	}
	return lanes
}
