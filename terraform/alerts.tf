# Alerts. Each links its runbook, docs/runbooks/<runbook>.md; a test finds an alert
# without a page and a page without an alert. Thresholds of a queue are its catalog's.

locals {
  enabled  = { for id, q in local.queues : id => q if q.enabled }
  lettered = { for id, q in local.queues : id => q if !q.dead_letter.drop }

  subscription = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = "
  service      = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = "
  database     = "resource.type = \"firestore.googleapis.com/Database\" AND resource.labels.database_id = \"${local.database_id}\""
  logged       = { for name, metric in google_logging_metric.logged : name => "resource.type = \"cloud_run_revision\" AND metric.type = \"logging.googleapis.com/user/${metric.name}\"" }

  # The classes of a failed push's answer (Cloud Monitoring: push_request_count).
  push_failures = {
    refused     = "remote_server_4xx"
    failed      = "remote_server_5xx"
    garbled     = "invalid"
    unreachable = "unreachable"
  }

  # The longest time between two runs of a task is five minutes; three missed runs alert.
  tasks_silent_for = 900
  # A dead letter reaches the store within seconds; later means a fault.
  unkept_after = 300

  # The metrics made of log lines: those of the tasks, which the alerts are on, and those of each
  # webhook and each delivery, which the runbooks name. A value is a distribution, the only
  # kind that takes a number from a line. Its REDUCE_MEAN is exact; a percentile would be as
  # coarse as the buckets.
  log_metrics = {
    oldest-seconds             = { by = "tasks", about = "Age of the oldest message that a task has left unpublished, or entry that it has left without a seal.", filter = "jsonPayload.message=\"task\" AND jsonPayload.done.oldest_seconds>=0", labels = ["task"], value = "jsonPayload.done.oldest_seconds", unit = "s" }
    open-dead-letters          = { by = "tasks", about = "Dead letters that nobody has dealt with.", filter = "jsonPayload.message=\"open dead letters\"", labels = ["queue"], value = "jsonPayload.open", unit = "1" }
    oldest-dead-letter-seconds = { by = "tasks", about = "How long the oldest open dead letter has waited.", filter = "jsonPayload.message=\"open dead letters\"", labels = ["queue"], value = "jsonPayload.oldest_seconds", unit = "s" }
    orphans                    = { by = "tasks", about = "Events that were claimed and never finished.", filter = "jsonPayload.message=\"orphan\"", labels = ["queue"], value = null, unit = "1" }
    pauses-undone              = { by = "tasks", about = "Queues that are paused and pushed all the same.", filter = "jsonPayload.message=\"pause undone\"", labels = ["queue"], value = null, unit = "1" }
    tasks-done                 = { by = "tasks", about = "Runs of a task that finished their work.", filter = "jsonPayload.message=\"task\" AND jsonPayload.done:*", labels = ["task"], value = null, unit = "1" }
    lanes-not-relayed          = { by = "tasks", about = "Ordering keys that a run of a relay could not finish.", filter = "jsonPayload.message=\"lane not relayed\"", labels = ["of"], value = null, unit = "1" }
    deliveries                 = { by = "workers", about = "Deliveries by what became of them.", filter = "jsonPayload.message=\"delivery\"", labels = ["queue", "outcome", "reason"], value = null, unit = "1" }
    delivery-ms                = { by = "workers", about = "From the first byte of a delivery to its answer.", filter = "jsonPayload.message=\"delivery\"", labels = ["queue"], value = "jsonPayload.duration_ms", unit = "ms" }
    webhooks                   = { by = "door", about = "Webhooks by their answer.", filter = "jsonPayload.message=\"webhook\"", labels = ["source", "status", "reason"], value = null, unit = "1" }
    webhook-ms                 = { by = "door", about = "From the first byte of a webhook to its answer.", filter = "jsonPayload.message=\"webhook\"", labels = ["source"], value = "jsonPayload.duration_ms", unit = "ms" }
  }

  # The services whose lines a metric is made of.
  logged_by = {
    tasks   = "=\"${local.worker_names[local.tasks_pool]}\""
    workers = "=~\"^${local.name}-worker-\""
    door    = "=\"${local.webhook_name}\""
  }

  # The defaults of a condition. It is met above a value or below one; below, missing data
  # counts as zero.
  condition = {
    above = null, below = null, for = "0s", period = "60s", align = "ALIGN_MAX", reduce = "REDUCE_MAX", share_of = null
  }

  # A task counts them in the store: the hold subscription also keeps copies of replayed and
  # discarded ones. A queue that is not enabled has no worker and gets no new dead letters,
  # but may have open ones from before.
  dead_letters = {
    for id, q in local.lettered : "dead-letters/${id}" => {
      runbook  = "dead-letters"
      severity = "ERROR"
      about    = "Queue ${id} has more than ${q.dead_letter.alert_above} open dead letters, or some that do not reach the store; the condition names the case."
      conditions = concat([{
        name   = "open dead letters above ${q.dead_letter.alert_above}", above = q.dead_letter.alert_above, period = "120s"
        filter = "${local.logged["open-dead-letters"]} AND metric.labels.queue = \"${id}\"", align = "ALIGN_DELTA", reduce = "REDUCE_MEAN"
        }], q.enabled ? [{
        name   = "dead letters not in the store for ${local.unkept_after} s", above = local.unkept_after
        filter = "${local.subscription}\"${q.dead_letter.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
      }] : [])
    }
  }

  oldest_dead_letter = {
    for id, q in local.lettered : "oldest-dead-letter/${id}" => {
      runbook  = "oldest-dead-letter"
      severity = "ERROR"
      about    = "The oldest open dead letter of queue ${id} has waited for more than ${q.dead_letter.oldest_alert}."
      conditions = [{
        name   = "oldest dead letter above ${q.dead_letter.oldest_alert}", above = tonumber(trimsuffix(q.dead_letter.oldest_alert, "s")), period = "120s"
        filter = "${local.logged["oldest-dead-letter-seconds"]} AND metric.labels.queue = \"${id}\"", align = "ALIGN_DELTA", reduce = "REDUCE_MEAN"
      }]
    } if q.dead_letter.oldest_alert != "0s"
  }

  # The warnings on dead letters come below the alerts' numbers.
  dead_letters_warning = {
    for id, q in local.lettered : "dead-letters-warning/${id}" => {
      runbook  = "dead-letters"
      severity = "WARNING"
      about    = "Queue ${id} has more than ${q.dead_letter.warn_above} open dead letters, more than is normal; above ${q.dead_letter.alert_above} it is an alert."
      conditions = [{
        name   = "open dead letters above ${q.dead_letter.warn_above}", above = q.dead_letter.warn_above, period = "120s"
        filter = "${local.logged["open-dead-letters"]} AND metric.labels.queue = \"${id}\"", align = "ALIGN_DELTA", reduce = "REDUCE_MEAN"
      }]
    } if q.dead_letter.warn_above < q.dead_letter.alert_above
  }

  oldest_dead_letter_warning = {
    for id, q in local.lettered : "oldest-dead-letter-warning/${id}" => {
      runbook  = "oldest-dead-letter"
      severity = "WARNING"
      about    = "The oldest open dead letter of queue ${id} has waited for more than ${q.dead_letter.oldest_warn}; after ${q.dead_letter.oldest_alert} it is an alert."
      conditions = [{
        name   = "oldest dead letter above ${q.dead_letter.oldest_warn}", above = tonumber(trimsuffix(q.dead_letter.oldest_warn, "s")), period = "120s"
        filter = "${local.logged["oldest-dead-letter-seconds"]} AND metric.labels.queue = \"${id}\"", align = "ALIGN_DELTA", reduce = "REDUCE_MEAN"
      }]
    } if q.dead_letter.oldest_warn != "0s"
  }

  oldest_unacked = {
    for id, q in local.enabled : "oldest-unacked/${id}" => {
      runbook  = "oldest-unacked"
      severity = "ERROR"
      about    = "Queue ${id} falls behind: its oldest message waits for more than ${q.oldest_alert}."
      conditions = [{
        name   = "oldest message above ${q.oldest_alert}", above = tonumber(trimsuffix(q.oldest_alert, "s")), for = "60s"
        filter = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
      }]
    }
  }

  # How many messages of a queue wait: a warning, an alert, and the bound of its backlog.
  depths = merge([
    for id, q in local.enabled : {
      "backlog-warning/${id}" = { queue = q, above = q.backlog_warn_above, severity = "WARNING", then = "above ${q.backlog_alert_above} it is an alert" }
      "backlog/${id}"         = { queue = q, above = q.backlog_alert_above, severity = "ERROR", then = "they come late" }
      "backlog-full/${id}" = {
        queue = q, above = q.max_backlog.messages, severity = "CRITICAL"
        then  = q.max_backlog.on_full == "refuse" ? "that is its bound, and the door refuses more" : "that is its bound, and the door still takes more"
      }
    }
  ]...)

  backlog = {
    for name, d in local.depths : name => {
      runbook  = "backlog"
      severity = d.severity
      about    = "More than ${d.above} messages of queue ${d.queue.id} have waited for a minute: ${d.then}."
      conditions = [{
        name   = "more than ${d.above} messages", above = d.above, for = "60s", reduce = "REDUCE_SUM"
        filter = "${local.subscription}\"${d.queue.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\""
      }]
    } if d.above > 0
  }

  push_failure = {
    for id, q in local.enabled : "push-failures/${id}" => {
      runbook  = "push-failures"
      severity = "ERROR"
      about    = "More than ${var.alerts.push_failure_share * 100} % of queue ${id}'s pushes fail; the condition names the class of the answer."
      conditions = [for class, value in local.push_failures : {
        name     = "pushes ${class}", above = var.alerts.push_failure_share, for = "300s", period = "300s", align = "ALIGN_RATE", reduce = "REDUCE_SUM"
        filter   = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/push_request_count\" AND metric.labels.response_class = \"${value}\""
        share_of = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/push_request_count\""
      }]
    }
  }

  ack_deadline = {
    for id, q in local.enabled : "ack-deadline/${id}" => {
      runbook  = "ack-deadline"
      severity = "WARNING"
      about    = "A push of queue ${id} was not answered within its ${q.ack_deadline_seconds} s, and is delivered again while the first may still run."
      conditions = [{
        name   = "pushes past the ack deadline", above = 0, period = "300s", align = "ALIGN_DELTA", reduce = "REDUCE_SUM"
        filter = "${local.subscription}\"${q.push_subscription}\" AND metric.type = \"pubsub.googleapis.com/subscription/push_request_count\" AND metric.labels.response_class = \"deadline_exceeded\""
      }]
    }
  }

  max_instances = {
    for name, most in { for name, s in local.scaling : name => s.max } : "max-instances/${name}" => {
      runbook  = "max-instances"
      severity = "WARNING"
      about    = "Service ${name} has run on all of its ${most} instances for ten minutes."
      conditions = [{
        name   = "all ${most} instances", above = most - 0.5, for = "600s", reduce = "REDUCE_SUM"
        filter = "${local.service}\"${name}\" AND metric.type = \"run.googleapis.com/container/instance_count\" AND metric.labels.state = \"active\""
      }]
    }
  }

  of_the_system = {
    "ingest-errors" = {
      runbook  = "ingest-errors"
      severity = "CRITICAL"
      about    = "More than ${var.alerts.ingest_error_share * 100} % of webhooks are answered 5xx. Senders keep events without a confirmation, for a while."
      conditions = [{
        name     = "5xx above ${var.alerts.ingest_error_share * 100} %", above = var.alerts.ingest_error_share, for = "300s", period = "300s", align = "ALIGN_RATE", reduce = "REDUCE_SUM"
        filter   = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"5xx\""
        share_of = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\""
      }]
    }
    "webhooks-stopped" = {
      runbook  = "webhooks-stopped"
      severity = "ERROR"
      about    = "No webhook was answered 2xx for ${var.alerts.webhooks_silent_for} s: the sender has stopped, or its webhooks do not arrive."
      conditions = [{
        name   = "no webhook was accepted for ${var.alerts.webhooks_silent_for} s", below = 1, for = "60s", period = "${var.alerts.webhooks_silent_for}s", align = "ALIGN_DELTA", reduce = "REDUCE_SUM"
        filter = "${local.service}\"${local.webhook_name}\" AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"2xx\""
      }]
    }
    "outbox-stuck" = {
      runbook  = "outbox-stuck"
      severity = "ERROR"
      about    = "A message has been committed, or due, for more than ${var.alerts.outbox_oldest} s and is not published."
      conditions = [for task in ["relay-outbox", "release-delayed"] : {
        name   = "${task}: oldest above ${var.alerts.outbox_oldest} s", above = var.alerts.outbox_oldest, period = "120s", align = "ALIGN_DELTA", reduce = "REDUCE_MEAN"
        filter = "${local.logged["oldest-seconds"]} AND metric.labels.task = \"${task}\""
      }]
    }
    "unsealed" = {
      runbook  = "unsealed"
      severity = "ERROR"
      about    = "An entry of the books was posted more than ${var.alerts.unsealed_oldest} s ago and has no seal: a change of it would not be found."
      conditions = [{
        name   = "oldest entry without a seal above ${var.alerts.unsealed_oldest} s", above = var.alerts.unsealed_oldest, period = "120s", align = "ALIGN_DELTA", reduce = "REDUCE_MEAN"
        filter = "${local.logged["oldest-seconds"]} AND metric.labels.task = \"seal-journal\""
      }]
    }
    "orphans" = {
      runbook  = "orphans"
      severity = "ERROR"
      about    = "The sweep found events that were claimed, never finished and not delivered again."
      conditions = [{
        name   = "orphans", above = 0, period = "300s", align = "ALIGN_DELTA", reduce = "REDUCE_SUM"
        filter = local.logged["orphans"]
      }]
    }
    "pause-undone" = {
      runbook  = "pause-undone"
      severity = "CRITICAL"
      about    = "A queue is paused, and its messages are pushed all the same: somebody has given its subscription the endpoint past Billhook."
      conditions = [{
        name   = "a pause was undone", above = 0, period = "120s", align = "ALIGN_DELTA", reduce = "REDUCE_SUM"
        filter = local.logged["pauses-undone"]
      }]
    }
    "ttl-dead" = {
      runbook  = "ttl-dead"
      severity = "WARNING"
      about    = "Firestore's TTL deletes later than ${var.alerts.ttl_late_by} s after expiry, or no longer: records grow without end."
      conditions = [
        {
          name   = "deleted too late", above = var.alerts.ttl_late_by, period = "3600s", align = "ALIGN_PERCENTILE_99"
          filter = "${local.database} AND metric.type = \"firestore.googleapis.com/document/ttl_expiration_to_deletion_delays\""
        },
        {
          name   = "nothing was deleted for 23.5 hours", below = 1, for = "60s", period = "84600s", align = "ALIGN_DELTA", reduce = "REDUCE_SUM"
          filter = "${local.database} AND metric.type = \"firestore.googleapis.com/document/ttl_deletion_count\""
        },
      ]
    }
  }

  # A policy for each task: one policy has six conditions at most.
  tasks_stopped = {
    for task in keys(local.tasks) : "tasks-stopped/${task}" => {
      runbook  = "tasks-stopped"
      severity = "ERROR"
      about    = "The task ${task} was not done for ${local.tasks_silent_for} s. Its measurements are missing, too: alerts on what it counts are blind."
      conditions = [{
        name   = "${task} was not done for ${local.tasks_silent_for} s", below = 1, for = "60s", period = "${local.tasks_silent_for}s", align = "ALIGN_DELTA", reduce = "REDUCE_SUM"
        filter = "${local.logged["tasks-done"]} AND metric.labels.task = \"${task}\""
      }]
    }
  }

  # The usual two: a fiftieth of the month's budget in an hour, a twentieth in six. The
  # short window lets the alert end soon after its cause.
  burn = {
    for speed, b in {
      fast = { rate = 14.4, windows = ["3600s", "300s"], severity = "CRITICAL" }
      slow = { rate = 6, windows = ["21600s", "1800s"], severity = "ERROR" }
      } : "slo-burn/${speed}" => {
      runbook  = "slo-burn"
      severity = b.severity
      combiner = "AND"
      about    = "Webhooks fail ${b.rate} times as fast as an objective of ${var.alerts.objective} over 28 days allows."
      conditions = [for window in b.windows : {
        name   = "burn rate over ${window}", above = b.rate, align = null
        filter = "select_slo_burn_rate(\"${google_monitoring_slo.webhooks.name}\", \"${window}\")"
      }]
    }
  }

  alerts = merge(
    local.dead_letters, local.dead_letters_warning, local.oldest_dead_letter, local.oldest_dead_letter_warning, local.backlog, local.oldest_unacked, local.push_failure, local.ack_deadline, local.max_instances,
    local.of_the_system, local.tasks_stopped, local.burn,
  )
}

