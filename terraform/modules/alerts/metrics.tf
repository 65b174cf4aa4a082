# The metrics made of log lines, as data. Made are those that an alert or the dashboard reads, and those
# that `on` names. A value is a distribution, the only kind that takes a number from a line. Its REDUCE_MEAN
# is exact; a percentile is as coarse as the buckets.

locals {
  log_metrics = {
    oldest-seconds             = { by = "tasks", about = "Age of the oldest message that a task has left unpublished, or entry that it has left without a seal.", filter = "jsonPayload.message=\"task\" AND jsonPayload.done.oldest_seconds>=0", labels = ["task"], value = "jsonPayload.done.oldest_seconds", unit = "s" }
    open-dead-letters          = { by = "tasks", about = "Dead letters that nobody has dealt with.", filter = "jsonPayload.message=\"open dead letters\"", labels = ["queue"], value = "jsonPayload.open", unit = "1" }
    oldest-dead-letter-seconds = { by = "tasks", about = "How long the oldest open dead letter has waited.", filter = "jsonPayload.message=\"open dead letters\"", labels = ["queue"], value = "jsonPayload.oldest_seconds", unit = "s" }
    orphans                    = { by = "tasks", about = "Events that were claimed and never finished.", filter = "jsonPayload.message=\"orphan\"", labels = ["queue"], value = null, unit = "1" }
    pauses-undone              = { by = "tasks", about = "Queues that are paused and pushed all the same.", filter = "jsonPayload.message=\"pause undone\"", labels = ["queue"], value = null, unit = "1" }
    books-untrue               = { by = "tasks", about = "Entries, seals and balances of the books that a verification has found wrong.", filter = "jsonPayload.message=\"books do not verify\"", labels = ["kind"], value = null, unit = "1" }
    tasks-done                 = { by = "tasks", about = "Runs of a task that finished their work.", filter = "jsonPayload.message=\"task\" AND jsonPayload.done:*", labels = ["task"], value = null, unit = "1" }
    lanes-not-relayed          = { by = "tasks", about = "Ordering keys that a run of a relay could not finish.", filter = "jsonPayload.message=\"lane not relayed\"", labels = ["of"], value = null, unit = "1" }
    deliveries                 = { by = "workers", about = "Deliveries by what became of them.", filter = "jsonPayload.message=\"delivery\"", labels = ["queue", "outcome", "reason"], value = null, unit = "1" }
    delivery-ms                = { by = "workers", about = "From the first byte of a delivery to its answer.", filter = "jsonPayload.message=\"delivery\"", labels = ["queue"], value = "jsonPayload.duration_ms", unit = "ms" }
    webhooks                   = { by = "webhook", about = "Webhooks by their answer.", filter = "jsonPayload.message=\"webhook\"", labels = ["source", "status", "reason"], value = null, unit = "1" }
    webhook-ms                 = { by = "webhook", about = "From the first byte of a webhook to its answer.", filter = "jsonPayload.message=\"webhook\"", labels = ["source", "status"], value = "jsonPayload.duration_ms", unit = "ms" }
  }

  logged_by = {
    tasks   = "=\"${var.names.tasks_worker}\""
    workers = "=~\"^${var.names.installation}-worker-\""
    webhook = "=\"${var.names.webhook}\""
  }

  logged = { for name in keys(local.log_metrics) : name => "resource.type = \"cloud_run_revision\" AND metric.type = \"logging.googleapis.com/user/${var.names.installation}-${name}\"" }

  lines = {
    for key, m in local.log_metrics : key => {
      about  = m.about, value = m.value, unit = m.unit
      filter = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name${local.logged_by[m.by]} AND ${m.filter}"
      labels = { for label in m.labels : label => "EXTRACT(jsonPayload.${label})" }
    }
  }

  # Of Google's own lines, which there are where reads of secrets are recorded.
  reads = {
    secret-access = {
      about = "Values of secrets that neither a service nor a named person read.", value = null, unit = "1"
      filter = join(" AND ", [
        "log_id(\"cloudaudit.googleapis.com/data_access\")",
        "protoPayload.serviceName=\"secretmanager.googleapis.com\"",
        "protoPayload.methodName=~\"AccessSecretVersion$\"",
        "protoPayload.resourceName=~\"/secrets/(${join("|", sort(var.secrets.ids))})/versions/\"",
        "NOT protoPayload.authenticationInfo.principalEmail=(${join(" OR ", [for email in var.secrets.readers : "\"${email}\""])})",
      ])
      labels = { secret = "REGEXP_EXTRACT(protoPayload.resourceName, \"/secrets/([^/]+)/\")" }
    }
  }

  on_dashboard = ["oldest-seconds", "open-dead-letters"]
  compared     = join(" ", flatten([for p in values(local.made) : p.conditions[*].filter]))
  measuring = [
    for key in concat(keys(local.log_metrics), keys(local.reads)) : key
    if contains(concat(local.on_dashboard, tolist(var.asked.on)), key) || strcontains(local.compared, "/${var.names.installation}-${key}\"")
    || contains(var.asked.on, "all")
  ]
}

output "log_metrics" {
  description = "The metrics made of log lines, by the end of their names: the lines, the number in them, the labels with their extractors."
  value       = { for key, m in merge(local.lines, local.reads) : key => m if contains(local.measuring, key) }
}

output "logged" {
  description = "The filter of each such metric's series."
  value       = local.logged
}
