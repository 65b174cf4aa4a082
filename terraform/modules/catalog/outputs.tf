output "json" {
  description = "The expanded catalog, as `billhook admin catalog print` has it, on one line."
  value       = jsonencode(local.expanded)

  precondition {
    condition     = length(local.mistakes) == 0
    error_message = join("\n", local.mistakes)
  }
}

output "queues" {
  description = "The queues by id, expanded."
  value       = { for q in local.queues : q.id => q }

  precondition {
    condition     = length(local.mistakes) == 0
    error_message = join("\n", local.mistakes)
  }
}

output "named" {
  description = "The queues by id, with the names that their topics and subscriptions have in the project."
  value = {
    for q in local.queues : q.id => merge(q, {
      topic             = "${local.prefix}${q.topic}"
      push_subscription = "${local.prefix}${q.push_subscription}"
      dead_letter = merge(q.dead_letter, {
        for key in ["topic", "hold_subscription", "push_subscription"] : key => "${local.prefix}${q.dead_letter[key]}" if !q.dead_letter.drop
      })
    })
  }
}

output "shared_topics" {
  description = "The topics that queues share, by id, with their names in the project, as far as a queue that runs, or is kept, takes messages of them."
  value       = { for t in local.shared_topics : t.id => merge(t, { name = "${local.prefix}${t.id}" }) if contains(local.taken, t.id) }
}

output "outbound_topics" {
  description = "The topics that others subscribe to, by id, with their names in the project; where some queues run, as far as one of them, or one that is kept, emits to it."
  value       = { for t in local.outbound_topics : t.id => merge(t, { name = "${local.prefix}${t.id}" }) if length(var.queues) == 0 || contains(concat(local.kept_emit, flatten(values(local.emitted))), t.id) }
}

output "sources" {
  description = "The senders of webhooks, by name."
  value       = local.expanded.sources
}

output "accounts" {
  description = "The queues and topics that each account may send to by a token, by its name."
  value       = merge({ scheduler = [] }, try(yamldecode(file("${var.directory}/sources.yaml")).accounts, {}))
}

output "pools" {
  description = "The pools that serve an enabled queue: its queues, what a service of the pool needs at most, and the variables of the targets that it posts to."
  value       = local.pools
}

output "tasks_pool" {
  description = "The pool whose worker runs the tasks, for all pools."
  value       = local.tasks_pool
}

output "tasks_pool_mistake" {
  description = "Why the pool of the tasks is not known; empty where it is. Its value then is that of the first pool by name."
  value = (
    length(local.mistakes) > 0 || contains(keys(local.pools), local.named_pool) || (length(local.pools) == 1 && var.tasks_pool == null) ? "" :
    "${local.named_pool == "" ? "No pool is named for the tasks" : "No queue of pool ${local.named_pool}, which is to run the tasks, runs here"}: name one in tasks_pool, of ${join(", ", keys(local.pools))}."
  )
}

output "publishers" {
  description = "The publishers of a topic, by its id: webhook, or worker-<pool>."
  value       = local.publishers
}

output "hash" {
  description = "The hash of the catalog's files, as the services and `billhook status` show it."
  value       = substr(sha256(join("", [for name in sort(tolist(setunion(fileset(var.directory, "*.yaml"), fileset(var.directory, "providers/*.yaml")))) : "${filesha256("${var.directory}/${name}")}  ${name}\n"])), 0, 8)
}

output "queue_secrets" {
  description = "The environment variables of the secrets of each queue's targets and sender, also of a queue that does not run."
  value       = local.queue_secrets
}
