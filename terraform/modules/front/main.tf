# The owner's domains in front of the webhook service: one address, a certificate that Google renews, and
# rules that are asked before the service is. Nothing listens on port 80: a sender that would post in the
# clear is not redirected, since its first request has shown what it carries.

terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.32, < 8.0"
    }
  }
}

locals {
  # Names of certificates have no dots.
  domains = { for domain in var.domains : replace(domain, ".", "-") => domain }

  # Signatures that look at the method and the headers alone: a webhook's body cannot match one.
  of_headers = {
    "a method that no client of an API uses" = { set = "methodenforcement-v33-stable", signatures = ["owasp-crs-v030301-id911100-methodenforcement"] }
    "a scanner that gives its name"          = { set = "scannerdetection-v33-stable", signatures = ["owasp-crs-v030301-id913100-scannerdetection", "owasp-crs-v030301-id913110-scannerdetection"] }
  }

  # A lower number is asked first. The last one is Google's, and takes what is left.
  refused = { for i, about in sort(keys(local.of_headers)) : about => {
    priority   = 100 + i
    expression = "evaluatePreconfiguredWaf('${local.of_headers[about].set}', {'sensitivity': 0, 'opt_in_rule_ids': [${join(", ", [for id in local.of_headers[about].signatures : "'${id}'"])}]})"
  } }
  watched = { for i, set in var.watch : "watched: ${set}" => { priority = 200 + i, expression = "evaluatePreconfiguredWaf('${set}', {'sensitivity': 1})" } }
  trusted = { for i, ranges in chunklist(var.senders, 10) : "senders, part ${i + 1}" => { priority = 300 + i, ranges = ranges } }
}

resource "google_compute_global_address" "front" {
  project     = var.project_id
  name        = "${var.name}-front"
  description = "Where the domains of the webhook service point to."
  labels      = var.labels
}

# One certificate for each domain, so that another domain leaves the ones that serve alone. It is issued
# by a record of the domain's own, and so before the domain points here.
resource "google_certificate_manager_dns_authorization" "domain" {
  for_each = local.domains
  project  = var.project_id
  name     = "${var.name}-${each.key}"
  domain   = each.value
  labels   = var.labels
}

resource "google_certificate_manager_certificate" "domain" {
  for_each = local.domains
  project  = var.project_id
  name     = "${var.name}-${each.key}"
  labels   = var.labels

  managed {
    domains            = [each.value]
    dns_authorizations = [google_certificate_manager_dns_authorization.domain[each.key].id]
  }
}

resource "google_certificate_manager_certificate_map" "front" {
  project = var.project_id
  name    = "${var.name}-front"
  labels  = var.labels
}

resource "google_certificate_manager_certificate_map_entry" "domain" {
  for_each     = local.domains
  project      = var.project_id
  name         = "${var.name}-${each.key}"
  map          = google_certificate_manager_certificate_map.front.name
  hostname     = each.value
  certificates = [google_certificate_manager_certificate.domain[each.key].id]
  labels       = var.labels
}

# In another region it is another group: the new one serves before the old one goes.
resource "google_compute_region_network_endpoint_group" "webhook" {
  project               = var.project_id
  region                = var.region
  name                  = "${var.name}-webhook-${var.region}"
  network_endpoint_type = "SERVERLESS"

  cloud_run {
    service = var.service
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_compute_backend_service" "webhook" {
  project               = var.project_id
  name                  = "${var.name}-webhook"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  protocol              = "HTTPS"
  security_policy       = google_compute_security_policy.front.id

  backend {
    group = google_compute_region_network_endpoint_group.webhook.id
  }

  # Cloud Run logs each request that it gets. What is refused before, and what a watched rule would have
  # refused, stands in these lines alone.
  log_config {
    enable      = var.log_share > 0
    sample_rate = var.log_share > 0 ? var.log_share : null
  }
}

resource "google_compute_url_map" "front" {
  project         = var.project_id
  name            = "${var.name}-front"
  default_service = google_compute_backend_service.webhook.id
}

resource "google_compute_ssl_policy" "front" {
  project         = var.project_id
  name            = "${var.name}-front"
  profile         = "MODERN"
  min_tls_version = "TLS_1_2"
}

resource "google_compute_target_https_proxy" "front" {
  project         = var.project_id
  name            = "${var.name}-front"
  url_map         = google_compute_url_map.front.id
  certificate_map = "//certificatemanager.googleapis.com/${google_certificate_manager_certificate_map.front.id}"
  ssl_policy      = google_compute_ssl_policy.front.id

  # A proxy whose map has no entry serves no certificate.
  depends_on = [google_certificate_manager_certificate_map_entry.domain]
}

resource "google_compute_global_forwarding_rule" "front" {
  project               = var.project_id
  name                  = "${var.name}-front"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.front.id
  port_range            = "443"
  target                = google_compute_target_https_proxy.front.id
  labels                = var.labels
}

resource "google_compute_security_policy" "front" {
  project     = var.project_id
  name        = "${var.name}-front"
  description = "What is asked of a request before the webhook service is."
  type        = "CLOUD_ARMOR"

  # Otherwise the braces of a JSON body are matched too.
  advanced_options_config {
    json_parsing = "STANDARD"
  }

  dynamic "rule" {
    for_each = local.refused
    content {
      description = rule.key
      priority    = rule.value.priority
      action      = "deny(403)"
      preview     = false
      match {
        expr {
          expression = rule.value.expression
        }
      }
    }
  }

  # A product's or a customer's name may look like an attack to a rule that reads bodies, and a refused
  # webhook may be a paid order. So these are logged alone: the webhook service checks signatures and shapes itself.
  dynamic "rule" {
    for_each = local.watched
    content {
      description = rule.key
      priority    = rule.value.priority
      action      = "deny(403)"
      preview     = true
      match {
        expr {
          expression = rule.value.expression
        }
      }
    }
  }

  # A payment provider sends everything from a few addresses.
  dynamic "rule" {
    for_each = local.trusted
    content {
      description = rule.key
      priority    = rule.value.priority
      action      = "allow"
      preview     = false
      match {
        versioned_expr = "SRC_IPS_V1"
        config {
          src_ip_ranges = rule.value.ranges
        }
      }
    }
  }

  # 429 has a sender try again later; 403 has some of them give up.
  rule {
    description = "at most ${var.rate.requests} requests in ${var.rate.seconds} s from an address"
    priority    = 1000
    action      = "throttle"
    preview     = false
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
        count        = var.rate.requests
        interval_sec = var.rate.seconds
      }
    }
  }

  rule {
    description = "the rest"
    priority    = 2147483647
    action      = "allow"
    preview     = false
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
  }
}
