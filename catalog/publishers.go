package catalog

import (
	"maps"
	"slices"
)

// Door is the webhook service, among Publishers.
const Door = "webhook"

// WorkerOf is the worker of a pool, among Publishers.
func WorkerOf(pool string) string { return "worker-" + pool }

// Publishers lists the services that publish on each topic, by the topic's id: those that need the grant, of
// which Terraform gives no other.
func (c *Catalog) Publishers() map[string][]string {
	publishers := map[string][]string{}
	publish := func(service string, topics []string) {
		for _, topic := range topics {
			if !slices.Contains(publishers[topic], service) {
				publishers[topic] = append(publishers[topic], service)
			}
		}
	}
	publish(Door, c.topicsOf(c.received()))
	for _, pool := range c.Pools() {
		publish(WorkerOf(pool), c.topicsOf(c.published(pool)))
		for _, q := range c.Queues {
			if q.Enabled && q.Pool == pool && !q.DeadLetter.Drop {
				publish(WorkerOf(pool), []string{q.DeadLetter.Topic})
			}
		}
	}
	return publishers
}

// received are the ids of the queues that the webhook service publishes to.
func (c *Catalog) received() []string {
	if _, open := c.Sources[Producers]; open {
		return c.running()
	}
	var ids []string
	for _, s := range c.Sources {
		ids = slices.AppendSeq(ids, maps.Values(s.Events))
	}
	return ids
}

// published are the ids that a pool's worker publishes to. The one that runs the tasks publishes for all.
func (c *Catalog) published(pool string) []string {
	var ids []string
	if pool == c.TasksPool {
		ids = c.running()
	}
	for q, h := range c.handlers() {
		if q.Pool == pool || pool == c.TasksPool {
			ids = append(ids, h.Emits...)
		}
	}
	return ids
}

// running are the ids of the queues that run.
func (c *Catalog) running() (ids []string) {
	for _, q := range c.Queues {
		if q.Enabled {
			ids = append(ids, q.ID)
		}
	}
	return ids
}

// topicsOf are the topics of queues and topics, in order.
func (c *Catalog) topicsOf(ids []string) (topics []string) {
	for _, id := range ids {
		if q, ok := c.Queue(id); ok {
			id = q.Topic()
		}
		topics = append(topics, id)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}
