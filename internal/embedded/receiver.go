package embedded

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/pii"
	"billhook/internal/serve"
	"billhook/internal/signature"
)

// Mode is what the receiver does with a delivery, other than to apply it once.
type Mode string

// The modes.
const (
	// Fail: 503, and nothing is applied.
	Fail Mode = "fail"
	// Refuse: 422, and nothing is applied.
	Refuse Mode = "refuse"
	// Hang: no answer until the sender gives up or the receiver is closed, and nothing
	// is applied.
	Hang Mode = "hang"
	// Forget: applied, and the connection cut without an answer.
	Forget Mode = "forget"
	// Double: applied even if it was before, as by a service that keeps no keys.
	Double Mode = "double"
)

var modes = []Mode{Fail, Refuse, Hang, Forget, Double}

// Outcomes of a delivery.
const (
	Applied   = "applied"
	Duplicate = "duplicate"
	Failed    = "failed"
	Refused   = "refused"
	Hung      = "hung"
	Forgotten = "forgotten"
)

const (
	maxReceiverBytes = 256 << 10
	// maxTold bounds one order, so that a slip of the finger has an end.
	maxTold = 1_000_000
)

// Delivery is a delivery with a good signature, as the receiver took it.
type Delivery struct {
	EventID string `json:"event_id"`
	// Action is the event type where the body is no notice of a payment.
	Action         string    `json:"action"`
	SubscriptionID string    `json:"subscription_id,omitempty"`
	CorrelationID  string    `json:"correlation_id,omitempty"`
	At             time.Time `json:"at"`
	// Outcome: applied, duplicate, failed, refused, hung, or forgotten. The last was
	// applied too, unless it had been before.
	Outcome string `json:"outcome"`
}

// ReceiverConfig says whom the receiver believes.
type ReceiverConfig struct {
	// Secrets of the sender: any of them will do. Those of Standard sign by Standard Webhooks.
	Secrets, Standard []string
	// Posts are what it takes; nil: the payment webhook alone.
	Posts []catalog.Post
	// Tolerance is how far a signed time may lie from now, to both sides.
	Tolerance time.Duration
	// Now; nil: the machine's clock.
	Now func() time.Time
}

// Receiver stands in for the services that are posted to. It takes an event at POST of a path
// of the catalog, applies it once per Idempotency-Key, and says at GET of the path for
// that, with the event's id, whether it has; both are signed, the latter over an empty
// body. What it was sent it keeps in memory.
//
// For a person there are GET /deliveries and POST /tell, which are open to whoever
// reaches them: serve it on the loopback address.
//
// It is safe for concurrent use.
type Receiver struct {
	verifiers []*signature.Verifier
	now       func() time.Time
	mux       *http.ServeMux
	closing   func()
	closed    chan struct{}

	mu         sync.Mutex
	told       []order
	deliveries []Delivery
	events     map[string]*appliedEvent
}

// order is what Tell was told, and for how many deliveries more.
type order struct {
	mode Mode
	left int
}

type appliedEvent struct {
	times int
	body  [sha256.Size]byte
}

var _ http.Handler = (*Receiver)(nil)

// NewReceiver returns a receiver that applies everything once.
func NewReceiver(config ReceiverConfig) (*Receiver, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	r := &Receiver{now: config.Now, mux: http.NewServeMux(), closed: make(chan struct{}), events: map[string]*appliedEvent{}}
	for scheme, secrets := range map[signature.Scheme][]string{signature.Generic: config.Secrets, signature.Standard: config.Standard} {
		if len(secrets) == 0 {
			continue
		}
		verifier, err := signature.NewVerifier(scheme, secrets, config.Tolerance, config.Now)
		if err != nil {
			return nil, fmt.Errorf("embedded: receiver: %w", err)
		}
		r.verifiers = append(r.verifiers, verifier)
	}
	if len(r.verifiers) == 0 {
		return nil, errors.New("embedded: receiver: no secret")
	}
	r.closing = sync.OnceFunc(func() { close(r.closed) })
	if config.Posts == nil {
		config.Posts = []catalog.Post{{Path: "/v1/webhooks/payment", Reconcile: "/v1/webhooks/payment/{id}"}}
	}
	taken := map[string]bool{"/tell": true} // which is for people
	for _, post := range config.Posts {
		if !taken[post.Path] {
			r.mux.HandleFunc("POST "+post.Path, r.receive)
		}
		if post.Reconcile != "" && !taken[post.Reconcile] {
			r.mux.HandleFunc("GET "+post.Reconcile, r.known)
		}
		taken[post.Path], taken[post.Reconcile] = true, true
	}
	r.mux.HandleFunc("POST /tell", r.tell)
	r.mux.HandleFunc("GET /deliveries", r.list)
	return r, nil
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mux.ServeHTTP(w, request)
}

// Close lets go of the requests that hang, now and from now on.
func (r *Receiver) Close() { r.closing() }

// Tell says what to do with the next deliveries that have a good signature, behind
// what it was told before. times is 1 to 1,000,000.
func (r *Receiver) Tell(mode Mode, times int) error {
	if !slices.Contains(modes, mode) {
		return errors.New("embedded: receiver: the mode must be fail, refuse, hang, forget or double")
	}
	if times < 1 || times > maxTold {
		return fmt.Errorf("embedded: receiver: times must be 1 to %d", maxTold)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, order{mode, times})
	return nil
}

// Applied is how often the event has taken effect.
func (r *Receiver) Applied(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if event := r.events[id]; event != nil {
		return event.times
	}
	return 0
}

