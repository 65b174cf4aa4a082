package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"billhook/internal/platform/serve"
	"billhook/internal/platform/signature"
)

// HTTPDoor is the webhook service's door for producers.
type HTTPDoor struct {
	// Base is the service's address, such as https://webhook.example.com.
	Base   string
	Signer *signature.Signer
	Client *http.Client
	Now    func() time.Time
}

var _ Door = (*HTTPDoor)(nil)

// sent is an item of a request.
type sent struct {
	Message     jsontext.Value `json:"message"`
	DeliverAt   string         `json:"deliver_at,omitempty"`
	MaxAttempts int            `json:"max_attempts,omitempty"`
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// Send posts the items in one signed request.
func (d *HTTPDoor) Send(ctx context.Context, queue string, items []Item) ([]Result, error) {
	var request struct {
		Messages []json.RawMessage `json:"messages"`
	}
	for _, item := range items {
		one := sent{Message: item.Message, MaxAttempts: item.MaxAttempts}
		if !item.DeliverAt.IsZero() {
			one.DeliverAt = item.DeliverAt.Format(time.RFC3339Nano)
		}
		encoded, err := json.Marshal(one)
		if err != nil {
			return nil, fmt.Errorf("%w: a message cannot be encoded", ErrClosed)
		}
		request.Messages = append(request.Messages, encoded)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%w: the messages cannot be encoded", ErrClosed)
	}
	status, header, answer, err := d.post(ctx, "/queues/"+url.PathEscape(queue)+"/messages", body)
	if err != nil {
		return nil, err
	}
	if whole(status) && len(items) > 1 {
		return d.halves(ctx, queue, items)
	}
	if status != http.StatusOK {
		return refused(status, header, answer, len(items))
	}
	var answered struct {
		Results []json.RawMessage `json:"results"`
	}
	if err := json.Unmarshal(answer, &answered); err != nil {
		return nil, fmt.Errorf("%w: its answer is not the door's: is it the webhook service's address?", ErrClosed)
	}
	results := make([]Result, 0, len(answered.Results))
	for _, one := range answered.Results {
		result := resultOf(one)
		if result.Status == 0 {
			return nil, fmt.Errorf("%w: an answer of it has no status", ErrClosed)
		}
		results = append(results, result)
	}
	return results, nil
}

func (d *HTTPDoor) post(ctx context.Context, path string, body []byte) (status int, header http.Header, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("%w: its address is no URL", ErrClosed)
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range d.Signer.SignFor(path, "", body, d.Now()) {
		request.Header.Set(name, value)
	}
	response, err := d.Client.Do(request)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("importer: the door: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("importer: the door's answer: %w", err)
	}
	return response.StatusCode, response.Header, answer, nil
}

// whole reports whether a request may be refused with this answer for one of its messages.
func whole(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity
}

// halves sends a list that was refused as a whole as two, so that the message at fault is found.
func (d *HTTPDoor) halves(ctx context.Context, queue string, items []Item) ([]Result, error) {
	first, err := d.Send(ctx, queue, items[:len(items)/2])
	if err != nil {
		return nil, err
	}
	second, err := d.Send(ctx, queue, items[len(items)/2:])
	return append(first, second...), err
}

// refused is what an answer other than 200 means for the items of the request.
func refused(status int, header http.Header, answer []byte, items int) ([]Result, error) {
	result := resultOf(answer)
	result.Status = status
	switch {
	case transient(status):
		if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil {
			result.RetryAfter = time.Duration(seconds) * time.Second
		}
	case whole(status):
	default:
		return nil, fmt.Errorf("%w: it answers %d %s", ErrClosed, status, result.Code)
	}
	results := make([]Result, items)
	for i := range results {
		results[i] = result
	}
	return results, nil
}

func resultOf(answer []byte) Result {
	var problem struct {
		serve.Problem
		RetryAfter int `json:"retry_after"`
	}
	_ = json.Unmarshal(answer, &problem) // without a problem document the status says it
	result := Result{Status: problem.Status, Code: problem.Code, Detail: problem.Detail, RetryAfter: time.Duration(problem.RetryAfter) * time.Second}
	for _, v := range problem.Violations {
		result.Fields = append(result.Fields, v.Path+": "+v.Rule)
	}
	return result
}
