// Package delivery sends signed requests to other services, and decides what their answers mean. It owns the
// wire form of a posted event and the limits of a target. It does not retry or follow redirects, and of an
// answer it repeats only the status and the safe members of a problem document.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/cache"
	"billhook/internal/platform/signature"
	"billhook/internal/retry"
)

// Delivered is the result of an event that its target has.
const Delivered = "delivered"

// Config describes a target.
type Config struct {
	Target    catalog.Target
	BaseURL   string            // http or https; it may hold user and password
	Secrets   []string          // all of them sign; only the scheme standard takes more than one
	Transport http.RoundTripper // nil: one of its own
	Now       func() time.Time
}

// Target makes requests to one service. It is safe for concurrent use.
type Target struct {
	config  Config
	base    *url.URL
	signer  *signature.Signer
	client  *http.Client
	limits  *limits
	watcher Watcher // optional
}

// Watcher sees each answer of a target: status (0: none), reason of a failure, and time. It must not block.
type Watcher func(target string, status int, code string, took time.Duration)

// Watch sets the watcher of all targets. It is called before the first request.
func (ts Targets) Watch(by Watcher) {
	for _, t := range ts {
		t.watcher = by
	}
}

// Breakers returns the breakers that are not closed, sorted by their targets' names.
func (ts Targets) Breakers() (all []rates.Breaker) {
	for _, name := range slices.Sorted(maps.Keys(ts)) {
		l := ts[name].limits
		if l == nil || l.breaker.State() == gobreaker.StateClosed { // a target that is never called has no limits
			continue
		}
		state := strings.ReplaceAll(l.breaker.State().String(), "-", "_")
		all = append(all, rates.Breaker{Target: name, State: state, Since: time.Unix(0, l.since.Load()).UTC()})
	}
	return all
}

// New returns a target. Its errors repeat neither URL nor secret.
func New(config Config) (*Target, error) {
	base, err := url.Parse(config.BaseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" ||
		base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("delivery: the base URL must be http(s), with a host, without query or fragment")
	}
	scheme := signature.Own[string(config.Target.Scheme)]
	signer, err := signature.NewSigner(scheme, config.Secrets[0], config.Secrets[1:]...)
	if err != nil {
		return nil, err
	}
	if config.Transport == nil {
		config.Transport = transport(config.Target)
	}
	// A redirect would carry a signed body to an address that is not configured, for some statuses as a GET.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: config.Transport, CheckRedirect: stay}
	return &Target{config: config, base: base, signer: signer, client: client, limits: newLimits(config)}, nil
}

// Targets are the targets that a program posts to, by name.
type Targets map[string]*Target

// Open returns the targets of the pool's enabled queues. place returns a target's URL and its secrets.
func Open(
	c *catalog.Catalog, pool string, place func(catalog.Target) (url string, secrets []string),
	now func() time.Time,
) (Targets, error) {
	targets := Targets{}
	var mistakes []error
	for _, declared := range c.TargetsOf(pool) {
		at, secrets := place(declared)
		variables := declared.URLVariable + " and " + declared.SecretVariable
		if at == "" || len(secrets) == 0 {
			mistakes = append(mistakes, fmt.Errorf("%s: required to post to %s", variables, declared.Name))
			continue
		}
		t, err := New(Config{Target: declared, BaseURL: at, Secrets: secrets[:1], Now: now})
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: %w", variables, err))
			continue
		}
		targets[declared.Name] = t
	}
	return targets, errors.Join(mistakes...)
}

// Register registers the posts of the pool's queues. The registry's check reports one without a target.
func (ts Targets) Register(r *handler.Registry, c *catalog.Catalog, pool string, timer handler.Timer) {
	for _, q := range c.Queues {
		for _, h := range q.Handlers {
			t, ok := ts[h.Post.Target]
			_, twice := r.Lookup(h.Name)
			switch {
			case !ok || !q.Enabled || twice || (pool != "" && q.Pool != pool):
			case h.Post.Form != catalog.Single:
				r.Leased(h.Name, t.Batch(h.Post, c.Queue, timer))
			default:
				r.Leased(h.Name, t.Post(h.Post))
			}
		}
	}
}

// Close closes the idle connections of all targets.
func (ts Targets) Close() {
	for _, t := range ts {
		if t.client != nil {
			t.client.CloseIdleConnections()
		}
	}
}

// Post returns the handler of a catalog entry. Its Do posts the event; its Reconcile reads whether the target
// has it. An entry without a path for Reconcile declares that the target applies an Idempotency-Key once.
//
// retry.HTTPStatus gives the meaning of an answer to the POST, except that a 409 is delivered if Reconcile
// finds the event. A timeout is context.DeadlineExceeded, a failed connection is down [callee_unreachable],
// and a limit of the target is busy [callee_crowded, callee_rate, callee_resting]. If Reconcile is answered
// with 200 the event is done, with 404, 405 or 501 it is not; no other answer is permanent.
func (t *Target) Post(post catalog.Post) handler.Leased {
	p := poster{Target: t, of: post}
	if post.Reconcile == "" {
		return handler.Leased{Do: p.do, Plan: p.plan, SafeToRepeat: true}
	}
	return handler.Leased{Do: p.do, Plan: p.plan, Reconcile: p.reconcile}
}

type poster struct {
	*Target
	of catalog.Post
}

