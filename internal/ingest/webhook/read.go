package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/catalog"
	"billhook/internal/pii"
)

// api reads members that a provider's webhooks do not have.
type api struct {
	client        http.Client
	authorization string
	timeout       time.Duration
}

// mostRead bounds an answer of a provider's API.
const mostRead = 256 << 10

var errNotRead = refusals.Add(http.StatusServiceUnavailable, "provider_not_read",
	"The provider's API did not answer; keep the event and send it again.", 5)

func newAPI(of catalog.API, key string, client http.Client, timeout time.Duration) *api {
	// the key is for this address only
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &api{client, strings.Replace(of.Authorization, "{key}", key, 1), timeout}
}

// extend returns the body with the API's answer in it, or the body alone if the API has no such object. cause
// is why there is no answer, for the log only.
func (a *api) extend(ctx context.Context, body []byte, address string) (extended []byte, cause string) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, "api_address"
	}
	request.Header.Set("Authorization", a.authorization)
	response, err := a.client.Do(request)
	if err != nil {
		return nil, "api_unavailable"
	}
	defer func() { _ = response.Body.Close() }() // it was read, or is not needed
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return body, ""
	default:
		return nil, fmt.Sprintf("api_%d", response.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, mostRead+1))
	switch {
	case err != nil:
		return nil, "api_unavailable"
	case len(answer) > mostRead:
		return nil, "api_too_large"
	case !jsontext.Value(answer).IsValid():
		return nil, "api_malformed"
	}
	return Beside(body, answer), ""
}

// Beside inserts an answer of a provider's API into the body of its webhook, a non-empty object.
func Beside(body, answer []byte) []byte {
	before := bytes.IndexByte(body, '{') + 1
	return slices.Concat(body[:before], []byte(`"read":`), answer, []byte(","), body[before:])
}

// readMore minimizes the event again, with the answer of its provider's API.
func (p *provider) readMore(ctx context.Context, f *filling, event *event, o *outcome) error {
	at := event.mapping.Read
	for _, found := range catalog.Placeholder.FindAllStringSubmatch(at, -1) {
		id := f.text(found[1])
		if len(id) == 0 {
			return nil // without it nothing more is read
		}
		at = strings.Replace(at, found[0], url.PathEscape(string(id)), 1)
	}
	if at == "" {
		return nil
	}
	if event.read = p.API.URL + at; p.api == nil {
		return nil
	}
	body, cause := p.api.extend(ctx, event.raw, event.read)
	if cause != "" {
		o.cause = cause
		return errNotRead
	}
	document, err := pii.Parse(body, unread)
	if err != nil {
		return err
	}
	o.dropped, err = f.minimize(event.mapping.projection, document)
	return err
}
