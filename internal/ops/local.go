package ops

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// askedHere reports whether a request names this machine as a program on it does. A page
// of another site reaches this machine's ports from the browser that shows it, and once
// its own name leads here it is even taken for the same site (DNS rebinding); but that
// name is then the request's Host, and no name of this machine.
func askedHere(r *http.Request) bool {
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

// askedByOtherSite reports whether a browser says that another site has it ask: for a
// read, too, which is refused to no other site where a token is asked for.
func askedByOtherSite(r *http.Request) bool {
	change := *r
	change.Method = http.MethodPost // reads are let through otherwise
	var protection http.CrossOriginProtection
	return protection.Check(&change) != nil
}
