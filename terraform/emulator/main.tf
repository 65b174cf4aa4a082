# The catalog's topology on Google's Pub/Sub emulator: the queue module, without IAM.
# The tests of emulator/emulatortest apply it. The emulator forgets everything when it
# stops, and refuses updates: destroy and apply again.

terraform {
  required_version = ">= 1.9"

  # The caller chooses the place of the state: it is worth no more than the emulator's memory.
  backend "local" {}

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.32, < 8.0"
    }
  }
}

variable "emulator_host" {
  description = "The emulator's address, as in PUBSUB_EMULATOR_HOST: host:port."
  type        = string

  validation {
    condition     = can(regex("^[^/:]+:[0-9]+$", var.emulator_host))
    error_message = "emulator_host must be host:port."
  }
}

variable "project_id" {
  description = "Any project id; the emulator has no projects."
  type        = string
}

variable "push_base_url" {
  description = "The worker's address, http://host:port."
  type        = string
}

variable "installation" {
  description = "What stands before the ids of topics and subscriptions; empty is nothing."
  type        = string
  default     = ""
}

variable "catalog_dir" {
  description = "The folder of another catalog; null is the repository's own."
  type        = string
  default     = null
}

provider "google" {
  project                = var.project_id
  access_token           = "emulator"
  pubsub_custom_endpoint = "http://${var.emulator_host}/v1/"
  # Provisioned resources have no labels, and these must equal them.
  add_terraform_attribution_label = false
}

module "catalog" {
  source       = "../modules/catalog"
  directory    = var.catalog_dir == null ? "${path.module}/../../catalog" : var.catalog_dir
  installation = var.installation
}

module "queue" {
  source        = "../modules/queue"
  for_each      = { for id, q in module.catalog.named : id => q if q.enabled }
  project_id    = var.project_id
  queue         = each.value
  push_base_url = var.push_base_url
  shared_topic  = each.value.shared ? google_pubsub_topic.shared[module.catalog.queues[each.key].topic].id : null
  emulator      = true
  protected     = false # the emulator forgets, and refuses updates
}

resource "google_pubsub_topic" "shared" {
  for_each = merge(module.catalog.shared_topics, module.catalog.outbound_topics)
  project  = var.project_id
  name     = each.value.name
}
