# The alerts of a plan: the catalog's thresholds, on what they say they are on.

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

run "there_are_none_before_the_services" {
  command = plan

  variables {
    images    = null
    bootstrap = true
  }

  assert {
    condition     = length(google_monitoring_alert_policy.alert) == 0 && length(google_logging_metric.logged) > 0
    error_message = "Without services there is nothing to tell of; the metrics are known when they come."
  }
}

run "open_dead_letters" {
  command = plan

  assert {
    condition = alltrue([
      for id, q in module.catalog.queues :
      google_monitoring_alert_policy.alert["dead-letters/${id}"].conditions[0].condition_threshold[0].threshold_value == q.dead_letter.alert_above
      if !q.dead_letter.drop
    ])
    error_message = "Dead letters alert above the catalog's number."
  }
  assert {
    condition = alltrue([
      for id, q in module.catalog.queues :
      google_monitoring_alert_policy.alert["oldest-dead-letter/${id}"].conditions[0].condition_threshold[0].threshold_value == tonumber(trimsuffix(q.dead_letter.oldest_alert, "s"))
      if !q.dead_letter.drop
    ])
    error_message = "The oldest dead letter alerts at the catalog's age."
  }
  assert {
    condition = alltrue(flatten([
      for id, q in module.catalog.queues : [
        for name, metric in { "dead-letters" = "open-dead-letters", "oldest-dead-letter" = "oldest-dead-letter-seconds" } :
        strcontains(google_monitoring_alert_policy.alert["${name}/${id}"].conditions[0].condition_threshold[0].filter, "/user/billhook-${metric}\"") &&
        endswith(google_monitoring_alert_policy.alert["${name}/${id}"].conditions[0].condition_threshold[0].filter, " metric.labels.queue = \"${id}\"")
      ] if !q.dead_letter.drop
    ]))
    error_message = "What is counted is what is open, of the one queue."
  }
  assert {
    condition = !anytrue(flatten([
      for name, policy in google_monitoring_alert_policy.alert : [for c in policy.conditions : strcontains(c.condition_threshold[0].filter, "-hold")]
      if !startswith(name, "slo-burn/") # whose filter is known once there is an objective
    ]))
    error_message = "No alert is on a hold subscription: it keeps what was dealt with, too."
  }
  assert {
    condition = alltrue([
      for id, q in module.catalog.queues :
      length(google_monitoring_alert_policy.alert["dead-letters/${id}"].conditions) == (q.enabled ? 2 : 1) &&
      (!q.enabled || strcontains(google_monitoring_alert_policy.alert["dead-letters/${id}"].conditions[q.enabled ? 1 : 0].condition_threshold[0].filter, "\"${q.dead_letter.push_subscription}\""))
      if !q.dead_letter.drop
    ])
    error_message = "Dead letters that do not reach the store alert where a worker should keep them."
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
}

run "a_task_that_is_no_longer_done" {
  command = plan

  assert {
    condition = alltrue([
      for c in flatten([for name, policy in google_monitoring_alert_policy.alert : policy.conditions if startswith(name, "tasks-stopped/")]) :
      c.condition_threshold[0].comparison == "COMPARISON_LT" && c.condition_threshold[0].threshold_value == 1 &&
      c.condition_threshold[0].evaluation_missing_data == "EVALUATION_MISSING_DATA_ACTIVE"
    ])
    error_message = "No run, and no news of any, are the same."
  }
  assert {
    condition = alltrue([
      for task in keys(google_cloud_scheduler_job.task) :
      anytrue([for c in google_monitoring_alert_policy.alert["tasks-stopped/${task}"].conditions : endswith(c.condition_threshold[0].filter, " metric.labels.task = \"${task}\"")])
    ])
    error_message = "Each task that is called is missed."
  }
}

run "each_queue_has_the_catalogs_thresholds" {
  command = plan

  assert {
    condition = alltrue([
      for id, q in module.catalog.queues :
      google_monitoring_alert_policy.alert["oldest-unacked/${id}"].conditions[0].condition_threshold[0].threshold_value == tonumber(trimsuffix(q.oldest_alert, "s"))
      if q.enabled
    ])
    error_message = "The oldest message alerts at the catalog's age."
  }
  assert {
    condition = alltrue([
      for id, q in module.catalog.queues : alltrue([
        for name in ["oldest-unacked", "push-failures", "ack-deadline"] : contains(keys(google_monitoring_alert_policy.alert), "${name}/${id}") == q.enabled
      ])
    ])
    error_message = "Each enabled queue has its alerts."
  }
  assert {
    condition = alltrue([
      for id, q in module.catalog.queues :
      google_monitoring_alert_policy.alert["backlog/${id}"].conditions[0].condition_threshold[0].threshold_value == q.backlog_alert_above &&
      google_monitoring_alert_policy.alert["backlog-warning/${id}"].conditions[0].condition_threshold[0].threshold_value == q.backlog_warn_above &&
      q.backlog_warn_above < q.backlog_alert_above
      if q.enabled
    ])
    error_message = "Each enabled queue has both, the billing queues too."
  }
  assert {
    condition     = toset([for name in keys(google_monitoring_alert_policy.alert) : name if startswith(name, "backlog-full/")]) == toset([for id, q in module.catalog.queues : "backlog-full/${id}" if q.enabled && q.max_backlog.messages > 0])
    error_message = "A bound alerts where it is reached."
  }
}

run "a_warning_comes_before_its_alert" {
  command = plan

  # As many numbers as there can be, also those of queues whose handlers are still to come.
  variables {
    catalog_dir         = "../catalog/testdata/crooked"
    deletion_protection = false
    target_urls         = { POST_OFFICE_URL = "https://post-office.example" }
  }

  assert {
    condition = [
      for name in ["backlog-warning/ordered", "backlog/ordered", "backlog-full/ordered", "dead-letters-warning/ordered", "dead-letters/ordered", "oldest-dead-letter-warning/ordered", "oldest-dead-letter/ordered"] :
      "${google_monitoring_alert_policy.alert[name].severity} ${google_monitoring_alert_policy.alert[name].conditions[0].condition_threshold[0].threshold_value}"
    ] == ["WARNING 5", "ERROR 6", "CRITICAL 7", "WARNING 2", "ERROR 3", "WARNING 0.5", "ERROR 60.5"]
    error_message = "Each band has the catalog's number, and its severity."
  }
  assert {
    condition = alltrue([
      for name in ["backlog-warning/ordered", "backlog/ordered", "backlog-full/ordered"] :
      google_monitoring_alert_policy.alert[name].conditions[0].condition_threshold[0].duration == "60s" &&
      strcontains(google_monitoring_alert_policy.alert[name].conditions[0].condition_threshold[0].filter, "\"ordered-push\" AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\"") &&
      strcontains(google_monitoring_alert_policy.alert[name].documentation[0].content, "/backlog.md")
    ])
    error_message = "A depth counts once it has lasted for 60 s."
  }
  assert {
    condition = strcontains(google_monitoring_alert_policy.alert["backlog-full/ordered"].documentation[0].content, "the door refuses more") && !anytrue([
      for name in ["backlog/bookings", "backlog-warning/bookings", "backlog-full/bookings", "dead-letters-warning/bookings", "oldest-dead-letter-warning/bookings"] : contains(keys(google_monitoring_alert_policy.alert), name)
    ])
    error_message = "A queue without a number has no such alert."
  }
}

run "every_alert" {
  command = plan

  assert {
    condition = alltrue([
      for policy in values(google_monitoring_alert_policy.alert) :
      startswith(policy.documentation[0].links[0].url, "https://example.com/runbooks/") && endswith(policy.documentation[0].links[0].url, ".md")
    ])
    error_message = "Each alert links its runbook."
  }
  assert {
    condition     = alltrue([for policy in values(google_monitoring_alert_policy.alert) : length(policy.conditions) <= 6])
    error_message = "A policy has at most six conditions."
  }
  assert {
    condition = alltrue(flatten([
      for policy in values(google_monitoring_alert_policy.alert) : [
        for c in policy.conditions : [for a in c.condition_threshold[0].aggregations : 60 <= tonumber(trimsuffix(a.alignment_period, "s")) && tonumber(trimsuffix(a.alignment_period, "s")) <= 90000]
      ]
    ]))
    error_message = "Cloud Monitoring aligns over a minute to 25 hours."
  }
  assert {
    condition = alltrue([
      for speed, rate in { fast = 14.4, slow = 6 } :
      google_monitoring_alert_policy.alert["slo-burn/${speed}"].combiner == "AND" &&
      alltrue([for c in google_monitoring_alert_policy.alert["slo-burn/${speed}"].conditions : c.condition_threshold[0].threshold_value == rate && length(c.condition_threshold[0].aggregations) == 0])
    ])
    error_message = "A burn rate alerts where both its windows do."
  }
  assert {
    condition     = length([for id, q in module.catalog.queues : id if q.enabled]) + 1 == length(distinct([for tile in jsondecode(google_monitoring_dashboard.this.dashboard_json).mosaicLayout.tiles : tile.yPos]))
    error_message = "The dashboard has a row for each enabled queue, and one for the services."
  }
}

run "a_share_above_everything_is_refused" {
  command = plan

  variables {
    alerts = { push_failure_share = 2 }
  }

  expect_failures = [var.alerts]
}
