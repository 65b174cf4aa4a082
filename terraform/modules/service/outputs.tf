output "name" {
  description = "The service's name."
  value       = google_cloud_run_v2_service.service.name
}

output "uri" {
  description = "The address that Cloud Run gave the service."
  value       = google_cloud_run_v2_service.service.uri
}
