output "queues" {
  description = "The queues by id, with their names in the project, their publishers, and what they emit to."
  value       = local.queues

  precondition {
    condition     = length(local.mistakes) == 0
    error_message = join("\n", local.mistakes)
  }
}

output "topics" {
  description = "The topics that are no queue's own, by id: their names in the project, and their publishers."
  value = {
    for id in local.topics : id => { name = "${local.prefix}${id}", publishers = local.publishers[id] }
  }
}

output "sources" {
  description = "The senders of webhooks by name, with the environment variables of their secrets. Where some queues run, nobody knows whether producers send."
  value = {
    for name, s in local.senders : name => merge(
      { for key in ["secret_variable", "api_key_variable"] : key => try(s[key], "") },
      { sends = length(var.queues) == 0 || name != "generic" },
    )
  }
}

output "accounts" {
  description = "The queues and topics that each account may send to by a token, by its name."
  value       = merge({ scheduler = [] }, try(local.sources.accounts, {}))
}

output "pools" {
  description = "The pools with a queue that runs: what a service of the pool needs, and its targets' variables."
  value       = local.pools
}

output "tasks_pool" {
  description = "The pool whose worker runs the tasks, for all pools."
  value       = local.tasks_pool
}

output "tasks_pool_mistake" {
  description = "Why the pool of the tasks is not known; empty where it is. Its value then is that of the first pool by name."
  value = (
    contains(keys(local.pools), local.named_pool) || (length(local.pools) == 1 && var.tasks_pool == null) ? "" :
    "${local.named_pool == "" ? "No pool is named for the tasks" : "No queue of pool ${local.named_pool}, which is to run the tasks, runs here"}: name one in tasks_pool, of ${join(", ", keys(local.pools))}."
  )
}

output "hash" {
  description = "The hash of the catalog's files, as the services and `billhook status` show it."
  value       = substr(sha256(join("", [for name in sort(tolist(setunion(fileset(var.directory, "*.yaml"), fileset(var.directory, "providers/*.yaml")))) : "${filesha256("${var.directory}/${name}")}  ${name}\n"])), 0, 8)
}

output "queue_secrets" {
  description = "The variables of the secrets of each queue's targets and sender, also where it does not run."
  value = {
    for id, targets in local.targets_of : id => distinct(compact(concat(
      [for t in targets : local.targets[t].secret_variable],
      flatten([ # the producers' is the webhook service's own
        for name, s in local.sources.sources : [s.secret_variable, try(s.api_key_variable, "")]
        if name != "generic" && contains(values(try(s.events, {})), id)
      ]),
    )))
  }
}
