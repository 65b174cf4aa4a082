# What becomes of queues, by plans with a mocked provider: what runs, what is off and kept, and under which
# names. The crooked catalog has two pools, letters and seats, and names none for the tasks.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  # Known to a plan, for the check that reads it.
  mock_resource "google_cloud_run_v2_service" {
    override_during = plan
    defaults        = { terminal_condition = [] }
  }
  mock_data "google_secret_manager_secret_version" {
    defaults = { enabled = true, destroy_time = "" }
  }
  mock_resource "google_service_account" {
    defaults = {
      name   = "projects/example/serviceAccounts/account@example.iam.gserviceaccount.com"
      email  = "account@example.iam.gserviceaccount.com"
      member = "serviceAccount:account@example.iam.gserviceaccount.com"
    }
  }
  mock_resource "google_pubsub_topic" {
    defaults = { id = "projects/example/topics/made-up" }
  }
}

variables {
  project_id  = "example"
  region      = "europe-west3"
  firestore   = { location = "eur3" }
  catalog_dir = "../catalog/testdata/crooked"
  tasks_pool  = "seats"
  target_urls = { POST_OFFICE_URL = "https://post-office.example" }
  images = {
    webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
}

run "a_second_installation_with_a_queue_that_is_off_and_kept" {
  command = plan

  variables {
    installation    = "shop"
    queues          = ["bookings", "reminders"]
    kept_queues     = ["ordered"]
    discard_backlog = ["reminders"]
    message_storage = { regions = ["europe-west3"] }
    keys            = { messages = "projects/example/locations/europe-west3/keyRings/ring/cryptoKeys/key" }
  }

  assert {
    condition     = { for id, state in output.queues : id => state if state != "off" } == { bookings = "runs", reminders = "runs", ordered = "kept" }
    error_message = "Two run, one is kept, and there is nothing of the others."
  }
  assert {
    condition     = alltrue([for id, queue in module.queue : queue.push_subscription == "shop-${id}-push"]) && google_pubsub_topic.shared["halls"].name == "shop-halls"
    error_message = "Topics and subscriptions have the installation's name before them."
  }
  assert {
    condition     = output.services.webhook == "shop-webhook" && output.database == "shop" && google_secret_manager_secret.applied.secret_id == "shop-applied" && module.ops[0].service.name == "shop-ops"
    error_message = "So has everything else; the database is its own."
  }
  assert {
    condition     = alltrue([for service in concat([module.webhook[0]], values(module.worker)) : service.env.INSTALLATION == "shop"])
    error_message = "The services know it."
  }
  assert {
    condition     = output.tasks_pool == "seats" && alltrue([for service in values(module.worker) : service.env.TASKS_POOL == "seats"])
    error_message = "The pool that is named runs the tasks, and the workers know it."
  }
  assert {
    condition     = length(local.made["ordered"].dead_letter_publishers) == 0 && join(" ", keys(local.made["bookings"].dead_letter_publishers)) == "worker"
    error_message = "No worker publishes dead letters of the kept queue."
  }
  assert {
    condition     = google_pubsub_topic.shared["halls"].deletion_policy == "PREVENT" && google_pubsub_topic.shared["seat-feed"].deletion_policy == "PREVENT"
    error_message = "The topics of a kept queue, and what a queue that stays tells others, are protected."
  }
  assert {
    condition     = google_pubsub_topic.shared["halls"].message_storage_policy[0].allowed_persistence_regions == toset(["europe-west3"]) && google_pubsub_topic.shared["seat-feed"].kms_key_name == var.keys.messages
    error_message = "Shared and outbound topics are stored where the queues' are."
  }
  assert {
    condition     = length(setsubtract(keys(google_service_account.service), ["webhook", "ops", "worker-letters", "worker-seats"])) == 0
    error_message = "A kept queue needs no worker."
  }
}

run "no_pool_is_guessed_for_the_tasks" {
  command = plan
  variables {
    tasks_pool = null
  }
  expect_failures = [output.tasks_pool]
}

run "a_queue_that_runs_is_not_kept_nor_is_one_that_there_is_not" {
  command = plan
  variables {
    kept_queues     = ["bookings"]
    discard_backlog = ["bookingss"]
  }
  expect_failures = [output.queues]
}

run "messages_do_not_pass_where_the_services_are_not" {
  command = plan
  variables {
    message_storage = { regions = ["europe-west4"], enforce_in_transit = true }
    installation    = "goog-shop"
  }
  expect_failures = [var.message_storage, var.installation]
}
