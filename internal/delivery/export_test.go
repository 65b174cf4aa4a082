package delivery

import (
	"crypto/tls"
	"net/http"

	"billhook/catalog"
)

// Transport is that of a target, with other certificates.
func Transport(t catalog.Target, trust *tls.Config) *http.Transport {
	own := transport(t)
	own.TLSClientConfig = trust
	return own
}
