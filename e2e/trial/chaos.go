package main

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/platform/gcp/firestore"
	"billhook/internal/platform/store"
)

// chaos tries to break the one promise on Google's Firestore emulator. Its push client delivers every event about 2.3
// times, reordered, delayed and in parallel, to two worker processes. About every second it kills one of them with
// SIGKILL. Handlers stall past their lease, whole workers are frozen, and answers of the store, of an outside service
// and of the broker are dropped. Then it counts.
//
// It fails unless the arms have lost, doubled and disordered nothing, and the control check-then-act has doubled.
func chaos(flags *flag.FlagSet) func(*run) {
	events := flags.Int("events", 15000, "how many events, controls not counted")
	killsEvery := flags.Duration("kills-every", time.Second, "how often a worker is killed, on average")
	names := flags.String("arms", "", "which arms, separated by commas; all if empty")
	return func(r *run) {
		arms, err := chosen(*names)
		r.must(err)
		p := draw(r.seed, arms, *events)
		planned := p.deliveries()
		r.printf("%d events, %d deliveries planned (%.2f each), %d of them stalling\n",
			len(p.events), planned, float64(planned)/float64(len(p.events)), p.stalling)
		verdicts := unleash(r, p, arms, *killsEvery)
		r.printf("%s", table(verdicts))
		judge(r, verdicts)
	}
}

func unleash(r *run, p *plan, arms []*arm, killsEvery time.Duration) []verdict {
	sdk, err := emulator.Find()
	r.must(err)
	database, err := sdk.StartFirestore(r.ctx)
	r.must(err)
	r.Cleanup(func() { r.must(database.Stop()) })
	documents, err := firestore.NewEmulated(context.WithoutCancel(r.ctx), database.Addr(), chaosProject, "")
	r.must(err)
	r.Cleanup(func() { r.must(documents.Close()) })
	program, err := os.Executable()
	r.must(err)
	ws := &workers{binary: program}
	c := newClient(ws)
	o := newOutside(r, func(to *arm, m contract.Message) { c.again(r.ctx, to, m) })
	var gates [2]*e2e.Gate
	for i := range gates {
		gates[i], err = e2e.NewGate(r.ctx, database.Addr())
		r.must(err)
		r.Cleanup(gates[i].Close)
	}
	ws.begin(r, func(i int) []string {
		return []string{"FIRESTORE_EMULATOR_HOST=" + gates[i].Addr(), outsideVariable + "=" + o.URL, "PATH=" + os.Getenv("PATH")}
	})

	c.started = time.Now()
	h := &havoc{gates: gates}
	h.drive(r, ws, c, p, killsEvery)
	delivered := time.Since(c.started)
	o.endFailures()
	lanes := ws.settle(r, documents, func() bool {
		unsealed, err := documents.Query(r.ctx, store.Query{Collection: ledger.Entries, Equal: map[string]any{ledger.FieldOpen: true}, Limit: 1})
		r.must(err)
		return c.idle() && len(unsealed.Documents) == 0
	})
	r.wait("what comes late to the gateway", o.Close) // it counts too

	pushes := 0
	for _, n := range c.pushes {
		pushes += n
	}
	r.printf("%d pushes (%.2f each): %d without an answer, %d refused; %d kills -9, %d freezes\n",
		pushes, float64(pushes)/float64(len(p.events)), c.unanswered, c.refused, ws.kills, h.freezes)
	r.printf("store: answers cut %d times, requests %d times, late %d times; outside: %d answers lost, %d failures, %d hung\n",
		h.cutAnswers.Load(), h.cutRequests.Load(), h.late.Load(), o.cut, o.failed, o.hung)
	r.printf("delivered in %s, %d messages of them kept and published anew; %d lanes left to the relay and done in %s\n\n",
		delivered.Round(time.Second), c.begun, lanes, (time.Since(c.started) - delivered).Round(time.Second))
	verdicts := count(r, documents, gather(r, documents, o, ws, p), p, arms)
	for i := range verdicts {
		verdicts[i].pushes += c.pushes[verdicts[i].name]
	}
	return verdicts
}

type havoc struct {
	freezes int
	// gates are between each worker and the store.
	gates [2]*e2e.Gate
	// How often answers and requests of the store were cut off, and either was delayed.
	cutAnswers, cutRequests, late atomic.Int64
}

func (h *havoc) drive(r *run, ws *workers, c *client, p *plan, killsEvery time.Duration) {
	var rages sync.WaitGroup
	defer r.wait("the faults to end", rages.Wait)
	raging, endFaults := context.WithCancel(r.ctx)
	defer endFaults()
	rages.Go(func() { ws.rage(raging, r, killsEvery) })
	rages.Go(func() { h.freezes = ws.freeze(raging, r.seed) })
	for i, gate := range h.gates {
		rages.Go(func() { h.disturb(raging, gate, rand.New(rand.NewPCG(r.seed, 20+uint64(i)))) })
	}
	rages.Go(func() { ws.schedule(raging, time.Second) })
	rages.Go(func() { ws.schedule(raging, 700*time.Millisecond) }) // a second sealer, and a second relay
	c.run(r, p)
}

func (h *havoc) disturb(ctx context.Context, gate *e2e.Gate, random *rand.Rand) {
	for e2e.Wait(ctx, about(random, time.Second)) {
		what, counter, hold := random.Float64(), &h.cutAnswers, gate.HoldAnswers
		if what >= 0.6 && what <= 0.9 {
			counter, hold = &h.cutRequests, gate.HoldRequests
		}
		select {
		case <-hold():
		case <-time.After(200 * time.Millisecond): // nothing was sent
			gate.Open()
			continue
		}
		if what < 0.75 {
			e2e.Wait(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			gate.Drop()
		} else {
			counter = &h.late
			e2e.Wait(ctx, about(random, 400*time.Millisecond))
			gate.Open()
		}
		counter.Add(1)
	}
}
