package webhook

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pii"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// mostKept is the largest body whose buffers are kept: larger ones are rare, and would hold memory.
const mostKept = 64 << 10

type buffers struct {
	body      serve.Body
	minimized []byte
	encoded   []byte
	// values has the values of a provider's body. at has them by the numbers of their paths; for a list, those
	// of the current element.
	values, at []pii.Value
	attributes contract.Attributes
	outcome    outcome
	one        [1]event
}

func (s *Service) release(b *buffers) {
	b.body.Release(s.bodies, mostKept)
	b.one[0] = event{} // nothing of the body is kept
	for _, buffer := range []*[]byte{&b.minimized, &b.encoded} {
		if cap(*buffer) > 4*mostKept { // for a body of 1 MiB they are half as large
			*buffer = nil
		}
	}
	if cap(b.values) > mostKept/8 {
		b.values = nil
	}
	s.buffers.Put(b)
}

// receive answers a request. to is the destination of a producer's messages, and nil for a provider.
func (s *Service) receive(w http.ResponseWriter, r *http.Request, from *source, to *destination) {
	b := s.buffers.Get().(*buffers)
	defer s.release(b) // also after a panic, which middleware answers
	b.outcome = outcome{source: from.Name, started: s.config.Now()}
	o := &b.outcome
	messageID, err := s.admit(w, r, from, to, b)
	b.one[0] = event{raw: b.body.Bytes(), given: contract.Given{ID: messageID}}
	events, list := b.one[:], false
	if err == nil && to != nil {
		events, list, err = unpack(b.body.Bytes())
	}
	if o.account != "" {
		scheduled(r, events)
	}
	switch {
	case err != nil:
	case list:
		s.receiveAll(w, r, from, to, o.account, events)
		return
	default:
		if err = s.prepare(r.Context(), from, to, &events[0], b, o); err == nil && !o.Ignored {
			err = s.publish(r.Context(), from, &events[0], o)
		}
	}
	if err != nil {
		o.refuse(err)
	}
	s.answer(w, r, o)
}

// admit checks the headers before it reads the body, and the signature before anything is parsed. Rates come
// last, so that an unknown sender cannot use them up.
func (s *Service) admit(
	w http.ResponseWriter, r *http.Request, from *source, to *destination, b *buffers,
) (messageID string, err error) {
	switch {
	case !isJSON(r.Header["Content-Type"]):
		return "", errType
	case !isPlain(r.Header["Content-Encoding"]):
		return "", errEncoding
	case r.ContentLength > from.MaxBodyBytes:
		return "", tooLarge(from)
	}
	byToken := to != nil && s.config.Accounts.Tokens != nil &&
		len(r.Header["X-Webhook-Signature"]) == 0 && len(r.Header["Authorization"]) == 1
	var claim signature.Claim
	if byToken {
		err = s.identify(r, to, &b.outcome)
	} else {
		claim, err = from.claimed(r, to != nil && slices.ContainsFunc(to.queues, catalog.Queue.Charges))
	}
	if err != nil {
		return "", err
	}
	switch err := b.body.Read(w, r, from.MaxBodyBytes, s.bodies); {
	case errors.Is(err, serve.ErrTooLarge):
		return "", tooLarge(from)
	case errors.Is(err, serve.ErrNoRoom):
		return "", errNoRoom
	case err != nil:
		return "", errUnread
	}
	if b.outcome.bytes = len(b.body.Bytes()); byToken {
		return "", nil
	}
	if err := claim.Verify(b.body.Bytes()); err != nil {
		return "", unsigned.Problem(err)
	}
	return claim.ID, nil
}

// claimed returns the signature in the headers. bound: it must be for this path.
func (from *source) claimed(r *http.Request, bound bool) (signature.Claim, error) {
	claim, err := from.verifier.Headers(r.Header.Values)
	switch {
	case err != nil:
		return claim, unsigned.Problem(err)
	case claim.Destination == "" && bound:
		return claim, errUndestined
	case claim.Destination != "" && !isPath(claim.Destination, r):
		return claim, errDestination
	}
	return claim, nil
}

// tooLarge names the limit, which the sender cannot know otherwise.
func tooLarge(from *source) error {
	large := *errTooLarge
	large.Detail = fmt.Sprintf("%s: %d bytes at most.", strings.TrimSuffix(large.Detail, "."), from.MaxBodyBytes)
	return &large
}

// refusals is the table of the refusals. docs/reference/answers.md prints it.
var refusals serve.Refusals

var (
	errSource = refusals.Add(http.StatusNotFound, "source_unknown", "No source of that name is declared.", 0)
	errQueue  = refusals.Add(http.StatusNotFound, "queue_unknown",
		"No queue of that name takes messages. See the catalog: is it enabled?", 0)
	errTopic = refusals.Add(http.StatusNotFound, "topic_unknown",
		"No topic of that name takes messages. See the catalog: is one of its queues enabled?", 0)
	errType     = refusals.Add(http.StatusUnsupportedMediaType, "content_type", "Send application/json.", 0)
	errTooLarge = refusals.Add(http.StatusRequestEntityTooLarge, "too_large",
		"The body is larger than this source may send.", 0)
	errEncoding = refusals.Add(http.StatusUnsupportedMediaType, "content_encoding",
		"Send the body without a content encoding.", 0)
	errNoRoom = refusals.Add(http.StatusServiceUnavailable, "bodies_in_flight",
		"Too much is being read at once; keep the event and send it again.", 1)
	errUnread = refusals.Add(http.StatusBadRequest, "body_unread", "The body did not arrive whole.", 0)
	// A signature without a path could have been made for another queue.
	errUndestined = refusals.Add(http.StatusUnauthorized, "destination_missing", "Sign the path too, in "+
		"X-Webhook-Destination: what is put on this queue moves money, or the path says what is asked for.", 0)
	errDestination = refusals.Add(http.StatusUnauthorized, "destination_mismatch",
		"It is signed for another path.", 0)

	unsigned = serve.ErrorMapping{
		Known: []serve.KnownError{
			{Of: signature.ErrMissing, As: unaccepted("signature_missing")},
			{Of: signature.ErrMalformed, As: unaccepted("signature_malformed")},
			{Of: signature.ErrTooOld, As: unaccepted("timestamp_too_old")},
			{Of: signature.ErrTooNew, As: unaccepted("timestamp_too_new")},
		},
		Last: unaccepted("signature_mismatch"),
	}
)

func unaccepted(code string) *serve.Problem {
	return refusals.Add(http.StatusUnauthorized, code, "The signature or its timestamp is not accepted.", 0)
}

// isPath reports whether a request was sent to a path, with its query. Both may be escaped differently.
func isPath(destination string, r *http.Request) bool {
	at, err := url.ParseRequestURI(destination)
	return err == nil && at.Host == "" && at.Path == r.URL.Path && at.RawQuery == r.URL.RawQuery
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

// isPlain accepts identity, which senders name although RFC 9110 forbids it.
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
