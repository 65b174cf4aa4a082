package push

import (
	"io"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"billhook/internal/contract"
	"billhook/internal/serve"
)

// maxPushBody is the largest push request: a message of Pub/Sub's largest size in
// base64, with its attributes, each byte of which JSON may escape to six, and the
// wrapping.
const maxPushBody = (contract.MaxDataBytes/3+1)*4 + contract.MaxAttributes*(contract.MaxAttributeKey+contract.MaxAttributeValue)*6 + 64<<10

// admit does what comes before a message is looked at: it refuses while draining,
// authenticates, finds the queue, and reads and decodes the body. It has answered
// where ok is false; else the caller releases the delivery once it has.
func (s *Service) admit(w http.ResponseWriter, r *http.Request) (q *queue, d delivery, ok bool) {
	if !s.authentic(w, r) {
		return nil, delivery{}, false
	}
	if q, ok = s.queues[chi.URLParam(r, "queue")]; !ok {
		return s.refuse(w, r, errQueue)
	}
	var body serve.Body
	release := func() { body.Release(s.bodies, 0) }
	err := body.Read(w, r, maxPushBody, s.bodies)
	if err == nil && int64(len(body.Bytes())) < r.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		release()
		return s.refuse(w, r, unread.Problem(err))
	}
	if d, err = decodeEnvelope(body.Bytes()); err != nil {
		release()
		// This did not come from Pub/Sub: there is no message that could be lost.
		return s.refuse(w, r, errNotPush)
	}
	d.release = release // the message is as large, and in memory until it is answered
	return q, d, true
}

// What is wrong with a push that is not looked at, in the order of its admission.
var (
	errDraining  = serve.Refuse(http.StatusServiceUnavailable, "shutting_down", "This instance is shutting down; deliver again.")
	errTwoTokens = serve.Refuse(http.StatusForbidden, "forbidden", "A push carries its token in one Authorization, and no other.")
	errBrowser   = serve.Refuse(http.StatusForbidden, "cross_origin", "A browser does not push.")
	errQueue     = serve.Refuse(http.StatusNotFound, "queue_unknown", "This worker serves no queue of that name. See the catalog: is the queue enabled, and in this worker's pool?")
	errNotPush   = serve.Refuse(http.StatusBadRequest, "envelope_malformed", "The body is not Pub/Sub's wrapped push format.")
	errUnkept    = serve.Refuse(http.StatusServiceUnavailable, "store_unavailable", "The dead letter could not be stored; deliver again.")
	unauthorized = serve.Ladder{
		Rungs: []serve.Rung{
			{Of: ErrForbidden, As: serve.Refuse(http.StatusForbidden, "forbidden", "The token's account may not push here.")},
			{Of: ErrKeysUnavailable, As: serve.Refuse(http.StatusServiceUnavailable, "keys_unavailable", "The token cannot be checked now; deliver again.")},
		},
		Last: serve.Refuse(http.StatusUnauthorized, "unauthorized", "The push needs a valid OIDC token of the push service account."),
	}
	unread = serve.Ladder{
		Rungs: []serve.Rung{
			{Of: serve.ErrTooLarge, As: serve.Refuse(http.StatusRequestEntityTooLarge, "too_large", "The body is larger than any Pub/Sub message.")},
			{Of: serve.ErrNoRoom, As: serve.Refuse(http.StatusServiceUnavailable, "bodies_in_flight", "Too much is being read at once; deliver again.")},
		},
		Last: serve.Refuse(http.StatusServiceUnavailable, "body_unread", "The body did not arrive whole; deliver again."),
	}
)

// authentic refuses while draining, and whoever is not the broker. It has answered
// where it returns false.
func (s *Service) authentic(w http.ResponseWriter, r *http.Request) bool {
	if s.draining.Load() {
		s.refuse(w, r, errDraining)
		return false
	}
	// Who sends this header to Cloud Run is checked by it alone, and Authorization is passed
	// on unchecked; nor is it said which it checks of two. The broker and the scheduler send
	// one Authorization and no other, so an empty one is too many.
	if len(r.Header.Values("X-Serverless-Authorization")) > 0 || len(r.Header.Values("Authorization")) > 1 {
		s.refuse(w, r, errTwoTokens)
		return false
	}
	// A browser alone says from which page a request comes, and none pushes. Where no token
	// is asked for, beside an emulator, any page that a developer has open could post here.
	if len(r.Header.Values("Origin")) > 0 || len(r.Header.Values("Sec-Fetch-Site")) > 0 {
		s.refuse(w, r, errBrowser)
		return false
	}
	err := s.config.Authenticator.Verify(r.Context(), r.Header.Get("Authorization"))
	if err != nil {
		s.refuse(w, r, unauthorized.Problem(err))
	}
	return err == nil
}

// Authenticated passes on what carries the same token as a push, such as what Cloud
// Scheduler posts, and refuses everything else as a push would be.
func (s *Service) Authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.authentic(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// refuse answers a push that is not looked at, in the shape that admit returns.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, p *serve.Problem) (*queue, delivery, bool) {
	s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "push refused", slog.String("reason", p.Code), slog.Int("status", p.Status))
	p.Write(w)
	return nil, delivery{}, false
}
