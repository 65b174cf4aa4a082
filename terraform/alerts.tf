# What modules/alerts says there is to make.

locals {
  enabled = { for id, q in local.queues : id => q if q.enabled }

  subscription = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = "
  service      = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = "
  requests     = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\""
  objective    = "${local.name}-webhooks-taken"
  burns        = toset([for name in keys(module.alerts.policies) : name if name == "slo-burn"])
}

module "alerts" {
  source  = "./modules/alerts"
  scaling = local.scaling
  tasks   = local.tasks
  asked   = var.alerts
  sources = [
    for name, s in module.catalog.sources : name if s.sends || can(var.alerts.webhooks_a_day[name])
  ]
  queues = local.enabled
  kept   = { for id, state in local.states : id => local.queues[id] if state == "kept" }
  names = {
    installation = local.name, database = local.database_id, webhook = local.webhook_name, tasks_worker = local.worker_names[local.tasks_pool]
    slo          = "projects/${local.number}/services/${local.webhook_name}/serviceLevelObjectives/${local.objective}" # before it is made
  }
  # Google's account for Cloud Run acts for a service that starts, and may be the one that a record names.
  secrets = {
    ids = values(local.secret_ids)
    readers = concat(
      [for key, account in google_service_account.service : account.email if key != "ops"],
      ["service-${local.number}@serverless-robot-prod.iam.gserviceaccount.com"], var.alerts.secret_readers,
    )
  }
}

check "notification_channels" {
  assert {
    condition     = !local.deployed || length(var.alerts.channels) > 0
    error_message = "No alert reaches anybody: alerts has no channels."
  }
}

resource "google_logging_metric" "logged" {
  for_each         = module.alerts.log_metrics
  project          = var.project_id
  name             = "${local.name}-${each.key}"
  description      = each.value.about
  filter           = each.value.filter
  value_extractor  = each.value.value == null ? null : "EXTRACT(${each.value.value})"
  label_extractors = each.value.labels

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = each.value.value == null ? "INT64" : "DISTRIBUTION"
    unit        = each.value.unit
    dynamic "labels" {
      for_each = each.value.labels
      content {
        key         = labels.key
        value_type  = "STRING"
        description = "The ${labels.key} that the line names."
      }
    }
  }

  dynamic "bucket_options" {
    for_each = each.value.value[*]
    content {
      exponential_buckets {
        num_finite_buckets = 24
        growth_factor      = 2
        scale              = 1
      }
    }
  }
}

# The objective is there for the alert slo-burn: the share of all answers that are not our own failures.
resource "google_monitoring_custom_service" "webhook" {
  for_each     = local.burns
  project      = var.project_id
  service_id   = local.webhook_name
  display_name = "Billhook: webhooks"
}

resource "google_monitoring_slo" "webhooks" {
  for_each            = google_monitoring_custom_service.webhook
  project             = var.project_id
  service             = each.value.service_id
  slo_id              = local.objective
  display_name        = "Webhooks answered without a 5xx"
  goal                = module.alerts.objective
  rolling_period_days = 28

  request_based_sli {
    good_total_ratio {
      total_service_filter = local.requests
      bad_service_filter   = "${local.requests} AND metric.labels.response_code_class = \"5xx\""
    }
  }
}

# Alerts are made with the services: there is nothing to watch before, and Cloud Monitoring
# takes some minutes to know metrics made of log lines.
resource "google_monitoring_alert_policy" "alert" {
  for_each              = { for name, policy in module.alerts.policies : name => policy if local.deployed }
  project               = var.project_id
  display_name          = "${local.name}: ${each.key}"
  combiner              = each.value.combiner
  severity              = each.value.severity
  notification_channels = var.alerts.channels
  user_labels           = merge(local.labels, { alert = split("/", each.key)[0] })

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.about}\n\nWhat to do: [${each.value.runbook}](${var.alerts.runbooks}/${each.value.runbook})."
    dynamic "links" {
      for_each = startswith(var.alerts.runbooks, "https://") ? [var.alerts.runbooks] : []
      content {
        display_name = "Runbook: ${each.value.runbook}"
        url          = "${var.alerts.runbooks}/${each.value.runbook}"
      }
    }
  }

  dynamic "conditions" {
    for_each = each.value.conditions
    content {
      display_name = conditions.value.name
      condition_threshold {
        filter                  = conditions.value.filter
        comparison              = conditions.value.comparison
        threshold_value         = conditions.value.threshold
        duration                = conditions.value.duration
        evaluation_missing_data = conditions.value.missing
        # A burn rate is an aggregate already.
        dynamic "aggregations" {
          for_each = conditions.value.align[*]
          content {
            alignment_period     = conditions.value.period
            per_series_aligner   = conditions.value.align
            cross_series_reducer = conditions.value.reduce
            group_by_fields      = conditions.value.by
          }
        }
        denominator_filter = conditions.value.share_of
        dynamic "denominator_aggregations" {
          for_each = conditions.value.share_of[*]
          content {
            alignment_period     = conditions.value.period
            per_series_aligner   = conditions.value.align
            cross_series_reducer = conditions.value.reduce
            group_by_fields      = conditions.value.by
          }
        }
      }
    }
  }

  # A burn rate is that of the objective; metrics made of log lines are looked up by name.
  depends_on = [google_monitoring_slo.webhooks, google_logging_metric.logged]
}
