# Alerts. What there are and when they tell is data, in modules/alerts; here they are made. Each links its
# runbook in docs/runbooks; a test finds an alert without a page and a page without an alert.

locals {
  enabled = { for id, q in local.queues : id => q if q.enabled }

  subscription = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = "
  service      = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = "
  logged       = module.alerts.logged
}

module "alerts" {
  source       = "./modules/alerts"
  name         = local.name
  database     = local.database_id
  webhook      = local.webhook_name
  tasks_worker = local.worker_names[local.tasks_pool]
  scaling      = local.scaling
  tasks        = keys(local.tasks)
  sources      = keys(module.catalog.sources)
  queues       = local.enabled
  kept         = { for id, state in local.states : id => local.queues[id] if state == "kept" }
  thresholds   = var.alerts
  more         = local.secret_alerts
  # Known before the objective is made.
  slo = "projects/${local.number}/services/${local.webhook_name}/serviceLevelObjectives/${local.objective}"
}

locals {
  objective = "${local.name}-webhooks-taken"
}

check "notification_channels" {
  assert {
    condition     = !local.deployed || length(var.notification_channels) > 0
    error_message = "Nobody is told of an alert: notification_channels is empty."
  }
}

resource "google_logging_metric" "logged" {
  for_each         = module.alerts.log_metrics
  project          = var.project_id
  name             = each.value.name
  description      = each.value.about
  filter           = each.value.filter
  value_extractor  = each.value.value == null ? null : "EXTRACT(${each.value.value})"
  label_extractors = { for label in each.value.labels : label => "EXTRACT(jsonPayload.${label})" }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = each.value.value == null ? "INT64" : "DISTRIBUTION"
    unit        = each.value.unit
    dynamic "labels" {
      for_each = each.value.labels
      content {
        key         = labels.value
        value_type  = "STRING"
        description = "The ${labels.value} that the line names."
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

  depends_on = [google_project_service.api]
}

resource "google_monitoring_custom_service" "webhook" {
  project      = var.project_id
  service_id   = local.webhook_name
  display_name = "Billhook: webhooks"
  depends_on   = [google_project_service.api]
}

# The share of all answers that are not our own failures.
resource "google_monitoring_slo" "webhooks" {
  project             = var.project_id
  service             = google_monitoring_custom_service.webhook.service_id
  slo_id              = local.objective
  display_name        = "Webhooks answered without a 5xx"
  goal                = module.alerts.objective
  rolling_period_days = 28

  request_based_sli {
    good_total_ratio {
      total_service_filter = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\""
      bad_service_filter   = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"5xx\""
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
  notification_channels = var.notification_channels
  user_labels           = merge(local.labels, { alert = split("/", each.key)[0] })

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.about}\n\nWhat to do: [${each.value.runbook}](${var.runbooks}/${each.value.runbook})."
    dynamic "links" {
      for_each = startswith(var.runbooks, "https://") ? [var.runbooks] : []
      content {
        display_name = "Runbook: ${each.value.runbook}"
        url          = "${var.runbooks}/${each.value.runbook}"
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
  depends_on = [google_project_service.api, google_monitoring_slo.webhooks, google_logging_metric.logged, google_logging_metric.secret_access]
}
