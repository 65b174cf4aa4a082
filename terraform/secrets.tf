# The secrets, without their values: `gcloud secrets versions add` adds a value, and
# secret_versions names the version that is read.

locals {
  # Whose value each service reads, by the variable that has it.
  read_by = merge(
    { webhook = distinct(compact(flatten([for name, source in module.catalog.sources : [source.secret_variable, source.api_key_variable]]))) },
    { for pool, p in local.pools : "worker-${pool}" => p.secret_variables },
  )
  read_secrets = distinct(flatten(values(local.read_by)))
  # A kept queue's secrets stay with it, for the day on which it runs again.
  secrets = distinct(concat(local.read_secrets, flatten([for id in var.kept_queues : lookup(module.catalog.queue_secrets, id, [])])))

  # The secret of queues that may go may go with the last of them.
  needed_by = {
    for variable in local.secrets : variable => [for id, needed in module.catalog.queue_secrets : id if contains(needed, variable) && contains(keys(local.standing), id)]
  }
  discarded_secrets = [for variable, queues in local.needed_by : variable if length(queues) > 0 && alltrue([for id in queues : local.discarded[id]])]

  secret_ids = { for variable in local.secrets : variable => "${local.name}-${lower(replace(variable, "_", "-"))}" }

  # The versions that services read, and that are older than a year.
  old_secrets = [
    for variable, version in data.google_secret_manager_secret_version.read : variable
    if try(timecmp(timeadd(version.create_time, "${24 * 365}h"), plantimestamp()) < 0, false)
  ]

  secret_references = {
    for variable in local.secrets : variable => {
      secret  = google_secret_manager_secret.secret[variable].secret_id
      version = tostring(lookup(var.secret_versions, variable, 1))
    }
  }
}

# Each version that a service is to read is asked for before anything changes, without its
# value. A revision that cannot read a secret does not start. It is asked for by name: of a resource
# that is to be changed, Terraform would ask after that.
data "google_secret_manager_secret_version" "read" {
  for_each          = { for variable in local.read_secrets : variable => local.secret_ids[variable] if local.deployed }
  project           = var.project_id
  secret            = each.value
  version           = tostring(lookup(var.secret_versions, each.key, 1))
  fetch_secret_data = false

  lifecycle {
    # The provider (7.45) says enabled of a version that is disabled, too: that one is found when a
    # revision starts.
    postcondition {
      condition     = self.enabled && try(coalesce(self.destroy_time), "") == ""
      error_message = "Version ${self.version} of secret ${each.value} was destroyed: add one, and name its number in secret_versions under ${each.key}."
    }
  }
}

resource "google_secret_manager_secret" "secret" {
  for_each  = toset(local.secrets)
  project   = var.project_id
  secret_id = local.secret_ids[each.key]
  labels    = local.labels

  # The values are nowhere else.
  deletion_protection = var.deletion_protection && !contains(local.discarded_secrets, each.key)

  replication {
    auto {
      dynamic "customer_managed_encryption" {
        for_each = var.keys.secrets[*]
        content {
          kms_key_name = customer_managed_encryption.value
        }
      }
    }
  }

  lifecycle {
    # A version for an unused variable is a misspelt name.
    precondition {
      condition     = length(setsubtract(keys(var.secret_versions), local.secrets)) == 0
      error_message = "secret_versions names ${join(", ", setsubtract(keys(var.secret_versions), local.secrets))}, which no service reads; there are ${join(", ", local.secrets)}."
    }
  }
}

# Secret Manager's own reminders go to a topic, which somebody has to read.
check "secrets_are_rotated" {
  assert {
    condition     = length(local.old_secrets) == 0
    error_message = "Older than a year: ${join(", ", local.old_secrets)}. docs/guides/change-an-installation.md says how to rotate one."
  }
}
