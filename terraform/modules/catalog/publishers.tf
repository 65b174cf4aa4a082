# Who publishes where and posts to whom, from what the programs do. Nobody is granted more.

locals {
  # The topics of enabled queues.
  taken = [for q in local.queues : q.topic if q.enabled]

  enabled = [for q in local.queues : q.id if q.enabled]

  pools = {
    for pool in distinct([for q in local.queues : q.pool if q.enabled]) : pool => {
      queues        = [for q in local.queues : q.id if q.enabled && q.pool == pool]
      concurrency   = sum([for q in local.queues : q.concurrency if q.enabled && q.pool == pool])
      min_instances = max([for q in local.queues : q.min_instances if q.enabled && q.pool == pool]...)
      max_instances = max([for q in local.queues : q.max_instances if q.enabled && q.pool == pool]...)
      timeout       = max([for q in local.queues : q.ack_deadline_seconds if q.enabled && q.pool == pool]...)
      # What its worker needs to post: variables of the environment.
      url_variables    = [for name in local.targets_of[pool] : local.targets[name].url_variable]
      secret_variables = distinct([for name in local.targets_of[pool] : local.targets[name].secret_variable])
    }
  }

  # The first by name. There is one, since every source sends to an enabled queue.
  tasks_pool = try(keys(local.pools)[0], "")

  # The webhook service: where its sources route. With the generic source its door for
  # producers is open, which takes messages for every enabled queue.
  received = contains(keys(local.sources), "generic") ? local.enabled : flatten([for s in values(local.expanded.sources) : values(s.events)])

  # A worker: what its handlers emit, right after their commit. On its own queues' topics
  # it publishes nothing: what waits, is parked, replayed or put back is written down, and
  # published by a task.
  emitted = { for pool in keys(local.pools) : pool => flatten([for q in local.queues : [for h in values(q.handlers) : h.emits] if q.enabled && q.pool == pool]) }

  # The worker that runs the tasks, for all pools: what is still in the outbox, replays, what
  # has waited long enough, and what a sweep puts back.
  relayed = concat(local.enabled, flatten(values(local.emitted)))

  publishers = {
    for topic in distinct(values(local.topic_of)) : topic => concat(
      [for name in ["webhook"] : name if contains([for id in local.received : try(local.topic_of[id], id)], topic)],
      [
        for pool in keys(local.pools) : "worker-${pool}"
        if contains([for id in pool == local.tasks_pool ? local.relayed : local.emitted[pool] : try(local.topic_of[id], id)], topic)
      ],
    )
  }
}
