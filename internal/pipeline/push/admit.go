package push

import (
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-chi/chi/v5"

	"billhook/internal/contract"
	"billhook/internal/platform/serve"
)

// maxPushBody is a message of Pub/Sub's largest size in base64, with attributes that JSON may escape to six times their
// size, and the wrapping.
const maxPushBody = (contract.MaxMessageBytes/3+1)*4 + contract.MaxAttributes*(contract.MaxAttributeKey+contract.MaxAttributeValue)*6 + 64<<10

// admit refuses while draining, authenticates, finds the queue, and reads and decodes the body. Where ok is false it has
// answered; else the caller answers, and then releases the push.
func (s *Service) admit(w http.ResponseWriter, r *http.Request) (q *queue, e envelope, ok bool) {
	if !s.authentic(w, r) {
		return nil, envelope{}, false
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
	if e, err = decodeEnvelope(body.Bytes()); err != nil {
		release()
		// This did not come from Pub/Sub: there is no message that could be lost.
		return s.refuse(w, r, errNotPush)
	}
	e.trace = traceOf(r.Header.Get("Traceparent"), e.message.Attributes["googclient_traceparent"])
	e.release = release // the message is as large, and in memory until it is answered
	return q, e, true
}

// traceparent is the header of the W3C's Trace Context, as far as the id of the trace.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}`)

// traceOf is the id of the trace in the first of the values that has one; else it is empty.
func traceOf(values ...string) string {
	for _, value := range values {
		if found := traceparent.FindStringSubmatch(value); found != nil && strings.Trim(found[1], "0") != "" {
			return found[1]
		}
	}
	return ""
}

// Why a push is refused, in the order of its admission.
var (
	errDraining  = serve.Refuse(http.StatusServiceUnavailable, "shutting_down", "This instance is shutting down; deliver again.")
	errTwoTokens = serve.Refuse(http.StatusForbidden, "forbidden", "A push carries its token in one Authorization, and no other.")
	errBrowser   = serve.Refuse(http.StatusForbidden, "cross_origin", "A browser does not push.")
	errQueue     = serve.Refuse(http.StatusNotFound, "queue_unknown", "This worker serves no queue of that name. See the catalog: is the queue enabled, and in this worker's pool?")
	errNotPush   = serve.Refuse(http.StatusBadRequest, "envelope_malformed", "The body is not Pub/Sub's wrapped push format.")
	errUnkept    = serve.Refuse(http.StatusServiceUnavailable, "store_unavailable", "The dead letter could not be stored; deliver again.")
	unauthorized = serve.Ladder{
		Rungs: []serve.Rung{
			{Of: serve.ErrNotAllowed, As: serve.Refuse(http.StatusForbidden, "forbidden", "The token's account may not push here.")},
			{Of: serve.ErrKeysUnavailable, As: serve.Refuse(http.StatusServiceUnavailable, "keys_unavailable", "The token cannot be checked now; deliver again.")},
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

// authentic reports whether the service is not draining, and the request comes from the broker or the scheduler. Where it
// returns false it has answered.
func (s *Service) authentic(w http.ResponseWriter, r *http.Request) bool {
	var p *serve.Problem
	switch {
	case s.draining.Load():
		p = errDraining
	// Cloud Run checks X-Serverless-Authorization in place of Authorization, which it then passes on unchecked, and does
	// not document which of two it checks. The broker and the scheduler send one Authorization and no other.
	case len(r.Header.Values("X-Serverless-Authorization")) > 0 || len(r.Header.Values("Authorization")) > 1:
		p = errTwoTokens
	// Only browsers send these. Beside an emulator, where no token is asked for, any open page could post here.
	case len(r.Header.Values("Origin")) > 0 || len(r.Header.Values("Sec-Fetch-Site")) > 0:
		p = errBrowser
	default:
		if err := s.config.Authenticator.Verify(r.Context(), r.Header.Get("Authorization")); err != nil {
			p = unauthorized.Problem(err)
		}
	}
	if p != nil {
		s.refuse(w, r, p)
	}
	return p == nil
}

// Authenticated passes on requests with the token of a push, such as Cloud Scheduler's, and refuses all others.
func (s *Service) Authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.authentic(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// refuse answers a push that is not admitted. It returns what admit does then.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, p *serve.Problem) (*queue, envelope, bool) {
	s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "push refused", slog.String("reason", p.Code), slog.Int("status", p.Status))
	p.Write(w)
	return nil, envelope{}, false
}
