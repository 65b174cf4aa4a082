# One enabled queue: its topic unless it shares one, the subscription that pushes to the worker, and its
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
  topic   = var.queue.shared ? var.shared_topic : google_pubsub_topic.queue[0].id
  letters = var.queue.dead_letter.drop ? [] : [var.queue.dead_letter]

  longest_retention = var.emulator ? 604800 : 2678400
  retention         = "${min(local.longest_retention, tonumber(trimsuffix(var.queue.message_retention_duration, "s")))}s"
  letter_retention  = [for letter in local.letters : "${min(local.longest_retention, tonumber(trimsuffix(letter.retention, "s")))}s"]

  counts_deliveries = !var.queue.dead_letter.drop && !(var.emulator && var.queue.enable_message_ordering)
}

resource "google_pubsub_topic" "queue" {
  count   = var.queue.shared ? 0 : 1
  project = var.project_id
  name    = var.queue.topic
  labels  = var.labels
}

resource "google_pubsub_topic" "dead_letter" {
  count   = length(local.letters)
  project = var.project_id
  name    = local.letters[count.index].topic
  labels  = var.labels
}

# This subscription keeps every dead letter, also while no worker runs. Nobody pulls from it
# day to day, so it must never expire: by default it would after 31 days without a reader.
resource "google_pubsub_subscription" "hold" {
  count                      = length(local.letters)
  project                    = var.project_id
  name                       = local.letters[count.index].hold_subscription
  topic                      = google_pubsub_topic.dead_letter[count.index].id
  ack_deadline_seconds       = 60
  message_retention_duration = local.letter_retention[count.index]
  labels                     = var.labels

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

  expiration_policy {
    ttl = ""
  }

  # Without an endpoint the messages of a paused queue wait.
  dynamic "push_config" {
    for_each = var.paused ? [] : [var.queue.push_path]
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
      dead_letter_topic     = google_pubsub_topic.dead_letter[0].id
      max_delivery_attempts = dead_letter_policy.value.max_delivery_attempts
    }
  }

  # billhook queues pause leaves this label. A plan refuses to undo a pause, or to make one, in silence.
  lifecycle {
    postcondition {
      condition     = var.paused || !contains(keys(self.effective_labels), "billhook-paused")
      error_message = "Queue ${var.queue.id} is paused, and this would have its messages pushed again. Name it in paused_queues, or resume it first: billhook queues resume. billhook doctor says who has paused it, when and why."
    }
    postcondition {
      condition     = !var.paused || contains(keys(self.effective_labels), "billhook-paused")
      error_message = "paused_queues names queue ${var.queue.id}, which is not paused. Take it out, or pause it first: billhook queues pause."
    }
  }
}

# Dead letters are pushed to the queue's own worker, which keeps them.
resource "google_pubsub_subscription" "dead_letter_push" {
  count                      = length(local.letters)
  project                    = var.project_id
  name                       = local.letters[count.index].push_subscription
  topic                      = google_pubsub_topic.dead_letter[count.index].id
  ack_deadline_seconds       = var.queue.ack_deadline_seconds
  message_retention_duration = local.letter_retention[count.index]
  labels                     = var.labels

  expiration_policy {
    ttl = ""
  }

  push_config {
    push_endpoint = "${var.push_base_url}${local.letters[count.index].push_path}"

    dynamic "oidc_token" {
      for_each = var.identity[*]
      content {
        service_account_email = oidc_token.value.service_account
        audience              = oidc_token.value.audience
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
