# The accounts and their grants; those on topics and subscriptions stand in modules/queue, those on services
# in modules/service. The README's table is made from the comment before each grant: account | on what | why.

locals {
  members = { for key, account in google_service_account.service : key => account.member }
}

resource "google_service_account" "service" {
  for_each     = local.service_names
  project      = var.project_id
  account_id   = local.account_ids[each.value]
  display_name = "Billhook: service ${each.value}"
}

resource "google_service_account" "push" {
  for_each     = local.pools
  project      = var.project_id
  account_id   = local.account_ids["${local.name}-push-${each.key}"]
  display_name = "Billhook: pushes and tasks to pool ${each.key}"
}

# grant: Pub/Sub's service agent | the push accounts alone | signs the token of a push
resource "google_service_account_iam_member" "agent_signs_as_push" {
  for_each           = local.pools
  service_account_id = google_service_account.push[each.key].name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent
}

# grant: workers | the alarm's queue on Cloud Tasks | asks to be called when a kept message is due
resource "google_cloud_tasks_queue_iam_member" "worker_asks" {
  for_each = local.pools
  project  = var.project_id
  location = google_cloud_tasks_queue.alarm.location
  name     = google_cloud_tasks_queue.alarm.name
  role     = "roles/cloudtasks.enqueuer"
  member   = local.members["worker-${each.key}"]
}

# grant: workers | the push account of the tasks' pool alone | names it in the token of that call
resource "google_service_account_iam_member" "worker_asks_as_push" {
  for_each           = local.pools
  service_account_id = google_service_account.push[local.tasks_pool].name
  role               = "roles/iam.serviceAccountUser"
  member             = local.members["worker-${each.key}"]
}

# grant: webhook service | the webhook service's own database, by a condition | reads copies of customers, products and orders; counts what queues with a rate take
# grant: workers | the two databases, by a condition | records, effects, outbox, dead letters; copies for the webhook service
# grant: the service for people | the two databases, by a condition | shows what is there, keeps what people change, and makes those copies
resource "google_project_iam_member" "uses_database" {
  for_each = local.members
  project  = var.project_id
  role     = "roles/datastore.user"
  member   = each.value

  condition {
    title = "the databases of ${local.name}"
    expression = join(" || ", [
      for database in concat([google_firestore_database.ingest.name], each.key == "webhook" ? [] : [google_firestore_database.this.name]) :
      "resource.name == \"projects/${var.project_id}/databases/${database}\""
    ])
  }
}

# A metric has no name that a condition could compare.
# grant: the worker of the tasks' pool | the project's metrics | counts what waits on the queues
resource "google_project_iam_member" "reads_metrics" {
  project = var.project_id
  role    = "roles/monitoring.viewer"
  member  = local.members["worker-${local.tasks_pool}"]

  lifecycle {
    create_before_destroy = true
  }
}

# grant: the worker of a pool | outbound topics that its handlers emit to | messages for others, after the commit
# grant: the worker of the tasks' pool | outbound topics that any enabled queue's handler emits to | messages still in the outbox
# grant: webhook service | shared topics of which an enabled queue takes messages, where the generic source opens the producers' addresses | producers' messages
# grant: the worker of a pool | shared topics that its handlers emit to | messages emitted, after the commit
# grant: the worker of the tasks' pool | shared topics of which an enabled queue takes messages | messages that are still in the outbox, replayed, delayed, or put back by the sweep
resource "google_pubsub_topic_iam_member" "publishes" {
  for_each = merge([
    for id, topic in module.catalog.topics : { for name in topic.publishers : "${id}/${name}" => { topic = id, name = name } }
  ]...)
  project = var.project_id
  topic   = google_pubsub_topic.shared[each.value.topic].name
  role    = "roles/pubsub.publisher"
  member  = local.members[each.value.name]
}

# grant: the worker of the tasks' pool | the subscriptions that push queues' messages | sees whether a queue that was paused still is
# grant: the service for people | the subscriptions that push queues' messages | sees whether a queue is paused
resource "google_pubsub_subscription_iam_member" "sees_subscriptions" {
  for_each = merge([for id, q in module.queue : {
    "${id}/tasks" = { subscription = q.push_subscription, member = local.members["worker-${local.tasks_pool}"] }
    "${id}/ops"   = { subscription = q.push_subscription, member = local.members["ops"] }
  }]...)
  project      = var.project_id
  subscription = each.value.subscription
  role         = "roles/pubsub.viewer"
  member       = each.value.member
}

# grant: webhook service | its own secrets | verifies signatures
# grant: the worker of a pool that posts to targets | the secrets of those targets | signs what it posts
resource "google_secret_manager_secret_iam_member" "reads" {
  for_each = merge([
    for service, variables in local.read_by : { for variable in variables : "${variable}/${service}" => { variable = variable, service = service } }
  ]...)
  project   = var.project_id
  secret_id = google_secret_manager_secret.secret[each.value.variable].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = local.members[each.value.service]
}

# A grant takes a minute or two to work, and a first start without it fails. Services wait for all of them;
# WAIT_FOR_GRANTS is another command to wait by.
resource "terraform_data" "grants_work" {
  triggers_replace = [local.members, values(google_project_iam_member.uses_database)[*].condition[0].expression, local.read_by]

  provisioner "local-exec" {
    command = "$${WAIT_FOR_GRANTS:-sleep 120}"
  }

  depends_on = [
    google_secret_manager_secret_iam_member.reads, google_project_iam_member.uses_database,
    google_cloud_tasks_queue_iam_member.worker_asks, google_service_account_iam_member.worker_asks_as_push, google_pubsub_topic_iam_member.publishes,
  ]
}
