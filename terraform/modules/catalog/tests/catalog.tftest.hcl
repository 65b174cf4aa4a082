# The catalog module needs no provider, so these always run.

run "the_shipped_catalog_is_taken" {
  command = plan
  variables {
    directory = "../../../catalog"
  }
  assert {
    condition     = length(output.queues) > 0 && alltrue([for id, q in output.queues : (q.shared || q.topic == id) && q.push_subscription == "${id}-push"])
    error_message = "Names are derived from the id, and the topic where it is not shared."
  }
  assert {
    condition     = alltrue([for q in values(output.queues) : tonumber(trimsuffix(q.handler_timeout, "s")) < q.ack_deadline_seconds && q.ack_deadline_seconds <= tonumber(trimsuffix(q.lease, "s"))])
    error_message = "The deadlines stand in order."
  }
  assert {
    condition     = alltrue([for q in values(output.queues) : q.broker.max_delivery_attempts == 100])
    error_message = "The broker's backstop has headroom."
  }
  assert {
    condition     = toset(flatten([for pool in values(output.pools) : pool.queues])) == toset([for id, q in output.queues : id if q.enabled])
    error_message = "Each enabled queue is in a pool, and no other."
  }
}

run "a_schedule_takes_nothing_from_the_defaults" {
  command = plan
  variables {
    directory = "../../../catalog/testdata/small"
  }
  assert {
    condition     = keys(output.queues["reminders"].retry_policy) == ["schedule"] && output.queues["reminders"].broker.minimum_backoff == "5s"
    error_message = "A schedule stands for itself, and its first wait is before the first attempt."
  }
  assert {
    condition     = output.queues["bookings"].handlers["seat.freed"].retry_policy.jitter == "1s"
    error_message = "A policy is filled in key by key."
  }
}

run "a_shared_topic_exists_where_an_enabled_queue_takes_messages_of_it" {
  command = plan
  variables {
    directory = "../../../catalog/testdata/crooked"
  }
  assert {
    condition     = keys(output.shared_topics) == ["halls"] && output.queues["ordered"].topic == "halls" && output.queues["by-all"].topic == "empty-halls"
    error_message = "A topic of disabled queues alone is not made."
  }
  assert {
    condition     = alltrue([for q in values(output.queues) : length(q.filter) <= 256 && (q.filter == "" || strcontains(q.filter, "attributes.queue = \"${q.id}\" OR "))])
    error_message = "A filter fits, and lets through what is for the queue alone."
  }
}

run "a_broken_catalog_is_refused" {
  command = plan
  variables {
    directory = "../../../catalog/testdata/wrong"
  }
  expect_failures = [output.json, output.queues]
}

run "a_folder_without_the_files_is_refused" {
  command = plan
  variables {
    directory = "."
  }
  expect_failures = [var.directory]
}
