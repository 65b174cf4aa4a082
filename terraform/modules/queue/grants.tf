# Without both of the agent's grants the broker never dead-letters anything, and reports nothing. A grant
# disappears with its resource, unnoticed by Terraform: so it is made anew whenever its resource is, and
# before those go that it replaces: another account's, since no topic is replaced under its own name.

locals {
  backstop = local.counts_deliveries && !local.emulator ? { agent = var.installed.agent } : {}
}

# grant: Pub/Sub's service agent | the queue's push subscription | acknowledges forwarded messages
resource "google_pubsub_subscription_iam_member" "agent_takes_from_the_queue" {
  for_each     = local.backstop
  project      = var.installed.project_id
  subscription = google_pubsub_subscription.push.name
  role         = "roles/pubsub.subscriber"
  member       = each.value

  lifecycle {
    replace_triggered_by = [google_pubsub_subscription.push.id]
  }
}

# grant: webhook service | topics of queues that a source routes to; of all enabled queues where the generic source opens the producers' addresses | webhooks and messages received
# grant: the worker of a pool | topics of queues that its handlers emit to | messages emitted, after the commit
# grant: the worker of the tasks' pool | topics of enabled queues | messages that are still in the outbox, replayed, delayed, or put back by the sweep
resource "google_pubsub_topic_iam_member" "publishes" {
  for_each = local.own ? var.queue.topic_publishers : {}
  project  = var.installed.project_id
  topic    = google_pubsub_topic.topic["queue"].name
  role     = "roles/pubsub.publisher"
  member   = each.value

  lifecycle {
    create_before_destroy = true
    replace_triggered_by  = [google_pubsub_topic.topic["queue"].id]
  }
}

# grant: Pub/Sub's service agent | the queue's dead-letter topic | forwards messages that no worker answered
# grant: the worker of the queue's pool | the queue's dead-letter topic | forwards events that cannot succeed, with the reason
resource "google_pubsub_topic_iam_member" "publishes_dead_letters" {
  for_each = merge(local.backstop, var.queue.dead_letter.drop ? {} : var.queue.dead_letter_publishers)
  project  = var.installed.project_id
  topic    = google_pubsub_topic.topic["dead_letter"].name
  role     = "roles/pubsub.publisher"
  member   = each.value

  lifecycle {
    create_before_destroy = true
    replace_triggered_by  = [google_pubsub_topic.topic["dead_letter"].id]
  }
}
