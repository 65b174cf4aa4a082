# The alerts, as data: which policies there are, and their conditions. The root makes them. The module
# needs no provider, so a test reads its output and judges the conditions on made-up series: those of a
# quiet shop's month, and those of outages (terraform/alerting_test.go).
#
# Every alert has its page of docs/runbooks, and its section there.

terraform {
  required_version = ">= 1.9"
}

locals {
  # The form of a condition, and what it has unless it says otherwise.
  condition = {
    comparison = "COMPARISON_GT", duration = "0s", missing = null, period = "60s", align = "ALIGN_MAX", reduce = "REDUCE_MAX", by = [], share_of = null
  }

  # What is counted over a window. A count that is no longer reported has ended: without this its
  # incident stays open for days, and the next one is not told. Cloud Monitoring takes a word on missing
  # data where a condition lasts for a minute.
  counted = { align = "ALIGN_DELTA", reduce = "REDUCE_SUM", duration = "60s", missing = "EVALUATION_MISSING_DATA_INACTIVE" }

  # A silence: no news is the same as no event.
  silent = merge(local.counted, { comparison = "COMPARISON_LT", missing = "EVALUATION_MISSING_DATA_ACTIVE" })

  # Cloud Monitoring takes six conditions in a policy.
  conditions_in_a_policy = 6

  queue_policies = merge([
    for cause, c in local.queue_causes : {
      for i in range(ceil(length(local.queue_conditions[cause]) / local.conditions_in_a_policy)) : (i == 0 ? cause : "${cause}/${i + 1}") => {
        runbook    = c.runbook
        severity   = c.severity
        combiner   = "OR"
        about      = c.about
        conditions = [for j, condition in local.queue_conditions[cause] : condition if floor(j / local.conditions_in_a_policy) == i]
      }
    }
  ]...)

  all = merge(local.queue_policies, local.push_policies, local.webhook_policies, local.system_policies, var.more)

  # A name with a number is one of several policies of a cause.
  causes = { for name in keys(local.all) : name => split("/", name)[0] }
}

output "policies" {
  description = "The policies by name: runbook, severity, combiner, what it is about, and the conditions."
  value       = { for name, p in local.all : name => p if !contains(var.thresholds.off, name) && !contains(var.thresholds.off, local.causes[name]) }

  precondition {
    condition     = length(setsubtract(var.thresholds.off, concat(keys(local.all), values(local.causes), local.sometimes))) == 0
    error_message = "off names no alert: ${join(", ", setsubtract(var.thresholds.off, concat(keys(local.all), values(local.causes), local.sometimes)))}. There are ${join(", ", distinct(values(local.causes)))}."
  }
  precondition {
    condition     = alltrue(flatten([for p in values(local.all) : [for c in p.conditions : length(c.filter) <= 2048 && length(coalesce(c.share_of, "-")) <= 2048]]))
    error_message = "The filter of a condition has at most 2048 characters."
  }
}

output "objective" {
  description = "The share of webhooks that are to be answered without a 5xx."
  value       = var.thresholds.objective
}
