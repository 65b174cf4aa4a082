# A shop that takes PayNow's webhooks and nothing else: the webhook service, one worker, and the service for people.

provider "google" {
  project = "my-project"
  region  = "europe-west3"
}

resource "google_monitoring_notification_channel" "mail" {
  display_name = "Whoever is on call"
  type         = "email"
  labels       = { email_address = "on-call@example.com" }
}

module "billhook" {
  source     = "../.."
  project_id = "my-project"
  region     = "europe-west3"
  firestore  = { location = "eur3" } # for ever

  # The first apply has none: bootstrap = true in their place.
  images = {
    webhook = "europe-west3-docker.pkg.dev/my-project/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-west3-docker.pkg.dev/my-project/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }

  # Which of the catalog's queues run, and where the targets of catalog/targets.yaml are that these post to.
  queues      = ["paynow-events", "pay-subscription-update"]
  target_urls = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example.com" }

  # The alert on silence goes by what a usual day has at least.
  alerts = {
    channels       = [google_monitoring_notification_channel.mail.id]
    runbooks       = "https://git.example.com/billhook/docs/runbooks"
    webhooks_a_day = { paynow = 10 }
  }
}

output "billhook" {
  description = "What the pages ask for."
  value       = module.billhook
}
