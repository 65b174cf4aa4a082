package webhook

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"billhook/internal/contract"
	"billhook/internal/serve"
	"billhook/internal/signature"
)

// mostKept is the largest buffer that is kept for the next request. What is larger is
// rare, and a few of them would hold their memory for as long as the process lives.
const mostKept = 64 << 10

// buffers are what one request reads and writes into.
type buffers struct {
	body       serve.Body
	minimized  []byte
	encoded    []byte
	attributes contract.Attributes
	outcome    outcome
}

// release gives back what the request has claimed, and the buffers that are no larger
// than what is kept.
func (s *Service) release(b *buffers) {
	b.body.Release(s.bodies, mostKept)
	for _, buffer := range []*[]byte{&b.minimized, &b.encoded} {
		if cap(*buffer) > mostKept {
			*buffer = nil
		}
	}
	s.buffers.Put(b)
}

func (s *Service) receive(w http.ResponseWriter, r *http.Request, from *source, queue string) {
	b := s.buffers.Get().(*buffers)
	defer s.release(b) // after a panic too, which is answered further out
	b.outcome = outcome{source: from.Name, started: s.config.Now()}
	o := &b.outcome
	if s.admit(w, r, from, b, o) {
		s.accept(r.Context(), from, queue, b, o)
	}
	s.answer(w, r, o)
}

// admit reads and verifies the request. No byte of the body is read before everything
// that can be said without it has been: the headers of the signature are there and
// well-formed, and the time is ours. Nothing of the body is parsed, and nothing
// remembered, before its signature is known to be good; the rate limit comes after it,
// so that a stranger cannot use it up.
func (s *Service) admit(w http.ResponseWriter, r *http.Request, from *source, b *buffers, o *outcome) bool {
	if !isJSON(r.Header["Content-Type"]) {
		o.refuse(http.StatusUnsupportedMediaType, "content_type", "Send application/json.")
		return false
	}
	if !isPlain(r.Header["Content-Encoding"]) {
		o.refuse(http.StatusUnsupportedMediaType, "content_encoding", "Send the body without a content encoding.")
		return false
	}
	if r.ContentLength > from.MaxBodyBytes {
		o.refuse(http.StatusRequestEntityTooLarge, "too_large", "The body is larger than this source may send.")
		return false
	}
	claim, err := from.verifier.Headers(r.Header.Values)
	if err != nil {
		o.refuseSignature(err)
		return false
	}
	if err := b.body.Read(w, r, from.MaxBodyBytes, s.bodies); err != nil {
		o.refuseUnread(err)
		return false
	}
	o.bytes = len(b.body.Bytes())
	if err := claim.Verify(b.body.Bytes()); err != nil {
		o.refuseSignature(err)
		return false
	}
	if from.limiter != nil && !from.limiter.AllowN(s.config.Now(), 1) {
		o.refuse(http.StatusTooManyRequests, "rate_limited", "Too many requests; send it again later.")
		o.retryAfter = 1
		return false
	}
	return true
}

func (o *outcome) refuseSignature(err error) {
	reason := "signature_mismatch"
	switch {
	case errors.Is(err, signature.ErrMissing):
		reason = "signature_missing"
	case errors.Is(err, signature.ErrMalformed):
		reason = "signature_malformed"
	case errors.Is(err, signature.ErrTooOld):
		reason = "timestamp_too_old"
	case errors.Is(err, signature.ErrTooNew):
		reason = "timestamp_too_new"
	}
	o.refuse(http.StatusUnauthorized, reason, "The signature or its timestamp is not accepted.")
}

func (o *outcome) refuseUnread(err error) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, serve.ErrNoRoom):
		o.refuse(http.StatusServiceUnavailable, "bodies_in_flight", "Too much is being read at once; keep the event and send it again.")
		o.retryAfter = 1
	case errors.As(err, &tooLarge):
		o.refuse(http.StatusRequestEntityTooLarge, "too_large", "The body is larger than this source may send.")
	default:
		o.refuse(http.StatusBadRequest, "body_unread", "The body did not arrive whole.")
	}
}

func isJSON(values []string) bool {
	if len(values) != 1 {
		return false
	}
	if values[0] == "application/json" {
		return true
	}
	kind, parameters, err := mime.ParseMediaType(values[0])
	if err != nil || kind != "application/json" {
		return false
	}
	charset := parameters["charset"]
	return charset == "" || strings.EqualFold(charset, "utf-8")
}

// isPlain reports whether the body is not encoded. RFC 9110 wants identity to be left
// unsaid; senders say it all the same.
func isPlain(encodings []string) bool {
	for _, list := range encodings {
		for encoding := range strings.SplitSeq(list, ",") {
			if encoding = strings.TrimSpace(encoding); encoding != "" && !strings.EqualFold(encoding, "identity") {
				return false
			}
		}
	}
	return true
}
