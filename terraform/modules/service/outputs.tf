output "name" {
  description = "The service's name."
  value       = google_cloud_run_v2_service.service.name
}

output "audiences" {
  description = "The custom audiences that the service takes tokens for."
  value       = google_cloud_run_v2_service.service.custom_audiences
}

output "env" {
  description = "The environment of the service, without secrets."
  value       = merge(var.extra_env, var.env)
}

output "template_labels" {
  description = "The labels of the service's revisions."
  value       = google_cloud_run_v2_service.service.template[0].labels
}

output "egress" {
  description = "Which requests leave through a network: ALL_TRAFFIC, PRIVATE_RANGES_ONLY, or none."
  value       = try(var.vpc.egress, "none")
}

output "secrets" {
  description = "The environment variables that come from Secret Manager."
  value       = keys(var.secrets)
}

output "ingress" {
  description = "Who reaches the service."
  value       = google_cloud_run_v2_service.service.ingress
}

output "traffic" {
  description = "Where requests go: percents by revision, and by latest."
  value       = { for t in google_cloud_run_v2_service.service.traffic : t.type == "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST" ? "latest" : t.revision => t.percent }
}

output "image" {
  description = "The image of the latest revision."
  value       = var.image
}

output "failure" {
  description = "Why Cloud Run says that the service is not as it was last applied; empty where it is."
  value = join(" ", [
    for c in google_cloud_run_v2_service.service.terminal_condition : "${c.state}: ${try(coalesce(c.message, c.revision_reason, c.reason), "no reason given")}"
    if c.state != "CONDITION_SUCCEEDED"
  ])
}
