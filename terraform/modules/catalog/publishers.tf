# Who publishes where and posts to whom, from what the programs do. Nobody is granted more.

locals {
  # The topic of each id that an emission may name.
  topic_of = merge(
    { for t in concat(local.shared, local.outbound) : t.id => t.id },
    { for q in local.filled : q.id => q.topic == "" ? q.id : q.topic },
  )

  taken = [for q in local.filled : local.topic_of[q.id] if q.enabled || contains(var.kept, q.id)]

  # To a queue in emits_if_run a handler emits where that queue runs.
  emits = {
    for q in local.filled : q.id => distinct(flatten([
      for h in values(q.handlers) : concat(try(h.emits, []), [for id in try(h.emits_if_run, []) : id if contains(local.running, id)])
    ]))
  }

  targets_of = {
    for q in local.filled : q.id => distinct(flatten([
      for h in values(q.handlers) : concat([for post in try([h.post], []) : post.target], try(h.calls, []))
    ]))
  }

  pools = {
    for pool, queues in { for q in local.filled : q.pool => q... if q.enabled } : pool => {
      queues           = queues[*].id
      concurrency      = sum(queues[*].concurrency)
      min_instances    = max(queues[*].min_instances...)
      max_instances    = max(queues[*].max_instances...)
      timeout          = max(queues[*].ack_deadline_seconds...)
      url_variables    = distinct([for t in flatten([for q in queues : local.targets_of[q.id]]) : local.targets[t].url_variable])
      secret_variables = distinct([for t in flatten([for q in queues : local.targets_of[q.id]]) : local.targets[t].secret_variable])
    }
  }

  # A queue that is enabled later, in a pool that sorts first, must not move the tasks: the pool is named,
  # unless there is one alone.
  named_pool = try(coalesce(var.tasks_pool, try(local.file.tasks_pool, null)), "")
  tasks_pool = contains(keys(local.pools), local.named_pool) ? local.named_pool : try(keys(local.pools)[0], "")

  # Where some queues run, a source routes to those alone. One that routes nowhere is left out, unless it is the
  # producers': with that one the webhook service accepts messages for every queue that runs.
  routed = {
    for name, s in local.sources.sources : name => [for id in values(try(s.events, {})) : id if contains(local.running, id)]
  }
  senders = {
    for name, s in local.sources.sources : name => s
    if length(var.queues) == 0 || name == "generic" || length(local.routed[name]) > 0
  }
  received = contains(keys(local.senders), "generic") ? local.running : flatten(values(local.routed))

  # A worker publishes its handlers' messages, right after their commit. It publishes nothing on its own queues'
  # topics: messages that wait, are replayed or put back are written down, and a task publishes them. The worker
  # that runs the tasks publishes these for all pools. What was written down before a queue was switched off goes
  # to its subscription, and waits there.
  emitted = { for pool, p in local.pools : pool => flatten([for id in p.queues : local.emits[id]]) }
  relayed = concat(local.running, var.kept, flatten(values(local.emitted)))
  published = merge(
    { webhook = local.received },
    { for pool, ids in local.emitted : "worker-${pool}" => pool == local.tasks_pool ? local.relayed : ids },
  )
  publishers = {
    for topic in distinct(values(local.topic_of)) : topic => [
      for name, ids in local.published : name if contains([for id in ids : lookup(local.topic_of, id, id)], topic)
    ]
  }

  # The topics that queues share, as far as a queue that runs, or is kept, takes messages of them; and those that
  # others subscribe to: where some queues run, as far as one of them, or one that is kept, emits to it.
  outgoing = flatten([for q in local.filled : local.emits[q.id] if q.enabled || contains(var.kept, q.id)])
  topics = concat(
    [for t in local.shared : t.id if contains(local.taken, t.id)],
    [for t in local.outbound : t.id if length(var.queues) == 0 || contains(local.outgoing, t.id)],
  )

  # What is wrong with the choice of queues, in the words of the services, which would not start with it.
  off = [for q in local.declared : q.id if !try(q.enabled, local.defaults.enabled, false)]
  mistakes = concat(
    [for name in var.queues : "QUEUES: an entry is empty" if trimspace(name) == ""],
    [
      for name in var.queues : "QUEUES: no queue has the id or alias ${name}"
      if trimspace(name) != "" && !contains(flatten(values(local.names)), name)
    ],
    flatten([
      for id, names in local.names : [
        for wrong, is in {
          "is not enabled in the catalog" = contains(local.off, id) && length(setintersection(var.queues, names)) > 0
          "is named twice"                = length([for name in var.queues : name if contains(names, name)]) > 1
        } : "QUEUES: queue ${id} ${wrong}" if is
      ]
    ]),
    flatten([
      for q in local.filled : [
        for id in setsubtract(local.emits[q.id], concat(local.running, local.topics)) :
        contains(keys(local.names), id) ? "QUEUES: queue ${q.id} emits to queue ${id}, which does not run here: name it too" :
        "QUEUES: queue ${q.id} emits to topic ${id}, and no queue that takes messages of it runs here: name one too"
      ] if q.enabled
    ]),
  )
}
