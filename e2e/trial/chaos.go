package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"billhook/e2e"
	"billhook/emulator"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/contract"
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
	o.well.Store(true)
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

// outside is everything that is not Billhook's: a service that applies an effect once per idempotency key and
// tells whether it has, a payment gateway, and a broker. All fail at random.
type outside struct {
	*httptest.Server
	service *standin.Receiver
	gateway *standin.Gateway
	// again is called with each message that is published on the topic of an arm.
	again func(to *arm, m contract.Message)

	// well: it no longer fails.
	well atomic.Bool

	mu     sync.Mutex
	random *rand.Rand
	// published are the messages of the other topics, in their order.
	published map[string][]contract.Message
	// asked are the keys and attempts that the service was asked about. unasked counts, by key, the later
	// attempts that did not ask first: they would double in a service without idempotency keys.
	asked   map[string]bool
	unasked map[string]int
	// moods are how often each of them came.
	moods [none]int
}

func newOutside(r *run, again func(*arm, contract.Message)) *outside {
	o := &outside{
		again: again, random: rand.New(rand.NewPCG(r.seed, 2)), published: map[string][]contract.Message{},
		asked: map[string]bool{}, unasked: map[string]int{},
	}
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
	mux.Handle("POST /topics/{topic}", o.moody(http.HandlerFunc(o.publish), odds{fails: 0.01, cut: 0.02}))
	mux.Handle("/v1/", o.moody(o.gateway, odds{fails: 0.1, cut: 0.1, hangs: 0.1, late: 0.1})) // it is asked once a payment, as a rule
	mux.Handle("/", o.moody(http.HandlerFunc(o.serve), odds{fails: 0.01, cut: 0.02, hangs: 0.005, late: 0.005}))
	o.Server = httptest.NewServer(mux)
	r.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
	})
	return o
}

// mood is what becomes of a request: it fails without an effect, has its answer lost, hangs, or has its
// effect when nobody waits for it any more.
type mood int

const (
	fails mood = iota
	cut
	hangs
	late
	none
)

// odds are the probabilities of the moods.
type odds [none]float64

func (o *outside) draw(of odds) (m mood, pause time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	draw, pause := o.random.Float64(), time.Duration(o.random.Float64()*float64(2*answerWithin))
	for m, probability := range of {
		if draw -= probability; draw < 0 && !o.well.Load() {
			o.moods[m]++
			return mood(m), pause
		}
	}
	return none, pause
}

func (o *outside) moody(next http.Handler, of odds) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // of a client that has left there would be none
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		m, pause := o.draw(of)
		switch m {
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
		case none:
		}
		next.ServeHTTP(w, r)
	})
}

// serve is the service, which notes who asks before they post again. At random it refuses one delivery, of a
// batch a single line.
func (o *outside) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	key, attempt := r.Header.Get("Idempotency-Key"), r.Header.Get(attemptHeader)
	posts, asks := r.URL.Path == effectPost.Path, strings.TrimPrefix(r.URL.Path, effectPost.Path+"/")
	switch {
	case r.Method == http.MethodGet:
		o.asked[asks+attempt] = true
	case posts && attempt != "1" && !o.asked[key+attempt]:
		o.unasked[key]++
	case !posts && !o.well.Load() && o.random.Float64() < 0.05:
		o.moods[fails]++
		_ = o.service.Behave("", standin.Fail, 1)
	}
	o.mu.Unlock()
	o.service.ServeHTTP(w, r)
}

func (o *outside) publish(w http.ResponseWriter, r *http.Request) {
	var m contract.Message
	if json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	topic := r.PathValue("topic")
	if i := slices.IndexFunc(arms, func(a *arm) bool { return a.name == topic }); i >= 0 {
		o.again(arms[i], m)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.published[topic] = append(o.published[topic], m)
}
