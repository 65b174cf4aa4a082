# What an owner may want around an installation, each by itself: keys of one's own, backups, a budget, a log bucket,
# the record of who reads secrets, and channels to Slack and PagerDuty. Keys and budgets need two APIs more:
# gcloud services enable cloudkms.googleapis.com billingbudgets.googleapis.com

terraform {
  required_version = ">= 1.11" # what has write-only arguments
}

provider "google" {
  project = "my-project"
  region  = "europe-west3"
}

variable "channel_keys" {
  description = "The token of Slack's bot, and the integration key of PagerDuty's service, which no state keeps."
  type        = object({ slack = string, pagerduty = string })
  ephemeral   = true
}

# The places of the keys, and Google's accounts that use them: gcloud beta services identity create makes such an account.
locals {
  keys = {
    services = { in = "europe-west3", agent = "serverless-robot-prod" }
    secrets  = { in = "global", agent = "gcp-sa-secretmanager" }
    database = { in = "europe", agent = "gcp-sa-firestore" }
    messages = { in = "europe-west3", agent = "gcp-sa-pubsub" }
  }
}

# grant: Google's accounts for Cloud Run, Secret Manager, Firestore and Pub/Sub | keys of your own (`examples/around`) | encrypt and decrypt
resource "google_kms_crypto_key_iam_member" "encrypts" {
  for_each      = local.keys
  crypto_key_id = "projects/my-keys/locations/${each.value.in}/keyRings/shop/cryptoKeys/billhook"
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:service-123456789012@${each.value.agent}.iam.gserviceaccount.com"
}

module "billhook" {
  source     = "../.."
  project_id = "my-project"
  region     = "europe-west3"
  firestore  = { location = "eur3" }
  keys       = { for name, grant in google_kms_crypto_key_iam_member.encrypts : name => grant.crypto_key_id }
  images = {
    webhook = "europe-west3-docker.pkg.dev/my-project/billhook/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    worker  = "europe-west3-docker.pkg.dev/my-project/billhook/worker@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  }
  queues      = ["paynow-events", "pay-subscription-update"]
  target_urls = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.example.com" }
  alerts = {
    on             = ["secret-access", "ingest-latency"]
    channels       = [google_monitoring_notification_channel.slack.id, google_monitoring_notification_channel.pagerduty.id]
    secret_readers = ["you@example.com"]
  }
}

resource "google_monitoring_notification_channel" "slack" {
  display_name = "#billing"
  type         = "slack"
  labels       = { channel_name = "#billing" }
  sensitive_labels {
    auth_token_wo         = var.channel_keys.slack
    auth_token_wo_version = 1
  }
}

resource "google_monitoring_notification_channel" "pagerduty" {
  display_name = "Billhook at PagerDuty"
  type         = "pagerduty"
  sensitive_labels {
    service_key_wo         = var.channel_keys.pagerduty
    service_key_wo_version = 1
  }
}

# They outlive the database; point-in-time recovery, of seven days, does not.
resource "google_firestore_backup_schedule" "weekly" {
  database  = module.billhook.database
  retention = "${14 * 7 * 86400}s"
  weekly_recurrence {
    day = "SUNDAY"
  }
}

# It notifies, and stops nothing. It is of the whole project: some of what this costs has no labels.
resource "google_billing_budget" "project" {
  billing_account = "012345-6789AB-CDEF01"
  display_name    = "billhook"
  budget_filter {
    projects        = ["projects/123456789012"]
    calendar_period = "MONTH"
  }
  amount {
    specified_amount {
      units = "200"
    }
  }
  threshold_rules {
    threshold_percent = 0.9
  }
  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }
}

# A copy of the services' lines: the project's bucket _Default, and its retention, are everybody's.
resource "google_logging_project_bucket_config" "own" {
  project        = "my-project"
  location       = "global"
  bucket_id      = "billhook"
  retention_days = 90
}

resource "google_logging_project_sink" "own" {
  name                   = "billhook"
  destination            = "logging.googleapis.com/${google_logging_project_bucket_config.own.id}"
  filter                 = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^billhook-\""
  unique_writer_identity = true
}

# What the alert secret-access is made of. It is the project's one configuration for Secret Manager.
resource "google_project_iam_audit_config" "secrets" {
  project = "my-project"
  service = "secretmanager.googleapis.com"
  audit_log_config {
    log_type = "DATA_READ"
  }
}
