# The catalog module needs no provider, so these always run. A test in Go holds what is read here to Go's loader.

run "the_shipped_catalog_is_taken" {
  command = plan
  variables {
    directory = "../../../catalog"
  }
  assert {
    condition     = length(output.queues) > 0 && alltrue([for id, q in output.queues : q.topic == (q.shared_topic == "" ? id : q.shared_topic) && q.push_subscription == "${id}-push"])
    error_message = "Names are derived from the id, and the topic where it is not shared."
  }
  assert {
    condition     = toset(flatten([for pool in values(output.pools) : pool.queues])) == toset([for id, q in output.queues : id if q.enabled])
    error_message = "Each enabled queue is in a pool, and no other."
  }
}

run "the_first_wait_of_a_schedule_is_before_the_first_attempt" {
  command = plan
  variables {
    directory = "../../../catalog/testdata/small"
  }
  assert {
    condition     = output.queues["reminders"].broker.minimum_backoff == "5s"
    error_message = "The broker waits as long as before the second."
  }
}

run "a_shared_topic_exists_where_an_enabled_queue_takes_messages_of_it" {
  command = plan
  variables {
    directory = "../../../catalog/testdata/crooked"
  }
  assert {
    condition     = keys(output.topics) == ["halls", "seat-feed", "unheard"] && output.queues["ordered"].topic == "halls" && output.queues["by-all"].topic == "empty-halls"
    error_message = "A shared topic of disabled queues alone is not made; those of others are."
  }
  assert {
    condition     = alltrue([for q in values(output.queues) : length(q.filter) <= 256 && (q.filter == "" || strcontains(q.filter, "attributes.queue = \"${q.id}\" OR "))])
    error_message = "A filter fits, and lets through what is for the queue alone."
  }
}