resource "google_logging_metric" "logged" {
  for_each         = local.log_metrics
  project          = var.project_id
  name             = "${local.name}-${each.key}"
  description      = each.value.about
  filter           = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name${local.logged_by[each.value.by]} AND ${each.value.filter}"
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
  slo_id              = "${local.name}-webhooks-taken"
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

# Alerts are made with the services: there is nothing to watch before, and Cloud Monitoring
# takes some minutes to know metrics made of log lines.
resource "google_monitoring_alert_policy" "alert" {
  for_each              = { for name, alert in local.alerts : name => alert if local.deployed }
  project               = var.project_id
  display_name          = "${local.name}: ${each.key}"
  combiner              = try(each.value.combiner, "OR")
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
    for_each = [for c in each.value.conditions : merge(local.condition, c)]
    content {
      display_name = conditions.value.name
      condition_threshold {
        filter                  = conditions.value.filter
        comparison              = conditions.value.below == null ? "COMPARISON_GT" : "COMPARISON_LT"
        threshold_value         = conditions.value.below == null ? conditions.value.above : conditions.value.below
        duration                = conditions.value.for
        evaluation_missing_data = conditions.value.below == null ? null : "EVALUATION_MISSING_DATA_ACTIVE"
        # A burn rate is an aggregate already.
        dynamic "aggregations" {
          for_each = conditions.value.align[*]
          content {
            alignment_period     = conditions.value.period
            per_series_aligner   = conditions.value.align
            cross_series_reducer = conditions.value.reduce
          }
        }
        denominator_filter = conditions.value.share_of
        dynamic "denominator_aggregations" {
          for_each = conditions.value.share_of[*]
          content {
            alignment_period     = conditions.value.period
            per_series_aligner   = conditions.value.align
            cross_series_reducer = conditions.value.reduce
          }
        }
      }
    }
  }

  depends_on = [google_project_service.api]
}
