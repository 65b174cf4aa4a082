package delivery

import (
	"bytes"
	"cmp"
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

// An answer's body is read only so that its connection can be used again.
const (
	maxDrainBytes = 64 << 10
	maxDrainTime  = 100 * time.Millisecond
)

// reply is all that is looked at of an answer.
type reply struct {
	status int
	// refusal is what a status that is not success means.
	refusal error
}

// call is one request to a target.
type call struct {
	method string
	to     *url.URL
	body   []byte
	// id is the event's.
	id string
}

// exchange makes a call, where the target's limits let it, and returns what its answer says.
func (t *Target) exchange(ctx context.Context, c call) (reply, error) {
	if err := t.limits.enter(ctx, t.now()); err != nil {
		return reply{}, err
	}
	got, err := t.send(ctx, c)
	t.limits.leave(t.now(), cmp.Or(err, got.refusal))
	return got, err
}

// send makes one signed request and returns what its answer says.
func (t *Target) send(ctx context.Context, c call) (reply, error) {
	exchange, cancel := context.WithTimeout(ctx, t.total)
	defer cancel()
	request, err := http.NewRequestWithContext(exchange, c.method, c.to.String(), bytes.NewReader(c.body))
	if err != nil {
		return reply{}, errors.New("delivery: the request could not be made") // a foreign text could hold the URL
	}
	for name, value := range t.signer.Sign(c.id, c.body, t.now()) {
		request.Header.Set(name, value)
	}
	request.Header.Set("User-Agent", "billhook")
	request.Header.Set("Accept", "application/json")
	if c.method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
		// In small letters, which mean the same on the wire. With an Idempotency-Key that it
		// knows, net/http repeats by itself a request whose kept connection breaks after
		// sending: an attempt that is not counted and does not ask Reconcile first.
		request.Header["idempotency-key"] = []string{c.id}
	}
	response, err := t.client.Do(request)
	if err != nil {
		return reply{}, unanswered(exchange, err)
	}
	defer time.AfterFunc(maxDrainTime, cancel).Stop()
	if response.StatusCode >= http.StatusOK { // what follows a switch of protocols ends with no context
		_, _ = io.CopyN(io.Discard, response.Body, maxDrainBytes)
	}
	_ = response.Body.Close()
	refusal := retry.HTTPStatus(response.StatusCode)
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		refusal = retry.After(retryAfter(response.Header.Get("Retry-After"), t.now()), refusal)
	}
	return reply{response.StatusCode, refusal}, nil
}

// retryAfter reads the header's value, seconds or a date of HTTP; 0 for anything else
// and for what has passed.
func retryAfter(value string, now time.Time) time.Duration {
	// Out of range it returns the greatest number there is.
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(retry.MaxAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), retry.MaxAfter)
}

// unanswered is what the absence of an answer means. Only causes of a fixed text are repeated:
// net/http quotes the URL, and parts of an answer that it could not read.
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
	case errors.Is(err, errNotPublic):
		cause = errNotPublic
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
