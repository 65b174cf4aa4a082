# What stands before the webhook service, without a project.

mock_provider "google" {}

variables {
  project_id = "example"
  region     = "europe-west3"
  name       = "billhook"
  service    = "billhook-webhook"
  domains    = ["hooks.example.com", "hooks.example.org"]
  rate       = { requests = 6000, seconds = 60 }
  labels     = { app = "billhook" }
}

run "a_front" {
  command = plan

  variables {
    senders   = [for i in range(12) : "203.0.113.${i}/32"]
    watch     = ["sqli-v33-stable", "xss-v33-stable"]
    log_share = 1
  }

  assert {
    condition     = toset([for c in google_certificate_manager_certificate.domain : one(c.managed[0].domains)]) == toset(var.domains)
    error_message = "Each domain has a certificate of its own."
  }
  assert {
    condition     = google_compute_global_forwarding_rule.front.port_range == "443" && google_compute_ssl_policy.front.min_tls_version == "TLS_1_2"
    error_message = "It is reached by TLS alone."
  }
  assert {
    condition     = google_compute_region_network_endpoint_group.webhook.network_endpoint_type == "SERVERLESS" && output.service == "billhook-webhook"
    error_message = "Requests reach the webhook service, and no other."
  }
  assert {
    condition     = alltrue([for about, rule in output.rules : rule.preview if startswith(about, "watched: ")]) && length([for about in keys(output.rules) : about if startswith(about, "watched: ")]) == 2
    error_message = "A rule that reads bodies refuses nothing."
  }
  assert {
    condition     = alltrue([for rule in google_compute_security_policy.front.rule : strcontains(rule.match[0].expr[0].expression, "'sensitivity': 0, 'opt_in_rule_ids'") if rule.action == "deny(403)" && !rule.preview])
    error_message = "What refuses a request opts into single signatures."
  }
  assert {
    condition     = alltrue([for about, rule in output.rules : rule.action == "allow" && rule.priority < output.rules["at most 6000 requests in 60 s from an address"].priority if startswith(about, "senders, part ")])
    error_message = "Senders are let in before their number is asked for."
  }
  assert {
    condition     = alltrue([for rule in google_compute_security_policy.front.rule : length(rule.match[0].config[0].src_ip_ranges) <= 10 if length(rule.match[0].config) > 0]) && length([for about in keys(output.rules) : about if startswith(about, "senders, part ")]) == 2
    error_message = "A rule has room for ten ranges."
  }
  assert {
    condition     = one([for rule in google_compute_security_policy.front.rule : rule.rate_limit_options[0].exceed_action if rule.action == "throttle"]) == "deny(429)"
    error_message = "Who sends too much is told to try again."
  }
  assert {
    condition     = google_compute_backend_service.webhook.log_config[0].enable && output.url == "https://hooks.example.com"
    error_message = "What is watched is logged, and the first domain is the one that is told."
  }
}

run "mistakes_are_refused" {
  command = plan

  variables {
    domains = ["https://hooks.example.com"]
    rate    = { requests = 100, seconds = 45 }
    senders = ["0.0.0.0/0"]
    watch   = ["sqli-v33-stable"]
  }

  expect_failures = [var.domains, var.rate, var.senders, var.log_share]
}
