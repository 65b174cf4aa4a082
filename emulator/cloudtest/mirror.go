package cloudtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// mirror repeats what happens to topics and subscriptions on Google's Pub/Sub emulator, which moves
// messages and knows no IAM, no updates as the provider makes them, and no long retention.
type mirror struct {
	url     string
	address func(endpoint string) string
}

// Mirror has an emulator (host:port) follow the project's topics and subscriptions from now on,
// with those that are there. address says where a push endpoint is in truth.
func (c *Cloud) Mirror(emulator string, address func(endpoint string) string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirror = &mirror{"http://" + emulator + "/v1/", address}
	for _, kind := range []string{"topics", "subscriptions"} {
		for _, key := range c.keys("pubsub/projects/" + Project + "/" + kind + "/") {
			if err := c.mirror.made(strings.TrimPrefix(key, "pubsub/"), c.held.Resources[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow repeats a call that has succeeded.
func (m *mirror) follow(r call, now Document) error {
	if m == nil {
		return nil
	}
	switch r.method {
	case http.MethodPut:
		return m.made(r.path, now)
	case http.MethodPatch:
		if strings.Contains(r.path, "/subscriptions/") {
			return m.call(http.MethodPost, r.path+":modifyPushConfig", Document{"pushConfig": m.pushConfig(now)})
		}
	case http.MethodDelete:
		return m.call(http.MethodDelete, r.path, nil)
	}
	return nil
}

// made makes a topic or a subscription. On the emulator a dead-letter policy on an ordered
// subscription ends its pushes, and a retry policy on another one loses messages: both are left out.
func (m *mirror) made(name string, of Document) error {
	body := Document{}
	if strings.Contains(name, "/subscriptions/") {
		for _, field := range []string{"topic", "ackDeadlineSeconds", "enableMessageOrdering", "filter"} {
			if value, has := of[field]; has {
				body[field] = value
			}
		}
		body["pushConfig"] = m.pushConfig(of)
	}
	return m.call(http.MethodPut, name, body)
}

func (m *mirror) pushConfig(of Document) Document {
	endpoint := text(of, "pushConfig", "pushEndpoint")
	if endpoint == "" {
		return Document{}
	}
	return Document{"pushEndpoint": m.address(endpoint)}
}

func (m *mirror) call(method, path string, body Document) error {
	written, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, m.url+path, bytes.NewReader(written)) //nolint:noctx // it belongs to no caller
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		said, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return fmt.Errorf("the emulator answers %s %s with %d: %s %w", method, path, response.StatusCode, said, err)
	}
	return nil
}
