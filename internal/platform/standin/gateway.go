package standin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/pii"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// Where the gateway takes orders. GET of the path and the event's id says what became of one.
const (
	PaymentsPath = "/v1/payments"
	RefundsPath  = "/v1/refunds"
)

// Act is what the gateway does with an order in place of carrying it out and saying so.
type Act string

// Acts.
const (
	// DeclineOrder carries out nothing, says so with status 200, and remembers it.
	DeclineOrder Act = "decline"
	// RefuseOrder answers 422 and carries out nothing.
	RefuseOrder Act = "refuse"
	// FailOrder answers 503 and carries out nothing.
	FailOrder Act = "fail"
	// HangOrder carries out nothing, and does not answer until the sender gives up or the gateway
	// is closed.
	HangOrder Act = "hang"
	// LoseAnswer carries out the order and cuts the connection without an answer.
	LoseAnswer Act = "lose"
	// ForgetOrder carries out the order, answers, and forgets its key: asked, it knows of
	// nothing, and it carries out the repetition once more.
	ForgetOrder Act = "forget"
)

// reuseKey is what becomes of another order under a key that has one.
const reuseKey Act = "reuse"

var acts = []Act{DeclineOrder, RefuseOrder, FailOrder, HangOrder, LoseAnswer, ForgetOrder}

// Order is an order that the gateway has decided on.
type Order struct {
	// Key is its Idempotency-Key. EventID is what its producer calls the event, within Tenant and a queue.
	Key     string `json:"key"`
	Tenant  string `json:"tenant,omitempty"`
	EventID string `json:"event_id"`
	// Path is PaymentsPath or RefundsPath.
	Path           string `json:"path"`
	Action         string `json:"action"`
	PaymentID      string `json:"payment_id"`
	SubscriptionID string `json:"subscription_id,omitempty"`
	Amount         string `json:"amount,omitempty"`
	Currency       string `json:"currency,omitempty"`
	// Status is succeeded or declined.
	Status string `json:"status"`
	// Times is how often it was carried out: more than once only where it was forgotten.
	Times int `json:"times"`
}

// GatewayConfig configures a Gateway.
type GatewayConfig struct {
	// Secrets of the sender, by the generic scheme. Any of them is accepted.
	Secrets []string
	// Tolerance is how far a signed time may be from now, in both directions.
	Tolerance time.Duration
	// Now; nil: the machine's clock.
	Now func() time.Time
}

// Gateway stands in for a payment gateway. It carries out one order per Idempotency-Key, refuses another
// order under the same key, and answers {"payment_id","subscription_id","amount","currency","status"}. It refunds a payment as often as it is asked to under new keys:
// that this happens once is for the sender to see to. Orders are kept in memory.
//
// What it does otherwise is told by POST /gateway/tell, or by an id: an order whose payment, or
// subscription where it names no payment, begins with "decline-", "refuse-", "fail-", "hang-", "lose-" or
// "forget-" is treated so every time. GET /gateway/orders lists the orders. Both are for people and
// have no authentication: serve the gateway on the loopback address.
//
// It is safe for concurrent use.
type Gateway struct {
	verifier *signature.Verifier
	mux      *http.ServeMux
	silence  silence

	mu   sync.Mutex
	told orders[Act]
	// orders by the place of their key, in the order of their arrival.
	orders []*Order
	keys   map[orderKey]*Order
}

type orderKey struct{ path, key string }

var _ http.Handler = (*Gateway)(nil)

// NewGateway returns a gateway that carries out every order.
func NewGateway(config GatewayConfig) (*Gateway, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	verifier, err := signature.NewVerifier(signature.Generic, config.Secrets, config.Tolerance, config.Now)
	if err != nil {
		return nil, fmt.Errorf("standin: gateway: %w", err)
	}
	g := &Gateway{verifier: verifier, mux: http.NewServeMux(), silence: newSilence(), keys: map[orderKey]*Order{}}
	for _, path := range []string{PaymentsPath, RefundsPath} {
		g.mux.HandleFunc("POST "+path, g.take)
		g.mux.HandleFunc("GET "+path+"/{id}", g.known(path))
	}
	g.mux.HandleFunc("POST /gateway/tell", g.tell)
	g.mux.HandleFunc("GET /gateway/orders", g.list)
	return g, nil
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.mux.ServeHTTP(w, r) }

// Close ends the requests that hang, now and from now on.
func (g *Gateway) Close() { g.silence.end() }

