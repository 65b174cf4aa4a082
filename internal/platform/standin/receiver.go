package standin

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
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// Mode is a behaviour of the receiver other than the normal one, which applies a delivery once.
type Mode string

// Modes.
const (
	// Fail answers 503 and applies nothing.
	Fail Mode = "fail"
	// Refuse answers 422 and applies nothing.
	Refuse Mode = "refuse"
	// Hang applies nothing and does not answer until the sender gives up or the receiver is
	// closed.
	Hang Mode = "hang"
	// Forget applies the delivery and cuts the connection without an answer.
	Forget Mode = "forget"
	// Double applies the delivery also if it was applied before, as a service without
	// idempotency keys does.
	Double Mode = "double"
	// Normal takes back what the receiver was told before.
	Normal Mode = "normal"
)

var modes = []Mode{Fail, Refuse, Hang, Forget, Double, Normal}

// Outcomes of a delivery.
const (
	Applied   = "applied"
	Duplicate = "duplicate"
	Failed    = "failed"
	Refused   = "refused"
	Hung      = "hung"
	Forgotten = "forgotten"
)

const maxReceiverBytes = 256 << 10

// Delivery is a received delivery with a valid signature.
type Delivery struct {
	// Path is what was posted to.
	Path string `json:"path"`
	// Key is the Idempotency-Key. EventID is what its producer calls the event, within Tenant and a queue; of a
	// post that does not say it, the key; of a bulk, the document's _id.
	Key     string `json:"key,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	EventID string `json:"event_id"`
	// Action is the event type where the body is no notice of a payment.
	Action string `json:"action"`
	// Status is what became of a payment, such as succeeded.
	Status         string    `json:"status,omitempty"`
	SubscriptionID string    `json:"subscription_id,omitempty"`
	CorrelationID  string    `json:"correlation_id,omitempty"`
	At             time.Time `json:"at"`
	// Outcome is applied, duplicate, failed, refused, hung, forgotten, stale or absent. A forgotten one was
	// applied too, unless it had been before.
	Outcome string `json:"outcome"`
}

// ReceiverConfig configures a Receiver.
type ReceiverConfig struct {
	// Secrets of the sender. Any of them is accepted. Those of Standard sign by Standard Webhooks.
	Secrets, Standard []string
	// Posts are the posts that it takes; nil: the payment webhook alone.
	Posts []catalog.Post
	// Tolerance is how far a signed time may be from now, in both directions.
	Tolerance time.Duration
	// Now; nil: the machine's clock.
	Now func() time.Time
}

// Receiver stands in for the targets. POST of a path that the catalog posts to applies an event
// once per path and Idempotency-Key: the path decides what a post is about, not the target. GET of
// the path for reconciling, with the event's id, says whether the event was applied. Both are
// signed, the latter over an empty body. It stands in for a third party, too, at PartnerPath: see
// Trust. Deliveries are kept in memory.
//
// GET /deliveries and POST /tell are for people and have no authentication: serve the receiver
// on the loopback address.
//
// It is safe for concurrent use.
type Receiver struct {
	verifiers []*signature.Verifier
	tolerance time.Duration
	now       func() time.Time
	mux       *http.ServeMux
	silence   silence

	mu         sync.Mutex
	orders     orders[Mode]
	deliveries []Delivery
	events     map[delivered]*appliedEvent
	documents  map[indexed]held
	// partner checks what the third party is told; none: nobody is trusted.
	partner []*signature.Verifier
}

// delivered is a key at a path, which keeps keys of its own.
type delivered struct{ path, key string }

type appliedEvent struct {
	id    string
	times int
	body  [sha256.Size]byte
}

var _ http.Handler = (*Receiver)(nil)

// NewReceiver returns a receiver in normal mode.
func NewReceiver(config ReceiverConfig) (*Receiver, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	r := &Receiver{tolerance: config.Tolerance, now: config.Now, mux: http.NewServeMux(), silence: newSilence(), events: map[delivered]*appliedEvent{}, documents: map[indexed]held{}}
	for scheme, secrets := range map[signature.Scheme][]string{signature.Generic: config.Secrets, signature.Standard: config.Standard} {
		if len(secrets) == 0 {
			continue
		}
		verifier, err := signature.NewVerifier(scheme, secrets, config.Tolerance, config.Now)
		if err != nil {
			return nil, fmt.Errorf("standin: receiver: %w", err)
		}
		r.verifiers = append(r.verifiers, verifier)
	}
	if len(r.verifiers) == 0 {
		return nil, errors.New("standin: receiver: no secret")
	}
	if config.Posts == nil {
		config.Posts = []catalog.Post{{Path: "/v1/webhooks/payment", Reconcile: "/v1/webhooks/payment/{id}"}}
	}
	taken := map[string]bool{"/tell": true, PartnerPath: true} // which are not the services'
	for _, post := range config.Posts {
		if !taken[post.Path] {
			receive := r.receive
			if post.Form != catalog.Single {
				receive = r.batch(post.Form)
			}
			r.mux.HandleFunc("POST "+post.Path, receive)
		}
		if post.Reconcile != "" && !taken[post.Reconcile] {
			r.mux.HandleFunc("GET "+post.Reconcile, r.known(post.Path))
		}
		taken[post.Path], taken[post.Reconcile] = true, true
	}
	r.mux.HandleFunc("POST "+PartnerPath, r.hook)
	r.mux.HandleFunc("POST /tell", r.tell)
	r.mux.HandleFunc("GET /deliveries", r.list)
	return r, nil
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mux.ServeHTTP(w, request)
}

// Close ends the requests that hang, now and from now on.
func (r *Receiver) Close() { r.silence.end() }

// Tell sets the mode of the next deliveries with a valid signature, after those of earlier
// calls. times is 1 to 1,000,000; Normal needs none.
func (r *Receiver) Tell(mode Mode, times int) error { return r.TellOf("", mode, times) }

// TellOf is Tell for the deliveries of one event, with its id.
func (r *Receiver) TellOf(event string, mode Mode, times int) error {
	if mode == Normal {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.orders = slices.DeleteFunc(r.orders, func(o toldOrder[Mode]) bool { return event == "" || o.id == event })
		return nil
	}
	return r.orders.tell(&r.mu, mode, times, event, modes)
}

// Applied returns how often the event was applied, on all paths together; of a document's _id, how often the
// document was changed.
func (r *Receiver) Applied(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	times := 0
	for _, event := range r.events {
		if event.id == id {
			times += event.times
		}
	}
	for of, document := range r.documents {
		if of.id == id {
			times += document.times
		}
	}
	return times
}

// Deliveries returns every delivery with a valid signature, in the order of arrival.
func (r *Receiver) Deliveries() []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.deliveries)
}

// read returns the body of a signed request. If ok is false, it has answered.
func (r *Receiver) read(w http.ResponseWriter, request *http.Request) (body []byte, ok bool) {
	body, problem := readSigned(w, request, r.verifiers...)
	if problem != nil {
		problem.Write(w)
	}
	return body, problem == nil
}

// readSigned returns the body of a request that one of the verifiers accepts, or what to answer.
func readSigned(w http.ResponseWriter, request *http.Request, verifiers ...*signature.Verifier) ([]byte, *serve.Problem) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxReceiverBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, serve.Refuse(http.StatusRequestEntityTooLarge, "too_large", "The body is too large.")
	case err != nil:
		return nil, serve.Refuse(http.StatusBadRequest, "body_unreadable", "The body did not arrive whole.")
	}
	for _, verifier := range verifiers {
		if err = verifier.Verify(request.Header.Values, body); err == nil {
			return body, nil
		}
	}
	// The text is one of a handful, and a person at work on a sender needs it.
	return nil, serve.Refuse(http.StatusUnauthorized, "signature", err.Error())
}

func (r *Receiver) receive(w http.ResponseWriter, request *http.Request) {
	body, ok := r.read(w, request)
	var given struct {
		EventID        string `json:"event_id"`
		Tenant         string `json:"tenant"`
		SourceEventID  string `json:"source_event_id"`
		EventType      string `json:"event_type"`
		Action         string `json:"action"`
		SubscriptionID string `json:"subscription_id"`
		CorrelationID  string `json:"correlation_id"`
		Payload        struct {
			Status string `json:"status"`
		} `json:"payload"`
	}
	keys := request.Header.Values("Idempotency-Key")
	switch {
	case !ok:
		return
	case json.Unmarshal(body, &given) != nil:
		serve.Refuse(http.StatusBadRequest, "malformed", "The body is not the webhook's JSON.").Write(w)
		return
	case !pii.ID.Valid(given.EventID) || (given.EventType == "" && (given.Action == "" || given.SubscriptionID == "")):
		serve.Refuse(http.StatusUnprocessableEntity, "incomplete", "event_id, and event_type or action and subscription_id are needed.").Write(w)
		return
	case len(keys) != 1 || keys[0] != given.EventID:
		serve.Refuse(http.StatusUnprocessableEntity, "key", "The Idempotency-Key must be the event_id.").Write(w)
		return
	}
	r.answer(w, request, r.take(Delivery{
		Path: request.URL.Path, Key: given.EventID, Tenant: given.Tenant, EventID: cmp.Or(given.SourceEventID, given.EventID), Action: cmp.Or(given.Action, given.EventType), SubscriptionID: given.SubscriptionID,
		CorrelationID: given.CorrelationID, Status: given.Payload.Status, At: r.now(),
	}, sha256.Sum256(body)))
}

// answer says what became of a delivery that came by itself.
func (r *Receiver) answer(w http.ResponseWriter, request *http.Request, outcome string) {
	switch outcome {
	case Applied, Duplicate:
		serve.WriteJSON(w, http.StatusOK, map[string]bool{"duplicate": outcome == Duplicate})
	case Failed:
		serve.Refuse(http.StatusServiceUnavailable, "told", "Told to fail.").Write(w)
	case Refused:
		serve.Refuse(http.StatusUnprocessableEntity, "refused", "Told to refuse, or the key was used before with another body.").Write(w)
	case Hung:
		r.silence.hang(request)
	case Forgotten:
		cut()
	}
}

// take applies a delivery by the current mode and returns its outcome, under one lock: of two
// concurrent deliveries with one key, the second is a duplicate.
func (r *Receiver) take(d Delivery, body [sha256.Size]byte) (outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		d.Outcome = outcome
		r.deliveries = append(r.deliveries, d)
	}()
	mode := r.orders.next(d.EventID)
	switch mode {
	case Fail:
		return Failed
	case Refuse:
		return Refused
	case Hang:
		return Hung
	case Forget, Double, Normal:
	}
	event, known := r.events[delivered{d.Path, d.Key}]
	switch {
	case !known:
		r.events[delivered{d.Path, d.Key}] = &appliedEvent{id: d.EventID, times: 1, body: body}
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

// known answers whether an event was applied by posts to the path.
func (r *Receiver) known(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		if _, ok := r.read(w, request); !ok {
			return
		}
		r.mu.Lock()
		event, applied := r.events[delivered{path, request.PathValue("id")}]
		times := 0
		if applied {
			times = event.times
		}
		r.mu.Unlock()
		if times == 0 {
			serve.Refuse(http.StatusNotFound, "unknown", "No such event has been applied.").Write(w)
			return
		}
		serve.WriteJSON(w, http.StatusOK, map[string]int{"applied": times})
	}
}

func (r *Receiver) tell(w http.ResponseWriter, request *http.Request) {
	var given struct {
		Mode  Mode `json:"mode"`
		Times int  `json:"times"`
	}
	toldBy(w, request, &given, `Send {"mode":"fail","times":1}.`, func() error { return r.Tell(given.Mode, given.Times) })
}

func (r *Receiver) list(w http.ResponseWriter, _ *http.Request) {
	serve.WriteJSON(w, http.StatusOK, map[string][]Delivery{"items": append([]Delivery{}, r.Deliveries()...)})
}
