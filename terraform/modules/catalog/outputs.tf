output "json" {
  description = "The expanded catalog, as `billhook catalog print` has it, on one line."
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

output "shared_topics" {
  description = "The topics that queues share, by id, as far as an enabled queue takes messages of them."
  value       = { for t in local.shared_topics : t.id => t if contains(local.taken, t.id) }
}

output "outbound_topics" {
  description = "The topics that others subscribe to, by id; where some queues run, as far as one of them emits to it."
  value       = { for t in local.outbound_topics : t.id => t if length(var.queues) == 0 || contains(flatten(values(local.emitted)), t.id) }
}

output "sources" {
  description = "The senders of webhooks, by name."
  value       = local.expanded.sources
}

output "pools" {
  description = "The pools that serve an enabled queue: its queues, what a service of the pool needs at most, and the variables of the targets that it posts to."
  value       = local.pools
}

output "tasks_pool" {
  description = "The pool whose worker runs the tasks, for all pools: the catalog's tasks_pool, or the first that runs where that does not."
  value       = local.tasks_pool
}

output "publishers" {
  description = "The publishers of a topic, by its id: webhook, or worker-<pool>."
  value       = local.publishers
}

check "tasks_pool" {
  assert {
    condition     = length(local.mistakes) > 0 || contains(["", local.tasks_pool], local.named_pool)
    error_message = "No queue of pool ${local.named_pool}, the catalog's for the tasks, runs here: pool ${local.tasks_pool} runs them."
  }
}

output "hash" {
  description = "The hash of the catalog's files, as the services and `billhook status` show it."
  value       = substr(sha256(join("", [for name in sort(tolist(fileset(var.directory, "*.yaml"))) : "${filesha256("${var.directory}/${name}")}  ${name}\n"])), 0, 8)
}
