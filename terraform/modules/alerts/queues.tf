# The alerts of queues: one cause is one policy for all queues. A condition is one threshold, and its
# series are grouped by queue: each queue has an incident of its own.

locals {
  push    = { for id, q in var.queues : id => q.push_subscription }
  letters = { for id, q in var.queues : id => q.dead_letter.push_subscription if !q.dead_letter.drop }
  kept    = { for id, q in var.kept : id => q.push_subscription }
  open    = { for id, q in var.queues : id => id if !q.dead_letter.drop }

  of_subscription = "resource.type = \"pubsub_subscription\" AND metric.type = \"pubsub.googleapis.com/subscription/"

  # What is measured of a queue: its series, the label that tells the queues apart, its value for
  # each queue, and how points become one number.
  measured = {
    age      = { filter = "${local.of_subscription}oldest_unacked_message_age\"", label = "resource.label.subscription_id", values = local.push, align = "ALIGN_MAX", reduce = "REDUCE_MAX", period = "60s", duration = "60s" }
    depth    = { filter = "${local.of_subscription}num_undelivered_messages\"", label = "resource.label.subscription_id", values = local.push, align = "ALIGN_MAX", reduce = "REDUCE_SUM", period = "60s", duration = "60s" }
    kept     = { filter = "${local.of_subscription}oldest_unacked_message_age\"", label = "resource.label.subscription_id", values = local.kept, align = "ALIGN_MAX", reduce = "REDUCE_MAX", period = "60s", duration = "60s" }
    unkept   = { filter = "${local.of_subscription}oldest_unacked_message_age\"", label = "resource.label.subscription_id", values = local.letters, align = "ALIGN_MAX", reduce = "REDUCE_MAX", period = "60s", duration = "60s" }
    letters  = { filter = local.logged["open-dead-letters"], label = "metric.label.queue", values = local.open, align = "ALIGN_DELTA", reduce = "REDUCE_MEAN", period = "120s", duration = "0s" }
    unsolved = { filter = local.logged["oldest-dead-letter-seconds"], label = "metric.label.queue", values = local.open, align = "ALIGN_DELTA", reduce = "REDUCE_MEAN", period = "120s", duration = "0s" }
  }

  # A dead letter reaches the store within seconds; later means a fault.
  unkept_after = 300

  # The thresholds of each queue, where it has one. A warning lies below its alert.
  queue_causes = {
    "oldest-unacked" = {
      runbook = "waiting.md#oldest-unacked", severity = "ERROR", of = "age", name = "oldest message above %g s"
      about   = "A queue falls behind: its oldest message waits for longer than the catalog's oldest_alert."
      at      = { for id, q in var.queues : id => tonumber(trimsuffix(q.oldest_alert, "s")) }
    }
    # Nothing takes these messages until somebody resumes the queue, or gives them up.
    "kept-backlog" = {
      runbook = "waiting.md#kept-backlog", severity = "ERROR", of = "kept", name = "oldest message above %g s"
      about   = "A queue is off and kept, and three quarters of the time for which Pub/Sub keeps its oldest message are over."
      at      = { for id, q in var.kept : id => tonumber(trimsuffix(q.message_retention_duration, "s")) * 3 / 4 }
    }
    "backlog-warning" = {
      runbook = "waiting.md#backlog", severity = "WARNING", of = "depth", name = "more than %g messages"
      about   = "More messages of a queue have waited for a minute than the catalog's backlog_warn_above."
      at      = { for id, q in var.queues : id => q.backlog_warn_above if q.backlog_warn_above > 0 }
    }
    "backlog" = {
      runbook = "waiting.md#backlog", severity = "ERROR", of = "depth", name = "more than %g messages"
      about   = "More messages of a queue have waited for a minute than the catalog's backlog_alert_above: they come late."
      at      = { for id, q in var.queues : id => q.backlog_alert_above if q.backlog_alert_above > 0 }
    }
    "backlog-full" = {
      runbook = "waiting.md#backlog", severity = "CRITICAL", of = "depth", name = "more than %g messages"
      about   = "A queue has reached its bound, max_backlog of the catalog: where on_full is refuse, the webhook service refuses more."
      at      = { for id, q in var.queues : id => q.max_backlog.messages if q.max_backlog.messages > 0 }
    }
    # A task counts the open ones in the store: the hold subscription also keeps copies of those that
    # were replayed or discarded.
    "dead-letters" = {
      runbook = "dead-letters.md", severity = "ERROR", of = "letters", name = "open dead letters above %g"
      about   = "A queue has more open dead letters than the catalog's dead_letter.alert_above."
      at      = { for id in keys(local.open) : id => var.queues[id].dead_letter.alert_above }
    }
    "dead-letters-warning" = {
      runbook = "dead-letters.md", severity = "WARNING", of = "letters", name = "open dead letters above %g"
      about   = "A queue has more open dead letters than is normal: the catalog's dead_letter.warn_above."
      at      = { for id in keys(local.open) : id => var.queues[id].dead_letter.warn_above if var.queues[id].dead_letter.warn_above < var.queues[id].dead_letter.alert_above }
    }
    "dead-letters-unkept" = {
      runbook = "dead-letters.md", severity = "ERROR", of = "unkept", name = "dead letters not in the store for %g s"
      about   = "Dead letters of a queue do not reach the store, so nobody sees or replays them."
      at      = { for id in keys(local.letters) : id => local.unkept_after }
    }
    "oldest-dead-letter" = {
      runbook = "dead-letters.md#oldest-dead-letter", severity = "ERROR", of = "unsolved", name = "oldest dead letter above %g s"
      about   = "The oldest open dead letter of a queue has waited for longer than the catalog's dead_letter.oldest_alert."
      at      = { for id in keys(local.open) : id => tonumber(trimsuffix(var.queues[id].dead_letter.oldest_alert, "s")) if var.queues[id].dead_letter.oldest_alert != "0s" }
    }
    "oldest-dead-letter-warning" = {
      runbook = "dead-letters.md#oldest-dead-letter", severity = "WARNING", of = "unsolved", name = "oldest dead letter above %g s"
      about   = "The oldest open dead letter of a queue has waited for longer than the catalog's dead_letter.oldest_warn."
      at      = { for id in keys(local.open) : id => tonumber(trimsuffix(var.queues[id].dead_letter.oldest_warn, "s")) if var.queues[id].dead_letter.oldest_warn != "0s" }
    }
  }

  # A filter has at most 2048 characters, which hold so many names of queues.
  names_in_a_filter = 20

  # The queues of each threshold, in portions that fit into a filter.
  portions = {
    for cause, c in local.queue_causes : cause => flatten([
      for n in [for text in sort(distinct([for at in values(c.at) : format("%015.3f", at)])) : tonumber(text)] : [
        for ids in chunklist([for id, at in c.at : id if at == n], local.names_in_a_filter) : { at = n, ids = ids }
      ]
    ])
  }

  queue_conditions = {
    for cause, c in local.queue_causes : cause => [
      for p in local.portions[cause] : merge(local.condition, {
        name      = format(c.name, p.at)
        filter    = "${local.measured[c.of].filter} AND ${replace(local.measured[c.of].label, ".label.", ".labels.")} = one_of(${join(", ", [for id in p.ids : jsonencode(local.measured[c.of].values[id])])})"
        threshold = p.at
        by        = [local.measured[c.of].label]
        align     = local.measured[c.of].align
        reduce    = local.measured[c.of].reduce
        period    = local.measured[c.of].period
        duration  = local.measured[c.of].duration
      })
    ]
  }

  # A share says nothing of a few pushes: there must be a number of failures, too, on the same queue.
  pushes = {
    for i, ids in chunklist(keys(var.queues), local.names_in_a_filter) : i => {
      of    = "${local.of_subscription}push_request_count\" AND resource.labels.subscription_id = one_of(${join(", ", [for id in ids : jsonencode(local.push[id])])})"
      label = "resource.label.subscription_id"
    }
  }

  # The classes of a failed push's answer (Cloud Monitoring: push_request_count). One that came too
  # late is a cause of its own.
  failed = "metric.labels.response_class = one_of(\"remote_server_4xx\", \"remote_server_5xx\", \"invalid\", \"unreachable\")"
  late   = "metric.labels.response_class = \"deadline_exceeded\""

  push_policies = merge([
    for i, p in local.pushes : {
      (i == "0" ? "push-failures" : "push-failures/${i + 1}") = {
        runbook  = "push-failures.md"
        severity = "ERROR"
        combiner = "AND_WITH_MATCHING_RESOURCE"
        about    = "More than ${var.thresholds.push_failure_share * 100} % of a queue's pushes fail, and at least ${var.thresholds.push_failures_at_least} in ten minutes."
        conditions = [
          merge(local.condition, local.counted, {
            name      = "pushes that fail above ${var.thresholds.push_failure_share * 100} %"
            filter    = "${p.of} AND ${local.failed}"
            share_of  = p.of
            threshold = var.thresholds.push_failure_share
            period    = "600s"
            by        = [p.label]
          }),
          merge(local.condition, local.counted, {
            name      = "at least ${var.thresholds.push_failures_at_least} pushes that fail in ten minutes"
            filter    = "${p.of} AND ${local.failed}"
            threshold = var.thresholds.push_failures_at_least - 0.5
            period    = "600s"
            by        = [p.label]
          }),
        ]
      }
      (i == "0" ? "ack-deadline" : "ack-deadline/${i + 1}") = {
        runbook  = "push-failures.md#ack-deadline"
        severity = "WARNING"
        combiner = "OR"
        about    = "Pushes of a queue were not answered within its ack deadline, ${var.thresholds.ack_deadlines_at_least} or more in an hour: they are delivered again while the first may still run."
        conditions = [merge(local.condition, local.counted, {
          name      = "at least ${var.thresholds.ack_deadlines_at_least} pushes past the ack deadline in an hour"
          filter    = "${p.of} AND ${local.late}"
          threshold = var.thresholds.ack_deadlines_at_least - 0.5
          period    = "3600s"
          by        = [p.label]
        })]
      }
    }
  ]...)
}
