# What a plan says of services beside the catalog: what serves, what people set, and what is refused.

mock_provider "google" {
  # Known to a plan, for the check that reads it.
  override_during = plan

  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_data "google_secret_manager_secret_version" {
    defaults = { enabled = true, destroy_time = "", create_time = "2020-01-01T00:00:00Z" }
  }
  mock_resource "google_cloud_run_v2_service" {
    defaults = { terminal_condition = [] }
  }
}

# Two pools: letters runs the tasks and posts, seats does neither.
variables {
  project_id          = "example"
  region              = "europe-west3"
  firestore           = { location = "eur3" }
  catalog_dir         = "../catalog/testdata/crooked"
  tasks_pool          = "letters"
  target_urls         = { POST_OFFICE_URL = "https://post-office.example" }
  secret_max_age_days = 0
  images = {
    webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
}

run "a_canary_beside_what_serves" {
  command = plan

  variables {
    canary = {
      webhook        = { image = "example/webhook@sha256:1111111111111111111111111111111111111111111111111111111111111111", percent = 5 }
      worker-letters = { image = "example/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111", percent = 0 }
    }
    redeploy              = { worker-seats = "2026-11-22" }
    labels                = { team = "billing" }
    extra_env             = { worker-seats = { GODEBUG = "http2client=0" } }
    log_level             = "WARN"
    vpc                   = { subnetwork = "private", egress = "ALL_TRAFFIC" }
    service_kms_key       = "projects/keys/locations/europe-west3/keyRings/r/cryptoKeys/services"
    secret_kms_key        = "projects/keys/locations/global/keyRings/r/cryptoKeys/secrets"
    catalog_min_instances = true
  }

  # The first was chosen by an apply before; the second serves as the latest.
  override_data {
    target = data.google_cloud_run_v2_service.beside_a_canary["webhook"]
    values = {
      latest_ready_revision = "projects/example/locations/europe-west3/services/billhook-webhook/revisions/billhook-webhook-00009-new"
      traffic_statuses = [
        { type = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST", revision = "billhook-webhook-00009-new", percent = 5, tag = "", uri = "" },
        { type = "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION", revision = "billhook-webhook-00007-old", percent = 95, tag = "", uri = "" },
      ]
    }
  }
  override_data {
    target = data.google_cloud_run_v2_service.beside_a_canary["worker-letters"]
    values = {
      latest_ready_revision = "projects/example/locations/europe-west3/services/billhook-worker-letters/revisions/billhook-worker-letters-00003-old"
      traffic_statuses      = [{ type = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST", revision = "billhook-worker-letters-00003-old", percent = 100, tag = "", uri = "" }]
    }
  }

  # The plan says that the canaries' services take no other change.
  expect_failures = [check.no_canary_holds_changes_back]

  assert {
    condition     = module.webhook[0].traffic == { latest = 5, billhook-webhook-00007-old = 95 } && module.webhook[0].image == var.canary.webhook.image
    error_message = "The canary is the latest revision and has its percent; what served before keeps the rest, also when it is no longer the latest."
  }
  assert {
    condition     = module.worker["letters"].traffic == { billhook-worker-letters-00003-old = 100 }
    error_message = "A canary of 0 percent serves nothing."
  }
  assert {
    condition     = module.worker["seats"].traffic == { latest = 100 } && module.worker["seats"].image == var.images.worker
    error_message = "Where there is no canary the latest revision serves, of the image of all."
  }
  assert {
    condition     = [for w in [module.webhook[0], module.worker["letters"], module.worker["seats"]] : join(" ", values(w.template_labels))] == ["billhook billing", "billhook billing", "billhook 2026-11-22 billing"]
    error_message = "One service is deployed anew, and all have the labels."
  }
  assert {
    condition     = { for key, w in merge({ webhook = module.webhook[0] }, module.worker) : key => "${w.env.LOG_LEVEL} ${lookup(w.env, "GODEBUG", "")} ${w.egress}" } == { webhook = "WARN  none", letters = "WARN  ALL_TRAFFIC", seats = "WARN http2client=0 ALL_TRAFFIC" }
    error_message = "Each service has its environment, and the workers the way out."
  }
  assert {
    condition     = module.webhook[0].env.WEBHOOK_TOLERANCE_SECONDS == "300" && alltrue([for s in values(google_secret_manager_secret.secret) : s.deletion_protection && s.replication[0].auto[0].customer_managed_encryption[0].kms_key_name == var.secret_kms_key])
    error_message = "A secret has its key, and does not go by mistake."
  }
  assert {
    condition = { for what, grant in google_kms_crypto_key_iam_member.encrypts : what => "${grant.crypto_key_id} ${grant.member}" } == {
      services = "${var.service_kms_key} serviceAccount:service-123456789012@serverless-robot-prod.iam.gserviceaccount.com"
      secrets  = "${var.secret_kms_key} serviceAccount:service-123456789012@gcp-sa-secretmanager.iam.gserviceaccount.com"
    }
    error_message = "Google's accounts may use the keys, each its own."
  }
  assert {
    condition     = { for pool, p in module.catalog.pools : pool => output.scaling[output.services["worker-${pool}"]].min } == { for pool, p in module.catalog.pools : pool => p.min_instances }
    error_message = "The catalog's instances are kept where somebody asks for them."
  }
}

run "what_is_not_as_it_should_be_is_told_of_by_every_plan" {
  command = plan

  variables {
    secret_max_age_days = 365
  }

  override_resource {
    target          = module.worker["seats"].google_cloud_run_v2_service.service
    override_during = plan
    values          = { terminal_condition = [{ type = "Ready", state = "CONDITION_FAILED", message = "the container failed to start", last_transition_time = "", severity = "", reason = "", revision_reason = "", execution_reason = "" }] }
  }

  expect_failures = [check.services_are_ready, check.secrets_are_rotated]
}

run "an_apply_without_images_is_refused_and_so_are_misspelt_services" {
  command = plan

  variables {
    images                  = null
    canary                  = { worker-letter = { image = "example/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111", percent = 5 } }
    redeploy                = { worker-letter = "1" }
    extra_env               = { worker-letter = {} }
    log_level               = "info"
    labels                  = { app = "another" }
    vpc                     = { egress = "ALL_TRAFFIC" }
    webhook_timeout_seconds = 10
    service_kms_key         = "k"
    secret_kms_key          = "projects/keys/locations/europe-west3/keyRings/r/cryptoKeys/secrets"
    catalog_min_instances   = true
    scale_to_zero           = true
  }

  expect_failures = [
    var.images, var.canary, var.redeploy, var.extra_env, var.log_level, var.labels, var.vpc, var.webhook_timeout_seconds, var.service_kms_key, var.secret_kms_key,
    var.catalog_min_instances,
  ]
}

run "bootstrap_beside_images_and_a_version_that_was_destroyed_are_refused" {
  command = plan

  variables {
    bootstrap = true
    canary    = { webhook = { image = "example/webhook:latest", percent = 100 } }
    redeploy  = { webhook = "Now!" }
  }

  expect_failures = [var.images, var.canary, var.redeploy]
}

run "a_version_that_was_destroyed_is_found_before_anything_changes" {
  command = plan

  override_data {
    target = data.google_secret_manager_secret_version.read["POST_OFFICE_SECRET"]
    values = { enabled = true, destroy_time = "2026-01-01T00:00:00Z" }
  }

  expect_failures = [data.google_secret_manager_secret_version.read]
}
