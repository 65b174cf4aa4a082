package delivery

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"billhook/internal/retry"
)

// An answer's body is read only so that its connection can be used again, and no
// longer than that is worth.
const (
	maxDrainBytes = 64 << 10
	maxDrainTime  = 100 * time.Millisecond
)

// send makes one signed request and returns the status of its answer.
func (w *PaymentWebhook) send(ctx context.Context, method string, to *url.URL, body []byte, key string) (status int, err error) {
	exchange, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(exchange, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("delivery: the request could not be made") // a foreign text could hold the URL
	}
	for name, value := range w.signer.Sign("", body, w.now()) {
		request.Header.Set(name, value)
	}
	request.Header.Set("User-Agent", "billhook")
	request.Header.Set("Accept", "application/json")
	if key != "" {
		request.Header.Set("Content-Type", "application/json")
		// In small letters, which mean the same on the wire and not to net/http: where
		// it knows an Idempotency-Key, it sends a request again by itself when a kept
		// connection breaks after sending. That is an attempt that nobody counts, and
		// that does not ask Reconcile first. It still sends again what it had not begun.
		request.Header["idempotency-key"] = []string{key}
	}
	response, err := w.client.Do(request)
	if err != nil {
		return 0, unanswered(ctx, err)
	}
	defer time.AfterFunc(maxDrainTime, cancel).Stop()
	if response.StatusCode >= http.StatusOK { // what follows a switch of protocols ends with no context
		_, _ = io.CopyN(io.Discard, response.Body, maxDrainBytes)
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}

// refusal is what a status that is not success means. Reasons are codes: nothing else
// of an answer is ever repeated.
func refusal(status int) error {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired:
		// Our secret, clock or proxy is set up wrongly, which is no message's fault: as a
		// refusal, one bad rollout would dead-letter all there is.
		return retry.Down(reason("callee_unauthorized", status), nil)
	case status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests:
		return retry.Down(reason("callee_busy", status), nil)
	case status >= 300 && status < 400:
		return retry.Permanent(reason("callee_redirects", status), nil)
	case status >= 400 && status < 500:
		return retry.Permanent(reason("callee_refused", status), nil)
	case status >= 500 && status < 600:
		return retry.Transient(reason("callee_failed", status), nil)
	default:
		return retry.Transient(reason("callee_unclear", status), nil)
	}
}

func reason(what string, status int) string { return what + "_" + strconv.Itoa(status) }

// unanswered is what the absence of an answer means. Of the causes only those are
// repeated whose text is fixed: net/http quotes the URL, and what it could not read
// of an answer.
func unanswered(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("delivery: no answer: %w", ended)
	}
	// A dialler's own timeout also calls itself a deadline; but nothing was sent.
	var at *net.OpError
	if dialing := errors.As(err, &at) && at.Op == "dial"; !dialing && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("delivery: no answer: %w", context.DeadlineExceeded)
	}
	var cause error
	var code syscall.Errno
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &code):
		cause = code
	case errors.As(err, &name):
		cause = errors.New("host not found")
	case errors.As(err, &certificate):
		cause = errors.New("certificate not accepted")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		cause = io.ErrUnexpectedEOF
	}
	return retry.Down("callee_unreachable", cause)
}
