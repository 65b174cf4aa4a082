package main

import (
	"context"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/contract"
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
		report(r.table("arm", "events", "pushes", "lost", "doubled", "out of order"), verdicts)
		judge(r, verdicts)
	}
}

func unleash(r *run, p *plan, arms []*arm, killsEvery time.Duration) []*verdict {
	database := r.emulated(emulator.SDK.StartFirestore)
	documents := r.documents(database)
	program, err := os.Executable()
	r.must(err)
	ws, log := &workers{}, &e2e.Log{}
	c := &client{workers: ws, slots: make(chan struct{}, senders), pushes: counts{}}
	c.open, c.last = map[string]int{}, map[string]chan struct{}{}
	o := newOutside(r, func(to *arm, m contract.Message) { c.again(r.ctx, to, m) })
	var gates [2]gate
	for i := range gates {
		gates[i].Gate, err = e2e.NewGate(r.ctx, database)
		r.must(err)
		r.Cleanup(gates[i].Close)
	}
	ws.begin(r, program, log, func(i int) []string {
		return []string{"FIRESTORE_EMULATOR_HOST=" + gates[i].Addr(), outsideVariable + "=" + o.URL, "PATH=" + os.Getenv("PATH")}
	})

	c.started = time.Now()
	freezes := 0
	r.beside(func() { c.run(r, p) },
		func(ctx context.Context) { ws.rage(ctx, killsEvery) },
		func(ctx context.Context) { freezes = ws.freeze(ctx) },
		func(ctx context.Context) { gates[0].disturb(ctx, rand.New(rand.NewPCG(r.seed, 20))) },
		func(ctx context.Context) { gates[1].disturb(ctx, rand.New(rand.NewPCG(r.seed, 21))) },
		func(ctx context.Context) { ws.schedule(ctx, time.Second) },
		func(ctx context.Context) { ws.schedule(ctx, 700*time.Millisecond) }, // a second sealer, and a second relay
	)
	delivered := time.Since(c.started)
	o.endFailures()
	lanes := ws.settle(documents, func() bool {
		unsealed, err := store.Count(r.ctx, documents, store.Query{Collection: ledger.Entries, Limit: math.MaxInt32})
		r.must(err)
		r.each(documents, seal.Leaves, func(doc store.Document) { unsealed -= int64(len(doc.Fields["leaves"].([]any))) })
		return c.idle() && unsealed == 0
	})
	o.Close() // what comes late to the gateway counts too

	r.printf("%d pushes (%.2f each): %d without an answer, %d refused; %d kills -9, %d freezes\n",
		c.pushes.total(), float64(c.pushes.total())/float64(len(p.events)), c.unanswered, c.refused, ws.kills, freezes)
	r.printf("store: answers cut %d times, requests %d times, late %d times; outside: %d answers lost, %d failures, %d hung\n",
		gates[0].cutAnswers+gates[1].cutAnswers, gates[0].cutRequests+gates[1].cutRequests, gates[0].late+gates[1].late,
		o.moods[cut], o.moods[fails], o.moods[hangs]+o.moods[late])
	r.printf("delivered in %s, %d messages of them kept and published anew; %d lanes left to the relay and done in %s\n\n",
		delivered.Round(time.Second), c.begun, lanes, (time.Since(c.started) - delivered).Round(time.Second))
	verdicts := count(r, documents, o, log, p, arms)
	for _, v := range verdicts {
		v.pushes += c.pushes[v.name]
	}
	return verdicts
}

// gate is between a worker and the store.
type gate struct {
	*e2e.Gate
	// How often answers and requests of the store were cut off, and either was delayed.
	cutAnswers, cutRequests, late int
}

func (g *gate) disturb(ctx context.Context, random *rand.Rand) {
	for e2e.Wait(ctx, about(random, time.Second)) {
		what, counter, hold := random.Float64(), &g.cutAnswers, g.HoldAnswers
		if what >= 0.6 && what <= 0.9 {
			counter, hold = &g.cutRequests, g.HoldRequests
		}
		select {
		case <-hold():
		case <-time.After(200 * time.Millisecond): // nothing was sent
			g.Open()
			continue
		}
		if what < 0.75 {
			e2e.Wait(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			g.Drop()
		} else {
			counter = &g.late
			e2e.Wait(ctx, about(random, 400*time.Millisecond))
			g.Open()
		}
		*counter++
	}
}
