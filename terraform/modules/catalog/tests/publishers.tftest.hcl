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
    condition     = alltrue([for id, q in output.queues : length(setsubtract(["webhook", "worker-${output.tasks_pool}"], q.publishers)) == 0 if q.enabled])
    error_message = "The webhook service, and the worker that runs the tasks, publish on every enabled queue."
  }
  assert {
    condition     = alltrue([for id, q in output.queues : length(q.publishers) == 0 if !q.enabled && !contains([for other in values(output.queues) : other.topic if other.enabled], q.topic)])
    error_message = "Nobody publishes on a topic without an enabled queue."
  }
  assert {
    condition     = join(" ", concat(output.pools["bulk"].url_variables, output.pools["bulk"].secret_variables)) == "PLATFORM_URL DELIVERY_SIGNING_SECRET"
    error_message = "A pool whose queue posts to a target needs the target's variables."
  }
  assert {
    condition     = alltrue([for t in yamldecode(file("../../../catalog/queues.yaml")).outbound_topics : !contains(output.topics[t.id].publishers, "webhook")])
    error_message = "The webhook service tells nobody but queues."
  }
}

# Two pools: letters runs the tasks, seats serves bookings, whose handlers emit to reminders
# and to seat-feed. One source, without an address for producers.
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
    condition = merge({ for id, q in output.queues : id => q.publishers if q.shared_topic == "" }, { for id, topic in output.topics : id => topic.publishers }) == {
      bookings  = ["webhook", "worker-letters"]
      reminders = ["worker-letters", "worker-seats"]
      halls     = ["worker-letters"]
      single    = []
      by-key    = []
      seat-feed = ["worker-letters", "worker-seats"]
      unheard   = []
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
    condition     = output.queues["by-key"].publishers == ["worker-seats"] && output.queues["reminders"].publishers == ["worker-seats"]
    error_message = "What was written down for a kept queue is published, and nobody else publishes there."
  }
  assert {
    condition = alltrue([for id, q in output.queues :
      q.topic == "shop-${q.shared_topic == "" ? id : q.shared_topic}" && q.push_subscription == "shop-${id}-push" && q.push_path == "/push/${id}" && !strcontains(q.filter, "shop-")
    ])
    error_message = "Topics and subscriptions have the installation's name before them; paths and filters have not."
  }
  assert {
    condition     = alltrue([for id, q in output.queues : q.dead_letter.topic == "shop-${id}-dlq" && q.dead_letter.hold_subscription == "shop-${id}-dlq-hold" if !q.dead_letter.drop]) && output.topics["halls"].name == "shop-halls"
    error_message = "So have those of dead letters, and shared topics."
  }
}

# QUEUES of the services: with PayNow alone there is one worker, which needs one address.
run "a_deployment_runs_the_queues_that_it_names" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues = distinct(concat(
      values(yamldecode(file("../../../catalog/sources.yaml")).sources.paynow.events),
      flatten([
        for q in yamldecode(file("../../../catalog/queues.yaml")).queues : [for h in values(q.handlers) : try(h.emits, [])]
        if contains(values(yamldecode(file("../../../catalog/sources.yaml")).sources.paynow.events), q.id)
      ]),
    ))
  }
  assert {
    condition     = alltrue([for q in values(output.queues) : length(setsubtract(q.emits, flatten(values(output.pools)[*].queues))) == 0 if q.enabled])
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
    condition     = length(output.topics) == 0
    error_message = "A topic for others exists where a queue that runs emits to it."
  }
  assert {
    condition     = keys(output.sources) == ["generic", "paynow"]
    error_message = "Both sources route to a queue that runs."
  }
}

run "a_source_that_routes_nowhere_is_left_out" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues    = [for q in yamldecode(file("../../../catalog/queues.yaml")).queues : q.alias if q.pool == "bulk"]
  }
  assert {
    condition     = keys(output.sources) == ["generic"]
    error_message = "The producers keep their address, and PayNow's secret is not asked for."
  }
  assert {
    condition     = output.tasks_pool == "bulk" && output.tasks_pool_mistake == ""
    error_message = "Where one pool runs, it runs the tasks."
  }
}

run "what_the_services_would_not_start_with_is_refused" {
  command = plan
  variables {
    directory = "../../../catalog"
    queues    = concat(distinct(values(yamldecode(file("../../../catalog/sources.yaml")).sources.paynow.events)), ["nobody"])
  }
  expect_failures = [output.queues]
}
