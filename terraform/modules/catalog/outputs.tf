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

output "outbound_topics" {
  description = "The topics that others subscribe to, by id."
  value       = { for t in local.outbound_topics : t.id => t }
}

output "sources" {
  description = "The senders of webhooks, by name."
  value       = local.expanded.sources
}

output "pools" {
  description = "The pools that serve an enabled queue: its queues, and what a service of the pool needs at most."
  value = {
    for pool in distinct([for q in local.queues : q.pool if q.enabled]) : pool => {
      queues        = [for q in local.queues : q.id if q.enabled && q.pool == pool]
      concurrency   = sum([for q in local.queues : q.concurrency if q.enabled && q.pool == pool])
      min_instances = max([for q in local.queues : q.min_instances if q.enabled && q.pool == pool]...)
      max_instances = max([for q in local.queues : q.max_instances if q.enabled && q.pool == pool]...)
      timeout       = max([for q in local.queues : q.ack_deadline_seconds if q.enabled && q.pool == pool]...)
    }
  }
}
