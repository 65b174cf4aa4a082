# What a plan says of services beside the catalog: what serves, what people set, and what is refused.

mock_provider "google" {
  # Known to a plan, for the check that reads it.
  override_during = plan

  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_data "google_secret_manager_secret_version" {
    defaults = { enabled = true, destroy_time = "" }
  }
  mock_resource "google_cloud_run_v2_service" {
    defaults = { terminal_condition = [] }
  }
}

# Two pools: letters runs the tasks and posts, seats does neither.
variables {
  project_id  = "example"
  region      = "europe-west3"
  firestore   = { location = "eur3" }
  catalog_dir = "../catalog/testdata/crooked"
  tasks_pool  = "letters"
  target_urls = { POST_OFFICE_URL = "https://post-office.example" }
  images = {
    webhook = "europe-docker.pkg.dev/example/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
}

run "a_canary_beside_what_serves" {
  command = plan

  variables {
    services = {
      webhook        = { canary = { image = "example/webhook@sha256:1111111111111111111111111111111111111111111111111111111111111111", percent = 5 } }
      worker-letters = { canary = { image = "example/worker@sha256:1111111111111111111111111111111111111111111111111111111111111111", percent = 0 } }
      worker-seats   = { redeploy = "2026-11-22", env = { GODEBUG = "http2client=0" } }
    }
    labels = { team = "billing" }
    vpc    = { subnetwork = "private", egress = "ALL_TRAFFIC" }
    keys = {
      services = "projects/keys/locations/europe-west3/keyRings/r/cryptoKeys/services"
      secrets  = "projects/keys/locations/global/keyRings/r/cryptoKeys/secrets"
    }
    worker = { keeps = "catalog" }
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
    condition     = { for t in module.webhook[0].service.traffic : t.type == "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST" ? "latest" : t.revision => t.percent } == { latest = 5, billhook-webhook-00007-old = 95 } && module.webhook[0].service.template[0].containers[0].image == var.services.webhook.canary.image
    error_message = "The canary is the latest revision and has its percent; what served before keeps the rest, also when it is no longer the latest."
  }
  assert {
    condition     = { for t in module.worker["letters"].service.traffic : t.type == "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST" ? "latest" : t.revision => t.percent } == { billhook-worker-letters-00003-old = 100 }
    error_message = "A canary of 0 percent serves nothing."
  }
  assert {
    condition     = { for t in module.worker["seats"].service.traffic : t.type == "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST" ? "latest" : t.revision => t.percent } == { latest = 100 } && module.worker["seats"].service.template[0].containers[0].image == var.images.worker
    error_message = "Where there is no canary the latest revision serves, of the image of all."
  }
  assert {
    condition     = [for w in [module.webhook[0], module.worker["letters"], module.worker["seats"]] : join(" ", values(w.service.template[0].labels))] == ["billhook billing", "billhook billing", "billhook 2026-11-22 billing"]
    error_message = "One service is deployed anew, and all have the labels."
  }
  assert {
    condition     = { for key, w in merge({ webhook = module.webhook[0] }, module.worker) : key => "${lookup(w.env, "GODEBUG", "")} ${join("", w.service.template[0].vpc_access[*].egress)} ${w.service.template[0].encryption_key == var.keys.services}" } == { webhook = "  true", letters = " ALL_TRAFFIC true", seats = "http2client=0 ALL_TRAFFIC true" }
    error_message = "Each service has its environment and its key, and the workers the way out."
  }
  assert {
    condition     = module.webhook[0].env.WEBHOOK_TOLERANCE_SECONDS == "300" && alltrue([for s in values(google_secret_manager_secret.secret) : s.deletion_protection && s.replication[0].auto[0].customer_managed_encryption[0].kms_key_name == var.keys.secrets])
    error_message = "A secret has its key, and does not go by mistake."
  }
  assert {
    condition     = { for pool, p in module.catalog.pools : pool => local.scaling[output.services["worker-${pool}"]].min } == { for pool, p in module.catalog.pools : pool => p.min_instances }
    error_message = "The catalog's instances are kept where somebody asks for them."
  }
}

run "what_is_not_as_it_should_be_is_told_of_by_every_plan" {
  command = plan

  override_data {
    target = data.google_secret_manager_secret_version.read["POST_OFFICE_SECRET"]
    values = { enabled = true, destroy_time = "", create_time = "2020-01-01T00:00:00Z" }
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
    images   = null
    services = { worker-letter = {} }
  }
  expect_failures = [var.images, var.services]
}

run "bootstrap_beside_images_and_a_canary_by_a_tag_are_refused" {
  command = plan
  variables {
    bootstrap = true
    services  = { webhook = { canary = { image = "example/webhook:latest", percent = 100 } } }
  }
  expect_failures = [var.images, var.services]
}

run "a_version_that_was_destroyed_is_found_before_anything_changes" {
  command = plan

  override_data {
    target = data.google_secret_manager_secret_version.read["POST_OFFICE_SECRET"]
    values = { enabled = true, destroy_time = "2026-01-01T00:00:00Z" }
  }

  expect_failures = [data.google_secret_manager_secret_version.read]
}
