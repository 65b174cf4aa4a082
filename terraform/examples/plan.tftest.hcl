# Plans an example with a mocked provider, before its first apply and after:
# terraform test -test-directory=examples -var-file=examples/paynow.tfvars

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

run "the_first_apply" {
  command = plan

  assert {
    condition     = length(module.webhook) == 0 && length(module.queue) > 0
    error_message = "The first apply makes everything but the services."
  }
}

run "the_services" {
  command = plan

  variables {
    bootstrap = false
    images = {
      webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
      worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    }
  }

  assert {
    condition     = length(module.webhook) == 1 && toset(keys(module.worker)) == toset(keys(module.catalog.pools))
    error_message = "The webhook service runs, and a worker for each pool."
  }
}
