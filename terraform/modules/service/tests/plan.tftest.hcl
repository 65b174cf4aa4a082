# A service's plan with a mocked provider. It needs hashicorp/google, and nothing of
# Google Cloud.

mock_provider "google" {}

variables {
  installed = { project_id = "example", region = "europe-west3", labels = {}, encryption_key = null }
  revision  = { image = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000" }
  service = {
    name            = "billhook-worker-seats"
    account         = "worker@example.iam.gserviceaccount.com"
    ingress         = "INGRESS_TRAFFIC_INTERNAL_ONLY"
    audiences       = ["https://audience.example"]
    invokers        = { push = "serviceAccount:push@example.iam.gserviceaccount.com" }
    env             = { POOL = "seats" }
    secrets         = { POST_OFFICE_SECRET = { secret = "post-office-secret", version = "3" } }
    scaling         = { min = 1, max = 5 }
    resources       = { cpu = "1", memory = "512Mi", cpu_idle = true }
    concurrency     = 20
    timeout_seconds = 120
  }
}

run "a_worker" {
  command = plan

  assert {
    condition     = google_cloud_run_v2_service.service.ingress == "INGRESS_TRAFFIC_INTERNAL_ONLY" && !google_cloud_run_v2_service.service.invoker_iam_disabled && !google_cloud_run_v2_service.service.iap_enabled
    error_message = "A worker is reached from inside, by who may."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.custom_audiences == tolist(["https://audience.example"])
    error_message = "The service takes tokens for the audience that subscriptions use."
  }
  assert {
    condition = (
      google_cloud_run_v2_service.service.template[0].containers[0].startup_probe[0].http_get[0].path == "/health/ready" &&
      google_cloud_run_v2_service.service.template[0].containers[0].liveness_probe[0].http_get[0].path == "/health/live"
    )
    error_message = "The probes ask what the program answers."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.scaling[0].min_instance_count == 1 && google_cloud_run_v2_service.service.scaling[0].max_instance_count == 5
    error_message = "Both bounds are those of the service: two revisions together have no more."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.template[0].scaling[0].max_instance_count == 5
    error_message = "Cloud Run's own bound of a revision is no lower."
  }
  assert {
    condition     = !google_cloud_run_v2_service.service.deletion_protection
    error_message = "A service whose first start failed can be made anew."
  }
  assert {
    condition = (
      length(google_cloud_run_v2_service.service.traffic) == 1 && google_cloud_run_v2_service.service.traffic[0].percent == 100 &&
      google_cloud_run_v2_service.service.traffic[0].type == "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
    )
    error_message = "All requests go to the latest revision, and a plan says so where they do not."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.template[0].encryption_key == null && length(google_cloud_run_v2_service.service.template[0].vpc_access) == 0 && length(google_cloud_run_v2_service.service.template[0].labels) == 0
    error_message = "What is not asked for is not there."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.template[0].max_instance_request_concurrency == 20 && google_cloud_run_v2_service.service.template[0].timeout == "120s"
    error_message = "Concurrency and timeout are said."
  }
  assert {
    condition = (
      google_cloud_run_v2_service.service.template[0].containers[0].resources[0].limits == tomap({ cpu = "1", memory = "512Mi" }) &&
      google_cloud_run_v2_service.service.template[0].containers[0].resources[0].cpu_idle
    )
    error_message = "CPU, memory, and when the CPU is there, are said."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.template[0].service_account == "worker@example.iam.gserviceaccount.com" && google_cloud_run_v2_service.service.template[0].containers[0].image == var.revision.image
    error_message = "It runs the image of that digest, under its own account."
  }
  assert {
    condition     = anytrue([for e in google_cloud_run_v2_service.service.template[0].containers[0].env : e.name == "POST_OFFICE_SECRET" && try(e.value_source[0].secret_key_ref[0].version == "3", false)])
    error_message = "A secret is read at its number."
  }
  assert {
    condition     = google_cloud_run_v2_service_iam_member.invokes["push"].role == "roles/run.invoker"
    error_message = "The push account may call it."
  }
}

run "behind_the_proxy" {
  command = plan

  variables {
    service = merge(var.service, { ingress = "INGRESS_TRAFFIC_ALL", people = ["group:operators@example.com"] })
  }

  assert {
    condition = google_cloud_run_v2_service.service.iap_enabled && !google_cloud_run_v2_service.service.invoker_iam_disabled && {
      for member, grant in google_iap_web_cloud_run_service_iam_member.lets_in : member => "${grant.role} ${grant.cloud_run_service_name}"
    } == { "group:operators@example.com" = "roles/iap.httpsResourceAccessor billhook-worker-seats" }
    error_message = "The proxy stands before it and lets the members in."
  }
}

run "a_canary_in_a_network_with_a_key" {
  command = plan

  variables {
    revision = {
      image    = "europe-docker.pkg.dev/example/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
      redeploy = "2026-11-22"
      traffic  = [{ percent = 5 }, { revision = "billhook-worker-seats-00007-abc", percent = 95 }]
    }
    installed = {
      project_id     = "example", region = "europe-west3", labels = { team = "billing" }
      encryption_key = "projects/example/locations/europe-west3/keyRings/r/cryptoKeys/k"
    }
    service = merge(var.service, { vpc = { subnetwork = "private", egress = "ALL_TRAFFIC" } })
  }

  assert {
    condition = (
      [for t in google_cloud_run_v2_service.service.traffic : "${t.percent} ${t.type} ${t.revision == null ? "" : t.revision}"] ==
      ["5 TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST ", "95 TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION billhook-worker-seats-00007-abc"]
    )
    error_message = "The latest revision has its percent, and the one that is named the rest."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.template[0].labels == tomap({ team = "billing", redeploy = "2026-11-22" })
    error_message = "The label of the revision makes a new one; that of the service stays."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.template[0].encryption_key == var.installed.encryption_key
    error_message = "The revision is encrypted with the key."
  }
  assert {
    condition     = google_cloud_run_v2_service.service.template[0].vpc_access[0].egress == "ALL_TRAFFIC" && google_cloud_run_v2_service.service.template[0].vpc_access[0].network_interfaces[0].subnetwork == "private"
    error_message = "It goes out through the network."
  }
}

run "what_the_module_sets_is_not_set_beside_it" {
  command = plan
  variables {
    revision = merge(var.revision, { env = { POOL = "another" } })
  }
  expect_failures = [var.revision]
}
