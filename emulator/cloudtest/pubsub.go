package cloudtest

import (
	"net/http"
	"strings"
)

// pubsub answers for Pub/Sub's topics and subscriptions. It keeps no messages: it counts, for each subscription without an
// endpoint, those that wait.
func (c *Cloud) pubsub(r call) (any, error) {
	kind := ""
	if parts := strings.Split(r.path, "/"); len(parts) > 2 {
		kind = parts[2]
	}
	switch {
	case r.method == http.MethodGet && strings.HasSuffix(r.path, "/subscriptions") && kind == "topics":
		names := []any{}
		for _, key := range c.keys("pubsub/projects/" + Project + "/subscriptions/") {
			if text(c.held.Resources[key], "topic") == strings.TrimSuffix(r.path, "/subscriptions") {
				names = append(names, strings.TrimPrefix(key, "pubsub/"))
			}
		}
		return Document{"subscriptions": names}, nil
	case r.method == http.MethodPut:
		return c.putPubsub(r, kind)
	case r.method == http.MethodPatch:
		changes, _ := r.body[strings.TrimSuffix(kind, "s")].(Document)
		r.body = changes
		if err := c.allowed(r, kind, false); err != nil {
			return nil, err
		}
		return c.change(r)
	case r.method == http.MethodDelete && kind == "topics":
		for _, key := range c.keys("pubsub/projects/" + Project + "/subscriptions/") {
			if subscription := c.held.Resources[key]; text(subscription, "topic") == r.path {
				subscription["topic"] = "_deleted-topic_"
			}
		}
	case r.method == http.MethodDelete:
		if n := c.held.Waiting[r.last()]; n > 0 {
			c.say("LOST %d messages of %s", n, r.last())
		}
		delete(c.held.Waiting, r.last())
	}
	return c.plain(r)
}

func (c *Cloud) putPubsub(r call, kind string) (any, error) {
	if err := c.allowed(r, kind, true); err != nil {
		return nil, err
	}
	id := r.last()
	if len(id) < 3 || len(id) > 255 || strings.HasPrefix(id, "goog") {
		return nil, refuse(http.StatusBadRequest, "Invalid resource name given (name=%s).", r.path)
	}
	r.path = strings.TrimSuffix(r.path, "/"+id)
	made, err := c.create(r, id)
	if err != nil {
		return nil, err
	}
	made["state"] = "ACTIVE"
	if kind == "subscriptions" && made["expirationPolicy"] == nil {
		made["expirationPolicy"] = Document{"ttl": "2678400s"}
	}
	return made, nil
}

func (c *Cloud) allowed(r call, kind string, isNew bool) error {
	if kind != "subscriptions" {
		return nil
	}
	if topic := text(r.body, "topic"); isNew && c.held.Resources["pubsub/"+topic] == nil {
		return refuse(http.StatusNotFound, "Resource not found (resource=%s).", topic[strings.LastIndex(topic, "/")+1:])
	}
	if deadLetters := text(r.body, "deadLetterPolicy", "deadLetterTopic"); deadLetters != "" && c.held.Resources["pubsub/"+deadLetters] == nil {
		return refuse(http.StatusNotFound, "Resource not found (resource=%s).", deadLetters[strings.LastIndex(deadLetters, "/")+1:])
	}
	if email := text(r.body, "pushConfig", "oidcToken", "serviceAccountEmail"); email != "" && !c.exists(email) {
		return refuse(http.StatusNotFound, "Service account %s does not exist", email)
	}
	if before := c.held.Resources[r.key()]; before != nil && strings.Contains(","+r.ask("updateMask")+",", ",filter,") {
		return refuse(http.StatusBadRequest, "The filter of a subscription cannot be changed")
	}
	return nil
}

// Publish publishes one message on a topic, by its short name. A subscription that pushes is taken
// to deliver at once. A message to a topic without a subscription is lost.
func (c *Cloud) Publish(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	readers := 0
	for _, key := range c.keys("pubsub/projects/" + Project + "/subscriptions/") {
		subscription := c.held.Resources[key]
		if text(subscription, "topic") != "projects/"+Project+"/topics/"+topic {
			continue
		}
		readers++
		if text(subscription, "pushConfig", "pushEndpoint") == "" {
			c.held.Waiting[key[strings.LastIndex(key, "/")+1:]]++
		}
	}
	if readers == 0 {
		c.say("LOST a message to %s, which nobody reads", topic)
	}
}

// Waiting counts the messages that a subscription without an endpoint keeps.
func (c *Cloud) Waiting(subscription string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.Waiting[subscription]
}
