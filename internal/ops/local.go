package ops

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// namesThisMachine reports whether the request's Host is localhost or a loopback address. A page
// of another site can reach this machine from a browser here, and its own name may lead here
// (DNS rebinding); the Host is then that name.
func namesThisMachine(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil { // there is no port
		host = strings.TrimSuffix(strings.TrimPrefix(r.Host, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// fromOtherSite reports whether a browser names another site as the origin, of a read too. Where
// a token is required, reads need no such check.
func fromOtherSite(r *http.Request) bool {
	change := *r
	change.Method = http.MethodPost // reads are let through otherwise
	var protection http.CrossOriginProtection
	return protection.Check(&change) != nil
}
