# Who publishes where, without a provider: see publishers.tf.

# One pool, which runs the tasks too; a handler emits to the other queue; producers have
# their door; and the ledger, which would tell others, is not enabled.
run "the_shipped_catalog" {
  command = plan
  variables {
    directory = "../../../catalog"
  }
  assert {
    condition     = alltrue([for id, q in output.queues : join(" ", output.publishers[q.topic]) == "webhook worker-${output.tasks_pool}" if q.enabled])
    error_message = "With one pool, webhook service and worker publish on every enabled queue."
  }
  assert {
    condition     = alltrue([for id, q in output.queues : length(output.publishers[q.topic]) == 0 if !q.enabled && !contains([for other in values(output.queues) : other.topic if other.enabled], q.topic)])
    error_message = "Nobody publishes on a topic without an enabled queue."
  }
  assert {
    condition     = alltrue([for q in values(output.queues) : output.pools[q.pool].delivers if q.enabled && contains(values(q.handlers)[*].name, "subscriptions.notify")])
    error_message = "A pool whose queue is handled by delivering delivers."
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
    condition     = { for pool, p in output.pools : pool => p.delivers } == { letters = true, seats = false }
    error_message = "Webhooks are delivered by the pool with that handler, and by no other."
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
