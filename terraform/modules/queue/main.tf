# One queue that runs, or is kept: its topic unless it shares one, its subscription, and its dead letters.

locals {
  dead_letters = var.queue.dead_letter.drop ? [] : [var.queue.dead_letter]
  own          = var.queue.shared_topic == ""
  shared       = "projects/${var.installed.project_id}/topics/${var.queue.topic}"
  topics = merge(
    local.own ? { queue = var.queue.topic } : {},
    { for d in local.dead_letters : "dead_letter" => d.topic },
  )

  # What holds messages. Terraform then deletes it only where an apply before has taken this away.
  deletion_policy = var.queue.protected ? "PREVENT" : "DELETE"

  # A dead-letter policy on an ordered subscription ends the emulator's pushes for good, and a retry policy on an
  # unordered one loses messages. Retention ends there at 7 days.
  emulator          = var.installed.agent == null
  counts_deliveries = !var.queue.dead_letter.drop && !(local.emulator && var.queue.enable_message_ordering)
  longest           = local.emulator ? 604800 : 2678400
}

resource "google_pubsub_topic" "topic" {
  for_each        = local.topics
  project         = var.installed.project_id
  name            = each.value
  labels          = var.installed.labels
  deletion_policy = local.deletion_policy
  kms_key_name    = var.installed.kms_key

  dynamic "message_storage_policy" {
    for_each = length(var.installed.storage.regions) > 0 ? [var.installed.storage] : []
    content {
      allowed_persistence_regions = message_storage_policy.value.regions
      enforce_in_transit          = message_storage_policy.value.enforce_in_transit
    }
  }
}

resource "google_pubsub_subscription" "push" {
  project                    = var.installed.project_id
  name                       = var.queue.push_subscription
  topic                      = local.own ? google_pubsub_topic.topic["queue"].id : local.shared
  ack_deadline_seconds       = var.queue.ack_deadline_seconds
  message_retention_duration = "${min(local.longest, tonumber(trimsuffix(var.queue.message_retention_duration, "s")))}s"
  enable_message_ordering    = var.queue.enable_message_ordering
  filter                     = var.queue.filter == "" ? null : var.queue.filter
  labels = merge(
    var.installed.labels, { for hash in var.installed.catalog_hash[*] : "billhook-catalog" => hash },
  )
  deletion_policy = local.deletion_policy

  expiration_policy {
    ttl = ""
  }

  # Without an endpoint messages wait.
  dynamic "push_config" {
    for_each = var.queue.state == "runs" ? [var.push] : []
    content {
      push_endpoint = "${push_config.value.base_url}${var.queue.push_path}"

      dynamic "oidc_token" {
        for_each = local.emulator ? [] : [var.push]
        content {
          service_account_email = oidc_token.value.account
          audience              = oidc_token.value.audience
        }
      }
    }
  }

  dynamic "retry_policy" {
    for_each = local.emulator && !var.queue.enable_message_ordering ? [] : [var.queue.broker]
    content {
      minimum_backoff = retry_policy.value.minimum_backoff
      maximum_backoff = retry_policy.value.maximum_backoff
    }
  }

  dynamic "dead_letter_policy" {
    for_each = local.counts_deliveries ? [var.queue.broker] : []
    content {
      dead_letter_topic     = google_pubsub_topic.topic["dead_letter"].id
      max_delivery_attempts = dead_letter_policy.value.max_delivery_attempts
    }
  }

  # billhook queues pause leaves this label. A plan refuses to undo a pause, or to make one, in silence.
  lifecycle {
    postcondition {
      condition     = var.queue.state != "runs" || !contains(keys(self.effective_labels), "billhook-paused")
      error_message = "Queue ${var.queue.id} is paused, and this would have its messages pushed again. Name it in paused_queues, or resume it first: billhook queues resume. billhook admin doctor says who has paused it, when and why."
    }
    postcondition {
      condition     = var.queue.state != "paused" || contains(keys(self.effective_labels), "billhook-paused")
      error_message = "paused_queues names queue ${var.queue.id}, which is not paused. Take it out, or pause it first: billhook queues pause."
    }
  }

  # Terraform deletes it before these. So where it refuses to, the queue keeps all that it works with.
  depends_on = [
    google_pubsub_topic_iam_member.publishes, google_pubsub_topic_iam_member.publishes_dead_letters,
    google_pubsub_subscription.dead_letters,
  ]
}

# One keeps every dead letter, also while no worker runs: nobody pulls from it day to day, so it must never expire.
# By default it would after 31 days without a reader. The other pushes to the queue's own worker, which keeps them,
# also of a paused queue.
resource "google_pubsub_subscription" "dead_letters" {
  for_each = merge([
    for d in local.dead_letters : { hold = d.hold_subscription, push = d.push_subscription }
  ]...)
  project                    = var.installed.project_id
  name                       = each.value
  topic                      = google_pubsub_topic.topic["dead_letter"].id
  ack_deadline_seconds       = each.key == "push" ? var.queue.ack_deadline_seconds : 60
  message_retention_duration = "${min(local.longest, tonumber(trimsuffix(var.queue.dead_letter.retention, "s")))}s"
  labels                     = var.installed.labels
  deletion_policy            = local.deletion_policy

  expiration_policy {
    ttl = ""
  }

  dynamic "push_config" {
    for_each = each.key == "push" && var.queue.state != "kept" ? [var.push] : []
    content {
      push_endpoint = "${push_config.value.base_url}${var.queue.dead_letter.push_path}"

      dynamic "oidc_token" {
        for_each = local.emulator ? [] : [var.push]
        content {
          service_account_email = oidc_token.value.account
          audience              = oidc_token.value.audience
        }
      }
    }
  }

  dynamic "retry_policy" {
    for_each = each.key == "push" && !local.emulator ? [var.queue.broker] : []
    content {
      minimum_backoff = retry_policy.value.minimum_backoff
      maximum_backoff = retry_policy.value.maximum_backoff
    }
  }
}

output "push_subscription" {
  description = "The name of the subscription that pushes the queue's messages, once it is there."
  value       = google_pubsub_subscription.push.name
}
