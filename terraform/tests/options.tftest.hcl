# What is off by default, switched on at once, and its mistakes. That it is off stands in plan.tftest.hcl.

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
    override_during = plan
    defaults = {
      name   = "projects/example/serviceAccounts/account@example.iam.gserviceaccount.com"
      email  = "account@example.iam.gserviceaccount.com"
      member = "serviceAccount:account@example.iam.gserviceaccount.com"
    }
  }
}

variables {
  project_id = "example"
  region     = "europe-west3"
  firestore  = { location = "eur3" }
  images = {
    webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }

  # A queue of this catalog has a rate, and so the webhook service has a database.
  catalog_dir = "../catalog/testdata/crooked"
  target_urls = { POST_OFFICE_URL = "https://post-office.example" }
  tasks_pool  = "letters"
}

run "all_that_is_optional" {
  command = plan

  variables {
    webhook = { domain = "hooks.example.com" }
    keys    = { database = "projects/keys/locations/europe/keyRings/shop/cryptoKeys/billhook" }
    alerts  = { on = ["secret-access", "slo-burn"], channels = ["projects/example/notificationChannels/1"], secret_readers = ["ops@example.com"] }
  }

  assert {
    condition     = module.webhook[0].service.ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" && output.webhook_url == "https://hooks.example.com"
    error_message = "Behind a load balancer the webhook service has one way in, and its address is the domain."
  }
  assert {
    condition     = alltrue([for database in [google_firestore_database.this, google_firestore_database.ingest] : database.cmek_config[0].kms_key_name == var.keys.database])
    error_message = "Both databases are encrypted with the key."
  }
  assert {
    condition = alltrue(concat(
      [for s in google_secret_manager_secret.secret : strcontains(google_logging_metric.logged["secret-access"].filter, s.secret_id)],
      [for email in ["account@example.iam.gserviceaccount.com", "service-123456789012@serverless-robot-prod.iam.gserviceaccount.com", "ops@example.com"] : strcontains(split("NOT ", google_logging_metric.logged["secret-access"].filter)[1], "\"${email}\"")],
    ))
    error_message = "Each secret is watched, and neither a service nor a named person is reported."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.alert["secret-access"].conditions[0].condition_threshold[0].filter, "user/${google_logging_metric.logged["secret-access"].name}\"")
    error_message = "Somebody is notified of it."
  }
  assert {
    condition     = length(google_monitoring_slo.webhooks) == 1
    error_message = "An alert on the objective has one."
  }
}

run "choices_that_do_not_fit_are_refused" {
  command = plan

  variables {
    images        = { webhook = "example/webhook:latest", worker = "example/worker:latest" }
    target_urls   = { POST_OFFICE_URL = "http://post-office.example" }
    ops           = { people = ["ada@example.com"] }
    webhook       = { timeout_seconds = 10 }
    worker        = { keeps = "one" }
    paused_queues = ["lost"]

    secret_versions = { WEBHOOK_SECRET_PAYNOW = 0 }
  }

  expect_failures = [
    var.images, var.target_urls, var.ops, var.webhook, var.worker, var.paused_queues, var.secret_versions,
  ]
}

run "a_target_without_an_address_and_people_without_an_identity_are_refused" {
  command = plan

  variables {
    target_urls = {}
    ops         = { people = ["allAuthenticatedUsers"] }
  }

  expect_failures = [var.target_urls, var.ops]
}

run "an_address_that_nobody_reads_is_refused" {
  command = plan

  variables {
    target_urls = { POST_OFFICE_URL = "https://post-office.example", POST_OFFICES_URL = "https://post-office.example" }
  }

  expect_failures = [var.target_urls]
}

run "an_installation_of_a_long_name_is_refused" {
  command = plan

  variables {
    installation = "an-installation-of-ours"
  }

  expect_failures = [var.installation]
}
