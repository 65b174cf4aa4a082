package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"billhook/e2e"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
)

// outside is everything that is not Billhook's: a service that applies an effect once per idempotency key and
// tells whether it has, a payment gateway, and a broker. All fail at random.
type outside struct {
	*httptest.Server
	service *standin.Receiver
	gateway *standin.Gateway
	// again is called with each message that is published on the topic of an arm.
	again func(to *arm, m contract.Message)

	mu     sync.Mutex
	random *rand.Rand
	// well: it no longer fails.
	well bool
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
		if draw -= probability; draw < 0 && !o.well {
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

func (o *outside) endFailures() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.well = true
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
	case !posts && !o.well && o.random.Float64() < 0.05:
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
