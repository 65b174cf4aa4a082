# The database, and a small one for the webhook service. Single-field indexes answer a query that compares fields for equality
# and pages by id, and one that goes by one time alone. A query that does both needs composite indexes. Tests hold
# these lists against the queries of the code: an emulator needs no index, so that a missing one would show here alone.

locals {
  # TTL removes expired documents, so no query needs the field's index. Times that only
  # rise would make an index a hot spot.
  ttl_collections = ["webhookEvents", "deadLetters", "delayedKeys", "hours", "days", "requests"]

  # The compared fields, then the time field that orders the result, and its order.
  composite = {
    # The oldest open one of a queue.
    deadLetters = { collection = "deadLetters", fields = ["queue", "state", "kept_at"], order = "ASCENDING" }

    # The dead letters, newest first. They are few, so that one part takes them. A question names a queue, or is of all;
    # where it names several fields besides, the database merges these indexes.
    letters             = { collection = "deadLetters", fields = ["queue", "kept_at"], order = "DESCENDING" }
    letters_state       = { collection = "deadLetters", fields = ["state", "kept_at"], order = "DESCENDING" }
    letters_event       = { collection = "deadLetters", fields = ["event_id", "kept_at"], order = "DESCENDING" }
    letters_queue_state = { collection = "deadLetters", fields = ["queue", "state", "kept_at"], order = "DESCENDING" }
    letters_of_reason   = { collection = "deadLetters", fields = ["reason", "kept_at"], order = "DESCENDING" }
    letters_of_type     = { collection = "deadLetters", fields = ["event_type", "kept_at"], order = "DESCENDING" }
    letters_of_key      = { collection = "deadLetters", fields = ["ordering_key", "kept_at"], order = "DESCENDING" }
    letters_reason      = { collection = "deadLetters", fields = ["queue", "reason", "kept_at"], order = "DESCENDING" }
    letters_type        = { collection = "deadLetters", fields = ["queue", "event_type", "kept_at"], order = "DESCENDING" }
    letters_key         = { collection = "deadLetters", fields = ["queue", "ordering_key", "kept_at"], order = "DESCENDING" }

    # Replays and discards of one progress, and refunds of one state, newest first. All of them are found by the time alone.
    operations = { collection = "audit", fields = ["progress", "created_at"], order = "DESCENDING" }
    refunds    = { collection = "refunds", fields = ["state", "reserved_at"], order = "DESCENDING" }

    # What one person changed, what was changed of one kind, and of one thing, newest first.
    audit_kind    = { collection = "audit", fields = ["kind", "at"], order = "DESCENDING" }
    audit_subject = { collection = "audit", fields = ["subject", "at"], order = "DESCENDING" }
    audit_who     = { collection = "audit", fields = ["who", "at"], order = "DESCENDING" }

    # The job log. Times that only rise make an index a hot spot at some 500 writes a second, so that the shard, one of
    # eight, stands before the time in each. Where several fields are compared, the database merges these indexes, which
    # all end with the time. Queue and status have one of their own: most events of most queues are completed.
    events              = { collection = "webhookEvents", fields = ["shard", "created_at"], order = "DESCENDING" }
    events_queue        = { collection = "webhookEvents", fields = ["queue", "shard", "created_at"], order = "DESCENDING" }
    events_status       = { collection = "webhookEvents", fields = ["status", "shard", "created_at"], order = "DESCENDING" }
    events_queue_status = { collection = "webhookEvents", fields = ["queue", "status", "shard", "created_at"], order = "DESCENDING" }
    events_type         = { collection = "webhookEvents", fields = ["event_type", "shard", "created_at"], order = "DESCENDING" }
    events_event        = { collection = "webhookEvents", fields = ["event_id", "shard", "created_at"], order = "DESCENDING" }
    events_correlation  = { collection = "webhookEvents", fields = ["correlation_id", "shard", "created_at"], order = "DESCENDING" }
    events_key          = { collection = "webhookEvents", fields = ["ordering_key", "shard", "created_at"], order = "DESCENDING" }
    events_customer     = { collection = "webhookEvents", fields = ["customer", "shard", "created_at"], order = "DESCENDING" }

    # The endpoints of a tenant, and those in a state, newest first.
    endpoints_tenant = { collection = "endpoints", fields = ["tenant", "created_at"], order = "DESCENDING" }
    endpoints_state  = { collection = "endpoints", fields = ["state", "created_at"], order = "DESCENDING" }

    # What moved on one holder's points, newest first.
    entries_account = { collection = "entries", fields = ["tenant", "account", "created_at"], order = "DESCENDING" }

    # What seals hold, in the order of the database's time: of all tenants and of one. The records of one tenant that were
    # committed with entries are counted in the same order, and a seal is found by the position up to which it goes.
    entries_sealing        = { collection = "entries", fields = ["shard", "committed_at"], order = "ASCENDING" }
    entries_sealing_tenant = { collection = "entries", fields = ["shard", "tenant", "committed_at"], order = "ASCENDING" }
    events_sealing         = { collection = "webhookEvents", fields = ["shard", "tenant", "committed_at"], order = "ASCENDING" }
    seals_through          = { collection = "seals", fields = ["tenant", "through"], order = "ASCENDING" }
  }

  # Fields that no query names alone, and that rise, are large, or are written at every attempt.
  unindexed = {
    webhookEvents = [
      "created_at", "updated_at", "processed_at", "next_retry_at", "message", "emitted", "last_error", "payload_hash", "corrected", "dead_letters", "shard",
      "action", "attempts", "attempts_log", "conflicts_with", "delay_ticket", "lease_token", "message_id", "ref", "result", "published_at", "webhook_received_at",
      "committed_at",
    ]
    deadLetters = ["attributes", "data", "data_base64", "first_published_at", "dead_lettered_at", "kept_at", "history"]
    outbox      = ["created_at", "message"]
    delayed     = ["created_at", "message"]

    # The ids that an operation names.
    audit = ["items"]

    entries = ["created_at", "occurred_at", "posted_at", "lines", "from", "to", "reverts", "refund_id", "shard", "committed_at"]

    seals      = ["previous", "root", "count", "sealed_at", "totals", "running", "periods", "through", "through_id"]
    sealLeaves = ["leaves"]
    sealHeads  = ["periods", "through", "through_id", "now", "behind", "runs"]

    customers = ["since", "linked_by"]

    endpoints = ["url", "events", "secret", "old_secret", "changed_at"]

    refunds = ["settled_at"]

    orders       = ["items", "history", "created_at", "updated_at", "payment_due"]
    usage        = ["start", "end", "used", "entries", "counted_at"]
    usageEntries = ["quantity", "occurred_at", "counted_at"]
    hours        = ["queues", "targets", "services", "releases"]
    days         = ["queues"]

    requests = ["print", "answer", "begun_at"]

    subscriptionPeriods = ["start", "end", "told_at"]
  }
}

