package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"billhook/e2e"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/store"
)

// workerProcess is one that is killed and started again. After a kill it is at another address.
type workerProcess struct {
	environment []string
	process     atomic.Pointer[e2e.Process]
}

// workers are two that share everything. One of them at a time is killed.
type workers struct {
	binary string
	log    e2e.Log
	both   [2]workerProcess
	// kills counts them. next chooses whose turn it is.
	kills int
	next  atomic.Uint64
}

// begin starts both, each with its variables, as NAME=value, until the end of the run.
func (ws *workers) begin(r *run, environment func(i int) []string) {
	for i := range ws.both {
		w := &ws.both[i]
		w.environment = environment(i)
		ws.start(r, w)
		r.Cleanup(func() {
			if process := w.process.Load(); process != nil {
				process.Kill()
			}
		})
	}
}

func (ws *workers) start(r *run, w *workerProcess) {
	process, err := e2e.Start(r.ctx, ws.binary, w.environment, &ws.log)
	r.must(err)
	w.process.Store(process)
}

// one is a worker that runs, each in its turn. While one of them starts, the other does: they are killed one at a time.
func (ws *workers) one() *e2e.Process {
	process := ws.both[ws.next.Add(1)%2].process.Load()
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
func (ws *workers) kill(r *run) {
	w := &ws.both[ws.kills%2]
	r.wait("a worker to be killed", w.process.Swap(nil).Kill) // no new push goes to it
	ws.kills++
	ws.start(r, w)
}

func (ws *workers) rage(ctx context.Context, r *run, every time.Duration) {
	random := rand.New(rand.NewPCG(r.seed, 10))
	for every > 0 && e2e.Wait(ctx, about(random, every)) {
		ws.kill(r)
	}
}

// freeze pauses a worker, about every three seconds until ctx ends, for longer than chaos' lease. It returns how often.
func (ws *workers) freeze(ctx context.Context, seed uint64) (freezes int) {
	for random := rand.New(rand.NewPCG(seed, 11)); e2e.Wait(ctx, about(random, 3*time.Second)); freezes++ {
		process := ws.one()
		process.Freeze()
		e2e.Wait(ctx, about(random, 500*time.Millisecond))
		process.Thaw()
	}
	return freezes
}

// relay has a worker publish what waits, and seal what is posted, as Cloud Scheduler does each minute. A call that
// fails is followed by the next one.
func (ws *workers) relay(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := ws.one().URL
	for _, task := range []string{"/tasks/relay-outbox", tasks.ReleasePath, "/tasks/seal-journal"} {
		request, err := http.NewRequestWithContext(short, http.MethodPost, url+task, http.NoBody)
		if err != nil {
			return
		}
		_, _ = tasks.Call(http.DefaultClient, request)
	}
}

func (ws *workers) schedule(ctx context.Context, every time.Duration) {
	for e2e.Wait(ctx, every) {
		ws.relay(ctx)
	}
}

// settle waits until no message waits in a lane, and all is done besides, and stops both workers: what
// comes too often comes before they have stopped. It returns how many lanes waited at most.
func (ws *workers) settle(r *run, documents store.Store, done func() bool) (lanes int) {
	for {
		before, waiting, entries := done(), 0, int64(0)
		for _, kind := range []lane.Kind{lane.Outbox, lane.Delayed} {
			page, err := documents.Query(r.ctx, store.Query{Collection: kind.Lanes(), Limit: store.MaxPage})
			r.must(err)
			waiting += len(page.Documents)
			page, err = documents.Query(r.ctx, store.Query{Collection: kind.Entries(), Count: true, Limit: store.MaxPage})
			r.must(err)
			entries += page.Count
		}
		// A message leaves its lane after it was published, and is acknowledged after it was put into one. A lane without
		// a message may be left until it expires.
		if before && entries == 0 && done() {
			break
		}
		lanes = max(lanes, waiting)
		ws.relay(r.ctx)
		if !e2e.Wait(r.ctx, 500*time.Millisecond) {
			r.Fatalf("not everything was handled: %d lanes with %d messages wait, all else is done: %t: %w", waiting, entries, before, r.ctx.Err())
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for i := range ws.both {
		r.wait("a worker to stop", func() {
			if code := ws.both[i].process.Load().Stop(); code != 0 {
				r.Fatalf("worker %d has ended with code %d", i+1, code)
			}
		})
	}
	return lanes
}

func each(r *run, documents store.Querier, collection string, equal map[string]any, take func(store.Document)) {
	for doc, err := range store.Each(r.ctx, documents, store.Query{Collection: collection, Equal: equal, Limit: store.MaxPage}) {
		r.must(err)
		take(doc)
	}
}
