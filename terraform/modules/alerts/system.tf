# The causes at the webhook service, the tasks and the rest, a row each: one policy, or one for each sender.

locals {
  requests = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = \"${var.names.webhook}\" AND metric.type = \"run.googleapis.com/request_count\""
  failing  = "${local.requests} AND metric.labels.response_code_class = \"5xx\""
  accepted = "metric.labels.status = one_of(\"200\", \"202\")"
  refused  = "metric.labels.status = one_of(\"401\", \"404\")"
  of       = { for source in concat(tolist(var.sources), ["unknown"]) : source => "${local.logged["webhooks"]} AND metric.labels.source = \"${source}\"" }

  # The share of 5xx at which the month's failures are used up six times too fast.
  burn_rate = 6

  # The longest time that Cloud Monitoring counts over.
  longest = 90000

  # What a usual day of each source has, and how long it may be silent then: a shop of ten orders a day sells nothing at night and little by day.
  usual      = merge({ for source in var.sources : source => source == "generic" ? 1000 : 10 }, var.asked.webhooks_a_day)
  silent_for = { for source, n in local.usual : source => n >= 1000 ? 21600 : n >= 100 ? 43200 : 86400 }
  rhythms = {
    for source, n in local.usual : source => { silent_for = local.silent_for[source], at_least = max(1, floor(n / 2 * (1 - local.silent_for[source] / local.longest))) } if n > 0
  }

  # Services that may have more instances than they always have. One that is always at its most would
  # say so for ever.
  growing = { for name, s in var.scaling : name => s.max if s.max > max(1, s.min) }

  policies = merge(
    {
      ingest-errors = {
        runbook = "webhooks.md#ingest-errors", severity = "CRITICAL", combiner = "AND"
        about   = "More than ${local.at.ingest_error_share * 100} % of webhooks are answered 5xx, and at least ${local.at.ingest_errors_at_least} in half an hour. Senders keep events without a confirmation, for a while."
        conditions = [
          merge(local.counted, { name = "5xx above ${local.at.ingest_error_share * 100} % in half an hour", filter = local.failing, share_of = local.requests, threshold = local.at.ingest_error_share, period = "1800s" }),
          merge(local.counted, { name = "at least ${local.at.ingest_errors_at_least} in half an hour", filter = local.failing, threshold = local.at.ingest_errors_at_least - 0.5, period = "1800s" }),
        ]
      }
      ingest-latency = {
        runbook = "webhooks.md#ingest-latency", severity = "WARNING", combiner = "AND"
        about   = "Of the webhooks that were accepted within ten minutes, at least ${local.at.slow_webhooks_at_least}, one in twenty took longer than ${local.at.webhook_ms} ms: a sender that waits for less sends them again."
        conditions = [
          merge(local.counted, { name = "95th percentile above ${local.at.webhook_ms} ms in ten minutes", filter = "${local.logged["webhook-ms"]} AND ${local.accepted}", reduce = "REDUCE_PERCENTILE_95", threshold = local.at.webhook_ms, period = "600s" }),
          merge(local.counted, { name = "at least ${local.at.slow_webhooks_at_least} in ten minutes", filter = "${local.logged["webhooks"]} AND ${local.accepted}", threshold = local.at.slow_webhooks_at_least - 0.5, period = "600s" }),
        ]
      }
      tasks-stopped = {
        runbook = "tasks.md#tasks-stopped", severity = "ERROR"
        about   = "A task was not done for 900 s. Its measurements are missing, too: alerts on what it counts are blind."
        # Runs of some minutes may fail: the next one does their work.
        conditions = [merge(local.silent, { name = "not done for 900 s", filter = "${local.logged["tasks-done"]} AND metric.labels.task = one_of(${join(", ", [for task in sort(tolist(var.tasks)) : jsonencode(task)])})", period = "900s", by = ["metric.label.task"] })]
      }
      outbox-stuck = {
        runbook    = "tasks.md#outbox-stuck", severity = "ERROR"
        about      = "A message has been committed, or due, for more than ${local.at.outbox_oldest} s and is not published."
        conditions = [merge(local.written, { name = "oldest above ${local.at.outbox_oldest} s", filter = "${local.logged["oldest-seconds"]} AND metric.labels.task = one_of(\"relay-outbox\", \"release-delayed\")", threshold = local.at.outbox_oldest, by = ["metric.label.task"] })]
      }
      unsealed = {
        runbook    = "books.md#unsealed", severity = "ERROR"
        about      = "An entry of the books was posted more than ${local.at.unsealed_oldest} s ago and has no seal: a change of it would not be found."
        conditions = [merge(local.written, { name = "oldest entry without a seal above ${local.at.unsealed_oldest} s", filter = "${local.logged["oldest-seconds"]} AND metric.labels.task = \"seal-journal\"", threshold = local.at.unsealed_oldest })]
      }
      books-untrue = {
        runbook    = "books.md#books-untrue", severity = "CRITICAL"
        about      = "A verification of the books has found what another program than Billhook has changed, taken out or put in. Each finding is logged once in each verification."
        conditions = [merge(local.counted, { name = "the books do not verify", filter = local.logged["books-untrue"], threshold = 0, period = "600s", by = ["metric.label.kind"] })]
      }
      orphans = {
        runbook    = "tasks.md#orphans", severity = "ERROR"
        about      = "The sweep found events of a queue that were claimed, never finished and not delivered again."
        conditions = [merge(local.counted, { name = "orphans", filter = local.logged["orphans"], threshold = 0, period = "600s", by = ["metric.label.queue"] })]
      }
      pause-undone = {
        runbook    = "waiting.md#pause-undone", severity = "CRITICAL"
        about      = "A queue is paused, and its messages are pushed all the same: somebody has set the endpoint of its subscription in Google Cloud."
        conditions = [merge(local.counted, { name = "a pause was undone", filter = local.logged["pauses-undone"], threshold = 0, period = "300s", by = ["metric.label.queue"] })]
      }
      # Only what was deleted is measured: that nothing is due for days says nothing.
      ttl-dead = {
        runbook    = "tasks.md#ttl-late", severity = "WARNING"
        about      = "Firestore's TTL deletes later than ${local.at.ttl_late_by} s after expiry: records live longer than they should."
        conditions = [merge(local.measured, { name = "deleted too late", filter = "resource.type = \"firestore.googleapis.com/Database\" AND resource.labels.database_id = \"${var.names.database}\" AND metric.type = \"firestore.googleapis.com/document/ttl_expiration_to_deletion_delays\"", threshold = local.at.ttl_late_by, period = "3600s", align = "ALIGN_PERCENTILE_99" })]
      }
      # It has series where reads of secrets are recorded, which is a setting of the project's (examples/around).
      secret-access = {
        runbook    = "secret-access.md", severity = "ERROR"
        about      = "Somebody who is neither a service nor named in alerts.secret_readers has read a secret's value."
        conditions = [merge(local.counted, { name = "a secret was read", filter = "resource.type = \"audited_resource\" AND metric.type = \"logging.googleapis.com/user/${var.names.installation}-secret-access\"", threshold = 0, period = "300s", by = ["metric.label.secret"] })]
      }
    },
    # Below the share of ingest-errors, and for hours. Where the objective lets more fail than that share,
    # there is nothing between the two.
    {
      for name in ["slo-burn"] : name => {
        runbook = "webhooks.md#error-budget", severity = "ERROR", combiner = "AND"
        about   = "Webhooks fail ${local.burn_rate} times as fast as an objective of ${local.at.objective} over 28 days allows: too few for an alert on ingest errors, and for hours."
        conditions = concat(
          # The short window ends the alert soon after its cause. A burn rate is an aggregate already.
          [
            for window in ["21600s", "1800s"] :
            merge(local.measured, { name = "burn rate over ${window}", filter = "select_slo_burn_rate(\"${var.names.slo}\", \"${window}\")", threshold = local.burn_rate, align = null, reduce = null, period = null })
          ],
          [
            merge(local.counted, { name = "at least ${local.at.burnt_at_least} in six hours", filter = local.failing, threshold = local.at.burnt_at_least - 0.5, period = "21600s" }),
            merge(local.counted, { name = "not more than ingest-errors reports", filter = local.failing, share_of = local.requests, comparison = "COMPARISON_LT", threshold = local.at.ingest_error_share, period = "3600s" }),
          ],
        )
      } if local.burn_rate * (1 - local.at.objective) < local.at.ingest_error_share
    },
    # Each sender by itself, in its own rhythm: a talkative one would hide another's silence. A silence is reported only where the
    # hours before it had half of what is usual, or any.
    {
      for source, rhythm in local.rhythms : "webhooks-stopped/${source}" => {
        runbook = "webhooks.md#webhooks-have-stopped", severity = "ERROR", combiner = "AND"
        about   = "No webhook of ${source} was accepted for ${rhythm.silent_for / 3600} hours, after at least ${rhythm.at_least} in the hours before: the sender has stopped, or its webhooks do not arrive."
        conditions = [
          merge(local.silent, { name = "none for ${rhythm.silent_for / 3600} hours", filter = "${local.of[source]} AND ${local.accepted}", period = "${rhythm.silent_for}s" }),
          merge(local.counted, { name = "at least ${rhythm.at_least} within ${local.longest / 3600} hours", filter = "${local.of[source]} AND ${local.accepted}", threshold = rhythm.at_least - 0.5, period = "${local.longest}s" }),
        ]
      }
    },
    # A secret that was changed on one side, or an address that is gone: the sender tries for some hours, and then gives
    # the events up. Scanners send requests, too: a sender's must be a share of its own, and all together more than a few.
    {
      for source, webhooks in local.of : "webhooks-refused/${source}" => {
        runbook = "webhooks.md#webhooks-are-refused", severity = source == "unknown" ? "WARNING" : "ERROR", combiner = "AND"
        about = source == "unknown" ? "At least ${local.at.webhooks_refused_at_least} webhooks in six hours came to an address that no source has: it was taken out of the catalog, or it is written wrongly at the sender." : (
        "${local.at.webhooks_refused_share * 100} % of the webhooks of ${source}, and at least ${local.at.webhooks_refused_at_least} in six hours, are answered 401 or 404: its secret differs here, or its address has no queue.")
        conditions = concat(
          [merge(local.counted, { name = "at least ${local.at.webhooks_refused_at_least} in six hours", filter = "${webhooks} AND ${local.refused}", threshold = local.at.webhooks_refused_at_least - 0.5, period = "21600s" })],
          source == "unknown" ? [] : [
            merge(local.counted, { name = "401 and 404 above ${local.at.webhooks_refused_share * 100} % in six hours", filter = "${webhooks} AND ${local.refused}", share_of = webhooks, threshold = local.at.webhooks_refused_share, period = "21600s" }),
          ],
        )
      }
    },
    {
      for i, maxima in chunklist(sort(distinct([for most in values(local.growing) : format("%04d", most)])), local.conditions_in_a_policy) : (i == 0 ? "max-instances" : "max-instances/${i + 1}") => {
        runbook = "waiting.md#max-instances", severity = "WARNING"
        about   = "A service has run on all of its instances for ten minutes."
        conditions = [
          for most in maxima : merge(local.measured, {
            name   = "all ${tonumber(most)} instances", threshold = tonumber(most) - 0.5, duration = "600s", reduce = "REDUCE_SUM", by = ["resource.label.service_name"]
            filter = "resource.type = \"cloud_run_revision\" AND metric.type = \"run.googleapis.com/container/instance_count\" AND metric.labels.state = \"active\" AND resource.labels.service_name = one_of(${join(", ", [for name, n in local.growing : jsonencode(name) if n == tonumber(most)])})"
          })
        ]
      }
    },
  )
}
