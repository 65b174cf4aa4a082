# Who publishes where and posts to whom, from what the programs do. Nobody is granted more.

locals {
  # What stands before the names of topics and subscriptions in the project.
  prefix = var.installation == "" ? "" : "${var.installation}-"

  # The topics of queues that run, or are kept.
  taken = [for q in local.queues : q.topic if q.enabled || contains(var.kept, q.id)]

  enabled = [for q in local.filled : q.id if q.enabled]

  pools = {
    for pool in distinct([for q in local.queues : q.pool if q.enabled]) : pool => {
      queues        = [for q in local.queues : q.id if q.enabled && q.pool == pool]
      concurrency   = sum([for q in local.queues : q.concurrency if q.enabled && q.pool == pool])
      min_instances = max([for q in local.queues : q.min_instances if q.enabled && q.pool == pool]...)
      max_instances = max([for q in local.queues : q.max_instances if q.enabled && q.pool == pool]...)
      timeout       = max([for q in local.queues : q.ack_deadline_seconds if q.enabled && q.pool == pool]...)
      # What its worker needs to post: variables of the environment.
      url_variables    = distinct([for name in local.targets_of[pool] : local.targets[name].url_variable])
      secret_variables = distinct([for name in local.targets_of[pool] : local.targets[name].secret_variable])
    }
  }

  # A queue that is enabled later, in a pool that sorts first, must not move the tasks: the pool is named,
  # unless there is one alone.
  named_pool = try(coalesce(var.tasks_pool, try(local.file.tasks_pool, null)), "")
  tasks_pool = contains(keys(local.pools), local.named_pool) ? local.named_pool : try(keys(local.pools)[0], "")

  # The webhook service publishes on its sources' queues. With the generic source its address
  # for producers is open, and accepts messages for every enabled queue.
  received = contains(keys(local.sources), "generic") ? local.enabled : flatten([for s in values(local.expanded.sources) : values(s.events)])

  # A worker publishes its handlers' messages, right after their commit. It publishes nothing
  # on its own queues' topics: messages that wait, are replayed or put back are
  # written down, and a task publishes them.
  kept_emit = flatten([for q in local.queues : [for h in values(q.handlers) : h.emits] if contains(var.kept, q.id)])
  emitted   = { for pool in keys(local.pools) : pool => flatten([for q in local.queues : [for h in values(q.handlers) : h.emits] if q.enabled && q.pool == pool]) }

  # The worker that runs the tasks publishes, for all pools, the rest of the outbox, replays,
  # kept messages that are due, and events that a sweep puts back. What was written down before a queue was
  # switched off goes to its subscription, and waits there.
  relayed = concat(local.enabled, var.kept, flatten(values(local.emitted)))

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
