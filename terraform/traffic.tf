# Which image each service has, which revisions have its requests, and what Cloud Run says of it.

locals {
  # The services by their keys: webhook, ops, and worker-<pool>.
  service_names = merge({ webhook = local.webhook_name, ops = local.ops_name }, { for pool, name in local.worker_names : "worker-${pool}" => name })

  # A canary's image makes the latest revision; what served before is not changed.
  images = {
    for key in keys(local.service_names) : key => try(var.canary[key].image, key == "webhook" ? var.images.webhook : var.images.worker, "")
  }

  # The revision beside a canary: the one that requests are sent to by its name, since that is what an
  # earlier apply of this chose; where there is none, the one that is ready.
  stable = {
    for key, service in data.google_cloud_run_v2_service.beside_a_canary : key => basename(concat(
      [for s in service.traffic_statuses : s.revision if s.type == "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION" && s.percent > 0],
      [service.latest_ready_revision],
    )[0])
  }

  traffic = {
    for key in keys(local.service_names) : key => contains(keys(var.canary), key) ? [
      for t in [
        { revision = "", percent = var.canary[key].percent },
        { revision = local.stable[key], percent = 100 - var.canary[key].percent },
      ] : t if t.percent > 0
    ] : [{ revision = "", percent = 100 }]
  }

  failures = merge(
    { for service in module.webhook : "webhook" => service.failure if service.failure != "" },
    { for service in module.ops : "ops" => service.failure if service.failure != "" },
    { for pool, service in module.worker : "worker-${pool}" => service.failure if service.failure != "" },
  )
}

# Read by a name that is known, so that the plan says which revision stays.
data "google_cloud_run_v2_service" "beside_a_canary" {
  for_each = var.canary
  project  = var.project_id
  location = var.region
  name     = local.service_names[each.key]
}

# A failed update ends its own apply with an error. Afterwards the configuration is what was
# asked for, and no plan shows a difference.
check "services_are_ready" {
  assert {
    condition     = length(local.failures) == 0
    error_message = "Not as it was last applied, and served by an older revision where there is one: ${join("; ", [for key, why in local.failures : "${key} (${local.service_names[key]}): ${why}"])}. Mend the cause; then name the service in redeploy, with a new value."
  }
}

# Beside a canary, what is changed of its service makes another latest revision, which is the canary's.
check "no_canary_holds_changes_back" {
  assert {
    condition     = length(var.canary) == 0
    error_message = "Changes of these services reach the requests of their canary alone, until it is taken out of canary: ${join(", ", [for key, c in var.canary : "${key} (${c.percent} %)"])}."
  }
}
