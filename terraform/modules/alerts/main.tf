# The alerts, as data: a row is a cause and its policy, or policies. The root makes them. terraform/alerting
# judges the conditions on made-up series. Every alert has its section in docs/runbooks.

locals {
  # Those that wake somebody: money may be lost, or the shop stands still. terraform/README.md says why these.
  by_default = [
    "ingest-errors", "webhooks-refused", "webhooks-stopped", "push-failures", "dead-letters", "oldest-unacked", "outbox-stuck", "tasks-stopped",
  ]

  # What the rows compare that is no queue's. A share is 0 to 1; what ends with _at_least is how many there must be
  # before a share says anything; ages are seconds.
  numbers = {
    ingest_error_share        = 0.03
    ingest_errors_at_least    = 5
    objective                 = 0.999
    burnt_at_least            = 20
    webhook_ms                = 2000
    slow_webhooks_at_least    = 50
    webhooks_refused_share    = 0.3
    webhooks_refused_at_least = 4
    push_failure_share        = 0.2
    push_failures_at_least    = 20
    ack_deadlines_at_least    = 3
    outbox_oldest             = 600
    unsealed_oldest           = 900
    ttl_late_by               = 259200
  }
  at = merge(local.numbers, var.asked.thresholds)

  # The kinds of conditions: what is measured at any time, and what it has unless it says otherwise.
  measured = {
    comparison = "COMPARISON_GT", duration = "0s", missing = null, period = "60s", align = "ALIGN_MAX", reduce = "REDUCE_MAX", by = [], share_of = null
  }
  # What a task writes into a line each minute.
  written = merge(local.measured, { period = "120s", align = "ALIGN_DELTA", reduce = "REDUCE_MEAN" })
  # What is counted over a window. A count that is no longer reported has ended: without this its
  # incident stays open for days, and the next one is not reported. Cloud Monitoring takes a word on missing
  # data where a condition lasts for a minute.
  counted = merge(local.measured, { align = "ALIGN_DELTA", reduce = "REDUCE_SUM", duration = "60s", missing = "EVALUATION_MISSING_DATA_INACTIVE" })
  # A silence: no point of the metric is the same as no event.
  silent = merge(local.counted, { comparison = "COMPARISON_LT", threshold = 0.5, missing = "EVALUATION_MISSING_DATA_ACTIVE" })

  # A filter has at most 2048 characters, which hold so many names of queues, and a policy six conditions.
  names_in_a_filter      = 20
  conditions_in_a_policy = 6

  # A name with a number, or a source, is one of several policies of a cause.
  all    = { for name, p in merge(local.queue_policies, local.push_policies, local.policies) : name => merge({ combiner = "OR" }, p) }
  causes = { for name in keys(local.all) : name => split("/", name)[0] }

  on = setunion(local.by_default, var.asked.on)
  made = {
    for name, p in local.all : name => p
    if length(setintersection(["all", name, local.causes[name]], local.on)) > 0 && length(setintersection([name, local.causes[name]], var.asked.off)) == 0
  }

  # Names that an installation need not have, so that one list fits several.
  sometimes = concat(
    keys(local.queue_causes), local.by_default, ["all", "ack-deadline", "max-instances", "slo-burn"], [for source in var.sources : "webhooks-stopped/${source}"],
  )
  misspelt = setsubtract(setunion(var.asked.on, var.asked.off), concat(keys(local.all), values(local.causes), local.sometimes, keys(local.log_metrics)))
}

output "policies" {
  description = "The policies by name: runbook, severity, combiner, what it is about, and the conditions."
  value       = local.made

  precondition {
    condition     = length(local.misspelt) == 0
    error_message = "on and off name no alert: ${join(", ", local.misspelt)}. There are ${join(", ", distinct(values(local.causes)))}."
  }
  precondition {
    condition     = alltrue(flatten([for p in values(local.all) : [for c in p.conditions : length(c.filter) <= 2048 && length(coalesce(c.share_of, "-")) <= 2048]]))
    error_message = "The filter of a condition has at most 2048 characters."
  }
}

output "objective" {
  description = "The share of webhooks that are to be answered without a 5xx."
  value       = local.at.objective
}
