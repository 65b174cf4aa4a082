# Alerts. Each links its runbook, docs/runbooks/<runbook>.md; a test finds an alert
# without a page and a page without an alert. Thresholds of a queue are its catalog's.

locals {
  enabled  = { for id, q in local.queues : id => q if q.enabled }
  lettered = { for id, q in local.queues : id => q if !q.dead_letter.drop }

  # A message may wait as long as the broker lets it before it is late; where messages are
  # useless after a time, somebody should know when half of it is gone.
  late_after = {
    for id, q in local.enabled : id => min(
      var.alerts.oldest_unacked + tonumber(trimsuffix(q.broker.maximum_backoff, "s")),
      q.message_ttl == "0s" ? 604800 : max(60, floor(tonumber(trimsuffix(q.message_ttl, "s")) / 2)),
    )
  }

  subscription = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = "
  service      = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = "

  # What a push that is no ack came back as (Cloud Monitoring: push_request_count).
  push_failures = {
    refused     = "\"remote_server_4xx\""
    failed      = "\"remote_server_5xx\""
    unreachable = "\"unreachable\""
  }

  dead_letters = {
    for id, q in local.lettered : "dead-letters/${id}" => {
      runbook  = "dead-letters"
      severity = "ERROR"
      about    = "Queue ${id} has more than ${q.dead_letter.alert_above} dead letters. The hold subscription keeps each for ${q.dead_letter.retention}, also what was replayed or discarded: when none is open (`billhook queues`), seek it to the time just before you looked."
      conditions = [{
        name   = "dead letters above ${q.dead_letter.alert_above}", threshold = q.dead_letter.alert_above, for = "0s"
        filter = "${local.subscription}\"${q.dead_letter.hold_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\""
        align  = "ALIGN_MAX", reduce = "REDUCE_SUM", period = "60s", denominator = null
      }]
    }
  }

  oldest_dead_letter = {
    for id, q in local.lettered : "oldest-dead-letter/${id}" => {
      runbook  = "oldest-dead-letter"
      severity = "ERROR"
      about    = "The oldest dead letter of queue ${id} has waited for more than ${q.dead_letter.oldest_alert}."
      conditions = [{
        name   = "oldest dead letter above ${q.dead_letter.oldest_alert}", threshold = tonumber(trimsuffix(q.dead_letter.oldest_alert, "s")), for = "0s"
        filter = "${local.subscription}\"${q.dead_letter.hold_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
        align  = "ALIGN_MAX", reduce = "REDUCE_MAX", period = "60s", denominator = null
      }]
    } if q.dead_letter.oldest_alert != "0s"
  }

  oldest_unacked = {
    for id, q in local.enabled : "oldest-unacked/${id}" => {
      runbook  = "oldest-unacked"
      severity = "ERROR"
      about    = "Queue ${id} falls behind: its oldest message waits for more than ${local.late_after[id]} s${q.backlog_alert_above > 0 ? ", or more than ${q.backlog_alert_above} wait" : ""}."
      conditions = concat([{
        name   = "oldest message above ${local.late_after[id]} s", threshold = local.late_after[id], for = "60s"
        filter = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
        align  = "ALIGN_MAX", reduce = "REDUCE_MAX", period = "60s", denominator = null
        }], q.backlog_alert_above == 0 ? [] : [{
        name   = "more than ${q.backlog_alert_above} messages", threshold = q.backlog_alert_above, for = "60s"
        filter = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\""
        align  = "ALIGN_MAX", reduce = "REDUCE_SUM", period = "60s", denominator = null
      }])
    }
  }

  push_failure = {
    for id, q in local.enabled : "push-failures/${id}" => {
      runbook  = "push-failures"
      severity = "ERROR"
      about    = "More than ${var.alerts.push_failure_share * 100} % of queue ${id}'s pushes fail; the condition says with what."
      conditions = [for class, value in local.push_failures : {
        name        = "pushes ${class}", threshold = var.alerts.push_failure_share, for = "300s"
        filter      = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/push_request_count\" AND metric.labels.response_class = ${value}"
        align       = "ALIGN_RATE", reduce = "REDUCE_SUM", period = "300s"
        denominator = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/push_request_count\""
      }]
    }
  }

  ack_deadline = {
    for id, q in local.enabled : "ack-deadline/${id}" => {
      runbook  = "ack-deadline"
      severity = "WARNING"
      about    = "A push of queue ${id} was not answered within its ${q.ack_deadline_seconds} s, and is delivered again while the first may still run."
      conditions = [{
        name   = "pushes past the ack deadline", threshold = 0, for = "0s"
        filter = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/push_request_count\" AND metric.labels.response_class = \"deadline_exceeded\""
        align  = "ALIGN_DELTA", reduce = "REDUCE_SUM", period = "300s", denominator = null
      }]
    }
  }

  max_instances = {
    for name, most in merge(
      { (local.webhook_name) = var.webhook_scaling.max },
      { for pool, p in local.pools : local.worker_names[pool] => p.max_instances },
      ) : "max-instances/${name}" => {
      runbook  = "max-instances"
      severity = "WARNING"
      about    = "Service ${name} has run on all of its ${most} instances for ten minutes."
      conditions = [{
        name   = "all ${most} instances", threshold = most - 0.5, for = "600s"
        filter = "${local.service}\"${name}\" AND metric.type = \"run.googleapis.com/container/instance_count\" AND metric.labels.state = \"active\""
        align  = "ALIGN_MAX", reduce = "REDUCE_SUM", period = "60s", denominator = null
      }]
    }
  }

  of_the_system = {
    "ingest-errors" = {
      runbook  = "ingest-errors"
      severity = "CRITICAL"
      about    = "More than ${var.alerts.ingest_error_share * 100} % of webhooks are answered 5xx. Senders keep what they were not told is taken, for a while."
      conditions = [{
        name        = "5xx above ${var.alerts.ingest_error_share * 100} %", threshold = var.alerts.ingest_error_share, for = "300s"
        filter      = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"5xx\""
        align       = "ALIGN_RATE", reduce = "REDUCE_SUM", period = "300s"
        denominator = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\""
      }]
    }
    "outbox-stuck" = {
      runbook  = "outbox-stuck"
      severity = "ERROR"
      about    = "A message was committed, or is due, for more than ${var.alerts.outbox_oldest} s and is not published."
      conditions = [for task in ["relay-outbox", "release-delayed"] : {
        name   = "${task}: oldest above ${var.alerts.outbox_oldest} s", threshold = var.alerts.outbox_oldest, for = "0s"
        filter = "resource.type = \"cloud_run_revision\" AND metric.type = \"logging.googleapis.com/user/${google_logging_metric.oldest.name}\" AND metric.labels.task = \"${task}\""
        align  = "ALIGN_PERCENTILE_99", reduce = "REDUCE_MAX", period = "300s", denominator = null
      }]
    }
    "orphans" = {
      runbook  = "orphans"
      severity = "ERROR"
      about    = "The sweep found events that were claimed and never finished, and whose redelivery was not in sight."
      conditions = [{
        name   = "orphans", threshold = 0, for = "0s"
        filter = "resource.type = \"cloud_run_revision\" AND metric.type = \"logging.googleapis.com/user/${google_logging_metric.orphans.name}\""
        align  = "ALIGN_DELTA", reduce = "REDUCE_SUM", period = "300s", denominator = null
      }]
    }
    "ttl-dead" = {
      runbook  = "ttl-dead"
      severity = "WARNING"
      about    = "Firestore's TTL deletes later than ${var.alerts.ttl_late_by} s after expiry, or no longer: records grow without end."
      conditions = [{
        name   = "deleted too late", threshold = var.alerts.ttl_late_by, for = "0s"
        filter = "resource.type = \"firestore.googleapis.com/Database\" AND resource.labels.database_id = \"${var.firestore.database}\" AND metric.type = \"firestore.googleapis.com/document/ttl_expiration_to_deletion_delays\""
        align  = "ALIGN_PERCENTILE_99", reduce = "REDUCE_MAX", period = "3600s", denominator = null
      }]
    }
  }

  alerts = merge(
    local.dead_letters, local.oldest_dead_letter, local.oldest_unacked, local.push_failure, local.ack_deadline, local.max_instances,
    local.of_the_system,
  )

  # A condition on what is missing, and burn rates, are of another form than thresholds.
  absences = {
    "webhooks-stopped" = {
      runbook  = "webhooks-stopped"
      name     = "no webhook was accepted for ${var.alerts.webhooks_silent_for} s"
      about    = "No webhook was answered 2xx for ${var.alerts.webhooks_silent_for} s: the sender has stopped, or its webhooks do not arrive."
      severity = "ERROR"
      duration = "${var.alerts.webhooks_silent_for}s"
      filter   = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"2xx\""
    }
    "ttl-dead" = {
      runbook  = "ttl-dead"
      name     = "nothing was deleted for 23.5 hours"
      about    = "Firestore's TTL has deleted nothing for 23.5 hours: records grow without end."
      severity = "WARNING"
      duration = "84600s"
      filter   = "resource.type = \"firestore.googleapis.com/Database\" AND resource.labels.database_id = \"${var.firestore.database}\" AND metric.type = \"firestore.googleapis.com/document/ttl_deletion_count\""
    }
  }

  # The usual two: a fiftieth of the month's budget in an hour, a twentieth in six.
  burns = {
    fast = { runbook = "slo-burn", rate = 14.4, long = "3600s", short = "300s", severity = "CRITICAL" }
    slow = { runbook = "slo-burn", rate = 6, long = "21600s", short = "1800s", severity = "ERROR" }
  }
}

