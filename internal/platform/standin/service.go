package standin

import (
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

// Mode is what a service's stand-in does with a request instead of its normal work.
type Mode string

const (
	// Fail answers 503 and does nothing.
	Fail Mode = "fail"
	// Refuse answers 422 and does nothing.
	Refuse Mode = "refuse"
	// Hang does nothing, and holds the request until the sender gives up or the stand-in is closed.
	Hang Mode = "hang"
	// Forget makes the receiver apply the delivery and cut the connection without an answer. It makes the
	// gateway carry out the order, answer, and forget its key: a lookup does not find it, and a repetition is
	// carried out again.
	Forget Mode = "forget"
	// Lose makes the gateway carry out the order and cut the connection without an answer.
	Lose Mode = "lose"
	// Decline makes the gateway decline the order with status 200, and remember that.
	Decline Mode = "decline"
	// Normal removes the modes that were set before.
	Normal Mode = "normal"
)

const (
	maxTimes         = 1_000_000
	maxReceiverBytes = 256 << 10
)

// ServiceConfig configures a Receiver or a Gateway.
type ServiceConfig struct {
	// Secrets are the sender's secrets, and Standard those for Standard Webhooks. Any of them is accepted.
	Secrets, Standard []string
	// Posts are the posts that a receiver takes; nil: only the payment webhook.
	Posts []catalog.Post
	// Tolerance is how far a signed time may be from now, in both directions.
	Tolerance time.Duration
	// Now returns the time; nil: the machine's clock.
	Now func() time.Time
}

type service struct {
	mux       *http.ServeMux
	verifiers []*signature.Verifier
	modes     []Mode
	tolerance time.Duration
	now       func() time.Time
	ended     chan struct{}
	// Close ends all hanging requests, also later ones.
	Close func()

	mu           sync.Mutex
	instructions []instruction
}

// instruction applies to the next left requests: those with its id, or any if that is empty.
type instruction struct {
	mode Mode
	left int
	id   string
}

func newService(config ServiceConfig, modes ...Mode) (*service, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	s := &service{
		mux: http.NewServeMux(), modes: modes, tolerance: config.Tolerance, now: config.Now,
		ended: make(chan struct{}),
	}
	s.Close = sync.OnceFunc(func() { close(s.ended) })
	for scheme, secrets := range map[signature.Scheme][]string{
		signature.Generic: config.Secrets, signature.Standard: config.Standard,
	} {
		if len(secrets) == 0 {
			continue
		}
		verifier, err := signature.NewVerifier(scheme, secrets, config.Tolerance, config.Now)
		if err != nil {
			return nil, fmt.Errorf("standin: %w", err)
		}
		s.verifiers = append(s.verifiers, verifier)
	}
	if len(s.verifiers) == 0 {
		return nil, errors.New("standin: no secret")
	}
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Behave sets the mode of the next requests, 1 to 1,000,000, after the modes of earlier calls. With the id of
// an event, a payment or a subscription it applies only to requests with that id. Normal needs no times.
func (s *service) Behave(id string, mode Mode, times int) error {
	switch {
	case mode != Normal && !slices.Contains(s.modes, mode):
		return fmt.Errorf("standin: the mode must be one of %v, or %s", s.modes, Normal)
	case mode != Normal && (times < 1 || times > maxTimes):
		return fmt.Errorf("standin: times must be 1 to %d", maxTimes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mode == Normal {
		s.instructions = slices.DeleteFunc(s.instructions, func(i instruction) bool {
			return id == "" || i.id == id
		})
		return nil
	}
	s.instructions = append(s.instructions, instruction{mode, times, id})
	return nil
}

// instruct is Behave as a request for people: {"mode":"fail","times":1,"id":"..."}.
func (s *service) instruct(w http.ResponseWriter, r *http.Request) {
	var given struct {
		Mode  Mode   `json:"mode"`
		Times int    `json:"times"`
		ID    string `json:"id"`
	}
	if err := json.UnmarshalRead(http.MaxBytesReader(w, r.Body, 1<<10), &given,
		json.RejectUnknownMembers(true)); err != nil {
		serve.Refuse(http.StatusBadRequest, "malformed",
			`Send {"mode":"fail","times":1}, and "id" for one event, payment or subscription.`).Write(w)
		return
	}
	if err := s.Behave(given.ID, given.Mode, given.Times); err != nil {
		serve.Refuse(http.StatusUnprocessableEntity, "mode", err.Error()).Write(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// next uses the oldest instruction for one of the ids, or for any, once. The caller holds the lock.
func (s *service) next(ids ...string) Mode {
	n := slices.IndexFunc(s.instructions, func(i instruction) bool {
		return i.id == "" || slices.Contains(ids, i.id)
	})
	if n < 0 {
		return Normal
	}
	i := &s.instructions[n]
	mode := i.mode
	if i.left--; i.left == 0 {
		s.instructions = slices.Delete(s.instructions, n, n+1)
	}
	return mode
}

// readSigned returns the body of a request that a verifier accepts. If ok is false, it has answered.
func readSigned(
	w http.ResponseWriter, request *http.Request, verifiers []*signature.Verifier,
) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxReceiverBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		serve.Refuse(http.StatusRequestEntityTooLarge, "too_large", "The body is too large.").Write(w)
		return nil, false
	case err != nil:
		serve.Refuse(http.StatusBadRequest, "body_unreadable", "The body did not arrive whole.").Write(w)
		return nil, false
	}
	err = errors.New("no secret is known")
	for _, verifier := range verifiers {
		if err = verifier.Verify(request.Header.Values, body); err == nil {
			return body, true
		}
	}
	// The text is one of a fixed few, and a developer of a sender needs it.
	serve.Refuse(http.StatusUnauthorized, "signature", err.Error()).Write(w)
	return nil, false
}

// payment has the fields of a payment in a post.
type payment struct {
	PaymentID string `json:"payment_id"`
	Amount    string `json:"amount"`
	Currency  string `json:"currency"`
	Status    string `json:"status"`
}

// posted is a post, or a line of a batch.
type posted struct {
	payment

	EventID        string  `json:"event_id"`
	Tenant         string  `json:"tenant"`
	SourceEventID  string  `json:"source_event_id"`
	EventType      string  `json:"event_type"`
	Action         string  `json:"action"`
	SubscriptionID string  `json:"subscription_id"`
	CorrelationID  string  `json:"correlation_id"`
	Payload        payment `json:"payload"`
}

// keyed reads a signed post, whose Idempotency-Key must be its event_id. If ok is false, it has answered.
// needed describes the members of a complete post.
func (s *service) keyed(
	w http.ResponseWriter, r *http.Request, complete func(posted) bool, needed string,
) (given posted, body []byte, ok bool) {
	if body, ok = readSigned(w, r, s.verifiers); !ok {
		return given, nil, false
	}
	err := json.Unmarshal(body, &given)
	keys := r.Header.Values("Idempotency-Key")
	switch {
	case err != nil:
		serve.Refuse(http.StatusBadRequest, "malformed", "The body is not the JSON of a post.").Write(w)
	case !pii.ID.Valid(given.EventID) || !complete(given):
		serve.Refuse(http.StatusUnprocessableEntity, "incomplete", needed).Write(w)
	case len(keys) != 1 || keys[0] != given.EventID:
		serve.Refuse(http.StatusUnprocessableEntity, "key", "The Idempotency-Key must be the event_id.").Write(w)
	default:
		return given, body, true
	}
	return given, nil, false
}

// lookup answers a signed request about an event with the value of known, or with 404 for nil.
func (s *service) lookup(path string, known func(path, id string) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := readSigned(w, r, s.verifiers); !ok {
			return
		}
		s.mu.Lock()
		answer := known(path, r.PathValue("id"))
		s.mu.Unlock()
		if answer == nil {
			serve.Refuse(http.StatusNotFound, "unknown", "Nothing is known of that event.").Write(w)
			return
		}
		serve.WriteJSON(w, http.StatusOK, answer)
	}
}

// instead answers a request by its mode. It returns false if the mode allows the normal answer.
func (s *service) instead(w http.ResponseWriter, r *http.Request, mode Mode) bool {
	switch mode {
	case Fail:
		serve.Refuse(http.StatusServiceUnavailable, "failed", "Set to fail.").Write(w)
	case Refuse:
		serve.Refuse(http.StatusUnprocessableEntity, "refused",
			"Set to refuse, or the key was used before for something else.").Write(w)
	case Hang:
		select {
		case <-r.Context().Done():
		case <-s.ended:
		}
		fallthrough
	case Lose:
		panic(http.ErrAbortHandler) // this ends the request without an answer
	default:
		return false
	}
	return true
}
