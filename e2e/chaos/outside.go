package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	"billhook/e2e/chaos/arm"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
)

// outside is everything that is not Billhook's: a service that applies an effect once per
// idempotency key and tells whether it has, a payment gateway, and a broker. All fail at random.
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
	// published lists the messages by ordering key.
	published map[string][]emission
	// told are the ids of the messages about each event of the journal.
	told map[string]map[string]bool
	// gateway refunds a payment as often as it is asked to under new keys.
	gateway *standin.Gateway
	// again is called with each message that is published on the topic of an arm.
	again func(to *arm.Arm, m contract.Message)
	// hung counts requests that were not answered in time.
	hung int
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

func newOutside(seed uint64, listener net.Listener, again func(*arm.Arm, contract.Message)) (*outside, error) {
	gateway, err := standin.NewGateway(standin.GatewayConfig{Secrets: []string{arm.Secret}, Tolerance: time.Minute})
	if err != nil {
		return nil, err
	}
	o := &outside{
		gateway: gateway, again: again,
		url: "http://" + listener.Addr().String(), random: rand.New(rand.NewPCG(seed, 2)),
		effects: map[[2]string]*effect{}, applied: map[[2]string][]int64{}, published: map[string][]emission{},
		told: map[string]map[string]bool{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects/{arm}/{event}", o.unreliable(o.apply))
	mux.HandleFunc("POST /batches/{arm}", o.unreliable(o.applyAll))
	mux.HandleFunc("GET /effects/{arm}/{event}", o.unreliable(o.known))
	mux.HandleFunc("POST /topics/{topic}", o.unreliable(o.publish))
	mux.HandleFunc("/v1/", o.moody)
	o.server = &http.Server{Handler: mux, ErrorLog: nil, ReadHeaderTimeout: time.Minute, WriteTimeout: time.Minute}
	return o, nil
}

// mood is the probability of each thing that the gateway does wrong. It is asked once a payment, as a
// rule.
const mood = 0.1

// moody is the gateway. At random a request fails or hangs without an effect, has its effect when
// nobody waits for it any more, or has its answer lost.
func (o *outside) moody(w http.ResponseWriter, r *http.Request) {
	// Of a client that has left there would be no body.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	o.mu.Lock()
	draw := o.random.Float64()
	pause := time.Duration(o.random.Float64() * float64(2*arm.Patience))
	switch {
	case o.well:
		draw = 1
	case draw < mood:
		o.failed++
	case draw < 3*mood:
		o.hung++
	case draw < 4*mood:
		o.cut++
	}
	o.mu.Unlock()
	switch {
	case draw < mood:
		w.WriteHeader(http.StatusServiceUnavailable)
	case draw < 2*mood:
		<-r.Context().Done()
	case draw < 3*mood:
		<-time.After(pause)
		o.gateway.ServeHTTP(w, r)
	case draw < 4*mood:
		o.gateway.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // net/http's way to cut the connection
	default:
		o.gateway.ServeHTTP(w, r)
	}
}

// Probabilities of a failure without effect, and of a lost answer.
const failing, losing = 0.01, 0.02

// unreliable answers with what handle returns, under the lock. At random it fails, which handle
// is published, or loses the answer.
func (o *outside) unreliable(handle func(r *http.Request, failed bool) (answer any, status int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		draw := o.random.Float64()
		failed := !o.well && draw < failing
		answer, status := handle(r, failed)
		switch {
		case failed:
			o.failed++
			w.WriteHeader(http.StatusServiceUnavailable)
		case !o.well && draw < failing+losing:
			o.cut++
			panic(http.ErrAbortHandler) // net/http's way to cut the connection
		default:
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(answer) // a client that has left does without it
		}
	}
}

// calm ends the failures.
func (o *outside) calm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.well = true
}

func (o *outside) of(arm, event string) *effect {
	key := [2]string{arm, event}
	if o.effects[key] == nil {
		o.effects[key] = &effect{asked: map[string]bool{}}
	}
	return o.effects[key]
}

func (o *outside) apply(r *http.Request, failed bool) (answer any, status int) {
	query := r.URL.Query()
	cycle, err := strconv.ParseInt(query.Get("cycle"), 10, 64)
	if err != nil {
		return nil, http.StatusBadRequest
	}
	o.take(r.PathValue("arm"), arm.Item{
		Event: r.PathValue("event"), IdempotencyKey: r.Header.Get("Idempotency-Key"), Attempt: r.Header.Get("Attempt"), Key: query.Get("key"), Cycle: cycle,
	}, failed)
	return nil, http.StatusOK
}

// applyAll takes a batch. At random it refuses single items of it.
func (o *outside) applyAll(r *http.Request, failed bool) (answer any, status int) {
	var items []arm.Item
	if json.NewDecoder(r.Body).Decode(&items) != nil {
		return nil, http.StatusBadRequest
	}
	statuses := make([]int, len(items))
	for i, item := range items {
		statuses[i] = http.StatusOK
		refused := !failed && !o.well && o.random.Float64() < failing
		if o.take(r.PathValue("arm"), item, failed || refused); refused {
			o.failed++
			statuses[i] = http.StatusServiceUnavailable
		}
	}
	return statuses, http.StatusOK
}

// take applies the effect of one event, unless the call has failed.
func (o *outside) take(arm string, item arm.Item, failed bool) {
	e := o.of(arm, item.Event)
	if item.Attempt != "1" && !e.asked[item.Attempt] {
		e.unasked++
	}
	switch {
	case failed:
	// A key other than the event's id counts as a new one.
	case e.times == 0 || item.IdempotencyKey != item.Event:
		e.times++
		key := [2]string{arm, item.Key}
		o.applied[key] = append(o.applied[key], item.Cycle)
	default:
		o.repeated++
	}
}

func (o *outside) known(r *http.Request, _ bool) (answer any, status int) {
	e := o.of(r.PathValue("arm"), r.PathValue("event"))
	e.asked[r.Header.Get("Attempt")] = true
	if e.times == 0 {
		return nil, http.StatusNotFound
	}
	return nil, http.StatusOK
}

// tell takes a message about an entry of the journal.
func (o *outside) tell(m contract.Message) (status int) {
	var body struct {
		ID   string `json:"id"`
		Data struct {
			EventID string `json:"event_id"`
		} `json:"data"`
	}
	if json.Unmarshal(m.Data, &body) != nil || body.Data.EventID == "" {
		return http.StatusBadRequest
	}
	if o.told[body.Data.EventID] == nil {
		o.told[body.Data.EventID] = map[string]bool{}
	}
	o.told[body.Data.EventID][body.ID] = true
	return http.StatusOK
}

func (o *outside) publish(r *http.Request, failed bool) (answer any, status int) {
	var m contract.Message
	var body contract.Envelope
	switch {
	case json.NewDecoder(r.Body).Decode(&m) != nil:
		return nil, http.StatusBadRequest
	case failed:
		return nil, http.StatusServiceUnavailable
	}
	topic := r.PathValue("topic")
	if i := slices.IndexFunc(arm.All, func(a arm.Arm) bool { return a.Name == topic }); i >= 0 {
		o.again(&arm.All[i], m)
		return nil, http.StatusOK
	}
	if topic == arm.DomainEvents {
		return nil, o.tell(m)
	}
	switch {
	case topic != arm.Topic: // a dead letter is counted by its missing effect
		return nil, http.StatusOK
	case json.Unmarshal(m.Data, &body) != nil:
		return nil, http.StatusBadRequest
	}
	o.published[m.OrderingKey] = append(o.published[m.OrderingKey], emission{id: body.ID, event: body.Payload.EventID, cycle: body.Payload.Cycle})
	return nil, http.StatusOK
}
