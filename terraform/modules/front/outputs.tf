output "url" {
  description = "The address of the webhook service by the first domain."
  value       = "https://${var.domains[0]}"
}

output "address" {
  description = "The IPv4 address of the load balancer."
  value       = google_compute_global_address.front.address
}

output "dns_records" {
  description = "The records that each domain needs: the CNAME first, which proves that it is yours; the A once its certificate is active."
  value = { for key, domain in local.domains : domain => {
    prove = join(", ", [for r in google_certificate_manager_dns_authorization.domain[key].dns_resource_record : "${r.name} ${r.type} ${r.data}"])
    point = "${domain}. A ${google_compute_global_address.front.address}"
  } }
}

output "rules" {
  description = "The rules by their description, in the order in which they are asked: what becomes of a request that matches, and whether that is done or logged alone."
  value = { for rule in google_compute_security_policy.front.rule : rule.description => {
    priority = rule.priority
    action   = rule.action
    preview  = coalesce(rule.preview, false)
  } }
}

output "service" {
  description = "The service that requests reach."
  value       = google_compute_region_network_endpoint_group.webhook.cloud_run[0].service
}
