package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/platform/standin"
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
	names := flags.String("arms", "", "which arms, separated by commas; all if empty")
	return func(r *run) {
		arms, err := chosen(*names)
		r.must(err)
		p := draw(r, arms, *events)
		r.printf("%d events in %d messages\n", len(p.events), len(p.publishes))
		judge(r, unleash(r, p, arms))
	}
}

func unleash(r *run, p *plan, arms []*arm) []*verdict {
	database := r.emulated(emulator.SDK.StartFirestore)
	documents := r.documents(database)
	program, err := os.Executable()
	r.must(err)
	ws, log, o := &workers{}, &e2e.Log{}, newOutside(r)
	b := newBroker(r)
	gate := func(to string) *e2e.Gate {
		g, err := e2e.NewGate(r.ctx, to)
		r.must(err)
		r.Cleanup(g.Close)
		return g
	}
	stores, brokers := [2]*e2e.Gate{gate(database), gate(database)}, gate(b.Addr())
	ws.begin(r, program, log, func(i int) []string {
		return []string{
			"FIRESTORE_EMULATOR_HOST=" + stores[i].Addr(), "PUBSUB_EMULATOR_HOST=" + brokers.Addr(),
			outsideVariable + "=" + o.URL, "PATH=" + os.Getenv("PATH"),
		}
	})

	b.PushTo(ws.front(forgotten))
	began := time.Now()
	r.beside(func() {
		for _, m := range p.publishes {
			e2e.Wait(r.ctx, m.due-time.Since(began))
			_, err := b.Publish(r.ctx, m.arm.name, m.message)
			r.must(err)
		}
		r.until("each message to be acknowledged", often, func() bool { return empty(r, b) })
	},
		func(ctx context.Context) { ws.rage(ctx, time.Second) },
		ws.freeze,
		func(ctx context.Context) { disturb(ctx, r, "store", stores[0], 20) },
		func(ctx context.Context) { disturb(ctx, r, "store", stores[1], 21) },
		func(ctx context.Context) { disturb(ctx, r, "broker", brokers, 22) },
		func(ctx context.Context) { ws.schedule(ctx, time.Second) },
		func(ctx context.Context) { ws.schedule(ctx, 700*time.Millisecond) }, // a second sealer, and a second relay
	)
	o.well.Store(true)
	ws.settle(documents, func() bool {
		unsealed, err := store.Count(r.ctx, documents, store.Query{Collection: ledger.Entries, Limit: math.MaxInt32})
		r.must(err)
		r.each(documents, seal.Leaves, func(doc store.Document) { unsealed -= int64(len(doc.Fields["leaves"].([]any))) })
		return empty(r, b) && unsealed == 0
	})
	o.Close() // what comes late to the gateway counts too
	return count(r, documents, o, b, log, p, arms)
}

// disturb has a gate hold requests or answers about every second, and then cuts them off, or lets them through late.
func disturb(ctx context.Context, r *run, of string, gate *e2e.Gate, stream uint64) {
	random := rand.New(rand.NewPCG(r.seed, stream))
	for e2e.Wait(ctx, about(random, time.Second)) {
		what, hold := "answers of the "+of+" ", gate.HoldAnswers
		if random.IntN(3) == 0 {
			what, hold = "requests to the "+of+" ", gate.HoldRequests
		}
		select {
		case <-hold():
			if random.IntN(4) == 0 {
				e2e.Wait(ctx, about(random, 400*time.Millisecond))
				r.saw(what+"late", 1)
				break
			}
			e2e.Wait(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			gate.Drop()
			r.saw(what+"cut", 1)
		case <-time.After(200 * time.Millisecond): // nothing was sent
		}
		gate.Open()
	}
}

// outside is everything that is not Billhook's: a service that applies an effect once per idempotency key and
// tells whether it has, and a payment gateway. Both fail at random.
type outside struct {
	*httptest.Server
	run     *run
	service *standin.Receiver
	gateway *standin.Gateway
	// well: it no longer fails.
	well atomic.Bool

	mu     sync.Mutex
	random *rand.Rand
	// unasked counts, by key, how many more posts than questions there were: each attempt but the first must ask
	// before it posts, or it would double in a service without idempotency keys.
	unasked counts
}

func newOutside(r *run) *outside {
	o := &outside{run: r, random: rand.New(rand.NewPCG(r.seed, 2)), unasked: counts{}}
	config := standin.ServiceConfig{Secrets: []string{chaosSecret}, Tolerance: time.Minute}
	for _, a := range arms {
		if a.handler.Post.Target != "" {
			config.Posts = append(config.Posts, a.handler.Post)
		}
	}
	var err error
	o.gateway, err = standin.NewGateway(config)
	r.must(err)
	o.service, err = standin.NewReceiver(config)
	r.must(err)
	mux := http.NewServeMux()
	mux.Handle("/v1/", o.moody(o.gateway, 0.1, 0.1, 0.1, 0.1)) // it is asked once a payment, as a rule
	mux.Handle("/", o.moody(http.HandlerFunc(o.serve), 0.01, 0.02, 0.005, 0.03))
	o.Server = httptest.NewServer(mux)
	r.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

// mood is what becomes of a request: it fails without an effect, has its answer lost, hangs, or has its
// effect after its lease, and maybe when nobody waits for it any more.
type mood string

const (
	fails mood = "failures outside"
	cut   mood = "answers lost outside"
	hangs mood = "requests hung outside"
	late  mood = "requests late outside"
)

// draw draws a request's mood by the odds of each, in the order above, and how late it is.
func (o *outside) draw(odds []float64) (is mood, pause time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	draw, pause := o.random.Float64(), time.Duration(o.random.Float64()*float64(2*answerWithin))
	for i, odd := range odds {
		if draw -= odd; draw < 0 && !o.well.Load() {
			is = []mood{fails, cut, hangs, late}[i]
			o.run.saw(string(is), 1)
			break
		}
	}
	return is, pause
}

func (o *outside) moody(next http.Handler, odds ...float64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // of a client that has left there would be none
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		is, pause := o.draw(odds)
		switch is {
		case fails:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case cut:
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // net/http's way to cut the connection
		case hangs:
			<-r.Context().Done()
			return
		case late:
			e2e.Wait(context.WithoutCancel(r.Context()), pause)
		}
		next.ServeHTTP(w, r)
	})
}

// serve is the service, which notes who asks before they post again. At random it refuses one delivery, of a
// batch a single line.
func (o *outside) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	switch key := strings.TrimPrefix(r.URL.Path, effectPost.Path); {
	case r.Method == http.MethodGet:
		o.unasked[strings.TrimPrefix(key, "/")]--
	case key == "":
		o.unasked[r.Header.Get("Idempotency-Key")]++
	case !o.well.Load() && o.random.Float64() < 0.05:
		o.run.saw(string(fails), 1)
		_ = o.service.Behave("", standin.Fail, 1)
	}
	o.mu.Unlock()
	o.service.ServeHTTP(w, r)
}
