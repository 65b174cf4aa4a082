# The service for people, of the workers' image. Identity-Aware Proxy lets people in, and signs who they are.

variable "ops" {
  description = <<-EOT
    The service for people. people are IAM members that may use it, such as group:operators@example.com; what
    takes two people takes two of them. With pauses it pauses and resumes queues: its account is granted to
    read and update their subscriptions, and to name the push accounts; whoever applies that needs
    roles/iam.roleAdmin, for the role. Without it an operator needs these rights.
  EOT
  type = object({
    people = optional(list(string), [])
    pauses = optional(bool, false)
  })
  default = {}

  validation {
    condition     = alltrue([for member in var.ops.people : can(regex("^((user|group|serviceAccount):[^@: ]+@|domain:)[^@: ]+$", member))])
    error_message = "ops.people lists members of IAM with an identity each: user:, group: or serviceAccount: and an address, or domain: and a domain."
  }
}

locals {
  ops_name = "${local.name}-ops"
  ops_url  = "https://${local.ops_name}-${local.number}.${var.region}.run.app"

  # What the doctor, and who resumes a queue, have to know of all pools.
  pool_urls     = join(",", [for pool, url in local.worker_urls : "${pool}=${url}"])
  pool_accounts = join(",", [for pool, account in google_service_account.push : "${pool}=${account.email}"])
}

module "ops" {
  source    = "./modules/service"
  count     = local.deployed ? 1 : 0
  installed = local.installed
  revision  = local.revisions["ops"]

  service = {
    name        = local.ops_name
    account     = google_service_account.service["ops"].email
    ingress     = "INGRESS_TRAFFIC_ALL"
    people      = var.ops.people
    invokers    = { iap = "serviceAccount:service-${local.number}@gcp-sa-iap.iam.gserviceaccount.com" }
    scaling     = local.scaling[local.ops_name]
    resources   = var.worker.resources
    concurrency = 80
    # Above the seconds for which a request goes on with an operation.
    timeout_seconds = 120
    vpc             = var.vpc
    env = merge(
      {
        GOOGLE_CLOUD_PROJECT = var.project_id
        FIRESTORE_DATABASE   = google_firestore_database.this.name
        INGEST_DATABASE      = google_firestore_database.ingest.name
        SERVES               = "people"
        TASKS_POOL           = local.tasks_pool
        OPS_AUDIENCE         = "/projects/${local.number}/locations/${var.region}/services/${local.ops_name}"
      },
      local.running,
      var.ops.pauses ? {
        PUSH_BASE_URL        = local.worker_urls[local.tasks_pool]
        PUSH_AUDIENCE        = local.audience
        PUSH_SERVICE_ACCOUNT = google_service_account.push[local.tasks_pool].email
        PUSH_POOL_URLS       = local.pool_urls
        PUSH_POOL_ACCOUNTS   = local.pool_accounts
      } : {},
    )
  }

  depends_on = [google_firestore_index.composite]
}

# No role of Google's updates a subscription and can neither delete nor read it empty.
resource "google_project_iam_custom_role" "pauses" {
  count       = var.ops.pauses ? 1 : 0
  project     = var.project_id
  role_id     = "${replace(local.name, "-", "_")}_pauses_queues"
  title       = "Billhook: pauses queues"
  description = "Takes the push endpoint of a subscription away, and gives it back."
  permissions = ["pubsub.subscriptions.get", "pubsub.subscriptions.update"]
}

# grant: the service for people, where `ops` says `pauses` | the subscriptions that push queues' messages | pauses and resumes queues
resource "google_pubsub_subscription_iam_member" "ops_pauses" {
  for_each     = { for id, q in module.queue : id => q if var.ops.pauses }
  project      = var.project_id
  subscription = each.value.push_subscription
  role         = google_project_iam_custom_role.pauses[0].name
  member       = local.members["ops"]
}

# grant: the service for people, where `ops` says `pauses` | the push accounts alone | names one in the endpoint that a resumed queue gets
resource "google_service_account_iam_member" "ops_names_push" {
  for_each           = { for pool, account in google_service_account.push : pool => account if var.ops.pauses }
  service_account_id = each.value.name
  role               = "roles/iam.serviceAccountUser"
  member             = local.members["ops"]
}
