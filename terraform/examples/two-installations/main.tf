# Two installations in one project. That for tests keeps no instance, and may be deleted.

provider "google" {
  project = "my-project"
}

locals {
  images = {
    webhook = "europe-west3-docker.pkg.dev/my-project/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-west3-docker.pkg.dev/my-project/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
}

module "billhook" {
  source      = "../.."
  project_id  = "my-project"
  region      = "europe-west3"
  firestore   = { location = "eur3" }
  images      = local.images
  queues      = ["paynow-events", "pay-subscription-update"]
  target_urls = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example.com" }
  alerts      = { channels = ["projects/my-project/notificationChannels/1234567890"] }
}

module "staging" {
  source              = "../.."
  project_id          = "my-project"
  installation        = "staging"
  region              = "europe-west3"
  firestore           = { location = "eur3" }
  images              = local.images
  queues              = ["paynow-events", "pay-subscription-update"]
  target_urls         = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.staging.example.com" }
  alerts              = { off = ["webhooks-stopped"], channels = ["projects/my-project/notificationChannels/1234567890"] }
  webhook             = { scaling = { min = 0, max = 2 } }
  worker              = { keeps = "none" }
  deletion_protection = false
}
