# The causes at queues, a row each: one policy for all queues. A condition is one threshold, and its series
# are grouped by queue: each queue has an incident of its own.

locals {
  push    = { for id, q in var.queues : id => q.push_subscription }
  kept    = { for id, q in var.kept : id => q.push_subscription }
  letters = { for id, q in var.queues : id => q.dead_letter if !q.dead_letter.drop }

  of_subscription = "resource.type = \"pubsub_subscription\" AND metric.type = \"pubsub.googleapis.com/subscription/"
  age             = merge(local.measured, { filter = "${local.of_subscription}oldest_unacked_message_age\"", duration = "60s", by = ["resource.label.subscription_id"] })
  depth           = merge(local.age, { filter = "${local.of_subscription}num_undelivered_messages\"", reduce = "REDUCE_SUM" })
  open            = merge(local.written, { filter = local.logged["open-dead-letters"], by = ["metric.label.queue"] })
  unsolved        = merge(local.open, { filter = local.logged["oldest-dead-letter-seconds"] })

  # What is measured of a queue, the value of the label that names the queue, and the threshold of each queue,
  # where it has one. A warning lies below its alert.
  queue_causes = {
    oldest-unacked = {
      runbook = "waiting.md#oldest-unacked", severity = "ERROR", of = local.age, called = local.push, name = "oldest message above %g s"
      about   = "A queue falls behind: its oldest message waits for longer than the catalog's oldest_alert."
      at      = { for id, q in var.queues : id => tonumber(trimsuffix(q.oldest_alert, "s")) }
    }
    # Nothing takes these messages until somebody resumes the queue, or gives them up.
    kept-backlog = {
      runbook = "waiting.md#kept-backlog", severity = "ERROR", of = local.age, called = local.kept, name = "oldest message above %g s"
      about   = "A queue is off and kept, and three quarters of the time for which Pub/Sub keeps its oldest message are over."
      at      = { for id, q in var.kept : id => tonumber(trimsuffix(q.message_retention_duration, "s")) * 3 / 4 }
    }
    backlog-warning = {
      runbook = "waiting.md#backlog", severity = "WARNING", of = local.depth, called = local.push, name = "more than %g messages"
      about   = "More messages of a queue have waited for a minute than the catalog's backlog_warn_above."
      at      = { for id, q in var.queues : id => q.backlog_warn_above if q.backlog_warn_above > 0 }
    }
    backlog = {
      runbook = "waiting.md#backlog", severity = "ERROR", of = local.depth, called = local.push, name = "more than %g messages"
      about   = "More messages of a queue have waited for a minute than the catalog's backlog_alert_above: they come late."
      at      = { for id, q in var.queues : id => q.backlog_alert_above if q.backlog_alert_above > 0 }
    }
    backlog-full = {
      runbook = "waiting.md#backlog", severity = "CRITICAL", of = local.depth, called = local.push, name = "more than %g messages"
      about   = "A queue has reached its bound, max_backlog of the catalog: where on_full is refuse, the webhook service refuses more."
      at      = { for id, q in var.queues : id => q.max_backlog.messages if q.max_backlog.messages > 0 }
    }
    # A task counts the open ones in the store: the hold subscription also keeps copies of those that
    # were replayed or discarded.
    dead-letters = {
      runbook = "dead-letters.md", severity = "ERROR", of = local.open, called = {}, name = "open dead letters above %g"
      about   = "A queue has more open dead letters than the catalog's dead_letter.alert_above."
      at      = { for id, d in local.letters : id => d.alert_above }
    }
    dead-letters-warning = {
      runbook = "dead-letters.md", severity = "WARNING", of = local.open, called = {}, name = "open dead letters above %g"
      about   = "A queue has more open dead letters than is normal: the catalog's dead_letter.warn_above."
      at      = { for id, d in local.letters : id => d.warn_above if d.warn_above < d.alert_above }
    }
    # A dead letter reaches the store within seconds; later means a fault.
    dead-letters-unkept = {
      runbook = "dead-letters.md", severity = "ERROR", of = local.age, name = "dead letters not in the store for %g s"
      called  = { for id, d in local.letters : id => d.push_subscription }
      about   = "Dead letters of a queue do not reach the store, so nobody sees or replays them."
      at      = { for id in keys(local.letters) : id => 300 }
    }
    oldest-dead-letter = {
      runbook = "dead-letters.md#oldest-dead-letter", severity = "ERROR", of = local.unsolved, called = {}, name = "oldest dead letter above %g s"
      about   = "The oldest open dead letter of a queue has waited for longer than the catalog's dead_letter.oldest_alert."
      at      = { for id, d in local.letters : id => tonumber(trimsuffix(d.oldest_alert, "s")) if d.oldest_alert != "0s" }
    }
    oldest-dead-letter-warning = {
      runbook = "dead-letters.md#oldest-dead-letter", severity = "WARNING", of = local.unsolved, called = {}, name = "oldest dead letter above %g s"
      about   = "The oldest open dead letter of a queue has waited for longer than the catalog's dead_letter.oldest_warn."
      at      = { for id, d in local.letters : id => tonumber(trimsuffix(d.oldest_warn, "s")) if d.oldest_warn != "0s" }
    }
  }

  # A condition for each threshold, and for each portion of its queues that fits into a filter.
  queue_conditions = {
    for cause, c in local.queue_causes : cause => flatten([
      for n in [for text in sort(distinct([for at in values(c.at) : format("%015.3f", at)])) : tonumber(text)] : [
        for ids in chunklist([for id, at in c.at : id if at == n], local.names_in_a_filter) : merge(c.of, {
          name   = format(c.name, n), threshold = n
          filter = "${c.of.filter} AND ${replace(c.of.by[0], ".label.", ".labels.")} = one_of(${join(", ", [for id in ids : jsonencode(lookup(c.called, id, id))])})"
        })
      ]
    ])
  }
  queue_policies = merge([
    for cause, c in local.queue_causes : {
      for i, conditions in chunklist(local.queue_conditions[cause], local.conditions_in_a_policy) : (i == 0 ? cause : "${cause}/${i + 1}") =>
      { runbook = c.runbook, severity = c.severity, about = c.about, conditions = conditions }
    }
  ]...)

  # A share says nothing of a few pushes: there must be a number of failures, too, on the same queue.
  pushes = merge(local.counted, { by = ["resource.label.subscription_id"] })
  # The classes of a failed push's answer (Cloud Monitoring: push_request_count). One that came too
  # late is a cause of its own.
  failed = "metric.labels.response_class = one_of(\"remote_server_4xx\", \"remote_server_5xx\", \"invalid\", \"unreachable\")"
  late   = "metric.labels.response_class = \"deadline_exceeded\""

  pushed_to = [
    for names in chunklist(values(local.push), local.names_in_a_filter) :
    "${local.of_subscription}push_request_count\" AND resource.labels.subscription_id = one_of(${join(", ", [for name in names : jsonencode(name)])})"
  ]
  push_policies = merge([
    for i, of in local.pushed_to : {
      (i == 0 ? "push-failures" : "push-failures/${i + 1}") = {
        runbook = "push-failures.md", severity = "ERROR", combiner = "AND_WITH_MATCHING_RESOURCE"
        about   = "More than ${local.at.push_failure_share * 100} % of a queue's pushes fail, and at least ${local.at.push_failures_at_least} in ten minutes."
        conditions = [
          merge(local.pushes, { name = "pushes that fail above ${local.at.push_failure_share * 100} %", filter = "${of} AND ${local.failed}", share_of = of, threshold = local.at.push_failure_share, period = "600s" }),
          merge(local.pushes, { name = "at least ${local.at.push_failures_at_least} pushes that fail in ten minutes", filter = "${of} AND ${local.failed}", threshold = local.at.push_failures_at_least - 0.5, period = "600s" }),
        ]
      }
      (i == 0 ? "ack-deadline" : "ack-deadline/${i + 1}") = {
        runbook    = "push-failures.md#ack-deadline", severity = "WARNING", combiner = "OR"
        about      = "Pushes of a queue were not answered within its ack deadline, ${local.at.ack_deadlines_at_least} or more in an hour: they are delivered again while the first may still run."
        conditions = [merge(local.pushes, { name = "at least ${local.at.ack_deadlines_at_least} pushes past the ack deadline in an hour", filter = "${of} AND ${local.late}", threshold = local.at.ack_deadlines_at_least - 0.5, period = "3600s" })]
      }
    }
  ]...)
}
