# The module needs no provider, so these always run. Whether the conditions tell of outages, and of
# nothing else, is judged in Go.

variables {
  names = {
    installation = "billhook", database = "billhook", webhook = "billhook-webhook", tasks_worker = "billhook-worker-letters"
    slo          = "projects/1/services/billhook-webhook/serviceLevelObjectives/billhook-webhooks-taken"
  }
  scaling = { billhook-webhook = { min = 1, max = 10 }, billhook-worker-letters = { min = 0, max = 10 }, billhook-worker-seats = { min = 1, max = 1 } }
  tasks   = ["relay-outbox", "sweep-leases"]
  sources = ["box-office"]
  queues  = {}
  asked   = { on = ["all"] }
}

run "the_catalog" {
  command = plan
  module { source = "../catalog" }
  variables {
    directory = "../../../catalog"
    queues    = []
  }
}

# As many numbers as there can be, also those of queues whose handlers are still to come.
run "the_crooked_catalog" {
  command = plan
  module { source = "../catalog" }
  variables {
    directory    = "../../../catalog/testdata/crooked"
    queues       = []
    installation = "north"
  }
}

run "each_queue_that_runs_has_the_catalogs_thresholds" {
  command = plan

  variables {
    queues = { for id, q in run.the_catalog.queues : id => q if q.enabled }
  }

  assert {
    condition = alltrue(flatten([
      for id, q in var.queues : [
        for cause, n in merge(
          { oldest-unacked = tonumber(trimsuffix(q.oldest_alert, "s")), backlog = q.backlog_alert_above, backlog-warning = q.backlog_warn_above },
          q.max_backlog.messages == 0 ? {} : { backlog-full = q.max_backlog.messages },
        ) : contains([for c in output.policies[cause].conditions : c.threshold if strcontains(c.filter, "\"${q.push_subscription}\"")], n)
      ]
    ]))
    error_message = "Each queue is in the condition of its own number."
  }
  assert {
    condition = alltrue(flatten([
      for id, q in var.queues : [
        for cause, n in { dead-letters = q.dead_letter.alert_above, oldest-dead-letter = tonumber(trimsuffix(q.dead_letter.oldest_alert, "s")) } :
        [for c in output.policies[cause].conditions : c.threshold if strcontains(c.filter, "\"${id}\"")] == [n]
      ] if !q.dead_letter.drop
    ]))
    error_message = "What is counted is what is open, of the queue, in one condition."
  }
  assert {
    condition     = !anytrue(flatten([for p in values(output.policies) : [for c in p.conditions : [for id, q in run.the_catalog.queues : strcontains(c.filter, "\"${q.push_subscription}\"") || strcontains(c.filter, "\"${id}\"") if !q.enabled]]]))
    error_message = "A queue that does not run has no alert."
  }
  assert {
    condition     = !anytrue(flatten([for p in values(output.policies) : [for c in p.conditions : strcontains(c.filter, "-hold\"")]]))
    error_message = "No alert is on a hold subscription: it keeps what was dealt with, too."
  }
  assert {
    condition     = alltrue([for p in values(output.policies) : 1 <= length(p.conditions) && length(p.conditions) <= 6])
    error_message = "A policy has one to six conditions."
  }
  assert {
    condition = alltrue(flatten([
      for p in values(output.policies) : [for c in p.conditions : [for period in compact([c.period]) : 60 <= tonumber(trimsuffix(period, "s")) && tonumber(trimsuffix(period, "s")) <= 90000]]
    ]))
    error_message = "Cloud Monitoring aligns over a minute to 25 hours."
  }
  assert {
    condition     = alltrue(flatten([for p in values(output.policies) : [for c in p.conditions : c.missing == null || tonumber(trimsuffix(c.duration, "s")) >= 60]]))
    error_message = "What missing data means may be said of a condition that lasts for a minute."
  }
  assert {
    condition     = alltrue([for name, p in output.policies : p.combiner == (length(distinct(flatten(p.conditions[*].by))) > 0 ? "AND_WITH_MATCHING_RESOURCE" : "AND") if anytrue([for c in p.conditions : c.share_of != null])])
    error_message = "A share stands beside a count, of the same queue where they are grouped by queue."
  }
  assert {
    condition     = length(output.policies) < length(var.queues) * 2
    error_message = "A cause has one policy, not one for each queue."
  }
}

