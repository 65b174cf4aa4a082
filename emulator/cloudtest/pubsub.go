package cloudtest

import (
	"net/http"
	"strings"
)

const subscriptionsOf = "pubsub/projects/" + Project + "/subscriptions/"

// readers are the keys of a topic's subscriptions.
func (c *Cloud) readers(topic string) (keys []string) {
	for _, key := range c.keys(subscriptionsOf) {
		if text(c.held.Resources[key], "topic") == topic {
			keys = append(keys, key)
		}
	}
	return keys
}

// pubsub answers for Pub/Sub's topics and subscriptions. It keeps no messages: it counts, for each
// subscription without an endpoint, those that wait.
func (c *Cloud) pubsub(r call) (Document, error) {
	topics := strings.HasPrefix(r.path, "projects/"+Project+"/topics")
	topic, lists := strings.CutSuffix(r.path, "/subscriptions")
	switch {
	case r.method == http.MethodGet && lists && topics:
		names := []any{}
		for _, key := range c.readers(topic) {
			names = append(names, strings.TrimPrefix(key, "pubsub/"))
		}
		return Document{"subscriptions": names}, nil
	case r.method == http.MethodPut:
		return c.putPubsub(r, topics)
	case r.method == http.MethodPatch && topics:
		r.body = object(r.body, "topic")
		return c.change(r)
	case r.method == http.MethodPatch:
		r.body = object(r.body, "subscription")
		if err := c.subscribes(r, false); err != nil {
			return nil, err
		}
		return c.change(r)
	case r.method == http.MethodDelete && topics:
		for _, key := range c.readers(r.path) {
			c.held.Resources[key]["topic"] = "_deleted-topic_"
		}
	case r.method == http.MethodDelete:
		if n, _ := at(c.held.Resources[r.key()], "waiting").(float64); n > 0 {
			c.say("LOST %v messages of %s", n, r.last())
		}
	}
	return c.plain(r)
}

func (c *Cloud) putPubsub(r call, topic bool) (Document, error) {
	if !topic {
		if err := c.subscribes(r, true); err != nil {
			return nil, err
		}
	}
	id := r.last()
	if len(id) < 3 || len(id) > 255 || strings.HasPrefix(id, "goog") {
		return nil, invalid("Invalid resource name given (name=%s).", r.path)
	}
	r.path = strings.TrimSuffix(r.path, "/"+id)
	made, err := c.create(r, id)
	if err != nil {
		return nil, err
	}
	made["state"] = "ACTIVE"
	if !topic && made["expirationPolicy"] == nil {
		made["expirationPolicy"] = Document{"ttl": "2678400s"}
	}
	return made, nil
}

// subscribes refuses a subscription that names what is not there.
func (c *Cloud) subscribes(r call, isNew bool) error {
	topic, deadLetters := text(r.body, "topic"), text(r.body, "deadLetterPolicy", "deadLetterTopic")
	switch {
	case isNew && c.held.Resources["pubsub/"+topic] == nil:
		return notFound("Resource not found (resource=%s).", last(topic))
	case deadLetters != "" && c.held.Resources["pubsub/"+deadLetters] == nil:
		return notFound("Resource not found (resource=%s).", last(deadLetters))
	}
	err := c.mustExist(text(r.body, "pushConfig", "oidcToken", "serviceAccountEmail"))
	if err == nil && c.held.Resources[r.key()] != nil && strings.Contains(","+r.ask("updateMask")+",", ",filter,") {
		err = invalid("The filter of a subscription cannot be changed")
	}
	return err
}

// Publish publishes one message on a topic, by its short name. A subscription that pushes is taken
// to deliver at once. A message to a topic without a subscription is lost.
func (c *Cloud) Publish(topic string) {
	c.Change(func(*State) {
		readers := c.readers("projects/" + Project + "/topics/" + topic)
		for _, key := range readers {
			subscription := c.held.Resources[key]
			if text(subscription, "pushConfig", "pushEndpoint") == "" {
				n, _ := subscription["waiting"].(float64)
				subscription["waiting"] = n + 1
			}
		}
		if len(readers) == 0 {
			c.say("LOST a message to %s, which nobody reads", topic)
		}
	})
}
