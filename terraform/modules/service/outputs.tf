output "name" {
  description = "The service's name."
  value       = google_cloud_run_v2_service.service.name
}

output "uri" {
  description = "The address that Cloud Run gave the service."
  value       = google_cloud_run_v2_service.service.uri
}

output "audiences" {
  description = "The custom audiences that the service takes tokens for."
  value       = google_cloud_run_v2_service.service.custom_audiences
}

output "env" {
  description = "The environment of the service, without secrets."
  value       = var.env
}

output "secrets" {
  description = "The environment variables that come from Secret Manager."
  value       = keys(var.secrets)
}

output "ingress" {
  description = "Who reaches the service."
  value       = google_cloud_run_v2_service.service.ingress
}