run "a_warning_comes_before_its_alert" {
  command = plan

  variables {
    queues = run.the_crooked_catalog.queues
    kept   = { for id, q in run.the_crooked_catalog.queues : id => q if id == "bookings" }
  }

  assert {
    condition = [
      for name in ["backlog-warning", "backlog", "backlog-full", "dead-letters-warning", "dead-letters", "oldest-dead-letter-warning", "oldest-dead-letter"] :
      "${output.policies[name].severity} ${one([for c in output.policies[name].conditions : c.threshold if strcontains(c.filter, "ordered\"") || strcontains(c.filter, "-ordered-push\"")])}"
    ] == ["WARNING 5", "ERROR 6", "CRITICAL 7", "WARNING 2", "ERROR 3", "WARNING 0.5", "ERROR 60.5"]
    error_message = "Each band has the catalog's number, and its severity."
  }
  assert {
    condition     = alltrue(flatten([for name in ["oldest-unacked", "backlog", "push-failures", "ack-deadline", "dead-letters-unkept"] : [for c in output.policies[name].conditions : strcontains(c.filter, "\"north-")]]))
    error_message = "Subscriptions are those of the installation."
  }
  assert {
    condition     = !anytrue([for name in ["backlog", "backlog-warning", "backlog-full"] : anytrue([for c in output.policies[name].conditions : strcontains(c.filter, "bookings")])])
    error_message = "A queue without a number has no such alert."
  }
  assert {
    condition     = [for c in output.policies["kept-backlog"].conditions : c.threshold] == [tonumber(trimsuffix(run.the_crooked_catalog.queues["bookings"].message_retention_duration, "s")) * 0.75] && strcontains(output.policies["kept-backlog"].conditions[0].filter, "\"north-bookings-push\"")
    error_message = "What waits on a queue that is off has an alert before it is lost."
  }
  assert {
    condition     = !anytrue([for c in output.policies["max-instances"].conditions : strcontains(c.filter, "seats")])
    error_message = "A service that always runs on all its instances says nothing by that."
  }
}

# Thirteen thresholds, and more queues than one filter holds.
run "a_cause_is_split_where_it_does_not_fit" {
  command = plan

  variables {
    queues = {
      for n in range(60) : "made-up-${n}" => {
        push_subscription = "made-up-${n}-push", oldest_alert = "${60 + n % 13}s", backlog_alert_above = 0, backlog_warn_above = 0
        max_backlog       = { messages = 0 }, dead_letter = { drop = true }
      }
    }
  }

  assert {
    condition     = [for name, p in output.policies : "${name} ${length(p.conditions)}" if startswith(name, "oldest-unacked")] == ["oldest-unacked 6", "oldest-unacked/2 6", "oldest-unacked/3 1"]
    error_message = "Six conditions a policy."
  }
  assert {
    condition     = [for name in keys(output.policies) : name if startswith(name, "push-failures")] == ["push-failures", "push-failures/2", "push-failures/3"]
    error_message = "Twenty queues a filter."
  }
  assert {
    condition     = !contains(keys(output.policies), "dead-letters") && !contains(keys(output.policies), "backlog")
    error_message = "No policy is without a condition."
  }
}

run "each_cause_has_its_switch" {
  command = plan

  variables {
    queues = { for id, q in run.the_catalog.queues : id => q if q.enabled }
    asked = {
      on         = ["all"]
      off        = ["oldest-unacked", "webhooks-stopped/box-office", "ttl-dead", "backlog-full", "slo-burn"]
      thresholds = { objective = 0.99 }
    }
  }

  assert {
    condition     = !anytrue([for name in keys(output.policies) : contains(["oldest-unacked", "webhooks-stopped", "ttl-dead", "backlog-full", "slo-burn"], split("/", name)[0])]) && contains(keys(output.policies), "backlog")
    error_message = "What is off is not made; the objective of 0.99 leaves nothing for slo-burn, which may be off all the same."
  }
}

run "eight_wake_somebody_and_others_are_asked_for" {
  command = plan

  variables {
    queues = { for id, q in run.the_catalog.queues : id => q if q.enabled }
    asked  = { on = ["orphans", "secret-access"] }
  }

  assert {
    condition = toset([for name in keys(output.policies) : split("/", name)[0]]) == toset([
      "ingest-errors", "webhooks-refused", "webhooks-stopped", "push-failures", "dead-letters", "oldest-unacked", "outbox-stuck", "tasks-stopped", "orphans", "secret-access",
    ])
    error_message = "The eight, and the two."
  }
  assert {
    condition     = contains(keys(output.log_metrics), "secret-access")
    error_message = "Reads of secrets are counted where an alert is on them."
  }
}

run "a_switch_without_an_alert_is_refused" {
  command = plan
  variables {
    asked = { on = ["webhook"], off = ["webhooks"] }
  }
  expect_failures = [output.policies]
}

run "a_share_above_everything_and_a_number_that_nothing_compares_are_refused" {
  command = plan
  variables {
    asked = { thresholds = { push_failure_share = 2, objective = 1, outbox_oldest = 1, pushes_at_least = 0.5 } }
  }
  expect_failures = [var.asked]
}

run "a_sender_is_silent_by_its_own_rhythm" {
  command = plan

  variables {
    sources = ["box-office", "kiosk", "generic", "archive"]
    asked   = { on = ["all"], webhooks_a_day = { kiosk = 150, archive = 0 } }
  }

  assert {
    condition = { for name, p in output.policies : name => join(", ", p.conditions[*].name) if startswith(name, "webhooks-stopped") } == {
      "webhooks-stopped/box-office" = "none for 24 hours, at least 1 within 25 hours"
      "webhooks-stopped/kiosk"      = "none for 12 hours, at least 39 within 25 hours"
      "webhooks-stopped/generic"    = "none for 6 hours, at least 380 within 25 hours"
    }
    error_message = "A quiet sender may be silent for a day, a busy one for six hours, and one that nobody waits for for ever."
  }
}

run "a_rhythm_that_a_day_does_not_show_is_refused" {
  command = plan
  variables { asked = { webhooks_a_day = { box-office = 3 } } }
  expect_failures = [var.asked]
}
