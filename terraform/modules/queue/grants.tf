# Without both of the agent's grants the broker never dead-letters anything, and reports
# nothing. A grant disappears with its resource, unnoticed by Terraform: so it is made anew
# whenever its resource is. Grants of the services' accounts are made before those go that they replace:
# another account's, since a topic is never replaced under its own name.

# grant: Pub/Sub's service agent | the queue's dead-letter topic | forwards messages that no worker answered
resource "google_pubsub_topic_iam_member" "agent_publishes_dead_letters" {
  count   = local.counts_deliveries && !local.emulator ? 1 : 0
  project = var.project_id
  topic   = google_pubsub_topic.topic["dead_letter"].name
  role    = "roles/pubsub.publisher"
  member  = var.agent

  lifecycle {
    replace_triggered_by = [google_pubsub_topic.topic["dead_letter"].id]
  }
}

# grant: Pub/Sub's service agent | the queue's push subscription | acknowledges forwarded messages
resource "google_pubsub_subscription_iam_member" "agent_takes_from_the_queue" {
  count        = local.counts_deliveries && !local.emulator ? 1 : 0
  project      = var.project_id
  subscription = google_pubsub_subscription.push.name
  role         = "roles/pubsub.subscriber"
  member       = var.agent

  lifecycle {
    replace_triggered_by = [google_pubsub_subscription.push.id]
  }
}

# grant: webhook service | topics of queues that a source routes to; of all enabled queues where the generic source opens the producers' addresses | webhooks and messages received
# grant: the worker of a pool | topics of queues that its handlers emit to | messages emitted, after the commit
# grant: the worker of the tasks' pool | topics of enabled queues | messages that are still in the outbox, replayed, delayed, or put back by the sweep
resource "google_pubsub_topic_iam_member" "publishes" {
  for_each = local.own ? var.queue.topic_publishers : {}
  project  = var.project_id
  topic    = google_pubsub_topic.topic["queue"].name
  role     = "roles/pubsub.publisher"
  member   = each.value

  lifecycle {
    create_before_destroy = true
    replace_triggered_by  = [google_pubsub_topic.topic["queue"].id]
  }
}

# grant: the worker of the queue's pool | the queue's dead-letter topic | forwards events that cannot succeed, with the reason
resource "google_pubsub_topic_iam_member" "publishes_dead_letters" {
  for_each = var.queue.dead_letter.drop ? {} : var.queue.dead_letter_publishers
  project  = var.project_id
  topic    = google_pubsub_topic.topic["dead_letter"].name
  role     = "roles/pubsub.publisher"
  member   = each.value

  lifecycle {
    create_before_destroy = true
    replace_triggered_by  = [google_pubsub_topic.topic["dead_letter"].id]
  }
}