resource "google_firestore_database" "this" {
  project                           = var.project_id
  name                              = local.database_id
  location_id                       = var.firestore.location
  type                              = "FIRESTORE_NATIVE"
  concurrency_mode                  = "OPTIMISTIC"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  delete_protection_state           = var.deletion_protection ? "DELETE_PROTECTION_ENABLED" : "DELETE_PROTECTION_DISABLED"
  deletion_policy                   = var.deletion_protection ? "ABANDON" : "DELETE"

  dynamic "cmek_config" {
    for_each = var.keys.database[*]
    content {
      kms_key_name = cmek_config.value
    }
  }

  # A change of what can never be changed asks for a second database of the same id. Refused for that, it
  # has not yet taken the indexes from the first.
  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.api]
}

# What the webhook service's instances count together, where a queue has a rate. It is a database of its own,
# so that the one service that anybody may call writes nothing else.
resource "google_firestore_database" "limits" {
  count                             = anytrue([for q in values(local.enabled) : q.rate.per_second > 0 || q.rate.per_user > 0]) ? 1 : 0
  project                           = var.project_id
  name                              = "${local.name}-limits"
  location_id                       = var.firestore.location
  type                              = "FIRESTORE_NATIVE"
  concurrency_mode                  = "OPTIMISTIC"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_DISABLED"
  # Nothing in it is of use for longer than a minute.
  delete_protection_state = "DELETE_PROTECTION_DISABLED"
  deletion_policy         = "DELETE"

  dynamic "cmek_config" {
    for_each = var.keys.database[*]
    content {
      kms_key_name = cmek_config.value
    }
  }

  depends_on = [google_project_service.api]
}

resource "google_firestore_field" "ttl" {
  for_each = merge(
    { for collection in local.ttl_collections : collection => google_firestore_database.this.name },
    { for database in google_firestore_database.limits[*].name : "rateBlocks" => database },
  )
  project    = var.project_id
  database   = each.value
  collection = each.key
  field      = "expire_at"

  ttl_config {}
  index_config {}
}

resource "google_firestore_field" "unindexed" {
  for_each = merge([
    for collection, fields in local.unindexed : { for field in fields : "${collection}.${field}" => { collection = collection, field = field } }
  ]...)
  project    = var.project_id
  database   = google_firestore_database.this.name
  collection = each.value.collection
  field      = each.value.field

  index_config {}
}

resource "google_firestore_index" "composite" {
  for_each   = local.composite
  project    = var.project_id
  database   = google_firestore_database.this.name
  collection = each.value.collection

  dynamic "fields" {
    for_each = each.value.fields
    content {
      field_path = fields.value
      order      = fields.key == length(each.value.fields) - 1 ? each.value.order : "ASCENDING"
    }
  }
}
