output "service" {
  description = "The service."
  value       = google_cloud_run_v2_service.service
}

output "env" {
  description = "The environment of the service, without secrets."
  value       = merge(var.revision.env, var.service.env)
}
