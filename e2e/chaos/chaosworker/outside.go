package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"billhook/internal/contract"
	"billhook/internal/handler"
	"billhook/internal/retry"
)

// outside is the client of the harness: of the outside service and of the broker.
type outside struct {
	base   string
	client *http.Client
}

// Publish is confirmed by the status 200 alone.
func (o *outside) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.base+"/topics/"+topic, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	status, err := o.send(request)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("publish: answered %d", status)
	}
	return m.Attributes[contract.AttrEventID], err
}

func (o *outside) apply(ctx context.Context, event handler.Event) error {
	_, err := o.effect(ctx, http.MethodPost, event)
	return err
}

// applied asks the service for the outcome of an earlier attempt.
func (o *outside) applied(ctx context.Context, event handler.Event) (result string, done bool, err error) {
	found, err := o.effect(ctx, http.MethodGet, event)
	return "applied", found, err
}

// effect calls the service about the event's effect. found is false where there is none.
func (o *outside) effect(ctx context.Context, method string, event handler.Event) (found bool, err error) {
	request, err := http.NewRequestWithContext(ctx, method, o.base+"/effects/"+event.Queue+"/"+event.ID, http.NoBody)
	if err != nil {
		return false, err
	}
	request.Header.Set("Idempotency-Key", event.ID)
	request.Header.Set("Attempt", strconv.Itoa(event.Attempt))
	query := request.URL.Query()
	query.Set("key", event.OrderingKey)
	query.Set("cycle", strconv.FormatInt(cycle(event), 10))
	request.URL.RawQuery = query.Encode()
	status, err := o.send(request)
	switch {
	case err != nil:
		return false, retry.Down("outside_unknown", err)
	case status == http.StatusNotFound && method == http.MethodGet:
		return false, nil
	case status != http.StatusOK:
		return false, retry.Down("outside_unavailable", nil)
	}
	return true, nil
}

func (o *outside) send(request *http.Request) (int, error) {
	response, err := o.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
