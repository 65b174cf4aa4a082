# Backups, beside point-in-time recovery: that goes back for seven days, and goes with the database.
# What is only of use for a minute, at the webhook service, has none.

locals {
  backups = merge(
    var.backups.daily_days == 0 ? {} : { daily = { days = var.backups.daily_days, on = null } },
    var.backups.weekly_weeks == 0 ? {} : { weekly = { days = 7 * var.backups.weekly_weeks, on = var.backups.weekly_on } },
  )
}

resource "google_firestore_backup_schedule" "this" {
  for_each  = local.backups
  project   = var.project_id
  database  = google_firestore_database.this.name
  retention = "${each.value.days * 86400}s"

  dynamic "daily_recurrence" {
    for_each = each.value.on == null ? [true] : []
    content {}
  }

  dynamic "weekly_recurrence" {
    for_each = each.value.on[*]
    content {
      day = weekly_recurrence.value
    }
  }
}

# Firestore's own account, which must be there: gcloud beta services identity create --service=firestore.googleapis.com
# grant: Firestore's service agent | the key of `firestore.kms_key` | encrypts and decrypts the databases
resource "google_kms_crypto_key_iam_member" "firestore_encrypts" {
  for_each      = toset(var.firestore.kms_key[*])
  crypto_key_id = each.key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:service-${local.number}@gcp-sa-firestore.iam.gserviceaccount.com"
  depends_on    = [google_project_service.api]
}
