# Who publishes where, without a provider: see publishers.tf.

# Producers have their address; and the ledger, which would tell others, is not enabled.
run "the_shipped_catalog" {
  command = plan
  variables {
    directory = "../../../catalog"
  }
  assert {
    condition     = output.tasks_pool == yamldecode(file("../../../catalog/queues.yaml")).tasks_pool
    error_message = "The catalog names the pool that runs the tasks."
  }
  assert {
    condition     = output.pools[output.tasks_pool].min_instances > 0
    error_message = "The pool that runs the tasks keeps an instance, so that alarms meet no cold start."
  }
  assert {
    condition     = alltrue([for id, q in output.queues : length(setsubtract(["webhook", "worker-${output.tasks_pool}"], output.publishers[q.topic])) == 0 if q.enabled])
    error_message = "The webhook service, and the worker that runs the tasks, publish on every enabled queue."
  }
  assert {
    condition     = alltrue([for id, q in output.queues : length(output.publishers[q.topic]) == 0 if !q.enabled && !contains([for other in values(output.queues) : other.topic if other.enabled], q.topic)])
    error_message = "Nobody publishes on a topic without an enabled queue."
  }
  assert {
    condition     = join(" ", concat(output.pools["bulk"].url_variables, output.pools["bulk"].secret_variables)) == "PLATFORM_URL DELIVERY_SIGNING_SECRET"
    error_message = "A pool whose queue posts to a target needs the target's variables."
  }
  assert {
    condition     = alltrue([for id in keys(output.outbound_topics) : !contains(output.publishers[id], "webhook")])
    error_message = "The webhook service tells nobody but queues."
  }
}

# Two pools: letters runs the tasks, seats serves bookings, whose handlers emit to reminders
# and to seat-news. One source, without an address for producers.
run "a_pool_publishes_what_its_handlers_emit" {
  command = plan
  variables {
    directory = "../../../catalog/testdata/crooked"
  }
  assert {
    condition     = output.tasks_pool == "letters" && output.tasks_pool_mistake == "No pool is named for the tasks: name one in tasks_pool, of letters, seats."
    error_message = "Where several pools run and none is named, somebody has to name one."
  }
  assert {
    condition     = { for pool, p in output.pools : pool => join(" ", concat(p.url_variables, p.secret_variables)) } == { letters = "POST_OFFICE_URL POST_OFFICE_SECRET", seats = "" }
    error_message = "The pool that posts to a target needs the target's variables, and no other pool does."
  }
  assert {
    condition = output.publishers == {
      bookings    = ["webhook", "worker-letters"]
      reminders   = ["worker-letters", "worker-seats"]
      halls       = ["worker-letters"]
      single      = []
      by-key      = []
      empty-halls = []
      seat-news   = ["worker-letters", "worker-seats"]
      unheard     = []
    }
    error_message = "A pool that emits to a topic publishes there, and the pool of the tasks; not a pool on its own queue, and nobody where nobody does."
  }
}

# The tasks are where the deployment says, whatever sorts first. A queue that is off is kept, with what the
# worker of the tasks still publishes, and under the installation's name.
run "the_choices_of_a_deployment" {
  command = plan
  variables {
    directory    = "../../../catalog/testdata/crooked"
    queues       = ["ordered", "reminders", "bookings"]
    kept         = ["by-key"]
    tasks_pool   = "seats"
    installation = "shop"
  }
  assert {
    condition     = output.tasks_pool == "seats" && output.tasks_pool_mistake == ""
    error_message = "The variable names the pool."
  }
  assert {
    condition     = output.publishers["by-key"] == ["worker-seats"] && output.publishers["reminders"] == ["worker-seats"]
    error_message = "What was written down for a kept queue is published, and nobody else publishes there."
  }
  assert {
    condition = alltrue([for id, q in output.queues :
      output.named[id].topic == "shop-${q.topic}" && output.named[id].push_subscription == "shop-${q.push_subscription}" && output.named[id].push_path == q.push_path && output.named[id].filter == q.filter
    ])
    error_message = "Topics and subscriptions have the installation's name before them; paths and filters have not."
  }
  assert {
    condition     = alltrue([for id, q in output.named : q.dead_letter.hold_subscription == "shop-${output.queues[id].dead_letter.hold_subscription}" if !q.dead_letter.drop]) && output.shared_topics["halls"].name == "shop-halls"
    error_message = "So have those of dead letters, and shared topics."
  }
  assert {
    condition     = !strcontains(output.json, "shop-")
    error_message = "The catalog itself knows no installation."
  }
}

