# One service on Cloud Run, under an account of its own.

resource "google_cloud_run_v2_service" "service" {
  project          = var.installed.project_id
  location         = var.installed.region
  name             = var.service.name
  ingress          = var.service.ingress
  custom_audiences = var.service.audiences
  labels           = var.installed.labels
  # A grant to allUsers would do the same, where the organization's policy permits one.
  invoker_iam_disabled = var.service.public
  iap_enabled          = var.service.people != null
  # A service holds nothing. Protected, one whose first start failed could not be made anew.
  deletion_protection = false

  # The bounds of all revisions together: while one takes over from another, and beside a canary.
  scaling {
    min_instance_count = var.service.scaling.min
    max_instance_count = var.service.scaling.max
  }

  # Always declared: what gcloud has changed is in the next plan.
  dynamic "traffic" {
    for_each = var.revision.traffic
    content {
      type     = traffic.value.revision == "" ? "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST" : "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION"
      revision = traffic.value.revision == "" ? null : traffic.value.revision
      percent  = traffic.value.percent
    }
  }

  template {
    service_account                  = var.service.account
    timeout                          = "${var.service.timeout_seconds}s"
    max_instance_request_concurrency = var.service.concurrency
    encryption_key                   = var.installed.encryption_key
    # Another label is another revision, of the same configuration.
    labels = merge(var.installed.labels, var.revision.redeploy == "" ? {} : { redeploy = var.revision.redeploy })

    # Without it Cloud Run bounds a revision by a default of its own.
    scaling {
      max_instance_count = var.service.scaling.max
    }

    dynamic "vpc_access" {
      for_each = var.service.vpc[*]
      content {
        egress = vpc_access.value.egress
        network_interfaces {
          network    = vpc_access.value.network
          subnetwork = vpc_access.value.subnetwork
          tags       = vpc_access.value.tags
        }
      }
    }

    containers {
      image = var.revision.image

      resources {
        limits = {
          cpu    = var.service.resources.cpu
          memory = var.service.resources.memory
        }
        cpu_idle          = var.service.resources.cpu_idle
        startup_cpu_boost = true
      }

      # Cloud Run routes requests to this port alone. Metrics are on 9090, which only a
      # sidecar reaches.
      ports {
        container_port = 8080
      }

      dynamic "env" {
        for_each = merge(var.revision.env, var.service.env)
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = var.service.secrets
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = env.value.secret
              version = env.value.version
            }
          }
        }
      }

      # Paths that end in z are Cloud Run's own.
      startup_probe {
        period_seconds    = 1
        timeout_seconds   = 1
        failure_threshold = 30
        http_get {
          path = "/health/ready"
        }
      }

      liveness_probe {
        period_seconds    = 10
        timeout_seconds   = 3
        failure_threshold = 3
        http_get {
          path = "/health/live"
        }
      }
    }
  }

  lifecycle {
    # What goes, goes after the subscriptions have changed to what comes.
    create_before_destroy = true
  }
}

# grant: a pool's push account | the worker service of that pool | delivers messages, calls tasks
# grant: Identity-Aware Proxy's service agent | the service for people | hands on the requests of those whom it lets in
resource "google_cloud_run_v2_service_iam_member" "invokes" {
  for_each = var.service.invokers
  project  = var.installed.project_id
  location = var.installed.region
  name     = google_cloud_run_v2_service.service.name
  role     = "roles/run.invoker"
  member   = each.value

  lifecycle {
    create_before_destroy = true
    replace_triggered_by  = [google_cloud_run_v2_service.service.id]
  }
}

# grant: the members of `ops` | the service for people, at Identity-Aware Proxy | open pages and use the API, each under their own name
resource "google_iap_web_cloud_run_service_iam_member" "lets_in" {
  for_each               = toset(var.service.people == null ? [] : var.service.people)
  project                = var.installed.project_id
  location               = var.installed.region
  cloud_run_service_name = google_cloud_run_v2_service.service.name
  role                   = "roles/iap.httpsResourceAccessor"
  member                 = each.key

  lifecycle {
    create_before_destroy = true
    replace_triggered_by  = [google_cloud_run_v2_service.service.id]
  }
}
