package delivery

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"

	"billhook/catalog"
)

// Transport is that of a target, with other certificates.
func Transport(t catalog.Target, trust *tls.Config) *http.Transport {
	own := transport(t)
	own.TLSClientConfig = trust
	return own
}

// Resolve replaces the lookup of hosts.
func (e *Endpoints) Resolve(lookup func(ctx context.Context, host string) ([]netip.Addr, error)) {
	e.lookup = func(ctx context.Context, _, host string) ([]netip.Addr, error) { return lookup(ctx, host) }
}

// Public reports whether an address may be dialled for a target that is not internal.
func Public(address netip.Addr) bool {
	return public("tcp6", netip.AddrPortFrom(address.Unmap(), 0).String(), nil) == nil
}
