# The queues of the catalog: those that run, and those that are off and kept.

locals {
  # By the names that their topics and subscriptions have in the project.
  queues = module.catalog.named

  # What becomes of each: it runs, it is off and kept, or it is off and there is nothing of it.
  states = {
    for id, q in module.catalog.queues : id => q.enabled ? contains(var.paused_queues, id) ? "paused" : "runs" : contains(var.kept_queues, id) ? "kept" : "off"
  }
  standing = { for id, q in local.queues : id => q if local.states[id] != "off" }

  # Whether what holds messages may be deleted. Several queues hold the messages of a shared topic, and what
  # is told to others is of the queues whose handlers tell it.
  discarded     = { for id in keys(local.queues) : id => !var.deletion_protection || contains(var.discard_backlog, id) }
  shared_topics = merge(module.catalog.shared_topics, module.catalog.outbound_topics)
  discarded_topics = {
    for topic in keys(local.shared_topics) : topic => alltrue([
      for id, q in module.catalog.queues : local.discarded[id]
      if contains(keys(local.standing), id) && (q.topic == topic || contains(flatten([for h in values(q.handlers) : h.emits]), topic))
    ])
  }

  misspelt_queues = setsubtract(concat(var.kept_queues, var.discard_backlog), keys(module.catalog.queues))
}

# A queue that is off has no topic, unless it is kept. Its sender is refused and keeps the message; a
# topic without a reader would accept the message and lose it.
module "queue" {
  source        = "./modules/queue"
  for_each      = local.standing
  project_id    = var.project_id
  queue         = each.value
  labels        = local.labels
  catalog_hash  = module.catalog.hash
  push_base_url = try(local.worker_urls[each.value.pool], null)
  shared_topic  = each.value.shared ? google_pubsub_topic.shared[module.catalog.queues[each.key].topic].id : null
  paused        = local.states[each.key] == "paused"
  kept          = local.states[each.key] == "kept"
  protected     = !local.discarded[each.key]

  message_storage = merge(var.message_storage, { kms_key = var.keys.messages })

  identity = {
    service_account = try(google_service_account.push[each.value.pool].email, null)
    audience        = local.audience
    agent           = local.pubsub_agent
  }

  publishers             = { for name in module.catalog.publishers[module.catalog.queues[each.key].topic] : name => local.members[name] }
  dead_letter_publishers = { for pool, account in google_service_account.worker : "worker" => account.member if pool == each.value.pool && each.value.enabled }

  # A subscription changes to a worker that has started, and that its pushes may call. What it changed from
  # goes afterwards.
  depends_on = [
    google_project_service.api, module.worker, google_service_account_iam_member.agent_signs_as_push,
    google_pubsub_topic_iam_member.publishes,
  ]
}

# A topic that several queues take messages of, or others than a queue, is made once.
resource "google_pubsub_topic" "shared" {
  for_each        = local.shared_topics
  project         = var.project_id
  name            = each.value.name
  labels          = local.labels
  deletion_policy = local.discarded_topics[each.key] ? "DELETE" : "PREVENT"
  kms_key_name    = var.keys.messages
  depends_on      = [google_project_service.api]

  dynamic "message_storage_policy" {
    for_each = length(var.message_storage.regions) > 0 ? [var.message_storage] : []
    content {
      allowed_persistence_regions = message_storage_policy.value.regions
      enforce_in_transit          = message_storage_policy.value.enforce_in_transit
    }
  }
}
