// Package delivery tells another service what happened, as a signed webhook, and
// says what its answer means for the message. It owns the wire form of the payment
// webhook, its signature and the table from answers to marks. It refuses to retry,
// to follow a redirect, and to repeat anything of an answer but its status.
package delivery

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"billhook/internal/contract"
	"billhook/internal/handler"
	"billhook/internal/pii"
	"billhook/internal/retry"
	"billhook/internal/signature"
)

// Delivered is the result that a record keeps of a webhook that its callee has.
const Delivered = "delivered"

// path of the webhook on the callee; what it knows of one event is at path/<event id>.
const path = "v1/webhooks/payment"

// Config says where the callee is. Client alone is optional.
type Config struct {
	// BaseURL is http or https, and may hold user and password.
	BaseURL string
	// Secret signs, by signature.Generic. To rotate it, let the callee accept both first.
	Secret string
	// Client sends; nil: one of its own. Its redirect policy and cookies are not used.
	Client *http.Client
	Now    func() time.Time
}

// PaymentWebhook posts payment outcomes to one service. It is safe for concurrent use.
type PaymentWebhook struct {
	base   *url.URL
	signer *signature.Signer
	client *http.Client
	own    bool // whether the client's connections are ours to close
	now    func() time.Time
}

// New returns the webhook of a callee. Its errors repeat neither URL nor secret.
func New(config Config) (*PaymentWebhook, error) {
	base, err := url.Parse(config.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("delivery: the base URL must be http or https, with a host, without query or fragment")
	}
	if config.Now == nil {
		return nil, errors.New("delivery: no clock")
	}
	signer, err := signature.NewSigner(signature.Generic, config.Secret)
	if err != nil {
		return nil, err
	}
	w := &PaymentWebhook{base: base, signer: signer, own: config.Client == nil, now: config.Now}
	client := http.Client{Transport: transport()}
	if config.Client != nil {
		client = *config.Client
	}
	// A redirect would carry a signed body, and on some statuses turn the POST into a
	// GET, to somewhere that nobody configured.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.Jar = nil
	w.client = &client
	return w, nil
}

// transport: how long a whole exchange may take is the handler's deadline, so only
// the steps that end in "unreachable" have limits of their own.
func transport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           16,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 32 << 10,
		DisableCompression:     true, // nobody reads the bodies
	}
}

// Close closes idle connections, unless the client is the caller's.
func (w *PaymentWebhook) Close() {
	if w.own {
		w.client.CloseIdleConnections()
	}
}

// Leased is the handler. Its Do posts what contract.Body.Post makes of the event, its Reconcile
// asks whether the callee has it. It does not claim to be safe to repeat: that is the
// callee's promise, to apply one Idempotency-Key once, and needed where its answers
// to GET path/<event id> are 404, 405 or 501 while an earlier POST is still at work.
//
// What an answer to the POST means (reasons in brackets):
//
//	2xx                delivered
//	409                delivered if the callee, asked, has the event; else as other 4xx
//	401, 403, 407      down [callee_unauthorized_401]: our secret or clock is wrong
//	408, 425, 429      down [callee_busy_429]
//	other 4xx          permanent [callee_refused_422]
//	3xx                permanent [callee_redirects_308]
//	5xx                transient [callee_failed_503]
//	any other          transient [callee_unclear_600]
//	none in time       context.DeadlineExceeded
//	no connection      down [callee_unreachable]
//	a connection lost  down [callee_unreachable], whatever the callee did before
//
// The table is retry.HTTPStatus. A Retry-After of a 429 or 503, in seconds or as a
// date, is how long the callee is left alone, a day at most.
//
// Of the answers to Reconcile, 200 is done, and 404, 405 and 501 are not; for the
// rest the same table holds, but nothing in it is permanent.
func (w *PaymentWebhook) Leased() handler.Leased {
	return handler.Leased{Do: w.do, Reconcile: w.reconcile}
}

// encode is the same for every attempt of an event: it takes nothing from the attempt
// and nothing from the clock.
func encode(event handler.Event) ([]byte, error) {
	switch {
	case event.Body.None():
		return nil, retry.Permanent("body_expected", nil)
	case !pii.ID.Valid(event.ID): // it goes into a header and a path
		return nil, retry.Permanent("event_id_invalid", nil)
	}
	body, err := event.Body.Post()
	var invalid *contract.Invalid
	switch {
	case errors.As(err, &invalid):
		path := invalid.Violations[0].Path
		return nil, retry.Permanent(path[strings.LastIndex(path, ".")+1:]+"_missing", nil)
	case err != nil:
		return nil, retry.Permanent("body_not_encodable", nil) // a string that is not UTF-8
	}
	return body, nil
}

func (w *PaymentWebhook) do(ctx context.Context, event handler.Event) (result string, err error) {
	body, err := encode(event)
	if err != nil {
		return "", err
	}
	got, err := w.send(ctx, http.MethodPost, w.base.JoinPath(path), body, event.ID)
	switch {
	case err != nil:
		return "", err
	case got.status >= 200 && got.status < 300:
		return Delivered, nil
	case got.status == http.StatusConflict:
		// To some, "you have said that already"; to others, "this contradicts what I
		// have". The callee promises neither, so it is asked.
		result, done, err := w.reconcile(ctx, event)
		if err != nil || done {
			return result, err
		}
	}
	return "", w.refusal(got)
}

func (w *PaymentWebhook) reconcile(ctx context.Context, event handler.Event) (result string, done bool, err error) {
	if !pii.ID.Valid(event.ID) {
		return "", false, retry.Permanent("event_id_invalid", nil)
	}
	got, err := w.send(ctx, http.MethodGet, w.base.JoinPath(path, event.ID), nil, "")
	if err != nil {
		return "", false, err
	}
	switch got.status {
	case http.StatusOK:
		return Delivered, true, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return "", false, nil
	}
	err = w.refusal(got)
	if err == nil || retry.Decide(err).Class.Terminal() {
		// The question was refused, not the message: what became of it is not known,
		// and no reason to give it up.
		err = retry.Transient("callee_unclear_"+strconv.Itoa(got.status), nil)
	}
	return "", false, err
}