// Before serves the gateway's own paths, and leaves all others to next.
func (g *Gateway) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := g.mux.Handler(r); pattern != "" {
			g.mux.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Tell sets what becomes of the next orders, 1 to 1,000,000, after those of earlier calls. With an
// id, they are those of that payment, or of that subscription.
func (g *Gateway) Tell(act Act, times int, id string) error {
	return g.told.tell(&g.mu, act, times, id, acts)
}

// Orders are those that the gateway has decided on, in the order of their arrival.
func (g *Gateway) Orders() []Order {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := []Order{}
	for _, o := range g.orders {
		all = append(all, *o)
	}
	return all
}

// CarriedOut is how often the orders of an event were carried out.
func (g *Gateway) CarriedOut(eventID string) (times int) {
	for _, o := range g.Orders() {
		if o.EventID == eventID {
			times += o.Times
		}
	}
	return times
}

// Refunded is how often a payment was refunded, under whatever keys.
func (g *Gateway) Refunded(payment string) (times int) {
	for _, o := range g.Orders() {
		if o.Path == RefundsPath && o.PaymentID == payment {
			times += o.Times
		}
	}
	return times
}

func (g *Gateway) take(w http.ResponseWriter, r *http.Request) {
	body, problem := readSigned(w, r, g.verifier)
	if problem != nil {
		problem.Write(w)
		return
	}
	var given struct {
		EventID        string `json:"event_id"`
		Tenant         string `json:"tenant"`
		SourceEventID  string `json:"source_event_id"`
		Action         string `json:"action"`
		PaymentID      string `json:"payment_id"`
		SubscriptionID string `json:"subscription_id"`
		Amount         string `json:"amount"`
		Currency       string `json:"currency"`
		Payload        struct {
			PaymentID string `json:"payment_id"`
			Amount    string `json:"amount"`
			Currency  string `json:"currency"`
		} `json:"payload"`
	}
	err := json.Unmarshal(body, &given)
	o := Order{
		Key: given.EventID, Tenant: given.Tenant, EventID: cmp.Or(given.SourceEventID, given.EventID), Path: r.URL.Path,
		Action: given.Action, PaymentID: given.PaymentID, SubscriptionID: given.SubscriptionID,
		Amount: given.Amount, Currency: given.Currency,
	}
	if o.Path == PaymentsPath {
		o.PaymentID, o.Amount, o.Currency = given.Payload.PaymentID, given.Payload.Amount, given.Payload.Currency
	}
	keys := r.Header.Values("Idempotency-Key")
	switch {
	case err != nil:
		serve.Refuse(http.StatusBadRequest, "malformed", "The body is not an order's JSON.").Write(w)
		return
	case !pii.ID.Valid(o.Key) || o.Action == "" || (o.Path == RefundsPath && !pii.ID.Valid(o.PaymentID)):
		serve.Refuse(http.StatusUnprocessableEntity, "incomplete", "event_id and action are needed, and of a refund payment_id.").Write(w)
		return
	case len(keys) != 1 || keys[0] != o.Key:
		serve.Refuse(http.StatusUnprocessableEntity, "key", "The Idempotency-Key must be the event_id.").Write(w)
		return
	}
	decided, act := g.decide(o)
	switch act {
	case reuseKey:
		serve.Refuse(http.StatusUnprocessableEntity, "key_reused", "The key was used before for another order.").Write(w)
	case RefuseOrder:
		serve.Refuse(http.StatusUnprocessableEntity, "refused", "Told to refuse.").Write(w)
	case FailOrder:
		serve.Refuse(http.StatusServiceUnavailable, "told", "Told to fail.").Write(w)
	case HangOrder:
		g.silence.hang(r)
	case LoseAnswer:
		cut()
	default:
		decided.answer(w)
	}
}

// answer writes what the gateway says of an order.
func (o Order) answer(w http.ResponseWriter) {
	serve.WriteJSON(w, http.StatusOK, map[string]string{
		"payment_id": o.PaymentID, "subscription_id": o.SubscriptionID, "amount": o.Amount, "currency": o.Currency, "status": o.Status,
	})
}

// decide carries out an order, once per key, or does what it is told. The order is as it is then
// known.
func (g *Gateway) decide(o Order) (Order, Act) {
	g.mu.Lock()
	defer g.mu.Unlock()
	act, key := g.next(o), orderKey{o.Path, o.Key}
	if act == RefuseOrder || act == FailOrder || act == HangOrder {
		return Order{}, act
	}
	if o.PaymentID == "" {
		sum := sha256.Sum256([]byte(o.Key))
		o.PaymentID = "pay-" + hex.EncodeToString(sum[:8])
	}
	known := g.keys[key]
	if known != nil {
		if o.Status, o.Times = known.Status, known.Times; o != *known {
			return Order{}, reuseKey
		}
	} else {
		known = g.forgotten(key)
		if known == nil {
			known = &o
			g.orders = append(g.orders, known)
		}
		known.Status = "succeeded"
		if act == DeclineOrder {
			known.Status = "declined"
		} else {
			known.Times++
		}
		g.keys[key] = known
	}
	if act == ForgetOrder {
		delete(g.keys, key)
	}
	return *known, act
}

// forgotten is the order of a key that was forgotten; nil: there is none.
func (g *Gateway) forgotten(key orderKey) *Order {
	for _, o := range g.orders {
		if o.Path == key.path && o.Key == key.key {
			return o
		}
	}
	return nil
}

// next is what is to become of an order, by what was told first, else by its id.
func (g *Gateway) next(o Order) Act {
	if act := g.told.next(o.PaymentID, o.SubscriptionID); act != "" {
		return act
	}
	id := cmp.Or(o.PaymentID, o.SubscriptionID)
	for _, act := range acts {
		if strings.HasPrefix(id, string(act)+"-") {
			return act
		}
	}
	return ""
}

// known answers what became of an order on the path.
func (g *Gateway) known(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, problem := readSigned(w, r, g.verifier); problem != nil {
			problem.Write(w)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if o := g.keys[orderKey{path, r.PathValue("id")}]; o != nil {
			o.answer(w)
			return
		}
		serve.Refuse(http.StatusNotFound, "unknown", "There is no order of that event.").Write(w)
	}
}

func (g *Gateway) tell(w http.ResponseWriter, r *http.Request) {
	var given struct {
		Act   Act    `json:"act"`
		Times int    `json:"times"`
		ID    string `json:"id"`
	}
	toldBy(w, r, &given, `Send {"act":"fail","times":1}, and "id" for one payment or subscription.`, func() error {
		return g.Tell(given.Act, given.Times, given.ID)
	})
}

func (g *Gateway) list(w http.ResponseWriter, _ *http.Request) {
	serve.WriteJSON(w, http.StatusOK, map[string][]Order{"items": g.Orders()})
}
