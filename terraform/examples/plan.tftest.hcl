# Plans each example, with a mocked provider: terraform init -test-directory=examples, terraform test -test-directory=examples

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
}

run "paynow" {
  command = plan
  module { source = "./examples/paynow" }

  assert {
    condition     = keys(module.billhook.services) == ["ops", "webhook", "worker-payments"]
    error_message = "Three services."
  }
}

run "whole_catalog" {
  command = plan
  module { source = "./examples/whole-catalog" }

  assert {
    condition     = length(module.billhook.services) > 5
    error_message = "A service for each pool."
  }
}

run "two_installations" {
  command = plan
  module { source = "./examples/two-installations" }

  assert {
    condition     = module.billhook.services.webhook == "billhook-webhook" && module.staging.services.webhook == "staging-webhook" && module.billhook.database != module.staging.database
    error_message = "They share no name."
  }
}

run "load_balancer" {
  command = plan
  module { source = "./examples/load-balancer" }

  assert {
    condition     = google_compute_region_network_endpoint_group.webhook.cloud_run[0].service == "billhook-webhook" && module.billhook.webhook_url == "https://hooks.example.com"
    error_message = "It leads to the webhook service, which knows its address."
  }
}

run "around" {
  command = plan
  module { source = "./examples/around" }
  variables {
    channel_keys = { slack = "a token", pagerduty = "a key" }
  }

  assert {
    condition     = google_firestore_backup_schedule.weekly.database == "billhook" && length(google_kms_crypto_key_iam_member.encrypts) == 4
    error_message = "The database is backed up, and Google's accounts may use the keys."
  }
}
