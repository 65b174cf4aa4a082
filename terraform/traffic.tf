# Which image each service has, which revisions have its requests, and what Cloud Run says of it.

locals {
  service_names = merge({ webhook = local.webhook_name, ops = local.ops_name }, { for pool, name in local.worker_names : "worker-${pool}" => name })
  canaries      = { for key, s in var.services : key => s.canary if s.canary != null }

  # A canary's image makes the latest revision; what served before is not changed.
  revisions = { for key in keys(local.service_names) : key => {
    image    = try(local.canaries[key].image, key == "webhook" ? var.images.webhook : var.images.worker, "")
    env      = try(var.services[key].env, {})
    redeploy = try(var.services[key].redeploy, "")
    traffic  = local.traffic[key]
  } }

  # The revision beside a canary: the one that requests are sent to by its name, since that is what an
  # earlier apply of this chose; where there is none, the one that is ready.
  stable = {
    for key, service in data.google_cloud_run_v2_service.beside_a_canary : key => basename(concat(
      [for s in service.traffic_statuses : s.revision if s.type == "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION" && s.percent > 0],
      [service.latest_ready_revision],
    )[0])
  }

  traffic = {
    for key in keys(local.service_names) : key => contains(keys(local.canaries), key) ? [
      for t in [
        { revision = "", percent = local.canaries[key].percent },
        { revision = local.stable[key], percent = 100 - local.canaries[key].percent },
      ] : t if t.percent > 0
    ] : [{ revision = "", percent = 100 }]
  }

  deployments = merge(
    { for s in module.webhook : "webhook" => s.service }, { for s in module.ops : "ops" => s.service },
    { for pool, w in module.worker : "worker-${pool}" => w.service },
  )
  failures = { for key, service in local.deployments : key => join(" ", [
    for c in service.terminal_condition : "${c.state}: ${try(coalesce(c.message, c.revision_reason, c.reason), "no reason given")}"
    if c.state != "CONDITION_SUCCEEDED"
  ]) }
}

# Read by a name that is known, so that the plan says which revision stays.
data "google_cloud_run_v2_service" "beside_a_canary" {
  for_each = local.canaries
  project  = var.project_id
  location = var.region
  name     = local.service_names[each.key]
}

# A failed update ends its own apply with an error. Afterwards the configuration is what was
# asked for, and no plan shows a difference.
check "services_are_ready" {
  assert {
    condition     = alltrue([for why in values(local.failures) : why == ""])
    error_message = "Not as it was last applied, and served by an older revision where there is one: ${join("; ", [for key, why in local.failures : "${key} (${local.service_names[key]}): ${why}" if why != ""])}. Mend the cause; then give the service a new value of redeploy in services."
  }
}

# Beside a canary, what is changed of its service makes another latest revision, which is the canary's.
check "no_canary_holds_changes_back" {
  assert {
    condition     = length(local.canaries) == 0
    error_message = "Changes of these services reach the requests of their canary alone, until it is taken out: ${join(", ", [for key, c in local.canaries : "${key} (${c.percent} %)"])}."
  }
}
