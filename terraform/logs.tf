# Where the services' lines are kept. The project's bucket _Default is shared with everything else in it, and so
# this never changes its retention. The metrics that alerts are made on count lines before any of this.

locals {
  own_lines = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^${local.name}-(webhook|worker-.*)$\""
  own_log   = var.logs.retention_days == null ? [] : [local.name]
}

resource "google_logging_project_bucket_config" "own" {
  for_each       = toset(local.own_log)
  project        = var.project_id
  location       = var.logs.location
  bucket_id      = each.key
  description    = "The lines of ${local.name}'s services."
  retention_days = var.logs.retention_days
  depends_on     = [google_project_service.api]
}

# A sink to a bucket of its own project needs no grant.
resource "google_logging_project_sink" "own" {
  for_each               = google_logging_project_bucket_config.own
  project                = var.project_id
  name                   = local.name
  destination            = "logging.googleapis.com/${each.value.id}"
  filter                 = local.own_lines
  unique_writer_identity = true

  dynamic "exclusions" {
    for_each = var.logs.exclude
    content {
      name   = exclusions.key
      filter = exclusions.value
    }
  }
}

# These are of the sink that feeds _Default, and name this installation's lines alone.
resource "google_logging_project_exclusion" "dropped" {
  for_each    = var.logs.exclude
  project     = var.project_id
  name        = "${local.name}-${each.key}"
  description = "Lines of ${local.name}'s services that are not kept."
  filter      = "${local.own_lines} AND (${each.value})"
  depends_on  = [google_project_service.api]
}

# Once the other bucket has them.
resource "google_logging_project_exclusion" "kept_elsewhere" {
  for_each    = { for name, sink in google_logging_project_sink.own : name => sink if var.logs.instead_of_default }
  project     = var.project_id
  name        = "${each.key}-kept-elsewhere"
  description = "Lines of ${local.name}'s services, which go to the bucket ${each.key} of ${var.logs.location}."
  filter      = local.own_lines
  depends_on  = [google_logging_project_sink.own]
}
