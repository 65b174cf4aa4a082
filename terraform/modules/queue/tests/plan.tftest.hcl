# A queue's plan with a mocked provider: for each kind of queue, on Google Cloud and on
# the emulator. It needs hashicorp/google, and nothing of Google Cloud.

mock_provider "google" {
  mock_resource "google_pubsub_topic" {
    defaults = { id = "projects/example/topics/made-up" }
  }
}

variables {
  installed = { project_id = "example", agent = "serviceAccount:service-1@gcp-sa-pubsub.iam.gserviceaccount.com" }
  push = {
    base_url = "https://worker.example"
    account  = "push@example.iam.gserviceaccount.com"
    audience = "https://audience.example"
  }
  queue = {
    id                         = "bookings"
    topic                      = "bookings"
    shared_topic               = ""
    topic_publishers           = { webhook = "serviceAccount:webhook@example.iam.gserviceaccount.com" }
    dead_letter_publishers     = { worker = "serviceAccount:worker@example.iam.gserviceaccount.com" }
    push_subscription          = "bookings-push"
    push_path                  = "/push/bookings"
    filter                     = "attributes.queue = \"bookings\" OR NOT attributes:queue"
    enable_message_ordering    = true
    ack_deadline_seconds       = 60
    message_retention_duration = "1000000s"
    broker                     = { minimum_backoff = "10s", maximum_backoff = "600s", max_delivery_attempts = 20 }
    dead_letter = {
      drop              = false
      topic             = "bookings-dlq"
      retention         = "1209600s"
      hold_subscription = "bookings-dlq-hold"
      push_subscription = "bookings-dlq-push"
      push_path         = "/push/dead-letters/bookings"
    }
  }
}

run "an_ordered_queue" {
  command = plan

  assert {
    condition     = google_pubsub_subscription.push.enable_message_ordering && google_pubsub_subscription.push.filter == "attributes.queue = \"bookings\" OR NOT attributes:queue"
    error_message = "Ordering and filter are those of the queue."
  }
  assert {
    condition     = alltrue([for s in concat([google_pubsub_subscription.push], values(google_pubsub_subscription.dead_letters)) : s.expiration_policy[0].ttl == ""])
    error_message = "No subscription expires."
  }
  assert {
    condition     = google_pubsub_subscription.dead_letters["hold"].message_retention_duration == "1209600s" && length(google_pubsub_subscription.dead_letters["hold"].push_config) == 0
    error_message = "The hold subscription keeps dead letters for 14 days, and pushes nothing."
  }
  assert {
    condition     = google_pubsub_subscription.push.ack_deadline_seconds == 60 && google_pubsub_subscription.push.message_retention_duration == "1000000s"
    error_message = "Deadline and retention are those of the queue."
  }
  assert {
    condition     = google_pubsub_subscription.push.dead_letter_policy[0].max_delivery_attempts == 20
    error_message = "The broker has its backstop."
  }
  assert {
    condition     = google_pubsub_subscription.push.retry_policy[0].minimum_backoff == "10s" && google_pubsub_subscription.push.retry_policy[0].maximum_backoff == "600s"
    error_message = "The broker waits as the queue says."
  }
  assert {
    condition = alltrue([
      for s in [google_pubsub_subscription.push, google_pubsub_subscription.dead_letters["push"]] :
      s.push_config[0].oidc_token[0].audience == var.push.audience && s.push_config[0].oidc_token[0].service_account_email == var.push.account
    ])
    error_message = "Pushes carry a token of the account, for the audience."
  }
  assert {
    condition     = google_pubsub_subscription.push.push_config[0].push_endpoint == "https://worker.example/push/bookings" && google_pubsub_subscription.dead_letters["push"].push_config[0].push_endpoint == "https://worker.example/push/dead-letters/bookings"
    error_message = "Pushes go to the worker's paths."
  }
  assert {
    condition = (
      google_pubsub_subscription_iam_member.agent_takes_from_the_queue["agent"].member == var.installed.agent &&
      google_pubsub_subscription_iam_member.agent_takes_from_the_queue["agent"].subscription == "bookings-push" &&
      google_pubsub_subscription_iam_member.agent_takes_from_the_queue["agent"].role == "roles/pubsub.subscriber"
    )
    error_message = "The agent may acknowledge what it has forwarded."
  }
  assert {
    condition = [
      for grant in concat(values(google_pubsub_topic_iam_member.publishes), values(google_pubsub_topic_iam_member.publishes_dead_letters)) :
      "${grant.topic} ${grant.member} ${grant.role}"
      ] == [
      "bookings ${var.queue.topic_publishers.webhook} roles/pubsub.publisher",
      "bookings-dlq ${var.installed.agent} roles/pubsub.publisher",
      "bookings-dlq ${var.queue.dead_letter_publishers.worker} roles/pubsub.publisher",
    ]
    error_message = "Who publishes on the topic, and who on that of dead letters, as the agent does, is granted it there."
  }
}

