output "webhook_url" {
  description = "The address of the webhook service: senders POST /webhooks/{source}."
  value       = local.webhook_url
}

output "ops_url" {
  description = "The address of the service for people: its pages are at /ops/."
  value       = local.ops_url
}

output "registry" {
  description = "Where the images go."
  value       = "${google_artifact_registry_repository.images.location}-docker.pkg.dev/${var.project_id}/${local.name}"
}

output "doctor" {
  description = "What to run, behind env, to have the installation compared with the catalog."
  value = join(" ", concat(
    [for variable, value in local.running : "${variable}=${value}"],
    [
      "GOOGLE_CLOUD_PROJECT=${var.project_id}", "TASKS_POOL=${local.tasks_pool}", "PUSH_AUDIENCE=${local.audience}",
      "PUSH_BASE_URL=${local.worker_urls[local.tasks_pool]}",
      "PUSH_SERVICE_ACCOUNT=${google_service_account.push[local.tasks_pool].email}",
      "BILLHOOK_SERVER=${local.ops_url}", "BILLHOOK_WEBHOOK=${local.webhook_url}", "bin/billhook", "admin", "doctor",
      "--pool-urls", local.pool_urls, "--pool-accounts", local.pool_accounts,
    ],
  ))
}

output "services" {
  description = "The services' names on Cloud Run: webhook, ops, and worker-<pool>."
  value       = local.service_names

  # Who names a service wants it to be there.
  depends_on = [module.webhook, module.worker]

  precondition {
    condition     = local.deployed || !local.applied.services
    error_message = "bootstrap is for the first apply. Here services run, and would be deleted with the scheduler's jobs and the alerts: name in images what runs."
  }
  # Known before there is any service, so the first plan says it.
  precondition {
    condition     = alltrue([for name in values(local.service_names) : can(regex("^[a-z]([a-z0-9-]{0,47}[a-z0-9])?$", name))])
    error_message = "Cloud Run takes names of at most 49 of a-z, 0-9 and -. Shorten the installation's name, or the pool's in the catalog: ${join(", ", [for name in values(local.service_names) : name if !can(regex("^[a-z]([a-z0-9-]{0,47}[a-z0-9])?$", name))])}."
  }
}

output "tasks_pool" {
  description = "The pool whose worker runs the tasks: the variable's, or the catalog's."
  value       = local.tasks_pool

  precondition {
    condition     = module.catalog.tasks_pool_mistake == ""
    error_message = module.catalog.tasks_pool_mistake
  }
}

output "queues" {
  description = "What becomes of each of the catalog's queues: it runs, is paused, is kept without a worker, or is off."
  value       = local.states

  precondition {
    condition     = length(local.unfit) == 0
    error_message = "kept_queues and discard_backlog name queues of the catalog, kept_queues those that are off: take out ${join(", ", local.unfit)}."
  }
  precondition {
    condition     = length(local.taken_away) == 0
    error_message = "${join(", ", local.taken_away)}: of a queue that runs or is kept, topic and subscriptions would go, or be made anew, with the messages that wait there. Nothing was changed. To have them wait on, name the queue in kept_queues. To give them up, apply once as before with the queue in discard_backlog, and then this."
  }
}

output "secrets" {
  description = "The secrets by environment variable: each needs a version before the services are made."
  value       = { for variable, secret in google_secret_manager_secret.secret : variable => secret.secret_id }
}

output "database" {
  description = "The Firestore database's id."
  value       = google_firestore_database.this.name
}
