package standin

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/catalog"
	"billhook/internal/pii"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// Outcomes of a delivery, or of an action in a bulk request.
const (
	Applied   = "applied"
	Duplicate = "duplicate"
	Failed    = "failed"
	Refused   = "refused"
	Hung      = "hung"
	Forgotten = "forgotten"
	// Stale: the version is not above the stored one.
	Stale = "stale"
	// Absent: there is no document to delete.
	Absent = "absent"
)

var (
	outcomes = map[Mode]string{Fail: Failed, Refuse: Refused, Hang: Hung} // for deliveries that are not applied
	answers  = map[string]Mode{Failed: Fail, Refused: Refuse, Hung: Hang, Forgotten: Lose}
)

// PartnerPath is where the third party receives events by Standard Webhooks. Register it as an endpoint to
// try them.
const PartnerPath = "/partner"

// Delivery is a received delivery with a valid signature.
type Delivery struct {
	Path string `json:"path"`
	// Key is the Idempotency-Key. EventID is the producer's event id, unique within Tenant and a queue. If a
	// post does not name it, it is the key; in a bulk request it is the document's _id.
	Key     string `json:"key,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	EventID string `json:"event_id"`
	// Action is the action of a payment's notice, else the event type.
	Action string `json:"action"`
	// Status is a payment's outcome, such as succeeded.
	Status         string    `json:"status,omitempty"`
	SubscriptionID string    `json:"subscription_id,omitempty"`
	CorrelationID  string    `json:"correlation_id,omitempty"`
	At             time.Time `json:"at"`
	// Outcome is one of the outcomes above. A forgotten delivery was applied, too, unless it was a duplicate.
	Outcome string `json:"outcome"`
}

// Receiver stands in for the targets. A POST to one of the catalog's paths applies an event once per path and
// Idempotency-Key. A GET of the reconcile path returns whether it was applied. At PartnerPath it also stands
// in for a third party. Deliveries are kept in memory.
//
// GET /deliveries and POST /behave are for people and need no authentication, so serve it only on the
// loopback address. It is safe for concurrent use.
type Receiver struct {
	*service
	deliveries []Delivery
	held       map[delivered]held
	// partner verifies the third party's deliveries; empty: all are refused.
	partner []*signature.Verifier
}

// delivered identifies a delivery by its path and its key or _id.
type delivered struct{ path, key string }

// held is an applied event with the hash of its body, or a document of the index; a deleted one has no
// source. times is how often it was applied or changed.
type held struct {
	id, source string
	version    int64
	times      int
}

var _ http.Handler = (*Receiver)(nil)

// NewReceiver returns a receiver in normal mode.
func NewReceiver(config ServiceConfig) (*Receiver, error) {
	shared, err := newService(config, Fail, Refuse, Hang, Forget)
	if err != nil {
		return nil, err
	}
	r := &Receiver{service: shared, held: map[delivered]held{}}
	if config.Posts == nil {
		config.Posts = []catalog.Post{{Path: "/v1/webhooks/payment", Reconcile: "/v1/webhooks/payment/{id}"}}
	}
	taken := map[string]bool{"/behave": true, PartnerPath: true} // these paths do not belong to the services
	for _, post := range config.Posts {
		if !taken[post.Path] {
			receive := r.receive
			if post.Form != catalog.Single {
				receive = r.batch(post.Form)
			}
			r.mux.HandleFunc("POST "+post.Path, receive)
		}
		if post.Reconcile != "" && !taken[post.Reconcile] {
			r.mux.HandleFunc("GET "+post.Reconcile, r.lookup(post.Path, r.known))
		}
		taken[post.Path], taken[post.Reconcile] = true, true
	}
	r.mux.HandleFunc("POST "+PartnerPath, r.hook)
	r.mux.HandleFunc("POST /behave", r.instruct)
	r.mux.HandleFunc("GET /deliveries", func(w http.ResponseWriter, _ *http.Request) {
		serve.WriteJSON(w, http.StatusOK, map[string][]Delivery{"items": append([]Delivery{}, r.Deliveries()...)})
	})
	return r, nil
}

// Trust makes the third party verify deliveries with the secret of its endpoint, whsec_... . Before the first
// call it refuses all.
func (r *Receiver) Trust(secret string) error {
	verifier, err := signature.NewVerifier(signature.Standard, []string{secret}, r.tolerance, r.now)
	if err != nil {
		return fmt.Errorf("standin: partner: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.partner = []*signature.Verifier{verifier}
	return nil
}

// Applied returns how often an event was applied, on all paths together, or how often the document with that
// _id was changed.
func (r *Receiver) Applied(id string) (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.held {
		if one.id == id {
			times += one.times
		}
	}
	return times
}

// Deliveries returns every delivery with a valid signature, in order of arrival.
func (r *Receiver) Deliveries() []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.deliveries)
}

// delivery converts a post, or a line of a batch, to a Delivery.
func (p posted) delivery() Delivery {
	return Delivery{
		Key: p.EventID, Tenant: p.Tenant, EventID: cmp.Or(p.SourceEventID, p.EventID),
		Action:         cmp.Or(p.Action, p.EventType),
		SubscriptionID: p.SubscriptionID, CorrelationID: p.CorrelationID, Status: p.Payload.Status,
	}
}

// receive takes a post with an event type, or a payment's notice with an action and a subscription.
func (r *Receiver) receive(w http.ResponseWriter, request *http.Request) {
	complete := func(p posted) bool { return p.EventType != "" || (p.Action != "" && p.SubscriptionID != "") }
	given, body, ok := r.keyed(w, request, complete,
		"event_id, and event_type or action and subscription_id are needed.")
	if ok {
		d := given.delivery()
		d.Path = request.URL.Path
		r.apply(w, request, d, body)
	}
}

func (r *Receiver) hook(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	trusted := r.partner
	r.mu.Unlock()
	body, ok := readSigned(w, request, trusted)
	if !ok {
		return
	}
	var given struct {
		Type string `json:"type"`
	}
	id := request.Header.Get("Webhook-Id")
	if json.Unmarshal(body, &given) != nil || given.Type == "" || !pii.ID.Valid(id) {
		serve.Refuse(http.StatusBadRequest, "malformed", "The body is not a webhook's JSON, with a type.").Write(w)
		return
	}
	r.apply(w, request, Delivery{Path: PartnerPath, Key: id, EventID: id, Action: given.Type}, body)
}

func (r *Receiver) apply(w http.ResponseWriter, request *http.Request, d Delivery, body []byte) {
	d.At = r.now()
	if outcome := r.take(d, body); !r.instead(w, request, answers[outcome]) {
		serve.WriteJSON(w, http.StatusOK, map[string]bool{"duplicate": outcome == Duplicate})
	}
}

// take holds one lock, so that the second of two concurrent deliveries with one key is a duplicate.
func (r *Receiver) take(d Delivery, body []byte) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256(body)
	d.Outcome = r.outcome(d, string(sum[:]))
	r.deliveries = append(r.deliveries, d)
	return d.Outcome
}

func (r *Receiver) outcome(d Delivery, body string) string {
	mode, key := r.next(d.EventID), delivered{d.Path, d.Key}
	event, known := r.held[key]
	switch {
	case outcomes[mode] != "":
		return outcomes[mode]
	case !known:
		r.held[key] = held{id: d.EventID, source: body, times: 1}
	case event.source != body:
		return Refused
	case mode != Forget:
		return Duplicate
	}
	if mode == Forget {
		return Forgotten
	}
	return Applied
}

func (r *Receiver) known(path, key string) any {
	if _, applied := r.held[delivered{path, key}]; applied {
		return map[string]int{"applied": 1}
	}
	return nil
}
