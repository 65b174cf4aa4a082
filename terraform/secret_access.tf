# Who reads the values of secrets, where secret_access is set. Services read theirs when an instance starts; anybody
# else is somebody who looks, or should not.

locals {
  # Google's account for Cloud Run acts for a service that starts, and may be the one that a record names.
  secret_readers = var.secret_access == null ? [] : concat(
    [google_service_account.webhook.email],
    [for account in google_service_account.worker : account.email],
    ["service-${local.number}@serverless-robot-prod.iam.gserviceaccount.com"],
    var.secret_access.readers,
  )
}

# It is the project's one configuration for Secret Manager: two that set it take it from each other.
resource "google_project_iam_audit_config" "secrets" {
  count   = try(var.secret_access.record, false) ? 1 : 0
  project = var.project_id
  service = "secretmanager.googleapis.com"

  audit_log_config {
    log_type = "DATA_READ"
  }

  depends_on = [google_project_service.api]
}

resource "google_logging_metric" "secret_access" {
  count       = var.secret_access == null ? 0 : 1
  project     = var.project_id
  name        = "${local.name}-secret-access"
  description = "Values of secrets that neither a service nor a named person read."
  filter = join(" AND ", [
    "log_id(\"cloudaudit.googleapis.com/data_access\")",
    "protoPayload.serviceName=\"secretmanager.googleapis.com\"",
    "protoPayload.methodName=~\"AccessSecretVersion$\"",
    "protoPayload.resourceName=~\"/secrets/(${join("|", sort([for s in google_secret_manager_secret.secret : s.secret_id]))})/versions/\"",
    "NOT protoPayload.authenticationInfo.principalEmail=(${join(" OR ", [for email in local.secret_readers : "\"${email}\""])})",
  ])
  label_extractors = { secret = "REGEXP_EXTRACT(protoPayload.resourceName, \"/secrets/([^/]+)/\")" }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
    labels {
      key         = "secret"
      value_type  = "STRING"
      description = "The secret that was read."
    }
  }

  depends_on = [google_project_service.api]
}

locals {
  # In the form of modules/alerts, which adds it to its own.
  secret_alerts = var.secret_access == null ? {} : {
    "secret-access" = {
      runbook  = "secret-access.md"
      severity = "ERROR"
      combiner = "OR"
      about    = "Somebody who is neither a service nor named in secret_access.readers has read a secret's value."
      conditions = [{
        name   = "a secret was read", filter = "resource.type = \"audited_resource\" AND metric.type = \"logging.googleapis.com/user/${local.name}-secret-access\""
        period = "300s", align = "ALIGN_DELTA", reduce = "REDUCE_SUM", by = ["metric.label.secret"]
        # A count that is no longer reported has ended; Cloud Monitoring takes a word on that where a condition lasts.
        comparison = "COMPARISON_GT", threshold = 0, duration = "60s", missing = "EVALUATION_MISSING_DATA_INACTIVE", share_of = null
      }]
    }
  }
}
