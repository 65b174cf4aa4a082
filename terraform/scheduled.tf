# Messages that Cloud Scheduler puts on queues, by a token of an account of its own.

variable "scheduled_messages" {
  description = <<-EOT
    Jobs of Cloud Scheduler that put a message on a queue or a topic, by name: to (queues/<id> or topics/<id>, one that
    the catalog allows the account scheduler), the schedule, its time zone, and the body, as docs/guides/produce.md has it.
  EOT
  type = map(object({
    to        = string
    schedule  = string
    time_zone = optional(string, "Etc/UTC")
    body      = string
  }))
  default = {}

  validation {
    condition     = alltrue([for m in values(var.scheduled_messages) : can(regex("^(queues|topics)/[a-z0-9-]+$", m.to)) && can(jsondecode(m.body))])
    error_message = "Each of scheduled_messages goes to queues/<id> or topics/<id>, with a body that is JSON."
  }
}

locals {
  # The account is there with the first job.
  schedules = length(var.scheduled_messages) > 0 ? { scheduler = "${local.name}-scheduler" } : {}
}

resource "google_service_account" "scheduler" {
  for_each     = local.schedules
  project      = var.project_id
  account_id   = length(each.value) <= 30 ? each.value : "${substr(each.value, 0, 23)}-${substr(sha1(each.value), 0, 6)}"
  display_name = "Billhook: messages of Cloud Scheduler"

  lifecycle {
    precondition {
      condition     = alltrue([for m in values(var.scheduled_messages) : contains(module.catalog.accounts.scheduler, split("/", m.to)[1])])
      error_message = "scheduled_messages: the catalog's sources.yaml allows the account scheduler ${join(", ", module.catalog.accounts.scheduler)} alone."
    }
  }
}

resource "google_cloud_scheduler_job" "message" {
  for_each         = local.deployed ? var.scheduled_messages : {}
  project          = var.project_id
  region           = var.region
  name             = "${local.name}-message-${each.key}"
  description      = "POST /${each.value.to}/messages on the webhook service"
  schedule         = each.value.schedule
  time_zone        = each.value.time_zone
  attempt_deadline = "30s"
  paused           = false

  # A run that is repeated is the same event.
  retry_config {
    retry_count          = 5
    min_backoff_duration = "5s"
    max_backoff_duration = "300s"
  }

  http_target {
    http_method = "POST"
    uri         = "${local.webhook_url}/${each.value.to}/messages"
    headers     = { "Content-Type" = "application/json" }
    body        = base64encode(each.value.body)
    # For this path alone.
    oidc_token {
      service_account_email = google_service_account.scheduler["scheduler"].email
      audience              = "${local.webhook_url}/${each.value.to}/messages"
    }
  }

  depends_on = [module.webhook]
}