// Deliveries returns every delivery with a good signature, in the order in which they
// came.
func (r *Receiver) Deliveries() []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.deliveries)
}

// read returns the body of a signed request. Where ok is false, it has answered.
func (r *Receiver) read(w http.ResponseWriter, request *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxReceiverBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		serve.WriteProblem(w, http.StatusRequestEntityTooLarge, "too_large", "The body is too large.")
		return nil, false
	case err != nil:
		serve.WriteProblem(w, http.StatusBadRequest, "body_unreadable", "The body did not arrive whole.")
		return nil, false
	}
	for _, verifier := range r.verifiers {
		if err = verifier.Verify(request.Header.Values, body); err == nil {
			return body, true
		}
	}
	// The text is one of a handful, and a person at work on a sender needs it.
	serve.WriteProblem(w, http.StatusUnauthorized, "signature", err.Error())
	return nil, false
}

func (r *Receiver) receive(w http.ResponseWriter, request *http.Request) {
	body, ok := r.read(w, request)
	if !ok {
		return
	}
	var given struct {
		EventID        string `json:"event_id"`
		EventType      string `json:"event_type"`
		Action         string `json:"action"`
		SubscriptionID string `json:"subscription_id"`
		CorrelationID  string `json:"correlation_id"`
	}
	if json.Unmarshal(body, &given) != nil {
		serve.WriteProblem(w, http.StatusBadRequest, "malformed", "The body is not the webhook's JSON.")
		return
	}
	keys := request.Header.Values("Idempotency-Key")
	switch {
	case !pii.ID.Valid(given.EventID) || (given.EventType == "" && (given.Action == "" || given.SubscriptionID == "")):
		serve.WriteProblem(w, http.StatusUnprocessableEntity, "incomplete", "event_id, and event_type or action and subscription_id are needed.")
		return
	case len(keys) != 1 || keys[0] != given.EventID:
		serve.WriteProblem(w, http.StatusUnprocessableEntity, "key", "The Idempotency-Key must be the event's id.")
		return
	}
	switch r.take(Delivery{
		EventID: given.EventID, Action: cmp.Or(given.Action, given.EventType), SubscriptionID: given.SubscriptionID,
		CorrelationID: given.CorrelationID, At: r.now(),
	}, sha256.Sum256(body)) {
	case Applied:
		serve.WriteJSON(w, http.StatusOK, map[string]bool{"duplicate": false})
	case Duplicate:
		serve.WriteJSON(w, http.StatusOK, map[string]bool{"duplicate": true})
	case Failed:
		serve.WriteProblem(w, http.StatusServiceUnavailable, "told", "Told to fail.")
	case Refused:
		serve.WriteProblem(w, http.StatusUnprocessableEntity, "refused", "Told to refuse, or the key was used before with another body.")
	case Hung:
		select {
		case <-request.Context().Done():
		case <-r.closed:
		}
		panic(http.ErrAbortHandler) // the only way to end without an answer
	case Forgotten:
		panic(http.ErrAbortHandler)
	}
}

// take does with a delivery what was told, applies it where that says so, and returns
// what became of it, all in one step: two of one key at once are one and a duplicate.
func (r *Receiver) take(d Delivery, body [sha256.Size]byte) (outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		d.Outcome = outcome
		r.deliveries = append(r.deliveries, d)
	}()
	mode := r.next()
	switch mode {
	case Fail:
		return Failed
	case Refuse:
		return Refused
	case Hang:
		return Hung
	case Forget, Double:
	}
	event, known := r.events[d.EventID]
	switch {
	case !known:
		r.events[d.EventID] = &appliedEvent{times: 1, body: body}
	case mode == Double:
		event.times++
	case event.body != body:
		return Refused
	case mode != Forget:
		return Duplicate
	}
	if mode == Forget {
		return Forgotten
	}
	return Applied
}

// next takes one delivery off the oldest order; empty: there is none.
func (r *Receiver) next() Mode {
	if len(r.told) == 0 {
		return ""
	}
	mode := r.told[0].mode
	if r.told[0].left--; r.told[0].left == 0 {
		r.told = r.told[1:]
	}
	return mode
}

func (r *Receiver) known(w http.ResponseWriter, request *http.Request) {
	if _, ok := r.read(w, request); !ok {
		return
	}
	times := r.Applied(request.PathValue("id"))
	if times == 0 {
		serve.WriteProblem(w, http.StatusNotFound, "unknown", "No such event has been applied.")
		return
	}
	serve.WriteJSON(w, http.StatusOK, map[string]int{"applied": times})
}

func (r *Receiver) tell(w http.ResponseWriter, request *http.Request) {
	var told struct {
		Mode  Mode `json:"mode"`
		Times int  `json:"times"`
	}
	err := json.UnmarshalRead(http.MaxBytesReader(w, request.Body, 1<<10), &told, json.RejectUnknownMembers(true))
	if err != nil {
		serve.WriteProblem(w, http.StatusBadRequest, "malformed", `Send {"mode":"fail","times":1}.`)
		return
	}
	if err := r.Tell(told.Mode, told.Times); err != nil {
		serve.WriteProblem(w, http.StatusUnprocessableEntity, "told", err.Error())
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *Receiver) list(w http.ResponseWriter, _ *http.Request) {
	serve.WriteJSON(w, http.StatusOK, map[string][]Delivery{"items": append([]Delivery{}, r.Deliveries()...)})
}