func encode(event handler.Event) ([]byte, error) {
	if event.Body.None() {
		return nil, retry.Permanent("body_expected", nil)
	}
	body, err := event.Body.Post(event.CalleeKey(), event.Tenant)
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

func (p poster) plan(_ context.Context, event handler.Event) (handler.Plan, error) {
	l, err := p.line(event)
	if err != nil {
		return handler.Plan{}, err
	}
	call := handler.Call{Target: p.of.Target, ID: l.id, Method: http.MethodPost, Path: p.of.Path, Body: l.text}
	return handler.Plan{Calls: []handler.Call{call}}, nil
}

func (p poster) do(ctx context.Context, event handler.Event) (handler.Effect, error) {
	l, err := p.line(event)
	if err != nil {
		return handler.Effect{}, err
	}
	answer, failure := p.Call(ctx, Request{Method: http.MethodPost, Path: p.of.Path, ID: l.id, Body: l.text})
	switch {
	case failure == nil:
		return handler.Effect{Result: Delivered}, nil
	case answer.Status == http.StatusConflict && p.of.Reconcile != "":
		// To some targets 409 means "I have it", to others "it contradicts what I have".
		if known, err := p.reconcile(ctx, event); err != nil || known.Done {
			return known.Effect, err
		}
	}
	return handler.Effect{}, failure
}

var unknown = []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}

func (p poster) reconcile(ctx context.Context, event handler.Event) (known handler.Reconciled, err error) {
	key := event.CalleeKey()
	path := strings.Replace(p.of.Reconcile, "{id}", key, 1)
	answer, err := p.Call(ctx, Request{Method: http.MethodGet, Path: path, ID: key, Unknown: unknown})
	switch {
	case answer.Status == 0:
		return known, err
	case answer.Status == http.StatusOK:
		return handler.Reconciled{Done: true, Effect: handler.Effect{Result: Delivered}}, nil
	case slices.Contains(unknown, answer.Status):
		return known, nil
	}
	if err == nil || retry.Decide(err).Class.Terminal() {
		// Reconcile was refused, not the message: the outcome of the message is unknown.
		return known, retry.Transient("callee_unclear_"+strconv.Itoa(answer.Status), nil)
	}
	return known, err
}

// Endpoints posts to the addresses that third parties have registered, each with limits of its own.
type Endpoints struct {
	like   Config // the configuration of every endpoint, without URL and secrets
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	// Watcher sees the answers of all endpoints under one name; optional.
	Watcher Watcher

	mu    sync.Mutex            // held while a target is made
	known *cache.Cache[*Target] // by the endpoint's id
}

var _ endpoints.Poster = (*Endpoints)(nil)

// NewEndpoints returns an Endpoints. private allows any address and http, for development.
func NewEndpoints(of catalog.Endpoints, private bool, now func() time.Time) *Endpoints {
	like := of.Target()
	like.Internal = private
	return &Endpoints{
		like:  Config{Target: like, Transport: transport(like), Now: now},
		known: cache.New[*Target](of.Remembered, now), lookup: net.DefaultResolver.LookupNetIP,
	}
}

// Close closes idle connections.
func (e *Endpoints) Close() { (&http.Client{Transport: e.like.Transport}).CloseIdleConnections() }

// Post implements endpoints.Poster.
func (e *Endpoints) Post(ctx context.Context, to endpoints.Address, id string, body []byte) (int, error) {
	t, err := e.target(to)
	if err != nil {
		return 0, err
	}
	answer, err := t.Call(ctx, Request{Method: http.MethodPost, ID: id, Body: body})
	return answer.Status, err
}

// target returns an endpoint's target. Its limits stay the same until its URL changes, even with new secrets.
func (e *Endpoints) target(to endpoints.Address) (*Target, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, ok := e.known.Known(to.ID)
	same := ok && before.config.BaseURL == to.URL
	if same && slices.Equal(before.config.Secrets, to.Secrets) {
		return before, nil
	}
	config := e.like
	config.BaseURL, config.Secrets = to.URL, to.Secrets
	t, err := New(config)
	if err != nil {
		return nil, err
	}
	if t.watcher = e.Watcher; same {
		t.limits = before.limits
	}
	e.known.Put(to.ID, t, cache.Forever)
	return t, nil
}

// Check implements endpoints.Poster. It refuses an address to which Post would not connect now.
func (e *Endpoints) Check(ctx context.Context, address string) error {
	at, err := url.Parse(address)
	switch {
	case err != nil, at.Host == "", at.Hostname() == "":
		return fmt.Errorf("%w: this is no URL with a host", audit.ErrInvalid)
	case at.Scheme != "https" && (at.Scheme != "http" || !e.like.Target.Internal):
		return fmt.Errorf("%w: an endpoint is called by https", audit.ErrInvalid)
	case at.User != nil, at.RawQuery != "", at.ForceQuery, at.Fragment != "":
		// Lists and logs show the URL, and these parts often hold a password.
		return fmt.Errorf("%w: an endpoint's URL has no user, query or fragment", audit.ErrInvalid)
	case e.like.Target.Internal:
		return nil
	}
	found := []netip.Addr{}
	if literal, err := netip.ParseAddr(at.Hostname()); err == nil {
		found = append(found, literal)
	} else {
		looking, cancel := context.WithTimeout(ctx, e.like.Target.Timeouts.Connect)
		defer cancel()
		if found, err = e.lookup(looking, "ip", at.Hostname()); err != nil || len(found) == 0 {
			return fmt.Errorf("%w: the host was not found", audit.ErrInvalid)
		}
	}
	for _, ip := range found {
		if internet.SafeAddr(ip.Unmap()) != nil {
			return fmt.Errorf("%w: the host has an address that is not public", audit.ErrInvalid)
		}
	}
	return nil
}
