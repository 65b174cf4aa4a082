# Who publishes where, without a provider: see publishers.tf.

# Producers have their door; and the ledger, which would tell others, is not enabled.
run "the_shipped_catalog" {
  command = plan
  variables {
    directory = "../../../catalog"
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
# and to seat-news. One source, without a door for producers.
run "a_pool_publishes_what_its_handlers_emit" {
  command = plan
  variables {
    directory = "../../../catalog/testdata/crooked"
  }
  assert {
    condition     = output.tasks_pool == "letters"
    error_message = "The first pool runs the tasks."
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