resource "google_logging_metric" "oldest" {
  project     = var.project
  name        = "${var.name}-oldest-seconds"
  description = "Age of the oldest message that a task has left unpublished."
  filter      = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${local.worker_names[local.tasks_pool]}\" AND jsonPayload.message=\"task\" AND (jsonPayload.task=\"relay-outbox\" OR jsonPayload.task=\"release-delayed\")"

  value_extractor  = "EXTRACT(jsonPayload.done.oldest_seconds)"
  label_extractors = { task = "EXTRACT(jsonPayload.task)" }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "DISTRIBUTION"
    unit        = "s"
    labels {
      key         = "task"
      value_type  = "STRING"
      description = "The task that left it."
    }
  }

  bucket_options {
    exponential_buckets {
      num_finite_buckets = 20
      growth_factor      = 2
      scale              = 1
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_logging_metric" "orphans" {
  project     = var.project
  name        = "${var.name}-orphans"
  description = "Events that were claimed and never finished."
  filter      = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${local.worker_names[local.tasks_pool]}\" AND jsonPayload.message=\"orphan\""

  label_extractors = { queue = "EXTRACT(jsonPayload.queue)" }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
    labels {
      key         = "queue"
      value_type  = "STRING"
      description = "The queue of the event."
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_monitoring_alert_policy" "threshold" {
  for_each              = local.alerts
  project               = var.project
  display_name          = "${var.name}: ${each.key}"
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = var.notification_channels
  user_labels           = merge(local.labels, { alert = each.value.runbook })

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.about}\n\nWhat to do: [${each.value.runbook}](${var.runbooks}/${each.value.runbook}.md)."
    dynamic "links" {
      for_each = startswith(var.runbooks, "https://") ? [var.runbooks] : []
      content {
        display_name = "Runbook: ${each.value.runbook}"
        url          = "${var.runbooks}/${each.value.runbook}.md"
      }
    }
  }

  dynamic "conditions" {
    for_each = each.value.conditions
    content {
      display_name = conditions.value.name
      condition_threshold {
        filter          = conditions.value.filter
        comparison      = "COMPARISON_GT"
        threshold_value = conditions.value.threshold
        duration        = conditions.value.for
        aggregations {
          alignment_period     = conditions.value.period
          per_series_aligner   = conditions.value.align
          cross_series_reducer = conditions.value.reduce
        }
        denominator_filter = conditions.value.denominator
        dynamic "denominator_aggregations" {
          for_each = conditions.value.denominator == null ? [] : [conditions.value]
          content {
            alignment_period     = denominator_aggregations.value.period
            per_series_aligner   = denominator_aggregations.value.align
            cross_series_reducer = denominator_aggregations.value.reduce
          }
        }
      }
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_monitoring_alert_policy" "absence" {
  for_each              = local.absences
  project               = var.project
  display_name          = "${var.name}: ${each.key}, ${each.value.name}"
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = var.notification_channels
  user_labels           = merge(local.labels, { alert = each.value.runbook })

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.about}\n\nWhat to do: [${each.value.runbook}](${var.runbooks}/${each.value.runbook}.md)."
    dynamic "links" {
      for_each = startswith(var.runbooks, "https://") ? [var.runbooks] : []
      content {
        display_name = "Runbook: ${each.value.runbook}"
        url          = "${var.runbooks}/${each.value.runbook}.md"
      }
    }
  }

  conditions {
    display_name = each.value.name
    condition_absent {
      filter   = each.value.filter
      duration = each.value.duration
      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_monitoring_custom_service" "webhook" {
  project      = var.project
  service_id   = local.webhook_name
  display_name = "Billhook: webhooks"
  depends_on   = [google_project_service.api]
}

# Of what is answered at all, the share that is not our own failure.
resource "google_monitoring_slo" "webhooks" {
  project             = var.project
  service             = google_monitoring_custom_service.webhook.service_id
  slo_id              = "${var.name}-webhooks-taken"
  display_name        = "Webhooks answered without a 5xx"
  goal                = var.alerts.objective
  rolling_period_days = 28

  request_based_sli {
    good_total_ratio {
      total_service_filter = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\""
      bad_service_filter   = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"5xx\""
    }
  }
}

resource "google_monitoring_alert_policy" "burn" {
  for_each              = local.burns
  project               = var.project
  display_name          = "${var.name}: slo-burn, ${each.key}"
  combiner              = "AND"
  severity              = each.value.severity
  notification_channels = var.notification_channels
  user_labels           = merge(local.labels, { alert = each.value.runbook })

  documentation {
    mime_type = "text/markdown"
    content   = "Webhooks fail ${each.value.rate} times as fast as an objective of ${var.alerts.objective} over 28 days allows.\n\nWhat to do: [${each.value.runbook}](${var.runbooks}/${each.value.runbook}.md)."
    dynamic "links" {
      for_each = startswith(var.runbooks, "https://") ? [var.runbooks] : []
      content {
        display_name = "Runbook: ${each.value.runbook}"
        url          = "${var.runbooks}/${each.value.runbook}.md"
      }
    }
  }

  # The short window lets the alert end soon after its cause.
  dynamic "conditions" {
    for_each = [each.value.long, each.value.short]
    content {
      display_name = "burn rate over ${conditions.value}"
      condition_threshold {
        filter          = "select_slo_burn_rate(\"${google_monitoring_slo.webhooks.name}\", \"${conditions.value}\")"
        comparison      = "COMPARISON_GT"
        threshold_value = each.value.rate
        duration        = "0s"
      }
    }
  }
}
