# What refuses before anything has changed: a plan that would take away what runs, and a destroy of what is protected.

locals {
  # What can never be changed of each queue's subscription: another one would take its place.
  lasting = { for id, q in local.standing : id => sha1(jsonencode([q.topic, q.filter, q.enable_message_ordering])) }

  # What an apply leaves behind protected. It stands in an annotation, where the plan of the next change reads it,
  # whoever makes that.
  protected = {
    services = local.deployed && var.deletion_protection
    queues   = { for id, what in local.lasting : id => what if !local.discarded[id] }
  }
  applied = merge({ services = false, queues = {} }, [
    for secret in data.google_secret_manager_secrets.applied.secrets : jsondecode(secret.annotations["billhook-applied"])
    if secret.secret_id == "${local.name}-applied" && can(secret.annotations["billhook-applied"])
  ]...)
  taken_away = [for id, what in local.applied.queues : id if what != lookup(local.lasting, id, "")]
}

# A list, since there may be none yet.
data "google_secret_manager_secrets" "applied" {
  project = var.project_id
  filter  = "name:${local.name}-applied"
}

# A secret without a value, since it keeps an annotation, and is no service's.
resource "google_secret_manager_secret" "applied" {
  project     = var.project_id
  secret_id   = "${local.name}-applied"
  annotations = { billhook-applied = jsonencode(local.protected) }

  replication {
    auto {}
  }
}

# It depends on all that nothing else depends on, and so a destroy begins with it.
resource "terraform_data" "protected" {
  input = var.deletion_protection

  provisioner "local-exec" {
    when    = destroy
    command = self.input ? "echo deletion_protection is on: set it to false and apply that, before a destroy. && exit 1" : "exit 0"
  }

  depends_on = [
    google_artifact_registry_repository.images, module.webhook, module.worker, module.ops, module.queue, google_cloud_scheduler_job.message, google_cloud_scheduler_job.tasks,
    google_firestore_field.unindexed, google_monitoring_alert_policy.alert, google_monitoring_dashboard.this,
    google_project_iam_member.reads_metrics, google_pubsub_subscription_iam_member.sees_subscriptions,
    google_pubsub_subscription_iam_member.ops_pauses, google_secret_manager_secret.applied, google_service_account_iam_member.ops_names_push,
  ]
}