run "a_queue_on_a_shared_topic" {
  command = plan
  variables {
    queue = merge(var.queue, { topic = "shop-seats", shared_topic = "seats" })
  }
  assert {
    condition     = keys(google_pubsub_topic.topic) == ["dead_letter"] && length(google_pubsub_topic_iam_member.publishes) == 0
    error_message = "The topic and its grants are made once, elsewhere."
  }
  assert {
    condition     = google_pubsub_subscription.push.topic == "projects/example/topics/shop-seats"
    error_message = "Subscription and dead letters are the queue's own."
  }
}

run "a_queue_that_drops" {
  command = plan

  variables {
    queue = merge(var.queue, { dead_letter = { drop = true } })
  }

  assert {
    condition     = !can(google_pubsub_topic.topic["dead_letter"]) && length(google_pubsub_subscription.dead_letters) == 0 && length(google_pubsub_subscription.push.dead_letter_policy) == 0
    error_message = "There are no dead letters."
  }
  assert {
    condition     = length(google_pubsub_topic_iam_member.publishes_dead_letters) == 0 && length(google_pubsub_subscription_iam_member.agent_takes_from_the_queue) == 0
    error_message = "What is not needed is not granted."
  }
}

run "an_ordered_queue_on_the_emulator" {
  command = plan

  variables {
    installed = { project_id = "example" }
  }

  assert {
    condition     = length(google_pubsub_subscription.push.dead_letter_policy) == 0 && length(google_pubsub_subscription.push.retry_policy) == 1
    error_message = "A dead-letter policy on an ordered subscription ends the emulator's pushes."
  }
  assert {
    condition     = google_pubsub_subscription.push.message_retention_duration == "604800s" && google_pubsub_subscription.dead_letters["hold"].message_retention_duration == "604800s"
    error_message = "The emulator knows no more than 7 days."
  }
  assert {
    condition     = length(google_pubsub_subscription.push.push_config[0].oidc_token) == 0
    error_message = "The emulator's pushes carry no token."
  }
}

run "an_unordered_queue_on_the_emulator" {
  command = plan

  variables {
    installed = { project_id = "example" }
    queue     = merge(var.queue, { enable_message_ordering = false, filter = "" })
  }

  assert {
    condition     = length(google_pubsub_subscription.push.dead_letter_policy) == 1 && length(google_pubsub_subscription.push.retry_policy) == 0
    error_message = "A retry policy on an unordered subscription loses the emulator's messages."
  }
  assert {
    condition     = google_pubsub_subscription.push.filter == null
    error_message = "No filter is none."
  }
}

run "a_paused_queue" {
  command = plan

  variables {
    queue = merge(var.queue, { state = "paused" })
  }

  assert {
    condition     = length(google_pubsub_subscription.push.push_config) == 0
    error_message = "Its subscription has no endpoint."
  }
  assert {
    condition     = length(google_pubsub_subscription.dead_letters["push"].push_config) == 1
    error_message = "Its dead letters go on into the store."
  }
}

run "a_queue_that_is_off_and_kept" {
  command = plan

  variables {
    queue = merge(var.queue, { state = "kept", dead_letter_publishers = {} })
    push  = { base_url = "", audience = "https://audience.example" }
    installed = merge(var.installed, {
      storage = { regions = ["europe-west3", "europe-west4"], enforce_in_transit = true }
      kms_key = "projects/p/locations/europe-west3/keyRings/r/cryptoKeys/k"
    })
  }

  assert {
    condition     = length(google_pubsub_subscription.push.push_config) == 0 && length(google_pubsub_subscription.dead_letters["push"].push_config) == 0
    error_message = "Nothing is pushed to a worker that does not serve the queue, or is not there."
  }
  assert {
    condition     = length(google_pubsub_subscription.push.dead_letter_policy) == 1 && keys(google_pubsub_topic_iam_member.publishes_dead_letters) == ["agent"]
    error_message = "The broker has its backstop, and no worker publishes dead letters."
  }
  assert {
    condition = alltrue([
      for policy in concat(
        values(google_pubsub_topic.topic)[*].deletion_policy, values(google_pubsub_subscription.dead_letters)[*].deletion_policy,
        [google_pubsub_subscription.push.deletion_policy],
      ) : policy == "PREVENT"
    ])
    error_message = "What holds messages is not deleted."
  }
  assert {
    condition = alltrue([
      for topic in values(google_pubsub_topic.topic) : topic.kms_key_name == var.installed.kms_key &&
      topic.message_storage_policy[0].allowed_persistence_regions == toset(var.installed.storage.regions) && topic.message_storage_policy[0].enforce_in_transit
    ])
    error_message = "Messages and dead letters are where they may be, by the key."
  }
}

run "a_queue_whose_backlog_is_given_up" {
  command = plan

  variables {
    queue = merge(var.queue, { protected = false })
  }

  assert {
    condition     = google_pubsub_topic.topic["queue"].deletion_policy == "DELETE" && google_pubsub_subscription.push.deletion_policy == "DELETE" && google_pubsub_subscription.dead_letters["hold"].deletion_policy == "DELETE"
    error_message = "Then it may be deleted."
  }
  assert {
    condition     = google_pubsub_topic.topic["queue"].kms_key_name == null
    error_message = "Without a key it is Google's."
  }
}
