package main

import (
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"billhook/e2e/chaos/arm"
	"billhook/internal/contract"
)

// outside is everything that is not Billhook's: a service that applies an effect once per
// idempotency key and tells whether it has, and a broker. Both fail at random.
type outside struct {
	url    string
	server *http.Server

	mu     sync.Mutex
	random *rand.Rand
	// well: it no longer fails.
	well bool
	// effects by arm and event.
	effects map[[2]string]*effect
	// applied lists the events of a key in the order of their effects, by arm and key.
	applied map[[2]string][]int64
	// told lists the published messages by ordering key.
	told map[string][]emission
	// repeated counts calls for an effect that existed. failed and cut count answers.
	repeated, failed, cut int
}

// effect is the effect of one event.
type effect struct {
	times int
	asked map[string]bool
	// unasked counts later attempts that did not ask first.
	unasked int
}

// emission is a message from an outbox.
type emission struct {
	id, event string
	cycle     int64
}

func newOutside(seed uint64, listener net.Listener) *outside {
	o := &outside{
		url: "http://" + listener.Addr().String(), random: rand.New(rand.NewPCG(seed, 2)),
		effects: map[[2]string]*effect{}, applied: map[[2]string][]int64{}, told: map[string][]emission{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects/{arm}/{event}", o.apply)
	mux.HandleFunc("GET /effects/{arm}/{event}", o.known)
	mux.HandleFunc("POST /topics/{topic}", o.publish)
	o.server = &http.Server{Handler: mux, ErrorLog: nil, ReadHeaderTimeout: time.Minute, WriteTimeout: time.Minute}
	return o
}

// Probabilities of a failure without effect, and of a lost answer.
const failing, losing = 0.01, 0.02

// unwell decides whether to fail, which it answers itself, and whether to lose the answer. The
// caller holds the lock.
func (o *outside) unwell(w http.ResponseWriter) (failed, lose bool) {
	switch draw := o.random.Float64(); {
	case o.well:
	case draw < failing:
		o.failed++
		w.WriteHeader(http.StatusServiceUnavailable)
		return true, false
	case draw < failing+losing:
		o.cut++
		return false, true
	}
	return false, false
}

// calm ends the failures.
func (o *outside) calm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.well = true
}

func (o *outside) of(r *http.Request) *effect {
	key := [2]string{r.PathValue("arm"), r.PathValue("event")}
	if o.effects[key] == nil {
		o.effects[key] = &effect{asked: map[string]bool{}}
	}
	return o.effects[key]
}

func (o *outside) apply(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, query := o.of(r), r.URL.Query()
	if attempt := r.Header.Get("Attempt"); attempt != "1" && !e.asked[attempt] {
		e.unasked++
	}
	failed, lose := o.unwell(w)
	if failed {
		return
	}
	// A key other than the event's id counts as a new one.
	if e.times == 0 || r.Header.Get("Idempotency-Key") != r.PathValue("event") {
		e.times++
		cycle, err := strconv.ParseInt(query.Get("cycle"), 10, 64)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		key := [2]string{r.PathValue("arm"), query.Get("key")}
		o.applied[key] = append(o.applied[key], cycle)
	} else {
		o.repeated++
	}
	if lose {
		panic(http.ErrAbortHandler) // net/http's way to cut the connection
	}
}

func (o *outside) known(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.of(r)
	e.asked[r.Header.Get("Attempt")] = true
	failed, lose := o.unwell(w)
	switch {
	case failed:
	case lose:
		panic(http.ErrAbortHandler)
	case e.times == 0:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (o *outside) publish(w http.ResponseWriter, r *http.Request) {
	var m contract.Message
	if json.NewDecoder(r.Body).Decode(&m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.PathValue("topic") != arm.Topic {
		return // a dead letter is counted by its missing effect
	}
	var body contract.Envelope
	if json.Unmarshal(m.Data, &body) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	failed, lose := o.unwell(w)
	if failed {
		return
	}
	o.told[m.OrderingKey] = append(o.told[m.OrderingKey], emission{id: body.ID, event: body.Payload.EventID, cycle: body.Payload.Cycle})
	if lose {
		panic(http.ErrAbortHandler)
	}
}
