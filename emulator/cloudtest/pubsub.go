package cloudtest

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

// Publish publishes one message on a topic, by its short name. A subscription that pushes is taken
// to deliver at once. A message to a topic without a subscription is lost.
func (c *Cloud) Publish(topic string) {
	c.Change(func(*State) {
		readers := c.readers("projects/" + Project + "/topics/" + topic)
		for _, key := range readers {
			subscription := c.held.Resources[key]
			if text(subscription, "pushConfig", "pushEndpoint") == "" {
				subscription["waiting"] = At[float64](subscription, "waiting") + 1
			}
		}
		if len(readers) == 0 {
			c.say("LOST a message to %s, which nobody reads", topic)
		}
	})
}
