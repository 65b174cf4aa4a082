output "push_subscription" {
  description = "The name of the subscription that pushes the queue's messages."
  value       = google_pubsub_subscription.push.name
}

output "publishers" {
  description = "The members that may publish on the topic."
  value       = sort(values(google_pubsub_topic_iam_member.publishes)[*].member)
}

output "dead_letter_publishers" {
  description = "The members that may publish on the dead-letter topic, besides Pub/Sub's agent."
  value       = sort(values(google_pubsub_topic_iam_member.publishes_dead_letters)[*].member)
}

output "push_audience" {
  description = "The audience of the pushes' tokens; null where they carry none."
  value       = try(google_pubsub_subscription.push.push_config[0].oidc_token[0].audience, null)
}
