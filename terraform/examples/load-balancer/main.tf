# PayNow's webhooks behind a domain of your own, with Cloud Armor: gcloud services enable compute.googleapis.com first.
# webhook has the domain last, once its certificate is active and PayNow sends there: with it, the service's own
# address is closed.

provider "google" {
  project = "my-project"
  region  = "europe-west3"
}

module "billhook" {
  source     = "../.."
  project_id = "my-project"
  region     = "europe-west3"
  firestore  = { location = "eur3" }
  webhook    = { domain = "hooks.example.com" }
  images = {
    webhook = "europe-west3-docker.pkg.dev/my-project/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-west3-docker.pkg.dev/my-project/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  queues      = ["paynow-events", "pay-subscription-update"]
  target_urls = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example.com" }
  alerts      = { channels = ["projects/my-project/notificationChannels/1234567890"] }
}

resource "google_compute_global_address" "front" {
  name = "billhook-front"
}

# Issued, and renewed, once the domain's record A has the address.
resource "google_compute_managed_ssl_certificate" "front" {
  name = "billhook-front"
  managed {
    domains = ["hooks.example.com"]
  }
}

resource "google_compute_region_network_endpoint_group" "webhook" {
  name                  = "billhook-webhook"
  region                = "europe-west3"
  network_endpoint_type = "SERVERLESS"
  cloud_run {
    service = module.billhook.services.webhook
  }
}

resource "google_compute_backend_service" "webhook" {
  name                  = "billhook-webhook"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  protocol              = "HTTPS"
  security_policy       = google_compute_security_policy.front.id
  backend {
    group = google_compute_region_network_endpoint_group.webhook.id
  }
}

# Nothing listens on port 80: a sender that would post in the clear is not redirected, since its first request
# has shown what it carries.
resource "google_compute_url_map" "front" {
  name            = "billhook-front"
  default_service = google_compute_backend_service.webhook.id
}

resource "google_compute_target_https_proxy" "front" {
  name             = "billhook-front"
  url_map          = google_compute_url_map.front.id
  ssl_certificates = [google_compute_managed_ssl_certificate.front.id]
}

resource "google_compute_global_forwarding_rule" "front" {
  name                  = "billhook-front"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.front.id
  port_range            = "443"
  target                = google_compute_target_https_proxy.front.id
}

# No rule reads bodies: a product's or a customer's name may look like an attack, and a refused webhook may be a paid
# order. 429 has a sender try again later; 403 has some of them give up.
resource "google_compute_security_policy" "front" {
  name = "billhook-front"
  rule {
    description = "at most 6000 requests in 60 s from an address"
    priority    = 1000
    action      = "throttle"
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
    rate_limit_options {
      conform_action = "allow"
      exceed_action  = "deny(429)"
      enforce_on_key = "IP"
      rate_limit_threshold {
        count        = 6000
        interval_sec = 60
      }
    }
  }
  rule {
    description = "the rest"
    priority    = 2147483647
    action      = "allow"
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
  }
}

output "address" {
  description = "What the domain's record A has."
  value       = google_compute_global_address.front.address
}
