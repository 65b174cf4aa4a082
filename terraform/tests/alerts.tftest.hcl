# The alerts of a plan: the policies that modules/alerts says, with the objects that they need. Its own
# tests, which need no provider, hold the thresholds.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  # Known to a plan, for the check that reads it.
  mock_resource "google_cloud_run_v2_service" {
    override_during = plan
    defaults        = { terminal_condition = [] }
  }
  mock_data "google_secret_manager_secret_version" {
    defaults = { enabled = true, destroy_time = "" }
  }
}

variables {
  project_id = "example"
  region     = "europe-west3"
  firestore  = { location = "eur3" }
  images = {
    webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  runbooks = "https://example.com/runbooks"
  target_urls = {
    SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example"
    PLATFORM_URL             = "https://platform.example"
    GATEWAY_URL              = "https://gateway.example"
    NOTIFICATION_SERVICE_URL = "https://notifications.example"
    SEARCH_URL               = "https://search.example"
    ANALYTICS_URL            = "https://analytics.example"
  }
}

# Nobody is told, which is a warning.
run "every_alert" {
  command = plan

  variables {
    notification_channels = []
  }

  expect_failures = [check.notification_channels]

  assert {
    condition     = toset(keys(google_monitoring_alert_policy.alert)) == toset(keys(module.alerts.policies))
    error_message = "Each policy is made."
  }
  assert {
    condition = alltrue([
      for policy in values(google_monitoring_alert_policy.alert) :
      startswith(policy.documentation[0].links[0].url, "https://example.com/runbooks/") && endswith(policy.documentation[0].links[0].url, ".md")
    ])
    error_message = "Each alert links its runbook."
  }
  assert {
    condition = alltrue(flatten([
      for name, policy in google_monitoring_alert_policy.alert : [
        for i, c in policy.conditions :
        c.condition_threshold[0].filter == module.alerts.policies[name].conditions[i].filter &&
        c.condition_threshold[0].threshold_value == module.alerts.policies[name].conditions[i].threshold &&
        c.condition_threshold[0].comparison == module.alerts.policies[name].conditions[i].comparison &&
        c.condition_threshold[0].duration == module.alerts.policies[name].conditions[i].duration &&
        [for a in c.condition_threshold[0].aggregations : join(" ", concat([a.alignment_period, a.per_series_aligner, a.cross_series_reducer], tolist(a.group_by_fields)))] ==
        [for align in module.alerts.policies[name].conditions[i].align[*] : join(" ", concat([module.alerts.policies[name].conditions[i].period, align, module.alerts.policies[name].conditions[i].reduce], module.alerts.policies[name].conditions[i].by))]
      ]
    ]))
    error_message = "Each condition is the module's."
  }
  assert {
    condition     = google_monitoring_alert_policy.alert["tasks-stopped"].conditions[0].condition_threshold[0].evaluation_missing_data == "EVALUATION_MISSING_DATA_ACTIVE" && google_monitoring_alert_policy.alert["push-failures"].conditions[0].condition_threshold[0].denominator_filter == module.alerts.policies["push-failures"].conditions[0].share_of
    error_message = "No run, and no news of any, are the same; and a share has what it is a share of."
  }
  assert {
    condition     = alltrue([for task in keys(google_cloud_scheduler_job.task) : strcontains(google_monitoring_alert_policy.alert["tasks-stopped"].conditions[0].condition_threshold[0].filter, "\"${task}\"")])
    error_message = "Each task that is called is missed."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.alert["slo-burn"].conditions[0].condition_threshold[0].filter, "projects/123456789012/services/${google_monitoring_slo.webhooks.service}/serviceLevelObjectives/${google_monitoring_slo.webhooks.slo_id}\"")
    error_message = "The burn rate is that of the objective."
  }
  assert {
    condition = alltrue([
      for name in ["open-dead-letters", "oldest-dead-letter-seconds"] :
      google_logging_metric.logged[name].label_extractors == tomap({ queue = "EXTRACT(jsonPayload.queue)" }) &&
      google_logging_metric.logged[name].metric_descriptor[0].value_type == "DISTRIBUTION" &&
      strcontains(google_logging_metric.logged[name].filter, "jsonPayload.message=\"open dead letters\"")
    ])
    error_message = "The numbers are those of the task's lines, by queue."
  }
  assert {
    condition     = length([for id, q in module.catalog.queues : id if q.enabled]) + 1 == length(distinct([for tile in jsondecode(google_monitoring_dashboard.this.dashboard_json).mosaicLayout.tiles : tile.yPos]))
    error_message = "The dashboard has a row for each enabled queue, and one for the services."
  }
}
