# The catalog's topology on Google's Pub/Sub emulator, which the tests of emulator/emulatortest apply. It has
# no IAM, forgets everything when it stops, and refuses updates: destroy and apply again.

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
}

variable "project_id" {
  description = "Any project id; the emulator has no projects."
  type        = string
}

variable "push_base_url" {
  description = "The worker's address, http://host:port."
  type        = string

  validation {
    condition     = can(regex("^https?://[^/?#]+$", var.push_base_url))
    error_message = "push_base_url must be http(s)://host, without a path."
  }
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
  source    = "../modules/catalog"
  directory = var.catalog_dir == null ? "${path.module}/../../catalog" : var.catalog_dir
}

module "queue" {
  source     = "../modules/queue"
  for_each   = { for id, q in module.catalog.queues : id => q if q.enabled }
  installed  = { project_id = var.project_id }
  queue      = merge(each.value, { protected = false }) # the emulator forgets, and refuses updates
  push       = { base_url = var.push_base_url }
  depends_on = [google_pubsub_topic.shared]
}

resource "google_pubsub_topic" "shared" {
  for_each = module.catalog.topics
  project  = var.project_id
  name     = each.value.name
}
