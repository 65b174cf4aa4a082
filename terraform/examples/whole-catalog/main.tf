# Every queue that the catalog enables, with all that they post to, all alerts, and all instances of the catalog.

provider "google" {
  project = "my-project"
}

module "billhook" {
  source     = "../.."
  project_id = "my-project"
  region     = "europe-west3"
  firestore  = { location = "eur3" }
  worker     = { keeps = "catalog" }
  alerts     = { on = ["all"], channels = ["projects/my-project/notificationChannels/1234567890"] }

  images = {
    webhook = "europe-west3-docker.pkg.dev/my-project/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-west3-docker.pkg.dev/my-project/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }

  target_urls = {
    SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example.com"
    PLATFORM_URL             = "https://platform.example.com"
    GATEWAY_URL              = "https://gateway.example.com"
    NOTIFICATION_SERVICE_URL = "https://notifications.example.com"
    SEARCH_URL               = "https://search.example.com"
    ANALYTICS_URL            = "https://analytics.example.com"
  }
}
