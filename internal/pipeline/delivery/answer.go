package delivery

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"billhook/internal/pii"
	"billhook/internal/retry"
)

// The rest of an answer is read only so that its connection can be used again.
const (
	maxDrainBytes = 64 << 10
	maxDrainTime  = 100 * time.Millisecond
)

// Request is one request to a target.
type Request struct {
	Method string
	Path   string // below the base URL, without a query; empty: the base URL itself
	// ID is the event's key at the target. It is signed, and is the Idempotency-Key of all methods but GET.
	ID          string
	ContentType string // of the body; empty: application/json
	Body        []byte
	MaxAnswer   int64 // the longest body, in bytes, that the answer may have; 0 leaves it unread
	Unknown     []int // the statuses that mean "no such event", and are no failure
}

// Answer is the response of a target.
type Answer struct {
	Status int // 0: there was no answer
	// Body is the target's text, up to Request.MaxAnswer: check its shape, and never repeat it.
	Body []byte
}

// Call makes one signed request within the target's limits. Its error has the meaning that Post describes,
// and those texts of a problem document that people may read; see retry.Says. After a 2xx, a body longer than
// Request.MaxAnswer is transient [callee_answer_too_long], and an incomplete body counts as no answer.
func (t *Target) Call(ctx context.Context, request Request) (Answer, error) {
	if !pii.ID.Valid(request.ID) { // it goes into headers
		return Answer{}, retry.Permanent("key_invalid", nil)
	}
	return t.within(ctx, func() (Answer, error) {
		begun := t.config.Now()
		answer, err := t.send(ctx, request)
		if t.watcher != nil && !errors.Is(err, context.Canceled) {
			code := ""
			if err != nil {
				code = retry.Decide(err).Reason
			}
			t.watcher(t.config.Target.Name, answer.Status, code, t.config.Now().Sub(begun))
		}
		return answer, err
	})
}

func (t *Target) send(ctx context.Context, r Request) (Answer, error) {
	exchange, cancel := context.WithTimeout(ctx, t.config.Target.Timeouts.Total)
	defer cancel()
	to := t.base
	if r.Path != "" {
		to = t.base.JoinPath(r.Path)
	}
	request, err := http.NewRequestWithContext(exchange, r.Method, to.String(), bytes.NewReader(r.Body))
	if err != nil {
		return Answer{}, errors.New("delivery: the request could not be made") // err could hold the URL
	}
	for name, value := range t.signer.Sign(r.ID, r.Body, t.config.Now()) {
		request.Header.Set(name, value)
	}
	request.Header.Set("User-Agent", "billhook")
	request.Header.Set("Accept", "application/json, application/problem+json")
	if r.Method != http.MethodGet {
		request.Header.Set("Content-Type", cmp.Or(r.ContentType, "application/json"))
		// In lower case: on seeing Idempotency-Key, net/http repeats a request by itself.
		request.Header["idempotency-key"] = []string{r.ID}
	}
	response, err := t.client.Do(request)
	if err != nil {
		return Answer{}, unanswered(exchange, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, nothing := Answer{Status: response.StatusCode}, slices.Contains(r.Unknown, response.StatusCode)
	var failure error
	if !nothing {
		failure = t.meaning(response)
	}
	document, problematic := []byte(nil), isProblem(response.Header)
	switch {
	case answer.Status < http.StatusOK: // a read after a switch of protocols would ignore the context
		return answer, failure
	case r.MaxAnswer > 0 && !nothing:
		body, err := read(response, r.MaxAnswer)
		switch {
		case err == nil:
			answer.Body, document = body, body
		case failure != nil:
		case errors.As(err, new(*http.MaxBytesError)):
			return answer, retry.Transient("callee_answer_too_long", nil)
		default:
			return Answer{}, unanswered(exchange, err)
		}
	default:
		defer time.AfterFunc(maxDrainTime, cancel).Stop()
		if problematic {
			document, _ = io.ReadAll(io.LimitReader(response.Body, maxProblem)) // a cut document is no JSON
		}
		_, _ = io.CopyN(io.Discard, response.Body, maxDrainBytes)
	}
	if problematic {
		failure = retry.Says(problem(document), failure)
	}
	return answer, failure
}

// meaning returns what the answer's status means, with the wait that its Retry-After header requests.
func (t *Target) meaning(response *http.Response) error {
	failure := retry.HTTPStatus(response.StatusCode)
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return retry.After(retryAfter(response.Header.Get("Retry-After"), t.config.Now()), failure)
	}
	return failure
}

func read(response *http.Response, most int64) ([]byte, error) {
	if response.ContentLength > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	return io.ReadAll(http.MaxBytesReader(nil, response.Body, most))
}

// retryAfter reads the header's value, seconds or an HTTP date; 0 for anything else and for a past date.
func retryAfter(value string, now time.Time) time.Duration {
	// For a number that is out of range, ParseUint returns the largest one.
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(retry.MaxAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), retry.MaxAfter)
}

// unanswered returns the error for a missing answer, with fixed texts only, because net/http quotes the URL.
func unanswered(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("delivery: no answer: %w", ended)
	}
	// A dialler's own timeout is also a DeadlineExceeded, but nothing was sent.
	var at *net.OpError
	if dialing := errors.As(err, &at) && at.Op == "dial"; !dialing && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("delivery: no answer: %w", context.DeadlineExceeded)
	}
	var cause error
	var code syscall.Errno
	switch {
	case errors.Is(err, errNotPublic):
		cause = errNotPublic
	case errors.As(err, &code):
		cause = code
	case errors.As(err, new(*net.DNSError)):
		cause = errors.New("host not found")
	case errors.As(err, new(*tls.CertificateVerificationError)):
		cause = errors.New("certificate not accepted")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		cause = io.ErrUnexpectedEOF
	}
	return retry.Down("callee_unreachable", cause)
}

const (
	// maxProblem is how much of a problem document is read, in bytes.
	maxProblem = 8 << 10
	// maxSaid bounds each text that is kept of a problem document, in bytes.
	maxSaid = 200
)

func isProblem(header http.Header) bool {
	mediaType, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && mediaType == "application/problem+json"
}

// problem returns what people may read of a problem document: type, code and title, without personal data.
func problem(document []byte) string {
	members := map[string]any{}
	if json.Unmarshal(document, &members) != nil {
		return ""
	}
	var said []string
	for _, name := range []string{"type", "code", "title"} {
		if text, _ := members[name].(string); text != "" {
			said = append(said, name+" "+safe(text))
		}
	}
	return strings.Join(said, ", ")
}

func safe(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return "left out: it does not print"
	}
	if found, is := pii.Detect(pii.UID, text); is {
		return "left out: " + found
	}
	if len(text) <= maxSaid {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q...", strings.ToValidUTF8(text[:maxSaid], ""))
}
