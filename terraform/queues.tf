# The queues of the catalog: those that run, and those that are off and kept.

locals {
  queues = module.catalog.queues

  states = {
    for id, q in local.queues : id => q.enabled
    ? contains(var.paused_queues, id) ? "paused" : "runs"
    : contains(var.kept_queues, id) ? "kept" : "off"
  }
  standing = { for id, q in local.queues : id => q if local.states[id] != "off" }

  # Whether what holds messages may be deleted. Several queues hold the messages of a shared topic, and an
  # outbound topic is of the queues whose handlers emit to it.
  discarded = { for id in keys(local.queues) : id => !var.deletion_protection || contains(var.discard_backlog, id) }
  discarded_topics = {
    for topic in keys(module.catalog.topics) : topic => alltrue([
      for id, q in local.standing : local.discarded[id] if q.shared_topic == topic || contains(q.emits, topic)
    ])
  }

  made = {
    for id, q in local.standing : id => merge(q, {
      state                  = local.states[id]
      protected              = !local.discarded[id]
      topic_publishers       = { for name in q.publishers : name => local.members[name] }
      dead_letter_publishers = q.enabled ? { worker = local.members["worker-${q.pool}"] } : {}
    })
  }

  unfit = concat(
    tolist(setsubtract(concat(var.kept_queues, var.discard_backlog), keys(local.queues))),
    [for id in var.kept_queues : id if try(local.queues[id].enabled, false)],
  )
}

# A queue that is off has no topic, unless it is kept. Its sender is refused and keeps the message; a
# topic without a reader would accept the message and lose it.
module "queue" {
  source   = "./modules/queue"
  for_each = local.made
  queue    = each.value

  installed = {
    project_id   = var.project_id
    labels       = local.labels
    catalog_hash = module.catalog.hash
    agent        = local.pubsub_agent
    storage      = var.message_storage
    kms_key      = var.keys.messages
  }
  push = {
    base_url = try(local.worker_urls[each.value.pool], "")
    account  = try(google_service_account.push[each.value.pool].email, null)
    audience = local.audience
  }

  # A subscription changes to a worker that has started, and that its pushes may call. What it changed from
  # goes afterwards.
  depends_on = [
    module.worker, google_service_account_iam_member.agent_signs_as_push,
    google_pubsub_topic.shared, google_pubsub_topic_iam_member.publishes,
  ]
}

# A topic that several queues take messages of, or others than a queue, is made once.
resource "google_pubsub_topic" "shared" {
  for_each        = module.catalog.topics
  project         = var.project_id
  name            = each.value.name
  labels          = local.labels
  deletion_policy = local.discarded_topics[each.key] ? "DELETE" : "PREVENT"
  kms_key_name    = var.keys.messages

  dynamic "message_storage_policy" {
    for_each = length(var.message_storage.regions) > 0 ? [var.message_storage] : []
    content {
      allowed_persistence_regions = message_storage_policy.value.regions
      enforce_in_transit          = message_storage_policy.value.enforce_in_transit
    }
  }
}
