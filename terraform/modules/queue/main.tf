# One queue that runs, or is kept: its topic unless it shares one, the subscription that pushes to the worker, and its
# dead-letter topic. One subscription keeps the dead letters, another feeds the store.

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
  topics  = merge(var.queue.shared ? {} : { queue = var.queue.topic }, { for letter in local.letters : "dead_letter" => letter.topic })
  topic   = var.queue.shared ? var.shared_topic : google_pubsub_topic.topic["queue"].id
  letters = var.queue.dead_letter.drop ? [] : [var.queue.dead_letter]

  longest_retention = var.emulator ? 604800 : 2678400
  retention         = "${min(local.longest_retention, tonumber(trimsuffix(var.queue.message_retention_duration, "s")))}s"
  letter_retention  = [for letter in local.letters : "${min(local.longest_retention, tonumber(trimsuffix(letter.retention, "s")))}s"]

  # What holds messages. Terraform then deletes it only where an apply before has taken this away.
  deletion_policy = var.protected ? "PREVENT" : "DELETE"

  # Without an endpoint messages wait: those of a queue that is paused, or off and kept.
  pushes = !var.paused && !var.kept

  counts_deliveries = !var.queue.dead_letter.drop && !(var.emulator && var.queue.enable_message_ordering)
}

resource "google_pubsub_topic" "topic" {
  for_each        = local.topics
  project         = var.project_id
  name            = each.value
  labels          = var.labels
  deletion_policy = local.deletion_policy
  kms_key_name    = var.message_storage.kms_key

  dynamic "message_storage_policy" {
    for_each = length(var.message_storage.regions) > 0 ? [var.message_storage] : []
    content {
      allowed_persistence_regions = message_storage_policy.value.regions
      enforce_in_transit          = message_storage_policy.value.enforce_in_transit
    }
  }
}

# This subscription keeps every dead letter, also while no worker runs. Nobody pulls from it
# day to day, so it must never expire: by default it would after 31 days without a reader.
resource "google_pubsub_subscription" "hold" {
  count                      = length(local.letters)
  project                    = var.project_id
  name                       = local.letters[count.index].hold_subscription
  topic                      = google_pubsub_topic.topic["dead_letter"].id
  ack_deadline_seconds       = 60
  message_retention_duration = local.letter_retention[count.index]
  labels                     = var.labels
  deletion_policy            = local.deletion_policy

  expiration_policy {
    ttl = ""
  }
}

resource "google_pubsub_subscription" "push" {
  project                    = var.project_id
  name                       = var.queue.push_subscription
  topic                      = local.topic
  ack_deadline_seconds       = var.queue.ack_deadline_seconds
  message_retention_duration = local.retention
  enable_message_ordering    = var.queue.enable_message_ordering
  filter                     = var.queue.filter == "" ? null : var.queue.filter
  labels                     = var.catalog_hash == "" ? var.labels : merge(var.labels, { billhook-catalog = var.catalog_hash })
  deletion_policy            = local.deletion_policy

  expiration_policy {
    ttl = ""
  }

  dynamic "push_config" {
    for_each = local.pushes ? [var.queue.push_path] : []
    content {
      push_endpoint = "${var.push_base_url}${push_config.value}"

      dynamic "oidc_token" {
        for_each = var.identity[*]
        content {
          service_account_email = oidc_token.value.service_account
          audience              = oidc_token.value.audience
        }
      }
    }
  }

  dynamic "retry_policy" {
    for_each = var.emulator && !var.queue.enable_message_ordering ? [] : [var.queue.broker]
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
      condition     = !local.pushes || !contains(keys(self.effective_labels), "billhook-paused")
      error_message = "Queue ${var.queue.id} is paused, and this would have its messages pushed again. Name it in paused_queues, or resume it first: billhook queues resume. billhook admin doctor says who has paused it, when and why."
    }
    postcondition {
      condition     = !var.paused || contains(keys(self.effective_labels), "billhook-paused")
      error_message = "paused_queues names queue ${var.queue.id}, which is not paused. Take it out, or pause it first: billhook queues pause."
    }
  }

  # Terraform deletes it before these. So where it refuses to, the queue keeps all that it works with.
  depends_on = [
    google_pubsub_topic_iam_member.publishes, google_pubsub_topic_iam_member.publishes_dead_letters, google_pubsub_topic_iam_member.agent_publishes_dead_letters,
    google_pubsub_subscription.hold, google_pubsub_subscription.dead_letter_push,
  ]
}

# Dead letters are pushed to the queue's own worker, which keeps them.
resource "google_pubsub_subscription" "dead_letter_push" {
  count                      = length(local.letters)
  project                    = var.project_id
  name                       = local.letters[count.index].push_subscription
  topic                      = google_pubsub_topic.topic["dead_letter"].id
  ack_deadline_seconds       = var.queue.ack_deadline_seconds
  message_retention_duration = local.letter_retention[count.index]
  labels                     = var.labels
  deletion_policy            = local.deletion_policy

  expiration_policy {
    ttl = ""
  }

  # A paused queue's worker goes on keeping them.
  dynamic "push_config" {
    for_each = var.kept ? [] : [local.letters[count.index].push_path]
    content {
      push_endpoint = "${var.push_base_url}${push_config.value}"

      dynamic "oidc_token" {
        for_each = var.identity[*]
        content {
          service_account_email = oidc_token.value.service_account
          audience              = oidc_token.value.audience
        }
      }
    }
  }

  dynamic "retry_policy" {
    for_each = var.emulator ? [] : [var.queue.broker]
    content {
      minimum_backoff = retry_policy.value.minimum_backoff
      maximum_backoff = retry_policy.value.maximum_backoff
    }
  }
}
