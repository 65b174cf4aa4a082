package webhook

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"billhook/internal/contract"
	"billhook/internal/serve"
	"billhook/internal/signature"
)

// DefaultBodyBudget is a quarter of the memory that Terraform gives an instance. A body
// is there four times at the most: as it came, minimized, encoded and published; the
// last three are for senders who know a secret.
const DefaultBodyBudget = 128 << 20

const (
	// leastBody is the first buffer of a body: most webhooks fit.
	leastBody = 4 << 10
	// mostKept is the largest buffer that is kept for the next request. What is larger is
	// rare, and a few of them would hold their memory for as long as the process lives.
	mostKept = 64 << 10
)

// buffers are what one request reads and writes into.
type buffers struct {
	body       body
	minimized  []byte
	encoded    []byte
	attributes contract.Attributes
	outcome    outcome
}

// body is what was read of a request, in memory that was claimed before it was made.
type body struct {
	bytes   []byte
	claimed int64
}

// Bytes is what was read.
func (b *body) Bytes() []byte { return b.bytes }

// errNoRoom: the bodies in flight hold as much as they may.
var errNoRoom = errors.New("webhook: no room for another body")

// read reads a body of at most limit bytes to its end. What it claims grows with what has arrived: who announces a megabyte and sends
// none holds none. The error is errNoRoom, an *http.MaxBytesError or the sender's.
func (b *body) read(w http.ResponseWriter, r *http.Request, limit int64, budget *serve.Budget) error {
	b.bytes = b.bytes[:0]
	if !b.claim(budget, int64(cap(b.bytes))) {
		return errNoRoom
	}
	most := limit
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	limited := http.MaxBytesReader(w, r.Body, limit)
	for {
		if len(b.bytes) == cap(b.bytes) && !b.grow(most, budget) {
			return errNoRoom
		}
		n, err := limited.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// grow doubles the buffer, but not beyond the most that can come and one byte, in which
// the end is seen. While it copies, both buffers are claimed.
func (b *body) grow(most int64, budget *serve.Budget) bool {
	old := int64(cap(b.bytes))
	size := 2 * old
	if most >= old {
		size = min(size, most+1)
	}
	size = max(size, leastBody)
	if !b.claim(budget, size) {
		return false
	}
	grown := make([]byte, len(b.bytes), size)
	copy(grown, b.bytes)
	b.bytes = grown
	budget.Release(old)
	b.claimed -= old
	return true
}

func (b *body) claim(budget *serve.Budget, bytes int64) bool {
	if !budget.Claim(bytes) {
		return false
	}
	b.claimed += bytes
	return true
}

// release gives back what the request has claimed, and the buffers that are no larger
// than what is kept.
func (s *Service) release(b *buffers) {
	s.bodies.Release(b.body.claimed)
	b.body.claimed = 0
	for _, buffer := range []*[]byte{&b.body.bytes, &b.minimized, &b.encoded} {
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
	if err := b.body.read(w, r, from.MaxBodyBytes, s.bodies); err != nil {
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
	case errors.Is(err, errNoRoom):
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
