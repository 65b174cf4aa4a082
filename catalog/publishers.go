package catalog

import (
	"maps"
	"slices"
)

// Webhook is the webhook service, among Publishers.
const Webhook = "webhook"

// WorkerOf is the worker of a pool, among Publishers.
func WorkerOf(pool string) string { return "worker-" + pool }

// Publishers lists the services that publish on each topic, by the topic's id: those that need the grant, of
// which Terraform gives no other.
func (c *Catalog) Publishers() map[string][]string {
	publishers := map[string][]string{}
	publish := func(service string, ids ...string) {
		for _, id := range ids {
			if q, ok := c.Queue(id); ok {
				id = q.Topic()
			}
			if !slices.Contains(publishers[id], service) {
				publishers[id] = append(publishers[id], service)
			}
		}
	}
	if _, open := c.Sources[Producers]; open {
		publish(Webhook, c.running()...)
	}
	for _, s := range c.Sources {
		publish(Webhook, slices.Collect(maps.Values(s.Events))...)
	}
	for _, pool := range c.Pools() {
		worker := WorkerOf(pool)
		if pool == c.TasksPool { // the tasks publish for all
			publish(worker, c.running()...)
		}
		for q, h := range c.handlers() {
			if q.Pool == pool || pool == c.TasksPool {
				publish(worker, h.Emits...)
			}
		}
		for _, q := range c.Queues {
			if q.Enabled && q.Pool == pool && !q.DeadLetter.Drop {
				publish(worker, q.DeadLetter.Topic)
			}
		}
	}
	return publishers
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
