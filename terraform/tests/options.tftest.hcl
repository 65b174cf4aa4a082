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
  mock_resource "google_logging_project_bucket_config" {
    override_during = plan
    defaults        = { id = "projects/example/locations/eu/buckets/billhook" }
  }
}

variables {
  project_id = "example"
  region     = "europe-west3"
  firestore = {
    location = "eur3"
    kms_key  = "projects/keys/locations/europe/keyRings/shop/cryptoKeys/billhook"
  }
  images = {
    webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  notification_channels = ["projects/example/notificationChannels/1"]

  # A queue of this catalog has a rate, and so the webhook service has a database.
  catalog_dir = "../catalog/testdata/crooked"
  target_urls = { POST_OFFICE_URL = "https://post-office.example" }
  tasks_pool  = "letters"
}

run "all_that_is_optional" {
  command = plan

  variables {
    front         = { domains = ["hooks.example.com", "hooks.example.org"] }
    backups       = { daily_days = 7, weekly_weeks = 14, weekly_on = "MONDAY" }
    budget        = { billing_account = "012345-6789AB-CDEF01", amount = 200, channels = ["projects/example/notificationChannels/1"] }
    logs          = { retention_days = 90, location = "eu", instead_of_default = true, exclude = { tasks = "jsonPayload.message=\"task\" AND jsonPayload.done=0" } }
    secret_access = { readers = ["ops@example.com"] }
  }

  assert {
    condition     = module.webhook[0].ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" && output.webhook_url == "https://hooks.example.com"
    error_message = "Behind a front the webhook service has one way in, and its address is the domain."
  }
  assert {
    condition     = module.front[0].service == module.webhook[0].name && length(module.front[0].dns_records) == 2
    error_message = "The front leads to the webhook service, and there are records for each of its domains."
  }
  assert {
    condition     = toset(keys(google_project_service.optional)) == toset(["billingbudgets.googleapis.com", "certificatemanager.googleapis.com", "compute.googleapis.com"])
    error_message = "What the options need is switched on, and no more."
  }
  assert {
    condition     = google_firestore_backup_schedule.this["daily"].retention == "604800s" && length(google_firestore_backup_schedule.this["daily"].daily_recurrence) == 1
    error_message = "Each day's backup is kept for seven days."
  }
  assert {
    condition     = google_firestore_backup_schedule.this["weekly"].retention == "8467200s" && google_firestore_backup_schedule.this["weekly"].weekly_recurrence[0].day == "MONDAY"
    error_message = "Each Monday's backup is kept for fourteen weeks."
  }
  assert {
    condition     = alltrue([for database in [google_firestore_database.this, google_firestore_database.ingest] : database.cmek_config[0].kms_key_name == var.firestore.kms_key])
    error_message = "Both databases are encrypted with the key."
  }
  assert {
    condition     = google_kms_crypto_key_iam_member.firestore_encrypts[var.firestore.kms_key].member == "serviceAccount:service-123456789012@gcp-sa-firestore.iam.gserviceaccount.com"
    error_message = "Firestore may use the key."
  }
  assert {
    condition     = google_billing_budget.project[0].amount[0].specified_amount[0].units == "200" && google_billing_budget.project[0].budget_filter[0].projects == toset(["projects/123456789012"])
    error_message = "The budget is the project's."
  }
  assert {
    condition     = [for t in google_billing_budget.project[0].threshold_rules : t.threshold_percent if t.spend_basis == "FORECASTED_SPEND"] == [1] && length(google_billing_budget.project[0].threshold_rules) == 4
    error_message = "It tells of shares, and once before it is spent."
  }
  assert {
    condition     = google_logging_project_bucket_config.own["billhook"].retention_days == 90 && google_logging_project_sink.own["billhook"].destination == "logging.googleapis.com/projects/example/locations/eu/buckets/billhook"
    error_message = "The services' lines have a bucket of their own."
  }
  assert {
    condition     = google_logging_project_sink.own["billhook"].exclusions[0].name == "tasks" && google_logging_project_exclusion.kept_elsewhere["billhook"].filter == google_logging_project_sink.own["billhook"].filter
    error_message = "What goes there no longer goes to _Default, and what is dropped is dropped there too."
  }
  assert {
    condition = alltrue([for e in concat(values(google_logging_project_exclusion.dropped), values(google_logging_project_exclusion.kept_elsewhere)) :
      startswith(e.filter, "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^billhook-(webhook|worker-.*)$\"")
    ])
    error_message = "Nobody else's lines are kept from the shared bucket."
  }
  assert {
    condition     = one(google_project_iam_audit_config.secrets[0].audit_log_config).log_type == "DATA_READ"
    error_message = "Reads of secrets are recorded."
  }
  assert {
    condition = alltrue(concat(
      [for s in google_secret_manager_secret.secret : strcontains(google_logging_metric.secret_access[0].filter, s.secret_id)],
      [for email in ["account@example.iam.gserviceaccount.com", "service-123456789012@serverless-robot-prod.iam.gserviceaccount.com", "ops@example.com"] : strcontains(split("NOT ", google_logging_metric.secret_access[0].filter)[1], "\"${email}\"")],
    ))
    error_message = "Each secret is watched, and neither a service nor a named person is told of."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.alert["secret-access"].conditions[0].condition_threshold[0].filter, "user/${google_logging_metric.secret_access[0].name}\"")
    error_message = "Somebody is told of it."
  }
}

run "mistakes_are_refused" {
  command = plan

  variables {
    firestore     = { location = "eur3", kms_key = "billhook" }
    backups       = { daily_days = 99 }
    budget        = { billing_account = "my account", amount = 0.5 }
    logs          = { instead_of_default = true, exclude = { everything = " " } }
    secret_access = { readers = ["nobody"] }
  }

  expect_failures = [var.firestore, var.backups, var.budget, var.logs, var.secret_access]
}

run "choices_that_do_not_fit_are_refused" {
  command = plan

  variables {
    images          = { webhook = "example/webhook:latest", worker = "example/worker:latest" }
    secret_versions = { POST_OFFICE_SECRET = 0 }
    target_urls     = { POST_OFFICE_URL = "http://post-office.example" }
    ops             = { people = ["ada@example.com"] }
    webhook_scaling = { min = 5, max = 1 }
    paused_queues   = ["lost"]
    name            = "an-installation-of-ours"
  }

  expect_failures = [
    var.images, var.secret_versions, var.target_urls, var.ops, var.webhook_scaling, var.paused_queues, var.name,
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
