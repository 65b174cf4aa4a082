# The database, and one for the webhook service. Single-field indexes answer a query that compares fields for
# equality and pages by id, and one that goes by one time alone. A query that does both needs composite
# indexes, which the database merges where several fields are compared. Tests hold these lists against the
# queries of the code.

locals {
  # TTL removes expired documents, so no query needs the field's index. Times that only
  # rise would make an index a hot spot.
  ttl_collections = ["webhookEvents", "deadLetters", "delayedKeys", "rates", "requests"]

  # The compared fields, then the time field that orders the result, and its order.
  composite = {
    # The open ones of a queue, which are counted every minute, and the oldest of them.
    deadLetters = { collection = "deadLetters", fields = ["queue", "state", "kept_at"], order = "ASCENDING" }

    # The dead letters, newest first. They are few: one part takes them, and of one event its id alone.
    letters           = { collection = "deadLetters", fields = ["queue", "kept_at"], order = "DESCENDING" }
    letters_state     = { collection = "deadLetters", fields = ["state", "kept_at"], order = "DESCENDING" }
    letters_of_reason = { collection = "deadLetters", fields = ["reason", "kept_at"], order = "DESCENDING" }
    letters_of_type   = { collection = "deadLetters", fields = ["event_type", "kept_at"], order = "DESCENDING" }
    letters_of_key    = { collection = "deadLetters", fields = ["ordering_key", "kept_at"], order = "DESCENDING" }

    # Replays and discards of one progress, and refunds of one state, newest first. All of them are found by the time alone.
    operations = { collection = "audit", fields = ["progress", "created_at"], order = "DESCENDING" }
    refunds    = { collection = "refunds", fields = ["state", "reserved_at"], order = "DESCENDING" }

    # What one person changed, what was changed of one kind, and of one thing, newest first.
    audit_kind    = { collection = "audit", fields = ["kind", "at"], order = "DESCENDING" }
    audit_subject = { collection = "audit", fields = ["subject", "at"], order = "DESCENDING" }
    audit_who     = { collection = "audit", fields = ["who", "at"], order = "DESCENDING" }

    # The job log. Times that only rise make an index a hot spot at some 500 writes a second, so that the
    # shard, one of eight, stands before the time in each. Most events of most queues are completed.
    events              = { collection = "webhookEvents", fields = ["shard", "created_at"], order = "DESCENDING" }
    events_queue        = { collection = "webhookEvents", fields = ["queue", "shard", "created_at"], order = "DESCENDING" }
    events_status       = { collection = "webhookEvents", fields = ["status", "shard", "created_at"], order = "DESCENDING" }
    events_queue_status = { collection = "webhookEvents", fields = ["queue", "status", "shard", "created_at"], order = "DESCENDING" }
    events_type         = { collection = "webhookEvents", fields = ["event_type", "shard", "created_at"], order = "DESCENDING" }
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

  # Fields without an index of their own: times that rise with every message, where one would be a hot spot, and
  # what is large or changes with every message. * is every field of a collection but those below. A map's fields
  # have none where it has none. Other collections are small, or are written a few times a minute.
  unindexed = {
    webhookEvents = ["*"]
    entries       = ["*"]
    sealLeaves    = ["*"]
    outbox        = ["message"] # with its time
    delayed       = ["message"]
    orders        = ["created_at", "updated_at", "payment_due"]
    usage         = ["counted_at"]
    usageEntries  = ["occurred_at", "counted_at"]
  }

  # What queries compare where no other field has an index.
  indexed = {
    webhookEvents = ["event_id", "tenant", "lease_until", "correlation_id", "ordering_key", "idempotency_key"]
    entries       = ["event_id", "order", "tenant", "account", "book", "postings"] # postings where a journal runs
  }

  counts_rates = anytrue([for q in values(local.enabled) : q.rate.per_second > 0])

  # Collections that have documents only where a queue runs that has one of the app's handlers: elsewhere
  # nobody asks for what an index of theirs would answer.
  of_app = { orders = "orders", usage = "usage", usageEntries = "usage", refunds = "refunds", endpoints = "webhooks" }
  apps   = concat(["any"], [for name in flatten(values(local.enabled)[*].handlers) : split(".", name)[0]])
  written = flatten([
    for name, fields in local.unindexed : formatlist("${name}.%s", fields)
    if contains(local.apps, lookup(local.of_app, name, "any"))
  ])
  asked = {
    for name, index in local.composite : name => index if contains(local.apps, lookup(local.of_app, index.collection, "any"))
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
}

# What the webhook service reads, as copies that the workers make, and what its instances count together. The one
# service that anybody may call has no other database.
resource "google_firestore_database" "ingest" {
  project                           = var.project_id
  name                              = "${local.name}-ingest"
  location_id                       = var.firestore.location
  type                              = "FIRESTORE_NATIVE"
  concurrency_mode                  = "OPTIMISTIC"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_DISABLED"
  # The tasks fill an empty one.
  delete_protection_state = "DELETE_PROTECTION_DISABLED"
  deletion_policy         = "DELETE"

  dynamic "cmek_config" {
    for_each = var.keys.database[*]
    content {
      kms_key_name = cmek_config.value
    }
  }
}

resource "google_firestore_field" "indexed" {
  for_each   = toset([for field in flatten([for name, fields in local.indexed : formatlist("${name}.%s", fields)]) : field if field != "entries.postings" || contains(local.apps, "journal")])
  project    = var.project_id
  database   = google_firestore_database.this.name
  collection = split(".", each.key)[0]
  field      = split(".", each.key)[1]

  index_config {
    indexes {
      order        = endswith(each.key, ".postings") ? null : "ASCENDING"
      array_config = endswith(each.key, ".postings") ? "CONTAINS" : null
    }
  }
}

# Expiring documents have no index on that time, and a TTL policy in its place. A field keeps its index where
# all others of its collection lose theirs.
resource "google_firestore_field" "unindexed" {
  for_each = merge(
    { for name in local.ttl_collections : "${name}.expire_at" => google_firestore_database.this.name },
    # What the webhook service counts of queues with a rate.
    {
      for name in ["rateBlocks"] : "${name}.expire_at" => google_firestore_database.ingest.name
      if local.counts_rates
    },
    { for field in local.written : field => google_firestore_database.this.name },
    # The webhook service asks for the copies by their ids alone.
    {
      for field in local.written : "copies/${field}" => google_firestore_database.ingest.name
      if startswith(field, "orders.")
    },
  )
  project    = var.project_id
  database   = each.value
  collection = split(".", basename(each.key))[0]
  field      = split(".", each.key)[1]

  dynamic "ttl_config" {
    for_each = endswith(each.key, ".expire_at") ? [each.value] : []
    content {}
  }
  index_config {}

  depends_on = [google_firestore_field.indexed]
}

resource "google_firestore_index" "composite" {
  for_each   = local.asked
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
