# A second installation in the same project, for tests, with a state of its own. It keeps no instance, and may be deleted.
project_id          = "my-project"
installation        = "staging"
region              = "europe-west3"
firestore           = { location = "eur3" }
bootstrap           = true # for the first apply alone
scale_to_zero       = true
deletion_protection = false

queues      = ["paynow-events", "pay-subscription-update"]
target_urls = { SUBSCRIPTION_SERVICE_URL = "https://subscriptions.staging.example.com" }

notification_channels = ["projects/my-project/notificationChannels/1234567890"]