# QUEUES of the services: with PayNow alone there is one worker, which needs one address.
run "a_deployment_runs_the_queues_that_it_names" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues = concat(
      distinct(values(run.the_shipped_catalog.sources["paynow"].events)),
      distinct(flatten([for h in values(run.the_shipped_catalog.queues[values(run.the_shipped_catalog.sources["paynow"].events)[0]].handlers) : setsubtract(h.emits, h.emits_if_run)])),
    )
  }
  assert {
    condition     = alltrue(flatten([for q in values(output.queues) : [for h in values(q.handlers) : length(setintersection(h.emits, h.emits_if_run)) == 0] if q.enabled]))
    error_message = "What a handler emits to where it runs is left out where it does not."
  }
  assert {
    condition     = keys(output.pools) == ["payments"] && length(output.pools["payments"].queues) == 2
    error_message = "The pools are those of the queues that run."
  }
  assert {
    condition     = join(" ", output.pools["payments"].url_variables) == "SUBSCRIPTION_SERVICE_URL"
    error_message = "A target that no running queue posts to needs no address."
  }
  assert {
    condition     = length(output.outbound_topics) == 0
    error_message = "A topic for others exists where a queue that runs emits to it."
  }
  assert {
    condition     = keys(output.sources) == ["generic", "paynow"]
    error_message = "Both sources route to a queue that runs."
  }
}

# A queue whose handlers emit only to queues that need not run, such as that which counts usage.
run "what_is_emitted_to_where_it_runs_need_not_run" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues = [
      for q in values(run.the_shipped_catalog.queues) : q.id
      if q.enabled && anytrue([for h in values(q.handlers) : length(h.emits_if_run) > 0]) && alltrue([for h in values(q.handlers) : length(setsubtract(h.emits, h.emits_if_run)) == 0])
    ]
  }
  assert {
    condition     = length([for q in values(output.queues) : q if q.enabled]) == 1
    error_message = "There is such a queue, and it runs alone."
  }
  assert {
    condition     = alltrue(flatten([for q in values(output.queues) : [for h in values(q.handlers) : length(h.emits) == 0] if q.enabled]))
    error_message = "It emits to none that does not run."
  }
}

run "a_source_that_routes_nowhere_is_left_out" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues    = [for q in values(run.the_shipped_catalog.queues) : q.alias if q.enabled && q.pool == "bulk"]
  }
  assert {
    condition     = keys(output.sources) == ["generic"] && length(output.sources["generic"].events) == 0
    error_message = "The producers keep their address, and PayNow's secret is not asked for."
  }
  assert {
    condition     = output.tasks_pool == "bulk" && output.tasks_pool_mistake == ""
    error_message = "Where one pool runs, it runs the tasks."
  }
}

run "a_queue_that_emits_to_one_that_does_not_run_is_refused" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues    = distinct(values(run.the_shipped_catalog.sources["paynow"].events))
  }
  expect_failures = [output.json, output.queues]
}

run "a_name_of_no_enabled_queue_is_refused" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues    = ["nobody"]
  }
  expect_failures = [output.json, output.queues]
}

run "a_queue_that_is_named_twice_is_refused" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues    = flatten([for q in values(run.the_shipped_catalog.queues) : [q.id, q.alias] if q.enabled && q.pool == "bulk"])
  }
  expect_failures = [output.json, output.queues]
}
