package delivery

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/cache"
)

// Endpoints posts to the addresses that third parties have registered, each with limits of its own.
type Endpoints struct {
	of     catalog.Endpoints
	like   catalog.Target
	shared *http.Transport
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	now    func() time.Time
	// Watcher sees what endpoints answer, without which of them; nil: nobody does.
	Watcher Watcher

	mu    sync.Mutex               // while a target is made
	known *cache.Cache[remembered] // by the endpoint's id
}

var _ endpoints.Poster = (*Endpoints)(nil)

type remembered struct {
	address endpoints.Address
	target  *Target
}

// NewEndpoints returns what posts to endpoints. private lets them be at any address and on http, for development.
func NewEndpoints(of catalog.Endpoints, private bool, now func() time.Time) *Endpoints {
	like := of.Target()
	like.Internal = private
	return &Endpoints{
		of: of, like: like, shared: transport(like), now: now, known: cache.New[remembered](of.Remembered, now),
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}
}

// Close closes idle connections.
func (e *Endpoints) Close() { e.shared.CloseIdleConnections() }

// Post implements endpoints.Poster.
func (e *Endpoints) Post(ctx context.Context, to endpoints.Address, id string, body []byte) (status int, err error) {
	t, err := e.target(to)
	if err != nil {
		return 0, err
	}
	answer, err := t.Call(ctx, Request{Method: http.MethodPost, ID: id, Body: body})
	return answer.Status, err
}

// target keeps its limits where the secrets have changed, and not where the address has.
func (e *Endpoints) target(to endpoints.Address) (*Target, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, ok := e.known.Known(to.ID)
	if ok && before.address.URL == to.URL && slices.Equal(before.address.Secrets, to.Secrets) {
		return before.target, nil
	}
	t, err := New(Config{Target: e.like, BaseURL: to.URL, Secret: to.Secrets[0], Also: to.Secrets[1:], Transport: e.shared, Now: e.now})
	if err != nil {
		return nil, err
	}
	t.watcher = e.Watcher
	if ok && before.address.URL == to.URL {
		t.limits = before.target.limits
	}
	e.known.Put(to.ID, remembered{to, t}, cache.Forever)
	return t, nil
}

// Check implements endpoints.Poster. It refuses what a connection, which is checked again, would be refused to now.
func (e *Endpoints) Check(ctx context.Context, address string) error {
	at, err := url.Parse(address)
	switch {
	case err != nil, at.Host == "", at.Hostname() == "":
		return fmt.Errorf("%w: this is no URL with a host", audit.ErrInvalid)
	case at.Scheme != "https" && (at.Scheme != "http" || !e.like.Internal):
		return fmt.Errorf("%w: an endpoint is called by https", audit.ErrInvalid)
	case at.User != nil, at.RawQuery != "", at.ForceQuery, at.Fragment != "":
		// Lists and logs show the URL, and what stands there is often a password.
		return fmt.Errorf("%w: an endpoint's URL has no user, query or fragment; what is sent is signed", audit.ErrInvalid)
	case e.like.Internal:
		return nil
	}
	found := []netip.Addr{}
	if literal, err := netip.ParseAddr(at.Hostname()); err == nil {
		found = append(found, literal)
	} else {
		looking, cancel := context.WithTimeout(ctx, e.like.Timeouts.Connect)
		defer cancel()
		if found, err = e.lookup(looking, at.Hostname()); err != nil || len(found) == 0 {
			return fmt.Errorf("%w: the host was not found", audit.ErrInvalid)
		}
	}
	for _, ip := range found {
		if public("", netip.AddrPortFrom(ip, 443).String(), nil) != nil {
			return fmt.Errorf("%w: the host has an address that is not public", audit.ErrInvalid)
		}
	}
	return nil
}
