package importer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"billhook/internal/platform/signature"
)

// HTTPIngest is the webhook service's entrance for producers.
type HTTPIngest struct {
	// Base is the service's address, such as https://webhook.example.com.
	Base   string
	Signer *signature.Signer
	Client *http.Client
	Now    func() time.Time
}

var _ Ingest = (*HTTPIngest)(nil)

const maxAnswer = 1 << 20

// Send posts the items in one signed request.
func (h *HTTPIngest) Send(ctx context.Context, queue string, items []Item) ([]Result, error) {
	body, err := json.Marshal(map[string][]Item{"messages": items})
	if err != nil {
		return nil, fmt.Errorf("%w: the messages cannot be encoded", ErrClosed)
	}
	status, retryAfter, answer, err := h.post(ctx, "/queues/"+url.PathEscape(queue)+"/messages", body)
	if err != nil {
		return nil, err
	}
	var answered struct {
		Result
		Results []Result `json:"results"`
	}
	unread := json.Unmarshal(answer, &answered) // without a problem document the status says it
	switch {
	case status == http.StatusOK:
		if unread != nil || slices.ContainsFunc(answered.Results, func(r Result) bool { return r.Status == 0 }) {
			return nil, fmt.Errorf("%w: it answers something else: is it the webhook service's address?", ErrClosed)
		}
		return answered.Results, nil
	case transient(status):
		answered.RetryAfter, _ = strconv.Atoi(retryAfter) // it may be left out
	default:
		return nil, fmt.Errorf("%w: it answers %d %s", ErrClosed, status, answered.Code)
	}
	answered.Status = status
	return slices.Repeat([]Result{answered.Result}, len(items)), nil
}

func (h *HTTPIngest) post(ctx context.Context, path string, body []byte) (status int, retryAfter string, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Base+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, fmt.Errorf("%w: its address is no URL", ErrClosed)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range h.Signer.SignFor(path, "", body, h.Now()) {
		request.Header.Set(name, value)
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return 0, "", nil, fmt.Errorf("importer: the webhook service: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, "", nil, fmt.Errorf("importer: the webhook service's answer: %w", err)
	}
	return response.StatusCode, response.Header.Get("Retry-After"), answer, nil
}
