# What people set on services and secrets beside what the catalog says. Each is optional.

locals {
  webhook_vpc = try(var.vpc.webhook, false) ? var.vpc : null

  # Grants for the accounts that encrypt in the name of Cloud Run and of Secret Manager.
  encrypting = merge(
    { for key in var.service_kms_key[*] : "services" => { key = key, agent = "serviceAccount:service-${local.number}@serverless-robot-prod.iam.gserviceaccount.com" } },
    { for key in var.secret_kms_key[*] : "secrets" => { key = key, agent = "serviceAccount:service-${local.number}@gcp-sa-secretmanager.iam.gserviceaccount.com" } },
  )

  # The versions that services read, by what becomes of them after secret_max_age_days.
  old_secrets = [
    for variable, version in data.google_secret_manager_secret_version.read : variable
    if var.secret_max_age_days > 0 && try(timecmp(timeadd(version.create_time, "${24 * var.secret_max_age_days}h"), plantimestamp()) < 0, false)
  ]
}

variable "labels" {
  description = "Labels of everything that can have any, beside app, which is the installation's."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for key, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value)) && key != "app"])
    error_message = "A label's key begins with a letter, key and value have at most 63 of a-z, 0-9, _ and -, and app is taken."
  }
}

variable "extra_env" {
  description = "More environment variables, none of them secret, by the service's key in the output services."
  type        = map(map(string))
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.extra_env), concat(["webhook", "ops"], [for pool in keys(module.catalog.pools) : "worker-${pool}"]))) == 0
    error_message = "extra_env names no service: ${join(", ", setsubtract(keys(var.extra_env), concat(["webhook", "ops"], [for pool in keys(module.catalog.pools) : "worker-${pool}"])))}. There are webhook, ops and ${join(", ", [for pool in keys(module.catalog.pools) : "worker-${pool}"])}."
  }
}

variable "log_level" {
  description = "What the services log: DEBUG, INFO, WARN or ERROR. Above INFO the lines are missing that metrics, alerts and runbooks are made of."
  type        = string
  default     = "INFO"

  validation {
    condition     = contains(["DEBUG", "INFO", "WARN", "ERROR"], var.log_level)
    error_message = "log_level must be DEBUG, INFO, WARN or ERROR."
  }
}

variable "webhook_tolerance_seconds" {
  description = "How old or early the time of a signed webhook may be."
  type        = number
  default     = 300

  validation {
    condition     = 1 <= var.webhook_tolerance_seconds && var.webhook_tolerance_seconds <= 3600 && floor(var.webhook_tolerance_seconds) == var.webhook_tolerance_seconds
    error_message = "webhook_tolerance_seconds must be 1 to 3600."
  }
}

variable "webhook_concurrency" {
  description = "Requests that one instance of the webhook service serves at once."
  type        = number
  default     = 80

  validation {
    condition     = 1 <= var.webhook_concurrency && var.webhook_concurrency <= 1000 && floor(var.webhook_concurrency) == var.webhook_concurrency
    error_message = "webhook_concurrency must be 1 to 1000."
  }
}

variable "webhook_timeout_seconds" {
  description = "The time after which Cloud Run ends a request to the webhook service. The program itself takes 20 seconds at most to read one, and 10 to publish."
  type        = number
  default     = 30

  validation {
    condition     = 30 <= var.webhook_timeout_seconds && var.webhook_timeout_seconds <= 3600
    error_message = "webhook_timeout_seconds must be 30 to 3600: below, Cloud Run would end what the program still answers."
  }
}

variable "vpc" {
  description = <<-EOT
    The network that the requests of workers and ops leave through, by direct egress: a network, a subnetwork of it in
    the region, or both. PRIVATE_RANGES_ONLY sends those to private addresses through it; ALL_TRAFFIC all,
    which then needs Private Google Access, and Cloud NAT for targets outside. With webhook = true the webhook
    service's go there too.
  EOT
  type = object({
    network    = optional(string)
    subnetwork = optional(string)
    egress     = optional(string, "PRIVATE_RANGES_ONLY")
    tags       = optional(list(string), [])
    webhook    = optional(bool, false)
  })
  default = null

  validation {
    condition     = var.vpc == null || try(var.vpc.network != null || var.vpc.subnetwork != null, false)
    error_message = "vpc needs network, subnetwork, or both."
  }
  validation {
    condition     = var.vpc == null || contains(["PRIVATE_RANGES_ONLY", "ALL_TRAFFIC"], try(var.vpc.egress, ""))
    error_message = "vpc.egress must be PRIVATE_RANGES_ONLY or ALL_TRAFFIC."
  }
}

variable "service_kms_key" {
  description = "The key of Cloud KMS, in the services' region, that encrypts their images; null is Google's own. Cloud Run's own account is granted its use, which needs cloudkms.googleapis.com to be enabled in the project."
  type        = string
  default     = null

  validation {
    condition     = var.service_kms_key == null || can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.service_kms_key))
    error_message = "service_kms_key is written as projects/<project>/locations/<location>/keyRings/<ring>/cryptoKeys/<key>."
  }
}

variable "secret_kms_key" {
  description = <<-EOT
    The key of Cloud KMS, in the location global, that encrypts versions of secrets from then on; null is Google's own.
    Secret Manager's own account is granted its use. Before, enable cloudkms.googleapis.com, and make the account by
    gcloud beta services identity create --service=secretmanager.googleapis.com
  EOT
  type        = string
  default     = null

  validation {
    condition     = var.secret_kms_key == null || can(regex("^projects/[^/]+/locations/global/keyRings/[^/]+/cryptoKeys/[^/]+$", var.secret_kms_key))
    error_message = "secret_kms_key is written as projects/<project>/locations/global/keyRings/<ring>/cryptoKeys/<key>: a secret that is kept everywhere has a key from there."
  }
}

variable "secret_max_age_days" {
  description = "After how many days a version of a secret that services read is called old, in a warning of every plan; 0 is never."
  type        = number
  default     = 365

  validation {
    condition     = 0 <= var.secret_max_age_days && var.secret_max_age_days <= 3650 && floor(var.secret_max_age_days) == var.secret_max_age_days
    error_message = "secret_max_age_days must be 0 to 3650."
  }
}

# grant: Cloud Run's service agent, Secret Manager's | the keys of `service_kms_key` and `secret_kms_key` | encrypt and decrypt images and secrets
resource "google_kms_crypto_key_iam_member" "encrypts" {
  for_each      = local.encrypting
  crypto_key_id = each.value.key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = each.value.agent
  depends_on    = [google_project_service.api]
}

# Secret Manager's own reminders go to a topic, which somebody has to read.
check "secrets_are_rotated" {
  assert {
    condition     = length(local.old_secrets) == 0
    error_message = "Older than ${var.secret_max_age_days} days: ${join(", ", local.old_secrets)}. docs/guides/change-an-installation.md says how to rotate one."
  }
}
